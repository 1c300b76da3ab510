"""Reading what was dumped. Files come from anywhere: nothing in them is executed, and a broken one is shown in the report, not fatal."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

from langgraph_roundcompact.errors import RoundCompactError
from langgraph_roundcompact.report._text import one_line, visible

MOST_BYTES = 200_000_000
"""Of one file: far more than is ever written."""

_FILE = re.compile(r"compaction-\d+\.json")
_LINES = re.compile(r"decisions(?:-\d+)?\.jsonl")


class DumpError(RoundCompactError, ValueError):
    """What was given is no dump of compactions; the message says so in one line."""


def read_dumps(path: str | PathLike[str]) -> list[dict[str, Any]]:
    """All records under a path, in the order of time.

    Args:
        path: A folder, with all folders below it; one `compaction-….json`; or one `.jsonl` with decisions.

    Returns:
        Plain records (see `langgraph_roundcompact.report`). A file or line that cannot be read is a record of kind `unreadable` with `file` and
        `text`.

    Raises:
        DumpError: nothing is there, or nothing of it is a dump.
    """
    path = Path(path)
    shown = one_line(visible(str(path)), 300)
    if not path.exists():
        msg = f"{shown}: no such file or folder"
        raise DumpError(msg)
    files = list(_files(path)) if path.is_dir() else [path]
    records = [record for file in files for record in _read(file, str(file.relative_to(path)) if path.is_dir() else file.name)]
    if not any(record["kind"] != "unreadable" for record in records):
        what = "holds no dump of compactions (compaction-….json, decisions.jsonl)" if path.is_dir() else "is not a dump of compactions"
        why = f": {records[0]['text']}" if records else ""
        msg = f"{shown}: {what}{why}"
        raise DumpError(msg)
    # Sorting is stable: records of the same millisecond, or without a time, stay as they were written.
    return sorted(records, key=lambda record: str(record.get("at") or ""))


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders.sort()
        # Lines first: of one millisecond, a check comes before the compaction that it led to.
        lines = sorted(filter(_LINES.fullmatch, names))
        yield from (Path(parent, name) for name in [*lines, *sorted(filter(_FILE.fullmatch, names))])


def _read(file: Path, name: str) -> Iterator[dict[str, Any]]:
    try:
        if file.stat().st_size > MOST_BYTES:
            yield _unreadable(name, "too large")
            return
        text = file.read_text("utf-8", errors="replace")
    except OSError as exc:
        yield _unreadable(name, exc.strerror or type(exc).__name__)
        return
    if file.suffix == ".jsonl":
        lines = ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())
        yield from (_record(line, f"{name}, line {number}", name) for number, line in lines)
    else:
        yield _record(text, name, name)


def _record(text: str, place: str, name: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return _unreadable(place, "not JSON" if text.strip() else "empty")
    if not isinstance(value, dict):
        return _unreadable(place, "not a record")
    if not isinstance(value.get("kind"), str):
        return _unreadable(place, "not a record of a compaction or a decision")
    return {**value, "file": name}


def _unreadable(place: str, why: str) -> dict[str, Any]:
    return {"kind": "unreadable", "file": place, "text": f"{visible(place)}: {why}"}
