"""OpenAI chat messages: `{"role": ..., "content": ..., "tool_calls": [...], "tool_call_id": ...}`, as APIs, proxies and datasets write them.

Beyond the API's own keys: `status` on a result (`"error"`) and `reasoning_content` on an answer. Calls may be in the API's form
(`function` with arguments as JSON text) or in LangChain's (`name`, `args`). Keys that are not known go into `additional_kwargs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, FunctionMessage, HumanMessage, SystemMessage, ToolMessage

from langgraph_roundcompact.loaders._tool_calls import Raw, calls_from, content_of, kind_of

_ROLES = ("system", "developer", "user", "human", "assistant", "ai", "tool", "function")
_KNOWN = frozenset({"role", "content", "name", "id", "tool_calls", "tool_call_id", "status"})


def recognises(record: Mapping[str, Any]) -> bool:
    """Whether a record has this format."""
    return isinstance(record.get("role"), str)


def to_messages(record: Mapping[str, Any]) -> list[BaseMessage]:
    """One record as messages: one.

    Raises:
        ValueError: the role is unknown, or content or calls have a shape no message has.
    """
    role = record["role"].lower()
    extra = {key: value for key, value in record.items() if key not in _KNOWN and value is not None}
    common: dict[str, Any] = {
        "content": content_of(record.get("content")),
        "name": _optional(record, "name"),
        "id": _optional(record, "id"),
        "additional_kwargs": extra,
    }
    if role in ("user", "human"):
        return [HumanMessage(**common)]
    if role in ("assistant", "ai"):
        return [AIMessage(**common, **calls_from(_raw_calls(record.get("tool_calls"))))]
    if role == "tool":
        status = "error" if record.get("status") == "error" else "success"
        return [ToolMessage(**common, tool_call_id=_optional(record, "tool_call_id") or "", status=status)]
    if role == "function":
        return [FunctionMessage(**{**common, "name": common["name"] or ""})]
    if role in ("system", "developer"):
        if role == "developer":
            extra["__openai_role__"] = "developer"  # langchain-openai's own mark for it
        return [SystemMessage(**common)]
    msg = f"unknown role {record['role']!r} (known: {', '.join(_ROLES)})"
    raise ValueError(msg)


def _raw_calls(value: Any) -> list[Raw]:
    if not (value is None or isinstance(value, list)) or not all(isinstance(raw, dict) for raw in value or ()):
        msg = f"tool_calls is {kind_of(value)}, a list of calls is needed"
        raise ValueError(msg)
    found: list[Raw] = []
    for raw in value or ():
        function = raw.get("function")
        source = function if isinstance(function, dict) else raw
        found.append((raw.get("id"), source.get("name"), source.get("arguments", source.get("args"))))
    return found


def _optional(record: Mapping[str, Any], key: str) -> str | None:
    value = record.get(key)
    return value if isinstance(value, str) else None
