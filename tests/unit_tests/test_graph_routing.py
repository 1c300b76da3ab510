"""Ways through a graph that compacts: hand-overs between graphs, fan-out, siblings in the same step, retries, caches, durability.

`test_doors_wrapper.py` has each way to the model node (`goto`, `Send`, edges without a map), what a node may return, and what `Send` hands over.
"""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from builders import call
from doors import ASK, ByIds, Merged, agent_loop, check_requests, look_up, run_anew, said, shared, stream, thread, working
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.tools import tool
from langgraph.cache.memory import InMemoryCache
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from langgraph.prebuilt import ToolNode
from langgraph.store.memory import InMemoryStore
from langgraph.types import CachePolicy, Command, RetryPolicy, Send
from procedures import BOTH, blocks, compactor, go, history, ids, summariser

from langgraph_roundcompact import (
    RoundCompactMiddleware,
    RoundCompactNode,
    StoreArchive,
    add_round_compaction,
    round_compact_messages_delta,
)
from langgraph_roundcompact.testing import ScriptedChatModel, assert_valid_history


class Delta(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]


class OurDelta(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(round_compact_messages_delta)]


BY_ID = pytest.mark.parametrize("schema", [ByIds, Merged, Delta, OurDelta])


# --- siblings in the step of the compaction --------------------------------------------------------------------------------------------


def compacting(builder: Any, door: str, name: str) -> None:
    """A node `name` in which the compaction happens."""
    if door == "wrapper":
        builder.add_node(name, lambda state: {"messages": [AIMessage(f"saw {len(state['messages'])}", id="answer")]})
        add_round_compaction(builder, compactor(summariser("NOTES")), before=name)
    else:
        builder.add_node(name, RoundCompactNode(compactor(summariser("NOTES"))))


@BOTH
@BY_ID
@pytest.mark.parametrize("door", ["wrapper", "node"])
@pytest.mark.parametrize("name", ["aa", "zz"])
def test_what_siblings_write_in_the_step_of_the_compaction_stays(how: str, schema: Any, door: str, name: str) -> None:
    """Two branches append beside it, whatever the order of the nodes' names; and the thread read again is the list that ran."""
    builder = StateGraph(schema)
    compacting(builder, door, name)
    for sibling in ("mm", "nn"):
        builder.add_node(sibling, lambda state, of=sibling: {"messages": [AIMessage(f"finding of {of}", id=of)]})
    for node in (name, "mm", "nn"):
        builder.add_edge(START, node)
    graph = builder.compile(checkpointer=InMemorySaver())
    after = go(how, graph, {"messages": history(1, 2)}, thread("siblings"))["messages"]
    assert (ids(after)[:2], blocks(after)) == (["h", "a1"], [1])
    assert sorted(ids(after)[2:]) == sorted(["mm", "nn", *(["answer"] if door == "wrapper" else [])])
    assert graph.get_state(thread("siblings")).values["messages"] == after


@BOTH
@BY_ID
@pytest.mark.parametrize("door", ["wrapper", "node"])
def test_workers_of_a_fan_out_append_while_the_agent_compacts(how: str, schema: Any, door: str) -> None:
    """Three `Send` workers and the compacting node run in one step: three findings, one block, the request first."""
    builder = StateGraph(schema)
    compacting(builder, door, "agent")
    builder.add_node("worker", lambda job: {"messages": [AIMessage(f"part {job['part']} done", id=f"w{job['part']}")]})
    builder.add_conditional_edges(START, lambda state: ["agent", *(Send("worker", {"part": part}) for part in range(3))], ["agent", "worker"])
    after = go(how, builder.compile(), {"messages": history(1, 2)})["messages"]
    assert (ids(after)[:2], blocks(after)) == (["h", "a1"], [1])
    assert {"w0", "w1", "w2"} <= {*ids(after)}
    assert len(after) == 5 + (door == "wrapper")
    assert_valid_history(after, pending_ok=False)


def three_calls(number: int) -> AIMessage:
    return AIMessage("", tool_calls=[call(f"c{number}{part}", "look_up", key=10 * number + part) for part in (1, 2, 3)])


