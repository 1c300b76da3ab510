"""A person looks at a checkpoint before it takes the place of the work: what is shown, and what an answer means.

Whatever cannot be read as an answer is a no: a checkpoint that nobody agreed to must not replace anything. On a resume the host runs the step again
from its start; what was shown is then read back, so that no second summary is paid for and the answer is about this very text.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from langgraph_roundcompact._archive_record import archive_key
from langgraph_roundcompact._ask import Answer
from langgraph_roundcompact._content import text_of
from langgraph_roundcompact._draft import Draft, Round, write_draft
from langgraph_roundcompact._effects import Flow, Review, ShownBefore
from langgraph_roundcompact._memory_block import is_checkpoint
from langgraph_roundcompact._narrate import narrate
from langgraph_roundcompact.events import CompactionReview, Outcome

log = logging.getLogger("langgraph_roundcompact")

_YES = frozenset({"accept", "accepted", "approve", "approved", "yes", "ok"})
_NO = frozenset({"reject", "rejected", "deny", "denied", "ignore", "no"})
_EDIT = frozenset({"edit", "edited"})
_SAID_UNDER, _TEXT_UNDER = ("action", "type", "decision"), ("summary", "text", "args")


@dataclass(frozen=True, slots=True)
class Decision:
    """What the reviewer said."""

    action: Literal["accept", "edit", "reject"]
    summary: str = ""
    """The text to use in the place of the summary."""


def read_decision(answer: object) -> Decision | None:
    """What an answer means; None when it has no known form.

    Known are `True` and `False`, the words `"accept"` and `"reject"` (and the like), a mapping `{"action": "edit", "summary": "..."}` with
    `type` or `decision` as good as `action`, a list of one such answer, and `{"decisions": [one]}` as human-in-the-loop middleware has it.
    """
    if isinstance(answer, Mapping) and "decisions" in answer:
        answer = answer["decisions"]
    if isinstance(answer, list | tuple) and len(answer) == 1:
        answer = answer[0]
    if isinstance(answer, bool):
        return Decision("accept" if answer else "reject")
    fields: Mapping[Any, Any] = answer if isinstance(answer, Mapping) else {}
    word = next((fields[name] for name in _SAID_UNDER if name in fields), answer)
    if not isinstance(word, str):
        return None
    word = word.strip().lower()
    if word in _EDIT:
        text = next((fields[name] for name in _TEXT_UNDER if isinstance(fields.get(name), str)), "")
        return Decision("edit", text) if text.strip() else None
    return Decision("accept") if word in _YES else Decision("reject") if word in _NO else None


def narrate_once(round_: Round, *, use_model: bool) -> Flow[Answer]:
    """The summary of the round's work: the one that was shown for review in this very step, if the step is run again; else a new one."""
    if round_.job.review:
        shown: CompactionReview | None = yield ShownBefore(_key(round_))
        if shown is not None:
            text = None if shown.covers.get("digest") else shown.summary
            covered = shown.covers.get("groups")
            groups = covered if isinstance(covered, int) and 0 < covered <= len(round_.cut.groups) else 0
            if text is None or groups:
                return Answer(text=text, reason=shown.reason, groups_covered=groups, attempts=(), usage=None)
    return (yield from narrate(round_, use_model=use_model))


def review(
    round_: Round, answer: Answer, draft: Draft, summary: str | None, recovered: str, archive_id: str | None, outcome: Outcome
) -> Flow[tuple[Draft, str | None] | None]:
    """The draft as the reviewer wants it, and its summary; None when the reviewer does not want it.

    An edited text goes the way of every summary: redacted, escaped, cut to the budget, and the facts that it leaves out stand in the ledger.
    """
    said = read_decision((yield Review(_shown(round_, answer, draft, summary, outcome), round_.job.review)))
    if said is not None and said.action == "accept" and answer.attempts and not callable(round_.job.review):
        # An interrupt is answered in a later run of the step, and this text was made in this very run: the one that was shown is gone.
        log.warning("the checkpoint that was agreed to is not known any more: nothing is replaced")
        return None
    if said is None:
        log.warning("the answer to the review was not understood: nothing is replaced (say 'accept', 'reject' or {'action': 'edit', 'summary': ...})")
    if said is None or said.action == "reject":
        return None
    if said.action == "edit":
        summary = round_.parts.redact(said.summary)
        draft = yield from write_draft(round_, summary, recovered, archive_id)
    return draft, summary


def _shown(round_: Round, answer: Answer, draft: Draft, summary: str | None, outcome: Outcome) -> CompactionReview:
    return CompactionReview(
        summary=draft.texts.summary if summary is None else summary,
        checkpoint="\n".join(text_of(message) for message in draft.new if is_checkpoint(message) and text_of(message)),
        outcome=outcome,
        reason=answer.reason,
        replaced_messages=len(round_.cut.target),
        tokens_before=round_.sizes.window,
        tokens_after=round_.sizes.after(draft.tokens),
        covers={"key": _key(round_), "groups": answer.groups_covered, "digest": summary is None},
    )


def _key(round_: Round) -> str:
    """Tells what is being reviewed: the round's messages, whose thread, and what the summary was to look at."""
    job = round_.job
    return archive_key(job.messages[round_.cut.round_start :], repr((job.thread_id, job.focus)))
