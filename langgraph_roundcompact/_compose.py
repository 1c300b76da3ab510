"""The two texts of a checkpoint, summary and ledger, within one budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from langchain_core.messages import BaseMessage

from langgraph_roundcompact._audit import audit
from langgraph_roundcompact._digest import DIGEST_KINDS, DigestFrame, digest_text, fit_digest
from langgraph_roundcompact._extract import SCAN_ALL, extract_facts
from langgraph_roundcompact._facts import Fact, merge_facts
from langgraph_roundcompact._ledger import Ledger, fit_ledger, ledger_text
from langgraph_roundcompact._rank import Ranking, choose, rank
from langgraph_roundcompact.events import Audit

_RESERVE_PER_TOKEN, _MOST_RESERVE = 12, 48_000
"""Characters of data, for each token of the budget and at most, of carried facts that no text shows: a small window needs no large one."""
_FACT_DATA_CHARACTERS = 20
"""Characters that a fact takes as data beside its text, about."""


@dataclass(frozen=True, slots=True)
class Texts:
    """What goes into the checkpoint, and what is carried on as data."""

    summary: str
    ledger: str
    kept: tuple[Fact, ...]
    """Facts to carry: all that the texts show, and a reserve of the next most useful ones, so that what new work names again is known. As data
    the reserve takes at most twelve characters a token of the budget, and at most 48,000."""
    dropped: tuple[Fact, ...]
    """Facts that no text shows, least useful first."""
    audit: Audit


def gather_facts(
    messages: Sequence[BaseMessage],
    *,
    request: str,
    earlier_facts: Sequence[Fact] = (),
    later: str = "",
    redact: Callable[[str], str] = str,
    scan: int = SCAN_ALL,
) -> Ranking:
    """All facts for a checkpoint, ranked. The costly half of `checkpoint_texts`: it does not depend on the budget.

    Args:
        messages: The work to be replaced.
        request: The user's request.
        earlier_facts: Facts that the earlier checkpoint of this round carried.
        later: Text of the work that stays.
        redact: Runs over each text before anything is taken from it.
        scan: Characters of the work that are looked at, about.
    """
    return rank(merge_facts(earlier_facts, extract_facts(messages, request=request, later=later, redact=redact, scan=scan)))


def checkpoint_texts(
    messages: Sequence[BaseMessage],
    *,
    request: str,
    earlier_facts: Sequence[Fact] = (),
    summary: str | None = None,
    state_text: str = "",
    later: str = "",
    budget_tokens: int,
    ledger_max_tokens: int | None = None,
    summary_max_tokens: int | None = None,
    estimate: Callable[[str], int],
    redact: Callable[[str], str] = str,
    gathered: Ranking | None = None,
) -> Texts:
    """Summary and ledger of a checkpoint.

    Args:
        messages: The work to be replaced.
        request: The user's request.
        earlier_facts: Facts that the earlier checkpoint of this round carried.
        summary: The model's summary; `None`: the digest is written.
        state_text: What stands beside the checkpoint: plan, todo, files from the graph's state. What it says is not said twice.
        later: Text of the work that stays.
        budget_tokens: The most both texts may take together. A summary that is larger by itself stays whole, without a ledger.
        ledger_max_tokens: The most the ledger may take; `None`: what the summary leaves.
        summary_max_tokens: The most the digest may take; `None`: no limit of its own.
        estimate: Tokens of a text.
        redact: Runs over each text before anything is taken from it.
        gathered: What `gather_facts` gave for the same work, so that several budgets can be tried at the cost of one.
    """
    ranking = gathered or gather_facts(messages, request=request, earlier_facts=earlier_facts, later=later, redact=redact)
    if summary is None:
        frame = DigestFrame.of(request, state_text, budget_tokens, redact)
        text = _digest_beside_ledger(ranking, frame, budget_tokens, summary_max_tokens, ledger_max_tokens, estimate)
    else:
        text = summary
    room = max(budget_tokens - estimate(text + "\n"), 0)
    most = room if ledger_max_tokens is None else min(room, ledger_max_tokens)
    present = f"{text}\n{redact(state_text)}" if state_text else text
    ledger = fit_ledger(ranking, budget_tokens=most, estimate=estimate, present=present)
    return Texts(text, ledger.text, _to_carry(ranking, ledger, budget_tokens), ledger.dropped, audit(ranking.facts, present, ledger))


def _digest_beside_ledger(
    ranking: Ranking, frame: DigestFrame, budget_tokens: int, summary_max: int | None, ledger_max: int | None, estimate: Callable[[str], int]
) -> str:
    """The digest, as large as it gets when the same order of use fills digest and ledger together."""
    if summary_max is None and ledger_max is None:
        facts = [fact for fact in frame.unsaid(ranking.facts) if fact not in ranking.covered]
        shown = [fact for fact in choose(facts, lambda some: _both(some, frame), budget_tokens, estimate) if fact.kind in DIGEST_KINDS]
        text = digest_text(shown, frame)
        return text if estimate(text) <= budget_tokens else ""
    most = budget_tokens if summary_max is None else min(budget_tokens, summary_max)
    if summary_max is None and ledger_max is not None:
        most = max(budget_tokens - ledger_max, budget_tokens // 2)
    return fit_digest(ranking, frame, budget_tokens=most, estimate=estimate)[0]


def _both(facts: Sequence[Fact], frame: DigestFrame) -> str:
    return (
        digest_text([fact for fact in facts if fact.kind in DIGEST_KINDS], frame)
        + "\n"
        + ledger_text(fact for fact in facts if fact.kind not in DIGEST_KINDS)
    )


def _to_carry(ranking: Ranking, ledger: Ledger, budget_tokens: int) -> tuple[Fact, ...]:
    """Facts that the texts show, and the reserve."""
    dropped = set(ledger.dropped)
    room = min(budget_tokens * _RESERVE_PER_TOKEN, _MOST_RESERVE)
    carried: list[Fact] = []
    for fact in ranking.facts:
        if fact in dropped:
            room -= _size(fact)
            if room < 0:
                continue
        carried.append(fact)
    return tuple(carried)


def _size(fact: Fact) -> int:
    return len(fact.text) + _FACT_DATA_CHARACTERS
