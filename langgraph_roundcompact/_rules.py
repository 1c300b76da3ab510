"""The pipeline by rules alone, for the reducer: measure → digest → splice. No model, no store, no clock; equal lists give equal lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage

from langgraph_roundcompact._drivers import run
from langgraph_roundcompact._effects import Count, Effect, MeasureWindow
from langgraph_roundcompact._engine import compaction
from langgraph_roundcompact._meter import Meter
from langgraph_roundcompact._parts import Job, Parts
from langgraph_roundcompact._redact import default_redact
from langgraph_roundcompact._spans import is_interim, is_real_user
from langgraph_roundcompact._window import capacity, limits
from langgraph_roundcompact.config import RoundCompactConfig

_METER = Meter()
"""Shared: it keeps token counts of message objects, and nothing of a run."""


class _RulesPorts:
    """Answers what can be answered without reaching the world; everything else has no answer."""

    def perform(self, effect: Effect) -> Any:
        return _METER.answer(effect) if isinstance(effect, Count | MeasureWindow) else None

    async def aperform(self, effect: Effect) -> Any:
        return self.perform(effect)


def compact_by_rules(messages: Sequence[BaseMessage], config: RoundCompactConfig) -> list[BaseMessage]:
    """The list after one check: the same list object's messages when nothing was due."""
    room = capacity(config, None)
    parts = Parts(
        config=config.model_copy(update={"reinject": ()}),  # a reducer sees no state
        estimate=_METER.count_text,
        tiers=(),  # what a reducer promises is one checkpoint
        reinjectors={},
        is_real_user=is_real_user,
        is_pending=is_interim,
        redact=default_redact,
        model_key=None,
    )
    job = Job(messages=list(messages), limits=limits(config, room.tokens), summariser_window=room.tokens)
    return run(compaction(job, parts), _RulesPorts()).messages
