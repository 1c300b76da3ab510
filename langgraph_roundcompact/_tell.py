"""Results and events: plain records of what a check did; nothing here decides."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage

from langgraph_roundcompact._draft import Draft
from langgraph_roundcompact._fault import told
from langgraph_roundcompact._memory_block import is_checkpoint
from langgraph_roundcompact._parts import Job
from langgraph_roundcompact.errors import RedactionRefused
from langgraph_roundcompact.events import CompactionEvent, CompactionResult, Outcome, Phase, Reason

log = logging.getLogger("langgraph_roundcompact")


def failed_result(job: Job, exc: Exception, window: int) -> CompactionResult:
    """Fail closed: the window stays as it was. A fault of this package must cost the compaction, never the run."""
    if isinstance(exc, RedactionRefused):
        log.warning("redact refused the text; the window stays as it was")
        return told_result(job.messages, job.messages, "failed", "redact_refused", window)
    log.error("compaction failed (%s); the window stays as it was", told(exc))
    return told_result(job.messages, job.messages, "failed", "internal_error", window)


def told_result(
    before: Sequence[BaseMessage], after: Sequence[BaseMessage], outcome: Outcome, reason: Reason, tokens: int, tokens_after: int | None = None,
    *, draft: Draft | None = None, **more: Any
) -> CompactionResult:  # fmt: skip
    """The result of a check; `tokens_after` None: as before."""
    memory = next((message for message in reversed(draft.new) if is_checkpoint(message)), None) if draft else None
    return CompactionResult(
        messages=list(after),
        update={},
        changed=differs(before, after),
        compacted=draft is not None,
        outcome=outcome,
        reason=reason,
        tokens_before=tokens,
        tokens_after=tokens if tokens_after is None else tokens_after,
        memory_message=memory,
        archive_id=draft.archive_id if draft else None,
        audit=draft.audit if draft else None,
        **more,
    )


def differs(before: Sequence[BaseMessage], after: Sequence[BaseMessage]) -> bool:
    """Whether the lists hold other objects."""
    return before is not after and (len(before) != len(after) or any(a is not b for a, b in zip(before, after, strict=True)))


def event_of(phase: Phase, result: CompactionResult, job: Job) -> CompactionEvent:
    """What observers are told of a result."""
    return CompactionEvent(
        phase=phase,
        outcome=result.outcome,
        reason=result.reason,
        tokens_before=result.tokens_before,
        tokens_after=result.tokens_after,
        thread_id=job.thread_id,
        details={
            "attempts": len(result.attempts),
            "failures": [f"rejected: {one.detail}" if one.kind == "rejected" else one.kind for one in result.attempts if one.kind != "ok"],
            "compacted": result.compacted,
            "archive_id": result.archive_id,
            "usage": dict(result.usage) if result.usage else None,
        },
    )
