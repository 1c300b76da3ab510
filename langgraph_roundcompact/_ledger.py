"""The ledger: exact facts beside the summary, grouped by kind, most useful first for as long as the budget lasts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from langgraph_roundcompact._extract import extract_facts
from langgraph_roundcompact._facts import TERM_KINDS, Fact, facts_from_data, facts_to_data, merge_facts
from langgraph_roundcompact._rank import Ranking, choose, rank

__all__ = [
    "Fact",
    "Ledger",
    "extract_facts",
    "facts_from_data",
    "facts_to_data",
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
    "file": "Files",
    "command": "Calls (→ exit status)",
    "error": "Errors",
    "said": "Said by the assistant",
    "result": "Result lines",
    "url": "URLs",
    "path": "Paths",
    "place": "Places",
    "id": "Ids",
    "date": "Dates",
    "number": "Numbers",
    "name": "Names",
}
_FILE_STATES = ("deleted", "changed after last read", "changed", "changed, then read", "read")


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
    """Facts as text, one group a kind; short strings of a kind share a line."""
    groups: dict[str, list[Fact]] = {}
    for fact in facts:
        groups.setdefault(fact.kind, []).append(fact)
    parts = []
    for kind, label in _LABELS.items():
        if kind in groups:
            body = group_text(kind, groups[kind])
            parts.append(f"{label}: {body}" if kind in TERM_KINDS else f"{label}:\n{body}")
    return "\n".join(parts)


def group_text(kind: str, facts: Sequence[Fact]) -> str:
    """Facts of one kind in the order of the work."""
    facts = sorted(facts, key=lambda fact: (fact.order, fact.text))
    if kind in TERM_KINDS:
        return (" " if kind != "date" else "; ").join(fact.text for fact in facts)
    if kind == "file":
        return "\n".join(_files(facts))
    return "\n".join(_line(fact) for fact in facts)


def _line(fact: Fact) -> str:
    if fact.kind == "command" and fact.note:
        return f"{fact.text} → {fact.note}"
    if fact.kind == "todo" and fact.note:
        return f"[{fact.note}] {fact.text}"
    return fact.text


def _files(facts: Sequence[Fact]) -> Iterable[str]:
    """Files by what became of them, one line a state."""
    states: dict[str, list[str]] = {}
    for fact in facts:
        states.setdefault(file_state(fact.note), []).append(fact.text)
    return [f"{state}: {' '.join(states[state])}" for state in _FILE_STATES if state in states]


def file_state(operations: str) -> str:
    """What became of a file, from its operations in order (`r`, `w`, `e`, `d`)."""
    if operations.endswith("d"):
        return "deleted"
    changed = max(operations.rfind("w"), operations.rfind("e"))
    read = operations.rfind("r")
    if changed < 0:
        return "read"
    if read > changed:
        return "changed, then read"
    return "changed after last read" if read >= 0 else "changed"
