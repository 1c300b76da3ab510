"""Replayed conversations on a terminal: a line for each file, for a few files what happened when, and ways to keep a window side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.text import Text

from langgraph_roundcompact._terminal import Bar, Glyphs, cell, glyphs_of, picture
from langgraph_roundcompact.replay import Figures, ReplayReport, ReplayStep

_COLUMNS = (("messages", 8), ("compacted", 9), ("tokens without", 14), ("with", 11), ("", 5), ("largest", 8), ("with", 7))
"""Headings and widths; "with" and "without" are about compaction, the last two columns about the largest request."""

_LABEL, _FIGURE = 14, 12
"""Widths of a comparison: names of the figures, and each strategy."""

_LEFT_OUT = ("messages", "largest", "compacted", "")
"""What a narrow terminal does without, first this, then that; with "largest" its "with"."""

_LEAST_NAME = 16
"""Columns for the name of a conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Under what everything was played."""

    capacity: int
    """The window, in tokens."""
    trigger: int
    target: int
    keep: int | None
    summariser: str
    cached_price: float


def show_header(console: Console, settings: Settings) -> None:
    """The window, and names of the columns."""
    glyphs = glyphs_of(console)
    keep = "what the model has not read" if settings.keep is None else _many(settings.keep, "message")
    who = {"digest": "rules", "null": "a stand-in that says nothing"}.get(settings.summariser, settings.summariser)
    parts = (
        f"window {settings.capacity:,} tokens",
        f"trigger {settings.trigger:,}",
        f"target {settings.target:,}",
        f"kept at the end: {keep}",
        f"checkpoints by {who}",
    )
    console.print(Text(f" {glyphs.dot} ".join(parts), "bright_black"))
    _print(_cells("conversation", [(name, "") for name, _ in _COLUMNS], console), console, "bold")


def show_report(report: ReplayReport, console: Console, *, settings: Settings, details: bool) -> None:
    """One conversation: its line, and with `details` each decision and the picture."""
    glyphs = glyphs_of(console)
    _print(_line(report.name, report.as_dict(), console, settings.capacity), console)
    for failure in report.failures:
        console.print(Text(f"    {glyphs.failed} {failure}", "bold red"))
    if not details:
        return
    console.print()
    decisions = [step for step in report.steps if step.outcome != "below_trigger"]
    for _, run in groupby(decisions, key=lambda step: step.position if step.changed else -1):
        _print(_decision(list(run), glyphs), console)
    if report.calls and decisions:
        bars = [Bar(step.tokens_after, step.tokens_before if step.changed else None) for step in report.calls]
        drawn = picture(bars, capacity=settings.capacity, trigger=settings.trigger, width=min(console.width, 120), height=8, glyphs=glyphs)
        _print(drawn, console)
        console.print()


def show_totals(reports: Sequence[ReplayReport], console: Console, *, settings: Settings) -> None:
    """All conversations together, and whether the invariants held."""
    glyphs, sums = glyphs_of(console), totals(reports)
    failures, checks = sums["invariant_failures"], sum(len(report.steps) for report in reports)
    if len(reports) > 1:
        _print(_line(f"all {len(reports)}", sums, console, settings.capacity), console, "bold")
        console.print()
    words = f"{_many(failures, 'invariant failure')} in {_many(checks, 'check')} of {_many(len(reports), 'conversation')}"
    console.print(Text(f"{glyphs.failed if failures else glyphs.passed} {words}", "bold red" if failures else "bold green"))


def show_comparison(name: str, compared: Sequence[Figures], console: Console) -> None:
    """Ways to keep the window of one conversation, or of all, side by side; on a narrow terminal one below the other."""
    probes = any(figures.probes for figures in compared)
    columns = [_compared(figures, probes=probes) for figures in compared]
    console.print()
    if console.width >= _LABEL + len(columns) * (2 + _FIGURE):
        widths = [("", _FIGURE)] * len(columns)
        _print(_row(name, [(figures.strategy, "") for figures in compared], widths, _LABEL), console, "bold")
        for row in zip(*columns, strict=True):
            _print(_row(row[0][0], [(text, style) for _, text, style in row], widths, _LABEL), console)
        return
    console.print(Text(name, "bold"))
    for figures, column in zip(compared, columns, strict=True):
        console.print(Text(f"  {figures.strategy}", "bold"))
        for label, text, style in column:
            console.print(Text.assemble(f"    {cell(label, _LABEL)}", (text, style)))


def explain_comparison(console: Console, *, settings: Settings) -> None:
    """What the columns mean, in a few lines."""
    price = f"{settings.cached_price:g}"
    lines = (
        "from cache: what a request and the one before it begin with, message by message; re-read: the rest",
        f"bill: re-read and summaries at full price, what came from the cache at {price} of it, in tokens",
        "cuts: times that messages were summarised or left out; too large: requests over the window",
        "broken: requests that a strict provider refuses; request kept: the user's latest message, verbatim in every request",
        "facts kept: exact strings from the work of a round (paths, commands, errors, ids, numbers) that its last request holds",
    )
    console.print()
    for line in lines:
        console.print(Text(line, "bright_black"))


def totals(reports: Sequence[ReplayReport]) -> dict[str, Any]:
    """Sums over conversations; the largest windows are maxima."""
    each = [report.as_dict() for report in reports]
    sums = ("messages", "model_calls", "compactions", "folds_only", "input_tokens_without", "input_tokens_with", "summary_tokens")
    found: dict[str, Any] = {name: sum(one[name] for one in each) for name in sums}
    found |= {name: max((one[name] for one in each), default=0) for name in ("largest_window_without", "largest_window_with")}
    return {"conversations": len(each), **found, "invariant_failures": sum(len(one["invariant_failures"]) for one in each)}


def _line(name: str, figures: dict[str, Any], console: Console, capacity: int) -> Text:
    without, with_ = figures["input_tokens_without"], figures["input_tokens_with"] + figures["summary_tokens"]
    largest = figures["largest_window_with"]
    change = f"{(with_ - without) / without:+.0%}" if without and with_ != without else ""
    numbers = (
        (f"{figures['messages']:,}", ""),
        (f"{figures['compactions']:,}", ""),
        (f"{without:,}", ""),
        (f"{with_:,}", ""),
        (change, "green" if change.startswith("-") else "yellow"),
        (f"{figures['largest_window_without']:,}", ""),
        (f"{largest:,}", "yellow" if largest > capacity else ""),
    )
    return _cells(name, numbers, console)


def _cells(name: str, texts: Sequence[tuple[str, str]], console: Console) -> Text:
    """A line of the table: texts with their styles, in columns that fit the terminal."""
    shown = list(zip(texts, _COLUMNS, strict=True))
    for left_out in _LEFT_OUT:
        if _width_of([column for _, column in shown]) + _LEAST_NAME <= console.width:
            break
        at = next(i for i, (_, column) in enumerate(shown) if column[0] == left_out)
        del shown[at : at + (2 if left_out == "largest" else 1)]
    width = min(max(console.width - _width_of([column for _, column in shown]), 8), 40)
    return _row(name, [text for text, _ in shown], [column for _, column in shown], width)


def _width_of(columns: Sequence[tuple[str, int]]) -> int:
    return sum(2 + width for _, width in columns)


def _print(text: Text, console: Console, style: str = "") -> None:
    """One line stays one: what does not fit is cut."""
    console.print(text, style=style or None, no_wrap=True, overflow="ellipsis", crop=True)


def _row(name: str, texts: Sequence[tuple[str, str]], columns: Sequence[tuple[str, int]], width: int) -> Text:
    line = Text(cell(name, width), no_wrap=True, overflow="ellipsis")
    for (text, style), (_, column) in zip(texts, columns, strict=True):
        line.append("  " + cell(text, column, right=True), style)
    return line


def _compared(figures: Figures, *, probes: bool) -> list[tuple[str, str, str]]:
    """The figures of a strategy: what each is, its text, and its style."""
    retention = figures.retention
    kept = ("yes", "green") if figures.request_kept else (f"not in {figures.requests_without_request:,}", "red")
    found = [
        ("tokens sent", f"{figures.tokens_sent:,}", ""),
        ("re-read", f"{figures.tokens_uncached:,}", ""),
        ("from cache", f"{figures.tokens_cached:,}", ""),
        ("summaries", f"{figures.summary_tokens:,}", ""),
        ("bill", f"{figures.bill:,}", "bold"),
        ("cuts", f"{figures.compactions:,}", ""),
        ("largest", f"{figures.largest_request:,}", ""),
        ("too large", f"{figures.requests_over_window:,}", "red" if figures.requests_over_window else ""),
        ("broken", f"{figures.requests_broken:,}", "red" if figures.requests_broken else ""),
        ("request kept", *kept),
        ("facts kept", "" if retention is None else f"{retention:.0%}", ""),
    ]
    return [*found, ("probes kept", f"{figures.probes_kept:,}/{figures.probes:,}", "")] if probes else found


def _many(number: int, name: str) -> str:
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def _decision(steps: Sequence[ReplayStep], glyphs: Glyphs) -> Text:
    """A compaction, or checks in a row that left the window alone."""
    step = steps[0]
    line = Text(f"    before message {step.position:>4}  {step.tokens_before:>7,} ", no_wrap=True, overflow="ellipsis")
    if not step.changed:
        why = ", ".join(dict.fromkeys(f"{one.outcome} ({one.reason})" for one in steps))
        times = f"left alone, {len(steps)} times" if len(steps) > 1 else "left alone"
        return line.append(f"tokens, {times}: {why}", "yellow")
    sizes = f"{glyphs.arrow} {step.tokens_after:,} tokens, {step.messages_before} {glyphs.arrow} {step.messages_after} messages"
    return line.append(f"{sizes}  {step.outcome} ({step.reason})", "green")
