"""Climbing the ladder: each tier looks at the target, the window is measured again, and the climb ends where the target is reached.

A tier is somebody's code: what it returns is used only if it keeps every pair, names only messages of the target, and is no larger.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from langchain_core.messages import BaseMessage

from langgraph_roundcompact._content import text_of
from langgraph_roundcompact._draft import Round
from langgraph_roundcompact._effects import Count, Flow
from langgraph_roundcompact._gate import faults
from langgraph_roundcompact.tiers import Tier, TierContext

log = logging.getLogger("langgraph_roundcompact")

RECLAIM_RATIO = 0.05
"""Of the target's tokens: breaking the provider's prefix cache for less does not pay."""


@dataclass(frozen=True, slots=True)
class Ladder:
    """What the tiers made of the window."""

    messages: list[BaseMessage]
    tokens: int
    """The window now, in tokens."""
    touched: bool = False
    applied: tuple[str, ...] = field(default=())


def climb(round_: Round) -> Flow[Ladder]:
    """Run the tiers over the new work until the window is at its target."""
    job, parts = round_.job, round_.parts
    ladder = Ladder(list(job.messages), round_.sizes.window)
    indices = tuple(i for group in round_.cut.groups for i in group)
    target = [job.messages[i] for i in indices]
    weight = round_.sizes.new_work
    for tier in parts.tiers if indices else ():
        if ladder.tokens <= job.limits.target:
            break
        folded = _call(tier, target, _context(round_, ladder.tokens), parts.passes)
        placed = _place(job.messages, indices, folded) if folded is not None else None
        if placed is None or faults(placed) > faults(job.messages):
            continue
        new_weight = yield Count(list(folded or ()))
        if new_weight >= weight:
            continue
        ladder = Ladder(placed, ladder.tokens - (weight - new_weight), True, (*ladder.applied, _name(tier)))
        target, weight = list(folded or ()), new_weight
    return ladder


def _context(round_: Round, window: int) -> TierContext:
    config, job = round_.parts.config, round_.job
    reclaim = config.reclaim_at_least_tokens
    return TierContext(
        target_tokens=job.limits.target,
        window_tokens=window,
        round_budget_tokens=round_.budget,
        reclaim_at_least_tokens=int(round_.sizes.new_work * RECLAIM_RATIO) if reclaim is None else reclaim,
        request=text_of(round_.request) if round_.request is not None else "",
        estimate=round_.parts.estimate,
        idle_seconds=job.idle_seconds,
    )


def _call(tier: Tier, target: Sequence[BaseMessage], context: TierContext, passes: tuple[type[BaseException], ...]) -> list[BaseMessage] | None:
    try:
        return list(tier(tuple(target), context))
    except passes:
        raise
    except Exception:
        log.exception("the tier %s failed and is skipped", _name(tier))
        return None


def _place(messages: Sequence[BaseMessage], indices: Sequence[int], folded: Sequence[BaseMessage]) -> list[BaseMessage] | None:
    """The whole list with the folded target in its places; None when the tier returned what was not in the target, or another order."""
    at: dict[object, int] = {}
    for i in indices:
        at[id(messages[i])] = i
        if messages[i].id:
            at[messages[i].id] = i
    if len(folded) == len(indices):
        where: list[int | None] = list(indices)
    else:
        where = [at.get(id(message), at.get(message.id) if message.id else None) for message in folded]
    known = [i for i in where if i is not None]
    if len(known) != len(folded) or known != sorted(set(known)):
        return None
    new = dict(zip(known, folded, strict=True))
    gone = set(indices) - new.keys()
    return [new.get(i, message) for i, message in enumerate(messages) if i not in gone]


def _name(tier: Tier) -> str:
    return str(getattr(tier, "__name__", type(tier).__name__))
