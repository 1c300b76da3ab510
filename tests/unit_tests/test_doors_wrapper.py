"""`add_round_compaction`: no path passes it by, whatever the node returns goes on beside the compaction, and the node stays what it was."""

from __future__ import annotations

import functools
import operator
from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import pytest
from doors import REQUEST, ByIds, check_requests, look_up, shared, stream, working
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.cache.memory import InMemoryCache
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import CachePolicy, Command, Overwrite, RetryPolicy, Send, interrupt
from procedures import BOTH, blocks, compactor, go, history, ids, summariser, work
from pydantic import BaseModel

from langgraph_roundcompact import (
    ConfigurationError,
    RoundCompactConfig,
    add_round_compaction,
    compacting_reducer,
    round_compact_messages,
    round_compact_messages_delta,
)
from langgraph_roundcompact.testing import ScriptedChatModel, assert_valid_history


def wrapped(schema: Any, node: Any, subject: Any = None, **node_options: Any) -> StateGraph[Any, Any, Any, Any]:
    """A builder of one wrapped node."""
    builder = StateGraph(schema)
    builder.add_node("agent", node, **node_options)
    builder.add_edge(START, "agent")
    add_round_compaction(builder, subject if subject is not None else compactor(summariser("NOTES")))
    return builder


def answer(state: Any) -> dict[str, Any]:
    return {"messages": [AIMessage(f"saw {len(state['messages'])}", id="answer")]}


# --- no path passes it by --------------------------------------------------------------------------------------------------------------


def by_edge(builder: Any) -> None:
    builder.add_edge("router", "agent")


def by_condition(builder: Any) -> None:
    builder.add_conditional_edges("router", lambda state: "agent")


def by_send(builder: Any) -> None:
    builder.add_conditional_edges("router", lambda state: [Send("agent", state)])


@BOTH
@pytest.mark.parametrize("path", [by_edge, by_condition, by_send, "goto", "goto send"])
def test_each_way_to_the_node_meets_compaction(how: str, path: Any) -> None:
    """An edge, a conditional edge without a map, `Send` from an edge, `Command(goto=...)` by name and by `Send`."""
    builder = StateGraph(ByIds)

    def router(state: ByIds) -> Any:
        if path == "goto":
            return Command(goto="agent")
        return Command(goto=Send("agent", {"messages": state["messages"]})) if path == "goto send" else {}

    builder.add_node("router", router)
    builder.add_node("agent", answer)
    builder.add_edge(START, "router")
    if callable(path):
        path(builder)
    add_round_compaction(builder, compactor(summariser("NOTES")))
    after = go(how, builder.compile(), {"messages": history(1, 2)})["messages"]
    assert (ids(after), after[-1].content) == (["h", "a1", "answer"], "saw 2")


@BOTH
def test_an_agent_loop_by_goto_alone(how: str) -> None:
    """No edge anywhere: 40 steps, the request verbatim in each of 41 requests, a new prefix only at a compaction."""
    subject, notes = shared()
    model = working(40)
    tools = ToolNode([look_up])

    def agent(state: ByIds) -> Command[Any]:
        reply = model.invoke(state["messages"])
        return Command(update={"messages": [reply]}, goto="tools" if reply.tool_calls else END)

    builder = StateGraph(ByIds)
    builder.add_node("agent", agent)
    builder.add_node("tools", lambda state: Command(update=tools.invoke(state), goto="agent"))
    builder.add_edge(START, "agent")
    add_round_compaction(builder, subject)
    after = go(how, builder.compile(checkpointer=InMemorySaver()), {"messages": [HumanMessage(REQUEST, id="h")]}, {
        "configurable": {"thread_id": "goto"}, "recursion_limit": 200,
    })["messages"]  # fmt: skip
    assert (len(model.requests), len(notes.requests) >= 3) == (41, True)
    check_requests(model.requests, summaries=len(notes.requests))
    assert_valid_history(after, pending_ok=False)


# --- what Send hands over --------------------------------------------------------------------------------------------------------------


