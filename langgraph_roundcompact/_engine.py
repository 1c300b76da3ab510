"""The pipeline, once, top to bottom.

    measure ─► decide ─► cut ─► ladder ─► summarise ─► audit ─► put state back ─► gate ─► archive ─► splice ─► tell
    _meter     _trigger  _spans _ladder   _narrate     _draft   reinject/         _gate   archive    _splice   _tell

A generator: it yields what it wants done (`_effects`) and is resumed with the answer, or has the failure thrown in at the line that asked.
Whatever is not certainly right leaves the window as it was; the result says why, and the run goes on.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage

from langgraph_roundcompact._archive_record import archive_key, archive_record
from langgraph_roundcompact._ask import Answer, last_kind, message_digest
from langgraph_roundcompact._content import as_messages
from langgraph_roundcompact._decisions import note, note_audit, note_check, note_done, note_gate, note_span
from langgraph_roundcompact._draft import Round, recover, start_round, write_draft
from langgraph_roundcompact._dump_record import dump_record
from langgraph_roundcompact._effects import Count, Emit, Flow, MeasureWindow, Memo, Offload, Warn, WriteArchive, WriteDump
from langgraph_roundcompact._gate import whole
from langgraph_roundcompact._ladder import Ladder, climb, relieve, settle
from langgraph_roundcompact._narrate import first_groups, may_digest
from langgraph_roundcompact._parts import Job, Parts
from langgraph_roundcompact._review import narrate_once, review
from langgraph_roundcompact._spans import Cut, cut_round, find_round, find_stale_before, request_of
from langgraph_roundcompact._splice import splice
from langgraph_roundcompact._standing import commit_standing, stand_in
from langgraph_roundcompact._state import read_key
from langgraph_roundcompact._tell import differs, event_of, failed_result, told_result
from langgraph_roundcompact._trigger import (
    BLOCK_FLOOR_TOKENS,
    Failures,
    Sizes,
    Verdict,
    decide,
    is_asked_again,
    is_breaker_open,
    is_cooling_down,
    is_due,
    is_outgrown,
    recent_growth,
    round_budget,
)
from langgraph_roundcompact.events import CompactionEvent, CompactionPlan, CompactionResult, Outcome, Reason

if TYPE_CHECKING:
    from langgraph_roundcompact._meter import WindowCount

log = logging.getLogger("langgraph_roundcompact")

NO_FAILURES = Failures(0, 0, 0)

FOREIGN_USAGE = 1.5
"""Where the list holds this many times what usage reports, the usage is of another, shorter request. Estimates are within a quarter of it."""


def compaction(job: Job, parts: Parts) -> Flow[CompactionResult]:
    """One check of one window, and the compaction if it is due."""
    given = job.messages
    if not job.readable:
        return told_result(given, given, "nothing_to_compact", "unreadable_messages", 0)
    window = 0
    try:
        job = yield from stand_in(job, parts)
        window = (yield from _fullness(job, parts, exact=False)).total
        due = job.force or is_due(parts.config, job.limits, window, recent_growth(job.messages))
        if parts.records:
            yield from note_check(job, parts, window, due=due)
        if not due:
            return replace(told_result(job.messages, job.messages, "below_trigger", "below_threshold", window), changed=differs(given, job.messages))
        yield Offload()
        result = yield from _compact(job, parts)
    except parts.passes:
        raise
    except Exception as exc:  # noqa: BLE001 - told in the log and in the result
        result = failed_result(job, exc, window)
        yield Emit(event_of("failed", result, job))
    result = replace(result, changed=differs(given, result.messages))
    yield from note_done(parts, result)
    return result


def planning(job: Job, parts: Parts) -> Flow[CompactionPlan]:
    """What `compaction` would do, without a model call."""
    if not job.readable:
        empty = yield from planning(replace(job, messages=(), readable=True), parts)
        return replace(empty, would_compact=False, outcome="nothing_to_compact", reason="unreadable_messages")
    job, parts = replace(job, messages=as_messages(job.messages)), replace(parts, records=False)
    cut, sizes = yield from _assess(job, parts)
    verdict = _stand_down(job) or decide(parts.config, sizes, job.limits, force=job.force)
    reason = yield from _reason(job, cut, sizes, verdict)
    failures: Failures = (yield Memo("failures", (_failure_key(job, parts, cut),))) or NO_FAILURES
    groups = len(cut.groups)
    if verdict.outcome is None and not job.force and is_cooling_down(parts.config, job.limits, sizes, failures, groups):
        verdict, reason = Verdict("cooling_down", "cooldown"), "cooldown"
    no_model = parts.model_key is None or parts.config.summariser == "digest"
    no_model = no_model or is_breaker_open(parts.config, failures) or is_outgrown(job.limits, sizes, failures, groups)
    budget = round_budget(parts.config, sizes, job.limits)
    outcome = verdict.outcome
    if outcome is None:
        outcome = yield from _foreseen(start_round(job, parts, cut, sizes, budget), no_model=no_model)
        reason = "not_smaller" if outcome == "no_benefit" else reason
    return CompactionPlan(
        would_compact=outcome in (None, "tiers_sufficed", "digested"),
        outcome=outcome,
        reason=reason,
        window_tokens=sizes.window,
        capacity_tokens=job.limits.capacity,
        trigger_tokens=job.limits.trigger,
        target_tokens=job.limits.target,
        round_budget_tokens=budget,
        prefix_messages=cut.prefix_stop,
        target_messages=len(cut.target),
        tail_messages=len(job.messages) - cut.tail_start,
        new_work_tokens=sizes.new_work,
    )


def _foreseen(round_: Round, *, no_model: bool) -> Flow[Outcome | None]:
    """How a compaction that is due would end, as far as that is certain before the summariser is asked. Folds are tried and given up."""
    ladder = yield from climb(round_)
    if ladder.reached and not round_.job.force:
        return "tiers_sufficed"
    if _is_vain(round_, recover(round_)):
        return "no_benefit"
    return "digested" if no_model else None


# --- measure, cut, decide -------------------------------------------------------------------------------------------------------------


def _fullness(job: Job, parts: Parts, *, exact: bool) -> Flow[WindowCount]:
    """Tokens of the window. The quick form trusts the newest reported usage; the exact one knows what a checkpoint made stale.

    A door that leaves the state alone may be given the whole history although the model has seen a checkpoint of it: after a restart, when
    the stand-in is forgotten, usage is of that shorter request.
    """
    start = find_round(job.messages, parts.is_real_user) if exact else 0
    stale = find_stale_before(job.messages) if exact else 0
    window = MeasureWindow(
        messages=job.messages, round_start=start, stale_before=stale, system_message=job.system_message, tools=job.tools, exact=exact
    )
    count: WindowCount = yield window
    if job.writes_state or not count.anchored or (job.origin is not None and job.origin.stands):
        return count
    held: WindowCount = yield replace(window, stale_before=len(job.messages))
    return held if held.total > count.total * FOREIGN_USAGE else count


def _assess(job: Job, parts: Parts) -> Flow[tuple[Cut, Sizes]]:
    config, messages = parts.config, job.messages
    cut = cut_round(messages, keep_recent=config.keep_recent_messages, is_real=parts.is_real_user, is_pending=parts.is_pending, by_id=job.by_id)
    window = yield from _fullness(job, parts, exact=True)
    held = (yield Count(messages)) + window.overhead if window.anchored else 0
    new_work = yield Count([messages[i] for group in cut.groups for i in group])
    own = (yield Count([messages[i] for i in cut.own])) if cut.own else 0
    growth = recent_growth(messages, max(cut.round_start, find_stale_before(messages)))
    return cut, Sizes(window=window.total, target=new_work + own, new_work=new_work, growth=growth, held=held)


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
    round_ = start_round(job, parts, cut, sizes, round_budget(parts.config, sizes, job.limits))
    relief = None if _stand_down(job) else (yield from relieve(round_))
    if relief is None:
        return (yield from _compact_cut(round_))
    result = yield from _compact_cut(replace(relief, budget=round_budget(parts.config, relief.sizes, job.limits)))
    if result.compacted:
        return replace(result, tokens_before=sizes.window)
    # Without a checkpoint, too, the request fits now or is nearer to it.
    reason: Reason = "reached_threshold" if result.reason == "below_threshold" else result.reason
    result = replace(result, outcome="tiers_sufficed", reason=reason, tokens_before=sizes.window, changed=True)
    yield Emit(event_of("finished", result, job))
    return result


def _compact_cut(round_: Round) -> Flow[CompactionResult]:
    job, parts, cut, sizes = round_.job, round_.parts, round_.cut, round_.sizes
    verdict = _stand_down(job) or decide(parts.config, sizes, job.limits, force=job.force)
    if verdict.outcome is not None:
        reason = yield from _reason(job, cut, sizes, verdict)
        yield from note_span(round_, verdict.outcome, reason)
        result = told_result(job.messages, job.messages, verdict.outcome, reason, sizes.window)
        if reason == "prefix_over_trigger":
            told = yield _prefix_warning(job, cut)
        else:
            told = verdict.outcome != "below_trigger"
        if told:
            yield Emit(event_of("skipped", result, job))
        return result
    yield from note_span(round_, None, verdict.reason)
    key = _failure_key(job, parts, cut)
    failures: Failures = (yield Memo("failures", (key,))) or NO_FAILURES
    groups = len(cut.groups)
    by_rules = is_breaker_open(parts.config, failures) or is_outgrown(job.limits, sizes, failures, groups)
    if not (job.force or is_asked_again(failures, job.task_id)) and is_cooling_down(parts.config, job.limits, sizes, failures, groups):
        result = told_result(job.messages, job.messages, "cooling_down", "cooldown", sizes.window)
        yield Emit(event_of("skipped", result, job))
        return result
    yield Emit(CompactionEvent(phase="started", tokens_before=sizes.window, reason=verdict.reason, thread_id=job.thread_id))
    try:
        result = yield from _reduce(round_, use_model=not by_rules)
    except parts.passes:
        raise
    except Exception as exc:  # noqa: BLE001 - counted like any failure, so that it is not met again at each step
        result = failed_result(job, exc, sizes.window)
    failed, rejected = result.outcome in ("failed", "no_benefit"), result.reason == "rejected"
    if failed or rejected or failures is not NO_FAILURES:
        # A reviewer's no is no failure of the summariser: it opens no breaker.
        in_row = failures.in_row + 1 if failed else failures.in_row if rejected else 0
        yield Memo("failures", (key,), Failures(in_row, groups, sizes.window, rejected=rejected, task_id=job.task_id if rejected else ""))
    yield Emit(event_of("failed" if result.outcome == "failed" else "finished" if result.changed else "skipped", result, job))
    return result


def _failure_key(job: Job, parts: Parts, cut: Cut) -> str:
    target = cut.target
    return _key(job.thread_id, request_of(job.messages, cut.round_start, parts.is_real_user), job.messages[target[0]] if target else None)


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
            return told_result(job.messages, ladder.messages, "tiers_sufficed", "reached_threshold", sizes.window, ladder.tokens)
    result = yield from _checkpoint(replace(round_, gains=ladder.gains) if ladder is not None else round_, use_model=use_model)
    if result.compacted or result.reason == "rejected" or ladder is None or not ladder.reached:
        # When the model step fails, folds of the same step go too: they would break the prefix cache without reaching the target.
        return result
    ladder = yield from settle(round_, ladder)
    if ladder is None:
        return result
    more: dict[str, Any] = {"attempts": result.attempts, "usage": result.usage}
    return told_result(job.messages, ladder.messages, "tiers_sufficed", result.reason, sizes.window, ladder.tokens, **more)


def _checkpoint(round_: Round, *, use_model: bool) -> Flow[CompactionResult]:
    """Replace the target by one checkpoint, or say why not."""
    sizes, recovered = round_.sizes, recover(round_)
    if _is_vain(round_, recovered):
        yield from note_gate(round_, BLOCK_FLOOR_TOKENS, reason="not_smaller")
        return told_result(round_.job.messages, round_.job.messages, "no_benefit", "not_smaller", sizes.window)  # known before anything is paid for
    answer = yield from narrate_once(round_, use_model=use_model)
    more: dict[str, Any] = {"attempts": answer.attempts, "usage": answer.usage}
    by_rules = answer.text is None and may_digest(round_, answer)
    if answer.text is None and answer.attempts:
        end = "rules make the checkpoint" if by_rules else "the window stays as it was"
        log.warning("no summary could be had (%s, %d requests, last: %s): %s", answer.reason, len(answer.attempts), answer.attempts[-1].detail, end)
    if answer.text is None and not by_rules:
        return told_result(round_.job.messages, round_.job.messages, "failed", answer.reason, sizes.window, **more)
    if answer.text is not None and answer.groups_covered < len(round_.cut.groups):
        round_ = yield from first_groups(round_, answer.groups_covered)
    if answer.text is not None and (tokens := round_.parts.estimate(answer.text)) >= sizes.target:
        yield from note_gate(round_, tokens, reason="not_smaller")
        return told_result(round_.job.messages, round_.job.messages, "no_benefit", "not_smaller", sizes.window, **more)
    outcome: Outcome = "summarised" if answer.text is not None else "digested"
    return (yield from _commit(round_, answer, recovered, outcome))


def _is_vain(round_: Round, recovered: str) -> bool:
    """Whether the smallest checkpoint would be as large as what it replaces."""
    return round_.parts.estimate(recovered) + BLOCK_FLOOR_TOKENS >= round_.sizes.target


# --- gate, archive, splice ------------------------------------------------------------------------------------------------------------


def _commit(round_: Round, answer: Answer, recovered: str, outcome: Outcome) -> Flow[CompactionResult]:
    job, parts, sizes = round_.job, round_.parts, round_.sizes
    more: dict[str, Any] = {"attempts": answer.attempts, "usage": answer.usage}
    summary = parts.redact(answer.text) if answer.text is not None else None
    archive_id = archive_key(round_.replaced, job.thread_id) if parts.has_archive else None
    draft = yield from write_draft(round_, summary, recovered, archive_id)
    if draft.tokens < sizes.target and job.review:
        wanted = yield from review(round_, answer, draft, summary, recovered, archive_id, outcome)
        if wanted is None:
            return told_result(job.messages, job.messages, "stood_down", "rejected", sizes.window, **more)
        draft, summary = wanted
    yield from note_audit(round_, draft)
    if draft.tokens >= sizes.target:
        yield from note_gate(round_, draft.tokens, reason="not_smaller")
        return told_result(job.messages, job.messages, "no_benefit", "not_smaller", sizes.window, **more)
    if archive_id is not None:
        written = yield from _archive(round_, archive_id)
        if not written and parts.config.archive_required:
            return told_result(job.messages, job.messages, "failed", "archive_failed", sizes.window, **more)
        if not written:
            draft = yield from write_draft(round_, summary, recovered, None)
    after = splice(job.messages, round_.cut.target, draft.new, {})
    if not whole(job.messages, after, round_.cut.target):
        log.error("the compacted list failed the last check; the window stays as it was")
        yield from note_gate(round_, draft.tokens, reason="invalid_result")
        return told_result(job.messages, job.messages, "failed", "invalid_result", sizes.window, **more)
    usual: Reason = "forced" if job.force and not job.last_resort else "reached_threshold"
    reason = answer.reason or (last_kind(answer.attempts) if outcome == "digested" else None) or usual
    result = told_result(job.messages, after, outcome, reason, sizes.window, sizes.after(draft.tokens), draft=draft, **more)
    yield from commit_standing(round_, draft)
    if parts.records:
        yield from note_gate(round_, draft.tokens, reason="")
        yield WriteDump(dump_record(round_, draft, result, answer.exchanges), job.thread_id)
    return result


def _archive(round_: Round, archive_id: str) -> Flow[bool]:
    try:
        record = archive_record(round_.replaced, round_.request_text, round_.parts.redact, round_.parts.config.compression_recall)
        yield WriteArchive(archive_id, record, round_.job.thread_id)
    except round_.parts.passes:
        raise
    except Exception as exc:  # noqa: BLE001 - any store may raise anything
        log.warning("the replaced messages could not be archived (%s); the checkpoint has no pointer to them", type(exc).__name__)
        yield from note(round_.parts, "archive", written=False, archive_id=archive_id, reason=type(exc).__name__)
        return False
    yield from note(round_.parts, "archive", written=True, archive_id=archive_id, reason="")
    return True
