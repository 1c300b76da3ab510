"""Streams: nothing of the summariser in `messages`, the agent's own words word by word, and the block marked where state is shown."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any, TypedDict

import pytest
from doors import REQUEST, ByIds, agent_loop, look_up, shared, stream, working
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, BaseMessage, HumanMessage, RemoveMessage
from langchain_core.messages.notification import get_notification_metadata
from langgraph.graph import START, StateGraph
from procedures import BOTH, blocks, compactor, history, ids, summariser

from langgraph_roundcompact import RoundCompactMiddleware, RoundCompactNode, add_round_compaction
from langgraph_roundcompact.testing import ScriptedChatModel

SECRET = "WHISPERED"
ANSWER = "the final answer is ready"
DOORS = pytest.mark.parametrize("door", ["node", "wrapper", "middleware", "request only", "hook"])


def one_model() -> ScriptedChatModel:
    """One model object for agent and summariser, which streams both."""

    def reply(messages: list[BaseMessage]) -> str:
        asked = any("<state_snapshot>" in str(message.content) and "checkpoint" in str(message.content) for message in messages)
        return f"<state_snapshot>\n{SECRET} notes\n</state_snapshot>" if asked else ANSWER

    return ScriptedChatModel(replies=[reply])


class Hooked(ByIds):
    seen: list[AnyMessage]


def agent_by(door: str, model: ScriptedChatModel, **config: Any) -> Any:
    """A one-step agent by each door."""
    subject = compactor(model, **config)
    if door in ("middleware", "request only"):
        return create_agent(model, [], middleware=[RoundCompactMiddleware(subject, persist=door == "middleware")])
    key = "seen" if door == "hook" else "messages"
    builder = StateGraph(Hooked if door == "hook" else ByIds)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state[key])]})
    if door == "wrapper":
        builder.add_edge(START, "agent")
        add_round_compaction(builder, subject)
    else:
        builder.add_node("compact", RoundCompactNode(subject, output_messages_key="seen" if door == "hook" else None))
        builder.add_edge(START, "compact")
        builder.add_edge("compact", "agent")
    return builder.compile()


def check_words(chunks: list[BaseMessage]) -> None:
    """The agent's answer in several pieces, and nothing else."""
    assert all(isinstance(chunk, AIMessageChunk) for chunk in chunks)
    assert "".join(str(chunk.content) for chunk in chunks) == ANSWER
    assert len([chunk for chunk in chunks if chunk.content]) == 5


@BOTH
@DOORS
def test_the_messages_stream_holds_the_answer_and_nothing_else(how: str, door: str) -> None:
    """No token of the summary, no block, no removal, no message a second time; the same model object streams both."""
    model = one_model()
    parts = stream(how, agent_by(door, model), {"messages": history(1, 2)}, stream_mode="messages")
    assert len(model.requests) == 2
    check_words([chunk for chunk, _ in parts])


@BOTH
@DOORS
def test_the_same_inside_a_subgraph(how: str, door: str) -> None:
    """With `subgraphs=True` the inner agent's tokens are there, the summariser's are not."""
    model = one_model()
    inner = agent_by(door, model)
    builder = StateGraph(ByIds)
    builder.add_node("team", lambda state: {"messages": inner.invoke({"messages": state["messages"]})["messages"][-1:]})
    builder.add_edge(START, "team")
    parts = stream(how, builder.compile(), {"messages": history(1, 2)}, stream_mode="messages", subgraphs=True)
    assert len(model.requests) == 2
    tokens = [chunk for _, (chunk, _) in parts]
    check_words(tokens)


@BOTH
@pytest.mark.parametrize("door", ["node", "wrapper", "middleware"])
def test_values_and_updates_mark_the_block(how: str, door: str) -> None:
    """A UI that shows the state can tell the block by its metadata and hide or fold it."""
    parts = stream(how, agent_by(door, one_model()), {"messages": history(1, 2)}, stream_mode=["values", "updates"])
    last = [part for mode, part in parts if mode == "values"][-1]["messages"]
    assert blocks(last) == [1]
    written = [message for mode, part in parts if mode == "updates" for message in messages_in(part)]
    block = next(message for message in written if SECRET in str(message.content))
    for one in (last[1], block):
        assert (one.additional_kwargs["lc_source"], one.name, one.id) == ("round_compaction", "round_checkpoint", "a1")
        assert get_notification_metadata(one) is not None
    assert sorted(str(message.id) for message in written if isinstance(message, RemoveMessage)) == ["a2", "t1", "t2"]


