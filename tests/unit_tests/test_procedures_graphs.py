"""Reported faults that need a real graph: channels, state shapes, branches, streams, paused runs, rounds one after the other.

| report | tests |
|---|---|
| 10 system messages over several compactions | `test_three_compactions_leave_prefix_and_system_messages_alone` |
| 13 own block, third point | `test_a_block_without_new_work_asks_nobody` |
| 17 without ids, three channels | `test_messages_without_ids_end_as_request_and_block_in_each_channel` |
| | `test_a_check_that_does_nothing_sets_no_ids`, `test_equal_input_without_ids_gives_an_equal_block` |
| 19 `operator.add` | `test_an_append_channel_holds_request_and_block_and_no_removal_marks` |
| | `test_add_round_compaction_works_on_an_append_channel` |
| 20 update applied twice | `test_an_update_applied_twice_gives_the_same_list` |
| 21 list edited between compactions, rewind | `test_the_second_boundary_is_found_by_looking` |
| | `test_after_a_rewind_no_block_of_the_abandoned_future_is_there` |
| 46 streams | `test_no_stream_of_messages_shows_the_summary`, `test_events_of_the_summary_call_carry_a_tag` |
| | `test_wrapped_summarisers_stay_out_of_the_stream`, `test_a_custom_stream_tells_start_and_end` |
| 62 state shapes | `test_each_state_shape_ends_with_request_and_block`, `test_a_chain_takes_lists_and_prompt_values` |
| | `test_a_missing_key_is_told_by_name` |
| 63 two branches | `test_two_branches_that_compact_leave_one_block_and_both_findings` |
| | `test_two_branches_each_with_a_node_of_its_own_keep_both_findings` |
| 66 paused approval | `test_each_decision_after_a_pause_leaves_a_valid_history`, `test_a_chat_during_the_pause_protects_the_open_call`, |
| | `test_an_interrupt_passes_through_and_the_summary_is_not_paid_again` |
| 68 next turn | `test_the_next_request_makes_the_finished_round_prefix` |
"""

from __future__ import annotations

import asyncio
import operator
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt
from procedures import BOTH, blocks, compact, compactor, go, history, ids, summariser, without_ids, work
from pydantic import BaseModel, ConfigDict

from langgraph_roundcompact import (
    ConfigurationError,
    RoundCompactMiddleware,
    RoundCompactNode,
    add_round_compaction,
    round_compact_messages,
)
from langgraph_roundcompact.testing import ScriptedChatModel, assert_valid_history


