"""Whether to compact now, and the budget of the result. The trigger looks at what can be gained, not only at the total.

The border is `window >= trigger`. One thing moves it, and only downwards: where the provider reported the size of the last four requests of this
history at least, the largest of the last three steps between them is what the next one is expected to add; if the window and that would be over the
capacity, waiting for the trigger would be waiting for a refused request. Without such reports, with an absolute trigger, or with steps that
fit, the border is the documented one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from langchain_core.messages import AIMessage, BaseMessage

from langgraph_roundcompact._usage import reported_tokens
from langgraph_roundcompact._window import Limits
from langgraph_roundcompact.config import RoundCompactConfig
from langgraph_roundcompact.events import Outcome, Reason

BLOCK_FLOOR_TOKENS = 120
"""A checkpoint with its frame and the shortest useful text: replacing less than this gains nothing."""

BUDGET_FLOOR_RATIO, BUDGET_FLOOR_TOKENS = 0.05, 400
"""A checkpoint under 5 % of the capacity loses too much to be resumed from; 400 tokens hold the frame and a plan."""

GROWTH_STEPS = 3
"""Steps between reported requests of which the largest is what the next one is expected to add."""

COOLDOWN_RATIO = 0.01
"""Of the trigger: new tokens under which a failed compaction is not tried again, however many steps they are."""


@dataclass(frozen=True, slots=True)
class Failures:
    """What is remembered of failed steps of one round."""

    in_row: int
    groups: int
    """Groups of new work there were at the last failure."""
    window: int = 0
    """Tokens of the window at the last failure."""
    rejected: bool = False
    """The last try ended with a reviewer's no."""
    task_id: str = ""
    """The host's task that was given this no; empty: none that is run again from its start."""


FREE_SHARE, ASKED_SHARE = 0.6, 0.9
"""Of what is replaced, the most that may stand in for it: a ledger full of ids would otherwise fill its room and gain nothing. The larger share
is for a budget that was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Token counts of one window and its spans."""

    window: int
    """All messages, system prompt and tools."""
    target: int
    """Everything replaceable, our earlier blocks included."""
    new_work: int
    """The replaceable part that is newer than the last checkpoint."""
    growth: int = 0
    """What the next step is expected to add; 0 where too little is known."""
    held: int = 0
    """All messages, system prompt and tools by the counter, where `window` is what the provider reported; 0: the same."""

    @property
    def scale(self) -> float:
        """Reported tokens for one counted. Below 1 where the counter counts too much; what a report holds beyond the count is hidden overhead."""
        return min(self.window / self.held, 1.0) if self.held else 1.0

    @property
    def fixed(self) -> int:
        """What no compaction can change: prefix, tail, system prompt, tools."""
        return max(self.window - int(self.target * self.scale), 0)

    def after(self, new: int) -> int:
        """The window with `new` counted tokens in the place of the target."""
        return self.fixed + int(new * self.scale)

    def without(self, unread: int) -> Sizes:
        """The same after `unread` counted tokens at the end are gone. No report covers those, so the window holds them as counted."""
        return replace(self, window=max(self.window - unread, 0), held=max(self.held - unread, 1) if self.held else 0)


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
        return min(config.round_budget_tokens, int(sizes.target * ASKED_SHARE))
    return min(max(limits.target - sizes.fixed, budget_floor(limits.capacity)), int(sizes.target * FREE_SHARE))


