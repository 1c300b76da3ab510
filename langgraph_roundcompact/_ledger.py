"""The ledger: exact facts beside the summary, grouped by kind, most useful first for as long as the budget lasts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from langgraph_roundcompact._extract import extract_facts
from langgraph_roundcompact._facts import TERM_KINDS, Fact, facts_from_data, facts_to_data, merge_facts
from langgraph_roundcompact._rank import Ranking, choose, rank
from langgraph_roundcompact._work_log import file_state, under_labels, work_log

__all__ = [
    "Fact",
    "Ledger",
    "extract_facts",
    "facts_from_data",
    "facts_to_data",
    "file_state",
    "fit_ledger",
    "group_text",
    "ledger_text",
    "merge_facts",
    "render_ledger",
]

_LABELS = {
    "user": "Answered in tool results",
    "intent": "Last stated step",
    "todo": "Todo",
    "files": "Files",
    "calls": "Calls in order (→ how one ended, where not well)",
    "errors": "Errors",
    "fixed": "Errors fixed since",
    "said": "Said by the assistant",
    "rest": "Result lines",
    "url": "URLs",
    "path": "Paths",
    "place": "Places",
    "id": "Ids",
    "date": "Dates",
    "number": "Numbers",
    "name": "Names",
}
_BREAK = "\n"
_LOGGED = frozenset({"file", "command", "error", "result"})


@dataclass(frozen=True, slots=True)
class Ledger:
    """The ledger's text and what it holds."""

    text: str
    kept: tuple[Fact, ...]
    """Facts that the text holds verbatim, most useful first."""
    dropped: tuple[Fact, ...]
    """Facts that did not fit, least useful first."""


def render_ledger(facts: Sequence[Fact], *, budget_tokens: int, estimate: Callable[[str], int], present: str = "") -> Ledger:
    """The most useful facts that fit, grouped by kind.

    Args:
        facts: All facts, in any order.
        budget_tokens: The most the text may take, measured by `estimate`.
        estimate: Tokens of a text.
        present: Text that stands beside the ledger (the summary); what it holds verbatim is not repeated and is neither kept nor dropped.
    """
    return fit_ledger(rank(facts), budget_tokens=budget_tokens, estimate=estimate, present=present)


def fit_ledger(ranking: Ranking, *, budget_tokens: int, estimate: Callable[[str], int], present: str = "") -> Ledger:
    """Same as `render_ledger`, for facts that are ranked already."""
    absent = [fact for fact in ranking.facts if fact.text not in present] if present else list(ranking.facts)
    shown = choose([fact for fact in absent if fact not in ranking.covered], ledger_text, budget_tokens, estimate)
    text = ledger_text(shown)
    held = set(shown)
    # A covered term is kept only if the line that covers it is in the text.
    held.update(fact for fact in absent if fact in ranking.covered and fact.text in text)
    return Ledger(text, tuple(fact for fact in absent if fact in held), tuple(fact for fact in reversed(absent) if fact not in held))


def ledger_text(facts: Iterable[Fact]) -> str:
    """Facts as text, one group a kind; short strings of a kind share a line, lines of results stand under their call."""
    facts = tuple(facts)
    groups: dict[str, list[Fact]] = {}
    for fact in facts:
        groups.setdefault(fact.kind, []).append(fact)
    bodies = {kind: group_text(kind, group) for kind, group in groups.items() if kind not in _LOGGED}
    if not _LOGGED.isdisjoint(groups):
        log = work_log(facts)
        bodies |= {"files": log.files, "calls": log.calls, "errors": log.errors, "fixed": log.fixed, "rest": log.rest}
    return "\n".join(f"{label}:{' ' if part in TERM_KINDS else _BREAK}{bodies[part]}" for part, label in _LABELS.items() if bodies.get(part))


def group_text(kind: str, facts: Sequence[Fact]) -> str:
    """Facts of one kind in the order of the work."""
    facts = sorted(facts, key=lambda fact: (fact.order, fact.text))
    if kind in TERM_KINDS:
        return (" " if kind != "date" else "; ").join(fact.text for fact in facts)
    if kind == "user":
        return under_labels(facts)
    return "\n".join(f"[{fact.note}] {fact.text}" if kind == "todo" and fact.note else fact.text for fact in facts)