class ByIds(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class Appended(TypedDict):
    messages: Annotated[list[AnyMessage], operator.add]


class LastValue(TypedDict):
    messages: list[AnyMessage]


def graph_of(schema: Any, node: Any, **compile_with: Any) -> Any:
    builder = StateGraph(schema)
    builder.add_node("compact", node)
    builder.add_edge(START, "compact")
    builder.add_edge("compact", END)
    return builder.compile(**compile_with)


# --- channels ---------------------------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("given", ["add_messages", "append"])
def test_an_append_channel_holds_request_and_block_and_no_removal_marks(how: str, given: Any) -> None:
    """A node in a graph asks the channel itself, so the default is right there too."""
    graph = graph_of(Appended, RoundCompactNode(compactor(summariser("NOTES")), channel=given))
    after = go(how, graph, {"messages": history(1, 2)})["messages"]
    assert len(after) == 2
    assert after[0].id == "h"
    assert blocks(after) == [1]
    assert not any(isinstance(message, RemoveMessage) for message in after)


@BOTH
def test_add_round_compaction_works_on_an_append_channel(how: str) -> None:
    """The block and what the model node wrote reach the state as one overwrite."""
    builder = StateGraph(Appended)
    builder.add_node("agent", lambda state: {"messages": [AIMessage(f"saw {len(state['messages'])}", id="answer")]})
    builder.add_edge(START, "agent")
    add_round_compaction(builder, compactor(summariser("NOTES")))
    after = go(how, builder.compile(), {"messages": history(1, 2)})["messages"]
    assert [message.content for message in after[2:]] == ["saw 2"]
    assert blocks(after) == [1]


@BOTH
@pytest.mark.parametrize("schema", [ByIds, Appended, LastValue])
def test_messages_without_ids_end_as_request_and_block_in_each_channel(how: str, schema: Any) -> None:
    """Nothing is left over and nothing doubled, whatever the channel; under `add_messages` the reducer has set ids before."""
    graph = graph_of(schema, RoundCompactNode(compactor(summariser("NOTES"))))
    after = go(how, graph, {"messages": without_ids(history(1, 2))})["messages"]
    assert [message.type for message in after] == ["human", "human"]
    assert blocks(after) == [1]
    assert after[0].content == "Sort the invoices"


@BOTH
def test_a_check_that_does_nothing_sets_no_ids(how: str) -> None:
    """Below the trigger the state's own objects stay as they are."""
    given = without_ids(history(1, characters=40))
    assert go(how, RoundCompactNode(compactor(summariser())), {"messages": given}) == {}
    assert ids(given) == [None, None, None]


@BOTH
def test_equal_input_without_ids_gives_an_equal_block(how: str) -> None:
    """A replay must not make a second, different block."""
    first = compact(how, compactor(summariser("NOTES")), without_ids(history(1, 2)))
    second = compact(how, compactor(summariser("NOTES")), without_ids(history(1, 2)))
    assert [message.model_dump() for message in first.messages] == [message.model_dump() for message in second.messages]


@BOTH
def test_an_update_applied_twice_gives_the_same_list(how: str) -> None:
    """A retried node writes the same update again: the block stays before the call that is still open."""
    live = AIMessage("now", tool_calls=[{"name": "pay", "args": {}, "id": "live", "type": "tool_call"}], id="live")
    given = [*history(1, 2), live]
    update = go(how, RoundCompactNode(compactor(summariser("NOTES"))), {"messages": given})["messages"]
    once = round_compact_messages(given, update)
    twice = round_compact_messages(once, update)
    assert [message.id for message in once] == [message.id for message in twice]
    assert [message.content for message in once] == [message.content for message in twice]
    assert once[-1] == live
    assert blocks(once) == [1]


# --- the boundary is looked for at each pass -------------------------------------------------------------------------------------------


@BOTH
def test_the_second_boundary_is_found_by_looking(how: str) -> None:
    """Another component inserts and deletes messages of the prefix between two compactions: no stored position goes stale."""
    node = RoundCompactNode(compactor(summariser("FIRST", "SECOND")))
    graph = graph_of(ByIds, node, checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "edited"}}
    earlier = [HumanMessage("hello", id="h0"), AIMessage("hello", id="a0")]
    go(how, graph, {"messages": [*earlier, *history(1, 2, 3)]}, thread)
    held = graph.get_state(thread).values["messages"]
    assert blocks(held) == [3]
    edited = [SystemMessage("A new policy", id="policy"), *(message for message in held if message.id != "a0")]
    graph.update_state(thread, {"messages": [RemoveMessage(id="__remove_all__"), *edited]}, as_node="compact")
    after = go(how, graph, {"messages": [*work(4), *work(5)]}, thread)["messages"]
    assert ids(after[:3]) == ["policy", "h0", "h"]
    assert blocks(after) == [3]
    assert len(after) == 4
    assert "SECOND" in str(after[3].content)


@BOTH
def test_after_a_rewind_no_block_of_the_abandoned_future_is_there(how: str) -> None:
    """A thread that goes on from before the compaction is as if there had been none."""
    graph = graph_of(ByIds, RoundCompactNode(compactor(summariser("ABANDONED", "OTHER"))), checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "rewound"}}
    go(how, graph, {"messages": history(1, characters=2000)}, thread)
    past = graph.get_state(thread).config
    first = go(how, graph, {"messages": work(2)}, thread)["messages"]
    assert "ABANDONED" in str(first[1].content)
    again = go(how, graph, {"messages": [*work(3), *work(4)]}, past)["messages"]
    assert not any("ABANDONED" in str(message.content) for message in again)
    assert blocks(again) == [1]


