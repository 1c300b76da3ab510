"""Gemini contents: `{"role": "user" | "model", "parts": [...]}` with `functionCall` and `functionResponse` parts.

Calls often have no id there: a response belongs to the first call of that name that still waits. `finish` writes that down as ids.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langgraph_roundcompact.loaders._tool_calls import calls_from, text_or_blocks


def recognises(record: Mapping[str, Any]) -> bool:
    """Whether a record has this format."""
    return isinstance(record.get("parts"), list) and isinstance(record.get("role", "user"), str)


def to_messages(record: Mapping[str, Any]) -> list[BaseMessage]:
    """One record as messages: an answer, or results and what the user wrote.

    Raises:
        ValueError: parts that are no objects, or an unknown role.
    """
    role, parts = record.get("role", "user"), record.get("parts")
    if not isinstance(parts, list) or not all(isinstance(part, Mapping) for part in parts):
        msg = "parts is no list of objects"
        raise ValueError(msg)
    if role == "model":
        return [_answer(parts)]
    if role not in ("user", "function", "tool"):
        msg = f"unknown role {role!r} (known: user, model, function)"
        raise ValueError(msg)
    results: list[BaseMessage] = [_result(part["functionResponse"]) for part in parts if isinstance(part.get("functionResponse"), Mapping)]
    rest = [_block(part) for part in parts if "functionResponse" not in part]
    return [*results, HumanMessage(text_or_blocks(rest))] if rest or not results else results


def finish(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Ids for calls and results that have none: pairs by name, in order, within one answer."""
    waiting: dict[str, deque[str]] = {}
    done: list[BaseMessage] = []
    for position, message in enumerate(messages):
        if isinstance(message, AIMessage):
            calls = [{**call, "id": call["id"] or f"call-{position}-{n}"} for n, call in enumerate(message.tool_calls)]
            waiting = {}
            for call in calls:
                waiting.setdefault(str(call["name"]), deque()).append(str(call["id"]))
            done.append(message.model_copy(update={"tool_calls": calls}) if calls else message)
        elif isinstance(message, ToolMessage):
            open_calls = waiting.get(message.name or "", deque())
            if not message.tool_call_id and open_calls:
                message = message.model_copy(update={"tool_call_id": open_calls.popleft()})  # noqa: PLW2901 - the same message, with its id
            elif message.tool_call_id in open_calls:
                open_calls.remove(message.tool_call_id)
            done.append(message)
        else:
            done.append(message)
    return done


def response_text(response: Any) -> tuple[str, bool]:
    """The text of a `response` object, and whether it tells of an error."""
    if isinstance(response, Mapping):
        for key, failed in (("output", False), ("error", True), ("result", False), ("content", False)):
            if isinstance(response.get(key), str):
                return response[key], failed
        return json.dumps(response, ensure_ascii=False), False
    return (response if isinstance(response, str) else json.dumps(response, ensure_ascii=False)), False


def _answer(parts: Sequence[Mapping[str, Any]]) -> AIMessage:
    calls = [part["functionCall"] for part in parts if isinstance(part.get("functionCall"), Mapping)]
    blocks = [_block(part) for part in parts if "functionCall" not in part]
    return AIMessage(text_or_blocks(blocks), **calls_from((call.get("id"), call.get("name"), call.get("args")) for call in calls))


def _block(part: Mapping[str, Any]) -> dict[str, Any]:
    text = part.get("text")
    if isinstance(text, str):
        return {"type": "thinking", "thinking": text} if part.get("thought") is True else {"type": "text", "text": text}
    data = part.get("inlineData")
    if isinstance(data, Mapping) and isinstance(data.get("data"), str):
        mime = data.get("mimeType")
        return {"type": "image", "base64": data["data"], "mime_type": mime if isinstance(mime, str) else "application/octet-stream"}
    return {"type": "text", "text": json.dumps(part, ensure_ascii=False)}


def _result(response: Mapping[str, Any]) -> ToolMessage:
    text, failed = response_text(response.get("response"))
    name, call_id = response.get("name"), response.get("id")
    return ToolMessage(
        text,
        name=name if isinstance(name, str) else None,
        tool_call_id=call_id if isinstance(call_id, str) else "",
        status="error" if failed else "success",
    )
