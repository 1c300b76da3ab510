"""From a file, or standard input, to JSON values, one at a time. Nothing in a file is ever executed or imported.

A file with a value on each line is read line by line, so that a log of a hundred megabytes needs the memory of one line beside what is kept
of it. Lines end with a line feed only: U+2028 and its kin may stand inside JSON strings.
"""

from __future__ import annotations

import codecs
import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from langgraph_roundcompact.loaders._conversation import ConversationError, printable

MAX_BYTES = 256 * 1024 * 1024
"""Longest JSON value that is read, and most of standard input: parsed JSON takes several times its size in memory."""

MAX_LINES_BYTES = 2 * 1024 * 1024 * 1024
"""Largest file with a value on each line."""

MAX_DEPTH = 200
"""Deepest nesting of lists and mappings; real conversations stay under 20, and code behind this one recurses."""

STDIN = "-"
"""The name that stands for standard input."""

_DATABASE = b"SQLite format 3\x00"

Progress = Callable[[int, int], None]
"""Told now and then how many bytes have been read, and of how many (0: not known)."""


@dataclass(frozen=True, slots=True)
class Source:
    """Something that can be read."""

    shown: str
    """Its name for messages, on one line."""
    stem: str
    """Its name without folder and ending, for conversations that have none."""
    stream: BinaryIO
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A line that is not JSON. Session logs end with one when the program was killed; anywhere else it is a fault."""

    message: str


@contextmanager
def open_source(path: str | Path) -> Iterator[Source]:
    """Open a regular file, or standard input for `-`.

    Raises:
        ConversationError: it cannot be read, is too big, or is something else.
    """
    if str(path) == STDIN:
        raw = sys.stdin.buffer.read(MAX_BYTES + 1)
        _refuse_size("standard input", len(raw), MAX_BYTES)
        yield Source("standard input", "stdin", io.BytesIO(raw), len(raw))
        return
    file, shown = Path(path), printable(str(path), 300)
    try:
        if file.exists() and not file.is_file():
            # Also keeps pipes and devices from blocking for ever.
            kind = "a folder" if file.is_dir() else "not a regular file"
            msg = f"{shown}: this is {kind}, a conversation file is needed"
            raise ConversationError(msg)
        stream = file.open("rb")
    except (OSError, ValueError) as exc:
        reason = (exc.strerror if isinstance(exc, OSError) else None) or str(exc)
        msg = f"{shown}: cannot be read ({printable(reason, 120)})"
        raise ConversationError(msg) from None
    with stream:
        size = file.stat().st_size
        _refuse_size(shown, size, MAX_LINES_BYTES)
        yield Source(shown, printable(file.stem, 120), stream, size)


def read_values(source: Source, progress: Progress | None = None) -> tuple[Iterator[Any], bool]:
    """The JSON values of a source, lazily, and whether they stand on lines of their own.

    Lines that are not JSON come as `Broken`; the first line never is.

    Raises:
        ConversationError: the source is empty, too big for one value, not text, or not JSON.
    """
    stream = _utf8(source)
    lines = _lines(source, stream)
    first = next(lines, None)
    if first is None:
        msg = f"{source.shown}: the file is empty"
        raise ConversationError(msg)
    second = next(lines, None)
    value = _value(source, first)
    if second is None and not isinstance(value, Broken):
        return iter([value]), False
    if isinstance(value, Broken):
        stream.seek(0)
        return iter([_whole(source, _utf8(source) if stream is source.stream else stream)]), False
    return _line_values(source, value, second, lines, progress), True


def too_deep(value: Any) -> bool:
    """Whether lists and mappings are nested deeper than `MAX_DEPTH`."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        children = (parent.values() if isinstance(parent, dict) else parent for parent in level)
        level = [child for some in children for child in some if isinstance(child, dict | list)]
        if not level:
            return False
    return True


def _utf8(source: Source) -> BinaryIO:
    """The source as UTF-8 without a byte order mark, from its beginning."""
    head = source.stream.read(len(_DATABASE))
    source.stream.seek(0)
    if head == _DATABASE:
        msg = f"{source.shown}: this is a SQLite database; for LangGraph checkpoints use --sqlite FILE --thread ID"
        raise ConversationError(msg)
    encoding = json.detect_encoding(head[:4])
    if encoding == "utf-8-sig":
        source.stream.seek(len(codecs.BOM_UTF8))
    if encoding.startswith("utf-8"):
        return source.stream
    _refuse_size(source.shown, source.size, MAX_BYTES)
    text = _decode(source, source.stream.read(), encoding, 0).removeprefix("\ufeff")
    return io.BytesIO(text.encode("utf-8", "surrogatepass"))


def _lines(source: Source, stream: BinaryIO) -> Iterator[tuple[int, int, str]]:
    """Lines that are not blank, with their number and the place where they end."""
    number, start = 0, 0
    while raw := stream.readline(MAX_BYTES + 1):
        number += 1
        _refuse_size(source.shown, len(raw), MAX_BYTES)
        text = _decode(source, raw, "utf-8", start)
        start += len(raw)
        if text.strip():
            yield number, start, text


def _line_values(
    source: Source, first: Any, second: tuple[int, int, str] | None, lines: Iterator[tuple[int, int, str]], progress: Progress | None
) -> Iterator[Any]:
    yield first
    line = second
    while line is not None:
        if progress is not None:
            progress(line[1], source.size)
        yield _value(source, line)
        line = next(lines, None)


def _value(source: Source, line: tuple[int, int, str]) -> Any:
    number, _, text = line
    try:
        value = _parse(text)
    except json.JSONDecodeError as exc:
        return Broken(f"{source.shown}: line {number} is not JSON ({exc.msg})")
    except (ValueError, RecursionError) as exc:
        raise _unusable(source, exc) from None
    if too_deep(value):
        raise _unusable(source, RecursionError())
    return value


def _whole(source: Source, stream: BinaryIO) -> Any:
    """The source as one value."""
    _refuse_size(source.shown, source.size, MAX_BYTES)
    text = _decode(source, stream.read(), "utf-8", 0)
    try:
        value = _parse(text)
    except json.JSONDecodeError as exc:
        msg = f"{source.shown}: not JSON (line {exc.lineno}: {exc.msg}); it begins with '{printable(text.lstrip()[:40])}'"
        raise ConversationError(msg) from None
    except (ValueError, RecursionError) as exc:
        raise _unusable(source, exc) from None
    if too_deep(value):
        raise _unusable(source, RecursionError())
    return value


def _parse(text: str) -> Any:
    # Not strict: raw control characters in strings are what careless exporters write, and harmless.
    return json.loads(text, strict=False)


def _decode(source: Source, raw: bytes, encoding: str, start: int) -> str:
    try:
        return raw.decode(encoding, "surrogatepass")
    except UnicodeDecodeError as exc:
        msg = f"{source.shown}: not a text file (byte {start + exc.start:,} is no {exc.encoding})"
        raise ConversationError(msg) from None


def _refuse_size(shown: str, size: int, limit: int) -> None:
    if size > limit:
        msg = f"{shown}: {size // 2**20:,} MiB, at most {limit // 2**20:,} MiB are read"
        raise ConversationError(msg)


def _unusable(source: Source, exc: Exception) -> ConversationError:
    if isinstance(exc, RecursionError):
        return ConversationError(f"{source.shown}: nested more than {MAX_DEPTH} levels deep, which no conversation is")
    return ConversationError(f"{source.shown}: JSON that cannot be used ({printable(str(exc), 120)})")