@BOTH
def test_three_compactions_leave_prefix_and_system_messages_alone(how: str) -> None:
    """System messages before the request, between rounds and in mid-round: as many after as before, in place."""
    prefix = [SystemMessage("Never pay twice", id="s1"), HumanMessage("hi", id="h0"), AIMessage("hello", id="a0")]
    prefix += [SystemMessage("Closed at five", id="s2"), HumanMessage("Sort the invoices", id="h")]
    graph = graph_of(ByIds, RoundCompactNode(compactor(summariser("NOTES"))), checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "long"}}
    after = go(how, graph, {"messages": [*prefix, *work(1), SystemMessage("Mind the dates", id="s3"), *work(2)]}, thread)["messages"]
    for start in (3, 5):
        after = go(how, graph, {"messages": [*work(start), *work(start + 1)]}, thread)["messages"]
    assert [message.model_dump() for message in after[:5]] == [message.model_dump() for message in prefix]
    assert [message.id for message in after if message.type == "system"] == ["s1", "s2", "s3"]
    assert len(blocks(after)) == 1
    assert_valid_history(after)


@BOTH
def test_a_block_without_new_work_asks_nobody(how: str) -> None:
    """Request and block alone, still over the trigger: nothing could be gained."""
    model = summariser("Z" * 300)
    subject = compactor(model, trigger=40, round_budget_tokens=2000)
    first = compact(how, subject, history(1, 2))
    assert first.compacted
    second = compact(how, subject, first.messages)
    assert (second.changed, len(model.requests)) == (False, 1)
    assert second.outcome == "nothing_to_compact"


# --- state shapes ----------------------------------------------------------------------------------------------------------------------


class ChatDict(TypedDict):
    chat: Annotated[list[AnyMessage], add_messages]
    messages: Annotated[list[AnyMessage], add_messages]
    extra: int


@dataclass
class ChatData:
    chat: Annotated[list[AnyMessage], add_messages] = field(default_factory=list)
    messages: Annotated[list[AnyMessage], add_messages] = field(default_factory=list)
    extra: int = 7


@dataclass(frozen=True)
class FrozenChatData:
    chat: Annotated[list[AnyMessage], add_messages] = field(default_factory=list)
    messages: Annotated[list[AnyMessage], add_messages] = field(default_factory=list)
    extra: int = 7


class ChatModelState(BaseModel):
    chat: Annotated[list[AnyMessage], add_messages] = []
    messages: Annotated[list[AnyMessage], add_messages] = []
    extra: int = 7


class FrozenChatModelState(BaseModel):
    model_config = ConfigDict(frozen=True)
    chat: Annotated[list[AnyMessage], add_messages] = []
    messages: Annotated[list[AnyMessage], add_messages] = []
    extra: int = 7


SHAPES = [ChatDict, ChatData, FrozenChatData, ChatModelState, FrozenChatModelState]


@BOTH
@pytest.mark.parametrize("schema", SHAPES)
@pytest.mark.parametrize("door", ["node", "wrapper"])
def test_each_state_shape_ends_with_request_and_block(how: str, schema: Any, door: str) -> None:
    """The configured key alone is touched, whatever type the graph hands its nodes."""
    subject = compactor(summariser("NOTES"))
    builder = StateGraph(schema)
    if door == "node":
        builder.add_node("agent", RoundCompactNode(subject, messages_key="chat"))
    else:
        builder.add_node("agent", lambda state: {"extra": 9})
        add_round_compaction(builder, subject, messages_key="chat")
    builder.add_edge(START, "agent")
    others = history(8, 9, ask="another list")
    after = go(how, builder.compile(), {"chat": history(1, 2), "messages": others, "extra": 7})
    assert ids(after["chat"]) == ["h", "a1"]
    assert blocks(after["chat"]) == [1]
    assert ids(after["messages"]) == ids(others)
    assert after["extra"] == (7 if door == "node" else 9)


@BOTH
def test_a_chain_takes_lists_and_prompt_values(how: str) -> None:
    """`prompt | compactor | model`: a prompt value in, a list of messages to the model."""
    chain = compactor(summariser("NOTES")).as_runnable()
    assert blocks(go(how, chain, history(1, 2))) == [1]
    answering = ScriptedChatModel(replies=["done"])
    prompt = ChatPromptTemplate.from_messages([("system", "Be brief"), ("placeholder", "{past}")])
    answer = go(how, prompt | chain | answering, {"past": history(1, 2)})
    assert answer.content == "done"
    assert [message.type for message in answering.requests[0]] == ["system", "human", "human"]


