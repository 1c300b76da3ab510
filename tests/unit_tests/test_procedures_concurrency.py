"""Reported faults of runs beside each other, and of runs that are stopped.

| report | tests |
|---|---|
| 36 blocking the event loop | `test_a_slow_counter_does_not_hold_the_event_loop`, `test_a_large_history_does_not_hold_the_event_loop`, |
| | `test_writing_does_not_hold_the_event_loop`, `test_the_summariser_is_awaited_with_the_runs_context` |
| 45 cancellation | `test_a_cancelled_run_ends_at_once_and_the_next_one_compacts`, `test_an_outer_time_limit_cancels`, |
| | `test_the_own_time_limit_is_told_apart` |
| 65 one instance, many threads | `test_twenty_threads_of_one_instance_get_their_own`, `test_a_failure_stays_with_its_thread`, |
| | `test_nothing_of_a_run_is_readable_on_the_instance` |
"""

from __future__ import annotations

import asyncio
import contextvars
import re
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.store.memory import InMemoryStore
from procedures import BOTH, blocks, compactor, go, history, plain_counter, snapshot, summariser, widest_gap

from langgraph_roundcompact import RoundCompactConfig, RoundCompactMiddleware, RoundCompactNode, RoundCompactor, StoreArchive, add_round_compaction
from langgraph_roundcompact.testing import ScriptedChatModel

LONGEST_GAP_SECONDS = 0.1
TRIES = 5
"""A machine that is busy with something else holds any loop up; work on the loop itself would hold it up every time."""
SHARED_GAP_SECONDS = 0.4
"""Where seconds of Python run in a thread, which shares the interpreter with the loop, on a machine that may be busy."""


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def agent_of(subject: Any, door: str, model: Any = None) -> Any:
    """An agent that answers once, by each door."""
    model = model or ScriptedChatModel(replies=["done"])
    if door == "middleware":
        return create_agent(model, tools=[], middleware=[RoundCompactMiddleware(subject)], checkpointer=InMemorySaver())
    builder = StateGraph(Chat)

    async def answer(state: Chat) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    builder.add_node("agent", RunnableLambda(lambda state: {"messages": [model.invoke(state["messages"])]}, afunc=answer))
    if door == "node":
        builder.add_node("compact", RoundCompactNode(subject))
        builder.add_edge(START, "compact")
        builder.add_edge("compact", "agent")
    else:
        builder.add_edge(START, "agent")
        add_round_compaction(builder, subject)
    return builder.compile(checkpointer=InMemorySaver())


DOORS = pytest.mark.parametrize("door", ["node", "wrapper", "middleware"])


# --- 36 -------------------------------------------------------------------------------------------------------------------------------------


@DOORS
async def test_a_slow_counter_does_not_hold_the_event_loop(door: str) -> None:
    """A counter that sleeps 0.3 s runs in a thread, and the summariser is awaited."""

    def counter(messages: Any) -> int:
        time.sleep(0.3)
        return plain_counter(messages)

    agent = agent_of(compactor(summariser("NOTES", delay_seconds=0.3), token_counter=counter), door)
    after, gap = await widest_gap(lambda: agent.ainvoke({"messages": history(1, 2)}, {"configurable": {"thread_id": "1"}}))
    assert blocks(after["messages"]) == [1]
    assert gap < LONGEST_GAP_SECONDS


@pytest.mark.parametrize("first_usage", [False, True])
async def test_a_large_history_does_not_hold_the_event_loop(first_usage: bool) -> None:
    """Four megabytes that were never counted before: measuring, rules, redaction and archive all stay off the loop."""
    given = history(*range(500), characters=8000)
    if first_usage:
        next(message for message in reversed(given) if isinstance(message, AIMessage)).usage_metadata = {
            "input_tokens": 2_000_000,
            "output_tokens": 1,
            "total_tokens": 2_000_001,
        }
    config = RoundCompactConfig(context_window_tokens=100_000, keep_recent_messages=0)
    gaps = []
    for _ in range(TRIES):
        subject = RoundCompactor(summariser("NOTES"), config=config, archive=StoreArchive(InMemoryStore()))
        result, gap = await widest_gap(partial(subject.acompact, given))
        assert result.compacted
        gaps.append(gap)
        if gap < SHARED_GAP_SECONDS:
            break
    assert min(gaps) < SHARED_GAP_SECONDS


async def test_a_chain_with_a_large_history_does_not_hold_the_event_loop() -> None:
    """The door that looks for a stand-in at each call reads the whole round for it, in a thread."""
    subject = RoundCompactor(config=RoundCompactConfig(context_window_tokens=10_000_000))
    chain = subject.as_runnable()
    gaps = []
    for first in range(TRIES):
        _, gap = await widest_gap(partial(chain.ainvoke, history(*range(first, first + 1000), characters=8000)))
        gaps.append(gap)
        if gap < SHARED_GAP_SECONDS:
            break
    assert min(gaps) < SHARED_GAP_SECONDS


