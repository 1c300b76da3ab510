"""Debug records of decisions: asked for only where dumping is switched on, and then plain data without a clock. Nothing here decides anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from langchain_core.messages import BaseMessage

from langgraph_roundcompact._archive_record import plain
from langgraph_roundcompact._draft import Draft, Round
from langgraph_roundcompact._dump_record import lenient, told_folds
from langgraph_roundcompact._effects import DecisionKind, Flow, Record
from langgraph_roundcompact._message_tokens import message_tokens
from langgraph_roundcompact._parts import Job, Parts
from langgraph_roundcompact.events import Attempt, CompactionResult


def note(parts: Parts, kind: DecisionKind, **data: Any) -> Flow[None]:
    """One decision, where somebody wants to know."""
    if parts.records:
        yield Record(kind, data)


def note_check(job: Job, parts: Parts, window: int, *, due: bool) -> Flow[None]:
    """Whether the window is full enough to act."""
    reason = "below_threshold" if not due else "forced" if job.force else "reached_threshold"
    yield from note(parts, "threshold_check", due=due, reason=reason, window=window, messages=len(job.messages), **asdict(job.limits))


def note_span(round_: Round, outcome: str | None, reason: str) -> Flow[None]:
    """The three spans, and whether it goes on with them."""
    job, cut, sizes = round_.job, round_.cut, round_.sizes
    if not round_.parts.records:
        return
    target = cut.target
    yield from note(
        round_.parts,
        "span_built",
        outcome=outcome or "goes_on",
        reason=reason,
        prefix_messages=cut.prefix_stop,
        target_messages=len(target),
        tail_messages=len(job.messages) - cut.tail_start,
        kept_between=len(cut.islands),
        first_id=job.messages[target[0]].id if target else None,
        last_id=job.messages[target[-1]].id if target else None,
        window=sizes.window,
        target_tokens=sizes.target,
        new_work_tokens=sizes.new_work,
        fixed_tokens=sizes.fixed,
        budget_tokens=round_.budget,
    )


def told_tier(
    round_: Round, name: str, tokens: tuple[int, int], folds: Mapping[int, BaseMessage], gone: Sequence[int], reason: str = ""
) -> dict[str, Any]:
    """What one tier did: its own folds, and the window before and after in tokens."""
    messages, changed = round_.job.messages, sorted({*folds, *gone})
    untouched = sum(message_tokens(message, round_.parts.estimate) for message in messages[: changed[0]]) if changed else 0
    return {
        "tier": name,
        "applied": bool(changed),
        "reason": reason,
        "tokens_before": tokens[0],
        "tokens_after": tokens[1],
        "folded": len(folds),
        "left_out": len(gone),
        "untouched": untouched,
        "messages": told_folds(messages, folds, round_.parts.redact),
    }


def note_retry(parts: Parts, attempt: Attempt, next_tokens: int) -> Flow[None]:
    """A request that brought no summary, and the size of the next one."""
    yield from note(
        parts,
        "compression_retry",
        attempt=attempt.number,
        reason=attempt.kind,
        detail=attempt.detail,
        request_tokens=attempt.request_tokens,
        next_request_tokens=next_tokens,
    )


def note_audit(round_: Round, draft: Draft) -> Flow[None]:
    """How many key facts the draft holds."""
    audit = draft.audit
    yield from note(round_.parts, "audit", kept=len(audit.kept), added=len(audit.added), dropped=len(audit.dropped))


def note_gate(round_: Round, draft_tokens: int, *, reason: str) -> Flow[None]:
    """Whether the result may take the place of the target; an empty reason: it may."""
    sizes = round_.sizes
    after = sizes.after(draft_tokens)
    yield from note(round_.parts, "gate", passed=not reason, reason=reason, target=sizes.target, checkpoint=draft_tokens, window_after=after)


def note_done(parts: Parts, result: CompactionResult) -> Flow[None]:
    """How the step ended."""
    if not parts.records:
        return
    yield from note(
        parts,
        "done",
        outcome=result.outcome,
        reason=result.reason,
        changed=result.changed,
        compacted=result.compacted,
        tokens_before=result.tokens_before,
        tokens_after=result.tokens_after,
        attempts=len(result.attempts),
        detail=result.attempts[-1].detail if result.attempts else "",
        usage=plain(dict(result.usage or {}), lenient(parts.redact)),
        archive_id=result.archive_id,
    )
