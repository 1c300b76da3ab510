"""The protocol of a tier, and the context it is given."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from langchain_core.messages import BaseMessage


def _nowhere(message: BaseMessage) -> str:
    """No archive: there is nothing to point to."""
    del message
    return ""


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
    """How long the provider's prefix cache has been unused, in seconds; None where nobody knows."""
    scale: float = 1.0
    """Tokens of the window, as reported or counted, for one token of `estimate`. Window, target and gain are in the former."""
    where: Callable[[BaseMessage], str] = _nowhere
    """Pointer to the archived original of a message, for its preview; `""` without an archive. The same message gives the same pointer."""

    @property
    def excess(self) -> int:
        """What must still go, in tokens of `estimate`; 0 at the target."""
        return math.ceil(max(self.window_tokens - self.target_tokens, 0) / self.scale)


@runtime_checkable
class Tier(Protocol):
    """Folds what rules can fold without losing what is needed.

    A tier gets the target in order and returns it with some messages replaced (same id, same type, same pairs) or left out in whole groups.
    It never returns more tokens than it got, never touches a message twice, and gives the same answer for the same input. What it returns is
    checked, and each message it changed is marked as folded, so that no tier gets to change it again.
    """

    def __call__(self, target: Sequence[BaseMessage], context: TierContext, /) -> Sequence[BaseMessage]:
        """The target, folded or as it was."""