async def test_writing_does_not_hold_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow disk under the dump costs other requests nothing."""
    real = Path.mkdir

    def slow(self: Path, *given: Any, **more: Any) -> None:
        time.sleep(0.3)
        real(self, *given, **more)

    subject = compactor(summariser("NOTES"), enable_compression_dump=True, compression_dump_dir=str(tmp_path / "out"))
    monkeypatch.setattr(Path, "mkdir", slow)
    result, gap = await widest_gap(lambda: subject.acompact(history(1, 2)))
    assert result.compacted
    assert len(await asyncio.to_thread(lambda: list(tmp_path.rglob("compaction-*.json")))) == 1
    assert gap < LONGEST_GAP_SECONDS


WHO = contextvars.ContextVar("WHO", default="nobody")


@BOTH
@DOORS
def test_the_summariser_is_awaited_with_the_runs_context(how: str, door: str) -> None:
    """Context variables and the graph's configuration reach the call, also from worker threads."""
    seen = []

    def note(messages: Any) -> str:
        seen.append((WHO.get(), get_config()["configurable"]["thread_id"], get_config()["metadata"].get("tenant")))
        return snapshot("NOTES")

    async def anote(messages: Any) -> str:
        return note(messages)

    token = WHO.set("somebody")
    try:
        agent = agent_of(compactor(RunnableLambda(note, afunc=anote)), door)
        go(how, agent, {"messages": history(1, 2)}, {"configurable": {"thread_id": "7"}, "metadata": {"tenant": "blue"}})
    finally:
        WHO.reset(token)
    assert seen == [("somebody", "7", "blue")]


async def asked_for(model: ScriptedChatModel) -> None:
    """Waits until the model is being asked."""
    for _ in range(500):
        if model.requests:
            return
        await asyncio.sleep(0.01)
    pytest.fail("the model was not asked")


# --- 45 -------------------------------------------------------------------------------------------------------------------------------------


@DOORS
async def test_a_cancelled_run_ends_at_once_and_the_next_one_compacts(door: str) -> None:
    """The user presses stop during the summary: no half update, no late summary, and the same thread goes on."""
    model = ScriptedChatModel(replies=[snapshot("LATE"), snapshot("IN TIME")], delay_seconds=5)
    store = InMemoryStore()
    agent = agent_of(compactor(model, archive=StoreArchive(store)), door)
    thread = {"configurable": {"thread_id": "1"}}
    task = asyncio.create_task(agent.ainvoke({"messages": history(1, 2)}, thread))
    await asked_for(model)
    began = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - began < 0.2
    held = (await agent.aget_state(thread)).values["messages"]
    assert [message.model_dump() for message in held] == [message.model_dump() for message in history(1, 2)]
    assert store.search(()) == []
    model.delay_seconds = 0
    model.replies = [snapshot("IN TIME")]
    after = (await agent.ainvoke(None, thread))["messages"]
    assert blocks(after) == [1]
    assert "IN TIME" in str(after[1].content)
    assert "LATE" not in str(after)


async def test_cancelling_in_the_middle_of_heavy_work_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    """The rules are at work in a thread when the run is cancelled: it ends by itself, and the object can be used again."""
    given = history(*range(300), characters=8000)
    subject = compactor(None, token_counter=None)
    task = asyncio.create_task(subject.acompact(given))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not caplog.records
    assert (await subject.acompact(given)).compacted


@DOORS
async def test_an_outer_time_limit_cancels(door: str) -> None:
    """`asyncio.wait_for` around the run is a cancellation, not a failure of the summariser: nothing is counted against it."""
    model = ScriptedChatModel(replies=[snapshot("NOTES")], delay_seconds=5)
    agent = agent_of(compactor(model), door)
    thread = {"configurable": {"thread_id": "1"}}
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(agent.ainvoke({"messages": history(1, 2)}, thread), 0.2)
    model.delay_seconds = 0
    assert blocks((await agent.ainvoke(None, thread))["messages"]) == [1]


@BOTH
def test_the_own_time_limit_is_told_apart(how: str) -> None:
    """The run goes on with the whole history, and events name the reason."""
    events: list[Any] = []
    model = ScriptedChatModel(replies=[snapshot("LATE")], delay_seconds=0.5)
    agent = agent_of(compactor(model, timeout_seconds=0.1, max_retries=0, on_event=events.append), "node")
    after = go(how, agent, {"messages": history(1, 2)}, {"configurable": {"thread_id": "1"}})["messages"]
    assert blocks(after) == []
    assert after[-1].content == "done"
    assert [(event.phase, event.reason) for event in events] == [("started", "reached_threshold"), ("failed", "timeout")]


# --- 65 -------------------------------------------------------------------------------------------------------------------------------------

THREADS = 20


class Refused(Exception):
    status_code = 401


