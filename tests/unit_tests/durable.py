"""Agents on a database that outlives their process, for the tests of durability: each message can be told from its text, and processes die on demand.

The agent goes through invoices 1, 2, 3 … and knows how far it is from its messages alone, so that a lost message shows: in the order of its work, or
in what state and archive hold together (`work_of`).
"""

from __future__ import annotations

import asyncio
import hashlib
import multiprocessing
import os
import re
import signal
import sqlite3
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from builders import call
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import BaseTool, tool
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.store.postgres import PostgresStore
from langgraph.store.postgres.aio import AsyncPostgresStore
from langgraph.store.sqlite import SqliteStore
from langgraph.store.sqlite.aio import AsyncSqliteStore
from langgraph.types import interrupt
from procedures import compactor, snapshot

from langgraph_roundcompact import (
    RoundCompactMiddleware,
    RoundCompactNode,
    RoundCompactor,
    StoreArchive,
    add_round_compaction,
    round_compact_messages_delta,
)
from langgraph_roundcompact._memory_block import mark_of
from langgraph_roundcompact.testing import ScriptedChatModel, assert_valid_history
from langgraph_roundcompact.tiers import DEFAULT_TIERS

ASK = "Go through all invoices of the year, and keep the list of open ones."
Door = Literal["wrapper", "node", "middleware", "delta"]
DOORS: tuple[Door, ...] = ("wrapper", "node", "middleware", "delta")

_KEY = re.compile(r"invoice (\d+) of ")
_POINTER = re.compile(r"COMPRESSION_RECALL: id=([^\]]+)\]")

NO_FLUSH = "PRAGMA synchronous=OFF"
"""What a killed process wrote is the kernel's, and stays; only a power cut, which nobody tries here, would need a disk flush at each commit."""

_SAVED = {
    "sqlite": (("checkpoint", "checkpoints"), ("value", "writes")),
    "postgres": (("checkpoint::text", "checkpoints"), ("blob", "checkpoint_blobs"), ("blob", "checkpoint_writes")),
}


# --- the place ------------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """Where checkpoints and archive are kept: a folder of SQLite files, or the URL of a PostgreSQL database. Can be sent to another process."""

    kind: Literal["sqlite", "postgres"]
    where: str

    @contextmanager
    def opened(self) -> Iterator[tuple[Any, Any]]:
        """Saver and store, on connections of their own."""
        with ExitStack() as stack:
            if self.kind == "sqlite":
                connection = sqlite3.connect(self._file("chat"), check_same_thread=False, timeout=30)
                stack.callback(connection.close)
                saver: Any = SqliteSaver(connection)
                store: Any = stack.enter_context(SqliteStore.from_conn_string(self._file("store")))
                for one in (connection, store.conn):
                    one.execute(NO_FLUSH)
            else:
                saver = stack.enter_context(PostgresSaver.from_conn_string(self.where))
                store = stack.enter_context(PostgresStore.from_conn_string(self.where))
            yield saver, store

    @asynccontextmanager
    async def aopened(self) -> AsyncIterator[tuple[Any, Any]]:
        """Same as `opened`, awaited."""
        if self.kind == "sqlite":
            async with (
                AsyncSqliteSaver.from_conn_string(self._file("chat")) as saver,
                AsyncSqliteStore.from_conn_string(self._file("store")) as store,
            ):
                for one in (saver.conn, store.conn):
                    await one.execute(NO_FLUSH)
                yield saver, store
        else:
            async with (
                AsyncPostgresSaver.from_conn_string(self.where) as saver,
                AsyncPostgresStore.from_conn_string(self.where) as store,
            ):
                yield saver, store

    def set_up(self) -> Place:
        """Make the tables."""
        with self.opened() as (saver, store):
            saver.setup()
            store.setup()
        return self

    def bytes(self, thread: str) -> int:
        """What the saver holds of a thread, in bytes."""
        with self.opened() as (saver, _):
            return sum(
                int(row["n"] if isinstance(row, dict) else row[0])
                for column, table in _SAVED[self.kind]
                for row in saver.conn.execute(f"select coalesce(sum(length({column})), 0) as n from {table} where thread_id = '{thread}'").fetchall()
            )

    def _file(self, name: str) -> str:
        return str(Path(self.where) / f"{name}.db")


# --- the agent ------------------------------------------------------------------------------------------------------------------------------


class Chat(TypedDict):
    """The usual state."""

    messages: Annotated[list[AnyMessage], add_messages]


