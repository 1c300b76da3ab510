"""Reported faults of what is written: checkpoints, archives, dumps, and the request as the provider's cache sees it.

| report | tests |
|---|---|
| 56 growing checkpoints | `test_ten_compactions_of_one_round_keep_the_newest_checkpoint_small`, `test_the_database_grows_linearly_over_ten_rounds` |
| 57 archive pointer | `test_a_failed_archive_leaves_no_pointer_and_one_warning`, `test_a_required_archive_that_fails_means_no_compaction`, |
| | `test_a_pointer_resolves_to_every_replaced_message`, `test_the_archive_is_written_before_the_originals_leave`, |
| | `test_no_spelling_of_a_thread_id_leaves_its_place` |
| 58, 60, 61, 76 archive of odd things | `test_what_is_no_plain_data_leaves_a_stand_in` |
| 74 giant result | `test_a_result_larger_than_the_window_costs_little_and_is_archived_whole` |
| 77 prefix cache | `test_after_a_compaction_each_request_extends_the_one_before`, `test_a_block_has_no_clock_and_no_chance_in_it` |
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.store.memory import InMemoryStore
from procedures import BOTH, blocks, compact, compactor, go, history, summariser, work

from langgraph_roundcompact import RoundCompactMiddleware, RoundCompactNode, StoreArchive, add_round_compaction, create_recall_tool
from langgraph_roundcompact.testing import ScriptedChatModel


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def compacting_graph(subject: Any) -> StateGraph[Any, Any, Any, Any]:
    builder = StateGraph(Chat)
    builder.add_node("compact", RoundCompactNode(subject))
    builder.add_edge(START, "compact")
    builder.add_edge("compact", END)
    return builder


# --- 56 -----------------------------------------------------------------------------------------------------------------------------------


def bytes_of(graph: Any, thread: Any) -> int:
    kind, data = JsonPlusSerializer().dumps_typed(graph.get_state(thread).values["messages"])
    assert kind == "msgpack"
    return len(data)


@BOTH
@pytest.mark.parametrize("saver", ["memory", "sqlite"])
def test_ten_compactions_of_one_round_keep_the_newest_checkpoint_small(how: str, saver: str, tmp_path: Path) -> None:
    """Ten times two steps of 20,000 characters: what the newest checkpoint holds stays at about request and block."""
    subject = compactor(summariser("NOTES"), archive=StoreArchive(InMemoryStore()))
    builder, thread, sizes = compacting_graph(subject), {"configurable": {"thread_id": "long"}}, []

    def rounds(number: int) -> dict[str, Any]:
        more = [*work(2 * number + 1, 20_000), *work(2 * number + 2, 20_000)]
        return {"messages": more if number else [HumanMessage("go", id="h"), *more]}

    async def arun(checkpointer: Any) -> None:
        graph = builder.compile(checkpointer=checkpointer)
        for number in range(10):
            after = (await graph.ainvoke(rounds(number), thread))["messages"]
            sizes.append(len(JsonPlusSerializer().dumps_typed(after)[1]))
            assert len(after) == 2

    async def in_file() -> None:
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "chat.db")) as checkpointer:
            await arun(checkpointer)

    if how == "async":
        asyncio.run(in_file() if saver == "sqlite" else arun(InMemorySaver()))
    else:
        connection = sqlite3.connect(tmp_path / "chat.db", check_same_thread=False)
        graph = builder.compile(checkpointer=SqliteSaver(connection) if saver == "sqlite" else InMemorySaver())
        for number in range(10):
            assert len(graph.invoke(rounds(number), thread)["messages"]) == 2
            sizes.append(bytes_of(graph, thread))
        connection.close()
    assert max(sizes) < 20_000  # of 40,000 characters that came in at each of the ten


@BOTH
def test_the_database_grows_linearly_over_ten_rounds(how: str, tmp_path: Path) -> None:
    """Ten requests on one thread: the whole file grows by about as much in the last five as in the first five."""
    subject = compactor(summariser("NOTES"))
    builder, thread, file, sizes = compacting_graph(subject), {"configurable": {"thread_id": "rounds"}}, tmp_path / "chat.db", []

    def request(number: int) -> dict[str, Any]:
        return {"messages": [HumanMessage(f"task {number}", id=f"h{number}"), *work(2 * number, 20_000), *work(2 * number + 1, 20_000)]}

    async def arounds() -> None:
        async with AsyncSqliteSaver.from_conn_string(str(file)) as checkpointer:
            graph = builder.compile(checkpointer=checkpointer)
            for number in range(10):
                await graph.ainvoke(request(number), thread)
                sizes.append(written(file))

    if how == "async":
        asyncio.run(arounds())
    else:
        connection = sqlite3.connect(file, check_same_thread=False)
        graph = builder.compile(checkpointer=SqliteSaver(connection))
        for number in range(10):
            graph.invoke(request(number), thread)
            sizes.append(written(file))
        connection.close()
    assert sizes[9] - sizes[4] < 1.6 * (sizes[4] - 0)


def written(file: Path) -> int:
    """Bytes of all checkpoints and writes in a file."""
    with sqlite3.connect(file) as connection:
        rows = [connection.execute(f"select coalesce(sum(length({column})), 0) from {table}").fetchone() for table, column in TABLES]
    connection.close()
    return sum(row[0] for row in rows)


TABLES = (("checkpoints", "checkpoint"), ("writes", "value"))


# --- 57: the pointer ------------------------------------------------------------------------------------------------------------------------


class Shelf:
    """An archive that fails in a chosen way."""

    def __init__(self, mode: str) -> None:
        self.mode, self.data = mode, {}

    def put(self, key: str, record: Mapping[str, Any], *, thread_id: str | None = None) -> Any:
        if self.mode == "raise":
            raise OSError("disk full")
        if self.mode == "partial":
            self.data[key] = str(record)[: len(str(record)) // 2]
            raise OSError("cut")
        if self.mode == "error_result":
            return {"error": "permission denied"}
        self.data[key] = dict(record)
        return None

    async def aput(self, key: str, record: Mapping[str, Any], *, thread_id: str | None = None) -> Any:
        return self.put(key, record, thread_id=thread_id)

    def get(self, key: str, *, thread_id: str | None = None) -> Any:
        return self.data.get(key)

    async def aget(self, key: str, *, thread_id: str | None = None) -> Any:
        return self.data.get(key)


FAILING = ["raise", "error_result", "partial"]


def pointers(messages: list[BaseMessage]) -> list[str]:
    return re.findall(r"COMPRESSION_RECALL: id=([^\]]+)\]", "\n".join(str(message.content) for message in messages))


@BOTH
@pytest.mark.parametrize("mode", FAILING)
def test_a_failed_archive_leaves_no_pointer_and_one_warning(how: str, mode: str, caplog: pytest.LogCaptureFixture) -> None:
    """The block goes out without a pointer, in its text and in its data."""
    with caplog.at_level(logging.WARNING, logger="langgraph_roundcompact"):
        result = compact(how, compactor(summariser("NOTES"), archive=Shelf(mode)), history(1, 2))
    assert result.compacted
    assert (pointers(result.messages), result.archive_id) == ([], None)
    assert result.messages[1].additional_kwargs["lc_data"]["archive_ids"] == []
    assert len([record for record in caplog.records if "archive" in record.getMessage()]) == 1


@BOTH
@pytest.mark.parametrize("mode", FAILING)
def test_a_required_archive_that_fails_means_no_compaction(how: str, mode: str) -> None:
    """Strict: the window stays, the summary is not paid for again when the archive is back."""
    model, shelf = summariser("NOTES"), Shelf(mode)
    subject = compactor(model, archive=shelf, archive_required=True, cooldown_groups=0)
    result = compact(how, subject, history(1, 2))
    assert (result.outcome, result.reason, result.messages) == ("failed", "archive_failed", history(1, 2))
    shelf.mode = "ok"
    again = compact(how, subject, history(1, 2))
    assert len(pointers(again.messages)) == 1
    assert len(model.requests) == 1


@BOTH
def test_a_pointer_resolves_to_every_replaced_message(how: str) -> None:
    """Role, name, tool, arguments, the whole result, id and artifact; two compactions keep both entries, and recall reads them."""
    store = InMemoryStore()
    archive = StoreArchive(store)
    subject = compactor(summariser("ONE", "TWO"), archive=archive)
    given = history(1, 2)
    given[2] = given[2].model_copy(update={"artifact": {"rows": [1, 2]}, "status": "error"})
    first = compact(how, subject, given, thread_id="t")
    second = compact(how, subject, [*first.messages, *work(3), *work(4)], thread_id="t")
    keys = pointers(second.messages)
    assert keys == [first.archive_id, second.archive_id]
    held = archive.get(keys[0], thread_id="t")
    assert held is not None
    for original, kept in zip(given[1:], held["messages"], strict=True):
        assert (kept["id"], kept["type"], kept["content"], kept["name"]) == (original.id, original.type, original.content, original.name)
    assert held["messages"][0]["tool_calls"][0]["args"] == {"key": "k1"}
    assert (held["messages"][1]["artifact"], held["messages"][1]["status"]) == ({"rows": [1, 2]}, "error")
    recall = create_recall_tool(archive)
    assert "result 1" in recall.invoke({"archive_id": keys[0]}, {"configurable": {"thread_id": "t"}})
    assert "result 1" not in recall.invoke({"archive_id": keys[0]}, {"configurable": {"thread_id": "another"}})


@BOTH
def test_the_archive_is_written_before_the_originals_leave(how: str) -> None:
    """Nothing is written for a summary that is no gain; a run that dies in the write has lost nothing."""
    shelf = Shelf("ok")
    assert not compact(how, compactor(summariser("B" * 20_000), archive=shelf), history(1, 2)).changed
    assert shelf.data == {}

    class Dies(Shelf):
        def put(self, key: str, record: Mapping[str, Any], *, thread_id: str | None = None) -> Any:
            raise KeyboardInterrupt

    graph = compacting_graph(compactor(summariser("NOTES"), archive=Dies("ok"))).compile(checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "dies"}}
    with pytest.raises(KeyboardInterrupt):
        go(how, graph, {"messages": history(1, 2)}, thread)
    held = graph.get_state(thread).values.get("messages", [])
    assert blocks(held) == []


@pytest.mark.parametrize("thread_id", ["../../x", "a/b", "..", "a.b", "", "x" * 3000, "NUL\x00", "\ud800"])
def test_no_spelling_of_a_thread_id_leaves_its_place(thread_id: str, tmp_path: Path) -> None:
    """Archive and dump of a thread stay in their folder, and no two ids share one."""
    store = InMemoryStore()
    inside = tmp_path / "dumps" / "here"
    subject = compactor(
        summariser("NOTES"),
        archive=StoreArchive(store, namespace=("kept",)),
        enable_compression_dump=True,
        compression_dump_dir=str(inside / "{thread_id}"),
    )
    assert subject.compact(history(1, 2), thread_id=thread_id).archive_id
    assert subject.compact(history(1, 2), thread_id="plain").archive_id
    assert all(item.namespace[0] == "kept" for item in store.search((), limit=10))
    assert len({item.namespace for item in store.search((), limit=10)}) == 2
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(path.name.split("-")[0] for path in files) == ["compaction", "compaction", "decisions.jsonl", "decisions.jsonl"]
    assert len({path.parent for path in files}) == 2
    assert all(path.resolve().is_relative_to(inside.resolve()) for path in files)
    assert len({path.parent for path in files}) == 2


class Handle:
    """Cannot be copied."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


