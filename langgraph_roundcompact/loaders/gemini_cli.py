"""Chat logs of the Gemini CLI (`~/.gemini/tmp/<project>/chats/session-*.json` and `.jsonl`).

A record is one turn of the screen: `type` is `user` or `gemini` (anything else is a notice), calls stand in `toolCalls` with their results. The
newer logs are lines: the session first, then records, where one that is written again under its `id` replaces the first, `$set` changes the session
and `$rewindTo` takes back a record and all after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langgraph_roundcompact.loaders import gemini_contents
from langgraph_roundcompact.loaders._conversation import Talk, merge_answers
from langgraph_roundcompact.loaders._tool_calls import calls_from, text_or_blocks


def recognises(head: Sequence[Any]) -> bool:
    """Whether this is such a log, whole or in lines."""
    return any(_is_session(value) or _is_record(value) for value in head if isinstance(value, Mapping))


def read(values: Iterator[Any]) -> list[Talk]:
    """The one conversation of a log."""
    talk, records = Talk(), dict[str, Mapping[str, Any]]()
    for number, value in enumerate(values):
        if not isinstance(value, Mapping):
            continue
        change = value.get("$set")
        if isinstance(change, Mapping):
            _describe_session(talk, records, change)
        elif isinstance(value.get("$rewindTo"), str):
            _rewind(records, value["$rewindTo"])
        elif isinstance(value.get("type"), str):
            records[str(value.get("id") or f"record-{number}")] = value
        else:
            _describe_session(talk, records, value)
    messages = [message for record in records.values() for message in _messages(record)]
    talk.messages = gemini_contents.finish(merge_answers(messages))
    return [talk] if talk.messages else []


def _is_session(value: Mapping[str, Any]) -> bool:
    messages = value.get("messages")
    if not isinstance(value.get("sessionId"), str) or "payload" in value:
        return False
    return "projectHash" in value or (isinstance(messages, list) and any(isinstance(one, Mapping) and _is_record(one) for one in messages))


def _is_record(value: Mapping[str, Any]) -> bool:
    return value.get("type") == "gemini" and "content" in value


def _describe_session(talk: Talk, records: dict[str, Mapping[str, Any]], session: Mapping[str, Any]) -> None:
    name, messages = session.get("sessionId"), session.get("messages")
    talk.name = name if isinstance(name, str) else talk.name
    if isinstance(messages, list):
        records.clear()
        records.update({str(one.get("id") or f"record-{i}"): one for i, one in enumerate(messages) if isinstance(one, Mapping)})


def _rewind(records: dict[str, Mapping[str, Any]], to: str) -> None:
    names = list(records)
    for name in names[names.index(to) :] if to in records else names:
        del records[name]


def _messages(record: Mapping[str, Any]) -> list[BaseMessage]:
    kind, record_id = record.get("type"), record.get("id")
    message_id = record_id if isinstance(record_id, str) else None
    if kind == "user":
        return [_with_id(message, message_id) for message in gemini_contents.to_messages({"role": "user", "parts": _parts(record.get("content"))})]
    if kind != "gemini":
        return []
    raw = record.get("toolCalls")
    calls = [call for call in raw if isinstance(call, Mapping)] if isinstance(raw, list) else []
    content = [*_thoughts(record.get("thoughts")), *_text_blocks(record.get("content"))]
    fields = calls_from((call.get("id"), call.get("name"), call.get("args")) for call in calls)
    answer = AIMessage(text_or_blocks(content), id=message_id, **fields)
    return [answer, *(result for call in calls for result in _results(call))]


def _with_id(message: BaseMessage, message_id: str | None) -> BaseMessage:
    return message.model_copy(update={"id": message_id}) if isinstance(message, HumanMessage) else message


def _parts(content: Any) -> list[Mapping[str, Any]]:
    """Content as parts: it may be text, one part, or a list of both."""
    items = content if isinstance(content, list) else [content]
    return [item if isinstance(item, Mapping) else {"text": item} for item in items if isinstance(item, Mapping | str)]


def _text_blocks(content: Any) -> Iterable[dict[str, Any]]:
    return ({"type": "text", "text": part["text"]} for part in _parts(content) if isinstance(part.get("text"), str) and part["text"])


def _thoughts(thoughts: Any) -> Iterable[dict[str, Any]]:
    for thought in thoughts if isinstance(thoughts, list) else ():
        if isinstance(thought, Mapping):
            texts = [thought[key] for key in ("subject", "description") if isinstance(thought.get(key), str)]
            if texts:
                yield {"type": "thinking", "thinking": "\n".join(texts)}


def _results(call: Mapping[str, Any]) -> list[BaseMessage]:
    """The result of a call; none for one that was still open."""
    responses = [part["functionResponse"] for part in _parts(call.get("result")) if isinstance(part.get("functionResponse"), Mapping)]
    shown = call.get("resultDisplay")
    if responses:
        texts = [gemini_contents.response_text(response.get("response")) for response in responses]
        text, failed = "\n".join(text for text, _ in texts), any(failed for _, failed in texts)
    elif isinstance(shown, str) or call.get("result") is not None:
        text, failed = shown if isinstance(shown, str) else "\n".join(str(part.get("text", "")) for part in _parts(call.get("result"))), False
    else:
        return []
    call_id, name = call.get("id"), call.get("name")
    return [
        ToolMessage(
            text,
            name=name if isinstance(name, str) else None,
            tool_call_id=call_id if isinstance(call_id, str) else "",
            status="error" if failed or call.get("status") in ("error", "cancelled") else "success",
        )
    ]
