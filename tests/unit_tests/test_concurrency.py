"""200 rounds at once on one compactor, threads and tasks mixed, some cancelled, some failing: each ends as if it were alone."""

from __future__ import annotations

import asyncio
import gc
import random
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import pytest
from builders import Http
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.store.memory import InMemoryStore
from procedures import call, plain_counter, snapshot, widest_gap
from pydantic import PrivateAttr

from langgraph_roundcompact import RoundCompactConfig, RoundCompactor, StoreArchive, _ports
from langgraph_roundcompact._memo import BoundedTable
from langgraph_roundcompact.events import CompactionResult

ROUNDS = 200
FATES = ("fine", "fine", "wrong key", "fine", "unstable", "overflow", "rejected", "small", "twice rejected", "cancelled")
"""What becomes of round n, by its last digit."""


def fate(number: int) -> str:
    return FATES[number % len(FATES)]


class Oracle(BaseChatModel):
    """Answers each round in its own way, whoever asks at the same time; the answer repeats what only that round's request holds."""

    seconds: float = 0.0
    """Longest time an answer takes."""
    _asked: dict[int, int] = PrivateAttr(default_factory=dict)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)
    _cancelled: list[int] = PrivateAttr(default_factory=list)
    _sleep: Any = PrivateAttr(default=time.sleep)

    @property
    def cancelled(self) -> list[int]:
        """Rounds whose call was cancelled while it was waiting."""
        return self._cancelled

    def is_waiting(self, number: int) -> bool:
        """Whether a round's call has come in."""
        return number in self._asked

    def sleep_with(self, sleep: Callable[[float], None]) -> None:
        """How the synchronous colour waits."""
        self._sleep = sleep

    @property
    def _llm_type(self) -> str:
        return "oracle"

    def _answer(self, messages: Sequence[BaseMessage]) -> tuple[int, Any]:
        said = str(messages[-1].content)
        numbers = {int(found) for found in re.findall(r"ROUND-(\d+)-", said)}
        assert len(numbers) == 1, f"a request holds the work of several rounds: {numbers}"
        (number,) = numbers
        with self._lock:
            asked = self._asked[number] = self._asked.get(number, 0) + 1
        failures = {
            "wrong key": [Http(401)], "unstable": [Http(503), Http(503)], "overflow": [ContextOverflowError("prompt is too long")],
            "rejected": [AIMessage("")], "twice rejected": [AIMessage(""), AIMessage("")],
        }.get(fate(number), [])  # fmt: skip
        if asked <= len(failures):
            return number, failures[asked - 1]
        found = sorted(set(re.findall(rf"ROUND-{number}-\w+", said)))
        usage = {"input_tokens": number + 1000, "output_tokens": number, "total_tokens": 2 * number + 1000}
        return number, AIMessage(snapshot(f"Round {number} saw {', '.join(found)}"), usage_metadata=usage)

    def _result(self, reply: Any) -> ChatResult:
        if isinstance(reply, Exception):
            raise reply
        return ChatResult(generations=[ChatGeneration(message=reply)])

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        number, reply = self._answer(messages)
        self._sleep(self.seconds * random.Random(number).random())
        return self._result(reply)

    async def _agenerate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        number, reply = self._answer(messages)
        try:
            await asyncio.sleep(self.seconds * random.Random(number).random() if fate(number) != "cancelled" or not self.seconds else 60)
        except asyncio.CancelledError:
            self._cancelled.append(number)
            raise
        return self._result(reply)


def round_of(number: int) -> list[BaseMessage]:
    """A round of its own size and content: each message names it."""
    steps = 2 + number % 3
    messages: list[BaseMessage] = [HumanMessage(f"Do ROUND-{number}-request", id=f"h{number}")]
    for step in range(1, (1 if fate(number) == "small" else steps) + 1):
        text = f"ROUND-{number}-result{step} in file src/round_{number}/part_{step}.py " + "plain words " * 250
        messages += [
            AIMessage("", tool_calls=[call(f"c{number}_{step}", "read", path=f"/r{number}/{step}")], id=f"a{number}_{step}"),
            ToolMessage(text, tool_call_id=f"c{number}_{step}", name="read", id=f"t{number}_{step}"),
        ]
    return messages