@BOTH
def test_what_is_no_plain_data_leaves_a_stand_in(how: str) -> None:
    """Locks, sets, bytes, images: the archive says what was there, the block is plain data that survives JSON and msgpack."""
    shelf = Shelf("ok")
    given = history(1)
    image = {"type": "image", "base64": "QUJD" * 5000, "mime_type": "image/png"}
    odd = {"s": {"b", "a"}, "r": b"\xff"}
    given += [
        AIMessage("", tool_calls=[{"name": "write", "args": {"body": "z" * 5000}, "id": "w", "type": "tool_call"}], id="wa"),
        ToolMessage([{"type": "text", "text": "taken"}, image], tool_call_id="w", id="wt", artifact=Handle(), additional_kwargs=odd),
    ]
    block = compact(how, compactor(summariser("NOTES"), archive=shelf), given).messages[1]
    record = next(iter(shelf.data.values()))
    kept = record["messages"][3]
    assert json.loads(json.dumps(record)) == record
    assert "Handle" in kept["artifact"]
    assert kept["additional_kwargs"] == {"s": ["a", "b"], "r": "[1 bytes]"}
    assert kept["content"][1]["base64"] == "QUJD" * 5000
    assert record["messages"][2]["tool_calls"][0]["args"]["body"] == "z" * 5000
    assert json.loads(json.dumps(block.model_dump())) == block.model_dump()
    serializer = JsonPlusSerializer()
    assert serializer.loads_typed(serializer.dumps_typed(block)) == block