@BOTH
@pytest.mark.parametrize("schema", [Merged, OurDelta])
@pytest.mark.parametrize("door", ["wrapper", "node"])
def test_a_long_run_with_a_fan_out_at_each_step(how: str, schema: Any, door: str) -> None:
    """Sixteen steps of three parallel calls, each call its own `Send`, joined before the model: every request valid, the findings in the block."""
    subject, notes = shared(trigger=4000, window=6000)
    model = ScriptedChatModel(replies=[*(three_calls(number) for number in range(1, 17)), "all done"], strict=True)
    tools = ToolNode([look_up])
    builder = StateGraph(schema)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("one", lambda job: tools.invoke([job]))
    builder.add_node("join", lambda state: {})

    def fan_out(state: Any) -> Any:
        last = state["messages"][-1]
        return [Send("one", {**one, "type": "tool_call"}) for one in last.tool_calls] or END

    builder.add_conditional_edges("agent", fan_out, ["one", END])
    builder.add_edge("one", "join")
    first = "agent"
    if door == "wrapper":
        add_round_compaction(builder, subject)
    else:
        builder.add_node("compact", RoundCompactNode(subject))
        builder.add_edge("compact", "agent")
        first = "compact"
    builder.add_edge(START, first)
    builder.add_edge("join", first)
    graph = builder.compile(checkpointer=InMemorySaver())
    after = go(how, graph, ASK, {**thread("fan"), "recursion_limit": 200})["messages"]
    assert len(model.requests) == 17
    assert len(notes.requests) >= 3
    check_requests(model.requests, summaries=len(notes.requests))
    assert graph.get_state(thread("fan")).values["messages"] == after


# --- from graph to graph ---------------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("door", ["wrapper", "node"])
def test_two_graphs_that_hand_over_to_each_other(how: str, door: str) -> None:
    """`Command(graph=PARENT)` out of subgraphs that compact, fifteen times: each model request valid, one block, the answers of both in the state."""
    subject, notes = shared(trigger=2000)
    told: list[Any] = []

    def member(name: str, other: str) -> Any:
        def agent(state: Any) -> Any:
            told.append(list(state["messages"]))
            number = len(told)
            reply = AIMessage("", tool_calls=[call(f"c{number}", "look_up", key=number)], id=f"call{number}", name=name)
            return {"messages": [reply]}

        def leave(state: Any) -> Any:
            number = len(told)
            if number >= 16:
                return Command(graph=Command.PARENT, update={"messages": [AIMessage("all done", id="end", name=name)]}, goto=END)
            # What happened in here is the parent's to keep: a hand-over carries it.
            return Command(graph=Command.PARENT, update={"messages": state["messages"]}, goto=other)

        builder = StateGraph(Merged)
        builder.add_node("agent", agent)
        builder.add_node("tools", ToolNode([look_up]))
        builder.add_node("leave", leave)
        builder.add_edge("agent", "tools")
        builder.add_edge("tools", "leave")
        if door == "wrapper":
            add_round_compaction(builder, subject)
            builder.add_edge(START, "agent")
        else:
            builder.add_node("compact", RoundCompactNode(subject))
            builder.add_edge(START, "compact")
            builder.add_edge("compact", "agent")
        return builder.compile()

    parent = StateGraph(Merged)
    parent.add_node("one", member("one", "two"), destinations=("two", END))
    parent.add_node("two", member("two", "one"), destinations=("one", END))
    parent.add_edge(START, "one")
    graph = parent.compile(checkpointer=InMemorySaver())
    after = go(how, graph, ASK, thread("over"))["messages"]
    assert len(told) == 16
    assert len(notes.requests) >= 2
    check_requests(told, summaries=len(notes.requests))
    assert len(blocks(after)) == 1
    assert_valid_history(after, pending_ok=False)


# --- once more -------------------------------------------------------------------------------------------------------------------------