@BOTH
def test_a_chain_called_with_a_growing_history_pays_for_one_summary(how: str) -> None:
    """The finished block stands in at later calls, and each request is an exact extension of the one before."""
    model = summariser("NOTES")
    chain = compactor(model).as_runnable()
    given = without_ids(history(1, 2))
    before = go(how, chain, given)
    for number in range(3, 6):
        given += without_ids(work(number, 40))
        after = go(how, chain, given)
        assert after[: len(before)] == before
        before = after
    assert len(model.requests) == 1


@BOTH
def test_after_a_restart_a_chain_measures_the_whole_history(how: str) -> None:
    """The answer's usage is of the short request that another process made of the list: it does not hide what is sent now."""
    step = work(3, 40)
    step[0].usage_metadata = {"input_tokens": 300, "output_tokens": 5, "total_tokens": 305}  # type: ignore[attr-defined]
    given = [*history(1, 2), *step]
    same = compactor(summariser("NOTES"))
    go(how, same.as_runnable(), given[:5])
    assert blocks(go(how, same.as_runnable(), given)) == [1]
    assert blocks(go(how, compactor(summariser("NOTES")).as_runnable(), given)) == [1]


@BOTH
def test_a_stand_in_never_covers_what_precedes_the_request(how: str) -> None:
    """The same round behind another prefix: the block is found again, and takes the place of the work only."""
    model = summariser("NOTES")
    chain = compactor(model).as_runnable()
    go(how, chain, history(1, 2))
    prefix = [SystemMessage("Be brief"), HumanMessage("hi"), AIMessage("hello")]
    after = go(how, chain, [*prefix, *history(1, 2)])
    assert after[:3] == prefix
    assert [message.type for message in after[3:]] == ["human", "human"]
    assert blocks(after) == [4]
    assert len(model.requests) == 1


@BOTH
def test_a_missing_key_is_told_by_name(how: str) -> None:
    """One clear error that names the key and what there is instead."""
    node = RoundCompactNode(compactor(), messages_key="chat")
    with pytest.raises(ConfigurationError, match=r"'chat'.*messages"):
        go(how, node, {"messages": history(1, 2)})


@BOTH
@pytest.mark.parametrize("junk", [object(), 3.5, {"no": "role"}, ("unknown-role", "text")])
def test_what_is_no_message_never_stops_the_graph(how: str, junk: Any) -> None:
    """A list that cannot be read is left as it is, and the result says so."""
    assert go(how, RoundCompactNode(compactor(summariser())), {"messages": [*history(1, 2), junk]}) == {}
    result = compact(how, compactor(summariser()), [*history(1, 2), junk])
    assert (result.changed, result.reason, len(result.messages)) == (False, "unreadable_messages", 6)


# --- branches, Send, goto --------------------------------------------------------------------------------------------------------------


class Merged(TypedDict):
    messages: Annotated[list[AnyMessage], round_compact_messages]


@BOTH
def test_two_branches_that_compact_leave_one_block_and_both_findings(how: str) -> None:
    """Both branches see the same list; their blocks merge into one, in place, and neither finding is lost."""
    builder = StateGraph(Merged)
    subject = compactor(summariser("ONE", "TWO"))
    for name in "xy":
        builder.add_node(name, lambda state, name=name: {"messages": [AIMessage(f"finding {name}", id=f"found_{name}")]})
        builder.add_edge(START, name)
        builder.add_edge(name, "join")
        add_round_compaction(builder, subject, before=name)
    builder.add_node("join", lambda state: {})
    after = go(how, builder.compile(), {"messages": history(1, 2)})["messages"]
    assert ids(after) == ["h", "a1", "found_x", "found_y"]
    assert blocks(after) == [1]


@BOTH
def test_two_branches_each_with_a_node_of_its_own_keep_both_findings(how: str) -> None:
    """The node before each worker: two updates for one span in one step."""
    builder = StateGraph(Merged)
    node = RoundCompactNode(compactor(summariser("ONE", "TWO")))
    for name in "xy":
        builder.add_node(f"compact_{name}", node)
        builder.add_node(name, lambda state, name=name: {"messages": [AIMessage(f"finding {name}", id=f"found_{name}")]})
        builder.add_edge(START, f"compact_{name}")
        builder.add_edge(f"compact_{name}", name)
    after = go(how, builder.compile(), {"messages": history(1, 2)})["messages"]
    assert after[0].id == "h"
    assert {"found_x", "found_y"} <= set(ids(after))
    assert blocks(after) == [1]


