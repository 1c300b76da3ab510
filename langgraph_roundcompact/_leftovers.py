"""Replaced messages that a parent graph brings back beside the checkpoint that stands for them.

A subgraph that compacts cannot remove anything from its parent's list, unless the parent merges with `round_compact_messages`. With another
reducer the checkpoint takes the place of the first message it replaced, and the others stay: results without their calls, and work that was
summarised already. They come back with the next call of the subgraph, and the parent's own model would be sent them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from operator import attrgetter, contains

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from langgraph_roundcompact._groups import Group, group_messages
from langgraph_roundcompact._memory_block import is_internal, is_own, replaced_ids

_KWARGS = attrgetter("additional_kwargs")
_HUMAN = ("human", "HumanMessageChunk")
"""By name: to ask for the class of a pydantic object takes a hundred times as long."""


def without_leftovers(
    messages: Sequence[BaseMessage], is_real: Callable[[BaseMessage], bool], *, earlier_rounds: bool = True
) -> Sequence[BaseMessage]:
    """The list without replaced messages that came back; the very same list when there are none.

    Only whole groups go, and only behind the checkpoint in its own round: a group with one message that is not listed is new work whose tools
    reuse ids. What a person or the system said never goes, whatever a list claims.

    Args:
        messages: The list.
        is_real: Whether a message was sent by a person.
        earlier_rounds: Whether checkpoints of finished rounds count too. Without them the cost does not grow with what came before the round.
    """
    blocks = _checkpoints(messages, None if earlier_rounds else is_real)
    if not blocks:
        return messages
    first = blocks[0][0]
    gone: set[int] = set()
    listed: frozenset[str] = frozenset()
    standing = iter([*blocks, (len(messages), frozenset[str]())])
    at, ids = next(standing)
    for group in group_messages(messages, start=first):
        while at < group.stop:
            listed |= ids
            at, ids = next(standing)
        members = range(group.start, group.stop)
        if any(isinstance(messages[i], HumanMessage) and is_real(messages[i]) for i in members):
            listed = frozenset()
        elif _is_leftover(messages, group, listed):
            gone.update(members)
    return [message for i, message in enumerate(messages) if i not in gone] if gone else messages


def _checkpoints(messages: Sequence[BaseMessage], is_real: Callable[[BaseMessage], bool] | None) -> list[tuple[int, frozenset[str]]]:
    """Index and list of each checkpoint; with a rule, of the current round's alone. Runs at every step, so it looks no closer than it must."""
    found: list[tuple[int, frozenset[str]]] = []
    if not any(map(contains, map(_KWARGS, messages), repeat("lc_source"))):  # the usual case, at C speed
        return found
    for i in range(len(messages) - 1, -1, -1):
        message = messages[i]
        if "lc_source" in message.additional_kwargs and (ids := replaced_ids(message)) and _is_genuine(messages, i, ids):
            found.append((i, ids))
        elif is_real is not None and message.type in _HUMAN and is_real(message):
            break
    return found[::-1]


def _is_genuine(messages: Sequence[BaseMessage], at: int, ids: frozenset[str]) -> bool:
    """Whether a checkpoint has the id of a message it replaced, and a block for its text, its own or that of the result to its call.

    What only claims to be one takes nothing away.
    """
    return messages[at].id in ids and any(map(is_internal, messages[at : at + 2]))


def _is_leftover(messages: Sequence[BaseMessage], group: Group, listed: frozenset[str]) -> bool:
    members = [messages[i] for i in range(group.start, group.stop)]
    return group.state != "pending" and all(m.id in listed and not isinstance(m, SystemMessage) and not is_own(m) for m in members)
