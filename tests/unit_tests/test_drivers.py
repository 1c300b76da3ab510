"""The two drivers: answers and failures reach the flow where it asked, control flow passes, nothing is left running or open."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from conftest import Drive
from langgraph.errors import GraphBubbleUp, GraphInterrupt

from langgraph_roundcompact._drivers import arun, run
from langgraph_roundcompact._effects import Effect, Flow, Memo, Offload, Sleep

WAIT = Sleep(0.0)
LIMIT = 10.0
"""Seconds after which a test that hangs gives up."""


class Ports:
    """Answers each effect with `answer(effect)`."""

    def __init__(self, answer: Callable[[Effect], Any] = lambda effect: None) -> None:
        self._answer = answer

    def perform(self, effect: Effect) -> Any:
        return self._answer(effect)

    async def aperform(self, effect: Effect) -> Any:
        return self._answer(effect)


class Sleeper(Ports):
    """Waits for ever in its async colour."""

    async def aperform(self, effect: Effect) -> Any:
        return None if isinstance(effect, Offload) else await asyncio.sleep(LIMIT)


def asking(*effects: Effect) -> Flow[list[Any]]:
    """Asks for these in order and returns the answers."""
    answers = []
    for effect in effects:
        answers.append((yield effect))  # noqa: PERF401 - a comprehension cannot yield
    return answers


def guarded(seen: list[str], *effects: Effect) -> Flow[str]:
    """Tells what it was handed, and that it was closed."""
    try:
        for effect in effects:  # noqa: UP028 - a tuple cannot be sent answers
            yield effect
    except BaseException as exc:
        seen.append(type(exc).__name__)
        raise
    finally:
        seen.append("closed")
    return "done"


# --- Both colours --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [WAIT, Offload()], ids=["light", "heavy"])
def test_answers_come_back_in_order(colour: Drive, first: Effect) -> None:
    memo = Memo("failures", ("k",))
    assert colour(asking(first, memo, WAIT), ["one", "two", None]) == ["one", "two", None]
    assert colour.asked == [first, memo, WAIT]


def test_a_flow_that_asks_for_nothing_returns_its_value(colour: Drive) -> None:
    assert colour(asking()) == []


@pytest.mark.parametrize("first", [WAIT, Offload()], ids=["light", "heavy"])
def test_a_failure_is_thrown_in_where_it_was_asked_for_and_may_be_handled(colour: Drive, first: Effect) -> None:
    def flow() -> Flow[str]:
        yield first
        try:
            yield WAIT
        except OSError as exc:
            return f"handled {exc}"
        return "not reached"

    assert colour(flow(), [None, OSError("disk full")]) == "handled disk full"


@pytest.mark.parametrize("first", [WAIT, Offload()], ids=["light", "heavy"])
@pytest.mark.parametrize("failure", [OSError("x"), GraphBubbleUp(), GraphInterrupt(()), KeyboardInterrupt(), SystemExit(3), MemoryError()])
def test_what_the_flow_does_not_handle_passes_through_and_the_flow_is_closed(colour: Drive, first: Effect, failure: BaseException) -> None:
    seen: list[str] = []
    with pytest.raises(type(failure)) as raised:
        colour(guarded(seen, first, WAIT), [None, failure])
    assert raised.value is failure
    assert seen == [type(failure).__name__, "closed"]


@pytest.mark.parametrize("first", [WAIT, Offload()], ids=["light", "heavy"])
def test_stop_iteration_from_a_port_is_a_failure_like_any_other(colour: Drive, first: Effect) -> None:
    """It must neither end the flow as if it had returned, nor get lost in a future, which cannot carry it."""

    def flow() -> Flow[str]:
        yield first
        try:
            yield WAIT
        except Exception:
            return "handled"
        return "not reached"

    assert colour(flow(), [None, StopIteration("value")]) == "handled"
    with pytest.raises(RuntimeError):
        colour(asking(first, WAIT), [None, StopIteration("value")])


@pytest.mark.parametrize("first", [WAIT, Offload()], ids=["light", "heavy"])
def test_a_fault_of_the_flow_itself_passes_through(colour: Drive, first: Effect) -> None:
    def flow() -> Flow[None]:
        yield first
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        colour(flow())


def test_a_failure_in_a_sub_flow_is_handled_by_the_flow_around_it(colour: Drive) -> None:
    def flow() -> Flow[str]:
        yield Offload()
        try:
            yield from asking(WAIT)
        except OSError:
            return "around"
        return "not reached"

    assert colour(flow(), [None, OSError()]) == "around"


def test_a_flow_may_ask_again_after_a_failure(colour: Drive) -> None:
    def flow() -> Flow[int]:
        for attempt in range(5):
            try:
                yield WAIT
            except TimeoutError:
                continue
            return attempt
        return -1

    assert colour(flow(), [TimeoutError(), TimeoutError(), None]) == 2


# --- Threads and the event loop ------------------------------------------------------------------------------------------------------


def test_sync_stays_in_the_calling_thread() -> None:
    def flow() -> Flow[list[int]]:
        yield Offload()
        return [threading.get_ident()]

    assert run(flow(), Ports()) == [threading.get_ident()]


def test_async_moves_to_a_thread_only_after_offload() -> None:
    def flow() -> Flow[list[int]]:
        light = threading.get_ident()
        yield WAIT
        light2 = threading.get_ident()
        yield Offload()
        return [light, light2, threading.get_ident()]

    before, between, after = asyncio.run(arun(flow(), Ports()))
    assert before == between == threading.get_ident()
    assert after != threading.get_ident()


def test_heavy_work_does_not_stall_the_event_loop() -> None:
    def flow() -> Flow[None]:
        yield Offload()
        time.sleep(0.3)

    async def main() -> int:
        task = asyncio.create_task(arun(flow(), Ports()))
        ticks = 0
        while not task.done():
            await asyncio.sleep(0.01)
            ticks += 1
        return ticks

    assert asyncio.run(main()) >= 5


def test_effects_are_answered_on_the_event_loop_also_after_offload() -> None:
    def flow() -> Flow[list[Any]]:
        yield Offload()
        return [(yield WAIT)]

    assert asyncio.run(arun(flow(), Ports(lambda effect: threading.get_ident()))) == [threading.get_ident()]


def test_context_variables_of_the_caller_are_seen_in_the_thread() -> None:
    """LangGraph's config, stream writer and store are context variables."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")

    def flow() -> Flow[str]:
        yield Offload()
        return variable.get()

    async def main() -> str:
        variable.set("seen")
        return await arun(flow(), Ports())

    assert asyncio.run(main()) == "seen"


