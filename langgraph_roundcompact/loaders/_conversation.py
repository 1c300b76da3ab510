"""The result of loading, its error, and what all formats share: names, ids, and the marks of messages that machines sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langgraph_roundcompact.errors import RoundCompactError


class ConversationError(RoundCompactError):
    """What was given is not a conversation. One line: the file, and what was found in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A recorded conversation."""

    name: str
    """What the recording calls itself, else the file's name without its ending."""
    messages: tuple[BaseMessage, ...]
    """In order, each with an id that no other has: its own, or `m0`, `m1`, … by position where it has none or one that came before."""
    part_of: str | None = None
    """Name of the conversation that started this one, for a subagent's; None: it stands alone."""


@dataclass(slots=True, kw_only=True)
class Talk:
    """A conversation as a format read it: not named for good yet, ids as they were recorded."""

    messages: list[BaseMessage] = field(default_factory=list)
    name: str = ""
    """Empty: the file's name."""
    side: bool = False
    """Started by the main conversation of the same file."""


def printable(text: str, limit: int = 60) -> str:
    """Foreign text as part of one line for a terminal: no control characters, at most `limit` characters."""
    short = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in short)


def describe(value: Any) -> str:
    """What was found instead of something, in a few words."""
    if isinstance(value, dict):
        keys = ", ".join(printable(str(key), 20) for key in list(value)[:5])
        return f"an object with the keys {keys}{', …' if len(value) > 5 else ''}" if value else "an empty object"
    if isinstance(value, list):
        return f"a list of {len(value):,}"
    if isinstance(value, str):
        return f"the text '{printable(value, 40)}'"
    return "null" if value is None else f"{type(value).__name__} {printable(repr(value), 40)}"


def machine_message(content: Any, source: str, message_id: str | None = None) -> HumanMessage:
    """A message in the user's place that nobody typed: context that a tool added, a notice, a summary.

    It carries the mark by which the package tells such messages from requests.
    """
    return HumanMessage(content, id=message_id, additional_kwargs={"lc_source": source})


def merge_answers(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Parts of one answer, recorded one by one, as one message: thinking, text and calls that stand next to each other."""
    merged: list[BaseMessage] = []
    for is_answer, members in groupby(messages, key=lambda message: isinstance(message, AIMessage)):
        some = list(members)
        merged += [join_answers(cast("list[AIMessage]", some))] if is_answer else some
    return merged


def join_answers(parts: Sequence[AIMessage]) -> AIMessage:
    """The parts of one answer as one message; the id is that of the first that has one."""
    if len(parts) == 1:
        return parts[0]
    extra: dict[str, Any] = {}
    for part in parts:
        extra |= part.additional_kwargs
    return parts[0].model_copy(
        update={
            "content": _joined_content([part.content for part in parts if part.content]),
            "tool_calls": [call for part in parts for call in part.tool_calls],
            "invalid_tool_calls": [call for part in parts for call in part.invalid_tool_calls],
            "additional_kwargs": extra,
            "id": next((part.id for part in parts if part.id), None),
        }
    )


def _joined_content(contents: Sequence[Any]) -> Any:
    if all(isinstance(content, str) for content in contents):
        return "\n\n".join(contents)
    return [block for content in contents for block in _blocks(content)]


def _blocks(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def with_ids(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
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
