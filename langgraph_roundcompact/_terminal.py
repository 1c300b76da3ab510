"""What the commands have in common on a terminal: the console, columns of fixed width, and the picture of a window over time."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

PLAIN_WIDTH = 110
"""Columns where nobody says how wide the output is: a file, a pipe."""


@dataclass(frozen=True, slots=True)
class Glyphs:
    """Characters to draw with."""

    levels: str
    """From empty to full; the last is a whole cell."""
    gone: str
    line: str
    arrow: str
    passed: str
    failed: str
    dot: str


UNICODE = Glyphs(levels=" ▁▂▃▄▅▆▇█", gone="░", line="╌", arrow="→", passed="✓", failed="✗", dot="·")
ASCII = Glyphs(levels=" #", gone=":", line="-", arrow="->", passed="ok", failed="FAILED", dot="-")


@dataclass(frozen=True, slots=True)
class Bar:
    """The window at one step."""

    tokens: int
    before: int | None = None
    """Tokens before the compaction that was made here; None: there was none."""


class _Console(Console):
    """A console whose reader may leave: that ends the run as any `BrokenPipeError` does, where rich would exit with a status of its own."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def make_console(*, plain: bool, stderr: bool = False) -> Console:
    """A console that prints text as it is: no markup, no highlighting, nothing guessed from foreign text."""
    stream = sys.stderr if stderr else sys.stdout
    tty = stream.isatty() and not plain
    # Text from files may hold what the terminal's encoding does not: it must not end the run.
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")
    width = None if tty or "COLUMNS" in os.environ else PLAIN_WIDTH
    colours = {"color_system": None} if plain else {}
    return _Console(file=stream, width=width, markup=False, highlight=False, emoji=False, force_terminal=False if plain else None, **colours)  # type: ignore[arg-type]


def glyphs_of(console: Console) -> Glyphs:
    """Block characters where the output can take them."""
    return UNICODE if console.encoding.lower().startswith("utf") else ASCII


def cell(text: str, width: int, *, right: bool = False) -> str:
    """`text` in a column of fixed width, cut at its end when it is too long."""
    short = text if len(text) <= width else text[: width - 1] + "…"
    return short.rjust(width) if right else short.ljust(width)


def gauge(tokens: int, capacity: int, trigger: int, glyphs: Glyphs, width: int) -> Text:
    """A small bar: how full the window is."""
    full = min(round(width * tokens / capacity), width)
    style = "red" if tokens > capacity else "yellow" if tokens >= trigger else "cyan"
    return Text.assemble(
        (glyphs.levels[-1] * full, style), (glyphs.levels[1] * (width - full) if glyphs is UNICODE else "." * (width - full), "bright_black")
    )


def picture(bars: Sequence[Bar], *, capacity: int, trigger: int, width: int, height: int, glyphs: Glyphs) -> Text:
    """The window over time: one column a request, what a compaction took away in a lighter tone above it, the trigger as a line.

    Args:
        bars: The window at each step.
        capacity: Top of the scale, in tokens.
        trigger: Where compaction starts, in tokens.
        width: Columns to use, the scale included.
        height: Rows to use, without the scale below.
        glyphs: What to draw with.
    """
    margin = 8
    columns = _grouped(bars, max(width - margin, 10))
    wide = 2 if 2 * len(columns) <= width - margin else 1
    top = max(capacity, *(bar.before or bar.tokens for bar in columns), 1)
    out = Text(no_wrap=True, overflow="crop")
    trigger_row = min(int(trigger / top * height), height - 1)
    # Where marks fall into one row, the more telling one is written.
    labels = {0: "0", height - 1: f"{top:,}", min(int(capacity / top * height), height - 1): f"{capacity if capacity < top else top:,}"}
    labels[trigger_row] = f"{trigger:,}" if trigger_row < height - 1 else labels[height - 1]
    for row in range(height - 1, -1, -1):
        out.append(cell(labels.get(row, ""), margin - 1, right=True) + " ", "yellow" if row == trigger_row else "bright_black")
        for bar in columns:
            text, style = _column_cell(bar, row * top / height, top / height, glyphs, row == trigger_row)
            out.append(text * wide, "red" if style == "cyan" and (row + 0.5) * top / height > capacity else style)
        out.append("\n")
    steps = f"request 1 {glyphs.arrow} {len(bars)}"
    legend = f"{glyphs.levels[-1]} sent   {glyphs.gone} taken away by a compaction   {glyphs.line} trigger"
    out.append(" " * margin + f"{steps}     {legend}", "bright_black")
    return out


def _grouped(bars: Sequence[Bar], columns: int) -> list[Bar]:
    """At most `columns` bars: neighbours become one, the highest counts, a compaction stays visible."""
    size = -(-len(bars) // columns) if bars else 1
    groups = [bars[i : i + size] for i in range(0, len(bars), size)]
    return [Bar(max(bar.tokens for bar in group), max((bar.before for bar in group if bar.before), default=None)) for group in groups]


def _column_cell(bar: Bar, low: float, step: float, glyphs: Glyphs, on_trigger: bool) -> tuple[str, str]:
    """Character and colour of one column in one row; `low` is the tokens at its lower edge, `step` those of a row."""
    last = len(glyphs.levels) - 1
    level = min(max(int((bar.tokens - low) / step * last + 0.5), 0), last)
    if level:
        return glyphs.levels[level], "green" if bar.before is not None else "cyan"
    if bar.before is not None and bar.before > low + step / 2:
        return glyphs.gone, "green"
    return (glyphs.line, "yellow") if on_trigger else (" ", "")
