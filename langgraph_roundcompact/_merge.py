"""Merging writes into a message list so that checkpoints hold: what one stands for does not come back, whoever writes it, in whatever order.

The rules are functions of the list alone, and a write is the smallest unit. Nothing is remembered between writes but the messages themselves,
so a channel may replay writes in any batches and come to the same list; `MessageList` only saves the indexing when there are many.

A checkpoint lists the ids it stands for, earlier checkpoints' included. That makes "newer" a matter of sets, not of arrival:

    lists more than the one in state      it supersedes it
    lists less                            it is late, and is ignored
    lists the same                        two branches did the same work; the smaller block stays, whichever came first
    each lists what the other does not    two branches went on alone; both blocks stay, or work would be lost

The `RemoveMessage`s beside a checkpoint repeat its list and are skipped: when the checkpoint is refused they would remove what no block covers,
or the other branch's block, which carries the same id.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from langchain_core.messages import BaseMessage, RemoveMessage, ToolMessage

from langgraph_roundcompact._memory_block import mark_of, replaced_ids
from langgraph_roundcompact._splice import REMOVE_ALL_MESSAGES


class MessageList:
    """A message list under change. Given messages are never changed; ids are set on copies."""

    def __init__(self, messages: Iterable[BaseMessage], first_id: Callable[[], str]) -> None:
        """Start from a list.

        Args:
            messages: The list in state.
            first_id: What ids are derived from where no message stands before the one without id.
        """
        self._first_id = first_id
        self._clear()
        self._load(list(messages))

    def messages(self) -> list[BaseMessage]:
        """The list now."""
        return [message for message in self._slots if message is not None]

    def write(self, messages: Sequence[BaseMessage]) -> None:
        """Apply one write whole: replace by id, append, remove, and what checkpoints ask for."""
        start = next((k + 1 for k in range(len(messages) - 1, -1, -1) if _removes_all(messages[k])), 0)
        if start:
            self._clear()
        messages = messages[start:]
        self._begin()
        # A removal of a checkpoint's own id is no repetition: it makes room for an edited one.
        blocks = {message.id: ids for message in messages if (ids := replaced_ids(message))}
        listed = frozenset().union(*blocks.values()) - blocks.keys()
        for message in messages:
            if isinstance(message, RemoveMessage):
                if message.id not in listed:
                    self._drop(message.id or "")
            elif ids := replaced_ids(message):
                self._checkpoint(message, ids | {message.id} if message.id else ids)
            elif mark_of(message) is not None:
                self._companion(message)
            elif not self._is_replaced(message.id):
                self._put(message, self._place_of(message.id))

    def _clear(self) -> None:
        self._slots: list[BaseMessage | None] = []
        self._index: dict[str, int] = {}
        self._doubled = False
        # The ids that each checkpoint in the list stands for, by the checkpoint's own id.
        self._blocks: dict[str, frozenset[str]] = {}
        self._begin()

    def _load(self, messages: list[BaseMessage]) -> None:
        index = {message.id: place for place, message in enumerate(messages)}
        if len(index) < len(messages) or not all(index):
            for message in messages:
                self._put(message, len(self._slots))
            return
        # The common case, at every step over the whole list: all have ids, each its own.
        self._slots, self._index = [*messages], cast("dict[str, int]", index)
        marked = [message for message in messages if message.additional_kwargs]
        self._blocks = {message.id or "": ids | {message.id or ""} for message in marked if (ids := replaced_ids(message))}

    def _begin(self) -> None:
        # Of the write in hand: where messages stood that it took out, and ids of which it may bring no message.
        self._places: dict[str, int] = {}
        self._refused: set[str] = set()

    def _is_replaced(self, message_id: str | None) -> bool:
        return message_id is not None and any(message_id in ids for ids in self._blocks.values())

    def _place_of(self, message_id: str | None) -> int:
        """Where a message of this id stands, or stood when this write began if nothing took the place since; the end for a new one."""
        place = self._index.get(message_id or "")
        return self._vacant_place(message_id or "", len(self._slots)) if place is None else place

    def _vacant_place(self, message_id: str, otherwise: int) -> int:
        place = self._places.get(message_id)
        return place if place is not None and self._slots[place] is None else otherwise

    def _put(self, message: BaseMessage, place: int) -> None:
        if not message.id:
            message = message.model_copy(update={"id": self._new_id(message)})
        key = message.id or ""
        if place == len(self._slots):
            self._doubled |= key in self._index
            self._slots.append(message)
        else:
            self._slots[place] = message
        self._index[key] = place
        if ids := replaced_ids(message):
            self._blocks[key] = ids | {key}
        else:
            self._blocks.pop(key, None)

    def _drop(self, message_id: str) -> None:
        place = self._index.pop(message_id, None)
        if place is None:
            return
        self._blocks.pop(message_id, None)
        self._places[message_id] = place
        self._slots[place] = None
        if self._doubled:
            self._slots = [None if message is not None and message.id == message_id else message for message in self._slots]

    def _checkpoint(self, message: BaseMessage, ids: frozenset[str]) -> None:
        rank = _rank(message)
        blocks = {key: self._stands_for(other) for key, other in self._blocks.items()}
        same = [_rank(standing) for key, other in blocks.items() if other == ids and (standing := self._slots[self._index[key]])]
        if rank in same:
            # The very same block again is no reason to refuse the recovered context that comes with it.
            return
        if any(ids < other for other in blocks.values()) or any(standing < rank for standing in same):
            self._refused |= ids
            return
        self._accept(message, ids)

    def _accept(self, message: BaseMessage, ids: frozenset[str]) -> None:
        """Let a checkpoint take the place of everything it lists, and leave alone what belongs to a block that lists more."""
        blocks = map(self._stands_for, self._blocks.values())
        rivals = frozenset().union(*(other for other in blocks if other & ids and not other <= ids))
        self._refused |= ids & rivals
        covered = [key for key in ids if key in self._index and not (key in rivals and self._is_ours(key))]
        for key in covered:
            self._drop(key)
        end = len(self._slots)
        place = self._vacant_place(message.id or "", min((self._vacant_place(key, end) for key in ids), default=end))
        if message.id in self._index:
            # Its own id is taken by a rival. Recovered context is the same for both, so the rival's is enough.
            self._refused |= ids
            message = message.model_copy(update={"id": min(ids - rivals, default=None)})
        self._put(message, place)

    def _companion(self, message: BaseMessage) -> None:
        """Recovered context, or the result half of a checkpoint: it belongs behind its checkpoint, and shares its fate."""
        if message.id in self._refused or message.id in self._blocks:
            return
        place = self._place_of(message.id)
        owners = [self._index[key] for key, ids in self._blocks.items() if message.id in ids]
        if owners and place == len(self._slots):
            place = min(owners) + 1
            self._make_room(place)
        self._put(message, place)

    def _stands_for(self, ids: frozenset[str]) -> frozenset[str]:
        """Of the ids a checkpoint lists, those that it stands for: what is still there as it was, a forged list only claims."""
        return frozenset(key for key in ids if key not in self._index or self._is_ours(key))

    def _is_ours(self, key: str) -> bool:
        message = self._slots[self._index[key]]
        if message is None or mark_of(message) is None:
            return False
        # Half a mark makes no checkpoint: only the result half of a call-and-result pair carries no list, and its call must be there.
        return mark_of(message) == "recovered_context" or self._has_call(message) or bool(replaced_ids(message))

    def _has_call(self, message: BaseMessage) -> bool:
        """Whether a result is the second half of a checkpoint in the list."""
        if not isinstance(message, ToolMessage):
            return False
        owners = (self._slots[self._index[key]] for key, ids in self._blocks.items() if message.id in ids)
        return any(call.get("id") == message.tool_call_id for owner in owners for call in getattr(owner, "tool_calls", ()))

    def _make_room(self, place: int) -> None:
        if place == len(self._slots):
            return
        self._slots.insert(place, None)
        for table in (self._index, self._places):
            for key, at in table.items():
                if at >= place:
                    table[key] = at + 1

    def _new_id(self, message: BaseMessage) -> str:
        """An id derived from the message and the one before it, so that the same write on the same list gives the same ids.

        LangGraph applies a write once for the edges that follow and once for good. Random ids would differ between the two, and a message
        sent on from an edge would come back as a stranger. An id that a checkpoint lists is never made again.
        """
        before = next((item.id for item in reversed(self._slots) if item is not None), None) or self._first_id()
        content = f"{before}\n{type(message).__name__}\n{message!r}".encode("utf-8", "surrogatepass")
        number = 0
        while True:
            key = str(uuid.UUID(bytes=hashlib.sha256(b"%d\n" % number + content).digest()[:16], version=5))
            if key not in self._index and not self._is_replaced(key):
                return key
            number += 1


def stands_for(messages: Iterable[BaseMessage]) -> frozenset[str]:
    """All ids that the checkpoints among `messages` list, without the ids that messages of the list have."""
    messages = list(messages)
    listed = frozenset().union(*map(replaced_ids, messages))
    return listed - {message.id for message in messages} if listed else listed


def id_of(item: Any) -> str | None:
    """The id of a message or of a mapping that will become one."""
    found = item.get("id") if isinstance(item, Mapping) else getattr(item, "id", None)
    return found if isinstance(found, str) else None


def _removes_all(message: BaseMessage) -> bool:
    return isinstance(message, RemoveMessage) and message.id == REMOVE_ALL_MESSAGES


def _rank(message: BaseMessage) -> tuple[int, str]:
    """Smaller blocks first, then by content: an order that does not depend on who came first."""
    content = repr(message.content)
    return len(content), content