class Plain(TypedDict, total=False):
    messages: list[AnyMessage]
    note: str


class Appended(TypedDict):
    messages: Annotated[list[AnyMessage], operator.add]


@BOTH
def test_a_payload_without_messages_goes_to_the_node_as_it_is(how: str) -> None:
    """`Send` may hand over anything; a node that worked before goes on working."""
    seen: list[Any] = []

    def agent(state: Any) -> dict[str, Any]:
        seen.append(state)
        return {"messages": [AIMessage("ok", id="answer")]}

    builder = StateGraph(ByIds)
    builder.add_node("agent", agent)
    builder.add_conditional_edges(START, lambda state: [Send("agent", {"topic": "boxes"}), Send("agent", {"topic": "lids"})], ["agent"])
    add_round_compaction(builder, compactor(summariser("NOTES")))
    after = go(how, builder.compile(), {"messages": history(1, 2)})["messages"]
    assert sorted(one["topic"] for one in seen) == ["boxes", "lids"]
    assert ids(after) == ["h", "a1", "t1", "a2", "t2", "answer"]


@BOTH
def test_a_key_that_is_not_written_yet_is_no_error(how: str) -> None:
    """The first node of a graph whose messages nobody has written."""
    graph = wrapped(Plain, lambda state: {"note": "first"}).compile()
    assert go(how, graph, {"note": ""}) == {"note": "first"}


@BOTH
@pytest.mark.parametrize("schema", [ByIds, Appended])
def test_a_workers_own_list_is_compacted_for_the_worker_alone(how: str, schema: Any) -> None:
    """Its ids are not in the state: the worker sees the block, the state gets the worker's answer and nothing else."""
    builder = StateGraph(schema)
    builder.add_node("agent", answer)
    builder.add_conditional_edges(START, lambda state: [Send("agent", {"messages": history(7, 8, ask="a worker's task")})], ["agent"])
    add_round_compaction(builder, compactor(summariser("NOTES")))
    given = [HumanMessage("hello", id="hello"), AIMessage("good day", id="day")]
    after = go(how, builder.compile(), {"messages": given})["messages"]
    assert after[:2] == given
    assert [message.content for message in after[2:]] == ["saw 2"]


@BOTH
def test_two_workers_with_the_states_list_leave_one_block(how: str) -> None:
    """Both compact the same span in one step: `round_compact_messages` merges the two, and both answers stay."""

    class Merged(TypedDict):
        messages: Annotated[list[AnyMessage], round_compact_messages]

    numbers = iter("ab")
    builder = StateGraph(Merged)
    builder.add_node("agent", lambda state: {"messages": [AIMessage(f"saw {len(state['messages'])}", id=next(numbers))]})
    builder.add_conditional_edges(START, lambda state: [Send("agent", state), Send("agent", state)], ["agent"])
    add_round_compaction(builder, compactor(summariser("ONE", "TWO")))
    after = go(how, builder.compile(), {"messages": history(1, 2)})["messages"]
    assert (ids(after)[:2], sorted(ids(after)[2:]), blocks(after)) == (["h", "a1"], ["a", "b"], [1])
    assert {message.content for message in after[2:]} == {"saw 2"}


# --- what a node may return ------------------------------------------------------------------------------------------------------------


class NoteBy(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    note: str
    seen: Annotated[list[str], operator.add]


class NoteAppended(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], operator.add]
    note: str
    seen: Annotated[list[str], operator.add]


class NotePlain(TypedDict, total=False):
    messages: list[AnyMessage]
    note: str
    seen: Annotated[list[str], operator.add]


@dataclass
class Out:
    messages: list[Any] = field(default_factory=list)
    note: str | None = "default"


class OutModel(BaseModel):
    messages: list[Any] = []
    note: str | None = "default"
    seen: list[str] | None = None


class OutAnnotated:
    """Neither dataclass nor model: LangGraph reads annotated attributes."""

    messages: list[Any]
    note: str

    def __init__(self, messages: list[Any]) -> None:
        self.messages = messages
        self.note = "set"