# --- Cancellation --------------------------------------------------------------------------------------------------------------------


async def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, LIMIT)


@pytest.mark.parametrize("first", [WAIT, Offload()], ids=["light", "heavy"])
def test_cancelled_while_waiting_for_a_port_the_flow_is_told_and_closed(first: Effect) -> None:
    seen: list[str] = []

    async def main() -> None:
        ports = Sleeper() if isinstance(first, Offload) else Sleeper(lambda effect: None)
        task = asyncio.create_task(arun(guarded(seen, first, WAIT), ports))
        await asyncio.sleep(0.1)
        await _cancel(task)

    asyncio.run(main())
    assert seen == ["CancelledError", "closed"]


def test_cancelled_while_the_flow_works_in_a_thread_the_caller_does_not_wait_and_the_flow_goes_no_further() -> None:
    working, go_on = threading.Event(), threading.Event()
    performed: list[Effect] = []
    closed = threading.Event()

    def flow() -> Flow[None]:
        try:
            yield Offload()
            working.set()
            go_on.wait(LIMIT)
            yield WAIT
        finally:
            closed.set()

    async def main() -> None:
        task = asyncio.create_task(arun(flow(), Ports(performed.append)))
        await asyncio.to_thread(working.wait, LIMIT)
        await _cancel(task)
        assert not closed.is_set()  # nobody waited for the thread
        go_on.set()

    asyncio.run(main())
    gc.collect()
    assert closed.wait(LIMIT)
    assert performed == [Offload()]


def test_cancelled_before_the_thread_has_begun_the_flow_is_closed() -> None:
    """All workers are busy: the move is still in the queue, and must not run on a closed flow as if it had ended well."""
    seen: list[str] = []
    go_on = threading.Event()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        busy = loop.run_in_executor(None, go_on.wait, LIMIT)
        task = asyncio.create_task(arun(guarded(seen, Offload(), WAIT), Ports()))
        await asyncio.sleep(0.1)
        await _cancel(task)
        go_on.set()
        await busy

    asyncio.run(main())
    assert seen[-1] == "closed"


def test_a_time_limit_around_the_whole_run_holds() -> None:
    async def main() -> None:
        async with asyncio.timeout(0.1):
            await arun(asking(Offload(), WAIT), Sleeper())

    with pytest.raises(TimeoutError):
        asyncio.run(main())


def test_many_runs_share_the_ports_without_mixing_their_answers() -> None:
    def flow(number: int) -> Flow[tuple[Any, Any]]:
        yield Offload()
        first = yield Memo("failures", (str(number),))
        return first, (yield Memo("failures", (str(number + 1000),)))

    async def main() -> list[Any]:
        ports = Ports(lambda effect: effect.keys[0] if isinstance(effect, Memo) else None)
        return await asyncio.gather(*(arun(flow(number), ports) for number in range(100)))

    assert asyncio.run(main()) == [(str(number), str(number + 1000)) for number in range(100)]
