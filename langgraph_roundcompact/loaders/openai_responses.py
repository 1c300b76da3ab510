"""Items of OpenAI's Responses API: messages, calls, results and reasoning, each an object of its own, as the API and the Codex CLI record them.

One answer of a model is several items in a row; `finish` puts them together again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langgraph_roundcompact.loaders._conversation import merge_answers
from langgraph_roundcompact.loaders._tool_calls import calls_from, result_content, text_or_blocks

_TEXTS = ("input_text", "output_text", "text", "summary_text")


def recognises(record: Mapping[str, Any]) -> bool:
    """Whether a record has this format."""
    kind = record.get("type")
    if kind == "message":
        return isinstance(record.get("role"), str)
    return isinstance(kind, str) and (kind in _READERS or kind in _WITHOUT_TEXT)


def to_messages(record: Mapping[str, Any]) -> list[BaseMessage]:
    """One item as messages: one, or none when it holds nothing that a model reads.

    Raises:
        ValueError: the item is of no known kind.
    """
    kind = record.get("type")
    if kind in _WITHOUT_TEXT:
        return []
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None:
        msg = f"unknown item {kind!r} (known: {', '.join(_READERS)})"
        raise ValueError(msg)
    message = read(record)
    return [] if message is None else [message]


def finish(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The items of each answer as one message."""
    return merge_answers(messages)


def _message(record: Mapping[str, Any]) -> BaseMessage:
    role, content = record.get("role"), _content(record.get("content"))
    if role == "assistant":
        return AIMessage(content, id=_text(record.get("id")))
    if role in ("system", "developer"):
        return SystemMessage(content, id=_text(record.get("id")))
    if role == "user":
        return HumanMessage(content, id=_text(record.get("id")))
    msg = f"unknown role {role!r} (known: user, assistant, system, developer)"
    raise ValueError(msg)


def _content(value: Any) -> str | list[Any]:
    if isinstance(value, str) or value is None:
        return value or ""
    if not isinstance(value, list) or not all(isinstance(part, Mapping) for part in value):
        msg = "content is neither text nor a list of parts"
        raise ValueError(msg)
    return text_or_blocks([_block(part) for part in value])


def _block(part: Mapping[str, Any]) -> dict[str, Any]:
    if part.get("type") in _TEXTS and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    url = part.get("image_url")
    if part.get("type") == "input_image" and isinstance(url, str):
        return {"type": "image_url", "image_url": {"url": url}}
    return dict(part)


def _function_call(record: Mapping[str, Any]) -> BaseMessage:
    return AIMessage("", **calls_from([(_call_id(record), record.get("name"), record.get("arguments"))]))


def _custom_call(record: Mapping[str, Any]) -> BaseMessage:
    """A call whose argument is free text, not JSON."""
    given = record.get("input", record.get("arguments"))
    return AIMessage("", **calls_from([(_call_id(record), record.get("name"), {"input": given})]))


def _shell_call(record: Mapping[str, Any]) -> BaseMessage:
    action = record.get("action")
    args = {key: value for key, value in action.items() if key != "type" and value is not None} if isinstance(action, Mapping) else {}
    return AIMessage("", **calls_from([(_call_id(record), "local_shell", args)]))


def _search_call(record: Mapping[str, Any]) -> BaseMessage:
    return AIMessage("", **calls_from([(_call_id(record), "tool_search", record.get("arguments"))]))


def _output(record: Mapping[str, Any]) -> BaseMessage:
    """A result: text, parts, or text with a flag beside it."""
    output, failed = record.get("output", record.get("result", record.get("tools"))), False
    if isinstance(output, Mapping):
        failed = output.get("success") is False
        output = output.get("content", output.get("output", json.dumps(output, ensure_ascii=False)))
    if isinstance(output, list) and all(isinstance(part, Mapping) for part in output):
        output = text_or_blocks([_block(part) for part in output])
    return ToolMessage(result_content(output), tool_call_id=_call_id(record), status="error" if failed else "success")


def _reasoning(record: Mapping[str, Any]) -> BaseMessage | None:
    summary = record.get("summary")
    texts = [part["text"] for part in summary if isinstance(part, Mapping) and isinstance(part.get("text"), str)] if isinstance(summary, list) else []
    if not texts:
        return None
    return AIMessage([{"type": "reasoning", "summary": [{"type": "summary_text", "text": text} for text in texts]}])


def _call_id(record: Mapping[str, Any]) -> str:
    return _text(record.get("call_id")) or _text(record.get("id")) or ""


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


_READERS: dict[str, Callable[[Mapping[str, Any]], BaseMessage | None]] = {
    "message": _message,
    "function_call": _function_call,
    "function_call_output": _output,
    "custom_tool_call": _custom_call,
    "custom_tool_call_output": _output,
    "mcp_tool_call_output": _output,
    "local_shell_call": _shell_call,
    "local_shell_call_output": _output,
    "tool_search_call": _search_call,
    "tool_search_output": _output,
    "reasoning": _reasoning,
}
_WITHOUT_TEXT = (
    "web_search_call",
    "image_generation_call",
    "ghost_snapshot",
    "compaction",
    "compaction_summary",
    "context_compaction",
    "item_reference",
    "other",
)
"""Items that a provider keeps to itself, or that hold nothing a model reads."""
