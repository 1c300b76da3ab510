"""Conversation files: recorded messages of other programs, as LangChain messages.

One module a format; a format is two functions, `recognises(record)` and `to_message(record)`, over one JSON object. A file holds the objects
as a list, under `"messages"`, or one on each line. Files come from anywhere: nothing in them is executed, imported or resolved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

from langchain_core.messages import BaseMessage

from langgraph_roundcompact.loaders import langchain_json, openai_chat
from langgraph_roundcompact.loaders._conversation import Conversation, ConversationError, printable
from langgraph_roundcompact.loaders._document import read_document, shown

__all__ = ["Conversation", "ConversationError", "load_conversation", "load_conversations"]


class Format(Protocol):
    """What a module of this folder offers for one format."""

    def recognises(self, record: Mapping[str, Any], /) -> bool:
        """Whether a record has this format."""

    def to_message(self, record: Mapping[str, Any], /) -> BaseMessage:
        """One record as a message; `ValueError` when it is none."""


_FORMATS: tuple[Format, ...] = (openai_chat, langchain_json)


def load_conversation(path: str | PathLike[str]) -> Conversation:
    """The one conversation in a file.

    Args:
        path: OpenAI chat JSON or JSONL, or LangChain messages as JSON (`messages_to_dict`, `dumpd`, `model_dump`).

    Returns:
        The conversation; each message has an id of its own.

    Raises:
        ConversationError: the file cannot be read, is not a conversation, or holds several.
    """
    found = load_conversations(path)
    if len(found) > 1:
        msg = f"{shown(Path(path))}: holds {len(found)} conversations; load_conversations reads them all"
        raise ConversationError(msg)
    return found[0]


def load_conversations(path: str | PathLike[str]) -> list[Conversation]:
    """All conversations of a file: one, unless each line holds one of its own.

    Raises:
        ConversationError: the file cannot be read or is not a conversation.
    """
    file = Path(path)
    values, lines = read_document(file)
    if lines and all(_messages_of(value) is None for value in values):
        return [_conversation(file, file.stem, values)]
    if not lines and isinstance(values[0], list) and values[0] and all(isinstance(value, Mapping) and _messages_of(value) for value in values[0]):
        values = values[0]
    several = len(values) > 1
    found = []
    for number, value in enumerate(values, 1):
        where = f" conversation {number}:" if several else ""
        records = _messages_of(value)
        if records is None:
            msg = f"{shown(file)}:{where} not a conversation: {_describe(value)}"
            raise ConversationError(msg)
        name = _name(value) or (f"{file.stem}#{number}" if several else file.stem)
        found.append(_conversation(file, name, records, where))
    return found


def _messages_of(value: Any) -> Sequence[Any] | None:
    """The records of a value that is a whole conversation: a list, an object with `messages`; None for anything else."""
    if isinstance(value, list):
        return value
    if not isinstance(value, Mapping):
        return None
    inner = value["kwargs"] if langchain_json.is_constructor(value) else value
    messages = inner.get("messages")
    return messages if isinstance(messages, list) else None


def _conversation(file: Path, name: str, records: Sequence[Any], where: str = "") -> Conversation:
    if not records:
        msg = f"{shown(file)}:{where} a conversation without messages"
        raise ConversationError(msg)
    messages = [_message(file, where, number, record) for number, record in enumerate(records)]
    return Conversation(name=name, messages=tuple(_with_ids(messages)))


def _message(file: Path, where: str, number: int, record: Any) -> BaseMessage:
    here = f"{shown(file)}:{where} message {number}"
    fmt = _format_of(record)
    if fmt is None:
        msg = f"{here} is not a message: {_describe(record)}"
        raise ConversationError(msg)
    try:
        return fmt.to_message(record)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
        # Errors of pydantic run over many lines, the first two say it.
        lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
        msg = f"{here} cannot be read: {printable(' '.join(lines[:3]), 200)}"
        raise ConversationError(msg) from None


def _format_of(record: Any) -> Format | None:
    return next((fmt for fmt in _FORMATS if fmt.recognises(record)), None) if isinstance(record, Mapping) else None


def _with_ids(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Every message under an id of its own: state is addressed by id, two messages under one id would be one."""
    seen: set[str] = set()
    taken = {message.id for message in messages}
    out = []
    for position, message in enumerate(messages):
        if message.id and message.id not in seen:
            out.append(message)
        else:
            name = f"m{position}"
            while name in taken:
                name += "-"
            taken.add(name)
            out.append(message.model_copy(update={"id": name}))
        seen.add(out[-1].id or "")
    return out


def _name(value: Any) -> str:
    name = value.get("id", value.get("name")) if isinstance(value, Mapping) else None
    return printable(name, 80) if isinstance(name, str) else ""


def _describe(value: Any) -> str:
    """What was found instead, in a few words."""
    if isinstance(value, Mapping):
        keys = ", ".join(printable(str(key), 20) for key in list(value)[:5])
        return f"an object with the keys {keys}{', …' if len(value) > 5 else ''}" if value else "an empty object"
    if isinstance(value, list):
        return f"a list of {len(value):,}"
    if isinstance(value, str):
        return f"the text '{printable(value, 40)}'"
    return "null" if value is None else f"{type(value).__name__} {printable(repr(value), 40)}"
