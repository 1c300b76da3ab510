"""`RoundCompactor`: the object that applications build and use. Built once, shared by any number of threads; it keeps nothing of a run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable
from langgraph.errors import GraphBubbleUp
from langgraph.types import Overwrite

from langgraph_roundcompact._arguments import check_arguments, check_around, refuse
from langgraph_roundcompact._compact_request import requested_focus
from langgraph_roundcompact._content import as_messages
from langgraph_roundcompact._drivers import arun, run
from langgraph_roundcompact._effects import Warn
from langgraph_roundcompact._engine import compaction, planning
from langgraph_roundcompact._leftovers import without_leftovers
from langgraph_roundcompact._memory_block import is_own
from langgraph_roundcompact._meter import Meter, TokenCounter
from langgraph_roundcompact._parts import AgentCall, Job, Parts
from langgraph_roundcompact._ports import Archive, CompactorPorts, current_namespace, current_thread_id
from langgraph_roundcompact._redact import default_redact
from langgraph_roundcompact._reviewers import current_task_id
from langgraph_roundcompact._session_memory import SessionMemory
from langgraph_roundcompact._spans import is_interim, is_real_user
from langgraph_roundcompact._splice import Channel, update_for
from langgraph_roundcompact._state import read_messages
from langgraph_roundcompact._summariser import agent_call, compacts_by_itself, model_key, resolve_model, summariser_window
from langgraph_roundcompact._window import capacity, limits
from langgraph_roundcompact.config import RoundCompactConfig, without_effect
from langgraph_roundcompact.dump import dump_writer
from langgraph_roundcompact.errors import RedactionRefused
from langgraph_roundcompact.events import CompactionEvent, CompactionPlan, CompactionResult, CompactionReview
from langgraph_roundcompact.reinject import DEFAULT_REINJECTORS, ReinjectBuilder
from langgraph_roundcompact.tiers import DEFAULT_TIERS, Tier

log = logging.getLogger("langgraph_roundcompact")

_LEFTOVERS = (
    "messages that a checkpoint stands for came back, as they do where a subgraph compacts and its parent merges with another reducer: they are "
    "not sent. A model that has no compaction in front of it would be sent them: use round_compact_messages for the messages of every graph around"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """How a host hands over its messages and takes them back: what the node, the middleware and the runnable say about themselves.

    For integrations of your own; see `RoundCompactor.compact(door=...)`.
    """

    messages_key: str = "messages"
    channel: Channel = "add_messages"
    """Kind of the channel the update is for."""
    writes_state: bool = True
    """False: the list goes to the model and the state stays, so a finished checkpoint stands in at each later step."""
    strips_response_ids: bool = False
    """The door removes provider response ids from the request it builds."""
    last_resort: bool = False
    """The agent's own model overflowed: without a summary, rules make the checkpoint."""
    tool_choice: Any = None
    """What the agent's request says about the use of tools, where that is not bound to its model."""
    free_answer: bool = True
    """False: the agent's request prescribes the form of the answer, so a summary cannot be had by continuing it."""
    as_sent: Callable[[Sequence[BaseMessage]], Sequence[BaseMessage]] | None = None
    """What the door changes in the messages of a request, beside compaction; None: nothing."""
    shared_list: bool = True
    """Other nodes of the graph may write to the list, among them subgraphs that compact: each step looks for what those left behind."""
    review: bool | Callable[[CompactionReview], Any] = False
    """Show a checkpoint before it is applied: True by `interrupt()`, else by the callable, whose answer is the decision."""


def checked_compactor(value: object) -> RoundCompactor:
    """`value`, if a door can use it.

    Raises:
        ConfigurationError: it is not a compactor.
    """
    if not isinstance(value, RoundCompactor):
        refuse("compactor", value, "a RoundCompactor, for example RoundCompactor(model)")
    return value


