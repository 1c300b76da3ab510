"""The door to LangGraph graphs: a node, and a wrapper that puts compaction in front of a model node so that no path can pass it by."""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from langchain_core.messages import BaseMessage, RemoveMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.errors import EmptyChannelError, GraphBubbleUp
from langgraph.graph import StateGraph
from langgraph.pregel import Pregel
from langgraph.types import Command, Overwrite, Send
from pydantic import BaseModel

from langgraph_roundcompact._arguments import check_approve, check_around, check_channel, check_names
from langgraph_roundcompact._channels import channel_kind, kind_of, live_channel
from langgraph_roundcompact._splice import REMOVE_ALL_MESSAGES, Channel
from langgraph_roundcompact._state import read_key, read_messages, with_messages
from langgraph_roundcompact.compactor import Door, RoundCompactor, checked_compactor
from langgraph_roundcompact.errors import ConfigurationError, classify
from langgraph_roundcompact.events import CompactionResult, CompactionReview


class RoundCompactNode(RunnableLambda[Any, dict[str, Any]]):
    """A graph node: state in, state update out; `{}` when nothing changed. Place it between the tools and the model.

    Args:
        compactor: What compacts.
        messages_key: The state's key for messages.
        output_messages_key: Write the list there and leave the state's messages alone; `"llm_input_messages"` makes this a `pre_model_hook`.
            The key is then written at every step, changed or not. The same key as `messages_key` is as good as none.
        channel: Kind of the messages channel, for where the node cannot see it: `"append"` for `operator.add`, `"replace"` for a plain list.
            Inside a graph the channel itself is asked, and this counts only if its reducer is not known.
        system_message: The agent's system prompt, when it is not in the state.
        tools: The agent's tools.
        agent_model: Tells the capacity when the agent's model is not the summariser.
        approve: Show each checkpoint before it is applied. `True`: by `interrupt()`, and the run is resumed with the answer; a callable is given
            the `CompactionReview` and returns the answer: `True` or "accept", `False` or "reject", `{"action": "edit", "summary": "..."}`.
            After a no the window stays, and nobody is asked again until `cooldown_groups` new groups have come. Folds are not shown.
    """

    def __init__(
        self,
        compactor: RoundCompactor,
        *,
        messages_key: str = "messages",
        output_messages_key: str | None = None,
        channel: Channel = "add_messages",
        system_message: BaseMessage | str | None = None,
        tools: Sequence[Any] | None = None,
        agent_model: Any = None,
        approve: bool | Callable[[CompactionReview], Any] = False,
    ) -> None:
        check_approve(approve)
        check_channel(channel)
        check_around(system_message, tools)
        check_names(messages_key=messages_key, **({} if output_messages_key is None else {"output_messages_key": output_messages_key}))
        self._compactor = checked_compactor(compactor)
        self._output_key = output_messages_key if output_messages_key != messages_key else None
        self._door = Door(messages_key=messages_key, channel=channel, writes_state=self._output_key is None, review=approve)
        self._given = {"system_message": system_message, "tools": tools, "agent_model": agent_model}
        super().__init__(self._compact_round, afunc=self._acompact_round, name="round_compact")
        self.__module__ = __name__
        self.__qualname__ = f"RoundCompactNode.{_cache_mark(compactor, messages_key, self._output_key)}"

    def _compact_round(self, state: Any, config: RunnableConfig) -> dict[str, Any]:
        state, door = _met(state, self._door, config)
        return _update(self._compactor.compact(state, **self._given, door=door), state, door, self._output_key, config)

    async def _acompact_round(self, state: Any, config: RunnableConfig) -> dict[str, Any]:
        state, door = _met(state, self._door, config)
        return _update(await self._compactor.acompact(state, **self._given, door=door), state, door, self._output_key, config)

    def __deepcopy__(self, memo: dict[int, Any]) -> RoundCompactNode:
        # What it was given is shared: a model's connections cannot be copied.
        return copy.copy(self)

    def __repr__(self) -> str:
        return f"RoundCompactNode({self.name!r})"