@BOTH
@pytest.mark.parametrize("path", ["edge", "goto", "send"])
def test_no_path_to_the_model_node_passes_compaction_by(how: str, path: str) -> None:
    """A plain edge, `Command(goto=...)` and `Send` all meet the wrapped node."""
    builder = StateGraph(ByIds)
    seen: list[int] = []

    def agent(state: ByIds) -> dict[str, Any]:
        seen.append(len(state["messages"]))
        return {"messages": [AIMessage("ok", id="answer")]}

    def router(state: ByIds) -> Any:
        if path == "goto":
            return Command(goto="agent")
        return Command(goto=Send("agent", {"messages": state["messages"]})) if path == "send" else {}

    builder.add_node("router", router, destinations=("agent",))
    builder.add_node("agent", agent)
    builder.add_edge(START, "router")
    if path == "edge":
        builder.add_edge("router", "agent")
    add_round_compaction(builder, compactor(summariser("NOTES")))
    after = go(how, builder.compile(), {"messages": history(1, 2)})["messages"]
    assert seen == [2]
    assert ids(after) == ["h", "a1", "answer"]


@BOTH
def test_a_command_of_the_model_node_goes_on_with_the_compaction_beside_it(how: str) -> None:
    """Update and goto of the node's own `Command` stay, the block comes first."""
    builder = StateGraph(ByIds)
    builder.add_node("agent", lambda state: Command(update={"messages": [AIMessage("asked", id="answer")]}, goto="after"), destinations=("after",))
    builder.add_node("after", lambda state: {"messages": [AIMessage("after", id="last")]})
    builder.add_edge(START, "agent")
    add_round_compaction(builder, compactor(summariser("NOTES")))
    after = go(how, builder.compile(), {"messages": history(1, 2)})["messages"]
    assert ids(after) == ["h", "a1", "answer", "last"]
    assert blocks(after) == [1]


# --- streams ---------------------------------------------------------------------------------------------------------------------------

SECRET = "WHISPERED"


def agent_kinds(same: bool) -> list[Any]:
    """An agent by each door, streaming; `same`: one model object answers and summarises."""

    def reply(messages: list[BaseMessage]) -> str:
        said = "\n".join(str(message.content) for message in messages)
        return "the final answer" if "<memory_block_current>" in said else f"<state_snapshot>\n{SECRET} notes of it\n</state_snapshot>"

    answering = ScriptedChatModel(replies=[reply])
    subject = compactor(answering if same else summariser(f"{SECRET} notes of it"))
    model = answering if same else ScriptedChatModel(replies=["the final answer"])

    def node_graph() -> Any:
        builder = StateGraph(ByIds)
        builder.add_node("compact", RoundCompactNode(subject))
        builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
        builder.add_edge(START, "compact")
        builder.add_edge("compact", "agent")
        return builder.compile()

    def wrapped_graph() -> Any:
        builder = StateGraph(ByIds)
        builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
        builder.add_edge(START, "agent")
        add_round_compaction(builder, subject)
        return builder.compile()

    def middle() -> Any:
        return create_agent(model, tools=[], middleware=[RoundCompactMiddleware(subject)])

    return [node_graph, wrapped_graph, middle]


def parts_of(how: str, graph: Any, **options: Any) -> list[Any]:
    if how == "sync":
        return list(graph.stream({"messages": history(1, 2)}, **options))

    async def collected() -> list[Any]:
        return [part async for part in graph.astream({"messages": history(1, 2)}, **options)]

    return asyncio.run(collected())


