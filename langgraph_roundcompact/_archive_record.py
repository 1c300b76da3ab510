"""What is archived of the replaced messages, as plain data, and the key that its content gives."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage

from langgraph_roundcompact._recall_text import recalled_ids, reference
from langgraph_roundcompact.config import CompressionRecallConfig

RECORD_VERSION = 1
_DEPTH = 12
_LARGEST_INT = 10**4000
_LONGEST_NAMED = 300
"""Characters up to which a value is looked at together with its key: what is longer is no password."""

Redact = Callable[[str], str]


def archive_key(messages: Sequence[BaseMessage], thread_id: str | None) -> str:
    """A key derived from the content: a retry after a failed step finds the same entry again."""
    data = json.dumps([thread_id, [plain(fields_of(message), str) for message in messages]], sort_keys=True, ensure_ascii=True)
    return "rc-" + hashlib.sha256(data.encode("ascii")).hexdigest()[:24]


def archive_record(messages: Sequence[BaseMessage], request: str, redact: Redact, recall: CompressionRecallConfig | None = None) -> dict[str, Any]:
    """Everything that can be read back: role, name, tool, arguments, full result, id, artifact where it is plain data.

    Args:
        messages: The replaced messages. Of a result that was itself recalled from the archive, a reference is kept in place of the text.
        request: The request of the user that the work was done for.
        redact: Runs over every text.
        recall: The sizes of the passages that a search finds, in tokens.
    """
    sizes = recall if recall is not None else CompressionRecallConfig()
    return {
        "version": RECORD_VERSION,
        "request": plain(request, redact),
        "messages": [_message(message, redact) for message in messages],
        "chunks": {"size_tokens": sizes.chunk_size_tokens, "overlap_tokens": sizes.chunk_overlap_tokens},
    }


def _message(message: BaseMessage, redact: Redact) -> dict[str, Any]:
    data: dict[str, Any] = plain(fields_of(message), redact)
    ids = recalled_ids(message)
    # Archived again, a recalled text would be found twice by the next search, then four times.
    return {**data, "content": reference(ids), "artifact": None} if ids else data


def fields_of(message: BaseMessage) -> dict[str, Any]:
    """All fields of a message by name; also where one of them refuses to be written as data."""
    try:
        return message.model_dump(warnings=False)
    except Exception:  # noqa: BLE001 - any object may stand in a message, and may raise when it is serialised
        return {**vars(message), **(message.model_extra or {})}


def plain(value: Any, redact: Redact, depth: int = 0) -> Any:
    """Plain JSON data. What JSON cannot hold leaves a stand-in that says what it was; nothing is copied deeply."""
    if isinstance(value, str):
        return redact(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        # JSON takes more digits than Python reads.
        return int(value) if abs(value) < _LARGEST_INT else f"[integer of {value.bit_length()} bits]"
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)  # noqa: PLR0124 - NaN
    if depth >= _DEPTH:
        return f"[{type(value).__name__} nested too deeply]"
    if isinstance(value, Mapping):
        return {(name := redact(_name(key))): _named(name, plain(item, redact, depth + 1), redact) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, redact, depth + 1) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(item, redact, depth + 1) for item in value), key=repr)
    if isinstance(value, bytes):
        return f"[{len(value)} bytes]"
    return f"[{type(value).__module__}.{type(value).__qualname__} is not plain data]"


def _name(key: Any) -> str:
    if isinstance(key, str):
        return key
    try:
        return str(key)
    except Exception:  # noqa: BLE001 - any object may be a key
        return f"[{type(key).__qualname__}]"


def _named(name: str, value: Any, redact: Redact) -> Any:
    """A value whose key tells that it is a secret, which the value alone does not."""
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_NAMED or len(name) > _LONGEST_NAMED:
        return value
    pair = json.dumps({name: value}, ensure_ascii=False)
    seen = redact(pair)
    if seen == pair:
        return value
    try:
        return json.loads(seen)[name]
    except (ValueError, KeyError, TypeError):
        return seen
