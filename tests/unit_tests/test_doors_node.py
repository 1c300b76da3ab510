"""`RoundCompactNode` in graphs: any state, any key, each kind of channel, as a hook before the model, and what it tells a stream."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import pytest
from doors import REQUEST, ByIds, breaks, check_requests, look_up, one_node, shared, stream, working
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, RemoveMessage
from langgraph.channels import AnyValue, EphemeralValue, LastValue, Topic, UntrackedValue
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, create_react_agent, tools_condition
from langgraph.types import Command, Send
from langgraph.warnings import LangGraphDeprecatedSinceV10
from procedures import BOTH, blocks, compactor, go, history, ids, summariser, work
from pydantic import BaseModel, ConfigDict

from langgraph_roundcompact import (
    ConfigurationError,
    RoundCompactConfig,
    RoundCompactNode,
    add_round_compaction,
    compacting_reducer,
    round_compact_messages,
    round_compact_messages_delta,
)
from langgraph_roundcompact.testing import ScriptedChatModel, assert_valid_history

# --- state shapes ----------------------------------------------------------------------------------------------------------------------


class Dict(TypedDict):
    talk: Annotated[list[AnyMessage], add_messages]
    note: str


@dataclass
class Data:
    talk: Annotated[list[AnyMessage], add_messages] = field(default_factory=list)
    note: str = ""


@dataclass(frozen=True, slots=True)
class FrozenData:
    talk: Annotated[list[AnyMessage], add_messages] = field(default_factory=list)
    note: str = ""


class Model(BaseModel):
    talk: Annotated[list[AnyMessage], add_messages] = []
    note: str = ""


class FrozenModel(Model):
    model_config = ConfigDict(frozen=True, extra="forbid")


@BOTH
@pytest.mark.parametrize("schema", [Dict, Data, FrozenData, Model, FrozenModel])
@pytest.mark.parametrize("output_key", [None, "seen"])
def test_any_state_and_any_key(how: str, schema: Any, output_key: str | None) -> None:
    """The configured key alone is read, and that key or the output key alone is written."""
    given = history(1, 2)
    state = {"talk": given, "note": "n"} if schema is Dict else schema(talk=given, note="n")
    update = go(how, RoundCompactNode(compactor(summariser()), messages_key="talk", output_messages_key=output_key), state)
    assert list(update) == [output_key or "talk"]
    if output_key is None:
        after = add_messages(given, update["talk"])
        assert ids(after) == ["h", "a1"]
    else:
        after = update["seen"]
    assert blocks(after) == [1]
    assert ids(given) == ["h", "a1", "t1", "a2", "t2"]
    assert not blocks(given)


@BOTH
def test_a_missing_key_is_one_clear_error(how: str) -> None:
    """The error names the key, what there is, and the argument to set."""
    graph = one_node(RoundCompactNode(compactor()), Dict)
    with pytest.raises(ConfigurationError, match=r"no key 'messages'.*it has: talk, note.*set messages_key"):
        go(how, graph, {"talk": history(1), "note": ""})


class Plain(TypedDict, total=False):
    messages: list[AnyMessage]
    note: str


@BOTH
def test_a_key_that_is_not_written_yet_is_no_messages(how: str) -> None:
    """The graph has the key, so nothing is wrong; the state dict has it only from the first write on."""
    assert go(how, one_node(RoundCompactNode(compactor()), Plain), {"note": "n"}) == {"note": "n"}


def test_a_wrong_channel_is_refused_at_construction() -> None:
    with pytest.raises(ConfigurationError, match="channel='overwrite' is unknown: use 'add_messages', 'append' or 'replace'"):
        RoundCompactNode(compactor(), channel="overwrite")  # type: ignore[arg-type]


def test_the_node_can_be_added_without_a_name() -> None:
    """Its own name is used."""
    builder = StateGraph(ByIds)
    builder.add_node(RoundCompactNode(compactor()))
    assert list(builder.nodes) == ["round_compact"]


# --- channels --------------------------------------------------------------------------------------------------------------------------

BY_RULES = compacting_reducer(RoundCompactConfig(context_window_tokens=100_000))


class Formatted(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages(format="langchain-openai")]


class Appended(TypedDict):
    messages: Annotated[list[AnyMessage], operator.add]


class Merged(TypedDict):
    messages: Annotated[list[AnyMessage], round_compact_messages]


class Delta(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(round_compact_messages_delta)]


class Reduced(TypedDict):
    messages: Annotated[list[AnyMessage], BY_RULES]


@BOTH
@pytest.mark.parametrize("schema", [ByIds, Formatted, Appended, Plain, Merged, Delta, Reduced])
@pytest.mark.parametrize("channel", ["add_messages", "append", "replace"])
def test_in_a_graph_the_channel_itself_tells_its_kind(how: str, schema: Any, channel: Any) -> None:
    """Whatever was said at construction: a wrong word would leave removal marks in the state, or the replaced work."""
    graph = one_node(RoundCompactNode(compactor(summariser("NOTES")), channel=channel), schema)
    after = go(how, graph, {"messages": history(1, 2)})["messages"]
    assert [message.type for message in after] == ["human", "human"]
    assert blocks(after) == [1]


@BOTH
@pytest.mark.parametrize("door", ["node", "wrapper"])
@pytest.mark.parametrize("channel", [UntrackedValue(list), LastValue(list)], ids=lambda c: type(c).__name__)
def test_any_channel_that_holds_the_last_value_gets_the_whole_list(how: str, door: str, channel: Any) -> None:
    """No removal mark is ever seen by the node behind."""
    seen: list[Any] = []
    builder = StateGraph(TypedDict("Held", {"messages": Annotated[list, channel]}))  # type: ignore[operator]
    builder.add_node("agent", lambda state: seen.extend(state["messages"]) or {})
    subject = compactor(summariser("NOTES"))
    if door == "node":
        builder.add_node("compact", RoundCompactNode(subject))
        builder.add_edge(START, "compact")
        builder.add_edge("compact", "agent")
    else:
        add_round_compaction(builder, subject)
        builder.add_edge(START, "agent")
    go(how, builder.compile(), {"messages": history(1, 2)})
    assert [message.type for message in seen] == ["human", "human"]
    assert blocks(seen) == [1]


@BOTH
@pytest.mark.parametrize("channel", [Topic(AnyMessage, True), EphemeralValue(list), AnyValue(list)], ids=lambda c: type(c).__name__)
def test_a_channel_that_cannot_take_a_compaction_is_refused_before_anything_is_written(how: str, channel: Any) -> None:
    """It collects whatever is written, or forgets what was not written anew: the error names the remedy, at the wrapper before the graph is built."""
    schema: Any = TypedDict("Collected", {"messages": Annotated[list, channel]})  # type: ignore[operator]
    graph = one_node(RoundCompactNode(compactor(summariser("NOTES"))), schema)
    with pytest.raises(ConfigurationError, match=f"a {type(channel).__name__} under 'messages' cannot take a compaction: give the key add_messages"):
        go(how, graph, {"messages": history(1, 2)})
    builder = StateGraph(schema)
    builder.add_node("agent", lambda state: {})
    with pytest.raises(ConfigurationError, match="cannot take a compaction"):
        add_round_compaction(builder, compactor())


def loop(node: Any, model: Any, schema: Any, **compile_with: Any) -> Any:
    """compact → agent ⇄ tools, by hand, for any channel."""
    tools = ToolNode([look_up])

    def keep(state: Any, more: list[BaseMessage]) -> dict[str, Any]:
        return {"messages": [*state["messages"], *more] if schema is Plain else more}

    def agent(state: Any) -> dict[str, Any]:
        return keep(state, [model.invoke(state["messages"])])

    async def aagent(state: Any) -> dict[str, Any]:
        return keep(state, [await model.ainvoke(state["messages"])])

    def use(state: Any) -> dict[str, Any]:
        return keep(state, tools.invoke(state)["messages"])

    from langchain_core.runnables import RunnableLambda

    builder = StateGraph(schema)
    builder.add_node("compact", node)
    builder.add_node("agent", RunnableLambda(agent, afunc=aagent))
    builder.add_node("tools", use)
    builder.add_edge(START, "compact")
    builder.add_edge("compact", "agent")
    builder.add_conditional_edges("agent", tools_condition, {"tools": "tools", END: END})
    builder.add_edge("tools", "compact")
    return builder.compile(**compile_with)


@BOTH
@pytest.mark.parametrize("schema", [ByIds, Formatted, Appended, Plain, Merged, Delta])
def test_forty_steps_in_a_small_window(how: str, schema: Any) -> None:
    """The request verbatim in each of 41 model requests, pairs whole, a new prefix only at a compaction, the window never over its size."""
    subject, notes = shared()
    model = working(40)
    graph = loop(RoundCompactNode(subject), model, schema, checkpointer=InMemorySaver())
    thread: Any = {"configurable": {"thread_id": "forty"}, "recursion_limit": 200}
    after = go(how, graph, {"messages": [HumanMessage(REQUEST, id="h")]}, thread)["messages"]
    assert len(model.requests) == 41
    assert len(notes.requests) >= 3
    check_requests(model.requests, summaries=len(notes.requests))
    assert max(map(subject.count_tokens, model.requests)) < 4000
    assert after[-1].content == "all done"
    assert_valid_history(after, pending_ok=False)
    assert not any(isinstance(message, RemoveMessage) for message in after)


def test_a_thread_goes_on_after_a_restart(tmp_path: Any) -> None:
    """Everything that matters is in the state: a new process with a new compactor pays for nothing that is summarised already."""
    thread: Any = {"configurable": {"thread_id": "restarted"}, "recursion_limit": 200}
    with SqliteSaver.from_conn_string(str(tmp_path / "one.sqlite")) as saver:
        subject, notes = shared()
        model = working(20)
        graph = loop(RoundCompactNode(subject), model, ByIds, checkpointer=saver, interrupt_before=["agent"])
        graph.invoke({"messages": [HumanMessage(REQUEST, id="h")]}, thread)
        for _ in range(20):
            if not blocks(graph.get_state(thread).values["messages"]):
                graph.invoke(None, thread)
        held = graph.get_state(thread).values["messages"]
        asked = len(model.requests)
    assert len(notes.requests) == 1
    with SqliteSaver.from_conn_string(str(tmp_path / "one.sqlite")) as saver:
        again, more_notes = shared()
        answering = ScriptedChatModel(replies=["all done"])
        graph = loop(RoundCompactNode(again), answering, ByIds, checkpointer=saver)
        after = graph.invoke(None, thread)["messages"]
    assert (asked, more_notes.requests) == (len(model.requests), [])
    assert [message.content for message in answering.requests[0]] == [message.content for message in held]
    assert after[-1].content == "all done"


# --- lists that are not the state's ----------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("schema", [ByIds, Appended, Plain])
def test_a_list_handed_over_by_send_never_touches_the_state(how: str, schema: Any) -> None:
    """A worker's own list is not the state's: removing its ids would raise, and a whole list would take the place of another conversation."""
    builder = StateGraph(schema)
    builder.add_node("compact", RoundCompactNode(compactor(summariser("NOTES"))))
    builder.add_conditional_edges(START, lambda state: [Send("compact", {"messages": history(7, 8, ask="a worker's task")})], ["compact"])
    given = [HumanMessage("hello", id="hello"), AIMessage("good day", id="day")]
    after = go(how, builder.compile(), {"messages": given})["messages"]
    assert after == given


@BOTH
def test_the_states_own_list_handed_over_by_send_is_compacted(how: str) -> None:
    """The fan-out of one is the same as an edge."""
    builder = StateGraph(ByIds)
    builder.add_node("compact", RoundCompactNode(compactor(summariser("NOTES"))))
    builder.add_conditional_edges(START, lambda state: [Send("compact", state)], ["compact"])
    after = go(how, builder.compile(), {"messages": history(1, 2)})["messages"]
    assert ids(after) == ["h", "a1"]


# --- as a hook before the model --------------------------------------------------------------------------------------------------------


class Hooked(ByIds):
    llm_input_messages: list[AnyMessage]


@BOTH
def test_the_hook_key_is_written_at_every_step(how: str) -> None:
    """A key that stops being written would feed the model a stale list: changed or not, the list is returned, and state is left alone."""
    graph = one_node(RoundCompactNode(compactor(summariser("NOTES")), output_messages_key="llm_input_messages"), Hooked)
    small = go(how, graph, {"messages": history(1, characters=40)})
    assert small["llm_input_messages"] == small["messages"]
    given = history(1, 2)
    large = go(how, graph, {"messages": given, "llm_input_messages": [HumanMessage("stale")]})
    assert large["messages"] == given
    assert blocks(large["llm_input_messages"]) == [1]


class HookedByIds(ByIds):
    seen: Annotated[list[AnyMessage], add_messages]


class HookedAppended(ByIds):
    seen: Annotated[list[AnyMessage], operator.add]


@BOTH
@pytest.mark.parametrize("schema", [HookedByIds, HookedAppended])
def test_an_output_key_with_a_reducer_holds_this_steps_list_and_nothing_else(how: str, schema: Any) -> None:
    """The list takes the place of the last one, also where the reducer would merge the two."""
    graph = one_node(RoundCompactNode(compactor(summariser("NOTES")), output_messages_key="seen"), schema, checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "merged"}}
    first = go(how, graph, {"messages": history(1, characters=400)}, thread)
    assert first["seen"] == first["messages"]
    second = go(how, graph, {"messages": [*work(2), *work(3)]}, thread)
    assert ids(second["messages"]) == ["h", "a1", "t1", "a2", "t2", "a3", "t3"]
    assert ids(second["seen"]) == ["h", "a1"]
    assert blocks(second["seen"]) == [1]


@BOTH
def test_the_messages_key_as_output_key_is_the_state(how: str) -> None:
    """Both names for one key: the update is made for the channel, so the replaced work is gone."""
    graph = one_node(RoundCompactNode(compactor(summariser("NOTES")), output_messages_key="messages"), ByIds)
    assert ids(go(how, graph, {"messages": history(1, 2)})["messages"]) == ["h", "a1"]


def hooked_agent(subject: Any, model: Any, **more: Any) -> Any:
    with pytest.warns(LangGraphDeprecatedSinceV10, match="create_react_agent"):
        return create_react_agent(model, [look_up], **more)


@BOTH
def test_a_hook_pays_once_for_a_summary_and_its_requests_are_extensions(how: str) -> None:
    """State keeps every message; the checkpoint stands in at each later step, so between compactions each request extends the last."""
    subject, notes = shared()
    model = working(40)
    hook = RoundCompactNode(subject, output_messages_key="llm_input_messages")
    agent = hooked_agent(subject, model, pre_model_hook=hook, checkpointer=InMemorySaver())
    thread: Any = {"configurable": {"thread_id": "hooked"}, "recursion_limit": 300}
    after = go(how, agent, {"messages": [HumanMessage(REQUEST, id="h")]}, thread)["messages"]
    assert len(after) == 82
    assert not blocks(after)
    assert len(model.requests) == 41
    assert 3 <= len(notes.requests) <= 12
    check_requests(model.requests, summaries=len(notes.requests))
    assert len(breaks(model.requests)) == len(notes.requests)


@BOTH
def test_a_hook_may_write_the_state_too(how: str) -> None:
    """Without an output key the same hook shortens the state itself; a step that changes nothing returns nothing."""
    subject, notes = shared()
    model = working(20)
    agent = hooked_agent(subject, model, pre_model_hook=RoundCompactNode(subject))
    after = go(how, agent, {"messages": [HumanMessage(REQUEST, id="h")]}, {"recursion_limit": 300})["messages"]
    assert len(blocks(after)) == 1
    check_requests(model.requests, summaries=len(notes.requests))


# --- what it tells ---------------------------------------------------------------------------------------------------------------------


@BOTH
def test_a_stream_tells_started_and_finished(how: str) -> None:
    """Plain data with what a UI shows: phase, outcome, reason, tokens before and after."""
    graph = one_node(RoundCompactNode(compactor(summariser("NOTES"))))
    started, finished = stream(how, graph, {"messages": history(1, 2)}, stream_mode="custom")
    assert (started["type"], started["phase"], started["reason"]) == ("round_compaction", "started", "reached_threshold")
    assert (finished["phase"], finished["outcome"], finished["compacted"], finished["attempts"]) == ("finished", "summarised", True, 1)
    assert started["tokens_before"] == finished["tokens_before"] > finished["tokens_after"]


@BOTH
def test_a_stream_tells_failed(how: str) -> None:
    """With the kind of the error; the window stays."""
    model = ScriptedChatModel(replies=[PermissionError("401 unauthorized: invalid api key")])
    graph = one_node(RoundCompactNode(compactor(model, max_retries=0)))
    started, failed = stream(how, graph, {"messages": history(1, 2)}, stream_mode="custom")
    assert (started["phase"], failed["phase"], failed["outcome"]) == ("started", "failed", "failed")
    assert failed["reason"]
    assert failed["tokens_after"] == failed["tokens_before"]


@BOTH
def test_a_stream_tells_skipped(how: str) -> None:
    """Over the trigger, and nothing may go: the only step is still open."""
    pending = [HumanMessage("Sort", id="h"), AIMessage("x" * 8000, tool_calls=[{"name": "pay", "args": {}, "id": "c", "type": "tool_call"}], id="a")]
    graph = one_node(RoundCompactNode(compactor(summariser("NOTES"))))
    (skipped,) = stream(how, graph, {"messages": pending}, stream_mode="custom")
    assert (skipped["phase"], skipped["outcome"], skipped["reason"]) == ("skipped", "nothing_to_compact", "pending_only")


@BOTH
def test_a_step_below_the_trigger_tells_nothing(how: str) -> None:
    """The check runs before every model call; it is silent unless something was due."""
    graph = one_node(RoundCompactNode(compactor(summariser("NOTES"))))
    assert stream(how, graph, {"messages": history(1, characters=40)}, stream_mode="custom") == []


@BOTH
def test_goto_can_leave_out_a_node_but_not_break_it(how: str) -> None:
    """A `Command(goto=...)` past a node of its own passes compaction by (that is what `add_round_compaction` is for); the next step catches up."""
    builder = StateGraph(ByIds)
    builder.add_node("router", lambda state: Command(goto="agent"), destinations=("agent",))
    builder.add_node("agent", lambda state: Command(update={"messages": work(3)}, goto="compact"), destinations=("compact",))
    builder.add_node("compact", RoundCompactNode(compactor(summariser("NOTES"))))
    builder.add_edge(START, "router")
    after = go(how, builder.compile(), {"messages": history(1, 2)})["messages"]
    assert ids(after) == ["h", "a1"]