def messages_in(value: Any) -> list[BaseMessage]:
    """All messages in a part of an `updates` stream, whatever its shape."""
    if isinstance(value, BaseMessage):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [message for item in items for message in messages_in(item)]


@BOTH
def test_an_update_of_a_wrapped_node_keeps_its_shape(how: str) -> None:
    """One update under the node's name, as at every other step."""
    (part,) = stream(how, agent_by("wrapper", one_model()), {"messages": history(1, 2)}, stream_mode="updates")
    assert list(part) == ["agent"]
    assert part["agent"]["messages"][0].id == "a1"
    assert part["agent"]["messages"][-1].content == ANSWER


@BOTH
@pytest.mark.parametrize("door", ["request only", "hook"])
def test_a_door_that_leaves_the_state_alone_shows_no_block_in_it(how: str, door: str) -> None:
    """A chat UI sees every message."""
    parts = stream(how, agent_by(door, one_model()), {"messages": history(1, 2)}, stream_mode="values")
    assert ids(parts[-1]["messages"])[:5] == ["h", "a1", "t1", "a2", "t2"]
    assert not blocks(parts[-1]["messages"])


@DOORS
async def test_events_of_the_summary_carry_the_tag_and_the_others_do_not(door: str) -> None:
    """`astream_events` v2 shows every model's tokens: the tag and the source tell which to leave out."""
    model = one_model()
    events = [event async for event in agent_by(door, model).astream_events({"messages": history(1, 2)}, version="v2")]
    of_model = [event for event in events if event["event"].startswith("on_chat_model")]
    hidden = [event for event in of_model if "nostream" in event.get("tags", [])]
    shown = [event for event in of_model if "nostream" not in event.get("tags", [])]
    assert {event["metadata"]["lc_source"] for event in hidden} == {"round_compaction"}
    assert not [event for event in shown if "lc_source" in event["metadata"]]
    assert not [event for event in shown if SECRET in str(event["data"].get("chunk", "")) + str(event["data"].get("output", ""))]
    words = [event["data"]["chunk"].content for event in shown if event["event"] == "on_chat_model_stream"]
    assert "".join(words) == ANSWER
    assert len(words) >= 5


async def test_a_wrapped_node_is_one_run_of_its_name() -> None:
    """A listener for the node's own events hears it once, as without compaction."""
    events = [event async for event in agent_by("wrapper", one_model()).astream_events({"messages": history(1, 2)}, version="v2")]
    assert [event["event"] for event in events if event["name"] == "agent" and event["event"] != "on_chain_stream"] == [
        "on_chain_start",
        "on_chain_end",
    ]


@BOTH
@pytest.mark.parametrize("time_limit", [0.0, 30.0])
@pytest.mark.parametrize("wrap", ["plain", "retry", "fallback", "bound", "chain"])
def test_whatever_the_summariser_is_wrapped_in(how: str, wrap: str, time_limit: float) -> None:
    """The tag reaches the model inside, also in the thread that a time limit needs."""
    inner = ScriptedChatModel(replies=[f"<state_snapshot>\n{SECRET} notes\n</state_snapshot>"])
    wrapped: Any = {
        "plain": inner,
        "retry": inner.with_retry(),
        "fallback": ScriptedChatModel(replies=[ValueError("down")]).with_fallbacks([inner]),
        "bound": inner.bind(stop=["zzz"]).with_config(tags=["mine"], run_name="mine"),
        "chain": inner | (lambda message: message.content),
    }[wrap]
    model = ScriptedChatModel(replies=[ANSWER])
    agent = create_agent(model, [], middleware=[RoundCompactMiddleware(compactor(wrapped, timeout_seconds=time_limit))])
    parts = stream(how, agent, {"messages": history(1, 2)}, stream_mode=["messages", "custom"])
    check_words([part[0] for mode, part in parts if mode == "messages"])
    assert [part["phase"] for mode, part in parts if mode == "custom"] == ["started", "finished"]


