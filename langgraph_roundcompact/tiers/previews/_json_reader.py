"""Reading JSON of any shape and depth: whole, as lines, as Python literals, cut off; without recursion where the text may be deep."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import islice
from typing import Any

from langgraph_roundcompact.tiers.previews._outline import lines_of

_TOKEN = re.compile(r"[\[\]{}]|\"[^\"\\]*+(?:\\.[^\"\\]*+)*+\"?|'[^'\\]*+(?:\\.[^'\\]*+)*+'?|[^\s\[\]{},:\"']+", re.DOTALL)
_STRING = re.compile(r"\"[^\"\\]*+(?:\\.[^\"\\]*+)*+\"?", re.DOTALL)
_NO_BRACKET = re.compile(r"[^\[\]{}]+")
_CLOSING = str.maketrans("[{", "]}")
_MOST_OPEN = 64
"""Depth to which JSON that was cut off is closed again."""
_SCALAR = re.compile(r"-?(?:\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|Infinity)$|NaN$|true$|false$|null$|True$|False$|None$")
_STARTS = re.compile(r"\s*(?:\{\s*(?:[\"']|\}|$)|\[\s*(?:[\"'\[{\]]|-?\d+(?:\.\d+)?\s*[,\]]|true|false|null|None|$))")
_MOST_TOKENS = 60_000
_PLAIN = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}


class Number(str):
    """A number as it is written."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Parsed:
    """What could be read of a text."""

    value: Any
    stop: int
    """Characters that were read."""
    rest: str = ""
    """What follows them."""
    name: str = "JSON"


def parse(text: str) -> Parsed | None:
    """Read JSON, lines of JSON, Python literals of the same shapes, or the beginning of one that was cut off; `None` if it is none of them."""
    if not _STARTS.match(text[:2_000]):
        return None
    known, value = _load(text)
    if known:
        return Parsed(value, len(text))
    return _records(text) or _closed(text) or _tolerant(text)


def _load(text: str) -> tuple[bool, Any]:
    """Whether a text is JSON, and its value; numbers with a fraction keep their spelling."""
    try:
        return True, json.loads(text, parse_float=Number)
    except (ValueError, RecursionError):
        return False, None


def _records(text: str) -> Parsed | None:
    """One JSON value a line; the last line may be cut off."""
    lines = [line for line in lines_of(text) if line.strip()]
    if len(lines) < 2 or lines[0].lstrip()[:1] not in "{[":
        return None
    values: list[Any] = []
    for position, line in enumerate(lines):
        known, value = _load(line)
        if not known:
            last = position > 1 and position == len(lines) - 1
            return Parsed(values, len(text) - len(line), line, "JSON lines") if last else None
        values.append(value)
    return Parsed(values, len(text), "", "JSON lines")


def _closed(text: str) -> Parsed | None:
    """JSON that was cut off: read up to its last comma, with the open brackets closed. Most of the work is done by the fast parser."""
    bare = _STRING.sub(lambda match: " " * len(match.group()), text)
    cut = max(bare.rfind(","), bare.rfind("[") + 1, bare.rfind("{") + 1)
    brackets = _NO_BRACKET.sub("", bare[:cut])
    for _ in range(_MOST_OPEN):
        fewer = brackets.replace("{}", "").replace("[]", "")
        if len(fewer) == len(brackets):
            break
        brackets = fewer
    if len(brackets) > _MOST_OPEN:
        return None
    known, value = _load(text[:cut] + brackets[::-1].translate(_CLOSING))
    return Parsed(value, cut, text[cut:].strip(" \t\r\n,")) if known and value else None


def _tolerant(text: str) -> Parsed | None:
    """Read as far as the text is JSON or a Python literal, without recursion: every open container keeps what it has."""
    stack: list[Any] = []
    root: Any = None
    key: str | None = None
    end = 0
    for match in islice(_TOKEN.finditer(text), _MOST_TOKENS):
        piece = match.group()
        if piece in "]}":
            if stack:
                stack.pop()
            key = None
        else:
            known, value = _value(piece)
            if not known or (root is not None and not stack):
                break
            if root is None:
                root = value
            else:
                key = _attach(stack[-1], key, value)
            if isinstance(value, dict | list):
                stack.append(value)
                key = None
        end = match.end()
        if not stack:
            break
    if root is None or not isinstance(root, dict | list) or not root or end < min(len(text) * 0.2, 2_000):
        return None
    rest = text[end:].strip()
    return Parsed(root, end, rest or ("…" if stack else ""))


def _value(piece: str) -> tuple[bool, Any]:
    """Whether a piece is a value, and the value."""
    if piece == "{":
        return True, {}
    if piece == "[":
        return True, []
    if piece[0] == '"':
        return True, _string(piece)
    if piece[0] == "'":
        return True, piece[1:-1] if len(piece) > 1 and piece[-1] == "'" else piece[1:]
    if piece in _PLAIN:
        return True, _PLAIN[piece]
    return (True, Number(piece)) if len(piece) < 400 and _SCALAR.match(piece) else (False, None)


def _string(piece: str) -> str:
    if "\\" not in piece:
        return piece.strip('"')
    try:
        return str(json.loads(piece, strict=False))
    except ValueError:
        return piece.strip('"')


def _attach(container: Any, key: str | None, value: Any) -> str | None:
    """Put a value where it belongs; the key that waits for its value, if this was one."""
    if isinstance(container, list):
        container.append(value)
        return None
    if key is None:
        return str(value)
    container[key] = value
    return None
