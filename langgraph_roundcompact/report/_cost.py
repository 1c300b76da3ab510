"""What the input of the model calls cost, with compaction and without, at stated prices. An estimate that says what it assumes.

Assumed: each check stands before one model call; a call's input up to the last one's end comes from the provider's prefix cache, unless a
compaction changed something in front of it; nothing expires in between; without compaction the same steps would have been made. Output of the
agent is the same either way and left out; the summaries are counted in full.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from langgraph_roundcompact.report._runs import Check, Run
from langgraph_roundcompact.report._text import number_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices per million tokens, in one currency. The defaults are round figures of the usual order, not those of any provider."""

    input: float = 2.0
    cached: float = 0.2
    output: float = 10.0


@dataclass(slots=True)
class Bill:
    """Tokens by what they cost."""

    fresh: int = 0
    cached: int = 0
    summary_input: int = 0
    summary_cached: int = 0
    summary_output: int = 0

    @property
    def input(self) -> int:
        """All input of the agent's calls."""
        return self.fresh + self.cached

    def total(self, prices: Prices) -> float:
        """The sum, in the currency of the prices."""
        return self.calls(prices) + self.summaries(prices)

    def calls(self, prices: Prices) -> float:
        """The agent's input."""
        return (self.fresh * prices.input + self.cached * prices.cached) / 1e6

    def summaries(self, prices: Prices) -> float:
        """Input and output of the summariser."""
        fresh = max(self.summary_input - self.summary_cached, 0)
        return (fresh * prices.input + self.summary_cached * prices.cached + self.summary_output * prices.output) / 1e6


@dataclass(frozen=True, slots=True)
class Cost:
    """Both bills of some runs."""

    with_: Bill
    without: Bill
    calls: int
    over_capacity_at: int | None
    """The first call whose window, without compaction, would not have fitted."""
    complete: bool
    """Whether all calls are known; otherwise only the summaries can be told."""


def cost_of(run: Run) -> Cost:
    """Both bills of one run."""
    with_, without, gone, last_with, last_without, over = Bill(), Bill(), 0, 0, 0, None
    for check in run.checks:
        _add_summary(with_, check)
        whole = check.before + gone
        gone += check.reclaimed
        _add(with_, check.after, min(last_with, check.untouched if check.reclaimed else last_with))
        _add(without, whole, last_without)
        last_with, last_without = check.after, whole
        if over is None and run.capacity and whole > run.capacity:
            over = check.number
    return Cost(with_, without, len(run.checks), over, run.complete)


def sum_of(costs: Iterable[Cost]) -> Cost:
    """Several runs together."""
    costs = list(costs)
    bills = [_sum([cost.with_ for cost in costs]), _sum([cost.without for cost in costs])]
    over = next((cost.over_capacity_at for cost in costs if cost.over_capacity_at), None) if len(costs) == 1 else None
    return Cost(bills[0], bills[1], sum(cost.calls for cost in costs), over, any(cost.complete for cost in costs))


def _sum(bills: list[Bill]) -> Bill:
    names = ("fresh", "cached", "summary_input", "summary_cached", "summary_output")
    return Bill(**{name: sum(getattr(bill, name) for bill in bills) for name in names})


def _add(bill: Bill, tokens: int, served: int) -> None:
    cached = min(served, tokens)
    bill.cached += cached
    bill.fresh += tokens - cached


def _add_summary(bill: Bill, check: Check) -> None:
    done = [line for line in check.lines if line.get("kind") == "done"]
    for record in done[-1:] or check.compactions:
        usage = record.get("usage")
        bill.summary_input += number_at(usage, "input_tokens")
        bill.summary_output += number_at(usage, "output_tokens")
        bill.summary_cached += number_at(usage, "input_token_details", "cache_read")
