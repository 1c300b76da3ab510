"""Folded messages: how they are marked, and what is read back from the mark.

A fold replaces the text of a message and nothing else. Its mark says which tier made it and how much it hid, to which moment the reported usage
of the messages around it belongs, and what the hidden text said: the facts, as data, from which a later checkpoint makes its ledger. The mark
survives JSON and msgpack, so a fold is frozen: no tier touches it again, in this process or another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage

from langgraph_roundcompact._content import text_of
from langgraph_roundcompact._facts import Fact, facts_from_data, facts_to_data
from langgraph_roundcompact._memory_block import SOURCE

KIND = "folded"
"""`additional_kwargs["lc_data"]["kind"]` of a folded message."""
PINNED = "pinned"
"""A message with `additional_kwargs["pinned"] = True` is never folded."""


def is_folded(message: BaseMessage) -> bool:
    """Whether a tier has folded this message, in this step or an earlier one."""
    return message.additional_kwargs.get("lc_source") == SOURCE and _data(message).get("kind") == KIND


def is_pinned(message: BaseMessage) -> bool:
    """Whether whoever wrote the message wants it left as it is."""
    return message.additional_kwargs.get(PINNED) is True


def folded(message: BaseMessage, text: str, tier: str) -> BaseMessage:
    """The message with `text` for its content; every other field stays."""
    content: Any = text
    if isinstance(message.content, list):
        marks = [block["cache_control"] for block in message.content if isinstance(block, Mapping) and "cache_control" in block]
        content = [{"type": "text", "text": text, **({"cache_control": marks[-1]} if marks else {})}]
    return marked(message.model_copy(update={"content": content}), message, tier)


def marked(message: BaseMessage, original: BaseMessage, tier: str) -> BaseMessage:
    """The message with the mark of a fold of `original`; as it is where it has one."""
    if is_folded(message):
        return message
    return _with_data(message, {"kind": KIND, "tier": tier, "characters": len(text_of(original))})


def sealed(message: BaseMessage, *, last_kept_id: str | None, kept_messages: int, facts: Iterable[Fact], ended: str) -> BaseMessage:
    """A folded message with the data that later steps need.

    Args:
        message: The folded message.
        last_kept_id: Id of the last message of the window at that moment.
        kept_messages: Messages that stood behind this one at that moment, for lists without ids.
        facts: What the hidden text said.
        ended: Exit status of a command, where the hidden text stated one.
    """
    more: dict[str, Any] = {"last_kept_id": last_kept_id, "kept_messages": kept_messages, "facts": facts_to_data(facts)}
    return _with_data(message, {**_data(message), **more, **({"ended": ended} if ended else {})})


def carried_facts(message: BaseMessage) -> tuple[Fact, ...]:
    """Facts of the hidden text; `()` for a message that is not folded, and for junk."""
    return facts_from_data(_data(message).get("facts")) if is_folded(message) else ()


def carried_status(message: BaseMessage) -> str:
    """Exit status that the hidden text stated; `""` where none was."""
    ended = _data(message).get("ended") if is_folded(message) else None
    return ended[:40] if isinstance(ended, str) else ""


def folds_stale_before(messages: Sequence[BaseMessage]) -> int:
    """Index before which reported usage is of a request in which the folded messages were not folded yet."""
    stamps = [(i, _data(message)) for i, message in enumerate(messages) if is_folded(message)]
    if not stamps:
        return 0
    wanted = {data.get("last_kept_id") for _, data in stamps if isinstance(data.get("last_kept_id"), str)}
    places = {message.id: i for i, message in enumerate(messages) if message.id in wanted} if wanted else {}
    return max(_stale_before(i, data, places, len(messages)) for i, data in stamps)


def _stale_before(at: int, data: Mapping[str, Any], places: Mapping[str | None, int], end: int) -> int:
    last, kept = data.get("last_kept_id"), data.get("kept_messages")
    if isinstance(last, str) and last in places:
        return places[last] + 1
    behind = kept if isinstance(kept, int) and not isinstance(kept, bool) and kept >= 0 else 0
    return min(at + 1 + behind, end)


def _data(message: BaseMessage) -> Mapping[str, Any]:
    raw = message.additional_kwargs.get("lc_data")
    return raw if isinstance(raw, Mapping) else {}


def _with_data(message: BaseMessage, data: Mapping[str, Any]) -> BaseMessage:
    return message.model_copy(update={"additional_kwargs": {**message.additional_kwargs, "lc_source": SOURCE, "lc_data": dict(data)}})
