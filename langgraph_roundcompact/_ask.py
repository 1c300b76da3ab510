"""Asking the summariser: retries, smaller requests after an overflow, one more request after an answer that is no summary.

A generator, so that sync and async share it.

Policy (design: "When something goes wrong"): an overflow is answered by a smaller request, never by the same one; passing failures are
retried with growing waits; an answer that is no summary is asked for once more with the reason; everything else ends the step.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from langchain_core.messages import BaseMessage

from langgraph_roundcompact._content import text_of
from langgraph_roundcompact._decisions import note_retry
from langgraph_roundcompact._effects import CallModel, Flow, Memo, Sleep
from langgraph_roundcompact._error_text import TEXT_LIMIT, OverflowGap
from langgraph_roundcompact._escape import storable
from langgraph_roundcompact._parts import AgentCall, Parts
from langgraph_roundcompact._request import (
    PROMPT_VERSION,
    Exchange,
    SummaryRequest,
    SummarySource,
    affinity_request,
    reask_request,
    transcript_request,
)
from langgraph_roundcompact._snapshot import read_summary
from langgraph_roundcompact._usage import add_usage
from langgraph_roundcompact.errors import (
    ErrorKind,
    SummaryRejected,
    classify,
    is_final,
    overflow_gap,
    retry_after_seconds,
    retry_moment,
    should_retry,
)
from langgraph_roundcompact.events import Attempt, Reason

LIVE_FRACTION = 0.95
"""Share of the window up to which the agent's own request may be continued: the answer needs room too."""

FRACTIONS = (0.85, 0.65, 0.5)
"""Share of the summariser's window that a request may take: at first, and after the first overflows."""

MAX_SHRINKS = 6
"""Smaller requests to try. When the fractions are used up, or were no smaller, the window is not what it was taken for: then by halves."""

_GAP_MARGIN = 0.9
"""Of the limit that an overflow's text states: providers count a little more than we do."""

_FIRST_WAIT_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 120.0
_CAUSE_CHARS = 300
_QUOTABLE = re.compile(r"[^'\"`\\\[\]<>=]{20,}+")
"""A piece of an error's text that may be a quotation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What asking came to. `text` None: no summary could be had, `reason` says why."""

    text: str | None
    reason: Reason
    groups_covered: int
    attempts: tuple[Attempt, ...]
    usage: Mapping[str, Any] | None
    exchanges: tuple[Exchange, ...] = ()
    """What was sent and came back, as it was; empty when the text comes from the memo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """The agent's own request, for a summary that continues it, so that the provider's prefix cache serves all but the end."""

    call: AgentCall
    window: Sequence[BaseMessage]
    """The messages of the window, the work to summarise among them."""
    tokens: int
    """Tokens of the whole request: messages, system message and tools."""
    kept: Sequence[BaseMessage]
    """Those at the end of the window that stay."""


class _Log:
    """The attempts and the usage of one step."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.usage: dict[str, Any] | None = None
        self.exchanges: list[Exchange] = []

    def answered(self, kind: Literal["ok", "rejected"], request: SummaryRequest, reply: object, detail: str = "") -> None:
        self.usage = add_usage(self.usage, reply)
        self.exchanges.append(Exchange(kind, request, reply))
        self.note(kind, request, detail)

    def note(self, kind: Any, request: SummaryRequest, detail: str = "") -> None:
        self.attempts.append(Attempt(number=len(self.attempts) + 1, kind=kind, detail=detail, request_tokens=request.tokens))

    def answer(self, reason: Reason, text: str | None = None, covered: int = 0) -> Answer:
        return Answer(
            text=text, reason=reason, groups_covered=covered, attempts=tuple(self.attempts), usage=self.usage, exchanges=tuple(self.exchanges)
        )