class DeltaChat(TypedDict):
    """Writes are saved, and the list is made again from them."""

    messages: Annotated[list[AnyMessage], DeltaChannel(round_compact_messages_delta, snapshot_frequency=7)]


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What an agent is and does. Can be sent to another process."""

    door: Door = "wrapper"
    last: int = 13
    """Invoices to go through. Some four of them fill the window."""
    approvals: tuple[int, ...] = ()
    """Invoices that a person must approve."""
    tiers: bool = False
    """Whether the cheap steps run before the summariser."""
    retry: Any = None
    """The model node's retry policy."""
    interrupt_before: tuple[str, ...] = ()


def invoice(thread: str, key: int) -> str:
    """What the tool finds: about 340 tokens by the counter in use."""
    return f"invoice {key} of {thread}: " + f"line of invoice {key}; " * 60


def tools_of(spec: Spec) -> list[BaseTool]:
    """The agent's one tool."""

    @tool
    def look_up(key: int, config: RunnableConfig) -> str:
        """Look an invoice up.

        Args:
            key: Its number.
        """
        found = invoice(config["configurable"]["thread_id"], key)
        return f"{found} {interrupt({'approve': key})}" if key in spec.approvals else found

    return [look_up]


def keys_in(messages: Sequence[BaseMessage]) -> list[int]:
    """Numbers of the invoices that these messages speak of."""
    return [int(key) for message in messages for key in _KEY.findall(str(message.content))]


def batch(key: int, last: int) -> list[int]:
    """The invoices looked up together with this one: every fifth comes with the next."""
    return [key, key + 1] if key % 5 == 0 and key < last else [key]


def next_step(last: int, messages: Sequence[BaseMessage]) -> AIMessage:
    """What the agent's model says: it knows nothing but its messages."""
    done = max(keys_in(messages), default=0)
    if done >= last:
        return AIMessage("all done")
    keys = batch(done + 1, last)
    return AIMessage(f"next: {keys}", tool_calls=[call(f"c{key}", "look_up", key=key) for key in keys])


def notes_of(on_summary: Callable[[str], None]) -> ScriptedChatModel:
    """A summariser that says how far the work is, and tells `on_summary` the digest of each request."""

    def summary(messages: Sequence[BaseMessage]) -> str:
        request = "\x00".join(str(message.content) for message in messages)
        on_summary(hashlib.sha256(request.encode()).hexdigest())
        return snapshot(f"All looked up to invoice {max(keys_in(messages), default=0)} of the list.")

    return ScriptedChatModel(replies=[summary])


def subject_of(spec: Spec, archive: Any, on_summary: Callable[[str], None] = lambda digest: None, **more: Any) -> RoundCompactor:
    """The compactor: a window in which every fourth step or so makes a compaction due."""
    given = {"trigger": 1600, "window": 2000, "keep_recent_messages": None, "archive": archive, **more}
    if spec.tiers:
        given["tiers"] = DEFAULT_TIERS
    return compactor(notes_of(on_summary), **given)


def agent_of(spec: Spec, subject: RoundCompactor, model: Any = None, **compile_with: Any) -> Any:
    """The agent by the door that the spec names."""
    model, tools = model or ScriptedChatModel(replies=[partial(next_step, spec.last)]), tools_of(spec)
    if spec.door == "middleware":
        return create_agent(model, tools=tools, middleware=[RoundCompactMiddleware(subject)], **_before(spec), **compile_with)
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(DeltaChat if spec.door == "delta" else Chat)
    bound = model.bind_tools(tools)

    async def aanswer(state: Chat) -> dict[str, Any]:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    builder.add_node("agent", RunnableLambda(lambda state: {"messages": [bound.invoke(state["messages"])]}, afunc=aanswer), retry_policy=spec.retry)
    builder.add_node("tools", ToolNode(tools))
    first = "agent"
    if spec.door == "node":
        first = "compact"
        builder.add_node("compact", RoundCompactNode(subject))
        builder.add_edge("compact", "agent")
    else:
        add_round_compaction(builder, subject)
    builder.add_edge(START, first)
    builder.add_edge("tools", first)
    builder.add_conditional_edges("agent", lambda state: "tools" if state["messages"][-1].tool_calls else END, ["tools", END])
    return builder.compile(**_before(spec), **compile_with)


def _before(spec: Spec) -> dict[str, Any]:
    return {"interrupt_before": list(spec.interrupt_before)} if spec.interrupt_before else {}


# --- running it -----------------------------------------------------------------------------------------------------------------------------


def thread_config(thread: str) -> dict[str, Any]:
    """The configuration of a thread."""
    return {"configurable": {"thread_id": thread}}


def is_open(state: Any) -> bool:
    """Whether a thread has something left to do. Not `state.next`: that leaves out tasks whose writes are saved and whose step is not finished."""
    return state.metadata is None or bool(state.tasks)


