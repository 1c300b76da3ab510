"""Messages are found in any state shape, and put back into a copy of it."""

from __future__ import annotations

import collections
import dataclasses
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from builders import steps
from langchain_core.messages import HumanMessage
from pydantic import BaseModel, ConfigDict

from langgraph_roundcompact._state import read_key, read_messages, with_messages
from langgraph_roundcompact.errors import ConfigurationError

MESSAGES = steps(1)


@dataclasses.dataclass
class Data:
    messages: list[Any]
    count: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    messages: list[Any]
    plan: str = "p"


class Counted:
    made = 0


@dataclasses.dataclass
class Initialised(Counted):
    messages: list[Any]
    derived: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        Counted.made += 1
        self.derived = Counted.made


class Model(BaseModel):
    messages: list[Any]
    plan: str = "p"


class FrozenModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")
    messages: list[Any]


class Broken:
    @property
    def messages(self) -> list[Any]:
        raise RuntimeError("no")


SHAPES = [
    {"messages": MESSAGES},
    MappingProxyType({"messages": MESSAGES}),
    collections.ChainMap({}, {"messages": MESSAGES}),
    Data(MESSAGES),
    Frozen(MESSAGES),
    Initialised(MESSAGES),
    Model(messages=MESSAGES),
    FrozenModel(messages=MESSAGES, other=3),
    SimpleNamespace(messages=MESSAGES, plan="p"),
]


@pytest.mark.parametrize("state", SHAPES, ids=lambda state: type(state).__name__)
def test_messages_are_read_from_every_shape(state: Any) -> None:
    assert list(read_messages(state, "messages")) == MESSAGES


@pytest.mark.parametrize("state", [MESSAGES, tuple(MESSAGES), collections.deque(MESSAGES)], ids=lambda state: type(state).__name__)
def test_a_list_is_its_own_state(state: Any) -> None:
    assert list(read_messages(state, "messages")) == MESSAGES


def test_any_key_can_hold_the_messages() -> None:
    assert read_messages({"chat": MESSAGES}, "chat") is MESSAGES


def test_none_is_no_messages_and_one_message_is_a_list() -> None:
    message = HumanMessage("x")
    assert list(read_messages({"messages": None}, "messages")) == []
    assert list(read_messages({"messages": message}, "messages")) == [message]


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ({"chat": [], "plan": ""}, "chat, plan"),
        (Data([], 1), "messages, count"),
        (Model(messages=[]), "messages, plan"),
        (None, "none"),
        ("text", "none"),
        (Broken(), "none"),
        ({}, "none"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_missing_key_is_named_with_what_there_is(state: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match="'history'") as told:
        read_messages(state, "history")
    assert says in str(told.value)
    assert "messages_key" in str(told.value)


@pytest.mark.parametrize("value", ["text", 7, {"a": 1}, b"x", (m for m in ())], ids=lambda value: type(value).__name__)
def test_a_key_that_holds_no_list_is_named_with_its_type(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=type(value).__name__):
        read_messages({"messages": value}, "messages")


@pytest.mark.parametrize("state", [*SHAPES, Broken(), None, 3, [1]], ids=lambda state: type(state).__name__)
def test_reading_a_key_never_raises(state: Any) -> None:
    assert read_key(state, "nope", "default") == "default"
    read_key(state, "messages")


@pytest.mark.parametrize("state", SHAPES, ids=lambda state: type(state).__name__)
def test_new_messages_go_into_a_copy_and_the_state_stays(state: Any) -> None:
    new = [HumanMessage("new")]
    copy = with_messages(state, "messages", new)
    assert list(read_messages(copy, "messages")) == new
    assert list(read_messages(state, "messages")) == MESSAGES
    for name in ("count", "plan", "derived", "other"):
        assert read_key(copy, name) == read_key(state, name)


def test_a_copy_is_of_the_same_type_and_is_not_initialised_again() -> None:
    state = Initialised(MESSAGES)
    made = Counted.made
    assert type(with_messages(state, "messages", [])) is Initialised
    assert Counted.made == made


def test_a_bare_list_becomes_the_new_list() -> None:
    assert with_messages(MESSAGES, "messages", []) == []
