"""The archive on LangGraph stores: whole or not there, each thread for itself, whatever text and whatever store."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from archive_cases import FailingStore, archived, odd_records, sqlite_store
from conftest import examples
from hypothesis import given
from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.store.base import GetOp, Op, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite.aio import AsyncSqliteStore
from procedures import BOTH, compact, compactor, go, history, summariser, work

from langgraph_roundcompact import ArchiveError, ConfigurationError, RoundCompactNode, StoreArchive
from langgraph_roundcompact._recall_text import ids_in

# --- construction -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "namespace", [(), "kept", ("",), ("a.b",), ("a", ""), ("a", 1), ("langgraph",), ("langgraph", "x"), ("a\x00",), ("\ud800",), {"a"}, None]
)
def test_a_prefix_that_some_store_refuses_is_refused_at_construction(namespace: Any) -> None:
    with pytest.raises(ConfigurationError, match="namespace="):
        StoreArchive(InMemoryStore(), namespace=namespace)


@pytest.mark.parametrize("namespace", [("kept",), ["kept", "here"], ("a b", "ü", "*", "%"), ("x" * 500,)])
def test_every_other_prefix_works(namespace: Any) -> None:
    archive = StoreArchive(InMemoryStore(), namespace=namespace)
    archive.put("rc-1", archived(work(1)))
    assert archive.get("rc-1") == archived(work(1))


@pytest.mark.parametrize("options", [{"ttl": 0}, {"ttl": -1}, {"ttl": "5"}, {"ttl": True}, {"timeout_seconds": -1}, {"part_chars": 0}])
def test_a_figure_that_cannot_work_is_refused_with_its_name(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        StoreArchive(InMemoryStore(), **options)


def test_what_is_no_store_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="InMemoryStore"):
        StoreArchive({})  # type: ignore[arg-type]


# --- round trip ------------------------------------------------------------------------------------------------------------------------------


@examples(60)
@given(odd_records())
def test_whatever_was_replaced_reads_back(record: dict[str, Any]) -> None:
    """Every field of every message, over parts of a few characters."""
    archive = StoreArchive(InMemoryStore(), part_chars=97)
    archive.put("rc-1", record, thread_id="t")
    assert archive.get("rc-1", thread_id="t") == record


def test_whatever_was_replaced_reads_back_from_a_file(tmp_path: Path) -> None:
    with sqlite_store(tmp_path) as store:
        archive = StoreArchive(store, part_chars=5_000)

        @examples(15)
        @given(odd_records())
        def reads_back(record: dict[str, Any]) -> None:
            archive.put("rc-1", record, thread_id="t")
            assert archive.get("rc-1", thread_id="t") == record

        reads_back()


def test_whatever_was_replaced_reads_back_from_a_file_awaited(tmp_path: Path) -> None:
    async def run(record: dict[str, Any], name: str) -> None:
        async with AsyncSqliteStore.from_conn_string(str(tmp_path / name)) as store:
            await store.setup()
            archive = StoreArchive(store, part_chars=5_000)
            await archive.aput("rc-1", record, thread_id="t")
            assert await archive.aget("rc-1", thread_id="t") == record

    numbers = itertools.count()

    @examples(8)
    @given(odd_records())
    def reads_back(record: dict[str, Any]) -> None:
        asyncio.run(run(record, f"{next(numbers)}.db"))

    reads_back()


def test_a_store_of_one_colour_serves_both(tmp_path: Path) -> None:
    """`SqliteStore` has no awaited methods; it is called in a thread then."""
    with sqlite_store(tmp_path) as store:
        archive = StoreArchive(store)
        asyncio.run(archive.aput("rc-1", archived(work(1)), thread_id="t"))
        assert asyncio.run(archive.aget("rc-1", thread_id="t")) == archive.get("rc-1", thread_id="t") == archived(work(1))


def test_a_large_entry_is_split_and_no_item_is_larger_than_said() -> None:
    store = InMemoryStore()
    StoreArchive(store, part_chars=1_000).put("rc-1", archived(work(1, 50_000)), thread_id="t")
    sizes = [len(str(item.value)) for item in store.search((), limit=1000)]
    assert len(sizes) > 50
    assert max(sizes) < 1_100


@pytest.mark.parametrize("key", ["", "a/b", "..", "a.b", "\x00", "\ud800", "k" * 5_000, "x-" + "0" * 32, "é", "a b", "rc-1-0000000000000000-p00000"])
def test_any_text_may_be_a_key(key: str) -> None:
    archive = StoreArchive(InMemoryStore())
    archive.put("rc-1", archived(work(1)))
    archive.put(key, archived(work(2)))
    assert archive.get(key) == archived(work(2))
    assert archive.get("rc-1") == archived(work(1))
    assert len(archive.keys()) == 2


# --- two writers ---------------------------------------------------------------------------------------------------------------------------


def test_two_writers_of_one_key_leave_one_whole_entry() -> None:
    """Eight threads, two versions of different length (another redaction): what is read is one of them, never a mixture."""
    archive = StoreArchive(InMemoryStore(), part_chars=50)
    versions = [archived(work(1, 2_000)), archived(work(1, 3_000))]
    threads = [threading.Thread(target=archive.put, args=("rc-1", versions[number % 2])) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert archive.get("rc-1") in versions
    assert archive.keys() == ["rc-1"]


# --- each thread for itself ----------------------------------------------------------------------------------------------------------------


SPELLINGS = [
    "t", "T", " t", "t ", "t.x", "t/x", "../t", "..", ".", "/", "\\", "", None, "None", "null", "t\x00", "\x00", "é",
    unicodedata.normalize("NFD", "é"),
    "\ud800", "\udc00", "\ud83d\ude00", "😀", "*", "t*", "%", "_", "t%", "x" * 3000, "x" * 3001, "round_compaction", "thread:t", "{}", "ｔ",
]  # fmt: skip


@pytest.mark.parametrize("one", SPELLINGS)
def test_no_spelling_of_an_id_reads_another_threads_entries(one: str | None) -> None:
    archive = StoreArchive(InMemoryStore())
    archive.put("rc-1", archived(work(1)), thread_id=one)
    for other in [other for other in SPELLINGS if other != one]:
        assert archive.get("rc-1", thread_id=other) is None
        assert archive.keys(thread_id=other) == []
        assert archive.search("result", thread_id=other) == []
        archive.delete(thread_id=other)
    assert archive.get("rc-1", thread_id=one) == archived(work(1))


def test_an_archive_inside_anothers_namespace_is_not_part_of_it() -> None:
    """A prefix may be chosen so that it lies below a thread of another archive."""
    store = InMemoryStore()
    outer = StoreArchive(store, namespace=("kept",))
    outer.put("rc-1", archived(work(1)), thread_id="t")
    inner = StoreArchive(store, namespace=store.search((), limit=1)[0].namespace)
    inner.put("rc-2", archived(work(2)), thread_id="u")
    assert outer.keys(thread_id="t") == ["rc-1"]
    assert [passage["archive_id"] for passage in outer.search("result", thread_id="t")] == ["rc-1"]
    outer.delete(thread_id="t")
    assert inner.get("rc-2", thread_id="u") == archived(work(2))


class Careless(InMemoryStore):
    """Looks at keys alone, whatever the namespace."""

    def batch(self, ops: Iterable[Op]) -> list[Any]:
        return super().batch([op._replace(namespace=("all",)) if isinstance(op, GetOp | PutOp) else op for op in ops])

    async def abatch(self, ops: Iterable[Op]) -> list[Any]:
        return self.batch(ops)


class Tenant(InMemoryStore):
    """Keeps everything of a tenant below its name."""

    def batch(self, ops: Iterable[Op]) -> list[Any]:
        def below(op: Any) -> Any:
            return op._replace(**{name: ("tenant", *getattr(op, name)) for name in ("namespace", "namespace_prefix") if hasattr(op, name)})

        return super().batch(map(below, ops))


def test_a_store_that_puts_a_name_in_front_of_every_namespace_serves() -> None:
    archive = StoreArchive(Tenant())
    archive.put("rc-1", archived(work(1)), thread_id="t")
    assert archive.keys(thread_id="t") == ["rc-1"]
    assert archive.get("rc-1", thread_id="t") == archived(work(1))
    archive.delete(thread_id="t")
    assert archive.keys(thread_id="t") == []


class SamePage(InMemoryStore):
    """Does not know offsets: each page of a search is full, and the same."""

    def batch(self, ops: Iterable[Op]) -> list[Any]:
        ops = list(ops)
        answers = super().batch([op._replace(offset=0) if isinstance(op, SearchOp) else op for op in ops])
        return [(answer * 500)[: op.limit] if isinstance(op, SearchOp) else answer for op, answer in zip(ops, answers, strict=True)]

    async def abatch(self, ops: Iterable[Op]) -> list[Any]:
        return self.batch(ops)


@BOTH
def test_a_store_that_answers_with_another_threads_item_leaks_nothing(how: str) -> None:
    archive = StoreArchive(Careless())
    archive.put("rc-1", archived(work(1)), thread_id="theirs")
    read = archive.get if how == "sync" else lambda *args, **options: asyncio.run(archive.aget(*args, **options))
    assert read("rc-1", thread_id="mine") is None
    assert archive.search("result", thread_id="mine", archive_ids=["rc-1"]) == []


def test_a_store_that_does_not_know_offsets_ends_all_the_same() -> None:
    archive = StoreArchive(SamePage())
    archive.put("rc-1", archived(work(1)), thread_id="t")
    assert archive.keys(thread_id="t") == ["rc-1"]
    assert [passage["archive_id"] for passage in archive.search("result", thread_id="t", limit=1)] == ["rc-1"]
    archive.delete(thread_id="t")
    assert archive.keys(thread_id="t") == []


@BOTH
@pytest.mark.parametrize("answer", [False, OSError("full"), {"error": "quota"}, {"ok": False}])
def test_an_archive_of_ones_own_that_answers_with_an_error_gets_no_pointer(how: str, answer: Any) -> None:
    class Refusing(StoreArchive):
        def put(self, *args: Any, **options: Any) -> Any:
            return answer

        async def aput(self, *args: Any, **options: Any) -> Any:
            return answer

    result = compact(how, compactor(summariser("NOTES"), archive=Refusing(InMemoryStore())), history(1, 2), thread_id="t")
    assert result.compacted
    assert ids_in(result.messages) == []


# --- faults at every write -------------------------------------------------------------------------------------------------------------------

FAULTS = ["raise", "partial", "slow", "error", "lose"]


@BOTH
@pytest.mark.parametrize("how_it_fails", FAULTS)
@pytest.mark.parametrize("required", [False, True])
def test_a_fault_at_any_write_leaves_the_old_window_or_a_block_without_pointer(how: str, how_it_fails: str, required: bool) -> None:
    given_messages, seen = history(1, 2), 0
    for at in itertools.count():
        store = FailingStore(how_it_fails, at)
        archive = StoreArchive(store, part_chars=4_000, timeout_seconds=0.1 if how_it_fails == "slow" else 30)
        result = compact(how, compactor(summariser("NOTES"), archive=archive, archive_required=required), given_messages, thread_id="t")
        if store.writes <= at:
            break  # there is no such write any more
        seen += 1
        assert ids_in(result.messages) == []
        assert result.archive_id is None
        assert (result.messages == given_messages) if required else result.compacted
    assert seen >= 3
    assert ids_in(result.messages) == [result.archive_id]


@pytest.mark.parametrize("how_it_fails", FAULTS[:4])
def test_an_entry_that_was_written_in_part_cannot_be_read(how_it_fails: str) -> None:
    for at in range(6):
        store = FailingStore(how_it_fails, at)
        archive = StoreArchive(store, part_chars=1_000, timeout_seconds=0.1 if how_it_fails == "slow" else 30)
        with pytest.raises(ArchiveError):
            archive.put("rc-1", archived(work(1)), thread_id="t")
        if how_it_fails != "slow":
            assert archive.get("rc-1", thread_id="t") in (None, archived(work(1)))
            assert archive.search("result", thread_id="t") == [] or archive.get("rc-1", thread_id="t")


def test_the_manifest_is_written_last() -> None:
    """Before it nothing can be read, behind it everything can."""
    kinds: list[str] = []

    class Watched(InMemoryStore):
        def put(self, namespace: Any, key: str, value: Any, *args: Any, **options: Any) -> None:
            kinds.append(value["kind"])
            super().put(namespace, key, value, *args, **options)

    StoreArchive(Watched(), part_chars=1_000).put("rc-1", archived(work(1)))
    assert kinds[-1] == "entry"
    assert set(kinds[:-1]) == {"part"}


@BOTH
def test_a_dead_store_is_an_archive_error_for_every_method(how: str) -> None:
    class Dead(InMemoryStore):
        def batch(self, ops: Any) -> list[Any]:
            raise ConnectionError("gone")

        async def abatch(self, ops: Any) -> list[Any]:
            raise ConnectionError("gone")

    archive = StoreArchive(Dead())
    calls = [("put", ("rc-1", {})), ("get", ("rc-1",)), ("keys", ()), ("search", ("words",)), ("delete", ())]
    for method, args in calls:
        with pytest.raises(ArchiveError, match="ConnectionError"):
            getattr(archive, method)(*args) if how == "sync" else asyncio.run(getattr(archive, "a" + method)(*args))


def test_cancelling_a_write_passes_through() -> None:
    async def cancelled() -> None:
        class Hangs(InMemoryStore):
            async def aput(self, *args: Any, **options: Any) -> None:
                await asyncio.sleep(60)

        task = asyncio.create_task(StoreArchive(Hangs()).aput("rc-1", {}))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())


def test_deleting_what_cannot_be_deleted_is_told() -> None:
    class Stubborn(InMemoryStore):
        def _apply_put_ops(self, put_ops: Any) -> None:
            super()._apply_put_ops({key: op for key, op in put_ops.items() if op.value is not None})

    archive = StoreArchive(Stubborn())
    archive.put("rc-1", archived(work(1)))
    with pytest.raises(ArchiveError, match="could not be deleted"):
        archive.delete()


# --- deletion, expiry, the store of the run ---------------------------------------------------------------------------------------------


@BOTH
def test_thousands_of_items_are_deleted_in_one_call(how: str) -> None:
    store = InMemoryStore()
    archive = StoreArchive(store, part_chars=100)
    for number in range(60):
        archive.put(f"rc-{number}", archived(work(number, 4_000)), thread_id="large")
    archive.put("rc-1", archived(work(1)), thread_id="other")
    assert len(store.search((), limit=10_000)) > 2_500
    asyncio.run(archive.adelete(thread_id="large")) if how == "async" else archive.delete(thread_id="large")
    assert archive.keys(thread_id="large") == []
    assert archive.keys(thread_id="other") == ["rc-1"]


def test_the_minutes_to_live_reach_every_item(tmp_path: Path) -> None:
    with sqlite_store(tmp_path) as store:
        StoreArchive(store, ttl=90, part_chars=500).put("rc-1", archived(work(1)), thread_id="t")
        rows = store.conn.execute("select ttl_minutes from store").fetchall()
    assert len(rows) > 5
    assert {float(row[0]) for row in rows} == {90.0}


def test_an_expired_part_takes_the_entry_with_it(tmp_path: Path) -> None:
    with sqlite_store(tmp_path) as store:
        archive = StoreArchive(store, part_chars=500)
        archive.put("rc-1", archived(work(1)), thread_id="t")
        store.conn.execute("delete from store where key like '%-p00002'")
        assert archive.get("rc-1", thread_id="t") is None
        assert archive.search("result", thread_id="t") == []


def test_a_store_that_cannot_expire_is_told_of_once_and_keeps_the_entry(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="langgraph_roundcompact"):
        archive = StoreArchive(InMemoryStore(), ttl=5)
        archive.put("rc-1", archived(work(1)))
    assert [record.getMessage() for record in caplog.records] == ["InMemoryStore cannot expire entries: ttl=5 has no effect there"]
    assert archive.get("rc-1") == archived(work(1))


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


@BOTH
def test_without_a_store_of_its_own_it_uses_the_runs(how: str) -> None:
    builder = StateGraph(Chat)
    builder.add_node("compact", RoundCompactNode(compactor(summariser("NOTES"), archive=StoreArchive())))
    builder.add_edge(START, "compact")
    store = InMemoryStore()
    after = go(how, builder.compile(store=store), {"messages": history(1, 2)}, {"configurable": {"thread_id": "t"}})["messages"]
    (key,) = ids_in(after)
    assert StoreArchive(store).get(key, thread_id="t") is not None


@BOTH
def test_a_run_without_a_store_compacts_without_a_pointer(how: str) -> None:
    builder = StateGraph(Chat)
    builder.add_node("compact", RoundCompactNode(compactor(summariser("NOTES"), archive=StoreArchive())))
    builder.add_edge(START, "compact")
    after = go(how, builder.compile(), {"messages": history(1, 2)}, {"configurable": {"thread_id": "t"}})["messages"]
    assert (len(after), ids_in(after)) == (2, [])


def test_outside_a_run_it_says_what_is_missing() -> None:
    with pytest.raises(ArchiveError, match=r"compile\(store="):
        StoreArchive().get("rc-1")


# --- the store's own index ------------------------------------------------------------------------------------------------------------------


def embed(texts: list[str]) -> list[list[float]]:
    """Two dimensions: how often a text speaks of animals, and of machines."""
    return [
        [sum(text.count(word) for word in ("cat", "animal")) + 0.01, sum(text.count(word) for word in ("engine", "machine")) + 0.01] for text in texts
    ]


def indexed(**more: Any) -> InMemoryStore:
    return InMemoryStore(index={"dims": 2, "embed": more.pop("embed", embed), "fields": ["text"]})


def about(text: str) -> dict[str, Any]:
    return archived([HumanMessage(text, id="m")], request="")


@BOTH
def test_a_store_with_an_index_finds_by_meaning(how: str) -> None:
    archive = StoreArchive(indexed())
    archive.put("rc-1", about("the cat sat"), thread_id="t")
    archive.put("rc-2", about("the engine ran"), thread_id="t")
    archive.put("rc-3", about("the machine stood"), thread_id="other")
    found = archive.search("machine", thread_id="t") if how == "sync" else asyncio.run(archive.asearch("machine", thread_id="t"))
    assert [passage["archive_id"] for passage in found] == ["rc-2", "rc-1"]
    assert "the engine ran" in found[0]["text"]
    assert [passage["archive_id"] for passage in archive.search("machine", thread_id="t", archive_ids=["rc-1"])] == ["rc-1"]


def test_a_replaced_version_is_not_found_by_the_index() -> None:
    archive = StoreArchive(indexed())
    archive.put("rc-1", about("the engine ran"), thread_id="t")
    archive.put("rc-1", about("the cat sat"), thread_id="t")
    assert ["cat" in passage["text"] for passage in archive.search("machine", thread_id="t")] == [True]


def test_where_the_index_cannot_be_asked_words_are(caplog: pytest.LogCaptureFixture) -> None:
    broken = False

    def sometimes(texts: list[str]) -> list[list[float]]:
        if broken:
            raise ConnectionError("no embeddings today")
        return embed(texts)

    archive = StoreArchive(indexed(embed=sometimes))
    archive.put("rc-1", about("the engine ran"), thread_id="t")
    broken = True
    with caplog.at_level(logging.WARNING, logger="langgraph_roundcompact"):
        assert [passage["archive_id"] for passage in archive.search("engine", thread_id="t")] == ["rc-1"]
    assert "looked for by words" in caplog.text


def test_a_fault_while_passages_are_indexed_leaves_no_readable_entry() -> None:
    store = FailingStore("raise", 1, index={"dims": 2, "embed": embed, "fields": ["text"]})
    archive = StoreArchive(store)
    with pytest.raises(ArchiveError):
        archive.put("rc-1", about("the engine ran"), thread_id="t")
    assert archive.get("rc-1", thread_id="t") is None
    assert archive.search("engine", thread_id="t") == []
