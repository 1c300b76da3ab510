"""What must hold between a list of messages and what compaction made of it.

The checks are made from outside, on lists and updates, and share no code with what they check beyond the question who wrote a message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage

from langgraph_roundcompact._folded import is_folded
from langgraph_roundcompact._memory_block import is_checkpoint, is_own
from langgraph_roundcompact._spans import is_real_user
from langgraph_roundcompact.replay._recording import fingerprint
from langgraph_roundcompact.testing import pairing_faults

Prints = Mapping[str, str]
"""What each recorded message looked like, by id."""


def state_failures(before: Sequence[BaseMessage], after: Sequence[BaseMessage], prints: Prints, keep: int | None) -> list[str]:
    """Everything but pairs, one sentence a failure."""
    start = 1 + max((i for i, message in enumerate(before) if isinstance(message, HumanMessage) and is_real_user(message)), default=-1)
    return [
        *_prefix_failures(before[:start], after[:start], prints),
        *_survivor_failures(before, after, prints),
        *_tail_failures(before, after, prints, keep),
        *_block_failures(after),
    ]


def pair_failures(state: Sequence[BaseMessage], recorded: int) -> list[str]:
    """Pairs no worse than the recording's own: it has `recorded` broken ones."""
    now = pairing_faults(state)
    return [f"{len(now)} pairing faults instead of {recorded}: {now[-1]}"] if len(now) > recorded else []


def update_failures(before: Sequence[BaseMessage], update: Sequence[BaseMessage]) -> list[str]:
    """An update names only what is there."""
    known = {message.id for message in before}
    return [
        f"the update removes {message.id}, which is not in the state"
        for message in update
        if isinstance(message, RemoveMessage) and message.id not in known
    ]


def _prefix_failures(before: Sequence[BaseMessage], after: Sequence[BaseMessage], prints: Prints) -> list[str]:
    """Equal in every field up to the request. Blocks and folds of earlier rounds belong to it and are not as they were loaded."""
    held = [*after, *[None] * (len(before) - len(after))]
    for old, new in zip(before, held, strict=True):
        if new is None or new.id != old.id:
            return [f"message {old.id} of the preserved prefix is gone"]
        if fingerprint(new) != (fingerprint(old) if is_own(old) or is_folded(old) else prints[old.id or ""]):
            return [f"message {old.id} of the preserved prefix changed"]
    return []


def _survivor_failures(before: Sequence[BaseMessage], after: Sequence[BaseMessage], prints: Prints) -> list[str]:
    """No new ids, the order kept; what stays is as it was recorded, or the same message with less in it."""
    place = {message.id: i for i, message in enumerate(before)}
    places = [place.get(message.id, -1) for message in after]
    failures = [f"message {message.id} is new" for message, at in zip(after, places, strict=True) if at < 0]
    if places != sorted(places):
        failures.append("messages changed places")
    stays = [(before[place[message.id]], message) for message in after if message.id in place and not is_own(message)]
    failures += [
        f"message {new.id} is neither as recorded nor folded"
        for old, new in stays
        if not (fingerprint(new) == prints[new.id or ""] or _folded(old, new))
    ]
    left = {message.id for message in after}
    failures += [f"system message {message.id} is gone" for message in before if isinstance(message, SystemMessage) and message.id not in left]
    return failures


def _folded(old: BaseMessage, new: BaseMessage) -> bool:
    """Whether a message is another with less in it, in the same place of the same pair."""
    if type(old) is not type(new) or len(str(new.content)) > len(str(old.content)):
        return False
    if isinstance(old, AIMessage) and isinstance(new, AIMessage):
        return [(call["id"], call["name"]) for call in old.tool_calls] == [(call["id"], call["name"]) for call in new.tool_calls]
    return not isinstance(old, ToolMessage) or (isinstance(new, ToolMessage) and old.tool_call_id == new.tool_call_id)


def _tail_failures(before: Sequence[BaseMessage], after: Sequence[BaseMessage], prints: Prints, keep: int | None) -> list[str]:
    """The messages to keep are at the end, in order, as recorded; by default those that the model has not read, which may be folded."""
    if keep is None:
        last = max((i for i, message in enumerate(before) if isinstance(message, AIMessage)), default=len(before))
        kept = [message for message in before[last:] if not is_own(message)] if not any(map(is_own, before[last:])) else []
    else:
        kept = [message for message in before[max(len(before) - keep, 0) :] if not is_own(message)]
    held = after[len(after) - len(kept) :]
    if [message.id for message in held] != [message.id for message in kept]:
        return [f"the {len(kept)} messages to keep are no longer the end of the list"]
    if keep is None:
        return []
    return [f"message {message.id} of the protected tail changed" for message in held if fingerprint(message) != prints[message.id or ""]]


def _block_failures(after: Sequence[BaseMessage]) -> list[str]:
    """At most one block in each round; as a call and its result it is two messages."""
    failures, blocks = [], 0
    for i, message in enumerate(after):
        if isinstance(message, HumanMessage) and is_real_user(message):
            blocks = 0
        elif is_checkpoint(message):
            blocks += not (isinstance(message, ToolMessage) and isinstance(after[i - 1], AIMessage) and is_checkpoint(after[i - 1]))
            if blocks > 1:
                failures.append(f"a second memory block in one round, at {i}")
    return failures
