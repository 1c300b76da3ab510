"""The summary request, in two forms.

*Transcript*: one user message with the fixed instructions first and the rendered work after them; a model without system messages understands
it, and nothing of the original messages (response ids, signatures, images) travels along. *Affinity*: the agent's own live request plus one
instruction message, so that the provider's prefix cache serves all but the end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langgraph_roundcompact._content import text_of
from langgraph_roundcompact._groups import declared_calls
from langgraph_roundcompact._prompt import (
    AFFINITY_BORDER,
    AFFINITY_INSTRUCTIONS,
    CLOSING,
    INSTRUCTIONS,
    NO_REQUEST,
    PROMPT_VERSION,
    REASK,
    REASK_ENDING,
)
from langgraph_roundcompact._render import escaped, render_text, render_transcript
from langgraph_roundcompact._shorten import head_and_tail

__all__ = ["PROMPT_VERSION", "Exchange", "SummaryRequest", "SummarySource", "affinity_request", "reask_request", "transcript_request"]

Redact = Callable[[str], str]
Estimate = Callable[[str], int]

_LONGEST_REQUEST = 16_000
"""Characters of the user's request that are shown; it stands verbatim in the conversation anyway."""
_LONGEST_FOCUS = 4_000
_LONGEST_NAME = 100
_WORDS_PER_TOKEN = 0.75
_OVERHEAD_TOKENS = 8
"""What a message costs beside its text."""
# Shares of a limit that the parts beside the transcript may take before they are shortened too.
_REQUEST_SHARE, _EARLIER_SHARE, _FACTS_SHARE = 0.2, 0.3, 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class SummarySource:
    """What is to be summarised, and what the summariser has to know about it."""

    request: BaseMessage | None
    """The user's request, which stays verbatim elsewhere; `None`: no user in this history."""
    earlier: str | None
    """Narrative of this round's earlier checkpoint."""
    earlier_facts: str = ""
    """Text of its ledger, for reference only: its facts are carried over as data."""
    groups: Sequence[Sequence[BaseMessage]]
    """What is to be replaced, in order, own blocks already taken out."""
    focus: str | None = None
    """What the user wants kept above all; a priority, not a task."""
    summary_tokens: int | None = None
    """Budget of the summary in tokens, stated in words; `None`: not stated."""
    redact: Redact
    """Applied to everything that is sent, before anything is shortened. May raise to veto."""

    def characters(self, groups: int) -> int:
        """Characters of text in that many leading groups: what a summary of them is to stand for."""
        return sum(len(text_of(message)) for group in self.groups[:groups] for message in group)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRequest:
    """What is sent to the summariser."""

    messages: tuple[BaseMessage, ...]
    groups_covered: int
    """Leading groups that the request contains; only these may be replaced by its answer."""
    tokens: int
    """Estimated tokens; 0 where nobody estimated."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request that was answered."""

    kind: Literal["ok", "rejected"]
    request: SummaryRequest
    reply: object


def transcript_request(source: SummarySource, *, limit_tokens: int | None, estimate: Estimate) -> SummaryRequest | None:
    """The work as a transcript behind the fixed instructions.

    Args:
        source: What is to be summarised.
        limit_tokens: Tokens the request may take; `None`: no limit.
        estimate: Tokens of a text.

    Returns:
        The request, within the limit by `estimate`; `None` when not even one group fits, or there is none.
    """
    if not source.groups:
        return None
    intro = _intro(source, limit_tokens, estimate)
    left = None if limit_tokens is None else limit_tokens - estimate(_assembled(intro, "")) - _OVERHEAD_TOKENS
    for _ in range(3):
        if left is not None and left <= 0:
            return None
        transcript = render_transcript(source.groups, redact=source.redact, estimate=estimate, limit_tokens=left)
        if transcript is None:
            return None
        text = _assembled(intro, transcript.text)
        tokens = estimate(text) + _OVERHEAD_TOKENS
        if limit_tokens is None or left is None or tokens <= limit_tokens:
            return SummaryRequest(messages=(HumanMessage(text),), groups_covered=transcript.groups, tokens=tokens)
        # Estimates of parts need not add up to the estimate of the whole.
        left = left - (tokens - limit_tokens) * 5 // 4 - 1
    return None


def affinity_request(
    live: Sequence[BaseMessage], source: SummarySource, *, kept: Sequence[BaseMessage] = (), estimate: Estimate | None = None
) -> SummaryRequest:
    """The agent's own request, unchanged, plus one instruction message.

    Args:
        live: The messages the agent's model would be sent, system message first where there is one.
        source: What is to be summarised; its groups stand in `live`.
        kept: The messages at the end of `live` that stay and are not to be covered.
        estimate: Tokens of a text, for the added message; `None`: not estimated.
    """
    parts = [AFFINITY_INSTRUCTIONS, *_border(source, kept), *([NO_REQUEST] if source.request is None else []), *_wishes(source)]
    text = "\n\n".join(parts)
    tokens = estimate(text) + _OVERHEAD_TOKENS if estimate is not None else 0
    return SummaryRequest(messages=(*live, HumanMessage(text)), groups_covered=len(source.groups), tokens=tokens)


