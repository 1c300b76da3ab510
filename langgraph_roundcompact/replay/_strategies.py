"""Other ways to keep a window in bounds, played over the same recording.

* `none`: nothing is done. Past the window a real provider refuses; here it goes on, so that there is something to compare with.
* `tail`: `trim_messages` of langchain-core keeps the newest messages that fit, whole answers with their results, and the system prompt.
* `langchain`: `SummarizationMiddleware` of langchain, the real one. The same model makes its summaries; without one a stand-in that says nothing.

All act at the same trigger, count with the same counter, and are given the same target to come down to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from langchain_core.callbacks import get_usage_metadata_callback
from langchain_core.messages import BaseMessage, SystemMessage, trim_messages
from langgraph.graph.message import add_messages

from langgraph_roundcompact.errors import ConfigurationError
from langgraph_roundcompact.replay._player import Request
from langgraph_roundcompact.replay._recording import Recording

Count = Callable[[Sequence[BaseMessage]], int]

SAYS_NOTHING = "The earlier work was done."
"""The summary of the stand-in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What all strategies have in common."""

    trigger: int
    """Act when the window holds so many tokens."""
    target: int
    """Come down to so many tokens."""
    count: Count
    """Tokens of a list of messages."""
    model: Any = None
    """The summariser; None: a stand-in."""


class Strategy(Protocol):
    """A way to keep a window in bounds."""

    def requests(self, recording: Recording) -> Iterator[Request]:
        """What each model call of the recording would have been sent."""


def make_strategy(name: str, limits: Limits) -> Strategy:
    """A strategy by its name.

    Raises:
        ConfigurationError: the name is unknown, or its package is not installed.
    """
    if name not in STRATEGIES:
        msg = f"{name!r} is nothing to compare with: choose from {', '.join(STRATEGIES)}"
        raise ConfigurationError(msg)
    return STRATEGIES[name](limits)


@dataclass(slots=True)
class _Nothing:
    """Sends everything."""

    limits: Limits

    def requests(self, recording: Recording) -> Iterator[Request]:
        tokens = start = 0
        for place in _calls(recording):
            arrived = recording.messages[start:place]
            tokens += self.limits.count(arrived)
            yield Request(place, _Head(recording.messages, place), tokens, arrived, start > 0, False, 0)
            start = place


@dataclass(slots=True)
class _Tail:
    """Sends the newest messages that fit."""

    limits: Limits

    def requests(self, recording: Recording) -> Iterator[Request]:
        tokens = start = 0
        sizes = [self.limits.count([message]) for message in recording.messages]
        system = recording.messages[:1] if recording.messages and isinstance(recording.messages[0], SystemMessage) else []
        for place in _calls(recording):
            arrived, was_whole = recording.messages[start:place], start > 0 and tokens < self.limits.trigger
            tokens += sum(sizes[start:place])
            if tokens < self.limits.trigger:
                yield Request(place, _Head(recording.messages, place), tokens, arrived, was_whole, False, 0)
            else:
                kept = self._newest(_tail_that_may_fit(recording.messages, sizes, place, self.limits.trigger), system)
                yield Request(place, kept, self.limits.count(kept), arrived, False, True, 0)
            start = place

    def _newest(self, messages: Sequence[BaseMessage], system: Sequence[BaseMessage]) -> list[BaseMessage]:
        given = messages if messages[: len(system)] == list(system) else [*system, *messages]
        kept: list[BaseMessage] = trim_messages(
            given,
            max_tokens=self.limits.trigger,
            token_counter=self.limits.count,
            strategy="last",
            include_system=True,
            start_on=("human", "ai"),
        )
        return kept


def _tail_that_may_fit(messages: Sequence[BaseMessage], sizes: Sequence[int], place: int, tokens: int) -> Sequence[BaseMessage]:
    """The end of the list up to well past what fits: the rest would only be counted again at each step."""
    start, room = place, 2 * tokens
    while start and room > 0:
        start -= 1
        room -= sizes[start]
    return messages[start:place]


@dataclass(slots=True)
class _LangChain:
    """Sends what langchain's summarisation makes of the state."""

    limits: Limits
    _state: list[BaseMessage] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._middleware_class()

    def requests(self, recording: Recording) -> Iterator[Request]:
        system, start = _system(recording.messages), 0
        middleware, paid, state = self._middleware(self.limits.count(system) if system else 0), 0, list[BaseMessage]()
        tokens, first = self.limits.count(system) if system else 0, True
        start = len(system)
        for place in _calls(recording):
            arrived = recording.messages[start:place]
            state, tokens = [*state, *arrived], tokens + (self.limits.count(arrived) if arrived else 0)
            with get_usage_metadata_callback() as usage:
                update = middleware.before_model({"messages": state}, None)
            if update:
                state = list(add_messages(state, update["messages"]))  # type: ignore[arg-type]
                tokens = self.limits.count([*system, *state])
            paid = sum(int(one.get("total_tokens", 0)) for one in usage.usage_metadata.values())
            yield Request(place, [*system, *state], tokens, arrived, not update and not first, bool(update), paid)
            start, first = place, False

    def _middleware(self, system_tokens: int) -> Any:
        """The middleware sees no system prompt; so that it acts at the same window, the prompt is taken off its limits."""
        room = {name: max(value - system_tokens, 1) for name, value in (("trigger", self.limits.trigger), ("keep", self.limits.target))}
        return self._middleware_class()(
            model=self.limits.model if self.limits.model is not None else _stand_in(),
            trigger=("tokens", room["trigger"]),
            keep=("tokens", room["keep"]),
            token_counter=self.limits.count,
        )

    @staticmethod
    def _middleware_class() -> Any:
        try:
            from langchain.agents.middleware import SummarizationMiddleware  # noqa: PLC0415 - an extra
        except ImportError as exc:
            msg = f"comparing with langchain needs {exc.name or exc}: pip install 'langgraph-roundcompact[langchain]'"
            raise ConfigurationError(msg) from None
        return SummarizationMiddleware


def _stand_in() -> Any:
    from langgraph_roundcompact.testing import ScriptedChatModel  # noqa: PLC0415 - only here

    return ScriptedChatModel(replies=[SAYS_NOTHING])


def _calls(recording: Recording) -> Iterator[int]:
    return (place for place in recording.places if recording.is_model_call(place))


def _system(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The leading system messages."""
    stop = next((i for i, message in enumerate(messages) if not isinstance(message, SystemMessage)), len(messages))
    return list(messages[:stop])


class _Head(Sequence[BaseMessage]):
    """The first messages of a list, without copying it at every step."""

    def __init__(self, messages: Sequence[BaseMessage], stop: int) -> None:
        self._messages, self._stop = messages, stop

    def __len__(self) -> int:
        return self._stop

    def __getitem__(self, at: Any) -> Any:
        return self._messages[: self._stop][at] if isinstance(at, slice) or at < 0 or at >= self._stop else self._messages[at]

    def __iter__(self) -> Iterator[BaseMessage]:
        return (self._messages[i] for i in range(self._stop))


STRATEGIES: dict[str, Callable[[Limits], Strategy]] = {"none": _Nothing, "tail": _Tail, "langchain": _LangChain}
"""What `make_strategy` knows, by name."""
