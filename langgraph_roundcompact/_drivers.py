"""Drivers of the engine, sync and async: `run` and `arun` hand a flow's effects to the ports and the answers back to the flow.

A flow is a generator that yields effects (`_effects`). A test keeps the two drivers equal but for `await`.

The flow is advanced through `_advance`, which turns the end of the generator into a value: `StopIteration` cannot cross a thread's future.
`arun` advances in a worker thread once the flow has asked for `Offload`, so that half a second of rules does not stall the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from langgraph_roundcompact._effects import Effect, Flow, Offload

T = TypeVar("T")


class Ports(Protocol):
    """Answers effects, sync or async. A failure is raised and reaches the flow at the line that asked."""

    def perform(self, effect: Effect) -> Any:
        """Answer one effect."""

    async def aperform(self, effect: Effect) -> Any:
        """Same as `perform`, awaited."""


@dataclass(frozen=True, slots=True)
class _Done:
    value: Any


def run(flow: Flow[T], ports: Ports) -> T:
    """Drive a flow to its end and return its value."""
    heavy = False
    try:
        step = _advance(flow.send, None, heavy=heavy)
        while not isinstance(step, _Done):
            heavy = heavy or isinstance(step, Offload)
            try:
                answer = ports.perform(step)
            except BaseException as exc:  # noqa: BLE001 - the flow decides, or lets it through
                step = _advance(flow.throw, exc, heavy=heavy)
            else:
                step = _advance(flow.send, answer, heavy=heavy)
        return step.value  # type: ignore[no-any-return]
    finally:
        _close(flow)


async def arun(flow: Flow[T], ports: Ports) -> T:
    """Same as `run`, awaited."""
    heavy = False
    try:
        step = await _aadvance(flow.send, None, heavy=heavy)
        while not isinstance(step, _Done):
            heavy = heavy or isinstance(step, Offload)
            try:
                answer = await ports.aperform(step)
            except BaseException as exc:  # noqa: BLE001 - the flow decides, or lets it through
                step = await _aadvance(flow.throw, exc, heavy=heavy)
            else:
                step = await _aadvance(flow.send, answer, heavy=heavy)
        return step.value  # type: ignore[no-any-return]
    finally:
        _close(flow)


def _advance(move: Callable[[Any], Effect], value: Any, *, heavy: bool) -> Effect | _Done:  # noqa: ARG001 - the twin needs it
    """One move of the flow: the next effect, or its value."""
    try:
        return move(value)
    except StopIteration as stop:
        return _Done(stop.value)


async def _aadvance(move: Callable[[Any], Effect], value: Any, *, heavy: bool) -> Effect | _Done:
    if heavy and not isinstance(value, asyncio.CancelledError):
        return await asyncio.to_thread(_advance, move, value, heavy=heavy)
    return _advance(move, value, heavy=heavy)


def _close(flow: Flow[Any]) -> None:
    """Close the flow, unless a cancelled run left it working in its thread: it has no effects of its own and ends by itself."""
    if not getattr(flow, "gi_running", False):
        with contextlib.suppress(ValueError):  # the thread may have started in this very moment
            flow.close()