def ask(parts: Parts, source: SummarySource, window_tokens: int, live: Live | None = None, *, digests: Sequence[bytes]) -> Flow[Answer]:
    """A summary of the source's leading groups, from the memo or from the model.

    Args:
        parts: What the compactor was built from.
        source: What is to be summarised.
        window_tokens: Window of the summariser.
        live: The agent's own request. It is continued where it fits; an answer that is no summary, an overflow or a refusal of that request
            leads to the transcript form, once.
        digests: `group_digest` of each of the source's groups.
    """
    key = memo_key(parts, source, digests)
    known = yield Memo("summaries", (key,))
    if known is not None:
        return Answer(text=known[0], reason="", groups_covered=known[1], attempts=(), usage=None)
    answer = yield from _ask(parts, source, window_tokens, live)
    if answer.text is not None:
        yield Memo("summaries", (key,), (answer.text, answer.groups_covered))
    return answer


def _ask(parts: Parts, source: SummarySource, window_tokens: int, live: Live | None) -> Flow[Answer]:
    log, retries, shrinks, asked_again = _Log(), 0, 0, False
    request, model = _first(parts, source, window_tokens, live)
    while request is not None and request.groups_covered:
        reply: object = None
        try:
            reply = yield CallModel(request.messages, parts.config.timeout_seconds, model)
            replaced = source.characters(request.groups_covered)
            text = read_summary(reply, require_snapshot=parts.config.require_snapshot, replaces=replaced)
        except parts.passes:
            raise
        except SummaryRejected as rejection:
            log.answered("rejected", request, reply, rejection.reason)
            if asked_again:
                return log.answer("summary_rejected")
            request = reask_request(request, rejection.reason) if model is None else _transcript(parts, source, window_tokens)
            model, asked_again = None, True
        except Exception as exc:  # noqa: BLE001 - any client may raise anything; the kind decides
            kind = classify(exc)
            log.note(kind, request, _cause(exc, parts, request))
            if model is not None and kind in ("context_overflow", "api_request_error"):
                gap = overflow_gap(exc) if kind == "context_overflow" else None
                request, model = _transcript(parts, source, window_tokens, gap), None
            elif kind == "context_overflow":
                shrinks += 1
                request = _smaller(parts, source, request, window_tokens, overflow_gap(exc), shrinks)
            elif retries < parts.config.max_retries and should_retry(kind) and not is_final(exc):
                yield Sleep(_wait_seconds(parts, exc, retries), retry_moment(exc), _longest_wait(parts))
                retries += 1
            else:
                return log.answer(kind)
        else:
            log.answered("ok", request, reply)
            return log.answer("", text, request.groups_covered)
        yield from note_retry(parts, log.attempts[-1], request.tokens if request is not None else 0)
    return log.answer("context_overflow")


def _first(parts: Parts, source: SummarySource, window_tokens: int, live: Live | None) -> tuple[SummaryRequest | None, Any]:
    """The first request, and the model it is for where that is not the summariser."""
    if live is None or not source.groups:
        return _transcript(parts, source, window_tokens), None
    try:
        model = live.call.model()
    except Exception:  # noqa: BLE001 - a model without tools, for instance: then nothing is there to be continued
        return _transcript(parts, source, window_tokens), None
    added = affinity_request(live.call.sent(live.window), source, kept=live.kept, estimate=parts.estimate)
    request = replace(added, tokens=live.tokens + added.tokens)
    if request.tokens > window_tokens * LIVE_FRACTION:
        return _transcript(parts, source, window_tokens), None
    return request, model


def _transcript(parts: Parts, source: SummarySource, window_tokens: int, gap: OverflowGap | None = None) -> SummaryRequest | None:
    limit = int(window_tokens * FRACTIONS[0])
    limit = min(limit, int(gap.limit_tokens * _GAP_MARGIN)) if gap is not None else limit
    return transcript_request(source, limit_tokens=limit, estimate=parts.estimate)