@BOTH
def test_a_retried_compaction_node_is_not_billed_twice(how: str) -> None:
    """The archive is away for two tries and must not be: under `RetryPolicy` the third try finds the summary of the first."""
    failing = iter([True, True, False])

    class Archive(StoreArchive):
        def put(self, *args: Any, **more: Any) -> Any:
            if next(failing):
                raise ConnectionResetError("lost")
            return super().put(*args, **more)

        async def aput(self, *args: Any, **more: Any) -> Any:
            if next(failing):
                raise ConnectionResetError("lost")
            return await super().aput(*args, **more)

    notes = summariser("NOTES", strict=True)
    subject = compactor(
        notes, archive=Archive(InMemoryStore()), compression_recall={"enabled": True}, archive_required=True, cooldown_groups=0, breaker_failures=0
    )

    def again(state: ByIds) -> Any:
        result = subject.compact(state)
        if result.outcome == "failed":
            raise ConnectionError(result.reason)
        return result.update

    builder = StateGraph(ByIds)
    builder.add_node("compact", again, retry_policy=RetryPolicy(initial_interval=0.001, max_attempts=4, jitter=False))
    builder.add_edge(START, "compact")
    after = go(how, builder.compile(), {"messages": history(1, 2)})["messages"]
    assert (ids(after), blocks(after)) == (["h", "a1"], [1])
    assert len(notes.requests) == 1


@BOTH
def test_a_cached_compaction_node_gives_the_same_state_and_asks_nobody(how: str) -> None:
    """`CachePolicy` on the node: the second thread with the same messages takes the whole update from the cache."""
    notes = summariser("NOTES", strict=True)
    builder = StateGraph(ByIds)
    builder.add_node("compact", RoundCompactNode(compactor(notes)), cache_policy=CachePolicy())
    builder.add_edge(START, "compact")
    graph = builder.compile(cache=InMemoryCache())
    first = go(how, graph, {"messages": history(1, 2)})["messages"]
    second = go(how, graph, {"messages": history(1, 2)})["messages"]
    assert (first, blocks(first), len(notes.requests)) == (second, [1], 1)


@BOTH
@pytest.mark.parametrize("door", ["wrapper", "node"])
def test_nodes_of_one_name_with_other_compactors_share_no_cache_entry(how: str, door: str) -> None:
    """One cache, two graphs that differ in the compactor alone: each state is its own compactor's."""

    def agent(state: ByIds) -> Any:
        return {"messages": [AIMessage(f"saw {len(state['messages'])}", id="answer")]}

    cache, made = InMemoryCache(), []
    for keep in (0, 2):
        builder = StateGraph(ByIds)
        subject = compactor(summariser("NOTES"), keep_recent_messages=keep)
        policy = CachePolicy(key_func=lambda state: str(ids(state["messages"])))
        builder.add_node("agent", agent if door == "wrapper" else RoundCompactNode(subject), cache_policy=policy)
        if door == "wrapper":
            add_round_compaction(builder, subject)
        builder.add_edge(START, "agent")
        made.append(ids(go(how, builder.compile(cache=cache), {"messages": history(1, 2)})["messages"]))
    more = ["answer"] if door == "wrapper" else []
    assert made == [["h", "a1", *more], ["h", "a1", "a2", "t2", *more]]


# --- durability ------------------------------------------------------------------------------------------------------------------------


DURABILITY = pytest.mark.parametrize("durability", ["sync", "async", "exit"])


@BOTH
@DURABILITY
@pytest.mark.parametrize("schema", [ByIds, OurDelta])
@pytest.mark.parametrize("door", ["wrapper", "node"])
def test_what_was_saved_is_what_ran(how: str, durability: str, schema: Any, door: str) -> None:
    """Whenever checkpoints are written: the thread read again is the list that ran, and the runs do not differ."""
    subject, notes = shared(trigger=2000)
    model = working(12)
    graph = agent_loop(model, subject, door=door, schema=schema).compile(checkpointer=InMemorySaver())
    parts = stream(how, graph, ASK, thread("saved"), stream_mode="values", durability=durability)
    assert graph.get_state(thread("saved")).values["messages"] == parts[-1]["messages"]
    assert len(notes.requests) >= 2
    check_requests(model.requests, summaries=len(notes.requests))
    requests, state = whole(how)
    assert [[said(m) for m in request] for request in model.requests] == requests
    assert [said(m) for m in parts[-1]["messages"]] == state


@functools.cache
def whole(how: str) -> Any:
    """The same run without any checkpointer."""
    subject, _ = shared(trigger=2000)
    model = working(12)
    after = go(how, agent_loop(model, subject).compile(), ASK)["messages"]
    return [[said(m) for m in request] for request in model.requests], [said(m) for m in after]


