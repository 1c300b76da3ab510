"""Records of what was decided and done, on disk: a JSON file for each compaction, a line of `decisions.jsonl` for each decision.

A file is written whole under a name that nobody else has, a line with one write to a file opened for appending: any number of threads and
processes may share a folder. A full disk costs one warning, nothing else. Files can be read by their owner alone: they hold conversations.

The time stands in what is written here (`at`) and nowhere else: neither the engine nor anything a model sees knows the clock.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import string
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from langgraph_roundcompact.errors import ConfigurationError

log = logging.getLogger("langgraph_roundcompact")

DEFAULT_FOLDER = "compression_dumps"
DECISIONS = "decisions.jsonl"

MOST_BYTES = 16_000_000
"""Of one file. Longer records are written with shorter texts and lists, which say so."""

MOST_LINE_BYTES = 200_000
"""Of one line of `decisions.jsonl`."""

FULL_BYTES, KEPT_FULL = 20_000_000, 4
"""Size from which `decisions.jsonl` becomes `decisions-00001.jsonl` and so on, and how many of those stay: the newest."""

SIZES = ((200_000, 20_000), (40_000, 5_000), (8_000, 2_000), (1_600, 500), (300, 100))
"""Characters of a text and items of a list, in the order in which they are tried until a record is small enough."""

_PLACES = ("thread_id", "checkpoint_ns")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_TAKEN = re.compile(r"^(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)|-[0-9a-f]{10}$", re.IGNORECASE)
"""Names that mean devices on some systems, and names that look like those made here."""
_NUMBERED = re.compile(r"compaction-(\d+)\.json")
_FULL = re.compile(r"decisions-(\d+)\.jsonl")
_TRIES = 1000
_LINE_ENDS = {code: f"\\u{code:04x}" for code in (0x85, 0x2028, 0x2029)}
"""Letters that JSON lets stand and that readers of lines may split at."""

Recorder = Callable[[Mapping[str, Any]], None]
"""Takes one record: plain data with `kind`, `thread_id` and `checkpoint_ns`."""


class MemoryRecorder:
    """Keeps records in memory, in order: for tests, notebooks, and a report of a run that was not dumped."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def __call__(self, record: Mapping[str, Any]) -> None:
        """Keep one record."""
        self.records.append(dict(record))


def dump_writer(template: str | None) -> Recorder:
    """A function that writes one record. It never raises; the first failure is logged.

    Args:
        template: Folder; `{thread_id}` and `{checkpoint_ns}` are filled in with safe names. `None`: `./compression_dumps`.

    Raises:
        ConfigurationError: the template names another place.
    """
    template = template if template is not None else DEFAULT_FOLDER
    _check(template)
    told: list[str] = []

    def write(record: Mapping[str, Any]) -> None:
        try:
            folder = folder_of(template, record)
            stamped = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), **record}
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if record.get("kind") == "compaction":
                _write_file(folder, bounded(stamped, MOST_BYTES, indent=1))
            else:
                _append_line(folder / DECISIONS, bounded(stamped, MOST_LINE_BYTES))
        except Exception as exc:  # noqa: BLE001 - a dump must never cost the run anything
            if not told:
                told.append(template)
                why = getattr(exc, "strerror", None) or type(exc).__name__
                log.warning("compactions cannot be dumped to %r (%s); the run goes on without, and this is said once", template, why)

    return write


def folder_of(template: str, record: Mapping[str, Any]) -> Path:
    """The folder that a record goes to."""
    names = {"thread_id": record.get("thread_id") or "no-thread", "checkpoint_ns": record.get("checkpoint_ns") or "main"}
    return Path(template.format(**{place: safe_name(str(name)) for place, name in names.items()})).expanduser()


def safe_name(name: str) -> str:
    """A file name that no spelling of `name` can lead out of its folder; different names stay different."""
    clean = _UNSAFE.sub("_", name).strip("._") or "unnamed"
    if clean == name and len(name) <= 80 and not _TAKEN.search(name):
        return name
    clean = clean[:60].rstrip("._")
    return f"{clean if not _TAKEN.match(clean) else '_' + clean}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:10]}"


def bounded(record: Mapping[str, Any], most_bytes: int, *, indent: int | None = None) -> bytes:
    """The record as JSON of at most so many bytes: long texts keep head and tail, long lists too, and say what is missing."""
    for characters, items in SIZES:
        try:
            data = _json(_Shortener(characters, items, most_bytes).short(record), indent)
        except _StillTooLarge:
            continue
        if len(data) <= most_bytes:
            return data
    figures = {key: value for key, value in record.items() if len(key) <= 100 and isinstance(value, str | int | float | None)}
    short = _Shortener(*SIZES[-1], most_bytes).short(figures)
    return _json({**short, "left_out": f"{len(record) - len(figures):,} parts were too large"}, indent)


