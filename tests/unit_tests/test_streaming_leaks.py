"""Streams in larger graphs: no word of the summariser in `messages`, its events tagged, and what happened told in `custom` with its reason.

`test_doors_streaming` has the plain doors; here they stand in subgraphs, beside tools, behind consent, and with summarisers of many kinds.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from builders import call
from doors import REQUEST, ByIds, look_up, one_node, stream
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command
from procedures import BOTH, compactor, history, snapshot, summariser

from langgraph_roundcompact import RoundCompactMiddleware, RoundCompactNode, RoundCompactor, add_round_compaction, create_compact_tool
from langgraph_roundcompact.testing import ScriptedChatModel

SECRET = "WHISPERED"
STEPS = 10
DOORS = pytest.mark.parametrize("door", ["middleware", "request only", "node", "wrapper", "by hand"])


def whispering() -> ScriptedChatModel:
    """A summariser whose every word is recognised."""
    return summariser(*(f"{SECRET} {number}" for number in range(40)))


def subject(notes: Any = None, **more: Any) -> RoundCompactor:
    return compactor(notes if notes is not None else whispering(), **{"trigger": 1500, "window": 2500, "keep_recent_messages": None, **more})


def working() -> ScriptedChatModel:
    calls = [AIMessage(f"next is {key}", tool_calls=[call(f"c{key}", "look_up", key=key)]) for key in range(1, STEPS + 1)]
    return ScriptedChatModel(replies=[*calls, "all done"], strict=True)


def agent(door: str, ours: RoundCompactor, model: Any) -> Any:
    """An agent that works with tools, by each door; `by hand`: the model node calls `compact` itself."""
    if door in ("middleware", "request only"):
        return create_agent(model, [look_up], middleware=[RoundCompactMiddleware(ours, persist=door == "middleware")])
    builder = StateGraph(ByIds)
    first = "agent"
    if door == "by hand":

        def think(state: ByIds) -> Any:
            result = ours.compact(state)
            return {"messages": [*result.update.get("messages", ()), model.invoke(result.messages)]}

        async def athink(state: ByIds) -> Any:
            result = await ours.acompact(state)
            return {"messages": [*result.update.get("messages", ()), await model.ainvoke(result.messages)]}

        builder.add_node("agent", RunnableLambda(think, afunc=athink))
    else:
        builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode([look_up]))
    if door == "node":
        first = "compact"
        builder.add_node(first, RoundCompactNode(ours))
        builder.add_edge(first, "agent")
    elif door == "wrapper":
        add_round_compaction(builder, ours)
    builder.add_edge(START, first)
    builder.add_conditional_edges("agent", tools_condition, {"tools": "tools", END: END})
    builder.add_edge("tools", first)
    return builder.compile()


def inside(graph: Any, depth: int) -> Any:
    """The graph as a node of a graph, so many times."""
    for level in range(depth):
        builder = StateGraph(ByIds)
        builder.add_node(f"level{level}", graph)
        builder.add_edge(START, f"level{level}")
        graph = builder.compile()
    return graph


def started() -> dict[str, Any]:
    return {"messages": [HumanMessage(REQUEST, id="h")]}


FAR = {"recursion_limit": 200}


@BOTH
@DOORS
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_no_word_of_the_summary_in_messages(how: str, door: str, depth: int) -> None:
    """All four modes at once, with subgraphs: each note of the agent once, word by word, and each result; of the summariser nothing."""
    notes = whispering()
    graph = inside(agent(door, subject(notes), working()), depth)
    parts = stream(how, graph, started(), FAR, stream_mode=["values", "updates", "messages", "custom"], subgraphs=True)
    assert len(notes.requests) >= 2
    said = [part[0] for _, mode, part in parts if mode == "messages"]
    assert not [chunk for chunk in said if SECRET in str(chunk.content) or "memory_block" in str(chunk.content)]
    assert (
        "".join(str(chunk.content) for chunk in said if chunk.type != "tool" and chunk.type != "human")
        == "".join(f"next is {key}" for key in range(1, STEPS + 1)) + "all done"
    )
    assert [str(chunk.content).split(":")[0] for chunk in said if chunk.type == "tool"] == [f"invoice {key}" for key in range(1, STEPS + 1)]
    phases = [part["phase"] for _, mode, part in parts if mode == "custom"]
    assert phases == ["started", "finished"] * (len(phases) // 2)
    assert len(phases) // 2 == len(notes.requests)


@DOORS
@pytest.mark.parametrize("depth", [0, 1])
async def test_every_event_of_the_summariser_carries_the_tag(door: str, depth: int) -> None:
    """`astream_events` v2, in subgraphs too: whoever leaves out `nostream` sees no word of it from a model."""
    notes = whispering()
    graph = inside(agent(door, subject(notes), working()), depth)
    events = [event async for event in graph.astream_events(started(), FAR, version="v2")]
    of_model = [event for event in events if event["event"].startswith("on_chat_model")]
    hidden = [event for event in of_model if "nostream" in event.get("tags", ())]
    assert sum(event["event"] == "on_chat_model_end" for event in hidden) == len(notes.requests) >= 2
    assert {event["metadata"]["lc_source"] for event in hidden} == {"round_compaction"}
    shown = [event for event in of_model if "nostream" not in event.get("tags", ())]
    words = [event["data"]["chunk"].content for event in shown if event["event"] == "on_chat_model_stream"]
    assert SECRET not in "".join(map(str, words))
    assert not [event for event in shown if SECRET in str(event["data"].get("output", ""))]


def the_agents_kind(notes: ScriptedChatModel) -> Any:
    """A summariser that is a graph of its own."""
    graph = create_agent(notes, [])
    return RunnableLambda(
        lambda messages: graph.invoke({"messages": messages})["messages"][-1], afunc=lambda messages: _last(graph.ainvoke({"messages": messages}))
    )


async def _last(state: Any) -> BaseMessage:
    return list((await state)["messages"])[-1]


async def _streamed(model: Any, messages: Any) -> str:
    return "".join([str(chunk.content) async for chunk in model.astream(messages)])


KINDS: dict[str, Any] = {
    "graph": the_agents_kind,
    "streaming lambda": lambda notes: RunnableLambda(
        lambda messages: "".join(str(chunk.content) for chunk in notes.stream(messages)), afunc=lambda messages: _streamed(notes, messages)
    ),
    "tagged": lambda notes: notes.with_config(tags=["mine"], metadata={"mine": 1}),
    "chain": lambda notes: RunnableLambda(list) | notes | RunnableLambda(lambda message: message.content),
}


@BOTH
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("time_limit", [0.0, 30.0])
def test_whatever_the_summariser_is(how: str, kind: str, time_limit: float) -> None:
    """The tag reaches each model inside of it, through the thread of a time limit as well."""
    notes = whispering()
    graph = agent("middleware", subject(KINDS[kind](notes), timeout_seconds=time_limit), working())
    parts = stream(how, graph, started(), FAR, stream_mode=["messages", "custom"], subgraphs=True)
    assert len(notes.requests) >= 2
    assert not [part for _, mode, part in parts if mode == "messages" and SECRET in str(part[0].content)]
    assert "all done" in "".join(str(part[0].content) for _, mode, part in parts if mode == "messages")


@BOTH
def test_the_agents_own_wish_streams_like_any_step(how: str) -> None:
    """The tool's call and result show, the summary they bring about does not."""
    ours = subject(trigger=100_000, window=200_000)
    calls = [AIMessage("", tool_calls=[call(f"c{key}", "look_up", key=key)]) for key in (1, 2)]
    wish = AIMessage("", tool_calls=[call("ask", "compact_conversation", focus="open ones")])
    model = ScriptedChatModel(replies=[*calls, wish, "all done"], strict=True)
    graph = create_agent(model, [look_up, create_compact_tool(ours)], middleware=[RoundCompactMiddleware(ours)])
    parts = stream(how, graph, started(), stream_mode=["messages", "custom"])
    told = [part for mode, part in parts if mode == "custom"]
    assert [(part["phase"], part["reason"]) for part in told] == [("started", "forced"), ("finished", "forced")]
    said = [part[0] for mode, part in parts if mode == "messages"]
    assert [chunk.name for chunk in said if chunk.type == "tool"] == ["look_up", "look_up", "compact_conversation"]
    assert SECRET not in str([chunk.content for chunk in said])


