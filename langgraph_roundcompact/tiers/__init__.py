"""The ladder: cheap steps tried in order before the model is asked. A tier is a callable; its order is the user's list."""

from __future__ import annotations

from langgraph_roundcompact.tiers._context import Tier, TierContext
from langgraph_roundcompact.tiers.overall_total import overall_total
from langgraph_roundcompact.tiers.round_total import round_total
from langgraph_roundcompact.tiers.single_fold import single_fold
from langgraph_roundcompact.tiers.superseded import superseded
from langgraph_roundcompact.tiers.time_cleaning import time_cleaning
from langgraph_roundcompact.tiers.trim_middle import trim_middle
from langgraph_roundcompact.tiers.whole_segment import whole_segment

__all__ = [
    "BUILT_IN_TIERS",
    "DEFAULT_TIERS",
    "Tier",
    "TierContext",
    "overall_total",
    "round_total",
    "single_fold",
    "superseded",
    "time_cleaning",
    "trim_middle",
    "whole_segment",
]

BUILT_IN_TIERS: tuple[Tier, ...] = (time_cleaning, superseded, trim_middle, single_fold, round_total, overall_total, whole_segment)
"""All tiers of the package, cheapest for the reader first."""

DEFAULT_TIERS: tuple[Tier, ...] = BUILT_IN_TIERS
"""The tiers of a compactor that was not given any."""