def compactor(seconds: float = 0.0) -> tuple[RoundCompactor, Oracle]:
    config = RoundCompactConfig(
        trigger_token_threshold=1000, context_window_tokens=12_000, min_target_context_ratio=0.0, keep_recent_messages=0, cooldown_groups=0
    )
    oracle = Oracle(seconds=seconds)
    return RoundCompactor(oracle, config=config, token_counter=plain_counter, tiers=(), archive=StoreArchive(InMemoryStore())), oracle


def told(result: CompactionResult) -> dict[str, Any]:
    """All that a result says."""
    dump = {name: getattr(result, name) for name in CompactionResult.__dataclass_fields__}
    dump["messages"] = [message.model_dump() for message in result.messages]
    dump["update"] = {key: [message.model_dump() for message in value] for key, value in result.update.items()}
    dump["memory_message"] = result.memory_message and result.memory_message.model_dump()
    return dump


@pytest.fixture(scope="module")
def alone() -> dict[int, dict[str, Any]]:
    """Each round by itself, on a compactor of its own."""
    return {number: told(compactor()[0].compact(round_of(number), thread_id=f"thread-{number}")) for number in range(ROUNDS)}


def cut_amid_the_answer(number: int) -> bool:
    """Whether a cancelled round is cancelled while the model answers; the others at any moment before."""
    return number % 20 == 9


async def all_at_once(subject: RoundCompactor, oracle: Oracle, rounds: dict[int, list[BaseMessage]]) -> dict[int, Any]:
    """Odd rounds in threads, even ones as tasks, and those to be cancelled; results, or what was raised."""
    loop = asyncio.get_running_loop()

    async def cancelled(number: int) -> CompactionResult:
        task = asyncio.create_task(subject.acompact(rounds[number], thread_id=f"thread-{number}"))
        while cut_amid_the_answer(number) and not oracle.is_waiting(number):  # noqa: ASYNC110 - told by a thread or a task
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.005 * (number % 4))
        task.cancel()
        return await task

    with ThreadPoolExecutor(ROUNDS) as pool:
        waiting: dict[int, Any] = {}
        for number in rounds:
            if fate(number) == "cancelled":
                waiting[number] = asyncio.create_task(cancelled(number))
            elif number % 2:
                waiting[number] = loop.run_in_executor(pool, partial(subject.compact, rounds[number], thread_id=f"thread-{number}"))
            else:
                waiting[number] = asyncio.create_task(subject.acompact(rounds[number], thread_id=f"thread-{number}"))
            await asyncio.sleep(0)
        ended = await asyncio.gather(*waiting.values(), return_exceptions=True)
    return dict(zip(waiting, ended, strict=True))


@dataclass
class Run:
    """One run of all rounds at once."""

    subject: RoundCompactor
    oracle: Oracle
    ended: dict[int, Any]
    before: dict[str, Any]
    busiest: float
    """Longest time that one callback kept the event loop's thread busy, in seconds of its own processor time."""
    sync_answers_on_the_loop: int


@pytest.fixture(scope="module")
def run() -> Run:
    patch = pytest.MonkeyPatch()
    rounds = {number: round_of(number) for number in range(ROUNDS)}
    subject, oracle = compactor(seconds=0.4)
    before = attributes(subject)
    busiest, on_the_loop, handle_run, loop_thread = 0.0, [], asyncio.Handle._run, threading.get_ident()

    def timed(handle: asyncio.Handle) -> None:
        nonlocal busiest
        started = time.thread_time()
        handle_run(handle)
        busiest = max(busiest, time.thread_time() - started)

    def noted(seconds: float) -> None:
        on_the_loop.extend([seconds] if threading.get_ident() == loop_thread else [])
        time.sleep(seconds)

    patch.setattr(asyncio.Handle, "_run", timed)
    patch.setattr(_ports, "time", SimpleNamespace(sleep=noted))
    oracle.sleep_with(noted)
    gc.disable()  # a collection is charged to whoever is running
    try:
        ended = asyncio.run(all_at_once(subject, oracle, rounds))
    finally:
        gc.enable()
        patch.undo()
    return Run(subject, oracle, ended, before, busiest, len(on_the_loop))


def attributes(subject: RoundCompactor) -> dict[str, Any]:
    """Every attribute of the compactor and of the parts it holds, tables aside."""
    owners = {"": subject, "ports.": subject._ports, "meter.": subject._ports.meter}
    return {prefix + name: value for prefix, owner in owners.items() for name, value in vars(owner).items()}


