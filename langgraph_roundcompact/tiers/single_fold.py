"""Single results that are huge: a preview by their kind stands for them."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import BaseMessage

from langgraph_roundcompact.tiers._context import TierContext
from langgraph_roundcompact.tiers._results import fold_results, fold_until_fits, read_work

HUGE_SHARE = 0.1
"""Of the target in tokens: a result that takes more is huge."""
HUGE_TOKENS = 600
"""No result under this is huge, however small the window."""
UNREAD_TOKENS = 4000
"""Texts that the model has not read yet are huge from here."""


def single_fold(target: Sequence[BaseMessage], context: TierContext, /) -> Sequence[BaseMessage]:
    """Fold every huge result, all of them in one batch."""
    if not context.excess:
        return target
    work = read_work(target, context)
    huge = max(int(context.target_tokens * HUGE_SHARE / context.scale), HUGE_TOKENS)
    return fold_results(work, (result for result in work.results if result.tokens > huge), "single_fold")


def fold_unread(target: Sequence[BaseMessage], context: TierContext, /) -> Sequence[BaseMessage]:
    """Fold the largest of the results that the model has not read yet, until the request fits: not a tier, but the last resort of this one.

    The ladder calls it where `single_fold` is among the tiers and what must stay would overflow the model's window by itself.
    """
    work = read_work(target, context, keep=0)
    # A picture has no head and tail: folded unread, nothing of it would ever have been seen.
    texts = (result for result in work.results if result.tokens > UNREAD_TOKENS and result.use.intact)
    large = sorted(texts, key=lambda result: (-result.tokens, result.at))
    return fold_until_fits(work, large, "single_fold", context.excess)
