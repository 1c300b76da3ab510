"""LangGraph's checkpoints in SQLite: the conversation as the graph's own state tells it, and nothing written, nothing executed."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages

from langgraph_roundcompact import round_compact_messages_delta
from langgraph_roundcompact.loaders import ConversationError, load_postgres, load_sqlite


class Plain(TypedDict):
    messages: Annotated[list, add_messages]


class Delta(TypedDict):
    messages: Annotated[list, DeltaChannel(round_compact_messages_delta, snapshot_frequency=7)]


class Other(TypedDict):
    chat: Annotated[list, add_messages]
    notes: list


def work(i: int) -> list[BaseMessage]:
    call = {"id": f"c{i}", "name": "read", "args": {"i": i}, "type": "tool_call"}
    return [AIMessage("", id=f"a{i}", tool_calls=[call]), ToolMessage(f"result {i}", id=f"t{i}", tool_call_id=f"c{i}")]


def played(path: Path, schema: Any, *, thread: str = "one", key: str = "messages", steps: int = 10, remove: bool = False) -> list[BaseMessage]:
    """Run a graph over a few steps with a SQLite checkpointer; the state it ends with."""

    def agent(state: dict[str, Any]) -> dict[str, Any]:
        i = len(state[key])
        gone = [RemoveMessage(id="t1")] if remove and i == 9 else []
        return {key: [*work(i), *gone]}

    builder = StateGraph(schema)
    builder.add_node("agent", agent)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", lambda state: "agent" if len(state[key]) < 2 * steps else "__end__")
    with SqliteSaver.from_conn_string(str(path)) as saver:
        graph = builder.compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": thread}, "recursion_limit": 100}
        graph.invoke({key: [HumanMessage("Fix it.", id="u")]}, config)
        return list(graph.get_state(config).values[key])


@pytest.mark.parametrize("schema", [Plain, Delta], ids=["add_messages", "delta"])
@pytest.mark.parametrize("remove", [False, True], ids=["grown", "with a removal"])
def test_the_conversation_is_the_state(tmp_path, schema, remove):
    path = tmp_path / "graph.db"
    state = played(path, schema, remove=remove)
    conversation = load_sqlite(path, "one")
    assert conversation.name == "one"
    assert list(conversation.messages) == state


@pytest.mark.parametrize("steps", [1, 3, 4, 7, 8, 15])
def test_a_delta_channel_is_rebuilt_wherever_its_last_snapshot_is(tmp_path, steps):
    path = tmp_path / "graph.db"
    assert list(load_sqlite(path).messages if played(path, Delta, steps=steps) else []) == played(tmp_path / "again.db", Delta, steps=steps)


def test_one_thread_needs_no_name_and_several_are_listed(tmp_path):
    path = tmp_path / "graph.db"
    played(path, Plain, thread="first")
    assert load_sqlite(path).name == "first"
    played(path, Plain, thread="second\x1b[31m")
    with pytest.raises(
        ConversationError, match=r"2 threads, name one with --thread: second\\x1b\[31m \(\d+ checkpoints\), first \(\d+ checkpoints\)"
    ):
        load_sqlite(path)
    with pytest.raises(ConversationError, match=r"no thread third; there are: "):
        load_sqlite(path, "third")
    assert load_sqlite(path, "first").name == "first"


def test_another_key_is_found_out(tmp_path):
    path = tmp_path / "graph.db"
    state = played(path, Other, key="chat")
    with pytest.raises(ConversationError, match=r"its state has no messages; messages are under: chat \(--messages-key\)"):
        load_sqlite(path)
    assert list(load_sqlite(path, messages_key="chat").messages) == state


def test_the_file_is_not_changed(tmp_path):
    path = tmp_path / "graph.db"
    played(path, Plain)
    before = hashlib.sha256(path.read_bytes()).hexdigest(), sorted(tmp_path.iterdir())
    load_sqlite(path)
    assert (hashlib.sha256(path.read_bytes()).hexdigest(), sorted(tmp_path.iterdir())) == before


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.write_text("not a database at all, not even close"), "not a database of LangGraph checkpoints"),
        (lambda path: sqlite3.connect(path).execute("create table t (x)").connection.commit(), "not a database of LangGraph checkpoints"),
        (lambda path: path.write_bytes(b""), "not a database of LangGraph checkpoints"),
        (lambda path: SqliteSaver(sqlite3.connect(path)).setup(), "no threads in this database"),
    ],
    ids=["missing", "text", "other tables", "empty", "no threads"],
)
def test_what_is_no_checkpoint_database_is_one_clear_line(tmp_path, make, words):
    path = tmp_path / "x.db"
    make(path)
    with pytest.raises(ConversationError, match=words) as caught:
        load_sqlite(path)
    assert str(caught.value).startswith(str(path))
    assert str(caught.value).isprintable()


def test_a_database_that_is_being_written_is_read(tmp_path):
    path = tmp_path / "graph.db"
    state = played(path, Plain)
    with SqliteSaver.from_conn_string(str(path)) as writer:
        writer.setup()
        played(path, Plain, thread="two")
        assert (tmp_path / "graph.db-wal").exists()
        assert list(load_sqlite(path, "one").messages) == state
        assert len(load_sqlite(path, "two").messages) == len(state)


def test_a_broken_blob_is_one_clear_line(tmp_path):
    path = tmp_path / "graph.db"
    played(path, Plain)
    with sqlite3.connect(path) as connection:
        connection.execute("update checkpoints set checkpoint = x'c1ff'")
    with pytest.raises(ConversationError, match="a checkpoint that cannot be read"):
        load_sqlite(path)


class Trap:
    """Something that a file must not be able to call."""

    called = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        Trap.called = True


def test_a_database_cannot_name_the_class_that_is_made(tmp_path):
    import ormsgpack

    path = tmp_path / "graph.db"
    played(path, Other, key="chat")
    serde = JsonPlusSerializer()
    with sqlite3.connect(path) as connection:
        rows = connection.execute("select checkpoint_id, type, checkpoint from checkpoints").fetchall()
        for checkpoint_id, kind, blob in rows:
            checkpoint = serde.loads_typed((kind, blob))
            planted = ormsgpack.Ext(2, ormsgpack.packb((__name__, "Trap", {"a": 1})))
            checkpoint["channel_values"]["notes"] = planted
            packed = ormsgpack.packb(checkpoint, default=lambda value: None)
            connection.execute("update checkpoints set type = 'msgpack', checkpoint = ? where checkpoint_id = ?", (packed, checkpoint_id))
    JsonPlusSerializer(allowed_msgpack_modules=True).loads_typed(("msgpack", packed))
    assert Trap.called, "the plant must be one that a trusting reader falls for"
    Trap.called = False
    with pytest.raises(ConversationError):
        load_sqlite(path, messages_key="notes")
    assert not Trap.called


def test_a_missing_package_says_how_to_get_it(tmp_path, monkeypatch):
    import sys

    path = tmp_path / "graph.db"
    played(path, Plain)
    monkeypatch.setitem(sys.modules, "langgraph.checkpoint.sqlite", None)
    with pytest.raises(ConversationError, match=r"pip install 'langgraph-roundcompact\[cli\]'"):
        load_sqlite(path)


@pytest.mark.parametrize(
    "url", ["postgresql://bob:s3cret@127.0.0.1:1/db?connect_timeout=1", "host=127.0.0.1 port=1 password=s3cret connect_timeout=1", ""]
)
def test_a_server_that_cannot_be_reached_is_one_clear_line_without_the_password(url, monkeypatch):
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'psycopg[binary]'")
    monkeypatch.setenv("PGHOST", "127.0.0.1")
    monkeypatch.setenv("PGPORT", "1")
    with pytest.raises(ConversationError, match="cannot be read") as caught:
        load_postgres(url)
    assert "s3cret" not in str(caught.value)
    assert str(caught.value).isprintable()


def test_postgres_without_its_package_says_how_to_get_it(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConversationError, match=r"needs psycopg; pip install langgraph-checkpoint-postgres 'psycopg\[binary\]'"):
        load_postgres("postgresql://h/db", "one")