def _worth_a_block(config: RoundCompactConfig, limits: Limits) -> int:
    """New work for which one more block is made while the rest alone is over the trigger: a quarter of a budget asked for, else the floor."""
    floor = budget_floor(limits.capacity)
    return floor if config.round_budget_tokens is None else min(floor, max(config.round_budget_tokens // 4, BLOCK_FLOOR_TOKENS))


def recent_growth(messages: Sequence[BaseMessage], start: int = 0) -> int:
    """What the next step is expected to add, in tokens: the most that one of the last three did, by what the provider reported.

    Args:
        messages: The window. Read from its end, no further than needed.
        start: Reports before this index are of another round, or of a request that no longer exists.
    """
    reported: list[int] = []
    for i in range(len(messages) - 1, start - 1, -1):
        if isinstance(message := messages[i], AIMessage):
            reported.append(reported_tokens(message))
            if not reported[-1]:
                return 0
            if len(reported) > GROWTH_STEPS:
                return max(0, *(newer - older for newer, older in pairwise(reported)))
    return 0


def is_due(config: RoundCompactConfig, limits: Limits, window: int, growth: int) -> bool:
    """Whether the window is at the trigger, or the next step would take it over the capacity."""
    return window >= limits.trigger or (config.trigger_token_threshold is None and growth > 0 and window + growth > limits.capacity)


def decide(config: RoundCompactConfig, sizes: Sizes, limits: Limits, *, force: bool) -> Verdict:
    """Whether this window is compacted, and if not, why."""
    if force:
        return Verdict(None, "forced") if sizes.new_work else Verdict("nothing_to_compact", "no_new_work")
    if not is_due(config, limits, sizes.window, sizes.growth):
        return Verdict("below_trigger", "below_threshold")
    verdict = _decide_due(config, sizes, limits)
    # What may come is no reason to say that something is wrong now.
    return verdict if verdict.outcome is None or sizes.window >= limits.trigger else Verdict("below_trigger", "below_threshold")


def _decide_due(config: RoundCompactConfig, sizes: Sizes, limits: Limits) -> Verdict:
    if sizes.new_work == 0:
        return Verdict("nothing_to_compact", "prefix_over_trigger" if sizes.fixed >= limits.trigger else "no_new_work")
    least = max(int(limits.capacity * config.min_target_context_ratio), BLOCK_FLOOR_TOKENS)
    if sizes.fixed >= limits.trigger or sizes.window - int(sizes.new_work * sizes.scale) >= limits.trigger:
        # The rest alone is over the trigger, so every step would fire: wait until there is enough to make one block worth its price.
        least = max(least, _worth_a_block(config, limits))
        if sizes.new_work < least:
            return Verdict("nothing_to_compact", "prefix_over_trigger")
    if sizes.new_work < least:
        return Verdict("target_below_min", "target_below_min")
    return Verdict(None, "reached_threshold")


def is_outgrown(limits: Limits, sizes: Sizes, failures: Failures, groups: int) -> bool:
    """Whether the window outgrew the capacity since a failure: the agent has gone on, and its next call would fail. Rules help at once."""
    return failures.in_row > 0 and failures.window < limits.capacity <= sizes.window and groups > failures.groups


def is_breaker_open(config: RoundCompactConfig, failures: Failures) -> bool:
    """Whether rules make the checkpoint without asking again, after too many failures in a row."""
    return 0 < config.breaker_failures <= failures.in_row


def is_asked_again(failures: Failures, task_id: str) -> bool:
    """Whether this very task was given the reviewer's no: run again from its start, it must ask again, since answers are found by their order."""
    return failures.rejected and task_id != "" and failures.task_id == task_id


def is_cooling_down(config: RoundCompactConfig, limits: Limits, sizes: Sizes, failures: Failures, groups: int) -> bool:
    """Whether too little is new since the last failure. The digest that an open breaker asks for is due at once, but only the first time.

    New tokens count, too: a few polls are as many steps as a few searches, but nothing has changed. At the capacity that is no argument.
    """
    failed = failures.in_row > 0 and failures.in_row != config.breaker_failures
    if not (failed or failures.rejected) or is_outgrown(limits, sizes, failures, groups):
        return False
    new_groups, new_tokens = groups - failures.groups, sizes.window - failures.window
    if new_groups < 0:
        return False  # the history was edited, so the failure was of another one
    idle = 0 <= new_tokens < limits.trigger * COOLDOWN_RATIO and sizes.window < limits.capacity
    return new_groups < config.cooldown_groups or (idle and config.cooldown_groups > 0)
