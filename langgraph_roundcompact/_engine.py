"""The pipeline, once, top to bottom.

    measure ─► decide ─► cut ─► ladder ─► summarise ─► audit ─► put state back ─► gate ─► archive ─► splice ─► tell

A generator: it yields what it wants done (`_effects`) and is resumed with the answer, or has the failure thrown in at the line that asked.
Whatever is not certainly right leaves the window as it was; the result says why, and the run goes on.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage

from langgraph_roundcompact._archive_record import archive_key, archive_record
from langgraph_roundcompact._ask import Answer, Live, ask, last_kind, message_digest
from langgraph_roundcompact._content import as_messages
from langgraph_roundcompact._draft import Draft, Round, recover, start_round, write_draft
from langgraph_roundcompact._dump_record import dump_record
from langgraph_roundcompact._effects import Count, Emit, Flow, MeasureWindow, Memo, Offload, Warn, WriteArchive, WriteDump
from langgraph_roundcompact._gate import whole
from langgraph_roundcompact._ladder import Ladder, climb, relieve, settle
from langgraph_roundcompact._memory_block import is_checkpoint
from langgraph_roundcompact._parts import Job, Parts
from langgraph_roundcompact._request import SummarySource
from langgraph_roundcompact._session_memory import read_notes
from langgraph_roundcompact._spans import Cut, cut_round, find_round, find_stale_before
from langgraph_roundcompact._splice import splice
from langgraph_roundcompact._standing import commit_standing, stand_in
from langgraph_roundcompact._state import read_key
from langgraph_roundcompact._trigger import BLOCK_FLOOR_TOKENS, Failures, Sizes, Verdict, decide, is_cooling_down, is_due, recent_growth, round_budget
from langgraph_roundcompact.errors import RedactionRefused
from langgraph_roundcompact.events import CompactionEvent, CompactionPlan, CompactionResult, Outcome, Phase, Reason

if TYPE_CHECKING:
    from langgraph_roundcompact._meter import WindowCount

log = logging.getLogger("langgraph_roundcompact")

FOREIGN_USAGE = 1.5
"""Where the list holds this many times what usage reports, the usage is of another, shorter request. Estimates are within a quarter of it."""


def compaction(job: Job, parts: Parts) -> Flow[CompactionResult]:
    """One check of one window, and the compaction if it is due."""
    given = job.messages
    if not job.readable:
        return _result(given, given, "nothing_to_compact", "unreadable_messages", 0)
    window = 0
    try:
        job = yield from stand_in(job, parts)
        window = yield from _fullness(job, exact=False)
        if not job.force and not is_due(parts.config, job.limits, window, recent_growth(job.messages)):
            return replace(_result(job.messages, job.messages, "below_trigger", "below_threshold", window), changed=_differs(given, job.messages))
        yield Offload()
        result = yield from _compact(job, parts)
    except parts.passes:
        raise
    except Exception as exc:  # noqa: BLE001 - told in the log and in the result
        result = _failed(job, exc, window)
        yield Emit(_event("failed", result, job))
    return replace(result, changed=_differs(given, result.messages))


def planning(job: Job, parts: Parts) -> Flow[CompactionPlan]:
    """What `compaction` would do, without a model call."""
    if not job.readable:
        job = replace(job, messages=())
    job = replace(job, messages=as_messages(job.messages))
    cut, sizes = yield from _assess(job, parts)
    verdict = _stand_down(job) or decide(parts.config, sizes, job.limits, force=job.force)
    reason = yield from _reason(job, cut, sizes, verdict)
    no_model = parts.model_key is None or parts.config.summariser == "digest"
    return CompactionPlan(
        would_compact=verdict.outcome is None,
        outcome=verdict.outcome or ("digested" if no_model and not parts.tiers else None),
        reason=reason,
        window_tokens=sizes.window,
        capacity_tokens=job.limits.capacity,
        trigger_tokens=job.limits.trigger,
        target_tokens=job.limits.target,
        round_budget_tokens=round_budget(parts.config, sizes, job.limits),
        prefix_messages=cut.prefix_stop,
        target_messages=len(cut.target),
        tail_messages=len(job.messages) - cut.tail_start,
        new_work_tokens=sizes.new_work,
    )


# --- measure, cut, decide -------------------------------------------------------------------------------------------------------------


def _fullness(job: Job, *, exact: bool) -> Flow[int]:
    """Tokens of the window. The quick form trusts the newest reported usage; the exact one knows what a checkpoint made stale.

    A door that leaves the state alone may be given the whole history although the model has seen a checkpoint of it: after a restart, when
    the stand-in is forgotten, usage is of that shorter request.
    """
    start = find_round(job.messages) if exact else 0
    stale = find_stale_before(job.messages) if exact else 0
    window = MeasureWindow(
        messages=job.messages, round_start=start, stale_before=stale, system_message=job.system_message, tools=job.tools, exact=exact
    )
    count: WindowCount = yield window
    if job.writes_state or not count.anchored or (job.origin is not None and job.origin.stands):
        return count.total
    held: WindowCount = yield replace(window, stale_before=len(job.messages))
    return held.total if held.total > count.total * FOREIGN_USAGE else count.total


def _assess(job: Job, parts: Parts) -> Flow[tuple[Cut, Sizes]]:
    config, messages = parts.config, job.messages
    cut = cut_round(messages, keep_recent=config.keep_recent_messages, is_real=parts.is_real_user, is_pending=parts.is_pending, by_id=job.by_id)
    window = yield from _fullness(job, exact=True)
    new_work = yield Count([messages[i] for group in cut.groups for i in group])
    own = (yield Count([messages[i] for i in cut.own])) if cut.own else 0
    growth = recent_growth(messages, max(cut.round_start, find_stale_before(messages)))
    return cut, Sizes(window=window, target=new_work + own, new_work=new_work, growth=growth)


def _reason(job: Job, cut: Cut, sizes: Sizes, verdict: Verdict) -> Flow[Reason]:
    """Why it ends here: what the cut says, unless what stands before the work is over the trigger by itself."""
    if verdict.outcome != "nothing_to_compact":
        return verdict.reason
    if verdict.reason == "prefix_over_trigger" and cut.reason in ("", "no_compressible_span"):
        kept = [job.messages[i] for i in cut.islands] + list(job.messages[cut.tail_start :])
        if sizes.fixed - (yield Count(kept)) >= job.limits.trigger:
            return "prefix_over_trigger"
    return cut.reason or verdict.reason


def _stand_down(job: Job) -> Verdict | None:
    """Somebody else compacts this history: two at it would undo each other."""
    if job.native_compaction:
        return Verdict("stood_down", "native_compaction")
    if read_key(job.state, "_summarization_event") is not None:
        return Verdict("stood_down", "foreign_compaction")
    return None


def _compact(job: Job, parts: Parts) -> Flow[CompactionResult]:
    job = replace(job, messages=as_messages(job.messages))
    cut, sizes = yield from _assess(job, parts)
    relief = None if _stand_down(job) else (yield from relieve(start_round(job, parts, cut, sizes, round_budget(parts.config, sizes, job.limits))))
    if relief is None:
        return (yield from _compact_cut(job, parts, cut, sizes))
    result = yield from _compact_cut(relief.job, parts, cut, relief.sizes)
    if result.compacted:
        return replace(result, tokens_before=sizes.window)
    # Without a checkpoint, too, the request fits now or is nearer to it.
    reason: Reason = "reached_threshold" if result.reason == "below_threshold" else result.reason
    result = replace(result, outcome="tiers_sufficed", reason=reason, tokens_before=sizes.window, changed=True)
    yield Emit(_event("finished", result, job))
    return result


def _compact_cut(job: Job, parts: Parts, cut: Cut, sizes: Sizes) -> Flow[CompactionResult]:
    verdict = _stand_down(job) or decide(parts.config, sizes, job.limits, force=job.force)
    if verdict.outcome is not None:
        reason = yield from _reason(job, cut, sizes, verdict)
        result = _result(job.messages, job.messages, verdict.outcome, reason, sizes.window)
        if reason == "prefix_over_trigger":
            told = yield _prefix_warning(job, cut)
        else:
            told = verdict.outcome != "below_trigger"
        if told:
            yield Emit(_event("skipped", result, job))
        return result
    round_ = start_round(job, parts, cut, sizes, round_budget(parts.config, sizes, job.limits))
    key = _failure_key(round_)
    failures: Failures | None = yield Memo("failures", (key,))
    open_breaker = failures is not None and 0 < parts.config.breaker_failures <= failures.in_row
    if failures is not None and not job.force and is_cooling_down(parts.config, job.limits, sizes, failures, len(cut.groups)):
        result = _result(job.messages, job.messages, "cooling_down", "cooldown", sizes.window)
        yield Emit(_event("skipped", result, job))
        return result
    yield Emit(CompactionEvent(phase="started", tokens_before=sizes.window, reason=verdict.reason, thread_id=job.thread_id))
    try:
        result = yield from _reduce(round_, use_model=not open_breaker)
    except parts.passes:
        raise
    except Exception as exc:  # noqa: BLE001 - counted like any failure, so that it is not met again at each step
        result = _failed(job, exc, sizes.window)
    failed = result.outcome in ("failed", "no_benefit")
    in_row = (failures.in_row if failures else 0) + 1 if failed else 0
    if failed or failures is not None:
        yield Memo("failures", (key,), Failures(in_row, len(cut.groups), sizes.window))
    yield Emit(_event("failed" if result.outcome == "failed" else "finished" if result.changed else "skipped", result, job))
    return result


def _failure_key(round_: Round) -> str:
    return _key(round_.job.thread_id, round_.request, round_.replaced[0] if round_.replaced else None)


def _prefix_warning(job: Job, cut: Cut) -> Warn:
    return Warn(
        _key(job.thread_id, job.messages[cut.round_start - 1] if cut.round_start else None),
        f"what may not be compacted (request, earlier rounds, system prompt, tools) is over the trigger of {job.limits.trigger:,} tokens by itself: "
        "compaction waits until there is enough new work; use a model with a larger window, or send less",
    )


def _key(thread_id: str | None, *messages: BaseMessage | None) -> str:
    digest = hashlib.sha256((thread_id or "").encode("utf-8", "replace"))
    for message in messages:
        digest.update(b"\x00" + (message_digest(message) if message is not None else b"-"))
    return digest.hexdigest()


# --- ladder, summarise ----------------------------------------------------------------------------------------------------------------


def _reduce(round_: Round, *, use_model: bool) -> Flow[CompactionResult]:
    job, sizes = round_.job, round_.sizes
    ladder: Ladder | None = yield from climb(round_)
    assert ladder is not None
    if ladder.reached and not job.force:
        ladder = yield from settle(round_, ladder)
        if ladder is not None:
            return _result(job.messages, ladder.messages, "tiers_sufficed", "reached_threshold", sizes.window, ladder.tokens)
    result = yield from _checkpoint(round_, use_model=use_model)
    if result.compacted or ladder is None or not ladder.reached or (ladder := (yield from settle(round_, ladder))) is None:
        # When the model step fails, folds of the same step go too: they would break the prefix cache without reaching the target.
        return result
    more: dict[str, Any] = {"attempts": result.attempts, "usage": result.usage}
    return _result(job.messages, ladder.messages, "tiers_sufficed", result.reason, sizes.window, ladder.tokens, **more)


def _checkpoint(round_: Round, *, use_model: bool) -> Flow[CompactionResult]:
    """Replace the target by one checkpoint, or say why not."""
    sizes, recovered = round_.sizes, recover(round_)
    if round_.parts.estimate(recovered) + BLOCK_FLOOR_TOKENS >= sizes.target:
        return _result(round_.job.messages, round_.job.messages, "no_benefit", "not_smaller", sizes.window)  # known before anything is paid for
    answer = yield from _narrate(round_, use_model=use_model)
    more: dict[str, Any] = {"attempts": answer.attempts, "usage": answer.usage}
    may_digest = _may_digest(round_, answer)
    if answer.text is None and answer.attempts:
        end = "rules make the checkpoint" if may_digest else "the window stays as it was"
        log.warning("no summary could be had (%s, %d requests): %s", answer.reason, len(answer.attempts), end)
    if answer.text is None and not may_digest:
        return _result(round_.job.messages, round_.job.messages, "failed", answer.reason, sizes.window, **more)
    if answer.text is not None and answer.groups_covered < len(round_.cut.groups):
        # What the request did not contain is not removed.
        round_ = yield from _shorten(round_, answer.groups_covered)
    if answer.text is not None and round_.parts.estimate(answer.text) >= sizes.target:
        return _result(round_.job.messages, round_.job.messages, "no_benefit", "not_smaller", sizes.window, **more)
    outcome: Outcome = "summarised" if answer.text is not None else "digested"
    return (yield from _commit(round_, answer, recovered, outcome))


def _narrate(round_: Round, *, use_model: bool) -> Flow[Answer]:
    parts = round_.parts
    nothing = Answer(text=None, reason="", groups_covered=0, attempts=(), usage=None)
    try:
        notes = yield from read_notes(parts.session_memory, round_.job.state, round_.work)
    except parts.passes:
        raise
    except Exception as exc:  # noqa: BLE001 - somebody's callable or store; the model can still be asked
        log.warning("session_memory failed (%s); the notes are not used", type(exc).__name__)
        notes = None
    if notes is not None:
        return replace(nothing, text=notes.text, reason="session_memory", groups_covered=notes.groups_covered)
    if parts.model_key is None:
        return replace(nothing, reason="no_model")
    if parts.config.summariser == "digest":
        return replace(nothing, reason="digest_chosen")
    if not use_model:
        return replace(nothing, reason="breaker_open")
    earlier = round_.earlier
    source = SummarySource(
        request=round_.request,
        earlier=earlier.narrative if earlier else None,
        earlier_facts=earlier.ledger_text if earlier else "",
        groups=round_.work,
        focus=round_.job.focus,
        summary_tokens=parts.config.summary_max_tokens or max(round_.budget * 2 // 3, 1),
        redact=parts.redact,
    )
    return (yield from ask(parts, source, round_.job.summariser_window, _live(round_)))


def _live(round_: Round) -> Live | None:
    """The agent's own request, unless it has just overflowed."""
    job = round_.job
    if job.agent_call is None or job.last_resort:
        return None
    return Live(call=job.agent_call, window=job.messages, tokens=round_.sizes.window, kept=job.messages[round_.cut.groups[-1][-1] + 1 :])


