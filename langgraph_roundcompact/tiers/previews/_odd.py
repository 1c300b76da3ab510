"""Outliers: the few lines of a long text that speak of an error, or that have a form of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from langgraph_roundcompact.tiers.previews._outline import raise_rank

_MOST = 12
"""Where more lines than this are odd, it is what the text is about."""
_REPEATS = 10
"""Lines a form must have on average for the text to be one that repeats itself."""
_LOOKED_AT = 400
"""Characters of a line."""
_FORM = 32
"""Characters of a line, digits apart, that make its form."""
_WORDS = (
    "error", "exception", "traceback", "fail", "fatal", "panic", "warning", "denied", "refused", "rejected", "cannot ", "could not", "unable to",
    "not found", "no such", "timed out", "timeout", "invalid", "unavailable", "did not ", "exit code", "exit status", "killed", "错误", "失败",
    "异常", "无法", "拒绝", "超时", "警告",
)  # fmt: skip
_DIGITS = str.maketrans("", "", "0123456789")


def raise_odd(lines: Sequence[str], ranks: list[int], rank: int) -> None:
    """Give the outliers of a text a better rank, in order.

    Args:
        lines: The lines.
        ranks: Their ranks.
        rank: The rank of the first odd line.
    """
    for positions in (list(_telling(lines)), list(_single(lines))):
        if len(positions) <= _MOST:
            for order, position in enumerate(positions):
                raise_rank(ranks, position, rank + order)


def _telling(lines: Sequence[str]) -> Iterator[int]:
    found = 0
    for position, line in enumerate(lines):
        lower = line[:_LOOKED_AT].lower()
        if any(word in lower for word in _WORDS):
            yield position
            found += 1
            if found > _MOST:
                return


def _single(lines: Sequence[str]) -> Iterator[int]:
    """Lines of a form that comes once, in a text of few forms; the ends are shown anyway."""
    forms = [line[:_LOOKED_AT].translate(_DIGITS)[:_FORM] for line in lines]
    counts = Counter(forms)
    if len(counts) * _REPEATS > len(lines):
        return
    for position, form in enumerate(forms):
        if counts[form] == 1 and form.strip():
            yield position