@BOTH
def test_consent_streams_nothing_but_the_interrupt(how: str) -> None:
    """The text is shown in the interrupt alone; after the resume the answer streams."""
    model = ScriptedChatModel(replies=["all done"])
    builder = StateGraph(ByIds)
    builder.add_node("compact", RoundCompactNode(subject(trigger=1000, keep_recent_messages=0), approve=True))
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_edge(START, "compact")
    builder.add_edge("compact", "agent")
    graph, thread = builder.compile(checkpointer=InMemorySaver()), {"configurable": {"thread_id": "t"}}
    first = stream(how, graph, {"messages": history(1, 2)}, thread, stream_mode=["messages", "updates"])
    assert [mode for mode, _ in first] == ["updates"]
    assert SECRET in str(first[0][1]["__interrupt__"][0].value["summary"])
    second = stream(how, graph, Command(resume="accept"), thread, stream_mode="messages")
    assert "".join(str(chunk.content) for chunk, _ in second) == "all done"


# --- what is told -----------------------------------------------------------------------------------------------------------------------


def told_by(how: str, ours: RoundCompactor, messages: list[Any], **more: Any) -> list[dict[str, Any]]:
    """What the `custom` stream of one step holds."""
    return stream(how, one_node(RoundCompactNode(ours, **more)), {"messages": messages}, stream_mode="custom")


