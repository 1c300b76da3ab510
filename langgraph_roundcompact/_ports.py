"""Answers to the engine's effects: the counter, the summariser, the tables, the archive, the observers. The engine's only access to time and threads.

Each effect has one line for sync and one for async; what needs no waiting is answered by `_local` for both. The tables end in `assert_never`, so
that a new effect is a type error until both answer it.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import time as now
from typing import Any, Protocol, assert_never, runtime_checkable

from langchain_core.callbacks import BaseCallbackManager
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.config import ensure_config
from langgraph.errors import GraphBubbleUp

from langgraph_roundcompact._effects import (
    CallModel,
    Count,
    Effect,
    Emit,
    MeasureWindow,
    Memo,
    Offload,
    ReadStore,
    Record,
    Review,
    ShownBefore,
    Sleep,
    Warn,
    WriteArchive,
    WriteDump,
)
from langgraph_roundcompact._fault import told
from langgraph_roundcompact._memo import BoundedTable
from langgraph_roundcompact._memory_block import SOURCE
from langgraph_roundcompact._meter import Meter, WindowCount
from langgraph_roundcompact._reviewers import aask_reviewer, ashown_before, ask_reviewer, shown_before
from langgraph_roundcompact._window import bound_kwargs
from langgraph_roundcompact.events import CompactionEvent
from langgraph_roundcompact.telemetry import Telemetry, call_facts, model_name, watched_thread

log = logging.getLogger("langgraph_roundcompact")

NOSTREAM = "nostream"
"""LangGraph's tag for calls whose tokens stay out of `stream_mode="messages"`."""

JITTER = 0.25
"""Largest share added to a wait, so that many threads do not come back at once."""

LONG_CHARS = 100_000
"""Text in one count, in characters, from which an event loop should not wait for it: some 20 ms for the slower way of counting."""

SUMMARY_TABLE_SIZE, FAILURE_TABLE_SIZE, STANDING_TABLE_SIZE, WARNED_TABLE_SIZE = 256, 4096, 1024, 4096