@BOTH
def test_a_result_larger_than_the_window_costs_little_and_is_archived_whole(how: str) -> None:
    """800 kB: at most three calls, head and tail in the first request, less than two seconds of own time, the original in the archive."""
    shelf = Shelf("ok")
    model = summariser("NOTES", overflow_at_characters=120_000)
    body = "HEAD-MARK " + "m" * 400_000 + " MIDDLE " + "m" * 400_000 + " TAIL-MARK"
    given = [
        HumanMessage("Look into bundle.js", id="h"),
        AIMessage("", tool_calls=[{"name": "read", "args": {"path": "bundle.js"}, "id": "r", "type": "tool_call"}], id="a"),
        ToolMessage(body, tool_call_id="r", id="t"),
    ]
    subject = compactor(model, trigger=10_000, window=32_000, archive=shelf)
    began = time.process_time()
    result = compact(how, subject, given)
    assert time.process_time() - began < 2
    said = "\n".join(str(message.content) for message in model.requests[0])
    assert len(model.requests) <= 3
    assert len(said) < 120_000
    assert "HEAD-MARK" in said
    assert "TAIL-MARK" in said
    assert result.tokens_after < 10_000
    assert next(iter(shelf.data.values()))["messages"][1]["content"] == body


# --- 77 ---------------------------------------------------------------------------------------------------------------------------------------


