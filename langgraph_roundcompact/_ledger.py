"""The ledger: exact facts beside the summary, grouped by kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from langgraph_roundcompact._extract import extract_facts
from langgraph_roundcompact._facts import TERM_KINDS, Fact, facts_from_data, facts_to_data, merge_facts
from langgraph_roundcompact._rank import fit, rank

__all__ = ["Fact", "Ledger", "extract_facts", "facts_from_data", "facts_to_data", "ledger_text", "merge_facts", "rank", "render_ledger"]

_LABELS = {
    "user": "Answers in tool results",
    "todo": "Todo",
    "intent": "Last stated step",
    "said": "Notes",
    "file": "Files",
    "command": "Calls",
    "error": "Errors",
    "result": "Results",
    "url": "URLs",
    "path": "Paths",
    "place": "Places",
    "id": "Ids",
    "date": "Dates",
    "number": "Numbers",
    "name": "Names",
}


@dataclass(frozen=True, slots=True)
class Ledger:
    """The ledger's text and what it holds."""

    text: str
    kept: tuple[Fact, ...]
    """Facts the text holds, most useful first."""
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
    ranked = [fact for fact in rank(facts) if fact.text not in present] if present else list(rank(facts))
    count = fit(len(ranked), lambda k: ledger_text(ranked[:k]), budget_tokens, estimate)
    return Ledger(ledger_text(ranked[:count]), tuple(ranked[:count]), tuple(reversed(ranked[count:])))


def ledger_text(facts: Iterable[Fact]) -> str:
    """Facts as text, grouped by kind; terms of a kind share a line."""
    groups: dict[str, list[Fact]] = {}
    for fact in facts:
        groups.setdefault(fact.kind, []).append(fact)
    lines = []
    for kind, label in _LABELS.items():
        group = sorted(groups.get(kind, ()), key=lambda fact: fact.order)
        if not group:
            continue
        if kind in TERM_KINDS or kind == "file":
            lines.append(f"{label}: {' '.join(fact.text for fact in group)}")
        else:
            lines.append(f"{label}:")
            lines += [line_text(fact) for fact in group]
    return "\n".join(lines)


def line_text(fact: Fact) -> str:
    """A fact as its line: a command with its exit status where that tells something."""
    return f"{fact.text} →{fact.note}" if fact.kind == "command" and fact.note not in ("", "0") else fact.text
