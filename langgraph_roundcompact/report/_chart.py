"""The window over time, as geometry for an inline SVG: a step for each model call, a drop for each compaction.

Drawn on the server, once wide and once narrow, so that letters keep their size on a small screen. A long run is thinned out: of neighbours the
highest and each compaction stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from langgraph_roundcompact.report._runs import Check, Run

MOST_STEPS = 600
_LABELS = 14
"""Compactions up to which each drop has its figure beside it, where that meets no other."""
_LABEL_WIDTH, _LABEL_HEIGHT = 46, 16


@dataclass(slots=True)
class Drop:
    """One compaction or fold in the picture."""

    x: float
    top: float
    bottom: float
    href: str
    label: str
    text: str
    """The figure beside it; empty where there is no room."""
    kind: str
    """`checkpoint` or `folds`."""


@dataclass(slots=True)
class Line:
    """A height with a name."""

    y: float
    name: str
    tokens: int
    kind: str


@dataclass(frozen=True, slots=True)
class Frame:
    """The paper: where calls and tokens lie on it."""

    width: int
    height: int
    step: float
    """Width of one call."""
    most: float
    """Tokens at the top."""
    left: ClassVar[int] = 52
    right: ClassVar[int] = 12
    bottom: ClassVar[int] = 30
    top: ClassVar[int] = 18

    def x(self, at: float) -> float:
        """Place of a call, counted from 0."""
        return round(self.left + at * self.step, 1)

    def y(self, tokens: float) -> float:
        """Height of a window."""
        return round(self.height - self.bottom - (self.height - self.bottom - self.top) * min(tokens / self.most, 1.0), 1)

    @property
    def wide(self) -> bool:
        """Whether there is room for many letters."""
        return self.width > 600


@dataclass(slots=True)
class Chart:
    """Everything the template draws."""

    frame: Frame
    area: str
    edge: str
    without: str
    leaves: tuple[float, str] | None
    """Where the line without compaction leaves the picture, and what it says there."""
    drops: list[Drop]
    lines: list[Line]
    ticks: list[tuple[float, str]]
    grid: list[tuple[float, str]]


def chart_of(run: Run, names: dict[int, str], *, width: int, height: int) -> Chart:
    """The picture of one run.

    Args:
        run: The run; it has a check at least.
        names: Name of the card of each compaction, by the number of its check.
        width: Of the picture, in units that are pixels at full size.
        height: Likewise.
    """
    heights = [max(check.before, check.after) for check in run.checks]
    # The line without compaction may leave the picture: it must not press the rest flat.
    most = max(run.capacity * 1.12, *heights, min(max(_without(run.checks)) * 1.05, run.capacity * 1.9)) or 1
    frame = Frame(width, height, (width - Frame.left - Frame.right) / len(run.checks), most)
    stretches = _stretches(len(run.checks))
    points = [(frame.x(i + part), frame.y(tokens)) for i, stop in stretches for part, tokens in _heights(run.checks, i, stop)]
    edge, ground = _path(points), frame.y(0)
    without, leaves = _line_without(run.checks, stretches, frame)
    named = (("capacity", run.capacity), ("trigger", run.trigger), ("target", run.target))
    return Chart(
        frame=frame,
        edge=edge,
        area=f"{edge}L{points[-1][0]},{ground}L{points[0][0]},{ground}Z",
        without=without,
        leaves=leaves,
        drops=_drops(run.checks, names, frame),
        lines=[Line(frame.y(tokens), name, tokens, name) for name, tokens in named if tokens],
        ticks=[(frame.x(number - 0.5), f"{number:,}") for number in _tick_numbers(len(run.checks), 10 if frame.wide else 5)],
        grid=[(frame.y(tokens), short(tokens)) for tokens in _round_steps(most)],
    )


_AT = 0.35
"""Where in the step of a call the compaction before it is drawn."""


def _drops(checks: Sequence[Check], names: dict[int, str], frame: Frame) -> list[Drop]:
    changes = [(i, check) for i, check in enumerate(checks) if check.compactions or check.reclaimed]
    roomy = len(changes) <= (_LABELS if frame.wide else _LABELS // 2)
    drops: list[Drop] = []
    for i, check in changes:
        drop = Drop(
            x=frame.x(i + _AT),
            top=frame.y(check.before),
            bottom=frame.y(check.after),
            href=f"#{names[check.number]}" if check.number in names else "",
            label=f"Call {check.number}: {check.before:,} to {check.after:,} tokens",
            text=f"−{short(check.reclaimed)}" if roomy else "",
            kind="checkpoint" if check.compactions else "folds",
        )
        if drop.text and any(
            abs(drop.x - other.x) < _LABEL_WIDTH and abs(drop.bottom - other.bottom) < _LABEL_HEIGHT for other in drops if other.text
        ):
            drop.text = ""
        drops.append(drop)
    return drops


def _line_without(checks: Sequence[Check], stretches: Sequence[tuple[int, int]], frame: Frame) -> tuple[str, tuple[float, str] | None]:
    """The line, up to where it leaves the picture."""
    if not any(check.reclaimed for check in checks):
        return "", None
    heights, points = _without(checks), []
    for i, stop in stretches:
        if heights[stop - 1] > frame.most:
            points.append((frame.x(i), float(frame.top - 8)))
            return _path(points), (frame.x(i) + 8, f"{short(heights[-1])} without compaction ↑")
        points += [(frame.x(i), frame.y(heights[stop - 1])), (frame.x(stop), frame.y(heights[stop - 1]))]
    return _path(points), None


def short(tokens: float) -> str:
    """A number of tokens in few letters: 940, 18.2k, 1.3M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(tokens) >= size:
            text = f"{tokens / size:.1f}".removesuffix(".0")
            return f"{text}{letter}"
    return f"{tokens:,.0f}"


def _without(checks: Sequence[Check]) -> list[int]:
    """The window at each call had nothing ever been taken out."""
    gone, found = 0, []
    for check in checks:
        found.append(check.before + gone)
        gone += check.reclaimed
    return found


def _stretches(count: int) -> list[tuple[int, int]]:
    """Stretches of calls that are drawn as one step, as half-open ranges."""
    size = -(-count // MOST_STEPS)
    return [(i, min(i + size, count)) for i in range(0, count, size)]


def _heights(checks: Sequence[Check], start: int, stop: int) -> list[tuple[float, int]]:
    """Offsets and heights of one stretch: its highest window, the drop, and what was sent last."""
    part = checks[start:stop]
    top, end, width = max(check.before for check in part), part[-1].after, stop - start
    if not any(check.reclaimed for check in part):
        return [(0.0, top), (float(width), top)]
    return [(0.0, top), (_AT * width, top), (_AT * width, end), (float(width), end)]


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "".join(f"{'L' if i else 'M'}{px},{py}" for i, (px, py) in enumerate(points))


def _round_steps(most: float) -> list[int]:
    size = 10 ** max(len(str(int(most))) - 1, 0)
    step = next((int(size * part) for part in (0.1, 0.2, 0.25, 0.5, 1, 2) if size * part and most / (size * part) <= 5), size)
    return list(range(0, int(most) + 1, max(step, 1)))


def _tick_numbers(count: int, most: int) -> list[int]:
    if count <= most:
        return list(range(1, count + 1))
    size = 10 ** (len(str(count)) - 1)
    step = next(int(max(size * part, 1)) for part in (0.1, 0.2, 0.5, 1, 2, 5) if count / max(size * part, 1) <= most)
    return [1, *range(step, count + 1, step)] if step > 1 else list(range(1, count + 1))