@BOTH
@pytest.mark.parametrize("door", [0, 1, 2], ids=["node", "wrapper", "middleware"])
@pytest.mark.parametrize("same", [False, True], ids=["two models", "one model"])
def test_no_stream_of_messages_shows_the_summary(how: str, door: int, same: bool) -> None:
    """The answer streams word by word, of the summary nothing, in plain and combined modes and with subgraphs; the block shows in updates, marked."""
    graph = agent_kinds(same)[door]()
    chunks = [chunk for chunk, _ in parts_of(how, graph, stream_mode="messages")]
    assert not [chunk for chunk in chunks if SECRET in str(chunk.content)]
    assert not [chunk for chunk in chunks if isinstance(chunk, RemoveMessage)]
    assert "".join(str(chunk.content) for chunk in chunks if chunk.type == "AIMessageChunk") == "the final answer"
    assert len([chunk for chunk in chunks if chunk.type == "AIMessageChunk"]) >= 3

    graph = agent_kinds(same)[door]()
    both = parts_of(how, graph, stream_mode=["messages", "updates", "custom"], subgraphs=True)
    assert not [part for _, mode, part in both if mode == "messages" and SECRET in str(part[0].content)]
    written = [str(part) for _, mode, part in both if mode == "updates"]
    assert any(SECRET in text and "round_compaction" in text for text in written)


@pytest.mark.parametrize("door", [0, 1, 2], ids=["node", "wrapper", "middleware"])
@pytest.mark.parametrize("same", [False, True], ids=["two models", "one model"])
async def test_events_of_the_summary_call_carry_a_tag(door: int, same: bool) -> None:
    """In `astream_events` the summary's tokens can be told by tag and metadata; the agent's own call has neither."""
    graph = agent_kinds(same)[door]()
    events = [event async for event in graph.astream_events({"messages": history(1, 2)}, version="v2")]
    calls = [event for event in events if event["event"] == "on_chat_model_end"]
    marks = [("nostream" in event["tags"], event["metadata"].get("lc_source")) for event in calls]
    assert marks == [(True, "round_compaction"), (False, None)]
    tokens = [event for event in events if event["event"] == "on_chat_model_stream" and SECRET in str(event["data"])]
    assert all("nostream" in event["tags"] for event in tokens)


@BOTH
def test_wrapped_summarisers_stay_out_of_the_stream(how: str) -> None:
    """Chains, fallbacks and retries hand the tag on to the model inside."""
    for wrap in (
        lambda model: model | (lambda message: message.content),
        lambda model: ScriptedChatModel(replies=[RuntimeError("down")]).with_fallbacks([model]),
        lambda model: model.with_retry(stop_after_attempt=2),
        lambda model: model.with_config(tags=["mine"]).bind(stop=["zzz"]),
    ):
        builder = StateGraph(ByIds)
        answering = ScriptedChatModel(replies=["the final answer"])
        builder.add_node("agent", lambda state, answering=answering: {"messages": [answering.invoke(state["messages"])]})
        builder.add_edge(START, "agent")
        add_round_compaction(builder, compactor(wrap(summariser(f"{SECRET} notes"))))
        chunks = [chunk for chunk, _ in parts_of(how, builder.compile(), stream_mode="messages")]
        assert not [chunk for chunk in chunks if SECRET in str(chunk.content)]
        assert "".join(str(chunk.content) for chunk in chunks) == "the final answer"


@BOTH
@pytest.mark.parametrize("door", [0, 1, 2], ids=["node", "wrapper", "middleware"])
def test_a_custom_stream_tells_start_and_end(how: str, door: int) -> None:
    """A UI learns that a compaction began and how it ended."""
    parts = parts_of(how, agent_kinds(same=False)[door](), stream_mode="custom")
    assert [part["phase"] for part in parts] == ["started", "finished"]
    assert parts[-1]["outcome"] == "summarised"
    assert parts[-1]["tokens_after"] < parts[-1]["tokens_before"]


def test_outside_a_graph_there_is_no_stream_and_no_error() -> None:
    """The stream writer is looked for, and its absence is normal."""
    assert compactor(summariser("NOTES")).compact(history(1, 2)).compacted


# --- paused runs and finished rounds ----------------------------------------------------------------------------------------------------


def paused() -> list[BaseMessage]:
    calls = [{"name": name, "args": {}, "id": name, "type": "tool_call"} for name in ("list_boxes", "burn_box")]
    return [*history(1, 2), AIMessage("", tool_calls=calls, id="pair"), ToolMessage("3 boxes", tool_call_id="list_boxes", id="listed")]