ANSWER = AIMessage("ok", id="answer")

RETURNS: dict[str, Any] = {
    "dict": lambda new: {"messages": new, "note": "set"},
    "no messages": lambda new: {"note": "set"},
    "None": lambda new: None,
    "Command": lambda new: Command(update={"messages": new, "note": "set"}, goto="after"),
    "Command without update": lambda new: Command(goto="after"),
    "Command with pairs": lambda new: Command(update=[("messages", new), ("note", "set")]),
    "Command with object": lambda new: Command(update=Out(messages=new, note="set")),
    "Commands": lambda new: [Command(update={"messages": new}), Command(update={"seen": ["one"]}), {"seen": ["two"]}],
    "Commands without messages": lambda new: [Command(update={"note": "set"}), Command(update={"seen": ["one"]}, goto="after")],
    "Command and object": lambda new: [Command(update={"seen": ["one"]}), Out(messages=new, note="set")],
    "dataclass": lambda new: Out(messages=new),
    "dataclass with None": lambda new: Out(messages=new, note=None),
    "model": lambda new: OutModel(messages=new),
    "model with None": lambda new: OutModel(messages=new, note=None, seen=["one"]),
    "object": OutAnnotated,
    "Send": lambda new: Send("after", {"messages": []}),
    "Overwrite": lambda new: {"messages": Overwrite([HumanMessage("anew", id="anew"), *new])},
    "Command with Overwrite": lambda new: [Command(update={"note": "set"}), Command(update={"messages": Overwrite([*new])})],
    "one message": lambda new: {"messages": new[-1] if new else []},
}
"""Everything LangGraph takes from a node, as a function of the messages to write."""

TAKEN = [(NoteBy, kind) for kind in RETURNS]
TAKEN += [(NoteAppended, kind) for kind in RETURNS if kind != "one message"]  # these channels take lists only,
TAKEN += [(NotePlain, kind) for kind in RETURNS if kind != "one message" and "Overwrite" not in kind]  # and this one no overwrite


@BOTH
@pytest.mark.parametrize(("schema", "kind"), TAKEN)
def test_what_a_node_returns_reaches_the_state_as_without_compaction(how: str, schema: Any, kind: str) -> None:
    """The state afterwards is what the same node leaves behind when it is given the compacted list to begin with."""

    def agent(state: Any) -> Any:
        return RETURNS[kind]([*state["messages"], ANSWER] if schema is NotePlain else [ANSWER])

    def build() -> StateGraph[Any, Any, Any, Any]:
        builder = StateGraph(schema)
        builder.add_node("agent", agent, destinations=("after",))
        builder.add_node("after", lambda state: {"seen": ["after"]})
        builder.add_edge(START, "agent")
        return builder

    given = {"messages": history(1, 2), "note": "before", "seen": []}
    compacted = compactor(summariser("NOTES")).compact(given)
    assert compacted.compacted
    wanted = build().compile().invoke({**given, "messages": compacted.messages})
    builder = build()
    add_round_compaction(builder, compactor(summariser("NOTES")))
    after = go(how, builder.compile(), given)
    assert after == wanted
    assert not any(isinstance(message, RemoveMessage) for message in after["messages"])


@BOTH
@pytest.mark.parametrize("value", ["text", 7, [{"note": "a"}, {"note": "b"}]])
def test_what_langgraph_refuses_it_still_refuses(how: str, value: Any) -> None:
    """A wrong return value is not hidden by a compaction in the same step."""
    with pytest.raises(Exception, match="Expected dict, got"):
        go(how, wrapped(NoteBy, lambda state: value).compile(), {"messages": history(1, 2)})


@BOTH
def test_a_tuple_is_one_message(how: str) -> None:
    """`("ai", "text")` is a message for `add_messages`, beside a compaction too."""
    after = go(how, wrapped(NoteBy, lambda state: {"messages": ("ai", "the end")}).compile(), {"messages": history(1, 2)})["messages"]
    assert [message.content for message in after[2:]] == ["the end"]


