"""What is archived of the replaced messages, as plain data, and the key that its content gives."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage

RECORD_VERSION = 1
_DEPTH = 12


def archive_key(messages: Sequence[BaseMessage], thread_id: str | None) -> str:
    """A key derived from the content: a retry after a failed step finds the same entry again."""
    data = json.dumps([thread_id, [plain(message.model_dump(), str) for message in messages]], sort_keys=True, ensure_ascii=True)
    return "rc-" + hashlib.sha256(data.encode("ascii")).hexdigest()[:24]


def archive_record(messages: Sequence[BaseMessage], request: str, redact: Callable[[str], str]) -> dict[str, Any]:
    """Everything that can be read back: role, name, tool, arguments, full result, id, artifact where it is plain data."""
    return {"version": RECORD_VERSION, "request": request, "messages": [plain(message.model_dump(), redact) for message in messages]}


def plain(value: Any, redact: Callable[[str], str], depth: int = 0) -> Any:
    """Plain JSON data. What JSON cannot hold leaves a stand-in that says what it was; nothing is copied deeply."""
    if isinstance(value, str):
        return redact(value.encode("utf-8", "replace").decode("utf-8"))
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)  # noqa: PLR0124 - NaN
    if depth >= _DEPTH:
        return f"[{type(value).__name__} nested too deeply]"
    if isinstance(value, Mapping):
        return {str(key): plain(item, redact, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, redact, depth + 1) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(item, redact, depth + 1) for item in value), key=repr)
    if isinstance(value, bytes):
        return f"[{len(value)} bytes]"
    return f"[{type(value).__module__}.{type(value).__qualname__} is not plain data]"