def _cache_mark(compactor: RoundCompactor, *keys: str | None) -> str:
    """Part of the name under which LangGraph caches a node's updates, so that another compactor's are not taken for this one's."""
    return hashlib.sha256(repr((compactor, keys)).encode("utf-8", "replace")).hexdigest()[:12]


def _update(result: CompactionResult, state: Any, door: Door, output_key: str | None, config: RunnableConfig) -> dict[str, Any]:
    if output_key is None:
        return result.update if _is_for_state(result, state, door, config) else {}
    kind = kind_of(live_channel(config, output_key), output_key)
    if kind == "add_messages":  # the key holds the list of the last step: that one goes, whole
        return {output_key: [RemoveMessage(id=REMOVE_ALL_MESSAGES), *(message.model_copy() for message in result.messages)]}
    return {output_key: Overwrite(result.messages) if kind == "append" else result.messages}


# --- the graph around ------------------------------------------------------------------------------------------------------------------


def _met(state: Any, door: Door, config: RunnableConfig) -> tuple[Any, Door]:
    """State and door as the graph has them.

    A key that nothing was written to yet holds an empty list, and the door fits the channel that the update will meet: the wrong kind would
    leave `RemoveMessage` objects in the state.
    """
    key = door.messages_key
    channel = live_channel(config, key)
    if isinstance(state, Mapping) and key not in state and channel is not None:
        state = {**state, key: []}
    kind = kind_of(channel, key) if door.writes_state else None
    return state, door if kind is None else dataclasses.replace(door, channel=kind)


def _is_for_state(result: CompactionResult, state: Any, door: Door, config: RunnableConfig) -> bool:
    """Whether there is an update that may be written. `Send` can hand a node a list that is not the state's.

    By id, all that the update touches must be in the state, or it would append, or raise. A whole list may only take the place of the list
    that it was made from.
    """
    channel = live_channel(config, door.messages_key)
    if channel is None or not result.changed:
        return result.changed
    try:
        value = channel.get()
    except EmptyChannelError:
        value = []
    held = value if isinstance(value, list) else [value]
    if door.channel == "add_messages":
        touched = {message.id for message in result.update[door.messages_key]}
        if REMOVE_ALL_MESSAGES not in touched:
            return touched <= {message.id for message in held if isinstance(message, BaseMessage)}
    given = read_messages(state, door.messages_key)
    return len(given) == len(held) and all(a is b or a == b for a, b in zip(given, held, strict=True))


# --- in front of a model node ----------------------------------------------------------------------------------------------------------


def add_round_compaction(
    builder: StateGraph[Any, Any, Any, Any],
    compactor: RoundCompactor,
    *,
    before: str = "agent",
    messages_key: str = "messages",
    system_message: BaseMessage | str | None = None,
    tools: Sequence[Any] | None = None,
    agent_model: Any = None,
    approve: bool | Callable[[CompactionReview], Any] = False,
) -> None:
    """Wrap a model node in place, so that `goto`, `Send` and edges without a map cannot pass compaction by.

    The node sees the compacted messages; its own update and the compaction's go to the state as one. When the node fails because its model's
    window is full, the round is compacted whatever its size and the node runs once more; a subgraph as node does not.

    Args:
        builder: A graph that is not compiled yet; the node must have been added.
        compactor: What compacts.
        before: Name of the model node.
        messages_key: The state's key for messages. The kind of its channel is read from the builder.
        system_message: The agent's system prompt, when it is not in the state.
        tools: The agent's tools.
        agent_model: Tells the capacity when the agent's model is not the summariser.
        approve: As for `RoundCompactNode`. The node itself should then not pause: LangGraph keeps the last interrupt of a step only, so that
            after a restart between two of them a checkpoint that was agreed to is not applied, but shown again later.

    Raises:
        ConfigurationError: no such node, or it is wrapped already; no such key, in the graph or in the node's input; the builder is compiled
            already (what is compiled would not change), or the channel works in a way that is not known.
    """
    if not isinstance(builder, StateGraph) or builder.compiled:
        msg = "add_round_compaction changes a StateGraph before it is compiled: call it on the builder, then builder.compile()"
        raise ConfigurationError(msg)
    compactor = checked_compactor(compactor)
    check_approve(approve)
    check_around(system_message, tools)
    spec = builder.nodes.get(before)
    if spec is None:
        msg = f"before={before!r} is not a node of this graph (it has: {', '.join(builder.nodes) or 'none'}): add the node first"
        raise ConfigurationError(msg)
    if isinstance(spec.runnable, _CompactedNode):
        msg = f"before={before!r} has round compaction already: call add_round_compaction once for each model node"
        raise ConfigurationError(msg)
    door = Door(messages_key=messages_key, channel=channel_kind(builder, messages_key), review=approve)
    if messages_key not in builder.schemas.get(spec.input_schema, builder.channels):
        msg = f"the node {before!r} is not given {messages_key!r}: add it to the node's input_schema"
        raise ConfigurationError(msg)
    given = {"system_message": system_message, "tools": tools, "agent_model": agent_model}
    wrapped = _CompactedNode(cast("Runnable[Any, Any]", spec.runnable), compactor, door, given, builder.channels)
    builder.nodes[before] = dataclasses.replace(spec, runnable=wrapped)


