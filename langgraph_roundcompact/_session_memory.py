"""Notes that the application already keeps of the round, used as the narrative for what they cover: no model call.

A source is a state key, a store item `(namespace, key)`, or a callable from the state. What it gives is read as text and the id of the last
message it covers: a mapping with `text` and `last_message_id`, a pair, or an object with these attributes. Anything else is no notes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from langchain_core.messages import BaseMessage

from langgraph_roundcompact._effects import Flow, ReadStore
from langgraph_roundcompact._state import read_key

SessionMemory: TypeAlias = str | tuple[tuple[str, ...], str] | Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Notes:
    """Notes and how far they reach."""

    text: str
    groups_covered: int
    """Leading groups of the new work that the notes cover whole."""


def read_notes(source: SessionMemory | None, state: object, groups: Sequence[Sequence[BaseMessage]]) -> Flow[Notes | None]:
    """The application's notes for the leading groups; None when there are none, or they cover no whole group."""
    if source is None:
        return None
    if isinstance(source, str):
        found = read_key(state, source)
    elif callable(source):
        found = source(state)
    else:
        found = yield ReadStore(tuple(source[0]), source[1])
    text, last = _pair(found)
    if not isinstance(text, str) or not text.strip() or not isinstance(last, str):
        return None
    at = next((i for i, group in enumerate(groups) if any(message.id == last for message in group)), None)
    if at is None:
        return None
    covered = at + 1 if groups[at][-1].id == last else at
    return Notes(text.strip(), covered) if covered else None


def _pair(found: object) -> tuple[object, object]:
    if isinstance(found, Mapping):
        return found.get("text"), found.get("last_message_id")
    if isinstance(found, tuple | list) and len(found) == 2:
        return found[0], found[1]
    return getattr(found, "text", None), getattr(found, "last_message_id", None)