@BOTH
def test_a_hand_over_to_the_parent_graph_passes(how: str) -> None:
    """`Command(graph=PARENT)` reaches the parent whole, and the parent's messages are the parent's."""
    inner = wrapped(ByIds, lambda state: Command(graph=Command.PARENT, update={"note": f"saw {len(state['messages'])}"}, goto="other"))
    outer = StateGraph(NoteBy)
    outer.add_node("team", inner.compile())
    outer.add_node("other", lambda state: {"seen": ["other"]})
    outer.add_edge(START, "team")
    after = go(how, outer.compile(), {"messages": history(1, 2), "seen": []})
    assert (after["note"], after["seen"]) == ("saw 2", ["other"])
    assert ids(after["messages"]) == ["h", "a1", "t1", "a2", "t2"]


# --- the node stays what it was --------------------------------------------------------------------------------------------------------


@BOTH
def test_an_async_only_node(how: str) -> None:
    """It runs async, and a sync run says the same as without compaction."""

    async def agent(state: ByIds) -> dict[str, Any]:
        return answer(state)

    graph = wrapped(ByIds, agent).compile()
    if how == "sync":
        with pytest.raises(TypeError, match="No synchronous function provided"):
            go(how, graph, {"messages": history(1, 2)})
    else:
        assert ids(go(how, graph, {"messages": history(1, 2)})["messages"]) == ["h", "a1", "answer"]


@BOTH
@pytest.mark.parametrize("kind", ["function", "runnable", "partial", "graph"])
def test_any_kind_of_node(how: str, kind: str) -> None:
    """Functions, runnables, partials, compiled graphs."""

    def sub() -> Any:
        builder = StateGraph(ByIds)
        builder.add_node("inner", answer)
        builder.add_edge(START, "inner")
        return builder.compile()

    node: Any = {
        "function": lambda: answer,
        "runnable": lambda: RunnableLambda(answer),
        "partial": lambda: functools.partial(lambda extra, state: answer(state), "extra"),
        "graph": sub,
    }[kind]()
    after = go(how, wrapped(ByIds, node).compile(), {"messages": history(1, 2)})["messages"]
    assert "saw 2" in [message.content for message in after]
    assert len(blocks(after)) == 1


@BOTH
def test_a_subgraph_in_the_wrapped_node_pauses_and_goes_on(how: str) -> None:
    """LangGraph still finds the subgraph: its state can be read while it waits, its stream has a place of its own, and it resumes."""
    inner = StateGraph(ByIds)
    inner.add_node("ask", asking)
    inner.add_edge(START, "ask")
    model = summariser("NOTES")
    graph = wrapped(ByIds, inner.compile(), compactor(model)).compile(checkpointer=InMemorySaver())
    thread: Any = {"configurable": {"thread_id": "inner"}}
    go(how, graph, {"messages": history(1, 2)}, thread)
    (task,) = graph.get_state(thread, subgraphs=True).tasks
    assert task.state is not None
    assert ids(task.state.values["messages"]) == ["h", "a1"]  # type: ignore[union-attr]
    parts = stream(how, graph, Command(resume="yes"), thread, subgraphs=True)
    assert [place[0].split(":")[0] if place else "" for place, _ in parts] == ["agent", ""]
    after = graph.get_state(thread).values["messages"]
    assert (ids(after), after[-1].content, len(model.requests)) == (["h", "a1", "answer"], "saw 2, was told yes", 1)


