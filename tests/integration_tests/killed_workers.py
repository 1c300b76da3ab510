"""Worker processes on one PostgreSQL, and the supervisor that kills them at random with SIGKILL and starts new ones.

A worker takes a thread by an advisory lock on the saver's own connection, so that the server frees it when, and not before, the last statement of a
killed worker is done. It runs the thread for a few steps, lets go of it, and takes another. Half of the workers are of the async colour.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import aclosing, closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import psycopg
from durable import DOORS, PROCESSES, Place, Spec, agent_of, batch, is_open, next_input, next_step, subject_of, thread_config
from langchain_core.messages import AIMessage, BaseMessage

from langgraph_roundcompact import RoundCompactor, StoreArchive
from langgraph_roundcompact.testing import ScriptedChatModel

WORKERS = 8
DURABILITY = ("sync", "async", "sync", "async", "exit")
SHORTEST_SLICE, LONGEST_SLICE = 4, 24
"""Updates of nodes for which a worker keeps a thread."""
AIMED = 0.5
"""Share of the kills that wait for a compaction to begin; the others come at any time."""

TABLES = """
create table jobs (number int primary key, thread text not null, done boolean not null default false);
create table summaries (id bigserial primary key, who text not null, pid int not null, digest text not null);
create sequence model_calls;
"""


@dataclass(frozen=True)
class Plan:
    """The work to be done, and how much of it is disturbed."""

    url: str
    threads: int
    last: int
    kills: int
    seed: int = 20
    deadline_seconds: float = 1500.0

    @property
    def place(self) -> Place:
        """The database."""
        return Place("postgres", self.url)

    def spec(self, number: int) -> Spec:
        """What the agent of a thread is: each door, with and without the cheap steps."""
        return Spec(door=DOORS[number % len(DOORS)], last=self.last, tiers=number % 8 >= 4)

    def durability(self, number: int) -> str:
        """How a thread's checkpoints are written."""
        return DURABILITY[number % len(DURABILITY)]

    @property
    def model_calls(self) -> int:
        """Calls of the agents' models if nothing were done twice."""
        key, calls = 1, 1
        while key <= self.last:
            key, calls = key + len(batch(key, self.last)), calls + 1
        return calls * self.threads

    def set_up(self) -> None:
        """Make the tables and the list of work."""
        self.place.set_up()
        with psycopg.connect(self.url, autocommit=True) as desk:
            desk.execute(TABLES)
            for number in range(self.threads):
                desk.execute("insert into jobs values (%s, %s)", (number, f"thread-{number}"))


# --- a worker -------------------------------------------------------------------------------------------------------------------------------


class _Worker:
    """What both colours share: the desk (list of work, notes), and one compactor for all threads of a kind."""

    def __init__(self, plan: Plan, seed: int, desk: psycopg.Connection[Any], saver: Any, store: Any) -> None:
        self._plan, self._desk, self._saver, self._store = plan, desk, saver, store
        self._random, self._who = random.Random(seed), uuid.uuid4().hex
        self._subjects: dict[bool, RoundCompactor] = {}
        self._agents: dict[Spec, Any] = {}

    def open_jobs(self) -> list[tuple[int, str]]:
        jobs = self._desk.execute("select number, thread from jobs where not done order by number").fetchall()
        self._random.shuffle(jobs)
        return jobs

    def done(self, number: int) -> None:
        self._desk.execute("update jobs set done = true where number = %s", (number,))

    def length(self) -> range:
        return range(self._random.randint(SHORTEST_SLICE, LONGEST_SLICE))

    def agent(self, number: int) -> Any:
        spec = self._plan.spec(number)
        if spec not in self._agents:
            subject = self._subjects.setdefault(spec.tiers, subject_of(spec, StoreArchive(self._store), self._summary_asked))
            model = ScriptedChatModel(replies=[partial(self._answer, spec.last)])
            self._agents[spec] = agent_of(spec, subject, model, checkpointer=self._saver, store=self._store)
        return self._agents[spec]

    def _answer(self, last: int, messages: list[BaseMessage]) -> AIMessage:
        self._desk.execute("select nextval('model_calls')")
        return next_step(last, messages)

    def _summary_asked(self, digest: str) -> None:
        self._desk.execute("insert into summaries (who, pid, digest) values (%s, %s, %s)", (self._who, os.getpid(), digest))


def work(plan: Plan, seed: int) -> None:
    """A worker's life: until all work is done, or until it is killed."""
    with psycopg.connect(plan.url, autocommit=True) as desk:
        if seed % 2:
            asyncio.run(_awork(plan, seed, desk))
        else:
            with plan.place.opened() as (saver, store):
                _work(_Worker(plan, seed, desk, saver, store), saver.conn, plan)


def _work(worker: _Worker, lock: psycopg.Connection[Any], plan: Plan) -> None:
    while jobs := worker.open_jobs():
        for number, thread in jobs:
            if lock.execute("select pg_try_advisory_lock(%s) as got", (number,)).fetchone()["got"]:
                _some_steps(worker, plan, number, thread)
                lock.execute("select pg_advisory_unlock(%s)", (number,))
                break
        else:
            time.sleep(0.05)


