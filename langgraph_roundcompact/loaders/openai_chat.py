"""OpenAI chat messages: `{"role": ..., "content": ..., "tool_calls": [...], "tool_call_id": ...}`, as APIs, proxies and datasets write them.

Beyond the API's own keys: `status` on a result (`"error"`) and `reasoning_content` on an answer. Calls may be in the API's form
(`function` with arguments as JSON text) or in LangChain's (`name`, `args`). Keys that are not known go into `additional_kwargs`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, FunctionMessage, HumanMessage, InvalidToolCall, SystemMessage, ToolCall, ToolMessage

_ROLES = ("system", "developer", "user", "human", "assistant", "ai", "tool", "function")
_KNOWN = frozenset({"role", "content", "name", "id", "tool_calls", "tool_call_id", "status"})


def recognises(record: Mapping[str, Any]) -> bool:
    """Whether a record has this format."""
    return isinstance(record.get("role"), str)


def to_message(record: Mapping[str, Any]) -> BaseMessage:
    """One record as a message.

    Raises:
        ValueError: the role is unknown, or content or calls have a shape no message has.
    """
    role = record["role"].lower()
    extra = {key: value for key, value in record.items() if key not in _KNOWN and value is not None}
    common: dict[str, Any] = {
        "content": _content(record.get("content")),
        "name": _optional(record, "name"),
        "id": _optional(record, "id"),
        "additional_kwargs": extra,
    }
    if role in ("user", "human"):
        return HumanMessage(**common)
    if role in ("assistant", "ai"):
        calls, invalid = _calls(record.get("tool_calls"))
        return AIMessage(**common, tool_calls=calls, invalid_tool_calls=invalid)
    if role == "tool":
        status = "error" if record.get("status") == "error" else "success"
        return ToolMessage(**common, tool_call_id=_optional(record, "tool_call_id") or "", status=status)
    if role == "function":
        return FunctionMessage(**{**common, "name": common["name"] or ""})
    if role in ("system", "developer"):
        if role == "developer":
            extra["__openai_role__"] = "developer"  # langchain-openai's own mark for it
        return SystemMessage(**common)
    msg = f"unknown role {record['role']!r} (known: {', '.join(_ROLES)})"
    raise ValueError(msg)


def _content(value: Any) -> str | list[Any]:
    if value is None:
        return ""
    if isinstance(value, str) or (isinstance(value, list) and all(isinstance(block, str | dict) for block in value)):
        return value
    msg = f"content is {_kind(value)}, text or a list of blocks is needed"
    raise ValueError(msg)


def _calls(value: Any) -> tuple[list[ToolCall], list[InvalidToolCall]]:
    """The calls of an answer; those whose arguments are no JSON object are invalid ones, as in LangChain."""
    if not (value is None or isinstance(value, list)) or not all(isinstance(raw, dict) for raw in value or ()):
        msg = f"tool_calls is {_kind(value)}, a list of calls is needed"
        raise ValueError(msg)
    calls: list[ToolCall] = []
    invalid: list[InvalidToolCall] = []
    for raw in value or ():
        function = raw.get("function")
        source = function if isinstance(function, dict) else raw
        name, call_id = source.get("name"), raw.get("id")
        name, call_id = name if isinstance(name, str) else "", call_id if isinstance(call_id, str) else ""
        given = source.get("arguments", source.get("args"))
        args = _arguments(given)
        if args is None:
            raw_args = given if isinstance(given, str) else json.dumps(given)
            invalid.append(InvalidToolCall(type="invalid_tool_call", id=call_id, name=name, args=raw_args, error="arguments are no JSON object"))
        else:
            calls.append(ToolCall(type="tool_call", id=call_id, name=name, args=args))
    return calls, invalid


def _arguments(given: Any) -> dict[str, Any] | None:
    if isinstance(given, str) and given.strip():
        try:
            given = json.loads(given, strict=False)
        except (ValueError, RecursionError):
            return None
    elif not given:
        return {}
    return given if isinstance(given, dict) else None


def _optional(record: Mapping[str, Any], key: str) -> str | None:
    value = record.get(key)
    return value if isinstance(value, str) else None


def _kind(value: Any) -> str:
    return {dict: "an object", list: "a list that holds something else", bool: "a boolean", int: "a number", float: "a number", str: "text"}.get(
        type(value), type(value).__name__
    )
