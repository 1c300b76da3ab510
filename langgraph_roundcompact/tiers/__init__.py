"""The ladder: cheap steps tried in order before the model is asked. A tier is a callable; its order is the user's list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from langchain_core.messages import BaseMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class TierContext:
    """What a tier may know. Everything is a value; a tier does no I/O."""

    target_tokens: int
    """Where the window should come to, in tokens."""
    window_tokens: int
    """The window now, in tokens."""
    round_budget_tokens: int
    """What the compacted round may take, in tokens."""
    reclaim_at_least_tokens: int
    """The least gain for which a tier touches anything, in tokens."""
    request: str
    """Text of the user's request."""
    estimate: Callable[[str], int]
    """Tokens of a text."""
    idle_seconds: float | None = None
    """How long the provider's prefix cache has been unused, where the caller knows."""


@runtime_checkable
class Tier(Protocol):
    """Folds what rules can fold without losing what is needed.

    A tier gets the target in order and returns it with some messages replaced (same id, same type, same pairs) or left out in whole groups.
    It never returns more tokens than it got, never touches a message twice, and gives the same answer for the same input.
    """

    def __call__(self, target: Sequence[BaseMessage], context: TierContext, /) -> Sequence[BaseMessage]:
        """The target, folded or as it was."""


DEFAULT_TIERS: tuple[Tier, ...] = ()