def _some_steps(worker: _Worker, plan: Plan, number: int, thread: str) -> None:
    graph, config = worker.agent(number), thread_config(thread)
    state = graph.get_state(config)
    if not is_open(state):
        return worker.done(number)
    with closing(graph.stream(next_input(state), config, stream_mode="updates", durability=plan.durability(number))) as updates:
        for _ in zip(worker.length(), updates):  # noqa: B905 - whichever ends first
            pass
    return None


async def _awork(plan: Plan, seed: int, desk: psycopg.Connection[Any]) -> None:
    async with plan.place.aopened() as (saver, store):
        worker, lock = _Worker(plan, seed, desk, saver, store), saver.conn
        while jobs := worker.open_jobs():
            for number, thread in jobs:
                got = await (await lock.execute("select pg_try_advisory_lock(%s) as got", (number,))).fetchone()
                if got["got"]:
                    await _asome_steps(worker, plan, number, thread)
                    await lock.execute("select pg_advisory_unlock(%s)", (number,))
                    break
            else:
                await asyncio.sleep(0.05)


async def _asome_steps(worker: _Worker, plan: Plan, number: int, thread: str) -> None:
    graph, config = worker.agent(number), thread_config(thread)
    state = await graph.aget_state(config)
    if not is_open(state):
        return worker.done(number)
    stream, left = graph.astream(next_input(state), config, stream_mode="updates", durability=plan.durability(number)), len(worker.length())
    async with aclosing(stream) as updates:
        async for _ in updates:
            left -= 1
            if left <= 0:
                break
    return None


# --- the supervisor -------------------------------------------------------------------------------------------------------------------------


@dataclass
class Supervisor:
    """Keeps the workers running, and kills them as the plan says: at even distances of progress, so that the last kill comes before the end."""

    plan: Plan
    kills: int = 0
    aimed: int = 0
    started: int = 0
    seconds: float = 0.0
    _workers: list[Any] = field(default_factory=list)

    def run(self) -> None:
        """Until all work is done.

        Raises:
            AssertionError: a worker ended by itself before that, or the deadline passed.
        """
        began, chance = time.monotonic(), random.Random(self.plan.seed)
        with psycopg.connect(self.plan.url, autocommit=True) as desk:
            try:
                while self._is_work_left(desk):
                    self._fill()
                    if self.kills < self.plan.kills and self._progress(desk) >= (self.kills + 1) * self.plan.model_calls / (self.plan.kills + 1):
                        self._kill_one(desk, chance)
                    time.sleep(0.01)
                    assert time.monotonic() - began < self.plan.deadline_seconds, f"not done after {self.plan.deadline_seconds} s, {self.kills} kills"
                for worker in self._workers:
                    worker.join(60)
                    assert worker.exitcode == 0
            finally:
                for worker in self._workers:
                    if worker.is_alive():
                        worker.kill()
                        worker.join()
        self.seconds = time.monotonic() - began

    def _fill(self) -> None:
        for worker in self._workers:
            assert worker.exitcode is None, f"a worker ended by itself: {worker.exitcode}"
        while len(self._workers) < WORKERS:
            worker = PROCESSES.Process(target=work, args=(self.plan, self.started), daemon=True)
            worker.start()
            self.started += 1
            self._workers.append(worker)

    def _kill_one(self, desk: psycopg.Connection[Any], chance: random.Random) -> None:
        victim, seconds = chance.choice(self._workers), chance.uniform(0, 0.05)
        if chance.random() < AIMED:
            asked = next((worker for pid in self._summaries_from_now(desk) for worker in self._workers if worker.pid == pid), None)
            self.aimed += asked is not None
            victim, seconds = asked or victim, seconds / 2
        time.sleep(seconds)
        if victim.exitcode is None:
            os.kill(victim.pid, signal.SIGKILL)
            victim.join()
            assert victim.exitcode == -signal.SIGKILL
            self._workers.remove(victim)
            self.kills += 1

    def _summaries_from_now(self, desk: psycopg.Connection[Any]) -> Iterator[int]:
        """Process ids of workers that ask for a summary, for one second."""
        seen, ends = _one(desk, "select coalesce(max(id), 0) from summaries"), time.monotonic() + 1
        while time.monotonic() < ends:
            yield from (row[0] for row in desk.execute("select pid from summaries where id > %s order by id", (seen,)).fetchall())
            time.sleep(0.002)

    @staticmethod
    def _progress(desk: psycopg.Connection[Any]) -> int:
        return _one(desk, "select last_value from model_calls")

    @staticmethod
    def _is_work_left(desk: psycopg.Connection[Any]) -> bool:
        return _one(desk, "select count(*) from jobs where not done") > 0


def _one(desk: psycopg.Connection[Any], query: str) -> int:
    return int(desk.execute(query).fetchone()[0])
