"""The player: a conversation goes through the node, message by message."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph.message import add_messages

from langgraph_roundcompact.compactor import RoundCompactor
from langgraph_roundcompact.config import RoundCompactConfig
from langgraph_roundcompact.dump import Recorder
from langgraph_roundcompact.events import CompactionResult
from langgraph_roundcompact.loaders import Conversation
from langgraph_roundcompact.node import RoundCompactNode
from langgraph_roundcompact.replay._checks import pair_failures, state_failures, update_failures
from langgraph_roundcompact.replay._recording import Recording


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayStep:
    """One check, at the place of one model call."""

    position: int
    """Recorded messages that came before it."""
    model_call: bool
    """False for the check at the end of a recording whose last message is an answer."""
    outcome: str
    reason: str
    changed: bool
    compacted: bool
    messages_before: int
    messages_after: int
    tokens_before: int
    """The window when the check began, in tokens."""
    tokens_after: int
    """The window the model would have been sent, in tokens."""
    tokens_recorded: int
    """The window without any compaction, in tokens."""
    summary_tokens: int
    """Tokens the summariser reported, input and output."""
    failures: tuple[str, ...] = ()
    """Invariants that did not hold, one sentence each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """A whole conversation, played."""

    name: str
    messages: int
    steps: tuple[ReplayStep, ...]

    @property
    def calls(self) -> list[ReplayStep]:
        """The steps at which a model was called."""
        return [step for step in self.steps if step.model_call]

    @property
    def failures(self) -> list[str]:
        """Everything that did not hold, each with its place."""
        return [f"message {step.position}: {failure}" for step in self.steps for failure in step.failures]

    @property
    def compactions(self) -> int:
        """Checkpoints that were made."""
        return sum(step.compacted for step in self.steps)

    def as_dict(self) -> dict[str, Any]:
        """Plain data: the figures, and each step at which something was decided."""
        calls = self.calls
        return {
            "name": self.name,
            "messages": self.messages,
            "model_calls": len(calls),
            "compactions": self.compactions,
            "folds_only": sum(step.changed and not step.compacted for step in self.steps),
            "input_tokens_without": sum(step.tokens_recorded for step in calls),
            "input_tokens_with": sum(step.tokens_after for step in calls),
            "summary_tokens": sum(step.summary_tokens for step in self.steps),
            "largest_window_without": max((step.tokens_recorded for step in calls), default=0),
            "largest_window_with": max((step.tokens_after for step in calls), default=0),
            "invariant_failures": self.failures,
            "events": [_step_dict(step) for step in self.steps if step.outcome != "below_trigger"],
        }


def _step_dict(step: ReplayStep) -> dict[str, Any]:
    names = (
        "position",
        "outcome",
        "reason",
        "changed",
        "compacted",
        "messages_before",
        "messages_after",
        "tokens_before",
        "tokens_after",
        "tokens_recorded",
    )
    return {name: getattr(step, name) for name in names} | {"failures": list(step.failures)}


@dataclass(frozen=True, slots=True)
class Request:
    """What a model would have been sent."""

    place: int
    """Recorded messages that came before it."""
    messages: Sequence[BaseMessage]
    tokens: int
    arrived: Sequence[BaseMessage]
    """Recorded messages that are new since the request before."""
    extends: bool
    """Whether it is the request before and what arrived, nothing else."""
    compacted: bool
    """Whether messages were summarised or cut away here."""
    summary_tokens: int
    """What was paid for that, in tokens read and written by the summariser."""


Watch = Callable[[Request], None]


class _Watched(RoundCompactor):
    """A compactor that shows its last result, because the node passes on only the update, and may write its dumps elsewhere."""

    last: CompactionResult | None = None

    def compact(self, input: Any, **given: Any) -> CompactionResult:
        self.last = super().compact(input, **given)
        return self.last

    def record(self, recorder: Recorder | None) -> None:
        self._ports.write_dump = recorder


