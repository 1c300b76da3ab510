"""From a summary to the messages that replace the target: recovered context, ledger, frame and ids, within the budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from langchain_core.messages import BaseMessage

from langgraph_roundcompact._budget import cut
from langgraph_roundcompact._compose import Texts, checkpoint_texts, gather_facts
from langgraph_roundcompact._content import text_of
from langgraph_roundcompact._effects import Count, Flow
from langgraph_roundcompact._extract import SCAN_ALL
from langgraph_roundcompact._ledger import facts_from_data, facts_to_data
from langgraph_roundcompact._memory_block import (
    POINTERS_KEPT,
    BlockData,
    EarlierBlock,
    checkpoint_messages,
    frame,
    read_block,
    recovered_message,
)
from langgraph_roundcompact._parts import Job, Parts
from langgraph_roundcompact._rank import Ranking
from langgraph_roundcompact._spans import Cut, request_of
from langgraph_roundcompact._trigger import Sizes
from langgraph_roundcompact.events import Audit
from langgraph_roundcompact.reinject import ReinjectContext, recovered_sections, render_recovered, said_in

_T = TypeVar("_T")

FIT_TRIES = 5
"""How often the texts are written anew to meet the budget by the counter in force."""

SUMMARY_SHARE = 0.75
"""Of the room for both texts, what a model's summary may take at most: facts it left out need the rest."""

FIRST_FACTS, LABEL_TOKENS = 9, 24
"""Facts at the head of a ranking that may be the resume point and answers of the user, and what tags and labels around them take."""

RECOVERED_FLOOR_TOKENS = 250
"""A short plan and todo list with their frame: of a small budget the recovered context gets as much, up to two fifths of it."""

SCAN_PER_TOKEN = 96
"""Characters of the work that are looked at for each token of the budget: more than that does not change what fits."""