def _may_digest(round_: Round, answer: Answer) -> bool:
    """Whether rules make the checkpoint when there is no summary."""
    if answer.reason in ("no_model", "digest_chosen", "breaker_open") or round_.job.last_resort:
        return True
    return round_.parts.config.on_summary_failure == "digest"


def _shorten(round_: Round, groups: int) -> Flow[Round]:
    cut = round_.cut.keep_first(groups)
    new_work = yield Count([round_.job.messages[i] for group in cut.groups for i in group])
    own = round_.sizes.target - round_.sizes.new_work
    return replace(round_, cut=cut, sizes=replace(round_.sizes, target=new_work + own, new_work=new_work))


# --- gate, archive, splice ------------------------------------------------------------------------------------------------------------


def _commit(round_: Round, answer: Answer, recovered: str, outcome: Outcome) -> Flow[CompactionResult]:
    job, parts, sizes = round_.job, round_.parts, round_.sizes
    more: dict[str, Any] = {"attempts": answer.attempts, "usage": answer.usage}
    summary = parts.redact(answer.text) if answer.text is not None else None
    archive_id = archive_key(round_.replaced, job.thread_id) if parts.has_archive else None
    draft = yield from write_draft(round_, summary, recovered, archive_id)
    if draft.tokens >= sizes.target:
        return _result(job.messages, job.messages, "no_benefit", "not_smaller", sizes.window, **more)
    if archive_id is not None:
        written = yield from _archive(round_, archive_id)
        if not written and parts.config.archive_required:
            return _result(job.messages, job.messages, "failed", "archive_failed", sizes.window, **more)
        if not written:
            draft = yield from write_draft(round_, summary, recovered, None)
    after = splice(job.messages, round_.cut.target, draft.new, {})
    if not whole(job.messages, after, round_.cut.target):
        log.error("the compacted list failed the last check; the window stays as it was")
        return _result(job.messages, job.messages, "failed", "invalid_result", sizes.window, **more)
    tokens_after = max(sizes.window - sizes.target + draft.tokens, 0)
    reason: Reason = answer.reason or (last_kind(answer.attempts) if outcome == "digested" else None) or "reached_threshold"
    result = _result(job.messages, after, outcome, reason, sizes.window, tokens_after, draft=draft, **more)
    yield from commit_standing(round_, draft)
    if parts.config.enable_compression_dump:
        yield WriteDump(dump_record(round_, draft, result), job.thread_id)
    return result