def next_input(state: Any) -> Any:
    """What a thread is to be given so that it goes on from where it is: the request if nothing of it was saved, else nothing."""
    return {"messages": [HumanMessage(ASK, id="h")]} if state.metadata is None else None


def drive(graph: Any, thread: str, *, given: Any = None, **options: Any) -> list[BaseMessage]:
    """Run a thread to its end, or to an interrupt; the messages then."""
    config = thread_config(thread)
    state = graph.get_state(config)
    if given is not None or is_open(state):
        graph.invoke(given if given is not None else next_input(state), config, **options)
    return list(graph.get_state(config).values.get("messages", []))


async def adrive(graph: Any, thread: str, *, given: Any = None, **options: Any) -> list[BaseMessage]:
    """Same as `drive`, awaited."""
    config = thread_config(thread)
    state = await graph.aget_state(config)
    if given is not None or is_open(state):
        await graph.ainvoke(given if given is not None else next_input(state), config, **options)
    return list((await graph.aget_state(config)).values.get("messages", []))


@dataclass
class Session:
    """One process' view of a thread: it opens the place, builds everything anew, and closes it again."""

    place: Place
    spec: Spec
    how: str = "sync"
    log: str = ""
    """File that gets a line for each request to the summariser: who asked, and the request's digest."""
    fuse: Fuse | None = None
    who: str = field(default_factory=lambda: uuid.uuid4().hex)

    def run(self, thread: str, *, given: Any = None, use: Callable[[Any, str], Any] | None = None, **options: Any) -> Any:
        """`drive` the thread, or call `use(graph, thread)`."""
        if self.how == "sync":
            with self.place.opened() as (saver, store):
                return (use or partial(drive, given=given, **options))(self._graph(saver, store), thread)
        return asyncio.run(self._arun(thread, use or partial(adrive, given=given, **options)))

    async def _arun(self, thread: str, use: Callable[[Any, str], Any]) -> Any:
        async with self.place.aopened() as (saver, store):
            return await use(self._graph(saver, store), thread)

    def _graph(self, saver: Any, store: Any) -> Any:
        archive = StoreArchive(store)
        if self.fuse is not None:
            self.fuse.lay(saver, archive)
        return agent_of(self.spec, subject_of(self.spec, archive, self._told), checkpointer=saver, store=store)

    def _told(self, digest: str) -> None:
        if self.log:
            with Path(self.log).open("a", encoding="utf-8") as file:
                file.write(f"{self.who} {digest}\n")
        if self.fuse is not None:
            self.fuse.compaction_begins()


# --- dying ----------------------------------------------------------------------------------------------------------------------------------

POINTS = ("asked", "before entry", "after entry", "before writes", "after writes", "before checkpoint", "after checkpoint")
"""In the order in which a compaction passes them: the summariser, the archive's entry, the step's writes, the new checkpoint."""


@dataclass
class Fuse:
    """Kills its own process, as `kill -9` does, when a chosen compaction passes a chosen point."""

    point: str = ""
    compaction: int = 1
    armed: bool = False
    """Whether it burns from the start, without a compaction."""
    before_step: int | None = None
    """Instead: dies before the checkpoint of this step of the graph of two nodes, when all results of tools up to then are saved as writes."""
    results: int = 0
    """Steps of tools whose writes are saved."""

    def compaction_begins(self) -> None:
        """The summariser is asked."""
        self.compaction -= 1
        if self.compaction == 0:
            self.armed = True
            self.passes("asked")

    def passes(self, point: str) -> None:
        """Die if this is the place."""
        if self.armed and point == self.point:
            self._die()

    @staticmethod
    def _die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def _is_before_step(self, what: str, given: Sequence[Any]) -> bool:
        """Whether the step's checkpoint waits for the results to be saved; dies when they are."""
        if self.before_step is None or what != "checkpoint" or given[2].get("step") != self.before_step:
            return False
        if self.results >= self.before_step // 2:
            self._die()
        return True

    def _note(self, what: str, given: Sequence[Any]) -> None:
        self.results += what == "writes" and _are_results(given[1])
        self.passes(f"after {what}")

    def lay(self, saver: Any, archive: Any) -> None:
        """Watch the writes of a saver and an archive."""
        for thing, writes, what in ((archive, "put", "entry"), (saver, "put_writes", "writes"), (saver, "put", "checkpoint")):
            for name in (writes, f"a{writes}"):
                self._watch(thing, name, what)

    def _watch(self, thing: Any, name: str, what: str) -> None:
        inner = getattr(thing, name)

        def watched(*given: Any, **more: Any) -> Any:
            while self._is_before_step(what, given):
                time.sleep(0.005)
            self.passes(f"before {what}")
            done = inner(*given, **more)
            self._note(what, given)
            return done

        async def awatched(*given: Any, **more: Any) -> Any:
            while self._is_before_step(what, given):  # noqa: ASYNC110 - five milliseconds in a process that is about to die
                await asyncio.sleep(0.005)
            self.passes(f"before {what}")
            done = await inner(*given, **more)
            self._note(what, given)
            return done

        setattr(thing, name, awatched if name.startswith("a") else watched)


