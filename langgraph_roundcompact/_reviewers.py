"""Asking for a review: a user's callable, or LangGraph's `interrupt()`; and finding what was shown before the run was resumed."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config
from langgraph.types import Interrupt, interrupt

from langgraph_roundcompact._fault import told
from langgraph_roundcompact._memo import BoundedTable
from langgraph_roundcompact.events import CompactionReview

log = logging.getLogger("langgraph_roundcompact")

_ANSWERED = BoundedTable(256)
"""Answers got by `interrupt()`, by the run of a task in which they were got and the text that was shown."""


def _interrupted(review: CompactionReview) -> Any:
    """The answer to an interrupt.

    LangGraph finds answers by their order. So a question is asked once in a run of a task, however often the model call is tried in it.
    """
    # Each run of a task has a counter of its own. It is no public interface: without it the question is asked again.
    run = getattr((ensure_config().get("configurable") or {}).get("__pregel_scratchpad"), "interrupt_counter", None)
    key = f"{id(run)} {review.checkpoint}"
    known = _ANSWERED.get(key)
    if run is not None and known is not None and known[0] is run:
        return known[1]
    answer = interrupt(review.as_dict())
    _ANSWERED.put(key, (run, answer))
    return answer


def ask_reviewer(review: CompactionReview, by: object) -> Any:
    """The reviewer's answer. Without a callable the run is interrupted, and goes on when it is resumed with the answer."""
    answer = by(review) if callable(by) else _interrupted(review)
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        msg = "an awaitable review needs the graph to be run with ainvoke or astream"
        raise TypeError(msg)
    return answer


async def aask_reviewer(review: CompactionReview, by: object) -> Any:
    """Same as `ask_reviewer`, awaited."""
    answer = by(review) if callable(by) else _interrupted(review)
    return await answer if inspect.isawaitable(answer) else answer


def current_task_id() -> str:
    """The id of the task around us; empty outside of a graph."""
    task = (ensure_config().get("configurable") or {}).get("__pregel_task_id")
    return task if isinstance(task, str) else ""


def shown_before(key: str) -> CompactionReview | None:
    """The review of this key at which the step around us was interrupted; None when there is none, or it cannot be seen."""
    place = _place()
    if place is None:
        return None
    saver, where, task = place
    try:
        return _review_in(saver.get_tuple(where), task, key)
    except Exception as exc:  # noqa: BLE001 - then the memory of finished summaries, or a second summary, has to do
        log.debug("the saved review could not be read (%s)", told(exc))
        return None


async def ashown_before(key: str) -> CompactionReview | None:
    """Same as `shown_before`, awaited."""
    place = _place()
    if place is None:
        return None
    saver, where, task = place
    try:
        return _review_in(await saver.aget_tuple(where), task, key)
    except Exception as exc:  # noqa: BLE001 - then the memory of finished summaries, or a second summary, has to do
        log.debug("the saved review could not be read (%s)", told(exc))
        return None


class _Saver(Protocol):
    """What is needed of a checkpointer."""

    def get_tuple(self, config: RunnableConfig) -> Any: ...
    async def aget_tuple(self, config: RunnableConfig) -> Any: ...


def _place() -> tuple[_Saver, RunnableConfig, str] | None:
    """The checkpointer of the task around us, where it keeps the task's graph, and the task's id.

    LangGraph hands these to tasks for subgraphs. That is no public interface: anything unexpected means that nothing can be seen.
    """
    given = ensure_config().get("configurable") or {}
    saver: Any = given.get("__pregel_checkpointer")
    thread, task = given.get("thread_id"), given.get("__pregel_task_id")
    if not hasattr(saver, "get_tuple") or thread is None or not isinstance(task, str):
        return None
    # A task's own namespace is its graph's, and its name and id.
    around = str(given.get("checkpoint_ns") or "").rpartition("|")[0]
    where = {"thread_id": thread, "checkpoint_ns": around}
    checkpoint = (given.get("checkpoint_map") or {}).get(around)
    return saver, {"configurable": {**where, "checkpoint_id": checkpoint} if checkpoint else where}, task


def _review_in(saved: Any, task: str, key: str) -> CompactionReview | None:
    for owner, channel, value in (saved.pending_writes or ()) if saved is not None else ():
        if owner == task and channel == "__interrupt__":
            for shown in _shown(value):
                if isinstance(shown.get("covers"), Mapping) and shown["covers"].get("key") == key:
                    return CompactionReview.from_dict(shown)
    return None


def _shown(value: object) -> Iterable[Mapping[str, Any]]:
    held = value if isinstance(value, list | tuple) else [value]
    return (item.value for item in held if isinstance(item, Interrupt) and isinstance(item.value, Mapping))