def test_each_result_is_the_one_obtained_alone(run: Run, alone: dict[int, dict[str, Any]]) -> None:
    """Every field: messages, update, audit, usage, attempts, archive id."""
    finished = {number: told(result) for number, result in run.ended.items() if isinstance(result, CompactionResult)}
    assert [number for number, result in finished.items() if result != alone[number]] == []
    assert {fate(number) for number in set(range(ROUNDS)) - finished.keys()} == {"cancelled"}


def test_every_fate_occurs_and_ends_as_it_must(alone: dict[int, dict[str, Any]]) -> None:
    """What the comparison stands on."""
    ends = {(fate(number), result["outcome"], result["reason"], len(result["attempts"])) for number, result in alone.items()}
    assert ends == {
        ("fine", "summarised", "reached_threshold", 1),
        ("cancelled", "summarised", "reached_threshold", 1),
        ("wrong key", "failed", "authentication", 1),
        ("unstable", "summarised", "reached_threshold", 3),
        ("overflow", "summarised", "reached_threshold", 2),
        ("rejected", "summarised", "reached_threshold", 2),
        ("twice rejected", "failed", "summary_rejected", 2),
        ("small", "below_trigger", "below_threshold", 0),
    }


def test_a_cancelled_round_ends_as_cancelled_and_so_does_its_model_call(run: Run) -> None:
    """The others go on."""
    numbers = [number for number in range(ROUNDS) if fate(number) == "cancelled"]
    assert {type(run.ended[number]) for number in numbers} == {asyncio.CancelledError}
    assert set(numbers) >= set(run.oracle.cancelled) >= set(filter(cut_amid_the_answer, numbers))


def test_a_cancelled_round_can_be_asked_for_again(run: Run, alone: dict[int, dict[str, Any]]) -> None:
    """Nothing is left locked, cooling down or half remembered."""
    for number in (9, 19, 199):
        result = told(run.subject.compact(round_of(number), thread_id=f"thread-{number}"))
        assert {**result, "attempts": 0, "usage": 0} == {**alone[number], "attempts": 0, "usage": 0}


def test_nothing_of_a_run_is_readable_on_the_instance(run: Run) -> None:
    """The same attributes with the same objects as before; the bounded tables are the only place where anything was noted."""
    after = attributes(run.subject)
    assert after.keys() == run.before.keys()
    assert [name for name, value in after.items() if value is not run.before[name]] == []
    assert marks({name: value for name, value in after.items() if name != "_model"}) == []
    for table in run.subject._ports._tables.values():
        assert len(table) <= table._size


def marks(root: object) -> list[str]:
    """Texts of any round that can be reached from an object, tables, archive and model aside."""
    found, seen, waiting = [], set[int](), [root]
    while waiting:
        item = waiting.pop()
        if id(item) in seen or isinstance(item, BoundedTable | StoreArchive | Oracle | type | ModuleType | FunctionType):
            continue
        seen.add(id(item))
        if isinstance(item, str | bytes):
            found += [str(item)[:80]] if "ROUND-" in str(item) else []
        elif isinstance(item, Mapping):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple | set | frozenset):
            waiting += item
        else:
            waiting += vars(item).values() if hasattr(item, "__dict__") else [getattr(item, n, None) for n in getattr(type(item), "__slots__", ())]
    return found


def test_the_event_loop_is_free(run: Run) -> None:
    """No callback keeps it for a tenth of a second, and no wait of the synchronous colour happens on it."""
    assert run.busiest < 0.1
    assert run.sync_answers_on_the_loop == 0


def test_a_ticker_beside_the_rounds_keeps_its_time() -> None:
    """Less than 0.1 s late while twenty rounds are compacted; the best of five, because the machine may be busy with something else."""
    rounds = {number: round_of(number) for number in range(20) if fate(number) != "cancelled"}

    async def tasks() -> None:
        subject, _ = compactor(seconds=0.1)
        await asyncio.gather(*(subject.acompact(messages, thread_id=f"thread-{number}") for number, messages in rounds.items()))

    widest = 1.0
    for _ in range(5):
        widest = min(widest, asyncio.run(widest_gap(tasks))[1])
        if widest < 0.1:
            break
    assert widest < 0.1
