"""The whole window: the largest results go first, whatever their size, until the window is at its target."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import BaseMessage

from langgraph_roundcompact.tiers._context import TierContext
from langgraph_roundcompact.tiers._results import fold_until_fits, read_work


def overall_total(target: Sequence[BaseMessage], context: TierContext, /) -> Sequence[BaseMessage]:
    """Fold the largest results until the window is at its target; of equal ones the older goes first."""
    if not context.excess:
        return target
    work = read_work(target, context)
    return fold_until_fits(work, sorted(work.results, key=lambda result: (-result.tokens, result.at)), "overall_total", context.excess)