@BOTH
def test_a_node_gets_its_config_runtime_and_writer(how: str) -> None:
    """What LangGraph injects reaches the node through the wrapper."""
    from langgraph.runtime import Runtime

    got: dict[str, Any] = {}

    def agent(state: ByIds, config: RunnableConfig, runtime: Runtime[Any]) -> dict[str, Any]:
        got.update(thread=config["configurable"]["thread_id"], context=runtime.context)
        runtime.stream_writer({"mine": True})
        return answer(state)

    builder = StateGraph(ByIds, context_schema=dict)
    builder.add_node("agent", agent)
    builder.add_edge(START, "agent")
    add_round_compaction(builder, compactor(summariser("NOTES")))
    graph = builder.compile(checkpointer=InMemorySaver())
    parts = stream(how, graph, {"messages": history(1, 2)}, {"configurable": {"thread_id": "t7"}}, stream_mode="custom", context={"user": "u"})
    assert got == {"thread": "t7", "context": {"user": "u"}}
    assert [part.get("phase", "mine") for part in parts] == ["started", "finished", "mine"]


@BOTH
def test_a_retried_node_pays_once_for_its_summary(how: str) -> None:
    """`RetryPolicy` runs the wrapped node again: the summary is remembered."""
    model = summariser("NOTES")
    failures = iter([ConnectionError("lost"), ConnectionError("lost again")])

    def agent(state: ByIds) -> dict[str, Any]:
        if (failure := next(failures, None)) is not None:
            raise failure
        return answer(state)

    policy = RetryPolicy(initial_interval=0.001, max_attempts=3, jitter=False)
    graph = wrapped(ByIds, agent, compactor(model), retry_policy=policy).compile()
    assert ids(go(how, graph, {"messages": history(1, 2)})["messages"]) == ["h", "a1", "answer"]
    assert len(model.requests) == 1


@BOTH
def test_a_cached_node_is_not_run_again_and_gives_the_same_state(how: str) -> None:
    """The cache holds the whole update; two wrapped nodes of one name do not take each other's entries."""
    runs: Counter[str] = Counter()

    def first(state: ByIds) -> dict[str, Any]:
        runs["first"] += 1
        return {"messages": [AIMessage("first", id="answer")]}

    def second(state: ByIds) -> dict[str, Any]:
        runs["second"] += 1
        return {"messages": [AIMessage("second", id="answer")]}

    model, cache = summariser("NOTES"), InMemoryCache()
    policy = CachePolicy(key_func=lambda state: str(ids(state["messages"])))
    graphs = [wrapped(ByIds, node, compactor(model), cache_policy=policy).compile(cache=cache) for node in (first, second)]
    states = [go(how, graph, {"messages": history(1, 2)})["messages"] for graph in (*graphs, *graphs)]
    assert runs == {"first": 1, "second": 1}
    assert [state[-1].content for state in states] == ["first", "second", "first", "second"]
    assert all(ids(state) == ["h", "a1", "answer"] for state in states)