@runtime_checkable
class Archive(Protocol):
    """Where replaced originals go. A record is plain data; keys come from content, so a second write of a key writes the same.

    Everything is of one thread: no call reads or deletes entries of another. `testing.check_archive` tries an implementation.
    """

    def put(self, key: str, record: Mapping[str, Any], *, thread_id: str | None = None) -> None:
        """Write an entry whole, or raise."""

    async def aput(self, key: str, record: Mapping[str, Any], *, thread_id: str | None = None) -> None:
        """Same as `put`, awaited."""

    def get(self, key: str, *, thread_id: str | None = None) -> dict[str, Any] | None:
        """Read an entry back; None when there is none."""

    async def aget(self, key: str, *, thread_id: str | None = None) -> dict[str, Any] | None:
        """Same as `get`, awaited."""

    def keys(self, *, thread_id: str | None = None) -> list[str]:
        """The keys of the thread's entries."""

    async def akeys(self, *, thread_id: str | None = None) -> list[str]:
        """Same as `keys`, awaited."""

    def search(self, query: str, *, thread_id: str | None = None, limit: int = 3, archive_ids: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Passages of the thread's entries nearest to the query, best first.

        Args:
            query: What to look for, in words.
            thread_id: Whose entries.
            limit: The most passages.
            archive_ids: Only these entries, and those that their messages point to; None: all of the thread.

        Returns:
            For each at least `archive_id` (the entry's key) and `text`; `start`, `stop` and `length` where it has a place in the entry's text.
        """

    async def asearch(
        self, query: str, *, thread_id: str | None = None, limit: int = 3, archive_ids: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """Same as `search`, awaited."""

    def delete(self, *, thread_id: str | None = None) -> None:
        """Delete all entries of a thread."""

    async def adelete(self, *, thread_id: str | None = None) -> None:
        """Same as `delete`, awaited."""


class CompactorPorts:
    """Answers the engine's effects, sync and async. Shared by all runs of a compactor; holds no run's data beyond the bounded tables."""

    def __init__(
        self,
        *,
        meter: Meter,
        model: Runnable[Any, Any] | None,
        archive: Archive | None,
        write_dump: Callable[[Mapping[str, Any]], None] | None,
        on_event: Callable[[CompactionEvent], None] | None,
    ) -> None:
        self.meter = meter
        self._model = model
        self._archive = archive
        self.write_dump = write_dump
        self.telemetry = Telemetry(model_name(model))
        self._on_event = on_event
        self._tables = {
            "summaries": BoundedTable(SUMMARY_TABLE_SIZE),
            "failures": BoundedTable(FAILURE_TABLE_SIZE),
            "stand_ins": BoundedTable(STANDING_TABLE_SIZE),
        }
        self._warned = BoundedTable(WARNED_TABLE_SIZE)

    def perform(self, effect: Effect) -> Any:
        """Answer one effect."""
        match effect:
            case Count() | MeasureWindow():
                return self._measure(effect)
            case CallModel():
                return self._call(effect)
            case Sleep():
                return time.sleep(_jittered(effect))
            case ReadStore():
                return _store_value((store := _store()) and store.get(effect.namespace, effect.key))
            case WriteArchive():
                return self._write(effect)
            case WriteDump() | Record():
                return self._dump(effect)
            case Review():
                return ask_reviewer(effect.review, effect.by)
            case ShownBefore():
                return shown_before(effect.key)
            case Memo() | Emit() | Warn() | Offload():
                return self._local(effect)
            case _:
                assert_never(effect)

    async def aperform(self, effect: Effect) -> Any:
        """Same as `perform`, awaited: what may block runs in a thread."""
        match effect:
            case Count() | MeasureWindow():
                return await self._ameasure(effect)
            case CallModel():
                return await self._acall(effect)
            case Sleep():
                return await asyncio.sleep(_jittered(effect))
            case ReadStore():
                return _store_value((store := _store()) and await store.aget(effect.namespace, effect.key))
            case WriteArchive():
                return await self._awrite(effect)
            case WriteDump() | Record():
                return await asyncio.to_thread(self._dump, effect)
            case Review():
                return await aask_reviewer(effect.review, effect.by)
            case ShownBefore():
                return await ashown_before(effect.key)
            case Memo() | Emit() | Warn() | Offload():
                return self._local(effect)
            case _:
                assert_never(effect)

    def _measure(self, effect: Count | MeasureWindow) -> int | WindowCount:
        return self.meter.answer(effect)

    async def _ameasure(self, effect: Count | MeasureWindow) -> int | WindowCount:
        # Our own counter is quick for a step's worth of text; a user's may call a tokenizer service, and the first count loads an encoding.
        if self.meter.custom or self.meter.cold or _is_long(effect):
            return await asyncio.to_thread(self._measure, effect)
        return self._measure(effect)

    def _call(self, effect: CallModel) -> Any:
        """The summariser's answer. A late one, after the time limit, is ignored: a thread cannot be stopped."""
        model = self._summariser(effect)
        if not effect.timeout_seconds:
            return model.invoke(list(effect.messages), _call_config())
        box: list[Any] = []
        context = contextvars.copy_context()

        def work() -> None:
            try:
                box.append((True, model.invoke(list(effect.messages), _call_config())))
            except BaseException as exc:  # noqa: BLE001 - carried to the waiting thread
                box.append((False, exc))

        thread = threading.Thread(target=context.run, args=(work,), name="roundcompact-summary", daemon=True)
        thread.start()
        thread.join(effect.timeout_seconds)
        if not box:
            msg = f"no summary within {effect.timeout_seconds} seconds"
            raise TimeoutError(msg)
        answered, value = box[0]
        if answered:
            return value
        raise value

    async def _acall(self, effect: CallModel) -> Any:
        model = self._summariser(effect)
        async with asyncio.timeout(effect.timeout_seconds or None):
            return await model.ainvoke(list(effect.messages), _call_config())

    def _write(self, effect: WriteArchive) -> None:
        if self._archive is not None:
            put: Callable[..., object] = self._archive.put
            _accepted(put(effect.key, effect.record, thread_id=effect.thread_id))

    async def _awrite(self, effect: WriteArchive) -> None:
        if self._archive is not None:
            aput: Callable[..., Awaitable[object]] = self._archive.aput
            _accepted(await aput(effect.key, effect.record, thread_id=effect.thread_id))

    def _summariser(self, effect: CallModel) -> Runnable[Any, Any]:
        model = self._model if effect.model is None else effect.model
        if model is None:
            msg = "there is no summariser"
            raise RuntimeError(msg)
        return _with_timeout(model, effect.timeout_seconds)

    def _local(self, effect: Memo | Emit | Warn | Offload) -> Any:
        if isinstance(effect, Emit):
            return self._tell(effect.event)
        if isinstance(effect, Warn):
            return self._warn(effect)
        if isinstance(effect, Memo):
            table = self._tables[effect.table]
            return table.get(*effect.keys) if effect.value is None else table.put(effect.keys[0], effect.value)
        return None

    def _tell(self, event: CompactionEvent) -> None:
        """Observers never reach into the run: what they raise is logged."""
        if self._on_event is not None:
            try:
                self._on_event(event)
            except GraphBubbleUp:
                raise
            except Exception as exc:  # noqa: BLE001 - anybody's code
                log.error("on_event failed (%s)", told(exc))
        self.telemetry.observe(event)
        writer = _stream_writer()
        if writer is not None:
            writer(event.as_dict())

    def _warn(self, effect: Warn) -> bool:
        if self._warned.get(effect.key):
            return False
        self._warned.put(effect.key, True)
        log.warning("%s", effect.text)
        return True

    def _dump(self, effect: WriteDump | Record) -> None:
        if self.write_dump is None:
            return
        told = {"kind": effect.kind, **effect.data} if isinstance(effect, Record) else {**effect.record, "model": self.telemetry.model}
        thread_id = watched_thread() if isinstance(effect, Record) else effect.thread_id
        self.write_dump({"thread_id": thread_id, "checkpoint_ns": current_namespace(), **told})


def current_thread_id() -> str | None:
    """The thread of the run around us, where there is one."""
    thread_id = ensure_config().get("configurable", {}).get("thread_id")
    return None if thread_id is None else str(thread_id)


def current_namespace() -> str:
    """Checkpoint namespace of the graph around us; empty in the outermost graph, and outside of any."""
    config = ensure_config()
    namespace = str(config.get("configurable", {}).get("checkpoint_ns") or "")
    # In a node the last part names the node's own task, which is another at each step.
    return namespace.rpartition("|")[0] if config.get("metadata", {}).get("langgraph_checkpoint_ns") == namespace else namespace


def _call_config() -> RunnableConfig:
    """Inherits callbacks, tags and metadata from the run around us; the tag keeps the tokens out of the user's stream."""
    around = ensure_config()
    return {
        "callbacks": _without_messages_stream(around.get("callbacks")),
        "run_name": "round_compaction_summary",
        "tags": [*around.get("tags", ()), NOSTREAM],
        "metadata": {**call_facts(), **around.get("metadata", {}), "lc_source": SOURCE},
    }


def _without_messages_stream(callbacks: Any) -> Any:
    """The run's callbacks without LangGraph's for `stream_mode="messages"`: that one also tells what nodes return, if the summariser is a graph."""
    if not isinstance(callbacks, BaseCallbackManager):
        return callbacks
    rest = callbacks.copy()
    for handler in callbacks.handlers:
        if any(kind.__name__ == "StreamMessagesHandler" for kind in type(handler).__mro__):
            rest.remove_handler(handler)
    return rest


def _with_timeout(model: Runnable[Any, Any], seconds: float) -> Runnable[Any, Any]:
    """Hand the limit to the client where it takes one with each request, so that the connection is given up too."""
    inner: Any = model
    while isinstance(inner, RunnableBindingBase):  # bound arguments, configurations and retries hand a call's arguments on
        inner = inner.bound
    if not seconds or not any(cls.__name__ == "BaseChatOpenAI" for cls in type(inner).__mro__):
        return model
    own = bound_kwargs(model).get("timeout", inner.request_timeout)
    # A limit that the user gave the client stays where it is shorter, or tells the parts of a request apart.
    looser = own is None or (isinstance(own, int | float) and own > seconds)
    return model.bind(timeout=seconds) if looser else model


def _is_long(effect: Count | MeasureWindow) -> bool:
    """Whether a count may have much text to read. Looks from the end, and no further than the quick form of measuring does."""
    left = LONG_CHARS
    for message in reversed(effect.messages):
        if isinstance(effect, MeasureWindow) and not effect.exact and isinstance(message, AIMessage) and message.usage_metadata:
            return False
        content = message.content
        left -= len(content) if isinstance(content, str) else sum(len(block) if isinstance(block, str) else _text_chars(block) for block in content)
        if left < 0:
            return True
    return False


def _text_chars(block: object) -> int:
    text = block.get("text") if isinstance(block, Mapping) else None
    return len(text) if isinstance(text, str) else 1000


def _jittered(effect: Sleep) -> float:
    left = effect.until - now() if effect.until is not None else 0.0
    return max(effect.seconds, min(left, effect.most)) * (1 + random.random() * JITTER)


def _accepted(answer: object) -> None:
    """Some stores say in their answer what they should have raised."""
    if answer is False or isinstance(answer, Exception) or (isinstance(answer, Mapping) and (answer.get("error") or answer.get("ok") is False)):
        msg = "the archive answered with an error"
        raise OSError(msg)


def _store() -> Any:
    try:
        from langgraph.config import get_store  # noqa: PLC0415 - outside a graph it is never needed

        return get_store()
    except Exception:  # noqa: BLE001 - outside a graph, or a graph without a store
        return None


def _store_value(item: Any) -> Any:
    return getattr(item, "value", item)


def _stream_writer() -> Callable[[Any], None] | None:
    try:
        from langgraph.config import get_stream_writer  # noqa: PLC0415 - outside a graph it is never needed

        return get_stream_writer()
    except Exception:  # noqa: BLE001 - outside a graph there is no writer: that is not an error
        return None
