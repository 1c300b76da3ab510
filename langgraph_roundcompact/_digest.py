"""The snapshot that rules write when no model does: the eleven sections, filled from what is known for certain.

It is written for resuming, not for reading: the assistant's own sentences, the calls it made, what is open, what failed. Nothing in it is
reworded, so nothing in it can be invented.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from langchain_core.messages import BaseMessage

from langgraph_roundcompact._extract import extract_facts
from langgraph_roundcompact._facts import Fact, merge_facts
from langgraph_roundcompact._ledger import group_text
from langgraph_roundcompact._rank import Ranking, choose, rank

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
DIGEST_KINDS = frozenset({"user", "command", "todo", "intent", "said", "file", "error", "result", "path"})
"""Kinds of facts that have a section; the others are for the ledger."""

_SECTION_OF = {"user": 2, "command": 3, "todo": 6, "intent": 5, "said": 7, "file": 8, "error": 9, "result": 10, "path": 11}
_LEADS = {2: "Answered in tool results, quoted:", 3: "Calls (→ exit status):"}
_EMPTY = {
    1: "The user's request stands above, verbatim.",
    2: "None stated in tool results; the request above holds.",
    3: "No finished calls to list.",
    4: "See the resume point.",
    5: "Continue the request from its last result.",
    6: "No todo list was kept.",
    7: "None stated by the assistant.",
    8: "No file was named by a call.",
    9: "No error line was seen.",
    10: "(none)",
    11: "(none)",
}
_OPEN_ITEM = re.compile(r"pending|in[_ -]progress|in[_ -]review|todo|blocked|\[ \]|\bopen\b", re.IGNORECASE)
_IN_PROGRESS = re.compile(r"progress|doing|active|current", re.IGNORECASE)
_REQUEST_CHARACTERS = 100
_STATE_LINES = 12
_ALL_HEADINGS_FROM = 3000
"""Tokens of budget from which empty sections keep their headings."""


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
    """A snapshot in the eleven sections, most useful lines first, within a budget.

    Args:
        messages: The work to be replaced; read for facts where none are given.
        request: The user's request. It stands verbatim elsewhere, so only its head is shown.
        facts: Facts of the work.
        state_text: Plan and todo from the graph's state; open items are listed as pending.
        earlier: Narrative of the earlier checkpoint; it is used where that carried no facts.
        budget_tokens: The most the text may take, measured by `estimate`; `""` if not even one line fits.
        estimate: Tokens of a text.
        redact: Runs over each text before anything is taken from it.
    """
    known = facts or extract_facts(messages, request=request, redact=redact)
    if earlier and not facts:
        known = merge_facts(narrative_facts(redact(earlier)), known)
    frame = DigestFrame.of(request, state_text, budget_tokens, redact)
    return fit_digest(rank(known), frame, budget_tokens=budget_tokens, estimate=estimate)[0]


def narrative_facts(text: str) -> list[Fact]:
    """The lines of an earlier narrative as sentences of the assistant."""
    lines = [line.strip()[:300] for line in text[:40_000].splitlines()]
    return [Fact("said", line, i, 0, 1, 4) for i, line in enumerate(dict.fromkeys(lines)) if len(line) > 3 and not line.startswith("#")]


@dataclass(frozen=True, slots=True)
class DigestFrame:
    """What a digest says beside facts."""

    request: str
    """Head of the request, one line."""
    state: tuple[str, ...]
    """Open items of the graph's state."""
    headings: bool
    """Whether empty sections keep their headings."""

    @classmethod
    def of(cls, request: str, state_text: str, budget_tokens: int, redact: Callable[[str], str]) -> DigestFrame:
        """The frame for a request and a state text, by the room there is."""
        line = " ".join(redact(request[:4000]).split())
        head = line if len(line) <= _REQUEST_CHARACTERS else line[:_REQUEST_CHARACTERS].rstrip() + "…"
        return cls(head, tuple(open_items(redact(state_text))), budget_tokens >= _ALL_HEADINGS_FROM)


def open_items(state_text: str) -> list[str]:
    """Lines of a plan or todo text that are not finished."""
    lines = [line.strip() for line in state_text[:20_000].splitlines()]
    return [line[:200] for line in lines if _OPEN_ITEM.search(line[:200])][:_STATE_LINES]


def fit_digest(ranking: Ranking, frame: DigestFrame, *, budget_tokens: int, estimate: Callable[[str], int]) -> tuple[str, list[Fact]]:
    """The digest's text and the facts it shows."""
    facts = [fact for fact in ranking.facts if fact.kind in DIGEST_KINDS and fact not in ranking.covered]
    shown = choose(facts, lambda some: digest_text(some, frame), budget_tokens, estimate)
    text = digest_text(shown, frame)
    return (text, shown) if estimate(text) <= budget_tokens else ("", [])


def digest_text(facts: Sequence[Fact], frame: DigestFrame) -> str:
    """The sections for chosen facts."""
    kinds: dict[str, list[Fact]] = {}
    for fact in facts:
        kinds.setdefault(fact.kind, []).append(fact)
    body = {number: group_text(kind, kinds[kind]) for kind, number in _SECTION_OF.items() if kind in kinds}
    if frame.request:
        body[1] = frame.request
    working = [fact.text for fact in kinds.get("todo", ()) if _IN_PROGRESS.search(fact.note)]
    if working:
        body[4] = "In progress: " + "; ".join(working[:3])
    if frame.state:
        body[6] = "\n".join([*frame.state, *([body[6]] if 6 in body else [])])
    return "\n".join(
        _section(number, name, body, headings=frame.headings) for number, name in enumerate(SECTIONS, 1) if number in body or frame.headings
    )


def _section(number: int, name: str, body: dict[int, str], *, headings: bool) -> str:
    # Who said it is never left to guess; what the arrow means is, when room is short.
    lead = f"{_LEADS[number]}\n" if number in _LEADS and number in body and (headings or number == 2) else ""
    return f"### {number}. {name}\n{lead}{body.get(number, _EMPTY[number])}"