class _CompactedNode(RunnableLambda[Any, Any]):
    """A node with compaction in front of it."""

    def __init__(self, inner: Runnable[Any, Any], compactor: RoundCompactor, door: Door, given: Mapping[str, Any], keys: Mapping[str, Any]) -> None:
        around = (inner, functools.partial(compactor.compact, **given), functools.partial(compactor.acompact, **given), door, keys)
        # Not the node's own name: streams tell a node's run by it, and there would be two.
        super().__init__(_call(*around), afunc=_acall(*around), name="round_compact")
        function = getattr(inner, "func", None) or getattr(inner, "afunc", None) or inner
        self.__module__ = str(getattr(function, "__module__", __name__))
        self.__qualname__ = f"{getattr(function, '__qualname__', type(inner).__qualname__)}.{_cache_mark(compactor, door.messages_key)}"


# `inner` is a variable of these closures because LangGraph finds a node's subgraphs through them.


def _call(inner: Runnable[Any, Any], compact: Any, _: Any, door: Door, keys: Mapping[str, Any]) -> Callable[[Any, RunnableConfig], Any]:
    def call_compacted(state: Any, config: RunnableConfig) -> Any:
        if not _has_messages(state, door.messages_key):
            return inner.invoke(state, config)
        result = compact(state, door=door)
        try:
            output = inner.invoke(_seen(state, result, door), config)
        except Exception as exc:
            if not _may_run_again(inner, exc):
                raise
            last, result = result, compact(state, door=dataclasses.replace(door, last_resort=True), force=True)
            if result.messages == last.messages:  # the same request would fail the same way
                raise
            output = inner.invoke(_seen(state, result, door), config)
        return _beside(result, output, state, door, keys, config)

    return call_compacted


def _acall(inner: Runnable[Any, Any], _: Any, acompact: Any, door: Door, keys: Mapping[str, Any]) -> Callable[[Any, RunnableConfig], Any]:
    async def acall_compacted(state: Any, config: RunnableConfig) -> Any:
        if not _has_messages(state, door.messages_key):
            return await inner.ainvoke(state, config)
        result = await acompact(state, door=door)
        try:
            output = await inner.ainvoke(_seen(state, result, door), config)
        except Exception as exc:
            if not _may_run_again(inner, exc):
                raise
            last, result = result, await acompact(state, door=dataclasses.replace(door, last_resort=True), force=True)
            if result.messages == last.messages:  # the same request would fail the same way
                raise
            output = await inner.ainvoke(_seen(state, result, door), config)
        return _beside(result, output, state, door, keys, config)

    return acall_compacted


