"""The narrative of a checkpoint: the application's own notes, or the summariser's answer, or none.

Work that does not fit into one summary request is summarised part by part within the same step. Each further request shows the answer so far as the
earlier checkpoint and takes the groups that come next; what no request contained stays in the window.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from langgraph_roundcompact._ask import Answer, Live, ask, group_digest
from langgraph_roundcompact._draft import Round
from langgraph_roundcompact._effects import Count, Flow
from langgraph_roundcompact._request import SummarySource
from langgraph_roundcompact._session_memory import Notes, read_notes
from langgraph_roundcompact._trigger import decide
from langgraph_roundcompact._usage import sum_usage

log = logging.getLogger("langgraph_roundcompact")

MORE_PARTS = 4
"""Further requests in one step, when the work of a long thread does not fit into one."""

SMALL_REMAINDER = 4
"""What is left of the work is small up to this fraction of the budget."""

_NOTHING = Answer(text=None, reason="", groups_covered=0, attempts=(), usage=None)


def narrate(round_: Round, *, use_model: bool) -> Flow[Answer]:
    """The summary of the round's work, and how many of its leading groups it covers. `text` None: `reason` says why there is none."""
    parts = round_.parts
    notes = yield from _notes(round_)
    if notes is not None:
        return replace(_NOTHING, text=notes.text, reason="session_memory", groups_covered=notes.groups_covered)
    if parts.model_key is None:
        return replace(_NOTHING, reason="no_model")
    if parts.config.summariser == "digest":
        return replace(_NOTHING, reason="digest_chosen")
    if not use_model:
        return replace(_NOTHING, reason="breaker_open")
    source, window = _source(round_), round_.job.summariser_window
    digests = [group_digest(group) for group in source.groups]
    answer = yield from ask(parts, source, window, _live(round_), digests=digests)
    for _ in range(MORE_PARTS):
        if answer.text is None or not (yield from _is_more_due(round_, answer.groups_covered)):
            break
        told = answer.groups_covered
        rest = replace(source, earlier=parts.redact(answer.text), groups=source.groups[told:])
        more = yield from ask(parts, rest, window, digests=digests[told:])
        answer = _joined(answer, more)
        if more.text is None:
            break
    return answer


def may_digest(round_: Round, answer: Answer) -> bool:
    """Whether rules make the checkpoint when there is no summary."""
    if answer.reason in ("no_model", "digest_chosen", "breaker_open") or round_.job.last_resort:
        return True
    return round_.parts.config.on_summary_failure == "digest"


def first_groups(round_: Round, count: int) -> Flow[Round]:
    """The round with only its oldest `count` groups in the target: what no request contained is not removed."""
    cut = round_.cut.keep_first(count)
    new_work = yield Count([round_.job.messages[i] for group in cut.groups for i in group])
    own = round_.sizes.target - round_.sizes.new_work
    # A small remainder that was to go as well takes its room from the checkpoint; a large one is the next compaction's work.
    left = round_.sizes.new_work - new_work
    budget = round_.budget - left if left <= round_.budget // SMALL_REMAINDER else round_.budget
    return replace(round_, cut=cut, budget=budget, sizes=replace(round_.sizes, target=new_work + own, new_work=new_work))


def _notes(round_: Round) -> Flow[Notes | None]:
    parts = round_.parts
    try:
        return (yield from read_notes(parts.session_memory, round_.job.state, round_.work))
    except parts.passes:
        raise
    except Exception as exc:  # noqa: BLE001 - somebody's callable or store; the model can still be asked
        log.warning("session_memory failed (%s); the notes are not used", type(exc).__name__)
        return None


def _source(round_: Round) -> SummarySource:
    parts, earlier = round_.parts, round_.earlier
    return SummarySource(
        request=round_.request,
        earlier=earlier.narrative if earlier else None,
        earlier_facts=earlier.ledger_text if earlier else "",
        groups=round_.work,
        focus=round_.job.focus,
        summary_tokens=parts.config.summary_max_tokens or max(round_.budget * 2 // 3, 1),
        redact=parts.redact,
    )


def _live(round_: Round) -> Live | None:
    """The agent's own request, unless it has just overflowed."""
    job = round_.job
    if job.agent_call is None or job.last_resort:
        return None
    return Live(call=job.agent_call, window=job.messages, tokens=round_.sizes.window, kept=job.messages[round_.cut.groups[-1][-1] + 1 :])


def _is_more_due(round_: Round, covered: int) -> Flow[bool]:
    """Whether the window would still be compacted with a checkpoint in the place of the covered groups."""
    groups = round_.cut.groups[covered:]
    if not groups:
        return False
    left = yield Count([round_.job.messages[i] for group in groups for i in group])
    sizes = round_.sizes
    rest = replace(sizes, window=sizes.after(left + round_.budget), target=left + round_.budget, new_work=left, held=0)
    return decide(round_.parts.config, rest, round_.job.limits, force=False).outcome is None


def _joined(told: Answer, more: Answer) -> Answer:
    """Both requests as one answer; what the first one covered stays covered when the second fails."""
    numbered = (replace(attempt, number=attempt.number + len(told.attempts)) for attempt in more.attempts)
    joined = replace(
        told, attempts=(*told.attempts, *numbered), usage=sum_usage(told.usage, more.usage), exchanges=(*told.exchanges, *more.exchanges)
    )
    return joined if more.text is None else replace(joined, text=more.text, groups_covered=told.groups_covered + more.groups_covered)