NATIVE = ScriptedChatModel(replies=["x"]).bind(context_management=[{"type": "compaction", "compact_threshold": 1000}])


@BOTH
@pytest.mark.parametrize(
    ("ours", "more", "phases", "outcome", "reason"),
    [
        (subject, {}, ["started", "finished"], "summarised", "reached_threshold"),
        (lambda: subject(None, summariser="digest"), {}, ["started", "finished"], "digested", "digest_chosen"),
        (lambda: subject(summariser(ValueError("no")), max_retries=0), {}, ["started", "failed"], "failed", "unknown"),
        (lambda: subject(summariser(TimeoutError("no")), max_retries=0), {}, ["started", "failed"], "failed", "timeout"),
        (lambda: subject(summariser("y " * 30_000)), {}, ["started", "skipped"], "no_benefit", "not_smaller"),
        (subject, {"approve": lambda review: False}, ["started", "skipped"], "stood_down", "rejected"),
        (subject, {"agent_model": NATIVE}, ["skipped"], "stood_down", "native_compaction"),
        (lambda: subject(redact=lambda text: 1 / 0), {}, ["started", "failed"], "failed", "redact_refused"),
        (lambda: subject(trigger=100_000), {}, [], None, None),
    ],
)
def test_each_end_is_told_with_reason_and_tokens(how: str, ours: Any, more: Any, phases: list[str], outcome: Any, reason: Any) -> None:
    """A UI needs nothing else to say what happened; what failed says no word of what was refused."""
    told = told_by(how, ours(), history(1, 2, 3), **more)
    assert [part["phase"] for part in told] == phases
    assert all(part["type"] == "round_compaction" for part in told)
    if phases:
        assert (told[-1]["outcome"], told[-1]["reason"]) == (outcome, reason)
        assert told[-1]["tokens_before"] > 0
        assert told[-1]["tokens_after"] <= told[-1]["tokens_before"]
        assert (told[-1]["tokens_after"] < told[-1]["tokens_before"]) is (phases[-1] == "finished")


@BOTH
def test_a_cool_down_is_told(how: str) -> None:
    ours = subject(summariser(*[ValueError("no")] * 9), max_retries=0)
    told_by(how, ours, history(1, 2, 3))
    (told,) = told_by(how, ours, history(1, 2, 3, 4))
    assert (told["phase"], told["outcome"], told["reason"]) == ("skipped", "cooling_down", "cooldown")


@BOTH
def test_what_is_told_is_plain_data(how: str) -> None:
    """It crosses HTTP as it is."""
    import json

    told = told_by(how, subject(), history(1, 2, 3))
    assert json.loads(json.dumps(told)) == told


@BOTH
def test_inside_a_chain_within_a_node(how: str) -> None:
    """`compactor.as_runnable() | model` in a node: the answer streams, the summary does not."""
    model = ScriptedChatModel(replies=["the answer"])
    chain = subject(trigger=1000).as_runnable() | model

    async def athink(state: ByIds) -> Any:
        return {"messages": [await chain.ainvoke(state["messages"])]}

    def think(state: ByIds) -> Any:
        return {"messages": [chain.invoke(state["messages"])]}

    parts = stream(how, one_node(athink if how == "async" else think), {"messages": history(1, 2, 3)}, stream_mode="messages")
    assert "".join(str(chunk.content) for chunk, _ in parts) == "the answer"
    assert "memory_block" in str(model.requests[0])


def test_many_runs_at_once_stay_apart() -> None:
    """Eight streams of one compactor: each holds its own words and its own events, in order."""

    def echo(messages: list[BaseMessage]) -> str:
        return f"answer to {messages[0].content}"

    graph = agent("wrapper", subject(ScriptedChatModel(replies=[snapshot(f"{SECRET} here")]), trigger=1000), ScriptedChatModel(replies=[echo]))

    async def one(number: int) -> tuple[str, list[str]]:
        given = {"messages": history(1, 2, 3, ask=f"task {number}")}
        parts = [part async for part in graph.astream(given, stream_mode=["messages", "custom"])]
        said = "".join(str(part[0].content) for mode, part in parts if mode == "messages")
        return said, [part["phase"] for mode, part in parts if mode == "custom"]

    async def together() -> list[Any]:
        return list(await asyncio.gather(*(one(number) for number in range(8))))

    assert asyncio.run(together()) == [(f"answer to task {number}", ["started", "finished"]) for number in range(8)]
