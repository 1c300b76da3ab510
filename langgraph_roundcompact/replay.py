"""A recorded conversation played through the node: what would have been compacted when, what it saves, and whether the invariants hold.

Wherever a model call came in the recording (before each AI message) the node sees the state as compaction has left it so far; its update goes
through LangGraph's own reducer, and the recording goes on as it was. Nothing is asked of the recorded agent's model, so the saving shown is
of the input alone, for the same steps. Usage that was recorded is taken out: it tells the size of requests that this replay does not make.

The checks are made from outside, on lists and updates, and share no code with what they check beyond the question who wrote a message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langgraph.graph.message import add_messages

from langgraph_roundcompact._folded import is_folded
from langgraph_roundcompact._memory_block import is_checkpoint, is_own
from langgraph_roundcompact._spans import is_real_user
from langgraph_roundcompact.compactor import RoundCompactor
from langgraph_roundcompact.config import RoundCompactConfig
from langgraph_roundcompact.events import CompactionResult
from langgraph_roundcompact.loaders import Conversation
from langgraph_roundcompact.node import RoundCompactNode
from langgraph_roundcompact.testing import pairing_faults

_USAGE_KEYS = ("token_usage", "usage")


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


class _Watched(RoundCompactor):
    """A compactor that shows its last result: the node passes on only the update."""

    last: CompactionResult | None = None

    def compact(self, input: Any, **given: Any) -> CompactionResult:
        self.last = super().compact(input, **given)
        return self.last


class Replay:
    """Plays conversations under one configuration.

    Args:
        config: When and how to compact.
        model: The summariser, as for `RoundCompactor`; `None`: rules only.

    Example:
        ```python
        replay = Replay(config=RoundCompactConfig(context_window_tokens=20_000))
        for step in replay.steps(load_conversation("talk.jsonl")):
            print(step.position, step.outcome, step.tokens_after)
        ```
    """

    def __init__(self, *, config: RoundCompactConfig, model: Any = None) -> None:
        self.compactor: RoundCompactor = _Watched(model, config=config)
        self._node = RoundCompactNode(self.compactor)

    def steps(self, conversation: Conversation) -> Iterator[ReplayStep]:
        """One step for each model call of the recording, and one at its end. Lazy: a step is computed when it is asked for."""
        tape = _Tape.of(conversation)
        for position in _call_places(tape.recorded):
            arrived = tape.recorded[tape.position : position]
            tape.advance(arrived, self.compactor.count_tokens(arrived))
            yield self._step(tape)

    def play(self, conversation: Conversation) -> ReplayReport:
        """The whole conversation at once."""
        return report(conversation, self.steps(conversation))

    def _step(self, tape: _Tape) -> ReplayStep:
        before, tokens_before = tape.state, tape.tokens
        update = self._node.invoke({"messages": before})
        result = self._last()
        failures: list[str] = []
        if update:
            tape.state = list(add_messages(before, update["messages"]))  # type: ignore[arg-type]
            tape.tokens = self.compactor.count_tokens(tape.state)
            failures = [*_update_faults(before, update["messages"]), *_check(tape, before, self.compactor.config), *self._again(tape.state)]
            if tape.tokens >= self.compactor.count_tokens(before):
                failures.append(f"the window went from {tokens_before:,} to {tape.tokens:,} tokens")
        elif tape.at_end:
            failures = _pair_failures(tape)
        return ReplayStep(
            position=tape.position,
            model_call=not (tape.at_end and isinstance(tape.recorded[-1], AIMessage)),
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

    def _last(self) -> CompactionResult:
        assert isinstance(self.compactor, _Watched)
        assert self.compactor.last is not None
        return self.compactor.last

    def _again(self, state: list[BaseMessage]) -> list[str]:
        """A second check right after must do nothing."""
        again = self._node.invoke({"messages": state})
        return [f"a second check right after did something again ({self._last().outcome})"] if again else []


def report(conversation: Conversation, steps: Iterator[ReplayStep]) -> ReplayReport:
    """The steps of a conversation as one record."""
    return ReplayReport(name=conversation.name, messages=len(conversation.messages), steps=tuple(steps))


@dataclass(slots=True)
class _Tape:
    """Where a replay stands."""

    recorded: list[BaseMessage]
    prints: dict[str, str]
    """What each recorded message looked like when it was loaded, by id."""
    position: int = 0
    state: list[BaseMessage] = field(default_factory=list)
    tokens: int = 0
    tokens_recorded: int = 0

    @classmethod
    def of(cls, conversation: Conversation) -> _Tape:
        recorded = [_without_usage(message) for message in conversation.messages]
        return cls(recorded=recorded, prints={message.id or "": _print(message) for message in recorded})

    @property
    def at_end(self) -> bool:
        return self.position == len(self.recorded)

    def advance(self, arrived: Sequence[BaseMessage], tokens: int) -> None:
        self.state = [*self.state, *arrived]
        self.position += len(arrived)
        self.tokens += tokens
        self.tokens_recorded += tokens


def _call_places(recorded: Sequence[BaseMessage]) -> Iterator[int]:
    """Positions at which a model was called: before each AI message but a leading one; and the end."""
    yield from (i for i, message in enumerate(recorded) if i and isinstance(message, AIMessage))
    yield len(recorded)


def _without_usage(message: BaseMessage) -> BaseMessage:
    if not isinstance(message, AIMessage):
        return message
    metadata = {key: value for key, value in message.response_metadata.items() if key not in _USAGE_KEYS}
    return message.model_copy(update={"usage_metadata": None, "response_metadata": metadata})


def _print(message: BaseMessage) -> str:
    """Every field of a message as text: equal texts mean that nothing was touched, not even in place."""
    return repr((type(message).__name__, message.__dict__, message.model_extra))


def _total(result: CompactionResult) -> int:
    total = (result.usage or {}).get("total_tokens", 0)
    return total if isinstance(total, int) else 0


# --- the checks -----------------------------------------------------------------------------------------------------------------------


def _check(tape: _Tape, before: Sequence[BaseMessage], config: RoundCompactConfig) -> list[str]:
    """Everything that must hold between a list and what compaction made of it."""
    after = tape.state
    start = 1 + max((i for i, message in enumerate(before) if isinstance(message, HumanMessage) and is_real_user(message)), default=-1)
    return [
        *_prefix_failures(tape, before[:start], after[:start]),
        *_survivor_failures(tape, before, after),
        *_tail_failures(tape, before, after, config.keep_recent_messages),
        *_block_failures(after),
        *_pair_failures(tape),
    ]


def _prefix_failures(tape: _Tape, before: Sequence[BaseMessage], after: Sequence[BaseMessage]) -> list[str]:
    """Equal in every field up to the request. Blocks and folds of earlier rounds belong to it and are not as they were loaded."""
    held = [*after, *[None] * (len(before) - len(after))]
    for old, new in zip(before, held, strict=True):
        if new is None or new.id != old.id:
            return [f"message {old.id} of the preserved prefix is gone"]
        if _print(new) != (_print(old) if is_own(old) or is_folded(old) else tape.prints[old.id or ""]):
            return [f"message {old.id} of the preserved prefix changed"]
    return []


def _survivor_failures(tape: _Tape, before: Sequence[BaseMessage], after: Sequence[BaseMessage]) -> list[str]:
    """No new ids, the order kept; what stays is as it was recorded, or the same message with less in it."""
    place = {message.id: i for i, message in enumerate(before)}
    places = [place.get(message.id, -1) for message in after]
    failures = [f"message {message.id} is new" for message, at in zip(after, places, strict=True) if at < 0]
    if places != sorted(places):
        failures.append("messages changed places")
    stays = [(before[place[message.id]], message) for message in after if message.id in place and not is_own(message)]
    failures += [
        f"message {new.id} is neither as recorded nor folded"
        for old, new in stays
        if not (_print(new) == tape.prints[new.id or ""] or _folded(old, new))
    ]
    left = {message.id for message in after}
    failures += [f"system message {message.id} is gone" for message in before if isinstance(message, SystemMessage) and message.id not in left]
    return failures


def _folded(old: BaseMessage, new: BaseMessage) -> bool:
    """Whether a message is another with less in it, in the same place of the same pair."""
    if type(old) is not type(new) or len(str(new.content)) > len(str(old.content)):
        return False
    if isinstance(old, AIMessage) and isinstance(new, AIMessage):
        return [(call["id"], call["name"]) for call in old.tool_calls] == [(call["id"], call["name"]) for call in new.tool_calls]
    return not isinstance(old, ToolMessage) or (isinstance(new, ToolMessage) and old.tool_call_id == new.tool_call_id)


def _tail_failures(tape: _Tape, before: Sequence[BaseMessage], after: Sequence[BaseMessage], keep: int | None) -> list[str]:
    """The messages to keep are at the end, in order, as recorded; by default those that the model has not read, which may be folded."""
    if keep is None:
        last = max((i for i, message in enumerate(before) if isinstance(message, AIMessage)), default=len(before))
        kept = [message for message in before[last:] if not is_own(message)] if not any(map(is_own, before[last:])) else []
    else:
        kept = [message for message in before[max(len(before) - keep, 0) :] if not is_own(message)]
    held = after[len(after) - len(kept) :]
    if [message.id for message in held] != [message.id for message in kept]:
        return [f"the {len(kept)} messages to keep are no longer the end of the list"]
    if keep is None:
        return []
    return [f"message {message.id} of the protected tail changed" for message in held if _print(message) != tape.prints[message.id or ""]]


def _block_failures(after: Sequence[BaseMessage]) -> list[str]:
    """At most one block in each round; as a call and its result it is two messages."""
    failures, blocks = [], 0
    for i, message in enumerate(after):
        if isinstance(message, HumanMessage) and is_real_user(message):
            blocks = 0
        elif is_checkpoint(message):
            blocks += not (isinstance(message, ToolMessage) and isinstance(after[i - 1], AIMessage) and is_checkpoint(after[i - 1]))
            if blocks > 1:
                failures.append(f"a second memory block in one round, at {i}")
    return failures


def _pair_failures(tape: _Tape) -> list[str]:
    """Pairs no worse than the recording's own."""
    recorded, now = pairing_faults(tape.recorded[: tape.position]), pairing_faults(tape.state)
    return [f"{len(now)} pairing faults instead of {len(recorded)}: {now[-1]}"] if len(now) > len(recorded) else []


def _update_faults(before: Sequence[BaseMessage], update: Sequence[BaseMessage]) -> list[str]:
    known = {message.id for message in before}
    return [
        f"the update removes {message.id}, which is not in the state"
        for message in update
        if isinstance(message, RemoveMessage) and message.id not in known
    ]
