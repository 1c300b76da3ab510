"""The archive on PostgreSQL: the same rules as on every store, where NUL, 1e300 and namespaces have rules of their own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from archive_cases import archived, odd_records
from hypothesis import HealthCheck, given, settings
from procedures import compactor, history, summariser, work

from langgraph_roundcompact import StoreArchive, create_recall_tool
from langgraph_roundcompact.testing import acheck_archive, check_archive

postgres = pytest.importorskip("langgraph.store.postgres", reason="install langgraph-checkpoint-postgres and psycopg[binary]")


@pytest.fixture
def store(postgres_url: str) -> Any:
    with postgres.PostgresStore.from_conn_string(postgres_url) as opened:
        opened.setup()
        yield opened


def test_the_rules_of_archives_hold(store: Any) -> None:
    check_archive(StoreArchive(store, namespace=("kept", "here"), part_chars=5_000))


def test_the_rules_of_archives_hold_awaited(postgres_url: str) -> None:
    async def checked() -> None:
        from langgraph.store.postgres.aio import AsyncPostgresStore

        async with AsyncPostgresStore.from_conn_string(postgres_url) as opened:
            await opened.setup()
            await acheck_archive(StoreArchive(opened, part_chars=5_000))

    asyncio.run(checked())


def test_whatever_was_replaced_reads_back(store: Any) -> None:
    """Round trip of generated histories: every field of every message."""
    archive = StoreArchive(store, part_chars=300)

    @settings(max_examples=40, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
    @given(odd_records())
    def reads_back(record: dict[str, Any]) -> None:
        archive.put("rc-1", record, thread_id="t")
        assert archive.get("rc-1", thread_id="t") == record

    reads_back()


def test_a_compaction_points_to_what_can_be_recalled(store: Any) -> None:
    """The pointer resolves in another process's archive object, and only in its thread."""
    result = compactor(summariser("NOTES"), archive=StoreArchive(store)).compact(history(1, 2), thread_id="a.b\x00")
    tool = create_recall_tool(StoreArchive(store))
    shown = tool.invoke({"archive_id": result.archive_id}, {"configurable": {"thread_id": "a.b\x00"}})
    assert "result 1" in shown
    assert "result 1" not in tool.invoke({"archive_id": result.archive_id}, {"configurable": {"thread_id": "a.b"}})


def test_a_thread_of_two_thousand_entries_is_deleted_in_one_call(store: Any) -> None:
    archive = StoreArchive(store)
    for number in range(1000):  # two items each
        archive.put(f"rc-{number}", archived(work(1, 10)), thread_id="large")
    archive.put("rc-1", archived(work(1, 10)), thread_id="other")
    archive.delete(thread_id="large")
    assert archive.keys(thread_id="large") == []
    assert archive.keys(thread_id="other") == ["rc-1"]


def test_entries_expire_when_the_store_says_so(store: Any) -> None:
    """The minutes reach every item of an entry."""
    StoreArchive(store, ttl=90, part_chars=500).put("rc-1", archived(work(1)), thread_id="t")
    rows = store.conn.execute("select ttl_minutes from store").fetchall()
    assert len(rows) > 5
    assert {float(row["ttl_minutes"]) for row in rows} == {90.0}