def _beside(result: CompactionResult, output: Any, state: Any, door: Door, keys: Mapping[str, Any], config: RunnableConfig) -> Any:
    """The node's output, with the compaction's update if it may be written."""
    return _combined(result.update[door.messages_key], output, door, keys) if _is_for_state(result, state, door, config) else output


def _may_run_again(inner: Runnable[Any, Any], exc: Exception) -> bool:
    """Whether the node ended because its model's window is full. A graph as node has done work before its model said so: not twice."""
    return not isinstance(exc, GraphBubbleUp) and not isinstance(inner, Pregel) and classify(exc) == "context_overflow"


def _has_messages(state: Any, key: str) -> bool:
    """Whether there is something to compact: what `Send` hands over may be anything, and a key is missing until it is written."""
    return isinstance(state, list) or read_key(state, key) is not None


def _seen(state: Any, result: CompactionResult, door: Door) -> Any:
    return with_messages(state, door.messages_key, result.messages) if result.changed else state


# --- two updates as one ----------------------------------------------------------------------------------------------------------------


def _combined(ours: Any, output: Any, door: Door, keys: Iterable[str]) -> Any:
    """The compaction's update and the node's as one: first ours, then what the node wrote on top of it.

    What a node may return is LangGraph's to say; what it would refuse is handed on for it to refuse.
    """
    key = door.messages_key
    if output is None:
        return {key: ours}
    if isinstance(output, Send):
        return Command(update={key: ours}, goto=output)
    if isinstance(output, Command):
        if output.graph is not None:  # its update is another graph's
            return [{key: ours}, output]
        return dataclasses.replace(output, update=_merged(ours, output.update, door, keys))
    if isinstance(output, list | tuple):
        return _in_front(ours, output, door, keys) if any(isinstance(item, Command) for item in output) else output
    return _merged(ours, output, door, keys)


def _in_front(ours: Any, outputs: Sequence[Any], door: Door, keys: Iterable[str]) -> list[Any]:
    """Ours before the node's several updates. A key that takes one value a step gets them all in one."""
    key, total, rest = door.messages_key, ours, []
    if door.channel == "add_messages":
        return [{key: ours}, *outputs]
    for output in outputs:
        abroad = isinstance(output, Command) and output.graph is not None
        update = None if abroad else _as_dict(output.update if isinstance(output, Command) else output, keys)
        if update is not None and key in update:
            total = _joined(total, update.pop(key), door)
            rest.append(dataclasses.replace(output, update=update) if isinstance(output, Command) else update)
        else:
            rest.append(output)
    return [{key: total}, *rest]


def _merged(ours: Any, theirs: Any, door: Door, keys: Iterable[str]) -> Any:
    key, update = door.messages_key, {} if theirs is None else _as_dict(theirs, keys)
    if update is None:
        return theirs
    return {**update, key: _joined(ours, update[key], door) if key in update else ours}


def _as_dict(update: Any, keys: Iterable[str]) -> dict[str, Any] | None:
    """A node's update as a new dict, as LangGraph reads it; None for what is none."""
    if isinstance(update, Mapping):
        return dict(update)
    if isinstance(update, list | tuple):
        return dict(update) if all(isinstance(pair, tuple) and len(pair) == 2 for pair in update) else None
    if isinstance(update, BaseModel):
        fields, given = type(update).model_fields, update.model_fields_set
        return {
            key: getattr(update, key)
            for key in keys
            if key in fields and (key in given or getattr(update, key) is not None or fields[key].default is not None)
        }
    if any(getattr(kind, "__annotations__", None) for kind in type(update).__mro__):
        return {key: getattr(update, key) for key in keys if hasattr(update, key)}
    return None


def _joined(ours: Any, theirs: Any, door: Door) -> Any:
    """What the node wrote, on top of the compaction. A last-value channel takes the node's list: it was made from the compacted one."""
    if isinstance(theirs, Overwrite) or door.channel == "replace":
        return theirs
    more = theirs if isinstance(theirs, list) else [theirs]  # a tuple is one message
    return Overwrite([*ours.value, *more]) if isinstance(ours, Overwrite) else [*ours, *more]
