"""Replaced messages that a parent graph brings back beside the checkpoint that stands for them.

A subgraph that compacts cannot remove anything from its parent's list, unless the parent merges with `round_compact_messages`. With another
reducer the checkpoint takes the place of the first message it replaced, and the others stay: results without their calls, and work that was
summarised already. They come back with the next call of the subgraph, and the parent's own model would be sent them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from langgraph_roundcompact._groups import Group, group_messages
from langgraph_roundcompact._memory_block import is_own, replaced_ids
from langgraph_roundcompact._spans import find_round


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
    start = 0 if earlier_rounds else find_round(messages, is_real)
    blocks = [(i, ids) for i in range(start, len(messages)) if messages[i].additional_kwargs and (ids := replaced_ids(messages[i]))]
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


def _is_leftover(messages: Sequence[BaseMessage], group: Group, listed: frozenset[str]) -> bool:
    members = [messages[i] for i in range(group.start, group.stop)]
    return group.state != "pending" and all(m.id in listed and not isinstance(m, SystemMessage) and not is_own(m) for m in members)