_LATER_CHARS = 4000
"""Of each message that stays, what is searched for facts that are needed again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round as the steps after the decision see it."""

    job: Job
    parts: Parts
    cut: Cut
    sizes: Sizes
    budget: int
    """The most that checkpoint and recovered context may take, in tokens of the counter in force."""
    earlier: EarlierBlock | None
    gains: tuple[Mapping[str, Any], ...] = ()
    """What each tier did before; noted only where dumping is on."""

    @property
    def request(self) -> BaseMessage | None:
        """The user's request; None in a history without one."""
        return request_of(self.job.messages, self.cut.round_start, self.parts.is_real_user)

    @property
    def request_text(self) -> str:
        """Text of the request, redacted."""
        return self.parts.redact(text_of(self.request)) if self.request is not None else ""

    @property
    def replaced(self) -> list[BaseMessage]:
        """The messages that go."""
        return [self.job.messages[i] for i in self.cut.target]

    @property
    def free_ids(self) -> list[str | None]:
        """Ids that the new messages may take: those of replaced messages that stand once; without any ids, None for each.

        One only, where something stays between the first two: in the state it would come between checkpoint and recovered context, or
        between call and result.
        """
        count = Counter(message.id for message in self.replaced)
        free = [i for i in self.cut.target if not (key := self.job.messages[i].id) or count[key] == 1]
        apart = len(free) > 1 and not set(range(free[0], free[1])) <= set(self.cut.target)
        return [self.job.messages[i].id for i in (free[:1] if apart else free)]

    @property
    def work(self) -> list[list[BaseMessage]]:
        """The new work, in groups."""
        return [[self.job.messages[i] for i in group] for group in self.cut.groups]

    @property
    def kept(self) -> list[BaseMessage]:
        """Messages of the round that stay visible."""
        gone = set(self.cut.target)
        return [message for i, message in enumerate(self.job.messages) if i >= self.cut.round_start and i not in gone]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The messages that would replace the target."""

    new: tuple[BaseMessage, ...]
    tokens: int
    audit: Audit
    texts: Texts
    archive_id: str | None
    """The pointer in the block; None: no pointer."""
    recovered: str


def start_round(job: Job, parts: Parts, cut: Cut, sizes: Sizes, budget: int) -> Round:
    """Bundle a round, with its earlier checkpoint read back."""
    parts = replace(parts, redact=_remembered(parts.redact), estimate=_remembered(parts.estimate))
    return Round(job=job, parts=parts, cut=cut, sizes=sizes, budget=budget, earlier=read_block([job.messages[i] for i in cut.own]))


def _remembered(read: Callable[[str], _T]) -> Callable[[str], _T]:
    """`read`, cached for one round: ladder, summary request and ledger read the same texts."""
    known: dict[str, _T] = {}

    def once(text: str) -> _T:
        found = known.get(text)
        if found is None:
            found = known[text] = read(text)
        return found

    return once


def recover(round_: Round) -> str:
    """The recovered context, from the state as it is now."""
    parts, limit = round_.parts, round_.parts.config.reinject_max_tokens
    share = max(round_.budget // 5, min(round_.budget * 2 // 5, RECOVERED_FLOOR_TOKENS))
    most = min(limit, round_.budget * 2 // 3) if limit is not None else share
    context = ReinjectContext(
        state=round_.job.state,
        target=tuple(message for group in round_.work for message in group),
        kept=tuple(round_.kept),
        store_items=round_.job.store_items,
        budget_tokens=most,
        estimate=parts.estimate,
        redact=parts.redact,
        passes=parts.passes,
    )
    return render_recovered(recovered_sections(context, parts.reinjectors, parts.config.reinject, most))


def write_draft(round_: Round, summary: str | None, recovered: str, archive_id: str | None) -> Flow[Draft]:
    """The best draft within the budget, by the counter in force; the smallest one when none fits.

    The texts are written with the quick estimate, whose idea of a token may differ from the counter's, so the budget given to them is
    corrected by what the result really weighs.
    """
    source = _source(round_)
    ranking = gather_facts(**source, scan=min(round_.budget * SCAN_PER_TOKEN, SCAN_ALL))
    bare = Texts("-", "", (), (), Audit())
    empty = yield Count(_messages(round_, bare, recovered, archive_id))
    room = max(round_.budget - empty, 1)
    allowed, best = room, None
    for _ in range(FIT_TRIES):
        texts = _write(round_, source, ranking, summary, recovered, allowed)
        new = _messages(round_, texts, recovered, archive_id)
        draft = Draft(new=tuple(new), tokens=(yield Count(new)), audit=texts.audit, texts=texts, archive_id=archive_id, recovered=recovered)
        best = draft if best is None or _better(draft, best, round_.budget) else best
        used = max(draft.tokens - empty, 1)
        if draft.tokens <= round_.budget and (not texts.dropped or used >= room * 0.97):
            break
        allowed = max(int(allowed * min(room / used, 2.0) * (1.0 if used < room else 0.98)), 1)
    assert best is not None
    return best


def _better(draft: Draft, best: Draft, budget: int) -> bool:
    """Within the budget the fuller one wins, over it the smaller one."""
    if (draft.tokens <= budget) != (best.tokens <= budget):
        return draft.tokens <= budget
    return draft.tokens > best.tokens if draft.tokens <= budget else draft.tokens < best.tokens


def _source(round_: Round) -> dict[str, Any]:
    """What facts are taken from."""
    earlier = round_.earlier
    return {
        "messages": [message for group in round_.work for message in group],
        "request": round_.request_text,
        "earlier_facts": facts_from_data(earlier.data.ledger) if earlier else (),
        "later": "\n".join(text_of(message)[:_LATER_CHARS] for message in round_.kept),
        "redact": round_.parts.redact,
    }


def _write(round_: Round, source: Mapping[str, Any], ranking: Ranking, summary: str | None, recovered: str, allowed: int) -> Texts:
    config, estimate = round_.parts.config, round_.parts.estimate
    if summary is not None:
        summary = cut(summary, config.summary_max_tokens or _summary_room(ranking, summary, allowed, estimate), estimate)
    return checkpoint_texts(
        **source,
        summary=summary,
        state_text=said_in(recovered),
        budget_tokens=allowed,
        ledger_max_tokens=config.ledger_max_tokens,
        summary_max_tokens=config.summary_max_tokens,
        estimate=estimate,
        gathered=ranking,
    )


def _summary_room(ranking: Ranking, summary: str, allowed: int, estimate: Callable[[str], int]) -> int:
    """Tokens for a model's summary: its share, less where the room is small and the facts that come first would not fit beside it."""
    first = [fact.text for fact in ranking.facts[:FIRST_FACTS] if fact.kind in ("intent", "user") and fact.text not in summary]
    needed = estimate("\n".join(first)) + LABEL_TOKENS if first else 0
    return min(int(allowed * SUMMARY_SHARE), max(allowed - needed, allowed // 2))


def _messages(round_: Round, texts: Texts, recovered: str, archive_id: str | None) -> list[BaseMessage]:
    """Checkpoint and recovered context under the ids of what they replace; no id is ever new."""
    ids = round_.free_ids
    role = round_.parts.config.checkpoint_role if len(ids) > 1 else "user"
    # With one id, or a pair that uses both, the recovered context has no message of its own.
    inside = recovered if len(ids) < 2 or role == "tool" else ""
    data = _data(round_, texts, archive_id)
    text = frame(texts.summary, texts.ledger, data.archive_ids, inside, earlier_archives=data.earlier_archives)
    new = checkpoint_messages(text, data, role=role, ids=ids)
    return [*new, recovered_message(recovered, ids[1])] if recovered and not inside else new


def _data(round_: Round, texts: Texts, archive_id: str | None) -> BlockData:
    messages, target = round_.job.messages, round_.cut.target
    gone = set(target)
    behind = [message for i, message in enumerate(messages) if i > target[0] and i not in gone]
    # What an earlier block says it replaced, but is there, it did not replace: a forged list must not take away the user's request.
    stays = {message.id for i, message in enumerate(messages) if i not in gone}
    earlier = round_.earlier.data if round_.earlier else BlockData()
    old = [key for key in earlier.replaced_ids if key not in stays]
    pointers = tuple(dict.fromkeys((*earlier.archive_ids, *((archive_id,) if archive_id else ()))))
    # The new entry holds the earlier checkpoint with its pointers; without one nothing else does.
    spare = max(len(pointers) - POINTERS_KEPT, 0) if archive_id else 0
    return BlockData(
        replaced_ids=tuple(dict.fromkeys((*old, *(message.id for message in round_.replaced if message.id)))),
        last_kept_id=behind[-1].id if behind else None,
        kept_messages=len(behind),
        archive_ids=pointers[spare:],
        earlier_archives=earlier.earlier_archives + spare,
        ledger=facts_to_data(texts.kept),
    )
