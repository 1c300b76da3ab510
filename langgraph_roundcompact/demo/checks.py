"""What the demo claims, checked against what really was sent, stored and found."""

from __future__ import annotations

from dataclasses import dataclass

from langgraph_roundcompact.demo.agent import Demo, Step
from langgraph_roundcompact.demo.script import report_of, visible_todos
from langgraph_roundcompact.demo.tools import count_definitions, python_files
from langgraph_roundcompact.testing import pairing_faults

LEAST_COMPACTIONS = 4


@dataclass(frozen=True, slots=True)
class Check:
    """One claim."""

    passed: bool
    text: str
    """The claim with its figures."""


def check(demo: Demo) -> list[Check]:
    """All claims about a finished run."""
    steps = demo.steps
    return [
        _request(demo),
        _pairs(steps),
        _todos(steps),
        _window(demo),
        _compactions(steps),
        _state(demo),
        _answer(demo),
    ]


def _request(demo: Demo) -> Check:
    """Every field of the message is compared, not the text alone."""
    held = sum(demo.question in step.request for step in demo.steps)
    return Check(held == len(demo.steps) > 0, f"the user's request is verbatim in {held} of {len(demo.steps)} requests")


def _pairs(steps: list[Step]) -> Check:
    broken = sum(len(pairing_faults(step.request)) for step in steps)
    return Check(broken == 0, f"broken pairs of calls and results: {broken}")


def _todos(steps: list[Step]) -> Check:
    after = [step for step in steps if step.compacted and step.todos]
    held = sum(_same_work(visible_todos(step.request), step.todos) for step in after)
    return Check(held == len(after), f"the list of work is visible after {held} of {len(after)} checkpoints")


def _same_work(seen: list[dict[str, str]] | None, todos: list[dict[str, str]]) -> bool:
    """The recovered context lists what is done behind what is open, so order does not count."""
    return seen is not None and sorted(map(str, seen)) == sorted(map(str, todos))


def _window(demo: Demo) -> Check:
    largest = max((step.tokens for step in demo.steps), default=0)
    return Check(largest <= demo.window, f"the largest request had {largest:,} tokens, the window has {demo.window:,}")


def _compactions(steps: list[Step]) -> Check:
    count = sum(step.compacted for step in steps)
    return Check(count >= LEAST_COMPACTIONS, f"checkpoints made in one round: {count} (at least {LEAST_COMPACTIONS})")


def _state(demo: Demo) -> Check:
    """What a restarted process would go on with: the last request and the last answer, as the database has them."""
    stored = demo.state.get("messages", [])
    sent = [*demo.steps[-1].request[1:], demo.steps[-1].answer] if demo.steps else []
    return Check(bool(sent) and stored == sent, f"the state read back from SQLite is the one the agent ended with ({len(stored)} messages)")


def _answer(demo: Demo) -> Check:
    """The report, against one made without any agent."""
    paths = [path for path, _ in python_files(demo.root)[: demo.task.modules]]
    wanted = report_of([(path, count_definitions(demo.root / path, demo.folder)) for path in paths])
    got = demo.steps[-1].answer.text if demo.steps else ""
    return Check(
        got == wanted, f"the agent's report on {len(paths)} modules is right" if got == wanted else f"the agent's report is wrong: {got[:200]!r}"
    )