def _are_results(writes: Sequence[tuple[str, Any]]) -> bool:
    """Whether a task's writes are of the tools' node."""
    return any(getattr(item, "type", "") == "tool" for _, value in writes for item in (value if isinstance(value, list) else [value]))


def _context() -> Any:
    """Processes that start clean and quickly: forked from a server that has only imported this module."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["durable"])
    folders = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[2])])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (folders, os.environ.get("PYTHONPATH", ""))))
    return context


PROCESSES = _context()


def in_process(function: Callable[..., Any], *given: Any, **more: Any) -> int:
    """Run a function in a process of its own; the exit code, `-9` after `kill -9`."""
    process = PROCESSES.Process(target=function, args=given, kwargs=more)
    process.start()
    process.join(120)
    if process.is_alive():
        process.kill()
        process.join()
        msg = "the process did not come to an end in two minutes"
        raise AssertionError(msg)
    return int(process.exitcode or 0)


# --- what must hold -------------------------------------------------------------------------------------------------------------------------


def pointers_in(messages: Sequence[BaseMessage]) -> list[str]:
    """Archive ids that these messages point to: a checkpoint by its data, whose newest its text shows; any other message by its text."""
    found: list[str] = []
    for message in messages:
        shown = _POINTER.findall(str(message.content))
        held = list(message.additional_kwargs["lc_data"]["archive_ids"]) if mark_of(message) == "checkpoint" else shown
        assert held[len(held) - len(shown) :] == shown
        assert bool(held) == bool(shown)
        found += held
    return found


def entries(place: Place) -> set[str]:
    """Ids of all that is in the archive. An entry may be kept in parts, under keys that begin with its id; parts without their entry count too."""
    with place.opened() as (_, store):
        return {re.match(r"rc-[0-9a-f]+", item.key).group(0) for item in store.search((), limit=100_000)}  # type: ignore[union-attr]


def work_of(messages: Sequence[BaseMessage], archive: StoreArchive, thread: str) -> list[tuple[str, str]]:
    """All tool results of the round in order, as `(call id, text)`: those in state as they are, those behind a checkpoint from the archive.

    Fails where a pointer leads nowhere, and where a checkpoint's text and data name different entries.
    """
    done: list[tuple[str, str]] = []
    for message in messages:
        if mark_of(message) == "checkpoint":
            ids = pointers_in([message])
            assert ids
            for archive_id in ids:
                record = archive.get(archive_id, thread_id=thread)
                assert record is not None, f"{archive_id} of {thread} is not in the archive"
                done += [_result(item["tool_call_id"], item["content"], archive, thread) for item in record["messages"] if item["type"] == "tool"]
        elif message.type == "tool":
            done.append(_result(message.tool_call_id, str(message.content), archive, thread))
    return done


def _result(call_id: str, text: str, archive: StoreArchive, thread: str) -> tuple[str, str]:
    """A result; where it was folded, the original that the fold points to."""
    for archive_id in _POINTER.findall(text):
        record = archive.get(archive_id, thread_id=thread)
        assert record is not None, f"{archive_id} of {thread}, in a folded result, is not in the archive"
        return next((item["tool_call_id"], item["content"]) for item in record["messages"] if item.get("tool_call_id") == call_id)
    return call_id, text


def assert_nothing_lost(messages: Sequence[BaseMessage], archive: StoreArchive, thread: str, last: int | None = None) -> int:
    """The request verbatim, a valid history, one block at most, and the work from invoice 1 on without a gap; how far it is.

    Args:
        messages: What the state holds.
        archive: Where the replaced originals are.
        thread: Whose state it is.
        last: The invoice up to which the work must have come; None: any.
    """
    assert_valid_history(messages)
    assert [message.content for message in messages if message.content == ASK] == [ASK]
    assert sum(mark_of(message) == "checkpoint" for message in messages) <= 1
    done = work_of(messages, archive, thread)
    assert done == [(f"c{key}", invoice(thread, key)) for key in range(1, len(done) + 1)]
    if last is not None:
        assert len(done) == last
        assert messages[-1].content == "all done"
    return len(done)


def twice_in_one_process(log: str) -> list[str]:
    """Requests to the summariser that one process made more than once."""
    lines = Path(log).read_text(encoding="utf-8").splitlines() if Path(log).exists() else []
    return sorted({line for line in lines if lines.count(line) > 1})