class Wide(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    note: str
    secret: str


class Narrow(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    note: str


@BOTH
def test_the_nodes_input_schema_is_kept(how: str) -> None:
    """The node sees what it asked for and no more."""
    seen: list[Any] = []

    def agent(state: Narrow) -> dict[str, Any]:
        seen.append(dict(state))
        return answer(state)

    graph = wrapped(Wide, agent, input_schema=Narrow).compile()
    go(how, graph, {"messages": history(1, 2), "note": "n", "secret": "s"})
    assert (sorted(seen[0]), len(seen[0]["messages"])) == (["messages", "note"], 2)


def test_an_input_schema_without_the_key_is_refused() -> None:
    """At build time, with the remedy: at run time there would be nothing to compact."""

    class Without(TypedDict):
        note: str

    with pytest.raises(ConfigurationError, match="the node 'agent' is not given 'messages': add it to the node's input_schema"):
        wrapped(Wide, lambda state: {}, input_schema=Without)


# --- paused nodes ----------------------------------------------------------------------------------------------------------------------


def asking(state: ByIds) -> dict[str, Any]:
    return {"messages": [AIMessage(f"saw {len(state['messages'])}, was told {interrupt('may I?')}", id="answer")]}


@BOTH
def test_a_node_that_pauses_twice_pays_once(how: str) -> None:
    """Each resume runs the node from its start; the summary is remembered, and the state gets block and answer once."""
    model = summariser("NOTES")

    def twice(state: ByIds) -> dict[str, Any]:
        return {"messages": [AIMessage(interrupt("first?") + interrupt("second?"), id="answer")]}

    graph = wrapped(ByIds, twice, compactor(model)).compile(checkpointer=InMemorySaver())
    thread: Any = {"configurable": {"thread_id": "twice"}}
    go(how, graph, {"messages": history(1, 2)}, thread)
    paused = graph.get_state(thread)
    assert (ids(paused.values["messages"]), paused.next) == (["h", "a1", "t1", "a2", "t2"], ("agent",))
    go(how, graph, Command(resume="yes "), thread)
    after = go(how, graph, Command(resume="no"), thread)["messages"]
    assert (ids(after), after[-1].content) == (["h", "a1", "answer"], "yes no")
    assert len(model.requests) == 1


def test_a_paused_node_is_resumed_after_a_restart(tmp_path: Any) -> None:
    """A new process has forgotten the summary of the step that was not finished and asks once more; no message is lost or doubled."""
    path, thread = str(tmp_path / "paused.sqlite"), {"configurable": {"thread_id": "restarted"}}
    with SqliteSaver.from_conn_string(path) as saver:
        wrapped(ByIds, asking).compile(checkpointer=saver).invoke({"messages": history(1, 2)}, thread)
    model = summariser("AGAIN")
    with SqliteSaver.from_conn_string(path) as saver:
        graph = wrapped(ByIds, asking, compactor(model)).compile(checkpointer=saver)
        after = graph.invoke(Command(resume="yes"), thread)["messages"]
        assert (ids(after), after[-1].content) == (["h", "a1", "answer"], "saw 2, was told yes")
        assert len(model.requests) == 1
        graph.invoke({"messages": work(3, characters=100)}, thread)
    assert len(model.requests) == 1


async def test_with_a_finished_compaction_a_restart_pays_nothing(tmp_path: Any) -> None:
    """Compaction in an earlier step than the pause is in the checkpoint, so that a new process finds it."""
    path, thread = str(tmp_path / "finished.sqlite"), {"configurable": {"thread_id": "restarted"}}

    def build(saver: Any, model: Any) -> Any:
        builder = wrapped(ByIds, answer, compactor(model))
        builder.add_node("ask", asking)
        builder.add_edge("agent", "ask")
        return builder.compile(checkpointer=saver)

    async with AsyncSqliteSaver.from_conn_string(path) as saver:
        await build(saver, summariser("NOTES")).ainvoke({"messages": history(1, 2)}, thread)
    model = summariser("NEVER")
    async with AsyncSqliteSaver.from_conn_string(path) as saver:
        after = (await build(saver, model).ainvoke(Command(resume="yes"), thread))["messages"]
    assert after[-1].content == "saw 3, was told yes"
    assert model.requests == []


def test_a_delta_channel_read_anew_at_each_step(tmp_path: Any) -> None:
    """Thirty steps, each by a new process: only writes are saved, and replaying them gives the list that ran."""
    schema = schema_of(DeltaChannel(round_compact_messages_delta))
    subject, notes = shared()
    model, tools = working(30), ToolNode([look_up])
    thread: Any = {"configurable": {"thread_id": "delta"}}
    given: Any = {"messages": [HumanMessage(REQUEST, id="h")]}
    for _ in range(31):
        with SqliteSaver.from_conn_string(str(tmp_path / "delta.sqlite")) as saver:
            builder = StateGraph(schema)
            builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
            builder.add_node("tools", tools)
            builder.add_edge(START, "agent")
            builder.add_conditional_edges("agent", tools_condition)
            builder.add_edge("tools", "agent")
            add_round_compaction(builder, subject)
            graph = builder.compile(checkpointer=saver, interrupt_after=["tools"])
            live = graph.invoke(given, thread)["messages"]
            held = graph.get_state(thread).values["messages"]
            assert [message.id for message in held] == [message.id for message in live]
            given = None
    assert len(model.requests) == 31
    assert len(notes.requests) >= 3
    check_requests(model.requests, summaries=len(notes.requests))


# --- channels --------------------------------------------------------------------------------------------------------------------------


def my_reducer(left: list[Any], right: list[Any]) -> list[Any]:
    return left + right


def by_id_of_mine(left: Any, right: Any) -> Any:
    return add_messages(left, right)


by_id_of_mine.works_by_id = True  # type: ignore[attr-defined]
BY_RULES = compacting_reducer(RoundCompactConfig(context_window_tokens=100_000))
APPENDING_BY_RULES = compacting_reducer(RoundCompactConfig(context_window_tokens=100_000), base=operator.add)

KNOWN: dict[str, Any] = {
    "add_messages": add_messages,
    "add_messages with format": add_messages(format="langchain-openai"),
    "operator.add": operator.add,
    "operator.concat": operator.concat,
    "delta": DeltaChannel(_messages_delta_reducer),
    "our delta": DeltaChannel(round_compact_messages_delta),
    "round_compact_messages": round_compact_messages,
    "by rules": BY_RULES,
    "appending by rules": APPENDING_BY_RULES,
    "by rules with format": compacting_reducer(RoundCompactConfig(context_window_tokens=100_000), base=add_messages(format="langchain-openai")),
    "declared by rules": compacting_reducer(RoundCompactConfig(context_window_tokens=100_000), base=by_id_of_mine),
    "declared": by_id_of_mine,
    "plain": None,
}


def schema_of(reducer: Any) -> Any:
    return TypedDict("State", {"messages": Annotated[list, reducer] if reducer is not None else list})  # type: ignore[operator]


@BOTH
@pytest.mark.parametrize("kind", list(KNOWN))
def test_each_channel_gets_the_update_it_takes(how: str, kind: str) -> None:
    """The state afterwards: request, block, answer; and the same when the thread is read again from its checkpoints."""

    def agent(state: Any) -> dict[str, Any]:
        return {"messages": [*state["messages"], ANSWER] if kind == "plain" else [ANSWER]}

    graph = wrapped(schema_of(KNOWN[kind]), agent).compile(checkpointer=InMemorySaver())
    thread: Any = {"configurable": {"thread_id": kind}}
    after = go(how, graph, {"messages": history(1, 2)}, thread)["messages"]
    assert [message.type for message in after] == ["human", "human", "ai"]
    assert "format" in kind or ids(after) == ["h", "a1", "answer"]  # that reducer makes new messages at each write, without ids
    assert blocks(after) == [1]
    held = graph.get_state(thread).values["messages"]
    assert [message.content for message in held] == [message.content for message in after]


def lookalike(left: list[Any], right: list[Any]) -> list[Any]:
    return left[-2:] + right


lookalike.__name__ = "add_messages"


@pytest.mark.parametrize(
    ("reducer", "says"),
    [
        (my_reducer, "reducer 'my_reducer' of 'messages'"),
        (lambda left, right: left + right, "reducer '<lambda>' of 'messages'"),
        (lookalike, "reducer 'add_messages' of 'messages'"),
        (functools.partial(my_reducer), "reducer 'my_reducer' of 'messages'"),
        (compacting_reducer(base=lookalike), "reducer 'add_messages' of 'messages'"),
        (compacting_reducer(base=functools.partial(my_reducer)), "reducer 'my_reducer' of 'messages'"),
        (DeltaChannel(lambda state, writes: [*state, *writes]), "reducer '<lambda>' of 'messages'"),
    ],
)
def test_an_unknown_channel_is_refused_with_what_to_do(reducer: Any, says: str) -> None:
    """A guess would leave removal marks, or all the replaced work, in the state. A familiar name on somebody's own function is no knowledge."""
    with pytest.raises(ConfigurationError, match=says) as caught:
        wrapped(schema_of(reducer), answer)
    for remedy in ("add_messages", "round_compact_messages", "works_by_id = True", "RoundCompactNode(channel=...)"):
        assert remedy in str(caught.value)


# --- wrong use -------------------------------------------------------------------------------------------------------------------------


def test_twice_on_one_node_is_refused() -> None:
    """Two checks a step would undo each other's cool-down; a second model node is another matter."""
    builder = wrapped(ByIds, answer)
    builder.add_node("other", answer)
    add_round_compaction(builder, compactor(), before="other")
    with pytest.raises(ConfigurationError, match="before='agent' has round compaction already"):
        add_round_compaction(builder, compactor())


def test_a_node_or_key_that_is_not_there_is_named() -> None:
    """With what there is."""
    builder = StateGraph(ByIds)
    with pytest.raises(ConfigurationError, match=r"before='agent' is not a node of this graph \(it has: none\): add the node first"):
        add_round_compaction(builder, compactor())
    builder.add_node("model", answer)
    with pytest.raises(ConfigurationError, match=r"before='agent' is not a node of this graph \(it has: model\)"):
        add_round_compaction(builder, compactor())
    with pytest.raises(ConfigurationError, match=r"messages_key='chat' is not a key of the graph's state \(it has: messages\)"):
        add_round_compaction(builder, compactor(), before="model", messages_key="chat")


@pytest.mark.parametrize("given", ["builder", "graph"])
def test_a_compiled_graph_is_refused(given: str) -> None:
    """What is compiled would go on without compaction, and nobody would know."""
    builder = StateGraph(ByIds)
    builder.add_node("agent", answer)
    builder.add_edge(START, "agent")
    graph = builder.compile()
    with pytest.raises(ConfigurationError, match="before it is compiled"):
        add_round_compaction(builder if given == "builder" else graph, compactor())  # type: ignore[arg-type]


@dataclass
class Later:
    later: str


def test_edges_and_nodes_may_still_be_added_afterwards() -> None:
    """Only the node itself must be there; keys that later nodes bring are taken too."""

    builder = StateGraph(ByIds)
    builder.add_node("agent", lambda state: Later(later="set"))
    add_round_compaction(builder, compactor(summariser("NOTES")))
    seen: list[Any] = []

    def after(state: Later) -> None:
        seen.append(state.later)

    builder.add_node("after", after)
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "after")
    assert ids(builder.compile().invoke({"messages": history(1, 2)})["messages"]) == ["h", "a1"]
    assert seen == ["set"]


@BOTH
def test_two_model_nodes_share_one_compactor(how: str) -> None:
    """Planner and worker in a loop by conditional edges: each sees the block, the request stays."""
    subject, notes = shared()
    model = working(20)
    tools = ToolNode([look_up])
    builder = StateGraph(ByIds)
    for name in ("planner", "worker"):
        builder.add_node(name, lambda state: {"messages": [model.invoke(state["messages"])]})
        builder.add_conditional_edges(name, tools_condition)
        add_round_compaction(builder, subject, before=name)
    turns = iter(["worker", "planner"] * 20)
    builder.add_node("tools", tools)
    builder.add_conditional_edges("tools", lambda state: next(turns))
    builder.add_edge(START, "planner")
    go(how, builder.compile(), {"messages": [HumanMessage(REQUEST, id="h")]}, {"recursion_limit": 100})
    assert len(model.requests) == 21
    check_requests(model.requests, summaries=len(notes.requests))


def test_the_window_of_a_given_model_counts() -> None:
    """System prompt, tools and agent model are arguments where they are not in the state."""
    given = history(1, 2, characters=1000)
    small = ScriptedChatModel(profile={"max_input_tokens": 600})
    for more, window, fires in (({}, 10_000, False), ({"system_message": "be careful " * 2000}, 10_000, True), ({"agent_model": small}, None, True)):
        builder = StateGraph(ByIds)
        builder.add_node("agent", answer)
        builder.add_edge(START, "agent")
        add_round_compaction(builder, compactor(summariser("NOTES"), trigger=1000 if window else None, window=window), **more)
        assert bool(blocks(builder.compile().invoke({"messages": given})["messages"])) is fires
