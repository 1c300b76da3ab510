"""The last check before anything is written: the new list must be no less valid, and equal where nothing may change.

That it is smaller, too, is checked where it is counted, in `_engine._commit`.
"""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langgraph_roundcompact._groups import declared_calls, results_of


def faults(messages: Sequence[BaseMessage]) -> int:
    """How many pairs a strict provider would refuse: orphan results, and calls without result that are not the live ones."""
    return len(_broken(messages))


def whole(before: Sequence[BaseMessage], after: Sequence[BaseMessage], replaced: Sequence[int]) -> bool:
    """Whether every message outside `replaced` is still there, the same object, in order, and no pair is broken that was whole."""
    gone = set(replaced)
    stays = [message for i, message in enumerate(before) if i not in gone]
    held = iter(after)
    in_order = all(any(candidate is message for candidate in held) for message in stays)
    return in_order and _broken(after) <= _broken(before)


def _broken(messages: Sequence[BaseMessage]) -> set[tuple[int, int]]:
    """The broken ends: the message object's identity and the number of its call, -1 for a result."""
    last_ai = max((i for i, message in enumerate(messages) if isinstance(message, AIMessage)), default=-1)
    answered = results_of(messages)
    closed = set(answered.values())
    broken = {(id(message), -1) for i, message in enumerate(messages) if isinstance(message, ToolMessage) and i not in answered}
    for i, message in enumerate(messages):
        if i != last_ai:
            broken |= {(id(message), number) for number, _ in enumerate(declared_calls(message)) if (i, number) not in closed}
    return broken
