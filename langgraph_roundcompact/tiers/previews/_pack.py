"""Fitting an outline into a number of tokens: best rank first, gaps marked, long lines clipped and grown back as far as there is room."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from langgraph_roundcompact._shorten import Waterline
from langgraph_roundcompact.tiers.previews._outline import FILL, HIDDEN, NEVER, Outline

_GAP_TOKENS = 8
"""What the mark of a gap costs, about."""
_BLANKS = 8
"""Blank lines in a row that are no gap."""
_BRIDGE = 32
"""A single line of at most so many characters is shown instead of a mark that would cost as much."""
_MISSES = 24
"""Lines that did not fit, one after the other, before the rest is not tried: what is left then is too small for anything."""
_LONG_LIST = 12
"""Lines of one rank from which they are taken from both ends: of many files, headings or definitions the last tells how far it goes."""
_TELLING = ("error", "exception", "traceback", "fatal:", "panic", "failed", "错误", "失败", "异常")
_LONG = 1_000
"""Characters from which a line is searched for what it says of errors."""


@dataclass(frozen=True, slots=True)
class Packed:
    """The body of a preview."""

    text: str
    units: int
    """Units of the text that are shown."""
    characters: int
    """Characters of the text that are shown."""


def pack(outline: Outline, budget: int, estimate: Callable[[str], int]) -> Packed:
    """The best lines of an outline in reading order.

    Args:
        outline: What could be shown.
        budget: Tokens for all of it. It is aimed at, not kept to the token: whoever needs that counts the result.
        estimate: Tokens of a text.
    """
    cap = max(60, min(outline.cap, budget))
    chosen, used = _choose(outline, cap, budget, estimate)
    return _render(outline, chosen, _grown(outline, chosen, cap, budget - used, used))


def _choose(outline: Outline, cap: int, budget: int, estimate: Callable[[str], int]) -> tuple[set[int], int]:
    """Positions to show, and what they cost in tokens."""
    chosen: set[int] = set()
    mark = _GAP_TOKENS if outline.gaps else 0
    used, misses = mark, 0
    last = len(outline.lines) - 1
    for position in _best_first(outline.ranks):
        if misses >= _MISSES:
            break
        if position in outline.needs and outline.needs[position] not in chosen:
            continue
        touches = (position == 0 or position - 1 in chosen) + (position == last or position + 1 in chosen)
        cost = estimate(clip(outline.lines[position], cap)) + 1 + mark * (1 - touches)
        if used + cost > budget:
            misses += 1
            continue
        chosen.add(position)
        used += cost
        misses = 0
    return chosen, used


def _best_first(ranks: Sequence[int]) -> Iterator[int]:
    """Positions of lines that may be shown, by rank; of many with one rank two of the head for one of the tail."""
    for rank, group in groupby(sorted((at for at, rank in enumerate(ranks) if rank < NEVER), key=ranks.__getitem__), key=ranks.__getitem__):
        same = list(group)
        if len(same) < _LONG_LIST or rank >= FILL:
            yield from same
            continue
        head = (2 * len(same) + 2) // 3
        tail = same[head:]
        for start in range(0, head, 2):
            yield from same[start : min(start + 2, head)]
            if tail:
                yield tail.pop()


def _grown(outline: Outline, chosen: set[int], cap: int, left: int, used: int) -> int:
    """The common cap of the chosen lines that uses up what is left, in characters."""
    lengths = [len(outline.lines[position]) for position in chosen]
    clipped = [length for length in lengths if length > cap]
    if not clipped or left < 4:
        return cap
    now = sum(min(length, cap) for length in lengths)
    # A tenth less than what the lines so far cost: growth that overshoots is paid with a whole round of packing.
    extra = int(left * (now / max(used, 1)) * 0.9)
    return max(Waterline(clipped).cap(len(clipped) * cap + extra), cap)


def _render(outline: Outline, chosen: set[int], cap: int) -> Packed:
    out: list[str] = []
    units = characters = 0
    start = 0
    for position in [*sorted(chosen), len(outline.lines)]:
        gap = _gap(outline, start, position)
        out += gap.text.split("\n") if gap.text or gap.units else []
        units += gap.units
        characters += gap.characters
        start = position + 1
        if position == len(outline.lines):
            break
        line = _excerpt(outline.lines[position], cap)
        out.append(line)
        covered = outline.units.get(position, 1)
        units += covered
        characters += min(len(line), len(outline.lines[position])) + 1 if covered else 0
    return Packed("\n".join(out), units, characters)


def _gap(outline: Outline, start: int, stop: int) -> Packed:
    """What stands for the lines from `start` to `stop`: nothing, a blank line, the one short line itself, or a mark."""
    lost = outline.units_between(start, stop)
    if lost <= 0:
        return Packed("", 0, 0)
    if stop - start <= _BLANKS and all(outline.ranks[position] == NEVER for position in range(start, stop)):
        inner = start > 0 and stop < len(outline.lines) and outline.gaps
        return Packed("", lost, lost) if inner else Packed("", 0, 0)
    if not outline.gaps:
        return Packed("", 0, 0)
    if lost == 1:
        position = next(position for position in range(start, stop) if outline.units.get(position, 1))
        short = outline.ranks[position] < HIDDEN and len(outline.lines[position]) <= _BRIDGE
        return Packed(outline.lines[position], 1, len(outline.lines[position]) + 1) if short else Packed("[…]", 0, 0)
    return Packed(f"[… {lost:,} {outline.unit} …]", 0, 0)


def clip(text: str, cap: int) -> str:
    """A long line by its head and its end, with the number of characters between them."""
    if len(text) <= cap + 30:
        return text
    tail = cap // 3
    return f"{text[: cap - tail]}{_hole(len(text) - cap)}{text[len(text) - tail :]}"


def _excerpt(text: str, cap: int) -> str:
    """As `clip`, and of a very long line also the place where it speaks of an error."""
    if len(text) < _LONG or len(text) <= cap + 30 or cap < 120:
        return clip(text, cap)
    size = cap // 3
    found = _telling_place(text, size, len(text) - size)
    if found < 0:
        return clip(text, cap)
    start = min(max(found - size // 4, size), len(text) - 2 * size)
    stop = start + size
    return f"{text[:size]}{_hole(start - size)}{text[start:stop]}{_hole(len(text) - size - stop)}{text[len(text) - size :]}"


def _telling_place(text: str, start: int, stop: int) -> int:
    """Where the first of the words for errors stands, or -1."""
    lower = text.lower()
    places = [place for word in _TELLING if (place := lower.find(word, start, stop)) >= 0]
    return min(places, default=-1)


def _hole(characters: int) -> str:
    return f" [… {characters:,} characters …] " if characters > 0 else ""