def _smaller(
    parts: Parts, source: SummarySource, last: SummaryRequest, window_tokens: int, gap: OverflowGap | None, shrinks: int
) -> SummaryRequest | None:
    """A request that is clearly smaller than the last one; None when there is none left to try."""
    if shrinks > MAX_SHRINKS:
        return None
    limit = int(window_tokens * FRACTIONS[shrinks]) if shrinks < len(FRACTIONS) else last.tokens
    limit = limit if limit <= last.tokens * 9 // 10 else last.tokens // 2
    if gap is not None:
        # The provider's count of our request calibrates our own estimate of it.
        scale = min(last.tokens / gap.requested_tokens, 1.5) if gap.requested_tokens else 1.0
        stated = int(gap.limit_tokens * scale * _GAP_MARGIN)
        limit = min(stated, last.tokens * 9 // 10) if stated > 0 else limit
    request = transcript_request(source, limit_tokens=limit, estimate=parts.estimate)
    return request if request is not None and request.tokens < last.tokens else None


def _wait_seconds(parts: Parts, exc: BaseException, retries: int) -> float:
    wait: float = _FIRST_WAIT_SECONDS * 2**retries
    asked = retry_after_seconds(exc)
    if asked is None:
        return wait
    return max(wait, min(asked, _longest_wait(parts)))


def _longest_wait(parts: Parts) -> float:
    """What a provider may ask for: as long as one attempt may take; without a limit for that, two minutes."""
    return parts.config.timeout_seconds or _LONGEST_WAIT_SECONDS


def _cause(exc: BaseException, parts: Parts, request: SummaryRequest) -> str:
    """Type and, redacted, the beginning of what it says: what somebody needs who must find out why there are no summaries."""
    try:
        # Redacted before it is cut: half a secret is recognised by nobody.
        said = _without_echo(parts.redact(" ".join(storable(str(exc)[:TEXT_LIMIT]).split())), request)[:_CAUSE_CHARS]
    except Exception:  # noqa: BLE001 - a veto, or an exception that cannot be printed
        return type(exc).__name__
    return f"{type(exc).__name__}: {said}" if said else type(exc).__name__


def _without_echo(said: str, request: SummaryRequest) -> str:
    """What an error says without what it quotes of the request: the log is no place for the user's text."""
    sent = " ".join(" ".join(text_of(message) for message in request.messages).split())
    return _QUOTABLE.sub(lambda found: "…" if found[0].strip() in sent else found[0], said)


def memo_key(parts: Parts, source: SummarySource, digests: Sequence[bytes]) -> str:
    """Digest of all that a summary depends on: the same work is not paid for twice."""
    digest = hashlib.sha256()
    head = (PROMPT_VERSION, parts.model_key, source.earlier, source.earlier_facts, source.focus, source.summary_tokens, parts.config.require_snapshot)
    digest.update(repr(head).encode("utf-8", "replace"))
    for group in (group_digest((source.request,) if source.request is not None else ()), *digests):
        digest.update(group)
    return digest.hexdigest()


def group_digest(group: Sequence[BaseMessage]) -> bytes:
    """Digest of what the messages of a group say."""
    return hashlib.sha256(b"".join(map(message_digest, group))).digest()


def message_digest(message: BaseMessage) -> bytes:
    """Digest of what a message says; ids and metadata of the message itself do not count."""
    calls = (getattr(message, "tool_calls", None), getattr(message, "invalid_tool_calls", None))
    said = (message.type, message.name, message.content, calls, getattr(message, "tool_call_id", None), getattr(message, "status", None))
    return hashlib.sha256(repr(said).encode("utf-8", "replace")).digest()


def last_kind(attempts: tuple[Attempt, ...]) -> ErrorKind | None:
    """The error kind of the last attempt that failed."""
    kinds = [attempt.kind for attempt in attempts if attempt.kind not in ("ok", "rejected")]
    return kinds[-1] if kinds else None  # type: ignore[return-value]
