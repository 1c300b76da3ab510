"""The suite for archives passes over each store, and finds each fault it is made for."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from archive_cases import sqlite_store
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite.aio import AsyncSqliteStore

from langgraph_roundcompact import Archive, StoreArchive
from langgraph_roundcompact.testing import acheck_archive, check_archive


def test_it_passes_in_memory() -> None:
    check_archive(StoreArchive(InMemoryStore()))
    asyncio.run(acheck_archive(StoreArchive(InMemoryStore(), part_chars=1_000)))


def test_it_passes_in_a_file(tmp_path: Path) -> None:
    with sqlite_store(tmp_path) as store:
        check_archive(StoreArchive(store))


def test_it_passes_in_a_file_awaited(tmp_path: Path) -> None:
    async def checked() -> None:
        async with AsyncSqliteStore.from_conn_string(str(tmp_path / "store.db")) as store:
            await store.setup()
            await acheck_archive(StoreArchive(store))

    asyncio.run(checked())


class Plain:
    """The smallest archive that keeps the rules; each fault changes one thing."""

    def __init__(self, fault: str = "") -> None:
        self.fault, self.data = fault, {}

    def _of(self, thread_id: str | None) -> dict[str, Any]:
        name: Any = str(thread_id).lower() if self.fault == "threads mix" else thread_id
        return self.data.setdefault(name or "" if self.fault == "none is empty" else name, {})

    def put(self, key: str, record: Mapping[str, Any], *, thread_id: str | None = None) -> None:
        kept = {**record, "messages": record["messages"][:1]} if self.fault == "cuts" else record
        self._of(thread_id)[key] = kept if self.fault == "same object" else copy.deepcopy(dict(kept))

    def get(self, key: str, *, thread_id: str | None = None) -> Any:
        found = self._of(thread_id).get(key)
        return found if self.fault == "same object" else copy.deepcopy(found)

    def keys(self, *, thread_id: str | None = None) -> list[str]:
        return [*self._of(thread_id), *(["more"] if self.fault == "lists too much" else [])]

    def search(self, query: str, *, thread_id: str | None = None, limit: int = 3, archive_ids: Sequence[str] | None = None) -> list[dict[str, Any]]:
        words, found = query.split(), []
        for key, record in self._of(thread_id).items():
            text = "\n".join(str(message["content"]) for message in record["messages"])
            score = sum(word in text for word in words)
            if score and (archive_ids is None or key in archive_ids or self.fault == "ignores ids"):
                found.append((-score, key, {"archive_id": key, "text": text}))
        best = [passage for _, _, passage in sorted(found, key=lambda one: one[:2])]
        return best if self.fault == "ignores limit" else best[:limit]

    def delete(self, *, thread_id: str | None = None) -> None:
        if self.fault == "deletes all":
            self.data.clear()
        elif self.fault != "deletes nothing":
            self._of(thread_id).clear()

    async def aput(self, key: str, record: Mapping[str, Any], *, thread_id: str | None = None) -> None:
        self.put(key, record, thread_id=thread_id)

    async def aget(self, key: str, *, thread_id: str | None = None) -> Any:
        return self.get(key, thread_id=thread_id)

    async def akeys(self, *, thread_id: str | None = None) -> list[str]:
        return self.keys(thread_id=thread_id)

    async def asearch(self, query: str, **options: Any) -> list[dict[str, Any]]:
        return self.search(query, **options)

    async def adelete(self, *, thread_id: str | None = None) -> None:
        self.delete(thread_id=thread_id)


def test_an_archive_of_ones_own_passes() -> None:
    assert isinstance(Plain(), Archive)
    check_archive(Plain())
    asyncio.run(acheck_archive(Plain()))


FAULTS = {
    "threads mix": "thread",
    "none is empty": "thread",
    "cuts": "get of rc-1",
    "same object": "the reader changed",
    "lists too much": "keys",
    "ignores ids": "search in one entry",
    "ignores limit": "search for one passage",
    "deletes all": "after deleting",
    "deletes nothing": "keys after delete",
}


@pytest.mark.parametrize(("fault", "told"), FAULTS.items())
def test_each_fault_is_found_and_named(fault: str, told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        check_archive(Plain(fault))
    with pytest.raises(AssertionError, match=told):
        asyncio.run(acheck_archive(Plain(fault)))
