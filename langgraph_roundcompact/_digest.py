"""The snapshot that rules write when no model does: the eleven sections, filled from what is known for certain.

It holds what is needed to go on with the work: the assistant's own sentences, the calls it made, what is open, what failed. Nothing in it is
reworded, so nothing in it can be invented.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from langchain_core.messages import BaseMessage

from langgraph_roundcompact._extract import extract_facts
from langgraph_roundcompact._facts import Fact, merge_facts
from langgraph_roundcompact._ledger import group_text
from langgraph_roundcompact._rank import Ranking, choose, rank
from langgraph_roundcompact._work_log import work_log

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

_ANSWERED = "Answered in tool results, quoted:"
"""Who said it is never left to guess."""
_CALLS = "In order; → where one did not end well:"
_IN_STATE = "As listed in the recovered context below."
_NONE = "(none)"
_LEFT_OUT = "Nothing to say in sections"
_OPEN_ITEM = re.compile(r"pending|in[_ -]progress|in[_ -]review|todo|blocked|\[ \]|\bopen\b", re.IGNORECASE)
_IN_PROGRESS = re.compile(r"progress|doing|active|current", re.IGNORECASE)
_REQUEST_CHARACTERS = 100
_ABOVE = "The request above."
_NO_REPEAT_BELOW = 800
"""Tokens of budget below which nothing is said twice, not even the head of the request that stands right above, nor which sections are empty."""
_ALL_HEADINGS_FROM = 3000
"""Tokens of budget from which empty sections keep their headings; below, one line names them, so that a gap is no question."""


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
        state_text: Plan, todo, files from the graph's state, as they stand beside the digest; what they say is not said twice.
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
    state: str
    """Text of the graph's state, which stands beside the digest."""
    budget_tokens: int
    """The most the text may take, which says how much may be spent on headings."""

    @property
    def headings(self) -> bool:
        """Whether empty sections keep their headings."""
        return self.budget_tokens >= _ALL_HEADINGS_FROM

    @property
    def names_gaps(self) -> bool:
        """Whether one line names the empty sections."""
        return _NO_REPEAT_BELOW <= self.budget_tokens < _ALL_HEADINGS_FROM

    @classmethod
    def of(cls, request: str, state_text: str, budget_tokens: int, redact: Callable[[str], str]) -> DigestFrame:
        """The frame for a request and a state text, by the room there is."""
        line = " ".join(redact(request[:4000]).split())
        head = line if len(line) <= _REQUEST_CHARACTERS else line[:_REQUEST_CHARACTERS].rstrip() + "…"
        if budget_tokens < _NO_REPEAT_BELOW and line:
            head = _ABOVE
        return cls(head, redact(state_text), budget_tokens)

    @property
    def has_open_items(self) -> bool:
        """Whether the state lists something that is not finished."""
        return _OPEN_ITEM.search(self.state[:20_000]) is not None

    def unsaid(self, facts: Iterable[Fact]) -> list[Fact]:
        """Facts that the text of the graph's state does not hold already."""
        return [fact for fact in facts if fact.text not in self.state] if self.state else list(facts)


def fit_digest(ranking: Ranking, frame: DigestFrame, *, budget_tokens: int, estimate: Callable[[str], int]) -> tuple[str, list[Fact]]:
    """The digest's text and the facts it shows."""
    facts = [fact for fact in frame.unsaid(ranking.facts) if fact.kind in DIGEST_KINDS and fact not in ranking.covered]
    shown = choose(facts, lambda some: digest_text(some, frame), budget_tokens, estimate)
    text = digest_text(shown, frame)
    return (text, shown) if estimate(text) <= budget_tokens else ("", [])


def digest_text(facts: Sequence[Fact], frame: DigestFrame) -> str:
    """The sections for chosen facts."""
    body = _bodies(facts, frame)
    sections = [f"### {number}. {name}\n{body.get(number, _NONE)}" for number, name in enumerate(SECTIONS, 1) if number in body or frame.headings]
    left_out = [str(number) for number in range(1, len(SECTIONS) + 1) if number not in body]
    return "\n".join([*sections, f"{_LEFT_OUT} {', '.join(left_out)}."] if left_out and frame.names_gaps else sections)


def _bodies(facts: Sequence[Fact], frame: DigestFrame) -> dict[int, str]:
    kinds: dict[str, list[Fact]] = {}
    for fact in facts:
        kinds.setdefault(fact.kind, []).append(fact)
    said = {kind: group_text(kind, kinds.get(kind, ())) for kind in ("user", "todo", "intent", "path")}
    # What was said last is the resume point; it need not be said twice.
    statements = group_text("said", [fact for fact in kinds.get("said", ()) if fact.text not in said["intent"]])
    log = work_log(facts)
    working = [fact for fact in kinds.get("todo", ()) if _IN_PROGRESS.search(fact.note)]
    said["todo"] = group_text("todo", [fact for fact in kinds.get("todo", ()) if fact not in working])
    body = {
        1: frame.request,
        2: _led(_ANSWERED, said["user"]),
        3: _led(_CALLS, log.calls) if frame.headings else log.calls,
        4: group_text("todo", working),
        5: said["intent"],
        6: _joined(said["todo"], _IN_STATE if frame.has_open_items else ""),
        7: _joined(statements, _led("Fixed since:", log.fixed)),
        8: log.files,
        9: log.errors,
        10: log.rest,
        11: said["path"],
    }
    return {number: text for number, text in body.items() if text}


def _led(lead: str, text: str) -> str:
    return f"{lead}\n{text}" if text else ""


def _joined(*texts: str) -> str:
    return "\n".join(filter(None, texts))
