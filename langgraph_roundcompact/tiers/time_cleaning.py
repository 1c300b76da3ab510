"""Old results go first when the provider's prefix cache is cold anyway: then touching old messages costs nothing more."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import BaseMessage

from langgraph_roundcompact.tiers._context import TierContext
from langgraph_roundcompact.tiers._results import fold_results, read_work

COLD_AFTER_SECONDS = 3600.0
"""Providers keep an unused prefix for minutes, at most an hour."""
KEEP_NEWEST = 5
"""Newest results that stay."""


def time_cleaning(target: Sequence[BaseMessage], context: TierContext, /) -> Sequence[BaseMessage]:
    """Fold every old result when the cache has been unused for `COLD_AFTER_SECONDS`, whatever it takes to reach the target.

    How long is told by the caller (`idle_seconds`), or by timestamps on the messages; where neither says, nothing happens.
    """
    if context.idle_seconds is None or context.idle_seconds < COLD_AFTER_SECONDS or not context.excess:
        return target
    work = read_work(target, context, keep=KEEP_NEWEST)
    return fold_results(work, work.results, "time_cleaning")
