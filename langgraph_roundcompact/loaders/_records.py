"""Messages one by one: which format a record has, and lists of records as messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from langchain_core.messages import BaseMessage, SystemMessage, message_chunk_to_message

from langgraph_roundcompact.loaders import anthropic_messages, gemini_contents, langchain_json, openai_chat, openai_responses
from langgraph_roundcompact.loaders._conversation import describe, printable
from langgraph_roundcompact.loaders._tool_calls import content_of, split_results

UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""What a record that is no message raises in the constructors of messages."""


class RecordError(ValueError):
    """A record that is no message. Says which one, and what it is."""


class RecordFormat(Protocol):
    """What a module of this folder offers for messages that are recorded one by one. `finish`, where there is one, works on the whole list."""

    def recognises(self, record: Mapping[str, Any], /) -> bool:
        """Whether a record has this format."""

    def to_messages(self, record: Mapping[str, Any], /) -> list[BaseMessage]:
        """One record as messages; `ValueError` when it is none."""


RECORD_FORMATS: dict[str, RecordFormat] = {
    "responses": openai_responses,
    "anthropic": anthropic_messages,
    "gemini": gemini_contents,
    "openai": openai_chat,
    "langchain": langchain_json,
}
"""In the order in which they are tried: the more telling shapes first."""


def read_records(records: Iterable[Any], only: str | None = None) -> list[BaseMessage]:
    """Records as messages.

    Args:
        records: JSON objects, or message objects as they are.
        only: The one format to read them as; None: each by its shape.

    Raises:
        RecordError: one of them is no message.
    """
    messages: list[BaseMessage] = []
    used: dict[str, RecordFormat] = {}
    for number, record in enumerate(records):
        if isinstance(record, BaseMessage):
            messages += split_results(message_chunk_to_message(record))
            continue
        name = only or _format_of(record)
        if name is None or not isinstance(record, Mapping):
            msg = f"message {number} is not a message: {describe(record)}"
            raise RecordError(msg)
        used[name] = RECORD_FORMATS[name]
        try:
            messages += used[name].to_messages(record)
        except UNREADABLE as exc:
            msg = f"message {number} cannot be read: {why(exc)}"
            raise RecordError(msg) from None
    for one in used.values():
        finish = getattr(one, "finish", None)
        messages = finish(messages) if finish is not None else messages
    return messages


def messages_of(records: Sequence[Any]) -> list[BaseMessage]:
    """Records as messages if all of them are some, else nothing."""
    if not records or not all(_format_of(record) for record in records):
        return []
    try:
        return read_records(records)
    except RecordError:
        return []


def system_prompt(request: Mapping[str, Any]) -> list[BaseMessage]:
    """The system prompt that some APIs take beside the messages."""
    for key in ("system", "instructions", "system_instruction", "systemInstruction"):
        value = request.get(key)
        if isinstance(value, Mapping) and isinstance(value.get("parts"), list):
            value = [
                {"type": "text", "text": part["text"]} for part in value["parts"] if isinstance(part, Mapping) and isinstance(part.get("text"), str)
            ]
        if value and isinstance(value, str | list):
            try:
                return [SystemMessage(content_of(value))]
            except ValueError:
                continue
    return []


def why(exc: Exception) -> str:
    """An error on one line. Those of pydantic run over many; the first ones say it."""
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    return printable(" ".join(lines[:3]), 200)


def _format_of(record: Any) -> str | None:
    if not isinstance(record, Mapping):
        return None
    return next((name for name, one in RECORD_FORMATS.items() if one.recognises(record)), None)