class RoundCompactor:
    """Replaces the work of the current round by one resumable checkpoint when the window is too full.

    Args:
        model: The summariser: a chat model or any runnable from messages to a message or text; a name (`"provider:name"` or the name alone,
            reached by `config.model_client` or the provider's environment); `None`: `config.model`, and without that rules only, no network.
            Retries of the client itself (`max_retries` of a `ChatOpenAI`) happen inside each attempt of ours and multiply: give such an object
            `max_retries=0`, as models resolved by name have it.
        config: When and how to compact.
        token_counter: `Callable[[Sequence[BaseMessage]], int]`, tokens of a list; replaces the estimate, never the usage that models report.
        tiers: Cheap steps tried in order before the summariser is asked.
        reinjectors: Builders that put state back, by name. `config.reinject` says which and in which order; those with names of your own that
            it does not list follow.
        archive: Where the replaced originals are written.
        session_memory: Notes the application already keeps of this round: a state key, a store item `(namespace, key)`, or a callable from the
            state, giving text and the id of the last message it covers. Used as the narrative of that part, without a model call.
        is_real_user: Whether a message was sent by a person (or the caller). Not asked about the package's own blocks.
        is_pending: Whether a message's outcome is still open, beyond what calls and results tell.
        redact: Runs over every text that is sent to the summariser, stored or shown. It may raise to veto a compaction.
        on_event: Observer; what it raises is logged.

    Raises:
        ConfigurationError: an argument cannot work; the message says what to do.

    Example:
        ```python
        compactor = RoundCompactor(model=None, config=RoundCompactConfig(context_window_tokens=32_000))
        result = compactor.compact(messages)
        ```
    """

    def __init__(
        self,
        model: Runnable[Any, Any] | str | None = None,
        *,
        config: RoundCompactConfig | None = None,
        token_counter: TokenCounter | None = None,
        tiers: Sequence[Tier] = DEFAULT_TIERS,
        reinjectors: Mapping[str, ReinjectBuilder] = DEFAULT_REINJECTORS,
        archive: Archive | None = None,
        session_memory: SessionMemory | None = None,
        is_real_user: Callable[[BaseMessage], bool] | None = None,
        is_pending: Callable[[BaseMessage], bool] | None = None,
        redact: Callable[[str], str] = default_redact,
        on_event: Callable[[CompactionEvent], None] | None = None,
    ) -> None:
        config = config if config is not None else RoundCompactConfig()
        check_arguments(config, token_counter, tiers, reinjectors, archive, session_memory, is_real_user, is_pending, redact, on_event)
        self._given_model = model
        self._arguments: dict[str, Any] = {
            "config": config, "token_counter": token_counter, "tiers": tiers, "reinjectors": dict(reinjectors), "archive": archive,
            "session_memory": session_memory, "is_real_user": is_real_user, "is_pending": is_pending, "redact": redact, "on_event": on_event,
        }  # fmt: skip
        self._model = resolve_model(model, config)
        self._ports = CompactorPorts(
            meter=Meter(token_counter),
            model=self._model,
            archive=archive,
            write_dump=dump_writer(config.compression_dump_dir) if config.enable_compression_dump else None,
            on_event=on_event,
        )
        self._parts = _parts(self._ports.meter, self._model, self._arguments)
        for line in without_effect(config):
            log.warning("%s", line)
        if self._model is None:
            log.info("no summariser was given: checkpoints are made by rules, without a model")

    @property
    def config(self) -> RoundCompactConfig:
        """The configuration this compactor was built with."""
        return self._parts.config

    @property
    def is_real_user(self) -> Callable[[BaseMessage], bool]:
        """The rule in force for which messages a person (or the caller) sent; never true of the package's own blocks."""
        return self._parts.is_real_user

    def plan(
        self,
        input: Any,
        *,
        system_message: BaseMessage | str | None = None,
        tools: Sequence[Any] | None = None,
        agent_model: Any = None,
        force: bool = False,
        thread_id: str | None = None,
    ) -> CompactionPlan:
        """What `compact` would do with this input, and why. No model call, nothing is written.

        Args:
            input: A list of messages, or a state that has them.
            system_message: The agent's system prompt, if it is not among the messages.
            tools: The agent's tools: their schemas take part of the window.
            agent_model: Tells the capacity when the agent's model is not the summariser.
            force: As `compact(force=True)`.
            thread_id: The conversation; found by itself inside a graph.
        """
        given = {"system_message": system_message, "tools": tools, "agent_model": agent_model, "force": force, "thread_id": thread_id}
        return run(planning(self._job(input, Door(), **given), self._parts), self._ports)

    def compact(
        self,
        input: Any,
        *,
        system_message: BaseMessage | str | None = None,
        tools: Sequence[Any] | None = None,
        agent_model: Any = None,
        focus: str | None = None,
        force: bool = False,
        thread_id: str | None = None,
        idle_seconds: float | None = None,
        door: Door = Door(),
    ) -> CompactionResult:
        """Check the window and compact it if that is due.

        Args:
            input: A list of messages, or a state that has them. Never changed.
            system_message: The agent's system prompt, if it is not among the messages.
            tools: The agent's tools: their schemas take part of the window.
            agent_model: Tells the capacity when the agent's model is not the summariser.
            focus: What the summary should pay attention to: a priority, not a task.
            force: Skip trigger, minimum and cool-down; never the check that the result is smaller and whole.
            thread_id: The conversation; found by itself inside a graph.
            idle_seconds: How long the provider's prefix cache has been unused, where known.
            door: How the host takes the result.

        Returns:
            The new list, the update for the channel, and what was done. On any failure the list is the given one and `reason` says why.

        Raises:
            ConfigurationError: `input` has no messages under the door's key.
        """
        job = self._job(
            input, door, system_message=system_message, tools=tools, agent_model=agent_model, focus=focus, force=force, thread_id=thread_id,
            idle_seconds=idle_seconds,
        )  # fmt: skip
        with self._ports.telemetry.watching(job.thread_id, job.limits):
            return _finish(job, door, run(compaction(job, self._parts), self._ports))

    async def acompact(
        self,
        input: Any,
        *,
        system_message: BaseMessage | str | None = None,
        tools: Sequence[Any] | None = None,
        agent_model: Any = None,
        focus: str | None = None,
        force: bool = False,
        thread_id: str | None = None,
        idle_seconds: float | None = None,
        door: Door = Door(),
    ) -> CompactionResult:
        """Same as `compact`, awaited; heavy work and a user's counter run in threads."""
        job = self._job(
            input, door, system_message=system_message, tools=tools, agent_model=agent_model, focus=focus, force=force, thread_id=thread_id,
            idle_seconds=idle_seconds,
        )  # fmt: skip
        with self._ports.telemetry.watching(job.thread_id, job.limits):
            return _finish(job, door, await arun(compaction(job, self._parts), self._ports))

    def as_runnable(self) -> Runnable[Any, list[BaseMessage]]:
        """Messages or a prompt value in, messages out: `prompt | compactor.as_runnable() | model`."""
        from langgraph_roundcompact.runnable import as_runnable  # noqa: PLC0415 - a door imports the compactor, not the other way round

        return as_runnable(self)

    def rebind_model(self, model: Runnable[Any, Any] | str | None) -> RoundCompactor:
        """A new compactor with another summariser; this one is unchanged."""
        return RoundCompactor(model, **self._arguments)

    def count_tokens(self, messages: Sequence[BaseMessage]) -> int:
        """Tokens of a list, by the counter in force."""
        return self._ports.meter.count(as_messages(messages))

    def __reduce__(self) -> tuple[Any, ...]:
        # Made anew from what was given: locks, tables and connections are no part of what a compactor is.
        return partial(type(self), self._given_model, **self._arguments), ()

    def __deepcopy__(self, memo: dict[int, Any]) -> RoundCompactor:
        # The model, the archive and the callables are shared: connections cannot be copied.
        return type(self)(self._model, **self._arguments)

    def __repr__(self) -> str:
        return f"RoundCompactor(model={type(self._model).__name__ if self._model is not None else None}, config={self.config!r})"

    def _agent_call(self, agent_model: Any, door: Door, given: Mapping[str, Any]) -> AgentCall | None:
        if not door.free_answer:
            return None
        return agent_call(
            self._model,
            agent_model,
            tools=given.get("tools"),
            tool_choice=door.tool_choice,
            system_message=given.get("system_message"),
            as_sent=door.as_sent,
        )

    def _job(self, input: Any, door: Door, *, agent_model: Any = None, thread_id: str | None = None, **more: Any) -> Job:
        check_around(more.get("system_message"), more.get("tools"))
        raw = read_messages(input, door.messages_key)
        given, readable = _readable(raw)
        messages = self._without_leftovers(given) if readable and (door.shared_list or current_namespace()) else given
        asked = requested_focus(messages)
        if asked is not None:
            more |= {"force": True, "focus": more.get("focus") or asked or None}
        active = agent_model if agent_model is not None else self._model
        room = capacity(self.config, active)
        if room.source == "default":
            _warn_default_window(room.tokens)
        return Job(
            messages=messages,
            given=None if messages is given else given,
            readable=readable,
            limits=limits(self.config, room.tokens),
            summariser_window=summariser_window(self.config, self._model, room.tokens),
            state=None if input is raw else input,
            thread_id=str(thread_id) if thread_id is not None else current_thread_id(),
            by_id=door.channel == "add_messages" and door.writes_state,
            writes_state=door.writes_state,
            last_resort=door.last_resort,
            review=door.review,
            task_id=current_task_id() if door.review is True else "",
            native_compaction=compacts_by_itself(active, chain_is_cut=door.strips_response_ids),
            agent_call=self._agent_call(active, door, more) if self.config.enable_kv_cache_affinity else None,
            **more,
        )

    def _without_leftovers(self, messages: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
        """The list that may be sent. A graph of one's own is looked after at each step; a subgraph is handed a parent's list, with all its rounds."""
        try:
            left = without_leftovers(messages, self._parts.is_real_user, earlier_rounds=bool(current_namespace()))
        except GraphBubbleUp:
            raise
        except Exception:  # noqa: BLE001 - the user's rule, which the compaction itself tells of
            return messages
        if left is not messages:
            self._ports.perform(Warn("leftovers", _LEFTOVERS))
        return left


def _readable(raw: Sequence[Any]) -> tuple[list[Any], bool]:
    try:
        return as_messages(raw, thorough=False), True
    except Exception as exc:  # noqa: BLE001 - the converter raises many kinds; what is odd in a history must not stop the agent
        log.warning("something in the messages is not a message (%s): the window stays as it is", type(exc).__name__)
        return list(raw), False


def _finish(job: Job, door: Door, result: CompactionResult) -> CompactionResult:
    """The result with the update for the door's channel."""
    if not result.changed and job.given is None:
        return result
    before = job.messages if job.given is None else job.given
    update = update_for(before, result.messages, door.channel, Overwrite) if door.writes_state else list(result.messages)
    return replace(result, changed=True, update={door.messages_key: update})


def _parts(meter: Meter, model: Runnable[Any, Any] | None, given: Mapping[str, Any]) -> Parts:
    return Parts(
        config=given["config"],
        estimate=meter.count_text,
        tiers=tuple(given["tiers"]),
        reinjectors=given["reinjectors"],
        is_real_user=_never_own(given["is_real_user"]) if given["is_real_user"] else is_real_user,
        is_pending=given["is_pending"] or is_interim,
        redact=_guarded(given["redact"]),
        model_key=None if model is None else model_key(model),
        session_memory=given["session_memory"],
        has_archive=given["archive"] is not None,
        records=given["config"].enable_compression_dump,
        passes=(GraphBubbleUp,),
    )


def _never_own(is_real: Callable[[BaseMessage], bool]) -> Callable[[BaseMessage], bool]:
    """The user's rule, which need not know our blocks: a checkpoint taken for a request would protect itself, and the next one too."""
    return lambda message: not is_own(message) and is_real(message)


def _guarded(redact: Callable[[str], str]) -> Callable[[str], str]:
    """The user's redaction; whatever it raises is a veto."""

    def guarded(text: str) -> str:
        try:
            clean = redact(text) if text else text
        except GraphBubbleUp:
            raise
        except Exception as exc:
            raise RedactionRefused from exc
        if not isinstance(clean, str):
            raise RedactionRefused
        return clean

    return guarded


_default_window_warned = False


def _warn_default_window(tokens: int) -> None:
    global _default_window_warned  # noqa: PLW0603 - one warning a process is the contract
    if not _default_window_warned:
        _default_window_warned = True
        log.warning(
            "the model does not say how large its window is: %s tokens are assumed; set RoundCompactConfig(context_window_tokens=...)", f"{tokens:,}"
        )
