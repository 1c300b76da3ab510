"""Token usage as providers report it on messages: how large a request was, and sums over several requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from langchain_core.messages import AIMessage

_LARGEST_USAGE = 100_000_000
"""A report above this many tokens is taken for broken metadata."""


def reported_tokens(message: AIMessage) -> int:
    """Tokens of request and answer as the provider reported them; 0 when unknown.

    An absent measurement is not a small one: a report is unknown that lacks one of its three figures, or counts nothing as sent (streams that
    end early, servers that report the answer alone), or holds anything but positive numbers. Where more was read from or written to the
    cache than was sent, the integration left the cached part out of `input_tokens`; it was sent all the same.
    """
    usage: Any = message.usage_metadata
    if not isinstance(usage, Mapping):
        return 0
    sent, answered, total = usage.get("input_tokens"), usage.get("output_tokens"), usage.get("total_tokens")
    if not (_is_usage(sent) and _is_usage(total) and (_is_usage(answered) or answered == 0)):
        return 0
    cached = _cached_tokens(usage.get("input_token_details"))
    return max(total, sent + answered) + (cached if cached > sent else 0)


def _cached_tokens(details: Any) -> int:
    figures = [details.get(name) for name in ("cache_read", "cache_creation")] if isinstance(details, Mapping) else []
    return sum(figure for figure in figures if _is_usage(figure))


def add_usage(total: dict[str, Any] | None, reply: object) -> dict[str, Any] | None:
    """Sum of the usage reported so far; cached tokens included."""
    usage = getattr(reply, "usage_metadata", None)
    return _sum(total or {}, usage) if isinstance(usage, Mapping) else total


def sum_usage(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Both usages together; None when nothing was reported."""
    return _sum(one, other) if one and other else one or other


def _sum(total: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(total)
    for key, value in more.items():
        if isinstance(value, Mapping):
            out[key] = _sum(out.get(key) or {}, value)
        elif isinstance(value, int) and not isinstance(value, bool):
            out[key] = out.get(key, 0) + value
    return out


def _is_usage(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _LARGEST_USAGE