class Replay:
    """Plays conversations under one configuration.

    Args:
        config: When and how to compact.
        model: The summariser, as for `RoundCompactor`; `None`: rules only.
        recorder: Takes a record of each decision and compaction, as dumps hold them; see `langgraph_roundcompact.report`. Then nothing is
            dumped to disk.

    Example:
        ```python
        replay = Replay(config=RoundCompactConfig(context_window_tokens=20_000))
        for step in replay.steps(load_conversation("talk.jsonl")):
            print(step.position, step.outcome, step.tokens_after)
        ```
    """

    def __init__(self, *, config: RoundCompactConfig, model: Any = None, recorder: Recorder | None = None) -> None:
        if recorder is not None:
            config = config.model_copy(update={"enable_compression_dump": True})
        self.compactor: RoundCompactor = _Watched(model, config=config)
        self._recorder = recorder
        self._node = RoundCompactNode(self.compactor)
        self._record(recorder)

    def steps(self, conversation: Conversation, *, watch: Watch | None = None, recording: Recording | None = None) -> Iterator[ReplayStep]:
        """One step for each model call of the recording, and one at its end. Lazy: a step is computed when it is asked for.

        Args:
            conversation: What to play.
            watch: Told what each model call would have been sent.
            recording: The same conversation as a `Recording`, where the caller has one.
        """
        tape = _Tape(recording or Recording(conversation))
        for place in tape.recording.places:
            arrived = tape.recording.messages[tape.position : place]
            tape.advance(arrived, self.compactor.count_tokens(arrived))
            step = self._step(tape)
            if watch is not None and step.model_call:
                watch(
                    Request(place, tape.state, tape.tokens, tape.arrived, not tape.changed, step.compacted, tape.summary_tokens + step.summary_tokens)
                )
                tape.sent()
            else:
                tape.summary_tokens += step.summary_tokens
            yield step

    def play(self, conversation: Conversation) -> ReplayReport:
        """The whole conversation at once."""
        return report(conversation, self.steps(conversation))

    def _step(self, tape: _Tape) -> ReplayStep:
        before, tokens_before = tape.state, tape.tokens
        update = self._node.invoke({"messages": before}, _config(tape))
        result = self._last()
        failures: list[str] = []
        if update:
            tape.replace(list(add_messages(before, update["messages"])), self.compactor.count_tokens)  # type: ignore[arg-type]
            failures = [*update_failures(before, update["messages"]), *self._failures(tape, before, tokens_before)]
        elif tape.at_end:
            failures = pair_failures(tape.state, tape.recording.faults[tape.position])
        return ReplayStep(
            position=tape.position,
            model_call=tape.recording.is_model_call(tape.position),
            outcome=result.outcome,
            reason=result.reason,
            changed=bool(update),
            compacted=result.compacted,
            messages_before=len(before),
            messages_after=len(tape.state),
            tokens_before=tokens_before,
            tokens_after=tape.tokens,
            tokens_recorded=tape.tokens_recorded,
            summary_tokens=_total(result),
            failures=tuple(failures),
        )

    def _failures(self, tape: _Tape, before: list[BaseMessage], tokens_before: int) -> list[str]:
        """What does not hold after a change."""
        recording, keep = tape.recording, self.compactor.config.keep_recent_messages
        failures = [
            *state_failures(before, tape.state, recording.prints, keep),
            *pair_failures(tape.state, recording.faults[tape.position]),
            *self._again(tape),
        ]
        if tape.tokens >= self.compactor.count_tokens(before):
            failures.append(f"the window went from {tokens_before:,} to {tape.tokens:,} tokens")
        return failures

    def _again(self, tape: _Tape) -> list[str]:
        """A second check right after must do nothing. It is no part of what happened, so it is not recorded."""
        self._record(None)
        again = self._node.invoke({"messages": tape.state}, _config(tape))
        self._record(self._recorder)
        return [f"a second check right after did something again ({self._last().outcome})"] if again else []

    def _record(self, recorder: Recorder | None) -> None:
        if self._recorder is not None and isinstance(self.compactor, _Watched):
            self.compactor.record(recorder)

    def _last(self) -> CompactionResult:
        assert isinstance(self.compactor, _Watched)
        assert self.compactor.last is not None
        return self.compactor.last


def report(conversation: Conversation, steps: Iterator[ReplayStep]) -> ReplayReport:
    """The steps of a conversation as one record."""
    return ReplayReport(name=conversation.name, messages=len(conversation.messages), steps=tuple(steps))


@dataclass(slots=True)
class _Tape:
    """Where a replay stands."""

    recording: Recording
    position: int = 0
    state: list[BaseMessage] = field(default_factory=list)
    tokens: int = 0
    tokens_recorded: int = 0
    arrived: list[BaseMessage] = field(default_factory=list)
    """Since the last request."""
    changed: bool = True
    """Since the last request; also when there was none."""
    summary_tokens: int = 0
    """Paid since the last request."""

    @property
    def at_end(self) -> bool:
        return self.position == len(self.recording.messages)

    def advance(self, arrived: Sequence[BaseMessage], tokens: int) -> None:
        self.state = [*self.state, *arrived]
        self.arrived = [*self.arrived, *arrived]
        self.position += len(arrived)
        self.tokens += tokens
        self.tokens_recorded += tokens

    def replace(self, state: list[BaseMessage], count: Callable[[Sequence[BaseMessage]], int]) -> None:
        self.state, self.tokens, self.changed = state, count(state), True

    def sent(self) -> None:
        self.arrived, self.changed, self.summary_tokens = [], False, 0


def _config(tape: _Tape) -> RunnableConfig:
    return {"configurable": {"thread_id": tape.recording.name}}


def _total(result: CompactionResult) -> int:
    total = (result.usage or {}).get("total_tokens", 0)
    return total if isinstance(total, int) else 0
