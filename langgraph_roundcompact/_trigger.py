"""Whether to act, and what the round may keep. The trigger looks at what can be gained, not only at the total."""

from __future__ import annotations

from dataclasses import dataclass

from langgraph_roundcompact._window import Limits
from langgraph_roundcompact.config import RoundCompactConfig
from langgraph_roundcompact.events import Outcome, Reason

BLOCK_FLOOR_TOKENS = 120
"""A checkpoint with its frame and the shortest useful text: replacing less than this gains nothing."""

BUDGET_FLOOR_RATIO, BUDGET_FLOOR_TOKENS = 0.05, 400
"""A checkpoint under 5 % of the capacity loses too much to be resumed from; 400 tokens hold the frame and a plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Token counts of one window and its spans."""

    window: int
    """All messages, system prompt and tools."""
    target: int
    """Everything replaceable, our earlier blocks included."""
    new_work: int
    """The replaceable part that is newer than the last checkpoint."""

    @property
    def fixed(self) -> int:
        """What no compaction can change: prefix, tail, system prompt, tools."""
        return max(self.window - self.target, 0)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`outcome` None: go on. Otherwise the check ends here."""

    outcome: Outcome | None
    reason: Reason


def budget_floor(capacity: int) -> int:
    """The least that checkpoint and recovered context get, in tokens."""
    return max(int(capacity * BUDGET_FLOOR_RATIO), BUDGET_FLOOR_TOKENS)


def round_budget(config: RoundCompactConfig, sizes: Sizes, limits: Limits) -> int:
    """The most that checkpoint, recovered context and folds may take together, in tokens."""
    if config.round_budget_tokens is not None:
        return config.round_budget_tokens
    return max(limits.target - sizes.fixed, budget_floor(limits.capacity))


def _worth_a_block(config: RoundCompactConfig, limits: Limits) -> int:
    """New work for which one more block is made while the rest alone is over the trigger: a quarter of a budget asked for, else the floor."""
    floor = budget_floor(limits.capacity)
    return floor if config.round_budget_tokens is None else min(floor, max(config.round_budget_tokens // 4, BLOCK_FLOOR_TOKENS))


def decide(config: RoundCompactConfig, sizes: Sizes, limits: Limits, *, force: bool) -> Verdict:
    """Whether this window is compacted, and if not, why."""
    if force:
        return Verdict(None, "forced") if sizes.new_work else Verdict("nothing_to_compact", "no_new_work")
    if sizes.window < limits.trigger:
        return Verdict("below_trigger", "below_threshold")
    if sizes.new_work == 0:
        return Verdict("nothing_to_compact", "prefix_over_trigger" if sizes.fixed >= limits.trigger else "no_new_work")
    least = max(int(limits.capacity * config.min_target_context_ratio), BLOCK_FLOOR_TOKENS)
    if sizes.fixed >= limits.trigger or sizes.window - sizes.new_work >= limits.trigger:
        # The rest alone is over the trigger, so every step would fire: wait until there is enough to make one block worth its price.
        least = max(least, _worth_a_block(config, limits))
        if sizes.new_work < least:
            return Verdict("nothing_to_compact", "prefix_over_trigger")
    if sizes.new_work < least:
        return Verdict("target_below_min", "target_below_min")
    return Verdict(None, "reached_threshold")
