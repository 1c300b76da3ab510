"""JSON: shapes, lengths and keys, the first and last items, odd ones in between; long strings are cut, whole documents inside strings are previewed.

A value becomes lines: an object or array that is short is one line, word for word; a longer one is a line with its size and then its members. Items
that are not even listed stand behind one placeholder, so the cost of an array of a million items is that of parsing it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from langgraph_roundcompact.tiers.previews._json_reader import Number, Parsed
from langgraph_roundcompact.tiers.previews._outline import FILL, HIDDEN, NEVER, Outline, counted

_INLINE = 120
"""Characters up to which a value is one line."""
_HEAD_ITEMS, _TAIL_ITEMS, _ODD_ITEMS, _MEMBERS = 40, 20, 12, 60
"""Items and members of one container that are listed."""
_LAST_MEMBERS, _MEMBERS_IN_ROW = 2, 12
"""Members at the end of an object that come with the first ones, and how many of the others come together."""
_FEW = 5
"""Items up to which each is told at length; of more, each is one line if that can be."""
_ROW, _CELL = 360, 70
"""Characters of such a line, and of one string in it."""
_DEEPEST = 12
_MOST_LINES = 4_000
_DOCUMENT = 400
"""Characters from which a string of several lines is looked into."""
_STATE_KEYS = ("error", "errors", "status", "state", "level", "severity", "conclusion", "outcome", "result", "success", "ok")
_BAD = ("err", "fail", "fatal", "crit", "exception", "timeout", "reject", "denied", "invalid")
_LONE = re.compile("[\ud800-\udfff]")


@dataclass(slots=True)
class _Writer:
    """The lines of a value."""

    inner: Callable[[str], Outline]
    """The outline of a document inside a string."""
    lines: list[str] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    units: dict[int, int] = field(default_factory=dict)
    needs: dict[int, int] = field(default_factory=dict)

    def line(self, text: str, rank: int, *, own: bool = False) -> None:
        """One more line."""
        if own:
            self.units[len(self.lines)] = 0
        self.lines.append(text)
        self.ranks.append(rank)

    def skip(self, count: int) -> None:
        """Values that are not listed."""
        if count > 0:
            self.units[len(self.lines)] = count
            self.line("", HIDDEN)

    def value(self, label: str, value: Any, depth: int, rank: int) -> None:
        """A value with its key or index."""
        pad = " " * depth
        here = len(self.lines)
        if isinstance(value, dict | list) and value:
            short = _inline(value)
            if short is not None:
                self.line(f"{pad}{label}{short}", rank)
            else:
                self.line(f"{pad}{label}{_size(value)}", rank, own=True)
                if depth < _DEEPEST and len(self.lines) < _MOST_LINES:
                    self.members(value, depth + 1, rank + 1)
                    self.needs.update((position, here) for position in range(here + 1, len(self.lines)) if position not in self.needs)
                else:
                    self.skip(len(value))
        elif type(value) is str and len(value) >= _DOCUMENT and "\n" in value:
            self.document(f"{pad}{label}", value, rank, self.inner(value))
        else:
            self.line(f"{pad}{label}{_scalar(value)}", rank)

    def members(self, value: Any, depth: int, rank: int) -> None:
        """Members of an object, or items of an array."""
        if isinstance(value, list):
            self.items(value, depth, rank)
            return
        last = max(len(value) - _LAST_MEMBERS, _MEMBERS_IN_ROW)
        listed = min(_MEMBERS, last)
        for position, (key, member) in enumerate(value.items()):
            if position == listed:
                self.skip(last - listed)
            if position < listed or position >= last:
                self.value(f"{_scalar(str(key))}: ", member, depth, rank + (position // _MEMBERS_IN_ROW if position < last else 0))

    def items(self, value: list[Any], depth: int, rank: int) -> None:
        """Items of both ends, and those that stand out; before them what all of them have in common."""
        shape = _common(value)
        if shape:
            self.line(f"{' ' * depth}[each: {shape}]", rank, own=True)
        before = -1
        for position, better in _listed(value):
            self.skip(position - before - 1)
            if not self.row(position, value[position], depth, rank + better, few=len(value) <= _FEW):
                self.value(f"[{position}] ", value[position], depth, rank + better)
            before = position
        self.skip(len(value) - before - 1)

    def row(self, position: int, item: Any, depth: int, rank: int, *, few: bool) -> bool:
        """An item as one line; whether it is short enough for that, and, if it is one of a few, has no long strings.

        The long strings come again, whole, at a rank where there is room only after the last row.
        """
        if not isinstance(item, dict) or len(item) > _MEMBERS:
            return False
        text = ", ".join(f"{_scalar(str(key))}: {_brief(member)}" for key, member in item.items())
        if len(text) > _ROW or (few and any(type(member) is str and len(member) > _CELL for member in item.values())):
            return False
        self.line(f"{' ' * depth}[{position}] {{{text}}}", rank)
        for key, member in item.items():
            if type(member) is str and len(member) > _CELL:
                self.line(f"{' ' * depth} {_scalar(str(key))}: {_scalar(member)}", FILL + rank, own=True)
        return True

    def document(self, label: str, value: str, rank: int, inner: Outline) -> None:
        """A string of many lines, by the outline of what it holds; prose is left as a string."""
        if inner.kind == "text":
            self.line(label + _scalar(value), rank)
            return
        self.line(f"{label}[{inner.title}, {len(value):,} characters]", rank, own=True)
        shift = len(self.lines)
        self.lines += inner.lines
        self.ranks += [inner_rank if inner_rank >= NEVER else rank + 1 + inner_rank for inner_rank in inner.ranks]
        self.units.update((position + shift, count) for position, count in inner.units.items())
        self.needs.update((position + shift, need + shift) for position, need in inner.needs.items())
        self.needs.update((position, shift - 1) for position in range(shift, len(self.lines)) if position not in self.needs)


def outline(parsed: Parsed, inner: Callable[[str], Outline]) -> Outline:
    """The lines of a parsed value.

    Args:
        parsed: What was read.
        inner: The outline of a document inside a string: the output of a command, the content of a file.
    """
    writer = _Writer(inner)
    writer.members(parsed.value, 0, 1)
    if parsed.rest:
        writer.line(parsed.rest, 2)
    state = "" if not parsed.rest else f", not whole: read up to character {parsed.stop:,}"
    size = _size(parsed.value) if parsed.name == "JSON" else counted(len(parsed.value), "records")
    return Outline(
        kind="json",
        title=f"{parsed.name}: {size}{state}",
        lines=writer.lines,
        ranks=writer.ranks,
        unit="values",
        units=writer.units,
        needs=writer.needs,
    )


def _size(value: Any) -> str:
    if isinstance(value, list):
        return f"array of {len(value):,}"
    return f"object of {counted(len(value), 'keys')}" if isinstance(value, dict) else _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, Number):
        return str(value)
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, dict | list) else "{}" if isinstance(value, dict) else "[]"
    # A lone surrogate could not be written to any file or request: as in the text, it stays an escape.
    return json.dumps(value) if _LONE.search(text) else text


def _brief(value: Any) -> str:
    """A value of a row: a long string by its beginning, a container that is not short by its size."""
    if isinstance(value, dict | list):
        short = _inline(value)
        return short if short is not None and len(short) <= _CELL else f"[… {_size(value)} …]"
    text = _scalar(value)
    return text if len(text) <= _CELL + 20 else f'{text[:_CELL]}[… {len(text) - _CELL - 1:,} characters …]"'


def _inline(value: Any) -> str | None:
    """The value as one short line, or `None` if it is longer."""
    parts: list[str] = []
    left = _INLINE
    for part in _parts(value, 0):
        left -= len(part)
        if left < 0:
            return None
        parts.append(part)
    return "".join(parts)


def _parts(value: Any, depth: int) -> Iterator[str]:
    """The value in pieces, so that a long one is given up early."""
    if depth > 4:
        yield " " * _INLINE * 2
    elif isinstance(value, dict):
        for position, (key, member) in enumerate(value.items()):
            yield (", " if position else "{") + _scalar(str(key)) + ": "
            yield from _parts(member, depth + 1)
        yield "}" if value else "{}"
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield ", " if position else "["
            yield from _parts(item, depth + 1)
        yield "]" if value else "[]"
    else:
        yield _scalar(value)


def _listed(items: Sequence[Any]) -> list[tuple[int, int]]:
    """Positions of the items to list, in order, each with how much later than its siblings it comes."""
    count = len(items)
    last = 2 * count - 1
    ranks = {
        position: min(position, last - 2 * position) for position in (*range(min(_HEAD_ITEMS, count)), *range(max(count - _TAIL_ITEMS, 0), count))
    }
    odd = [position for position, item in enumerate(items) if _is_odd(item)]
    if len(odd) * 4 <= count or len(odd) <= 2:
        ranks.update({position: min(order, ranks.get(position, NEVER)) for order, position in enumerate(odd[:_ODD_ITEMS])})
    return sorted(ranks.items())


def _is_odd(item: Any) -> bool:
    """Whether an item says that something is wrong with it."""
    if isinstance(item, str):
        return len(item) < 400 and _is_bad(item)
    if not isinstance(item, dict):
        return False
    for key in _STATE_KEYS:
        value = item.get(key)
        if value is False and key in ("success", "ok"):
            return True
        if isinstance(value, str) and _is_bad(value[:80]):
            return True
        if key.startswith("error") and value:
            return True
    return False


def _is_bad(text: str) -> bool:
    lower = text.lower()
    return any(word in lower for word in _BAD)


def _common(items: Sequence[Any]) -> str:
    """Keys and types of an array of objects; the type of the items of a long array of something else."""
    if len(items) < 3:
        return ""
    if not all(isinstance(item, dict) for item in items):
        kinds = Counter(_TYPES.get(kind, "number") for kind in map(type, items))
        return ", ".join(f"{name} x {count:,}" for name, count in kinds.most_common(4)) if len(items) > 8 or len(kinds) > 1 else ""
    keys: Counter[str] = Counter()
    types: dict[str, str] = {}
    for item in items:
        keys.update(item.keys())
        for key, value in item.items():
            if value is not None or key not in types:
                kind = _type(value)
                types[key] = kind if types.get(key, kind) in (kind, "null") else "mixed"
    told = [f"{str(key)[:60]} {types[key]}" + (f" ({count:,})" if count < len(items) else "") for key, count in list(keys.items())[:_MEMBERS]]
    more = [f"… {len(keys) - _MEMBERS:,} more keys"] if len(keys) > _MEMBERS else []
    return ", ".join(told + more)


_TYPES = {dict: "object", list: "array", str: "text", bool: "boolean", type(None): "null"}


def _type(value: Any) -> str:
    return _TYPES.get(type(value), "number")
