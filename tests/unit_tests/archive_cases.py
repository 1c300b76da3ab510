"""What the tests of archive and recall share: records of odd messages, stores that fail in a chosen way, the stores to try."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from langchain_core.messages import BaseMessage
from langgraph.store.base import Op, PutOp
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import SqliteStore
from strategies import TEXTS, histories

from langgraph_roundcompact._archive_record import archive_record


def archived(messages: Sequence[BaseMessage], request: str = "go", redact: Callable[[str], str] = str) -> dict[str, Any]:
    """The record of some messages, as a compaction writes it."""
    return archive_record(messages, request, redact)


_leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(), st.sampled_from(TEXTS))
_data = st.recursive(_leaves, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4)), max_leaves=12)


def odd_records() -> st.SearchStrategy[dict[str, Any]]:
    """Records of generated histories with odd data in them: NUL, lone surrogates, large numbers, every kind of content."""
    records = st.builds(archived, histories(max_steps=6), st.text())
    return st.builds(lambda record, data: {**record, "artifact": data}, records, _data)


@contextmanager
def sqlite_store(folder: Path) -> Iterator[SqliteStore]:
    """A store in a file."""
    with SqliteStore.from_conn_string(str(folder / "store.db")) as store:
        store.setup()
        yield store


class FailingStore(InMemoryStore):
    """Fails at the n-th write of an item, in a chosen way: `raise`, `partial` (half of a text), `slow`, `error` (a value that says so), `lose`."""

    def __init__(self, how: str, at: int, **more: Any) -> None:
        super().__init__(**more)
        self.how, self.at, self.writes = how, at, 0

    def batch(self, ops: Iterable[Op]) -> list[Any]:
        kept, slow = self._judged(list(ops))
        time.sleep(0.15 if slow else 0)
        return super().batch(kept)

    async def abatch(self, ops: Iterable[Op]) -> list[Any]:
        return self.batch(ops)

    def put(self, *args: Any, **options: Any) -> Any:
        before = self.writes
        super().put(*args, **options)
        return {"error": "quota"} if self.how == "error" and before <= self.at < self.writes else None

    async def aput(self, *args: Any, **options: Any) -> Any:
        return self.put(*args, **options)

    def _judged(self, ops: list[Op]) -> tuple[list[Op], bool]:
        kept, slow = [], False
        for op in ops:
            hit = isinstance(op, PutOp) and op.value is not None and self.writes == self.at
            self.writes += isinstance(op, PutOp) and op.value is not None
            if hit and self.how == "raise":
                raise OSError("disk full")
            slow = slow or (hit and self.how == "slow")
            if hit and self.how == "partial":
                kept.append(
                    op._replace(value={name: value[: len(value) // 2] if isinstance(value, str) else value for name, value in op.value.items()})
                )
            elif not hit or self.how == "slow":
                kept.append(op)
        return kept, slow
