"""Sharing a budget fairly, and cutting a text once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

_LEAST_TOKENS = 12
"""A section cut to fewer tokens than this says nothing and is left out."""
_MOST_CHARS_PER_TOKEN = 32
"""No tokenizer packs more than a few dozen characters of prose into a token: megabytes need not be counted to keep a page."""

_FULL_NOTICE_FROM = 60
"""Tokens from which the notice of a cut says how much is missing; below, the figures would take more room than the text."""


def fair_shares(sizes: Mapping[str, int], budget: int) -> dict[str, int]:
    """Split `budget` so that small sizes are met whole and the larger ones share the rest equally.

    Args:
        sizes: What each would take, in tokens.
        budget: What there is, in tokens.

    Returns:
        For each name at most its size; together at most `budget`.
    """
    shares: dict[str, int] = {}
    left = max(budget, 0)
    # Ties go by name order of the mapping, which is the configured order: sorted() is stable.
    waiting = sorted(sizes, key=lambda name: sizes[name])
    for position, name in enumerate(waiting):
        shares[name] = min(sizes[name], left // (len(waiting) - position))
        left -= shares[name]
    return shares


def most_that_fits(count: int, text: Callable[[int], str], budget: int, estimate: Callable[[str], int]) -> str:
    """The text with as many pieces as the budget holds, found by halving.

    Args:
        count: How many pieces there are.
        text: The text with the first so many of them, most useful first; more pieces make it longer.
        budget: What there is, in tokens.
        estimate: Tokens of a text.

    Returns:
        The text without any piece where even that is over the budget.
    """

    def fits(candidate: str) -> bool:
        return len(candidate) <= max(budget, 0) * _MOST_CHARS_PER_TOKEN and estimate(candidate) <= budget

    low, high = 0, count
    if fits(whole := text(count)):
        return whole
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(text(middle)) else (low, middle)
    return text(low)


def cut(text: str, budget: int, estimate: Callable[[str], int]) -> str:
    """The head of `text` that fits, ended at a line border where one is near, with a line that says so.

    Args:
        text: The whole section.
        budget: Tokens for head and notice together.
        estimate: Tokens of a text.

    Returns:
        `text` itself if it fits; `""` if the budget is too small to say anything.
    """
    head = text[: max(budget, 0) * _MOST_CHARS_PER_TOKEN]
    if len(head) == len(text) and estimate(text) <= budget:
        return text
    if budget < _LEAST_TOKENS:
        return ""
    for _ in range(24):
        shown = _whole_lines(head)
        notice = f"[cut here: {len(shown)} of {len(text)} characters]" if budget >= _FULL_NOTICE_FROM else "[cut here]"
        candidate = f"{shown}\n{notice}"
        tokens = estimate(candidate)
        if tokens <= budget:
            return candidate if shown else ""
        head = shown[: min(len(shown) * budget // max(tokens, 1), len(shown) - 1)]
        if not head:
            break
    return ""


def _whole_lines(head: str) -> str:
    border = head.rfind("\n")
    # A border in the last quarter costs little; otherwise one long line would take everything with it.
    return (head[:border] if border >= len(head) * 3 // 4 else head).rstrip()
