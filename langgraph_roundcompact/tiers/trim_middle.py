"""The middle of a very long run of small steps: each result is small, together they are most of the window."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import BaseMessage

from langgraph_roundcompact.tiers._context import TierContext
from langgraph_roundcompact.tiers._results import fold_results, read_work

LONG_RUN = 40
"""Steps from which a run is very long."""
FIRST_STEPS, LAST_STEPS = 3, 20
"""Steps at both ends that stay: how the work began, and what it is at."""
SMALL_TOKENS = 600
"""Results up to this size, in tokens, are small; larger ones are for the tiers after this one."""


def trim_middle(target: Sequence[BaseMessage], context: TierContext, /) -> Sequence[BaseMessage]:
    """Fold the small results in the middle of a run of at least `LONG_RUN` steps, all of them in one batch."""
    if not context.excess:
        return target
    work = read_work(target, context)
    if work.steps < LONG_RUN:
        return target
    middle = range(FIRST_STEPS, work.steps - LAST_STEPS)
    return fold_results(work, (result for result in work.results if result.step in middle and result.tokens <= SMALL_TOKENS), "trim_middle")
