"""Drivers of the archive, sync and async: they make the calls on a store that the generators of `archive` ask for; and the BM25 index.

Apart from the engine's `_drivers`, because an archive is used outside a compaction too (the recall tool, `testing.check_archive`), has a time limit
for a whole operation, and turns every failure into an `ArchiveError`. The limit is checked between the calls in sync; in async the call itself is
cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from langgraph.errors import GraphBubbleUp

from langgraph_roundcompact._archive_items import Ask
from langgraph_roundcompact._search import K1, B, scores
from langgraph_roundcompact.errors import ArchiveError

log = logging.getLogger("langgraph_roundcompact")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Done:
    value: Any


def run(flow: Generator[Ask, Any, T], target: Any, limit_seconds: float = 0.0) -> T:
    """Make the calls that a generator asks for, and return its value.

    Args:
        flow: Yields calls; it is resumed with the answer, or has the exception thrown in.
        target: The store or archive whose methods are called.
        limit_seconds: Time for all calls together; 0: no limit.

    Raises:
        ArchiveError: whatever the target raised, or that it took longer than the limit.
    """
    began = time.monotonic()
    with _as_archive_error():
        step = _advance(flow.send, None)
        while not isinstance(step, _Done):
            try:
                answer = getattr(target, step.method)(*step.args, **step.options)
            except Exception as exc:  # noqa: BLE001 - the flow decides, or lets it through
                step = _advance(flow.throw, exc)
            else:
                if limit_seconds and time.monotonic() - began > limit_seconds:
                    raise TimeoutError
                step = _advance(flow.send, answer)
        return step.value  # type: ignore[no-any-return]


async def arun(flow: Generator[Ask, Any, T], target: Any, limit_seconds: float = 0.0) -> T:
    """Same as `run`, awaited; the flow itself works in a thread, so that a long conversation does not stall the event loop."""
    with _as_archive_error():
        async with asyncio.timeout(limit_seconds or None):
            step = await asyncio.to_thread(_advance, flow.send, None)
            while not isinstance(step, _Done):
                try:
                    answer = await _answer(target, step)
                except Exception as exc:  # noqa: BLE001 - the flow decides, or lets it through
                    step = await asyncio.to_thread(_advance, flow.throw, exc)
                else:
                    step = await asyncio.to_thread(_advance, flow.send, answer)
            return step.value  # type: ignore[no-any-return]


def refused(answer: object) -> bool:
    """Whether a store reports a failure in its answer instead of raising it."""
    return (
        answer is False or isinstance(answer, Exception) or (isinstance(answer, Mapping) and bool(answer.get("error") or answer.get("ok") is False))
    )


def _advance(move: Callable[[Any], Ask], value: Any) -> Ask | _Done:
    """One move of a flow: what it asks next, or its value. `StopIteration` cannot cross a thread's future."""
    try:
        return move(value)
    except StopIteration as stop:
        return _Done(stop.value)


async def _answer(target: Any, step: Ask) -> Any:
    try:
        return await getattr(target, "a" + step.method)(*step.args, **step.options)
    except NotImplementedError:  # a store that is sync only
        return await asyncio.to_thread(getattr(target, step.method), *step.args, **step.options)


@contextlib.contextmanager
def _as_archive_error() -> Iterator[None]:
    try:
        yield
    except (GraphBubbleUp, ArchiveError):
        raise
    except TimeoutError as exc:
        msg = "the archive took longer than its time limit"
        raise ArchiveError(msg) from exc
    except Exception as exc:
        msg = f"the archive failed: {type(exc).__name__}"
        raise ArchiveError(msg) from exc


class Corpus:
    """Passages with an index of their words.

    Args:
        passages: At least one.
        words: The words of each.
    """

    def __init__(self, passages: Sequence[Mapping[str, Any]], words: Sequence[list[str]]) -> None:
        self._passages = passages
        self._scores = index_of(words)

    def best(self, words: list[str], limit: int) -> list[dict[str, Any]]:
        """The passages nearest to the words that are looked for, best first, each with its `score`."""
        rated = [round(float(score), 5) for score in self._scores(words)]
        best = sorted((number for number, score in enumerate(rated) if score > 0), key=lambda number: (-rated[number], number))
        return [{**self._passages[number], "score": rated[number]} for number in best[:limit]]


_slow_search_warned = False


def index_of(documents: Sequence[list[str]]) -> Callable[[list[str]], Sequence[float]]:
    """A function from the words that are looked for to the BM25 scores of all documents.

    Args:
        documents: The words of each; at least one document.
    """
    try:
        import bm25s  # noqa: PLC0415 - an extra
    except ImportError:
        global _slow_search_warned  # noqa: PLW0603 - one warning a process is enough
        if not _slow_search_warned:
            _slow_search_warned = True
            log.warning("bm25s is not installed: recall searches in plain Python, which is slower; install langgraph-roundcompact[recall]")
        return lambda words: scores(documents, words)
    index = bm25s.BM25(k1=K1, b=B)
    index.index([document or [""] for document in documents], show_progress=False)
    nothing = [0.0] * len(documents)
    return lambda words: index.get_scores(known) if (known := [word for word in words if word in index.vocab_dict]) else nothing
