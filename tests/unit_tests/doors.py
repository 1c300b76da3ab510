"""What the tests of the doors share: an agent that works for many steps in a small window, and what its requests must look like."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from builders import call
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage
from langchain_core.tools import tool
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from procedures import blocks, compactor, summariser

from langgraph_roundcompact import RoundCompactor
from langgraph_roundcompact.testing import ScriptedChatModel, assert_valid_history

REQUEST = "Sort all invoices of the year by supplier, and keep the list of open ones."


class ByIds(TypedDict):
    """The usual state of an agent."""

    messages: Annotated[list[AnyMessage], add_messages]


@tool
def look_up(key: int) -> str:
    """Look an invoice up.

    Args:
        key: Its number.
    """
    return f"invoice {key}: " + f"line of invoice {key}; " * 60


def working(steps: int, **more: Any) -> ScriptedChatModel:
    """A model that calls `look_up` for so many steps and then says that it is done; beyond its script it fails."""
    calls = [AIMessage(f"next is {key}", tool_calls=[call(f"c{key}", "look_up", key=key)]) for key in range(1, steps + 1)]
    return ScriptedChatModel(replies=[*calls, "all done"], strict=True, **more)


def shared(
    *, trigger: int = 3000, window: int = 4000, notes: ScriptedChatModel | None = None, **more: Any
) -> tuple[RoundCompactor, ScriptedChatModel]:
    """A compactor of usual settings in a small window, and its summariser, which numbers its summaries."""
    notes = notes if notes is not None else summariser(*(f"SUMMARY {number}: invoices so far" for number in range(1, 60)), strict=True)
    return compactor(notes, trigger=trigger, window=window, keep_recent_messages=None, **more), notes


def said(message: BaseMessage) -> tuple[Any, ...]:
    """What a provider is sent of a message."""
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    return message.type, message.content, [(one["name"], one["args"], one["id"]) for one in calls], getattr(message, "tool_call_id", None)


def breaks(requests: Sequence[Sequence[BaseMessage]]) -> list[int]:
    """Indices of requests that are no exact extension of the one before: there the provider's prefix cache is lost."""
    wires = [[said(message) for message in request] for request in requests]
    return [i for i in range(1, len(wires)) if wires[i][: len(wires[i - 1])] != wires[i - 1]]


def check_requests(requests: Sequence[Sequence[BaseMessage]], *, summaries: int, ask: str = REQUEST) -> None:
    """The request verbatim in each, no broken pair, one block at most, and a new prefix only where a summary was made."""
    for request in requests:
        assert [message.content for message in request if message.content == ask] == [ask]
        assert_valid_history(request, pending_ok=False)
        assert len(blocks(request)) <= 1
    assert len(breaks(requests)) <= summaries


def one_node(node: Any, schema: Any = ByIds, **compile_with: Any) -> Any:
    """A graph of one node."""
    builder = StateGraph(schema)
    builder.add_node("agent", node)
    builder.add_edge(START, "agent")
    return builder.compile(**compile_with)


def stream(how: str, graph: Any, value: Any, config: Any = None, **options: Any) -> list[Any]:
    """All parts of a stream, in one colour."""
    if how == "sync":
        return list(graph.stream(value, config, **options))

    async def collected() -> list[Any]:
        return [part async for part in graph.astream(value, config, **options)]

    return asyncio.run(collected())
