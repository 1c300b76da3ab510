"""From records in the order of time to runs: one for each thread (and subgraph), with its checks, compactions and decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from langgraph_roundcompact.report._text import number_at, text_at

Record = Mapping[str, Any]


@dataclass(slots=True)
class Check:
    """One look at the window; each comes before a model call."""

    number: int
    """From 1 within its run."""
    before: int
    """The window, in tokens."""
    after: int
    """The window the model was sent, in tokens."""
    outcome: str = "below_trigger"
    reason: str = ""
    compactions: list[Record] = field(default_factory=list)
    """The records of the checkpoints that were made: one, or more where the work was summarised in several passes."""
    lines: list[Record] = field(default_factory=list)
    """What was decided on the way."""
    untouched: int = 0
    """Tokens in front of the first change: what a provider's prefix cache still serves."""
    detail: str = ""
    """What the summariser's last answer was refused for, or its error."""
    open: bool = True
    at: str = ""

    @property
    def reclaimed(self) -> int:
        """Tokens that went."""
        return max(self.before - self.after, 0)


@dataclass(slots=True)
class Run:
    """All checks of one thread in one graph."""

    thread_id: str
    checkpoint_ns: str
    checks: list[Check] = field(default_factory=list)
    complete: bool = False
    """Whether every check is known, or only those that made a checkpoint."""
    capacity: int = 0
    trigger: int = 0
    target: int = 0

    @property
    def compactions(self) -> list[Check]:
        """The checks that made a checkpoint."""
        return [check for check in self.checks if check.compactions]

    @property
    def nothing_happened(self) -> Counter[tuple[str, str, str]]:
        """How often, and why, a check left the window alone: outcome, reason, detail."""
        return Counter((check.outcome, check.reason, check.detail) for check in self.checks if not check.reclaimed and not check.compactions)


def runs_of(records: Iterable[Record]) -> list[Run]:
    """The runs, in the order in which they began."""
    runs: dict[tuple[str, str], Run] = {}
    for record in records:
        kind = text_at(record, "kind")
        if kind == "unreadable":
            continue
        key = text_at(record, "thread_id"), text_at(record, "checkpoint_ns")
        run = runs.setdefault(key, Run(*key))
        if kind == "compaction":
            _compacted(run, record)
        elif kind == "threshold_check":
            _checked(run, record)
        else:
            _decided(run, record, kind)
    return list(runs.values())


def _checked(run: Run, record: Record) -> None:
    window = number_at(record, "window")
    run.complete = True
    _limits(run, record)
    check = Check(len(run.checks) + 1, window, window, reason=text_at(record, "reason"), at=text_at(record, "at"))
    check.open = bool(record.get("due"))
    check.lines.append(record)
    run.checks.append(check)


def _compacted(run: Run, record: Record) -> None:
    check = _open(run)
    before, after = number_at(record, "tokens", "before"), number_at(record, "tokens", "after")
    if check is None:
        # Without lines each checkpoint is a check of its own.
        check = Check(len(run.checks) + 1, before, after, open=False, at=text_at(record, "at"))
        run.checks.append(check)
    _limits(run, record.get("limits"))
    check.compactions.append(record)
    check.before, check.after = max(check.before, before), after
    check.outcome, check.reason = text_at(record, "outcome"), text_at(record, "reason")
    check.untouched = number_at(record, "tokens", "prefix")


def _decided(run: Run, record: Record, kind: str) -> None:
    check = _open(run)
    if check is None:
        return
    check.lines.append(record)
    if kind == "tier" and record.get("applied"):
        untouched = number_at(record, "untouched")
        check.untouched = min(check.untouched, untouched) if check.untouched else untouched
    if kind == "done":
        check.open = False
        check.outcome, check.reason, check.detail = text_at(record, "outcome"), text_at(record, "reason"), text_at(record, "detail")
        if record.get("changed"):
            check.after = number_at(record, "tokens_after")


def _open(run: Run) -> Check | None:
    return next((check for check in reversed(run.checks[-8:]) if check.open), None)


def _limits(run: Run, record: Any) -> None:
    run.capacity = number_at(record, "capacity") or run.capacity
    run.trigger = number_at(record, "trigger") or run.trigger
    run.target = number_at(record, "target") or run.target
