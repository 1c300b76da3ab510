"""What is dumped of one compaction: enough to see what was replaced, by what, and what it cost. Plain data, secrets out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from langchain_core.messages import BaseMessage

from langgraph_roundcompact._archive_record import plain
from langgraph_roundcompact._draft import Draft, Round
from langgraph_roundcompact.events import CompactionResult


def dump_record(round_: Round, draft: Draft, result: CompactionResult) -> dict[str, Any]:
    """The record of a finished compaction."""
    messages, cut, redact = round_.job.messages, round_.cut, round_.parts.redact

    def told(span: Sequence[BaseMessage]) -> list[Any]:
        return [plain(message.model_dump(), redact) for message in span]

    return {
        "outcome": result.outcome,
        "reason": result.reason,
        "tokens": {"before": result.tokens_before, "after": result.tokens_after, "budget": round_.budget, "checkpoint": draft.tokens},
        "limits": asdict(round_.job.limits),
        "spans": {
            "prefix": told(messages[: cut.prefix_stop]),
            "replaced": told(round_.replaced),
            "kept": told(round_.kept),
        },
        "checkpoint": told(draft.new),
        "recovered_context": draft.recovered,
        "attempts": [asdict(attempt) for attempt in result.attempts],
        "usage": plain(dict(result.usage or {}), redact),
        "audit": asdict(draft.audit),
        "archive_id": draft.archive_id,
    }
