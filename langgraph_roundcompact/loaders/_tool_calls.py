"""Calls of tools and their results, from the spellings of different programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, InvalidToolCall, ToolCall, ToolMessage

Raw = tuple[Any, Any, Any]
"""Id, name and arguments of a call, as they were found."""


def calls_from(raw: Iterable[Raw]) -> dict[str, Any]:
    """The fields `tool_calls` and `invalid_tool_calls` of an AI message; calls whose arguments are no JSON object are invalid ones."""
    calls: list[ToolCall] = []
    invalid: list[InvalidToolCall] = []
    for raw_id, raw_name, given in raw:
        call_id, name = raw_id if isinstance(raw_id, str) else "", raw_name if isinstance(raw_name, str) else ""
        args = _arguments(given)
        if args is None:
            text = given if isinstance(given, str) else json.dumps(given)
            invalid.append(InvalidToolCall(type="invalid_tool_call", id=call_id, name=name, args=text, error="arguments are no JSON object"))
        else:
            calls.append(ToolCall(type="tool_call", id=call_id, name=name, args=args))
    return {"tool_calls": calls, "invalid_tool_calls": invalid}


def _arguments(given: Any) -> dict[str, Any] | None:
    if isinstance(given, str) and given.strip():
        try:
            given = json.loads(given, strict=False)
        except (ValueError, RecursionError):
            return None
    elif not given:
        return {}
    return given if isinstance(given, dict) else None


def content_of(value: Any) -> str | list[Any]:
    """Content as a message takes it: text, or a list of blocks.

    Raises:
        ValueError: it is something else.
    """
    if value is None:
        return ""
    if isinstance(value, str) or (isinstance(value, list) and all(isinstance(block, str | dict) for block in value)):
        return value
    msg = f"content is {kind_of(value)}, text or a list of blocks is needed"
    raise ValueError(msg)


def result_content(value: Any) -> str | list[Any]:
    """What a tool gave back, whatever it is: text and blocks as they are, other data as JSON text."""
    try:
        return content_of(value)
    except ValueError:
        return json.dumps(value, ensure_ascii=False)


def text_or_blocks(blocks: list[Any]) -> str | list[Any]:
    """Blocks that are nothing but text, as the text."""
    if all(isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str) for block in blocks):
        return "\n\n".join(block["text"] for block in blocks)
    return blocks


def split_results(message: BaseMessage) -> list[BaseMessage]:
    """A message as a list, the results of tools that stand in a user's message (Anthropic's form) as messages of their own, before the rest."""
    content = message.content
    if not isinstance(message, HumanMessage) or not isinstance(content, list):
        return [message]
    results: list[BaseMessage] = [_result(block) for block in content if _is_result(block)]
    if not results:
        return [message]
    rest = [block for block in content if not _is_result(block)]
    if rest:
        return [*results, message.model_copy(update={"content": rest})]
    return [results[0].model_copy(update={"id": message.id}), *results[1:]]


def _is_result(block: Any) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(block, Mapping) and block.get("type") == "tool_result"


def _result(block: Mapping[str, Any]) -> ToolMessage:
    call_id = block.get("tool_use_id")
    return ToolMessage(
        result_content(block.get("content")),
        tool_call_id=call_id if isinstance(call_id, str) else "",
        status="error" if block.get("is_error") is True else "success",
    )


def answer_from_blocks(content: str | list[Any], **fields: Any) -> AIMessage:
    """An answer in Anthropic's form: its blocks stay, and its `tool_use` blocks are its calls."""
    blocks = content if isinstance(content, list) else []
    uses = [block for block in blocks if isinstance(block, Mapping) and block.get("type") == "tool_use"]
    return AIMessage(content, **fields, **calls_from((use.get("id"), use.get("name"), use.get("input")) for use in uses))


def kind_of(value: Any) -> str:
    """The JSON kind of a value, in words."""
    names = {dict: "an object", list: "a list that holds something else", bool: "a boolean", int: "a number", float: "a number", str: "text"}
    return names.get(type(value), type(value).__name__)
