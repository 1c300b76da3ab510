"""Conversations from PostgreSQL checkpoints: what the graph's own state tells, read without a single write."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import psycopg
import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages

from langgraph_roundcompact import round_compact_messages_delta
from langgraph_roundcompact.loaders import ConversationError, load_postgres


class Plain(TypedDict):
    messages: Annotated[list, add_messages]


class Delta(TypedDict):
    messages: Annotated[list, DeltaChannel(round_compact_messages_delta, snapshot_frequency=5)]


class Other(TypedDict):
    chat: Annotated[list, add_messages]


def played(url: str, schema: Any, *, thread: str = "one", key: str = "messages", steps: int = 12) -> list[BaseMessage]:
    """Run a graph over a few steps; the state it ends with."""

    def agent(state: dict[str, Any]) -> dict[str, Any]:
        i = len(state[key])
        call = {"id": f"c{i}", "name": "read", "args": {"i": i}, "type": "tool_call"}
        return {key: [AIMessage("", id=f"a{i}", tool_calls=[call]), ToolMessage(f"result {i}", id=f"t{i}", tool_call_id=f"c{i}")]}

    builder = StateGraph(schema)
    builder.add_node("agent", agent)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", lambda state: "agent" if len(state[key]) < 2 * steps else "__end__")
    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()
        graph = builder.compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": thread}, "recursion_limit": 100}
        graph.invoke({key: [HumanMessage("Fix it.", id="u")]}, config)
        return list(graph.get_state(config).values[key])


def rows(url: str) -> list[Any]:
    tables = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
    with psycopg.connect(url) as connection:
        return [connection.execute(f"select count(*), max(xmin::text::bigint) from {table}").fetchone() for table in tables]


@pytest.mark.parametrize("schema", [Plain, Delta], ids=["add_messages", "delta"])
def test_the_conversation_is_the_state(postgres_url, schema):
    state = played(postgres_url, schema)
    before = rows(postgres_url)
    conversation = load_postgres(postgres_url, "one")
    assert conversation.name == "one"
    assert list(conversation.messages) == state
    assert rows(postgres_url) == before


def test_threads_are_listed(postgres_url):
    played(postgres_url, Plain, thread="first")
    assert load_postgres(postgres_url).name == "first"
    played(postgres_url, Plain, thread="second")
    with pytest.raises(ConversationError, match=r"2 threads, name one with --thread: second \(\d+ checkpoints\), first \(\d+ checkpoints\)"):
        load_postgres(postgres_url)
    with pytest.raises(ConversationError, match="no thread third; there are: second"):
        load_postgres(postgres_url, "third")


def test_another_key_is_found_out(postgres_url):
    state = played(postgres_url, Other, key="chat")
    with pytest.raises(ConversationError, match=r"no messages; messages are under: chat \(--messages-key\)"):
        load_postgres(postgres_url)
    assert list(load_postgres(postgres_url, messages_key="chat").messages) == state


def test_a_database_without_checkpoints_is_one_clear_line(postgres_url):
    with pytest.raises(ConversationError, match="no LangGraph checkpoints in this database") as caught:
        load_postgres(postgres_url)
    assert str(caught.value).isprintable()


def test_a_connection_string_works_too(postgres_url):
    state = played(postgres_url, Plain)
    parts = psycopg.conninfo.conninfo_to_dict(postgres_url)
    assert list(load_postgres(psycopg.conninfo.make_conninfo(**parts)).messages) == state