def of_user(number: int) -> list[BaseMessage]:
    private = f"PRIVATE-{number} " + "x" * 6000
    return [
        HumanMessage(f"task of user {number}", id=f"h{number}"),
        AIMessage("", tool_calls=[{"name": "read", "args": {"owner": number}, "id": f"k{number}", "type": "tool_call"}], id=f"a{number}"),
        ToolMessage(private, tool_call_id=f"k{number}", id=f"t{number}"),
    ]


def summing(fails: int | None = None) -> ScriptedChatModel:
    def reply(messages: list[BaseMessage]) -> Any:
        found = re.search(r"PRIVATE-(\d+)", "\n".join(str(message.content) for message in messages))
        assert found is not None
        return Refused("no") if int(found[1]) == fails else snapshot(f"SUM {found[0]}")

    return ScriptedChatModel(replies=[reply], delay_seconds=0.05)


def in_parallel(how: str, agent: Any) -> dict[int, list[BaseMessage]]:
    """Twenty runs at once on one agent."""
    given = [({"messages": of_user(number)}, {"configurable": {"thread_id": f"thread-{number}"}}) for number in range(1, THREADS + 1)]
    if how == "sync":
        with ThreadPoolExecutor(THREADS) as pool:
            states = list(pool.map(lambda one: agent.invoke(*one), given))
    else:

        async def together() -> list[Any]:
            return await asyncio.gather(*(agent.ainvoke(*one) for one in given))

        states = asyncio.run(together())
    return {number: state["messages"] for number, state in enumerate(states, 1)}


@BOTH
@DOORS
def test_twenty_threads_of_one_instance_get_their_own(how: str, door: str) -> None:
    """Each ends with its own request, its own block and a pointer to its own messages; equal to a run alone."""
    store = InMemoryStore()
    archive = StoreArchive(store)
    subject = compactor(summing(), archive=archive)
    ended = in_parallel(how, agent_of(subject, door))
    for number, messages in ended.items():
        assert messages[0].content == f"task of user {number}"
        block = str(messages[blocks(messages)[0]].content)
        assert set(re.findall(r"PRIVATE-\d+", str([message.model_dump() for message in messages]))) == {f"PRIVATE-{number}"}
        (key,) = re.findall(r"COMPRESSION_RECALL: id=([^\]]+)\]", block)
        held = archive.get(key, thread_id=f"thread-{number}")
        assert held is not None
        assert [message["id"] for message in held["messages"]] == [f"a{number}", f"t{number}"]
        assert archive.get(key, thread_id=f"thread-{number % THREADS + 1}") is None
        alone = compactor(summing(), archive=StoreArchive(InMemoryStore())).compact(of_user(number), thread_id=f"thread-{number}")
        assert alone.messages[1].content == block


@BOTH
@DOORS
def test_a_failure_stays_with_its_thread(how: str, door: str) -> None:
    """One user's 401 leaves one conversation as it was."""
    ended = in_parallel(how, agent_of(compactor(summing(fails=7)), door))
    assert [number for number, messages in ended.items() if not blocks(messages)] == [7]
    assert [message.id for message in ended[7][:3]] == ["h7", "a7", "t7"]


@BOTH
def test_nothing_of_a_run_is_readable_on_the_instance(how: str) -> None:
    """No attribute of compactor or middleware shows a conversation."""
    subject = compactor(summing())
    middleware = RoundCompactMiddleware(subject)
    agent = create_agent(ScriptedChatModel(replies=["done"]), tools=[], middleware=[middleware], checkpointer=InMemorySaver())
    before = set(vars(subject)) | set(vars(middleware))
    in_parallel(how, agent)
    assert set(vars(subject)) | set(vars(middleware)) == before
    for thing in (subject, middleware, *vars(subject).values(), *vars(middleware).values(), vars(subject._ports)):
        if not isinstance(thing, ScriptedChatModel):
            assert "PRIVATE" not in repr({key: value for key, value in thing.items() if key != "_model"} if isinstance(thing, dict) else thing)


async def test_many_runs_of_one_thread_at_once_give_the_same_bytes() -> None:
    """A double click: both runs come to the same block, and a summary that is remembered is paid once or twice, never wrong."""
    model = summing()
    subject = compactor(model)
    results = await asyncio.gather(*(subject.acompact(of_user(3), thread_id="same") for _ in range(5)))
    assert len({str([message.model_dump() for message in result.messages]) for result in results}) == 1
    assert (await subject.acompact(of_user(3), thread_id="same")).messages == results[0].messages
    assert len(model.requests) <= 5


async def test_a_changed_message_is_not_answered_from_what_is_remembered() -> None:
    """The memo goes by content: other work under the same ids is another summary."""
    model = summariser("ONE", "TWO")
    subject = compactor(model)
    await subject.acompact(history(1, 2), thread_id="t")
    other = history(1, 2)
    other[2] = other[2].model_copy(update={"content": "something else " + "z" * 5000})
    second = await subject.acompact(other, thread_id="t")
    assert "TWO" in str(second.messages[1].content)
    assert len(model.requests) == 2
