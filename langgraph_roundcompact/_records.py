"""JSON as lines: what a tool answered in records, told record by record."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

_DEEPEST, _MOST_LINES = 8, 5000
_SHORT_VALUE, _MOST_BLANKS = 48, 2
"""Characters and blanks of a value that does not get a line of its own."""
_RECORD = 150
"""Characters of a line that holds short values."""


def json_lines(text: str) -> list[str]:
    """The values of a JSON text as lines, in reading order; `[]` where it is none.

    Short values of one record stand together, with their names: read alone, a price or a status says nothing.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return []
    out: list[str] = []
    _walk(data, "", out, 0)
    return out


def _walk(value: object, key: str, out: list[str], depth: int) -> None:
    if depth > _DEEPEST or len(out) > _MOST_LINES:
        return
    if isinstance(value, dict):
        short = [f"{name}: {item}" for name, item in value.items() if _is_short(item)]
        out += _packed(short)
        for name, item in value.items():
            if not _is_short(item):
                _walk(item, str(name), out, depth + 1)
    elif isinstance(value, list):
        short = [str(item) for item in value if _is_short(item)]
        out += _packed(short, key)
        for item in value:
            if not _is_short(item):
                _walk(item, key, out, depth + 1)
    elif isinstance(value, str):
        out += [line for line in value.splitlines() if len(line.strip()) > 1]
    elif value is not None:
        out.append(f"{key}: {value}")


def _is_short(value: object) -> bool:
    if not isinstance(value, str):
        return isinstance(value, int | float)
    # A title or an address says something by itself.
    plain = value.isascii() and "\n" not in value and "://" not in value
    return plain and 0 < len(value) <= _SHORT_VALUE and value.count(" ") <= _MOST_BLANKS


def _packed(pieces: Sequence[str], head: str = "") -> Iterator[str]:
    """Pieces joined into lines that stay whole."""
    line = ""
    for piece in pieces:
        if line and len(line) + len(piece) > _RECORD:
            yield line
            line = ""
        line = f"{line}, {piece}" if line else f"{head}: {piece}" if head else piece
    if line:
        yield line