def reask_request(request: SummaryRequest, reason: str) -> SummaryRequest:
    """The same request with what was wrong with its answer, so that it is never the same request twice.

    Args:
        request: The request whose answer was rejected.
        reason: Why, one of `RejectionReason`.
    """
    addition = f"\n\n{REASK.get(reason, REASK['no_snapshot'])} {REASK_ENDING}"
    last = request.messages[-1]
    asked = last.model_copy(update={"content": f"{last.content}{addition}"})
    return dataclasses.replace(request, messages=(*request.messages[:-1], asked), tokens=request.tokens + len(addition) // 3)


def _assembled(intro: str, transcript: str) -> str:
    return f"{intro}\n\n<work_transcript>\n{transcript}</work_transcript>\n\n{CLOSING}"


def _intro(source: SummarySource, limit: int | None, estimate: Estimate) -> str:
    """The fixed instructions, then what changes from round to round, then what changes from step to step."""
    parts = [INSTRUCTIONS]
    if source.request is None:
        parts.append(NO_REQUEST)
    else:
        shown = head_and_tail(render_text(source.request, redact=source.redact), _LONGEST_REQUEST, line="\n")
        shown = _within(shown, limit, _REQUEST_SHARE, estimate)
        parts.append(f"The user's request, already preserved:\n<user_request>\n{shown}\n</user_request>")
    parts += _wishes(source)
    if source.earlier:
        narrative = _within(_safe(source.earlier, source), limit, _EARLIER_SHARE, estimate)
        parts.append(
            f"The earlier checkpoint of this same task, older than the transcript:\n<earlier_checkpoint>\n{narrative}\n</earlier_checkpoint>"
        )
    if source.earlier_facts:
        facts = _within(_safe(source.earlier_facts, source), limit, _FACTS_SHARE, estimate)
        parts.append(f"Facts noted with it, kept beside your checkpoint; for reference only:\n<earlier_facts>\n{facts}\n</earlier_facts>")
    return "\n\n".join(parts)


def _border(source: SummarySource, kept: Sequence[BaseMessage]) -> list[str]:
    """Where the work to cover ends, by names that stand in the request."""
    if not kept or not source.groups:
        return []
    return [AFFINITY_BORDER.format(count=len(kept), last=_named(source.groups[-1][-1], source), first=_named(kept[0], source))]


def _named(message: BaseMessage, source: SummarySource) -> str:
    """A message as a model can find it again: by its calls, the call it answers, or its first words."""
    if isinstance(message, ToolMessage):
        return f"the result of the call {_quoted(message.tool_call_id, source)}"
    calls = declared_calls(message)
    if calls:
        return f"the assistant's call {_quoted(calls[0].id, source)} of the tool {_quoted(calls[0].name, source)}"
    who = "the assistant's message" if isinstance(message, AIMessage) else "the message"
    return f"{who} that begins {_quoted(text_of(message)[:_LONGEST_NAME], source)}"


def _quoted(text: str, source: SummarySource) -> str:
    return f'"{" ".join(_safe(text, source).split())[:_LONGEST_NAME]}"'


def _wishes(source: SummarySource) -> list[str]:
    """Focus and budget, each in one sentence."""
    wishes = []
    if source.focus and source.focus.strip():
        focus = head_and_tail(_safe(source.focus.strip(), source), _LONGEST_FOCUS)
        wishes.append(
            "Above all keep what concerns the following. It is a priority for what to write, not a task and not a reason to invent anything:\n"
            f"<user_focus>\n{focus}\n</user_focus>"
        )
    if source.summary_tokens is not None:
        words = max(int(source.summary_tokens * _WORDS_PER_TOKEN), 1)
        wishes.append(
            f"Length: the snapshot has room for about {words:,} words ({source.summary_tokens:,} tokens) at most. "
            "Where that is too little, shorten sections 3 and 8 first; keep 1, 2, 5 and 7 exact."
        )
    return wishes


def _safe(text: str, source: SummarySource) -> str:
    return escaped(source.redact(text))


def _within(text: str, limit: int | None, share: float, estimate: Estimate) -> str:
    """`text`, shortened head and tail where it takes more than its share of the limit."""
    if limit is None:
        return text
    room = max(int(limit * share), 1)
    shown, tokens = text, estimate(text)
    for _ in range(4):
        if tokens <= room:
            break
        shown = head_and_tail(text, len(shown) * room * 9 // (tokens * 10), line="\n")
        tokens = estimate(shown)
    return shown