@BOTH
@DURABILITY
@pytest.mark.parametrize("door", ["wrapper", "node"])
def test_a_run_that_fails_is_resumed_by_a_new_process(how: str, durability: str, door: str, tmp_path: Path) -> None:
    """A tool fails at every third call; each time a new process goes on from SQLite: nothing is lost, doubled, or summarised again."""
    failures: Counter[int] = Counter()
    model = working(12)
    paid = 0

    @tool("look_up")
    def unsteady(key: int) -> str:
        """Look an invoice up, if the line holds.

        Args:
            key: Its number.
        """
        if key % 3 == 0 and not failures[key]:
            failures[key] += 1
            raise ConnectionError("lost")
        return str(look_up.invoke({"key": key}))

    def build(saver: Any) -> Any:
        subject = compactor(notes, trigger=2000, window=4000, keep_recent_messages=None)
        graph = agent_loop(model, subject, door=door, tools=ToolNode([unsteady], handle_tool_errors=False))
        return Durable(graph.compile(checkpointer=saver), durability)

    value: Any = ASK
    for _ in range(8):
        notes = summariser(*(f"SUMMARY {number}: invoices so far" for number in range(paid + 1, 60)), strict=True)
        try:
            after = run_anew(how, tmp_path / "fails.sqlite", build, value, thread("fails"))["messages"]
            paid += len(notes.requests)
            break
        except ConnectionError:
            paid += len(notes.requests)
            value = None
    assert failures == {3: 1, 6: 1, 9: 1, 12: 1}
    requests, state = whole(how)
    assert [[said(m) for m in request] for request in model.requests] == requests
    assert [said(m) for m in after] == state


@BOTH
@DURABILITY
@pytest.mark.parametrize("kind", ["wrapper", "create_agent"])
def test_a_batch_of_which_one_call_fails_is_finished_by_a_new_process(how: str, durability: str, kind: str, tmp_path: Path) -> None:
    """Two calls at a time, one of each second batch fails at first: both results come to stand beside their calls, nothing is summarised again."""
    failures: Counter[int] = Counter()
    model = ScriptedChatModel(
        replies=[
            *(AIMessage("", tool_calls=[call(f"c{n}{part}", "look_up", key=10 * n + part) for part in (1, 2)]) for n in range(1, 9)),
            "all done",
        ],
        strict=True,
    )

    @tool("look_up")
    def unsteady(key: int) -> str:
        """Look an invoice up, if the line holds.

        Args:
            key: Its number.
        """
        if key % 20 == 12 and not failures[key]:
            failures[key] += 1
            raise ConnectionError("lost")
        return str(look_up.invoke({"key": key}))

    def build(saver: Any) -> Any:
        subject = compactor(notes, trigger=2000, window=4000, keep_recent_messages=None)
        if kind == "create_agent":
            return Durable(create_agent(model, [unsteady], middleware=[RoundCompactMiddleware(subject)], checkpointer=saver), durability)
        tools = ToolNode([unsteady], handle_tool_errors=False)
        return Durable(agent_loop(model, subject, tools=tools).compile(checkpointer=saver), durability)

    value: Any = ASK
    covered: list[str] = []
    for _ in range(6):
        notes = summariser(*(f"SUMMARY {number}" for number in range(len(covered) + 1, 60)), strict=True)
        try:
            after = run_anew(how, tmp_path / "batch.sqlite", build, value, thread("batch"))["messages"]
            break
        except ConnectionError:
            value = None
        finally:
            covered += [str(request) for request in notes.requests]
    assert failures == {12: 1, 32: 1, 52: 1, 72: 1}
    assert len(covered) == len({*covered}) >= 2
    check_requests(model.requests, summaries=len(covered))
    assert len(model.requests) == 9
    assert_valid_history(after, pending_ok=False)


class Durable:
    """A compiled graph that always runs with one durability."""

    def __init__(self, graph: Any, durability: str) -> None:
        self.invoke = functools.partial(graph.invoke, durability=durability)
        self.ainvoke = functools.partial(graph.ainvoke, durability=durability)
