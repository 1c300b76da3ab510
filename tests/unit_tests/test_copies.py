"""Copies and pickles: what is frozen or shared between threads can also be copied and sent to another process."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

from langgraph_roundcompact import (
    RoundCompactConfig,
    RoundCompactMiddleware,
    RoundCompactNode,
    RoundCompactor,
    SummaryRejected,
)

CONFIG = RoundCompactConfig(context_window_tokens=8000, keep_recent_messages=0)


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


COPIES = [copy.copy, copy.deepcopy, pickled]


def history() -> list[BaseMessage]:
    messages: list[BaseMessage] = [HumanMessage("Count the words.", id="h")]
    for step in range(20):
        messages += [
            AIMessage("", tool_calls=[{"name": "count", "args": {"page": step}, "id": f"c{step}", "type": "tool_call"}], id=f"a{step}"),
            ToolMessage(f"page {step}: " + "word " * 500, tool_call_id=f"c{step}", id=f"t{step}"),
        ]
    return messages


def compactor(**more: Any) -> RoundCompactor:
    return RoundCompactor(config=CONFIG, tiers=(), **more)


@pytest.mark.parametrize("copied", COPIES, ids=lambda way: way.__name__)
def test_a_copied_compactor_compacts_as_the_first_does(copied: Callable[[Any], Any]) -> None:
    first = compactor()
    expected = first.compact(history())
    assert expected.compacted
    assert copied(first).compact(history()) == expected
    assert copied(first).config == CONFIG


@pytest.mark.parametrize("copied", COPIES, ids=lambda way: way.__name__)
def test_a_copied_node_writes_the_same_update_in_both_colours(copied: Callable[[Any], Any]) -> None:
    node = RoundCompactNode(compactor(), messages_key="chat", channel="replace")
    expected = node.invoke({"chat": history()})
    assert expected["chat"]
    assert copied(node).invoke({"chat": history()}) == expected
    assert asyncio.run(copied(node).ainvoke({"chat": history()})) == expected


@pytest.mark.parametrize("copied", COPIES, ids=lambda way: way.__name__)
def test_a_copied_runnable_gives_the_same_messages_in_both_colours(copied: Callable[[Any], Any]) -> None:
    chain = compactor().as_runnable()
    expected = chain.invoke(history())
    assert len(expected) < len(history())
    assert copied(chain).invoke(history()) == expected
    assert asyncio.run(copied(chain).ainvoke(history())) == expected


@pytest.mark.parametrize("copied", COPIES, ids=lambda way: way.__name__)
def test_a_copied_middleware_keeps_its_name(copied: Callable[[Any], Any]) -> None:
    assert copied(RoundCompactMiddleware(compactor(), name="SummarizationMiddleware")).name == "SummarizationMiddleware"


def test_a_deep_copy_shares_the_model_whose_connections_cannot_be_copied() -> None:
    model = ChatOpenAI(model="gpt-5-mini", api_key="none", base_url="http://localhost:1/v1")
    first = RoundCompactor(model, config=CONFIG)
    assert copy.deepcopy(first)._model is model
    assert copy.deepcopy(RoundCompactNode(first, agent_model=model)).invoke({"messages": history()[:3]}) == {}


def test_a_pickled_compactor_finds_its_named_model_again() -> None:
    """Clients are not pickled: the name is resolved anew."""
    named = RoundCompactConfig(model="gpt-5-mini", model_client={"api_base": "http://localhost:1/v1"})  # type: ignore[arg-type]
    found = pickled(RoundCompactor(config=named))._model
    assert (found.model_name, str(found.openai_api_base)) == ("gpt-5-mini", "http://localhost:1/v1")


def test_a_result_and_its_messages_survive_a_pickle() -> None:
    result = compactor().compact(history())
    assert pickled(result) == result
    assert copy.deepcopy(result) == result


def test_a_rejection_keeps_its_reason_and_its_words() -> None:
    again = pickled(SummaryRejected("blank"))
    assert (again.reason, str(again)) == ("blank", "not a summary: blank")
