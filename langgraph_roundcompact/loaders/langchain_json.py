"""LangChain messages as JSON, in the three forms LangChain itself writes.

* `messages_to_dict`: `{"type": "human", "data": {...}}` (chat history stores)
* `dumpd` / `dumps`: `{"lc": 1, "type": "constructor", "id": [..., "HumanMessage"], "kwargs": {...}}`
* `model_dump`: `{"type": "human", "content": ...}` (LangGraph server and Studio)

The class is looked up by name in a fixed table and called with plain data. `langchain_core.load` is not used: it imports classes and reads
secrets that the *file* names, and a file from somebody else must not decide what runs here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from langgraph_roundcompact.loaders._tool_calls import split_results

_CLASSES: dict[str, type[BaseMessage]] = {
    "human": HumanMessage,
    "ai": AIMessage,
    "system": SystemMessage,
    "tool": ToolMessage,
    "function": FunctionMessage,
    "chat": ChatMessage,
}
# A graph's state holds whole messages, so recorded chunks become what `add_messages` would have made of them.
_BY_NAME = {f"{cls.__name__}{suffix}": cls for cls in _CLASSES.values() for suffix in ("", "Chunk")}
_BY_TYPE = _CLASSES | {name: cls for name, cls in _BY_NAME.items() if name.endswith("Chunk")}
_CHUNK_ONLY = frozenset({"type", "tool_call_chunks", "chunk_position"})


def recognises(record: Mapping[str, Any]) -> bool:
    """Whether a record has one of these formats."""
    if is_constructor(record):
        return True
    return isinstance(record.get("type"), str) and ("content" in record or isinstance(record.get("data"), Mapping))


def is_constructor(record: Mapping[str, Any]) -> bool:
    """Whether a record is an object as `dumpd` writes it."""
    return record.get("lc") == 1 and record.get("type") == "constructor" and isinstance(record.get("kwargs"), Mapping)


def to_messages(record: Mapping[str, Any]) -> list[BaseMessage]:
    """One record as messages: one, or the results in a user's message and the rest of it.

    Raises:
        ValueError: not a message class, or fields that the class does not take.
    """
    if is_constructor(record):
        path = record.get("id")
        name = path[-1] if isinstance(path, list) and path else None
        return split_results(_build(_BY_NAME, name, record["kwargs"]))
    data, kind = record.get("data"), record.get("type")
    return split_results(_build(_BY_TYPE, kind, data if isinstance(data, Mapping) else record))


def _build(table: Mapping[str, type[BaseMessage]], name: Any, fields: Mapping[str, Any]) -> BaseMessage:
    cls = table.get(name) if isinstance(name, str) else None
    if cls is None:
        msg = f"{name!r} is not a kind of message (known: {', '.join(table)})"
        raise ValueError(msg)
    known = {key: fields[key] for key in cls.model_fields if key in fields and key not in _CHUNK_ONLY}
    if known.get("content") is None:
        known["content"] = ""
    return cls(**{key: value for key, value in known.items() if value is not None})
