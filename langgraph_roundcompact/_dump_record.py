"""The record of one compaction for the dump: what was replaced, by what, and what it cost. Plain data, redacted.

Built only where dumping is switched on. It must never make the compaction fail: a value that cannot be recorded is replaced by a note.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from langchain_core.messages import BaseMessage

from langgraph_roundcompact._archive_record import plain
from langgraph_roundcompact._content import text_of
from langgraph_roundcompact._draft import Draft, Round
from langgraph_roundcompact._message_tokens import message_tokens
from langgraph_roundcompact._parts import Parts
from langgraph_roundcompact._request import Exchange
from langgraph_roundcompact.errors import RedactionRefused
from langgraph_roundcompact.events import CompactionResult

RECORD_VERSION = 1


REFUSED = "[left out: redact refused this text]"
"""Stands for a text of the parts that stay: a refusal there is no veto, since nothing of them is sent or stored but for the dump."""

_TOLD_FOLDS, _HEAD_CHARACTERS = 50, 300


def dump_record(
    round_: Round,
    draft: Draft,
    result: CompactionResult,
    exchanges: Sequence[Exchange] = (),
) -> dict[str, Any]:
    """The record of a finished compaction.

    Args:
        round_: The round.
        draft: What took the place of the target.
        result: What the step ends with.
        exchanges: What was sent to the summariser and came back, in order; the last one is the one whose answer was used. Empty: nothing was
            asked, or the answer was remembered.
    """
    messages, cut, parts = round_.job.messages, round_.cut, round_.parts
    redact = lenient(parts.redact)
    spans = {"prefix": messages[: cut.prefix_stop], "replaced": round_.replaced, "kept": round_.kept}
    told = {name: [told_message(message, parts) for message in span] for name, span in spans.items()}
    return {
        "kind": "compaction",
        "version": RECORD_VERSION,
        "outcome": result.outcome,
        "reason": result.reason,
        "tokens": {
            "before": result.tokens_before,
            "after": result.tokens_after,
            "budget": round_.budget,
            "checkpoint": draft.tokens,
            "prefix": sum(message["tokens"] for message in told["prefix"]),
        },
        "limits": asdict(round_.job.limits),
        "spans": told,
        "checkpoint": [told_message(message, parts) for message in draft.new],
        "recovered_context": redact(draft.recovered),
        **({"request": None, "response": None} if not exchanges else _told_exchange(exchanges[-1], parts)),
        "earlier_exchanges": [{"kind": exchange.kind, **_told_exchange(exchange, parts)} for exchange in exchanges[:-1]],
        "attempts": [asdict(attempt) for attempt in result.attempts],
        "usage": plain(dict(result.usage or {}), redact),
        "audit": asdict(draft.audit),
        "tiers": [dict(gain) for gain in round_.gains],
        "archive_id": draft.archive_id,
    }


def told_message(message: BaseMessage, parts: Parts) -> dict[str, Any]:
    """All fields of a message as plain data, and its estimated tokens."""
    try:
        fields = message.model_dump(warnings=False)
    except Exception as exc:  # noqa: BLE001 - any object may stand in a message
        fields = {"type": message.type, "id": message.id, "content": f"[cannot be written as data: {type(exc).__name__}]"}
    return {**plain(fields, lenient(parts.redact)), "tokens": message_tokens(message, parts.estimate)}


def told_folds(before: Sequence[BaseMessage], folds: Mapping[int, BaseMessage], redact: Callable[[str], str]) -> list[dict[str, Any]]:
    """The first folds of a step, each with the head of what stands there now."""
    clean = lenient(redact)
    return [
        {
            "id": before[i].id,
            "name": before[i].name,
            "characters_before": len(text_of(before[i])),
            "characters_after": len(text_of(folds[i])),
            "head": clean(text_of(folds[i]))[:_HEAD_CHARACTERS],
        }
        for i in sorted(folds)[:_TOLD_FOLDS]
    ]


def lenient(redact: Callable[[str], str]) -> Callable[[str], str]:
    """`redact`, with a stand-in for what it refuses."""

    def clean(text: str) -> str:
        try:
            return redact(text)
        except RedactionRefused:
            return REFUSED

    return clean


def _told_exchange(exchange: Exchange, parts: Parts) -> dict[str, Any]:
    request = {"messages": [told_message(message, parts) for message in exchange.request.messages], "tokens": exchange.request.tokens}
    return {"request": request, "response": _told_answer(exchange.reply, parts)}


def _told_answer(answer: object, parts: Parts) -> dict[str, Any]:
    if isinstance(answer, BaseMessage):
        return told_message(answer, parts)
    return {"content": plain(answer if isinstance(answer, str) else repr(answer), lenient(parts.redact))}
