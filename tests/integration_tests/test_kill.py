"""Eight workers on one PostgreSQL work on forty threads and are killed two hundred times with SIGKILL: nothing is lost.

`ROUNDCOMPACT_KILLS` gives another number of kills; under a hundred, there are fewer and shorter threads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from durable import agent_of, assert_nothing_lost, entries, pointers_in, subject_of, thread_config
from killed_workers import WORKERS, Plan, Supervisor

from langgraph_roundcompact import StoreArchive
from langgraph_roundcompact._memory_block import mark_of

KILLS = int(os.environ.get("ROUNDCOMPACT_KILLS", "200"))


class _Shelf:
    """The archive, each entry read from the database once."""

    def __init__(self, archive: StoreArchive) -> None:
        self._archive, self._read = archive, {}

    def get(self, key: str, *, thread_id: str | None = None) -> Any:
        if (thread_id, key) not in self._read:
            self._read[thread_id, key] = self._archive.get(key, thread_id=thread_id)
        return self._read[thread_id, key]


@pytest.fixture
def worked(postgres_url: str) -> tuple[Plan, Supervisor]:
    """All work done, under kills."""
    plan = Plan(url=postgres_url, threads=40, last=40, kills=KILLS) if KILLS >= 100 else Plan(url=postgres_url, threads=12, last=20, kills=KILLS)
    plan.set_up()
    supervisor = Supervisor(plan)
    supervisor.run()
    return plan, supervisor


def test_workers_killed_at_random_lose_nothing(worked: tuple[Plan, Supervisor], figures: Callable[..., None]) -> None:
    """Of every thread, now and at each of its checkpoints: the request verbatim, a valid list, every result in state or archive, no pointer
    without its entry; and no process asked twice for the same summary."""
    plan, supervisor = worked
    assert supervisor.kills == plan.kills
    counts = {"checkpoints": 0, "with a block": 0, "archive entries": 0, "entries nothing points to": 0}
    with plan.place.opened() as (saver, store):
        shelf = _Shelf(StoreArchive(store))
        for number in range(plan.threads):
            _check_thread(plan, number, saver, shelf, counts)
        counts["archive entries"] = len(entries(plan.place))
    counts["entries nothing points to"] = counts["archive entries"] - counts.pop("pointed to")
    with psycopg.connect(plan.url) as desk:
        asked, different, twice = desk.execute(
            "select (select count(*) from summaries), (select count(distinct digest) from summaries), "
            "(select count(*) from (select 1 from summaries group by who, digest having count(*) > 1) as again)"
        ).fetchone()
        calls = desk.execute("select last_value from model_calls").fetchone()[0]
    assert twice == 0
    figures(
        kills=supervisor.kills, **{"of these in a compaction": supervisor.aimed, "workers at a time": WORKERS, "workers in all": supervisor.started},
        threads=plan.threads, **{"invoices each": plan.last, "model calls": calls, "without kills": plan.model_calls}, **counts,
        **{"summaries asked": asked, "different": different, "twice in one process": twice, "lost messages": 0, "seconds": round(supervisor.seconds)},
    )  # fmt: skip


def _check_thread(plan: Plan, number: int, saver: Any, shelf: _Shelf, counts: dict[str, int]) -> None:
    spec, thread, pointers = plan.spec(number), f"thread-{number}", set()
    graph = agent_of(spec, subject_of(spec, None), checkpointer=saver)
    messages = graph.get_state(thread_config(thread)).values["messages"]
    assert assert_nothing_lost(messages, shelf, thread, plan.last) == plan.last
    for state in graph.get_state_history(thread_config(thread)):
        if held := state.values.get("messages"):
            assert_nothing_lost(held, shelf, thread)
            counts["checkpoints"] += 1
            counts["with a block"] += any(mark_of(message) == "checkpoint" for message in held)
            pointers.update(pointers_in(held))
    # A block stands for folded results too: their own entries are pointed to from within its entry.
    for pointer in list(pointers):
        pointers.update(_inner_pointers(shelf.get(pointer, thread_id=thread)))
    counts["pointed to"] = counts.get("pointed to", 0) + len(pointers)


def _inner_pointers(record: dict[str, Any]) -> list[str]:
    return re.findall(r"COMPRESSION_RECALL: id=([^\]]+)\]", "\n".join(str(item["content"]) for item in record["messages"]))
