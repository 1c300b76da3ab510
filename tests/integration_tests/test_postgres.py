"""An agent on PostgreSQL: restarts, time travel, interrupts, `kill -9`. The properties: `persistence_suite`, `kill_suite`."""

from __future__ import annotations

import asyncio

import pytest
from durable import ASK, Place, Session, Spec, adrive, agent_of, assert_nothing_lost, drive, subject_of, thread_config
from kill_suite import KillSuite
from langchain_core.messages import HumanMessage
from persistence_suite import PersistenceSuite

from langgraph_roundcompact import StoreArchive


class TestPostgres(PersistenceSuite, KillSuite):
    """The suite with `PostgresSaver` and `PostgresStore`, in the async colour with their async twins."""

    @pytest.fixture
    def place(self, postgres_url: str) -> Place:
        """A database of its own for each test."""
        return Place("postgres", postgres_url).set_up()


def test_one_pool_serves_many_threads_at_once(postgres_url: str) -> None:
    """Twelve threads of work on four connections and one compactor: each ends with its own."""
    from concurrent.futures import ThreadPoolExecutor

    from langgraph.checkpoint.postgres import PostgresSaver
    from langgraph.store.postgres import PostgresStore
    from psycopg.rows import dict_row
    from psycopg_pool import ConnectionPool

    Place("postgres", postgres_url).set_up()
    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    with ConnectionPool(postgres_url, min_size=4, max_size=4, kwargs=options) as pool:
        archive = StoreArchive(PostgresStore(pool))
        graph = agent_of(Spec(), subject_of(Spec(), archive), checkpointer=PostgresSaver(pool))
        with ThreadPoolExecutor(12) as workers:
            ends = list(workers.map(lambda thread: drive(graph, thread), [f"t{number}" for number in range(12)]))
        for number, messages in enumerate(ends):
            assert assert_nothing_lost(messages, archive, f"t{number}", 13) == 13


def test_one_async_pool_serves_many_threads_at_once(postgres_url: str) -> None:
    """The same for `AsyncPostgresSaver` in one event loop."""
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from langgraph.store.postgres.aio import AsyncPostgresStore
    from psycopg.rows import dict_row
    from psycopg_pool import AsyncConnectionPool

    place = Place("postgres", postgres_url).set_up()

    async def all_threads() -> list[list]:
        options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        async with AsyncConnectionPool(postgres_url, min_size=4, max_size=4, kwargs=options, open=False) as pool:
            archive = StoreArchive(AsyncPostgresStore(pool))
            graph = agent_of(Spec(), subject_of(Spec(), archive), checkpointer=AsyncPostgresSaver(pool))
            return await asyncio.gather(*(adrive(graph, f"t{number}") for number in range(12)))

    ends = asyncio.run(all_threads())
    with place.opened() as (_, store):
        for number, messages in enumerate(ends):
            assert assert_nothing_lost(messages, StoreArchive(store), f"t{number}", 13) == 13


OTHERS = "from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"


def test_a_lost_connection_in_the_middle_of_work_loses_nothing(postgres_url: str) -> None:
    """The server ends the connections of a running process; the error reaches the caller, and a new process goes on."""
    import psycopg

    place, seen = Place("postgres", postgres_url).set_up(), []

    def cut(graph: object, thread: str) -> None:
        for part in graph.stream({"messages": [HumanMessage(ASK, id="h")]}, thread_config(thread), stream_mode="values"):  # type: ignore[attr-defined]
            seen.append(part)
            if len(seen) == 12:
                with psycopg.connect(postgres_url, autocommit=True) as other:
                    other.execute(
                        "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
                    )

    with pytest.raises(psycopg.OperationalError):
        Session(place, Spec()).run("t", use=cut)
    after = Session(place, Spec()).run("t")
    with place.opened() as (_, store):
        assert assert_nothing_lost(after, StoreArchive(store), "t", 13) == 13