@BOTH
@DOORS
def test_each_door_tells_a_custom_stream_start_and_end(how: str, door: str) -> None:
    """With tokens before and after, so that a UI can show what happened."""
    parts = stream(how, agent_by(door, one_model()), {"messages": history(1, 2)}, stream_mode="custom")
    assert [(part["type"], part["phase"]) for part in parts] == [("round_compaction", "started"), ("round_compaction", "finished")]
    assert parts[1]["tokens_after"] < parts[1]["tokens_before"]


@BOTH
@DOORS
def test_a_failed_summary_is_told_and_the_answer_streams(how: str, door: str) -> None:
    """The window stays, the run goes on."""

    def reply(messages: list[BaseMessage]) -> str:
        if any("<state_snapshot>" in str(message.content) for message in messages):
            raise ValueError(SECRET)
        return ANSWER

    agent = agent_by(door, ScriptedChatModel(replies=[reply]), max_retries=0)
    parts = stream(how, agent, {"messages": history(1, 2)}, stream_mode=["messages", "custom"])
    told = [part for mode, part in parts if mode == "custom"]
    assert [part["phase"] for part in told] == ["started", "failed"]
    assert SECRET not in str(told)
    check_words([part[0] for mode, part in parts if mode == "messages"])


class Appended(TypedDict):
    messages: Annotated[list[AnyMessage], operator.add]


@BOTH
def test_on_an_append_channel_the_words_stream_too(how: str) -> None:
    """There the update is an overwrite of the whole list; nothing of it shows in `messages`."""
    model = one_model()
    builder = StateGraph(Appended)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_edge(START, "agent")
    add_round_compaction(builder, compactor(model))
    check_words([chunk for chunk, _ in stream(how, builder.compile(), {"messages": history(1, 2)}, stream_mode="messages")])


@BOTH
@pytest.mark.parametrize("door", ["node", "wrapper", "middleware"])
def test_over_a_long_run_each_message_streams_once(how: str, door: str) -> None:
    """Forty steps: the agent's notes and the tools' results each once, in order, and of several summaries nothing."""
    subject, notes = shared(notes=summariser(*(f"{SECRET} {number}" for number in range(30)), strict=True))
    model = working(40)
    if door == "middleware":
        graph: Any = create_agent(model, [look_up], middleware=[RoundCompactMiddleware(subject)])
    else:
        graph = agent_loop(model, subject, door=door).compile()
    parts = stream(how, graph, {"messages": [HumanMessage(REQUEST, id="h")]}, {"recursion_limit": 300}, stream_mode="messages")
    assert len(notes.requests) >= 3
    assert not [chunk for chunk, _ in parts if SECRET in str(chunk.content)]
    said = "".join(str(chunk.content) for chunk, _ in parts if isinstance(chunk, AIMessageChunk))
    assert said == "".join(f"next is {key}" for key in range(1, 41)) + "all done"
    results = [str(chunk.content).split(":")[0] for chunk, _ in parts if chunk.type == "tool"]
    assert results == [f"invoice {key}" for key in range(1, 41)]


@BOTH
def test_a_hand_made_answer_of_a_wrapped_node_streams(how: str) -> None:
    """A message that no model streamed is shown once when the node ends, at a step with a compaction as at any other."""
    builder = StateGraph(ByIds)
    builder.add_node("agent", lambda state: {"messages": [AIMessage("by hand", id="hand")]})
    builder.add_edge(START, "agent")
    add_round_compaction(builder, compactor(summariser(SECRET)))
    parts = stream(how, builder.compile(), {"messages": history(1, 2)}, stream_mode="messages")
    assert [chunk.content for chunk, _ in parts] == ["by hand"]


def test_other_threads_streams_stay_apart() -> None:
    """Two async runs at once on one compactor: each custom stream tells of its own compaction."""
    agent = agent_by("wrapper", one_model())

    async def run() -> list[list[Any]]:
        async def one(ask: str) -> list[Any]:
            return [part async for part in agent.astream({"messages": history(1, 2, ask=ask)}, stream_mode="custom")]

        return list(await asyncio.gather(*(one(f"task {number}") for number in range(4))))

    assert [[part["phase"] for part in parts] for parts in asyncio.run(run())] == [["started", "finished"]] * 4
