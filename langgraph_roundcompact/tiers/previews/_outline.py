"""What every content type hands over: the lines a preview could show, each with a rank, in reading order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

Kind = Literal["json", "log", "diff", "search", "page", "table", "code", "text"]
"""The content types."""

NEVER = 1 << 40
"""Rank of a line that is shown only where it costs nothing: a blank one."""

HIDDEN = NEVER + 1
"""Rank of a placeholder for what was not even listed: it is never shown."""

FILL = 1_000
"""Ranks from here on are filling: lines taken from both ends when everything that tells something has found room."""


@dataclass(frozen=True, slots=True)
class Outline:
    """A text seen as lines that are worth more or less."""

    kind: Kind
    title: str
    """What the text is, with its counts, for the first line of the preview."""
    lines: list[str]
    """In reading order."""
    ranks: list[int]
    """One a line: the smallest are shown first; equal ones in reading order."""
    unit: str = "lines"
    """What is counted, in the plural."""
    units: Mapping[int, int] = field(default_factory=dict)
    """Positions of lines that are not one unit each: 0 for the preview's own words, more for a line or a placeholder that stands for several."""
    needs: Mapping[int, int] = field(default_factory=dict)
    """Positions of lines that mean nothing without another one: the position of that."""
    cap: int = 320
    """Characters of a line that are shown at first; more, where there is room in the end."""
    gaps: bool = True
    """Whether a gap is marked; not where the lines carry numbers."""

    @property
    def total(self) -> int:
        """Units of the text."""
        return len(self.lines) - len(self.units) + sum(self.units.values())

    def units_between(self, start: int, stop: int) -> int:
        """Units of the lines from `start` to `stop`."""
        if not self.units:
            return stop - start
        return sum(self.units.get(position, 1) for position in range(start, stop))


def lines_of(text: str) -> list[str]:
    """The lines of a text, whatever ends them; form feeds and other separators stay inside a line, so that the numbers are those of an editor."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def edge_ranks(lines: list[str]) -> list[int]:
    """Filling ranks: from both ends inwards, two lines of the head for one of the tail; never for blank lines."""
    count = len(lines)
    head = (2 * count + 2) // 3
    ranks = [*range(FILL, FILL + head), *range(FILL + 2 * (count - head) - 1, FILL, -2)]
    for position, line in enumerate(lines):
        if not line or line.isspace():
            ranks[position] = NEVER
    return ranks


def raise_rank(ranks: list[int], position: int, rank: int) -> None:
    """Give a line a better rank, if it has a worse one; positions outside are ignored, and so are blank lines."""
    if 0 <= position < len(ranks) and rank < ranks[position] < NEVER:
        ranks[position] = rank


def raise_edges(ranks: list[int], rank: int, head: int, tail: int) -> None:
    """Give the first and the last lines a better rank, the outermost the best."""
    for distance in range(max(head, tail)):
        if distance < head:
            raise_rank(ranks, distance, rank + distance)
        if distance < tail:
            raise_rank(ranks, len(ranks) - 1 - distance, rank + distance)


def counted(number: int, unit: str) -> str:
    """`1 line`, `1,200 lines`."""
    return f"{number:,} {unit if number != 1 else _singular(unit)}"


def _singular(unit: str) -> str:
    if unit == "matches":
        return "match"
    return unit[:-3] + "y" if unit.endswith("ies") else unit.removesuffix("s")


def joined(outline: Outline, lead: Iterable[str], trail: Iterable[str]) -> Outline:
    """The outline with lines before and after it that are always worth showing: exit status, name of a file."""
    before, after = list(lead), list(trail)
    if not before and not after:
        return outline
    shift = len(before)
    lines = [*before, *outline.lines, *after]
    ranks = [0] * shift + outline.ranks + [0] * len(after)
    units = {position + shift: count for position, count in outline.units.items()}
    if outline.unit != "lines":
        units |= dict.fromkeys((*range(shift), *range(len(lines) - len(after), len(lines))), 0)
    needs = {position + shift: need + shift for position, need in outline.needs.items()}
    return replace(outline, lines=lines, ranks=ranks, units=units, needs=needs)
