"""A recorded conversation, and what is known of it before it is played: where models were called, what they were asked, and its own faults."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langgraph_roundcompact._content import text_of
from langgraph_roundcompact._extract import extract_facts
from langgraph_roundcompact._groups import declared_calls
from langgraph_roundcompact._spans import is_real_user
from langgraph_roundcompact.loaders import Conversation
from langgraph_roundcompact.testing import pairing_faults

_USAGE_KEYS = ("token_usage", "usage")
_CLOSED = HumanMessage("")
"""Stands for whatever comes next: calls that are open before it stay unanswered."""

MOST_FACTS = 4_000
"""Facts of one round that are looked for; of more, every second, third, … one."""

_MOST_SEARCHED = 2_000_000
"""Characters of a round in which its facts are looked up; in a longer one they are taken on trust."""


@dataclass(frozen=True, slots=True)
class RoundEnd:
    """The last model call of a round."""

    request: int
    """Index of the request, a real user message."""
    place: int
    """Recorded messages before that call."""


class FaultCount:
    """Broken pairs in a list that grows, each part of it read once.

    An AI message begins a new part: what is open before it stays broken.
    """

    def __init__(self, messages: Iterable[BaseMessage] = ()) -> None:
        self._closed = 0
        self._open: list[BaseMessage] = []
        self.extend(messages)

    def extend(self, messages: Iterable[BaseMessage]) -> None:
        """More messages."""
        for message in messages:
            if isinstance(message, AIMessage) and self._open:
                self._closed += len(pairing_faults([*self._open, _CLOSED]))
                self._open = []
            self._open.append(message)

    @property
    def total(self) -> int:
        """Faults so far; calls at the end may still be open."""
        return self._closed + len(pairing_faults(self._open))


class Recording:
    """A conversation without the usage its providers reported, which tells the size of requests that a replay does not make."""

    def __init__(self, conversation: Conversation) -> None:
        self.name = conversation.name
        self.messages = [_without_usage(message) for message in conversation.messages]
        self.places = [i for i, message in enumerate(self.messages) if i and isinstance(message, AIMessage)] + [len(self.messages)]
        """Where a model was called, each as the number of messages before it: before each AI message but a leading one; and the end."""
        self.prints = {message.id or "": fingerprint(message) for message in self.messages}
        """What each message looked like when it was loaded, by id. Taken before anything is played."""

    def is_model_call(self, place: int) -> bool:
        """False for the end of a recording whose last message is an answer."""
        return not (place == len(self.messages) and isinstance(self.messages[-1], AIMessage))

    @cached_property
    def faults(self) -> dict[int, int]:
        """Broken pairs that the recording itself has before each place."""
        count, found, start = FaultCount(), dict[int, int](), 0
        for place in self.places:
            count.extend(self.messages[start:place])
            found[place], start = count.total, place
        return found

    @cached_property
    def requests(self) -> dict[int, int | None]:
        """Index of the request in force at each place; None: nobody has asked anything yet."""
        found: dict[int, int | None] = {}
        start, request = 0, None
        for place in self.places:
            for i in range(start, place):
                request = i if is_real_user(self.messages[i]) else request
            found[place], start = request, place
        return found

    @cached_property
    def round_ends(self) -> dict[int, RoundEnd]:
        """The last model call of each round in which work had been done, by its place."""
        last: dict[int, int] = {}
        for place in self.places:
            request = self.requests[place]
            if request is not None and self.is_model_call(place) and place > request + 1:
                last[request] = place
        return {place: RoundEnd(request, place) for request, place in last.items()}

    @cached_property
    def facts(self) -> dict[int, tuple[str, ...]]:
        """Exact texts in the work of each round, by the place of its last model call: what the package's own ledger would take from it."""
        return {place: self._facts_of(end) for place, end in self.round_ends.items()}

    def _facts_of(self, end: RoundEnd) -> tuple[str, ...]:
        """The facts that can be found as they are: some are put together from several places, which nobody keeps verbatim."""
        work = self.messages[end.request + 1 : end.place]
        facts = extract_facts(work, request=text_of(self.messages[end.request]))
        texts = list(dict.fromkeys(fact.text for fact in sorted(facts, key=lambda fact: (fact.order, fact.kind, fact.text))))
        texts = texts[:: max(-(-len(texts) // MOST_FACTS), 1)]
        said = "\n".join(map(visible, work))
        return tuple(text for text in texts if len(said) > _MOST_SEARCHED or stands_in(text, said))


def visible(message: BaseMessage) -> str:
    """What a model reads of a message: its text, and the arguments of its calls."""
    calls = [f"{call.name} {_arguments(call.args)}" for call in declared_calls(message)]
    return "\n".join([text_of(message), *calls])


def stands_in(string: str, text: str) -> bool:
    """Whether a string stands in a text as it is, or as JSON writes it."""
    return string in text or ((escaped := json.dumps(string, ensure_ascii=False)[1:-1]) != string and escaped in text)


def _arguments(value: Any) -> str:
    try:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def fingerprint(message: BaseMessage) -> str:
    """Every field of a message: equal prints mean that nothing was touched, not even in place."""
    told = repr((type(message).__name__, message.__dict__, message.model_extra))
    return hashlib.blake2b(told.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def same_on_the_wire(first: BaseMessage, second: BaseMessage) -> bool:
    """Whether a provider is sent the same for both."""
    if first is second:
        return True
    names = ("type", "content", "name", "tool_calls", "invalid_tool_calls", "tool_call_id", "status")
    return all(getattr(first, name, None) == getattr(second, name, None) for name in names)


def common_prefix(first: Sequence[BaseMessage], second: Sequence[BaseMessage]) -> int:
    """How many messages at the beginning of two requests are the same."""
    for i, (one, other) in enumerate(zip(first, second, strict=False)):
        if not same_on_the_wire(one, other):
            return i
    return min(len(first), len(second))


def _without_usage(message: BaseMessage) -> BaseMessage:
    if not isinstance(message, AIMessage):
        return message
    metadata = {key: value for key, value in message.response_metadata.items() if key not in _USAGE_KEYS}
    return message.model_copy(update={"usage_metadata": None, "response_metadata": metadata})
