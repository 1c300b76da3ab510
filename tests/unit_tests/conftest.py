"""What all unit tests share: no network but loopback, both colours of a flow, the place of the shared material."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from builders import call, step, steps
from hypothesis import HealthCheck, settings
from pytest_socket import _remove_restrictions, socket_allow_hosts

from langgraph_roundcompact import _ports
from langgraph_roundcompact._drivers import arun, run
from langgraph_roundcompact._effects import Effect, Flow

__all__ = ["FUZZ", "SHARED", "Drive", "call", "case_files", "examples", "step", "steps"]

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
"""Reference material and recorded traces; not part of the repository."""

FUZZ = os.environ.get("ROUNDCOMPACT_FUZZ") == "1"
"""Whether this is `make fuzz`: more examples, drawn anew each time."""

FUZZ_FACTOR = 32
"""How many times the examples of the default run."""

# The default run is the same everywhere, so that it fails for the change at hand or not at all; a failure prints what reproduces it.
settings.register_profile("default", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fuzz", deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
settings.load_profile("fuzz" if FUZZ else "default")


def examples(count: int) -> settings:
    """Settings for a property test: `count` examples, and many times as many in `make fuzz`."""
    return settings(max_examples=count * FUZZ_FACTOR if FUZZ else count)


@pytest.fixture(autouse=True)
def _loopback_only() -> Iterator[None]:
    """Nothing in the tests may depend on, or reach, another machine."""
    socket_allow_hosts(["127.0.0.1", "::1"], allow_unix_socket=True)
    yield
    _remove_restrictions()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of the shared material; tests that need it are skipped where it is not there."""
    if not SHARED.is_dir():
        pytest.skip(f"the shared material is not beside this repository ({SHARED.name}/)")
    return SHARED


def case_files() -> list[Path]:
    """The collected bug reports, one file each; empty where the shared material is not there."""
    return sorted((SHARED / "cases" / "cases").glob("*.md"))


@pytest.fixture(scope="session")
def runner() -> ModuleType:
    """The program that reads the collected bug reports and checks a result against them."""
    if not case_files():
        pytest.skip("the collected reports (../shared/cases) are not beside this repository")
    spec = importlib.util.spec_from_file_location("run_cases", SHARED / "cases" / "run_cases.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    path = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = path
    return module


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of each wait between two tries of the summariser, in order; the waits are noted instead of slept."""
    slept: list[float] = []

    async def asleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(_ports, "time", SimpleNamespace(sleep=slept.append))
    monkeypatch.setattr(_ports, "asyncio", SimpleNamespace(sleep=asleep, timeout=asyncio.timeout, to_thread=asyncio.to_thread))
    return slept


@dataclass
class Drive:
    """Runs a flow to its end in one colour, and notes what it asked for.

    `drive(flow, answer)`: `answer` is a function from an effect to its answer, or a list of answers in order; an exception (raised, or
    standing in the list) is thrown into the flow. `drive.asked` holds the effects.
    """

    colour: str
    asked: list[Effect] = field(default_factory=list)

    def __call__(self, flow: Flow[Any], answer: Callable[[Effect], Any] | Sequence[Any] = ()) -> Any:
        ports = _Scripted(answer, self.asked)
        if self.colour == "sync":
            return run(flow, ports)
        return asyncio.run(arun(flow, ports))


class _Scripted:
    def __init__(self, answer: Callable[[Effect], Any] | Sequence[Any], asked: list[Effect]) -> None:
        self._answer = answer if callable(answer) else self._from(iter(answer))
        self._asked = asked

    def perform(self, effect: Effect) -> Any:
        self._asked.append(effect)
        given = self._answer(effect)
        if isinstance(given, BaseException):
            raise given
        return given

    async def aperform(self, effect: Effect) -> Any:
        return self.perform(effect)

    @staticmethod
    def _from(answers: Iterator[Any]) -> Callable[[Effect], Any]:
        return lambda effect: next(answers, None)


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Drive:
    """Each test that takes this runs once with `run` and once with `arun`."""
    return Drive(request.param)