@BOTH
@pytest.mark.parametrize("decision", ["approve", "edit", "reject"])
def test_each_decision_after_a_pause_leaves_a_valid_history(how: str, decision: str) -> None:
    """The group that waits stays word for word, after the block; whatever is decided, both calls are answered next to it."""
    given = paused()
    result = compact(how, compactor(summariser("NOTES")), given)
    assert result.messages[-2:] == given[-2:]
    assert blocks(result.messages) == [1]
    pair = given[-2]
    assert isinstance(pair, AIMessage)
    if decision == "edit":
        pair = pair.model_copy(update={"tool_calls": [pair.tool_calls[0], {**pair.tool_calls[1], "args": {"box": "old"}}]})
    rejected = decision == "reject"
    outcome = ToolMessage("declined" if rejected else "burnt", tool_call_id="burn_box", status="error" if rejected else "success")
    later = add_messages(result.messages, [pair, outcome])
    assert ids(later)[-3:-1] == ["pair", "listed"]
    assert_valid_history(later, pending_ok=False)


@BOTH
def test_a_chat_during_the_pause_protects_the_open_call(how: str) -> None:
    """The boundary is the new message: the open call and all before it are prefix."""
    model = summariser("NOTES")
    given = [*paused(), HumanMessage("by the way, which cellar?", id="h2")]
    result = compact(how, compactor(model), given)
    assert (result.changed, model.requests) == (False, [])
    more = [*given, *work(5), *work(6)]
    result = compact(how, compactor(model), more)
    assert result.messages[:-1] == given
    assert blocks(result.messages) == [len(given)]


@BOTH
def test_an_interrupt_passes_through_and_the_summary_is_not_paid_again(how: str) -> None:
    """A model node that pauses is run again on resume: the wrapped compaction finds its summary."""
    model = summariser("NOTES")
    builder = StateGraph(ByIds)
    builder.add_node("agent", lambda state: {"messages": [AIMessage(str(interrupt("may I?")), id="answer")]})
    builder.add_edge(START, "agent")
    add_round_compaction(builder, compactor(model))
    graph = builder.compile(checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "paused"}}
    first = go(how, graph, {"messages": history(1, 2)}, thread)
    assert first["__interrupt__"][0].value == "may I?"
    after = go(how, graph, Command(resume="yes"), thread)["messages"]
    assert ids(after) == ["h", "a1", "answer"]
    assert after[-1].content == "yes"
    assert len(model.requests) == 1


@BOTH
def test_an_interrupt_inside_the_summariser_passes_through(how: str) -> None:
    """A host's control flow is no failure of the summariser, wherever it is raised."""

    def asks(messages: list[BaseMessage]) -> str:
        return f"<state_snapshot>\n{interrupt('may it be summarised?')}\n</state_snapshot>"

    model = ScriptedChatModel(replies=[asks])
    graph = graph_of(ByIds, RoundCompactNode(compactor(model)), checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "asked"}}
    first = go(how, graph, {"messages": history(1, 2)}, thread)
    assert first["__interrupt__"][0].value == "may it be summarised?"
    after = go(how, graph, Command(resume="ALLOWED"), thread)["messages"]
    assert "ALLOWED" in str(after[1].content)


@BOTH
@pytest.mark.parametrize("end", ["structured", "text"])
def test_the_next_request_makes_the_finished_round_prefix(how: str, end: str) -> None:
    """A finished round's answer is not replaced by default, and belongs to the prefix as soon as the user goes on."""
    final = (
        [AIMessage("Done: 12.5", id="final")]
        if end == "text"
        else [
            AIMessage("", tool_calls=[{"name": "Invoice", "args": {"total": 12.5}, "id": "so", "type": "tool_call"}], id="final"),
            ToolMessage("Returning structured response: total=12.5", tool_call_id="so", name="Invoice", id="said"),
        ]
    )
    given = [*history(1, 2), *final]
    subject = compactor(summariser("NOTES"), keep_recent_messages=None)
    finished = compact(how, subject, given).messages
    assert finished[-len(final) :] == final
    assert_valid_history(finished, pending_ok=False)
    asked = [*finished, HumanMessage("and the date?", id="h2")]
    after = compact(how, subject, [*asked, *work(5), *work(6), *work(7)]).messages
    assert after[: len(asked)] == asked
    assert blocks(after) == [1, len(asked)]
