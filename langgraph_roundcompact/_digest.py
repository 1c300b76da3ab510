"""The snapshot that rules write when no model does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from langchain_core.messages import BaseMessage

from langgraph_roundcompact._facts import Fact
from langgraph_roundcompact._rank import fit, rank

SECTIONS = (
    "Active Task",
    "Constraints and Preferences",
    "Completed Work in This Active Segment",
    "Current Work and Active State",
    "Immediate Resume Point",
    "Pending Tasks and Next Useful Step",
    "Key Facts, Decisions, Evidence, Fixes",
    "Files, Code Areas, Artifacts",
    "Blockers, Risks, Verification",
    "Critical Context",
    "Relevant Files Structure",
)
NARRATIVE = frozenset({"user", "todo", "intent", "said", "file", "command", "error"})
_SECTION_OF = {"user": 2, "command": 3, "intent": 5, "todo": 6, "said": 7, "file": 8, "error": 9}


def digest(
    messages: Sequence[BaseMessage],
    *,
    request: str,
    facts: Sequence[Fact],
    state_text: str = "",
    earlier: str = "",
    budget_tokens: int,
    estimate: Callable[[str], int],
    redact: Callable[[str], str] = str,
) -> str:
    """A snapshot in the eleven sections, most useful lines first, within a budget."""
    ranked = [fact for fact in rank(facts) if fact.kind in NARRATIVE]
    head = redact(" ".join(request.split()))[:160]
    count = fit(len(ranked), lambda k: write(head, ranked[:k], state_text), budget_tokens, estimate)
    return write(head, ranked[:count], state_text)


def write(head: str, facts: Sequence[Fact], state_text: str) -> str:
    """The snapshot's text for chosen facts."""
    body: dict[int, list[str]] = {1: [head] if head else []}
    for fact in sorted(facts, key=lambda fact: fact.order):
        if fact.kind in _SECTION_OF:
            body.setdefault(_SECTION_OF[fact.kind], []).append(fact.text)
    return "\n".join(f"### {number}. {name}\n" + "\n".join(body[number]) for number, name in enumerate(SECTIONS, 1) if body.get(number))