class _StillTooLarge(Exception):
    """The record does not fit at this size; found out before all of it was looked at."""


class _Shortener:
    """Shortens one record; gives up as soon as the result would be too large, so that the time is bounded too."""

    def __init__(self, characters: int, items: int, most: int) -> None:
        self._characters, self._items, self._left = characters, items, most

    def short(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._spent(_head_and_tail(value, self._characters))
        if isinstance(value, Mapping):
            short = {self.short(str(key)): self.short(item) for key, item in islice(value.items(), self._items)}
            left = len(value) - self._items
            return {**short, "left_out": f"{left:,} entries"} if left > 0 else short
        if isinstance(value, list | tuple):
            return self._short_list(value)
        self._spent(" ")
        return value

    def _short_list(self, value: Sequence[Any]) -> list[Any]:
        if len(value) <= self._items:
            return [self.short(item) for item in value]
        half = self._items // 2
        gap = {"left_out": f"{len(value) - 2 * half:,} items"}
        return [*map(self.short, value[:half]), gap, *map(self.short, value[-half:])]

    def _spent(self, text: str) -> str:
        self._left -= len(text)
        if self._left < 0:
            raise _StillTooLarge
        return text


def _check(template: str) -> None:
    try:
        fields = [part[1:] for part in string.Formatter().parse(template) if part[1] is not None]
    except ValueError:
        fields = [("", "", None)]
    if any(name not in _PLACES or spec or conversion for name, spec, conversion in fields):
        msg = f"compression_dump_dir={template!r} cannot be filled in: only {{thread_id}} and {{checkpoint_ns}} may stand in braces"
        raise ConfigurationError(msg)


def _json(value: Any, indent: int | None) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=indent).translate(_LINE_ENDS).encode("utf-8", "replace")


def _head_and_tail(text: str, characters: int) -> str:
    """As `_shorten.head_and_tail`, but says that the dump left something out: a transcript in the dump may hold notices of its own."""
    if len(text) <= characters:
        return text
    half = characters // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out of this dump …]\n{text[-half:]}"


def _write_file(folder: Path, data: bytes) -> None:
    """Write under the next free number; the file appears whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".writing-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        _publish(Path(temporary), folder)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _publish(temporary: Path, folder: Path) -> None:
    _take_next(temporary, folder, _NUMBERED, "compaction-{:05d}.json")


def _take_next(source: Path, folder: Path, pattern: re.Pattern[str], name: str) -> None:
    """Give a file the next free number."""
    number = max(_numbers(folder, pattern), default=0)
    for _ in range(_TRIES):
        number += 1
        path = folder / name.format(number)
        try:
            _take(source, path)
        except FileExistsError:
            continue
        return
    raise FileExistsError(folder)


def _numbers(folder: Path, pattern: re.Pattern[str]) -> list[int]:
    return [int(found[1]) for entry in os.scandir(folder) if (found := pattern.fullmatch(entry.name))]


def _take(temporary: Path, path: Path) -> None:
    """Give the finished file its name, which must be free."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:
        # A file system without links: the name is taken first, then the finished file moves onto it.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        os.replace(temporary, path)


def _append_line(path: Path, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        written = os.write(handle, data + b"\n")
        if written <= len(data):
            # The disk is full: half a line must not swallow the next one.
            with contextlib.suppress(OSError):
                os.write(handle, b"\n")
            raise OSError(28, "no space for a whole line")
        full = os.fstat(handle)
    finally:
        os.close(handle)
    if full.st_size >= FULL_BYTES:
        _put_aside(path, full)


def _put_aside(path: Path, full: os.stat_result) -> None:
    """Begin a new file of lines. Of several writers at it one gets hold of the full file: to rename is to take it from the others.

    Whoever still writes into the old file writes into the file put aside.
    """
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(path.stat(), full):
            held = Path(tempfile.mkdtemp(dir=path.parent, prefix=".aside-"))
            try:
                os.rename(path, held / path.name)
                _take_next(held / path.name, path.parent, _FULL, "decisions-{:05d}.jsonl")
            finally:
                shutil.rmtree(held, ignore_errors=True)
    for number in sorted(_numbers(path.parent, _FULL))[:-KEPT_FULL]:
        with contextlib.suppress(FileNotFoundError):
            (path.parent / f"decisions-{number:05d}.jsonl").unlink()
