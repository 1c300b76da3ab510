"""From a file to JSON values. Reads bytes and decodes text; nothing in a file is ever executed or imported."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from langgraph_roundcompact.loaders._conversation import ConversationError, printable

MAX_BYTES = 256 * 1024 * 1024
"""Largest file that is read: parsed JSON takes several times its size in memory."""

MAX_DEPTH = 200
"""Deepest nesting of lists and mappings; real conversations stay under 20, and code behind this one recurses."""


def read_document(path: Path) -> tuple[list[Any], bool]:
    """The JSON values of a file.

    Args:
        path: A JSON file, or one with a JSON value on each line; UTF-8, UTF-16 or UTF-32.

    Returns:
        The values, and whether they stood on lines of their own.

    Raises:
        ConversationError: the file cannot be read, is empty or too big, or is not JSON.
    """
    text = _decode(path, _read(path))
    if not text.strip():
        msg = f"{shown(path)}: the file is empty"
        raise ConversationError(msg)
    try:
        values, lines = [_parse(text)], False
    except json.JSONDecodeError as whole:
        values, lines = list(_parse_lines(path, text, whole)), True
    except (ValueError, RecursionError) as exc:
        raise _unusable(path, exc) from None
    if any(too_deep(value) for value in values):
        raise _unusable(path, RecursionError())
    return values, lines


def too_deep(value: Any) -> bool:
    """Whether lists and mappings are nested deeper than `MAX_DEPTH`."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for parent in level if isinstance(parent, dict | list) for child in (parent.values() if isinstance(parent, dict) else parent)]
        if not level:
            return False
    return True


def shown(path: Path) -> str:
    """A path for a message, whatever characters it is made of."""
    return printable(str(path), 300)


def _read(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():
            # Also keeps pipes and devices from blocking for ever.
            kind = "a folder" if path.is_dir() else "not a regular file"
            msg = f"{shown(path)}: this is {kind}, a conversation file is needed"
            raise ConversationError(msg)
        if path.stat().st_size > MAX_BYTES:
            msg = f"{shown(path)}: {path.stat().st_size // 2**20:,} MiB, at most {MAX_BYTES // 2**20:,} MiB are read"
            raise ConversationError(msg)
        return path.read_bytes()
    except (OSError, ValueError) as exc:
        reason = (exc.strerror if isinstance(exc, OSError) else None) or str(exc)
        msg = f"{shown(path)}: cannot be read ({printable(reason, 120)})"
        raise ConversationError(msg) from None


def _decode(path: Path, raw: bytes) -> str:
    try:
        return raw.decode(json.detect_encoding(raw)).removeprefix("\ufeff")
    except UnicodeDecodeError as exc:
        msg = f"{shown(path)}: not a text file (byte {exc.start:,} is no {exc.encoding})"
        raise ConversationError(msg) from None


def _parse(text: str) -> Any:
    # Not strict: raw control characters in strings are what careless exporters write, and harmless.
    return json.loads(text, strict=False)


def _parse_lines(path: Path, text: str, whole: json.JSONDecodeError) -> Iterator[Any]:
    """One value a line. Lines end with a line feed only: U+2028 and its kin may stand inside JSON strings."""
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield _parse(line)
        except json.JSONDecodeError as exc:
            if number == 1:
                msg = f"{shown(path)}: not JSON (line {whole.lineno}: {whole.msg}); it begins with '{printable(text.lstrip()[:40])}'"
            else:
                msg = f"{shown(path)}: line {number} is not JSON ({exc.msg})"
            raise ConversationError(msg) from None
        except (ValueError, RecursionError) as exc:
            raise _unusable(path, exc) from None


def _unusable(path: Path, exc: Exception) -> ConversationError:
    if isinstance(exc, RecursionError):
        return ConversationError(f"{shown(path)}: nested more than {MAX_DEPTH} levels deep, which no conversation is")
    return ConversationError(f"{shown(path)}: JSON that cannot be used ({printable(str(exc), 120)})")