@tool
def look_up(key: str) -> str:
    """Look something up."""
    return f"found {key} " + "y" * (5000 if key.startswith("big") else 300)


def asking(keys: list[str]) -> list[AIMessage]:
    calls = [[{"name": "look_up", "args": {"key": key}, "id": f"call_{number}", "type": "tool_call"}] for number, key in enumerate(keys)]
    return [*(AIMessage("", tool_calls=call) for call in calls), AIMessage("done")]


CACHED = {"type": "text", "text": "task", "cache_control": {"type": "ephemeral"}}


def requests_of(how: str, door: str) -> Iterator[list[list[dict[str, Any]]]]:
    """What the agent's model was sent at each step: two large results, then seven small ones, with one compaction in between."""
    model = ScriptedChatModel(replies=asking(["big1", "big2", *(f"small{number}" for number in range(7))]), usage="none")
    subject = compactor(summariser("NOTES"), trigger=2400, window=8000, keep_recent_messages=None)
    system = SystemMessage([{"type": "text", "text": "S" * 400, "cache_control": {"type": "ephemeral"}}])
    if door.startswith("middleware"):
        middleware = [RoundCompactMiddleware(subject, persist=door == "middleware")]
        agent: Any = create_agent(model, tools=[look_up], system_prompt=system, middleware=middleware)
    else:
        builder = StateGraph(Chat)
        bound = model.bind_tools([look_up])
        builder.add_node("agent", lambda state: {"messages": [bound.invoke([system, *state["messages"]])]})
        builder.add_node("tools", ToolNode([look_up]))
        builder.add_edge(START, "agent")
        builder.add_conditional_edges("agent", lambda state: "tools" if state["messages"][-1].tool_calls else END, ["tools", END])
        builder.add_edge("tools", "agent")
        add_round_compaction(builder, subject, system_message=system)
        agent = builder.compile()
    go(how, agent, {"messages": [HumanMessage([CACHED], id="h")]}, {"configurable": {"thread_id": "one"}})
    yield [[message.model_dump(exclude={"id"}) for message in request] for request in model.requests]


@BOTH
@pytest.mark.parametrize("door", ["wrapper", "middleware", "middleware without state"])
def test_after_a_compaction_each_request_extends_the_one_before(how: str, door: str) -> None:
    """One break of the prefix, at the compaction; before the request and in it nothing changes, cache marks included."""
    (sent,) = requests_of(how, door)
    assert len(sent) == 10
    breaks = [number for number, (before, after) in enumerate(pairwise(sent)) if after[: len(before)] != before]
    assert len(breaks) == 1
    assert all(request[:2] == sent[0][:2] for request in sent)
    assert sent[-1][1]["content"] == [CACHED]


@BOTH
def test_a_block_has_no_clock_and_no_chance_in_it(how: str) -> None:
    """Made twice, at different times by different objects, it is the same."""
    first = compact(how, compactor(summariser("NOTES")), history(1, 2)).messages[1]
    time.sleep(0.01)
    second = compact(how, compactor(summariser("NOTES")), history(1, 2)).messages[1]
    assert first.model_dump() == second.model_dump()