def _archive(round_: Round, archive_id: str) -> Flow[bool]:
    try:
        yield WriteArchive(archive_id, archive_record(round_.replaced, round_.request_text, round_.parts.redact), round_.job.thread_id)
    except round_.parts.passes:
        raise
    except Exception as exc:  # noqa: BLE001 - any store may raise anything
        log.warning("the replaced messages could not be archived (%s); the checkpoint has no pointer to them", type(exc).__name__)
        return False
    return True


# --- tell -----------------------------------------------------------------------------------------------------------------------------


def _failed(job: Job, exc: Exception, window: int) -> CompactionResult:
    """Fail closed: a fault of ours must cost the compaction, never the run."""
    if isinstance(exc, RedactionRefused):
        log.warning("redact refused the text; the window stays as it was")
        return _result(job.messages, job.messages, "failed", "redact_refused", window)
    log.error("compaction failed; the window stays as it was", exc_info=exc)
    return _result(job.messages, job.messages, "failed", "internal_error", window)


def _result(
    before: Sequence[BaseMessage], after: Sequence[BaseMessage], outcome: Outcome, reason: Reason, tokens: int, tokens_after: int | None = None,
    *, draft: Draft | None = None, **more: Any
) -> CompactionResult:  # fmt: skip
    memory = next((message for message in reversed(draft.new) if is_checkpoint(message)), None) if draft else None
    return CompactionResult(
        messages=list(after),
        update={},
        changed=_differs(before, after),
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


def _differs(before: Sequence[BaseMessage], after: Sequence[BaseMessage]) -> bool:
    return before is not after and (len(before) != len(after) or any(a is not b for a, b in zip(before, after, strict=True)))


def _event(phase: Phase, result: CompactionResult, job: Job) -> CompactionEvent:
    return CompactionEvent(
        phase=phase,
        outcome=result.outcome,
        reason=result.reason,
        tokens_before=result.tokens_before,
        tokens_after=result.tokens_after,
        thread_id=job.thread_id,
        details={"attempts": len(result.attempts), "compacted": result.compacted, "archive_id": result.archive_id},
    )
