"""Records of finished compactions on disk: one JSON file each, written whole or not at all. A full disk costs a warning, nothing else."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from langgraph_roundcompact.errors import ConfigurationError

log = logging.getLogger("langgraph_roundcompact")

_PLACES = ("thread_id", "checkpoint_ns")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def dump_writer(template: str | None) -> Callable[[Mapping[str, Any], str | None], None]:
    """A function that writes one record.

    Args:
        template: Folder; `{thread_id}` and `{checkpoint_ns}` are filled in with safe names. `None`: `./compression_dumps`.

    Raises:
        ConfigurationError: the template names another place.
    """
    template = template if template is not None else "compression_dumps"
    try:
        template.format(**dict.fromkeys(_PLACES, "x"))
    except (KeyError, IndexError, ValueError) as exc:
        msg = f"compression_dump_dir={template!r} cannot be filled in: only {{thread_id}} and {{checkpoint_ns}} may stand in braces"
        raise ConfigurationError(msg) from exc

    def write(record: Mapping[str, Any], thread_id: str | None) -> None:
        try:
            _write(Path(template.format(thread_id=safe_name(thread_id or "no-thread"), checkpoint_ns="main")), record)
        except Exception as exc:  # noqa: BLE001 - a dump must never cost the run anything
            log.warning("the compaction could not be dumped (%s)", type(exc).__name__)

    return write


def safe_name(name: str) -> str:
    """A file name that no spelling of `name` can lead out of its folder; different names stay different."""
    clean = _UNSAFE.sub("_", name).strip("._") or "unnamed"
    if clean == name and len(name) <= 80:
        return name
    return f"{clean[:60]}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:10]}"


def _write(folder: Path, record: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, ensure_ascii=False, indent=1)
    number = sum(1 for _ in folder.glob("compaction-*.json")) + 1
    name = f"compaction-{number:05d}-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:10]}.json"
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".writing-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        os.replace(temporary, folder / name)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
