"""The two texts of a checkpoint, summary and ledger, within one budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from langchain_core.messages import BaseMessage

from langgraph_roundcompact._audit import audit
from langgraph_roundcompact._digest import NARRATIVE, write
from langgraph_roundcompact._facts import Fact, merge_facts
from langgraph_roundcompact._ledger import extract_facts, ledger_text, render_ledger
from langgraph_roundcompact._rank import fit, rank
from langgraph_roundcompact.events import Audit


@dataclass(frozen=True, slots=True)
class Texts:
    """What goes into the checkpoint, and what is carried on as data."""

    summary: str
    ledger: str
    kept: tuple[Fact, ...]
    """Facts to carry: all that the texts show. Never more than fits the budget."""
    dropped: tuple[Fact, ...]
    """Facts that did not fit, least useful first."""
    audit: Audit


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
) -> Texts:
    """Summary and ledger of a checkpoint.

    Args:
        messages: The work to be replaced.
        request: The user's request.
        earlier_facts: Facts that the earlier checkpoint of this round carried.
        summary: The model's summary; `None`: the digest is written.
        state_text: Plan and todo from the graph's state.
        later: Text of the work that stays.
        budget_tokens: The most both texts may take together.
        ledger_max_tokens: The most the ledger may take; `None`: what the summary leaves.
        summary_max_tokens: The most the digest may take; `None`: no limit of its own.
        estimate: Tokens of a text.
        redact: Runs over each text before anything is taken from it.
    """
    facts = merge_facts(earlier_facts, extract_facts(messages, request=request, later=later, redact=redact))
    ranked = rank(facts)
    if summary is None:
        head = redact(" ".join(request.split()))[:160]
        count = fit(len(ranked), lambda k: _both(head, ranked[:k], state_text), budget_tokens, estimate)
        chosen = [fact for fact in ranked[:count] if fact.kind in NARRATIVE]
        cap = min(budget_tokens, summary_max_tokens or budget_tokens)
        shown = fit(len(chosen), lambda k: write(head, chosen[:k], state_text), cap, estimate)
        text = write(head, chosen[:shown], state_text)
    else:
        text = summary
    room = max(budget_tokens - estimate(text), 0)
    ledger = render_ledger(facts, budget_tokens=min(room, ledger_max_tokens or room), estimate=estimate, present=text)
    shown = set(ledger.kept)
    shown |= {fact for fact in ranked if fact.text in text}
    kept = [fact for fact in ranked if fact in shown]
    import os
    room2 = max(sum(len(f.text) + 12 for f in kept), int(os.environ.get("RES", "8000")))
    for fact in ranked:
        if fact not in shown:
            room2 -= len(fact.text) + 12
            if room2 < 0: break
            kept.append(fact)
    kept = tuple(kept)
    return Texts(text, ledger.text, kept, ledger.dropped, audit(facts, text, ledger))


def _both(head: str, facts: Sequence[Fact], state_text: str) -> str:
    rest = [fact for fact in facts if fact.kind not in NARRATIVE]
    return write(head, facts, state_text) + "\n" + ledger_text(rest)
