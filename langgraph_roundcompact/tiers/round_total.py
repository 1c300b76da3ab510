"""All results of the round together: the largest go first until what is left takes no more than half of the target."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import BaseMessage

from langgraph_roundcompact.tiers._context import TierContext
from langgraph_roundcompact.tiers._results import fold_until_fits, read_work

ROUND_SHARE = 0.5
"""Of the target in tokens: what unfolded results may take together."""
LARGE_TOKENS = 200
"""Results under this, in tokens, are left to the tiers after this one."""


def round_total(target: Sequence[BaseMessage], context: TierContext, /) -> Sequence[BaseMessage]:
    """Fold the largest results until those left are within their share, or the window is at its target."""
    if not context.excess:
        return target
    work = read_work(target, context)
    over = sum(result.tokens for result in work.results) - int(context.target_tokens * ROUND_SHARE / context.scale)
    if over <= 0:
        return target
    large = sorted((result for result in work.results if result.tokens >= LARGE_TOKENS), key=lambda result: (-result.tokens, result.at))
    return fold_until_fits(work, large, "round_total", min(over, context.excess))
