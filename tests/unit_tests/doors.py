"""What the tests of the doors share: an agent that works for many steps in a small window, and what its requests must look like."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypedDict

from builders import call
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from procedures import blocks, compactor, summariser

from langgraph_roundcompact import RoundCompactNode, RoundCompactor, add_round_compaction, round_compact_messages
from langgraph_roundcompact.testing import ScriptedChatModel, assert_valid_history

REQUEST = "Sort all invoices of the year by supplier, and keep the list of open ones."
ASK: Any = {"messages": [HumanMessage(REQUEST, id="h")]}
"""The state in which an agent begins."""


class ByIds(TypedDict):
    """The usual state of an agent."""

    messages: Annotated[list[AnyMessage], add_messages]


class Merged(TypedDict):
    """The same, merged by the package's own reducer."""

    messages: Annotated[list[AnyMessage], round_compact_messages]


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


def agent_loop(
    model: ScriptedChatModel, subject: RoundCompactor, *, door: str = "wrapper", schema: Any = ByIds, tools: Any = None, approve: Any = False
) -> StateGraph[Any, Any, Any, Any]:
    """The builder of an agent of one's own, model and tools in turn, with compaction in front of the model.

    Args:
        model: The agent's model.
        subject: What compacts.
        door: `"wrapper"`, or `"node"` for a node between tools and model.
        schema: The graph's state.
        tools: A tool node; by default one with `look_up`.
        approve: Whether the door asks before a checkpoint is applied.
    """
    builder = StateGraph(schema)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", tools if tools is not None else ToolNode([look_up]))
    builder.add_conditional_edges("agent", tools_condition)
    if door == "wrapper":
        add_round_compaction(builder, subject, approve=approve)
        first = "agent"
    else:
        builder.add_node("compact", RoundCompactNode(subject, approve=approve))
        builder.add_edge("compact", "agent")
        first = "compact"
    builder.add_edge(START, first)
    builder.add_edge("tools", first)
    return builder


def thread(name: str) -> Any:
    """The configuration of a thread."""
    return {"configurable": {"thread_id": name}}


def run_anew(how: str, path: Any, build: Callable[[Any], Any], value: Any, config: Any) -> Any:
    """Run the graph that `build(saver)` makes, on the SQLite file at `path`, as a new process would: its own connection, its own event loop."""
    if how == "sync":
        with SqliteSaver.from_conn_string(str(path)) as saver:
            return build(saver).invoke(value, config)

    async def awaited() -> Any:
        async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
            return await build(saver).ainvoke(value, config)

    return asyncio.run(awaited())
