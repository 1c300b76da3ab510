"""Arguments that cannot work are refused where they are given, with what to give instead; none is taken for something else in silence."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph

from langgraph_roundcompact import (
    ConfigurationError,
    RoundCompactConfig,
    RoundCompactMiddleware,
    RoundCompactNode,
    RoundCompactor,
    add_round_compaction,
)

CONFIG = RoundCompactConfig(context_window_tokens=8000)
HISTORY = [HumanMessage("go", id="h"), AIMessage("done", id="a")]


async def answer_later(*_: Any) -> Any:
    """Not awaited by anybody."""


class LaterAnswers:
    """An object that is called like an async function."""

    async def __call__(self, *_: Any) -> Any:
        """Not awaited by anybody."""


@tool
def look_up(key: int) -> str:
    """Look something up."""
    return str(key)


@pytest.mark.parametrize("given", [answer_later, LaterAnswers()], ids=["function", "object"])
@pytest.mark.parametrize("name", ["token_counter", "is_real_user", "is_pending", "redact", "on_event", "session_memory"])
def test_an_async_function_is_refused_where_its_answer_is_needed_at_once(name: str, given: Any) -> None:
    """Unawaited it would be truthy: each message a user's, each one pending."""
    with pytest.raises(ConfigurationError, match=f"^{name}=.* cannot be used: give .*async"):
        RoundCompactor(config=CONFIG, **{name: given})


@pytest.mark.parametrize(("name", "given"), [("tiers", [answer_later]), ("reinjectors", {"my:notes": answer_later})])
def test_an_async_tier_or_builder_is_refused(name: str, given: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name}="):
        RoundCompactor(config=CONFIG, **{name: given})


@pytest.mark.parametrize("given", [5, "", (), ("notes",), ("notes", "key"), ((), "key"), (("notes",), 5)], ids=repr)
def test_notes_that_cannot_be_found_are_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^session_memory=.* give a state key, a store item"):
        RoundCompactor(config=CONFIG, session_memory=given)


@pytest.mark.parametrize("given", ["notes", (("notes", "today"), "key"), (["notes"], "key"), dict.get], ids=repr)
def test_each_form_of_notes_is_accepted(given: Any) -> None:
    assert RoundCompactor(config=CONFIG, session_memory=given).compact(HISTORY).reason == "below_threshold"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tools": look_up}, "tools="),
        ({"tools": {"look_up": look_up}}, "give a list of tools"),
        ({"tools": (each for each in [look_up])}, "give a list of tools"),
        ({"tools": "look_up"}, "tools='look_up' cannot be used: give a list of tools"),
        ({"system_message": {"role": "system", "content": "x"}}, "give a text or a SystemMessage"),
        ({"system_message": 3}, "system_message=3 cannot be used"),
    ],
    ids=["one tool", "mapping", "generator", "name", "system mapping", "system number"],
)
def test_what_stands_beside_the_messages_must_be_countable(fields: dict[str, Any], words: str) -> None:
    """A generator would be empty at the second step, a prompt of another type would count as nothing."""
    subject = RoundCompactor(config=CONFIG)
    builder = StateGraph(MessagesState).add_node("agent", lambda state: {"messages": []}).add_edge(START, "agent")
    for way in (
        lambda: RoundCompactNode(subject, **fields),
        lambda: add_round_compaction(builder, subject, **fields),
        lambda: subject.compact(HISTORY, **fields),
        lambda: subject.plan(HISTORY, **fields),
    ):
        with pytest.raises(ConfigurationError) as told:
            way()
        assert words in str(told.value)


@pytest.mark.parametrize(
    "fields",
    [{"tools": [look_up]}, {"tools": (look_up,)}, {"tools": []}, {"system_message": SystemMessage("x")}],
    ids=["list", "tuple", "no tools", "system message"],
)
def test_usual_company_of_the_messages_is_accepted(fields: dict[str, Any]) -> None:
    assert RoundCompactNode(RoundCompactor(config=CONFIG), **fields).invoke({"messages": HISTORY}) == {}


@pytest.mark.parametrize("fields", [{"messages_key": ""}, {"messages_key": None}, {"output_messages_key": ""}, {"output_messages_key": 5}], ids=str)
def test_a_key_is_a_text(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"^{next(iter(fields))}=.* cannot be used: give a text"):
        RoundCompactNode(RoundCompactor(config=CONFIG), **fields)


@pytest.mark.parametrize("fields", [{"persist": "no"}, {"persist": 0}, {"persist": None}, {"name": 5}, {"name": ""}], ids=str)
def test_the_middlewares_settings_are_what_they_look_like(fields: dict[str, Any]) -> None:
    """`persist="no"` would be truthy."""
    with pytest.raises(ConfigurationError, match=f"^{next(iter(fields))}=.* cannot be used: give "):
        RoundCompactMiddleware(RoundCompactor(config=CONFIG), **fields)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "give a list of messages instead of a NoneType"),
        ("hello", "give a list of messages instead of a str"),
        ((each for each in HISTORY), "give a list of messages instead of a generator"),
        (HISTORY[0], "one HumanMessage is no list of messages: give [message]"),
        ({"chat": HISTORY}, "the state has no key 'messages' to read messages from (it has: chat): set messages_key"),
    ],
    ids=["none", "text", "generator", "message", "other key"],
)
def test_an_input_without_messages_says_what_it_is(given: Any, words: str) -> None:
    with pytest.raises(ConfigurationError) as told:
        RoundCompactor(config=CONFIG).compact(given)
    assert words in str(told.value)


def test_a_plan_says_like_a_compaction_that_it_cannot_read_the_messages() -> None:
    subject, odd = RoundCompactor(config=CONFIG), [*HISTORY, 5]
    plan, result = subject.plan(odd), subject.compact(odd)
    assert (plan.would_compact, plan.outcome, plan.reason) == (False, "nothing_to_compact", "unreadable_messages")
    assert (result.outcome, result.reason) == (plan.outcome, plan.reason)


def test_a_thread_may_be_told_by_a_number_as_in_a_graph() -> None:
    assert RoundCompactor(config=CONFIG).compact(HISTORY, thread_id=5).reason == "below_threshold"  # type: ignore[arg-type]
