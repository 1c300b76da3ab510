"""The door to LangGraph graphs: a node, and a wrapper that puts compaction in front of a model node so that no path can pass it by."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, cast

from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.channels.last_value import LastValue
from langgraph.graph import StateGraph
from langgraph.types import Command, Overwrite
from pydantic import BaseModel

from langgraph_roundcompact._splice import Channel
from langgraph_roundcompact._state import with_messages
from langgraph_roundcompact.compactor import Door, RoundCompactor
from langgraph_roundcompact.errors import ConfigurationError
from langgraph_roundcompact.events import CompactionResult


class RoundCompactNode(RunnableLambda[Any, dict[str, Any]]):
    """A graph node: state in, state update out; `{}` when nothing changed. Place it between the tools and the model.

    Args:
        compactor: What compacts.
        messages_key: The state's key for messages.
        output_messages_key: Write the list there and leave the state's messages alone; `"llm_input_messages"` makes this a `pre_model_hook`.
            The key is then written at every step, changed or not.
        channel: Kind of the messages channel, for where the node cannot see it: `"append"` for `operator.add`, `"replace"` for a plain list.
            Inside a graph the channel itself is asked, and this counts only if its reducer is not known.
        system_message: The agent's system prompt, when it is not in the state.
        tools: The agent's tools.
        agent_model: Tells the capacity when the agent's model is not the summariser.
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
    ) -> None:
        if channel not in ("add_messages", "append", "replace"):
            msg = f"channel={channel!r} is unknown: use 'add_messages', 'append' or 'replace'"
            raise ConfigurationError(msg)
        door = Door(messages_key=messages_key, channel=channel, writes_state=output_messages_key is None)
        given = {"system_message": system_message, "tools": tools, "agent_model": agent_model}

        def compact_round(state: Any, config: RunnableConfig) -> dict[str, Any]:
            return _update(compactor.compact(state, **given, door=_fitting(door, config)), output_messages_key)

        async def acompact_round(state: Any, config: RunnableConfig) -> dict[str, Any]:
            return _update(await compactor.acompact(state, **given, door=_fitting(door, config)), output_messages_key)

        super().__init__(compact_round, afunc=acompact_round, name="round_compact")

    def __repr__(self) -> str:
        return f"RoundCompactNode({self.name!r})"


def _fitting(door: Door, config: RunnableConfig) -> Door:
    """The door for the channel that the update will meet: the wrong kind would leave `RemoveMessage` objects in the state."""
    kind = _kind(_live_channel(config, door.messages_key)) if door.writes_state else None
    return door if kind is None else dataclasses.replace(door, channel=kind)


def _live_channel(config: RunnableConfig, key: str) -> Any:
    """The running graph's channel of a key, if it can be seen.

    LangGraph gives tasks a partial that reads state, with the channels as its second argument. That is no public interface: anything
    unexpected means that the channel is not known.
    """
    read = (config.get("configurable") or {}).get("__pregel_read")
    channels = read.args[1] if isinstance(read, functools.partial) and len(read.args) > 1 else None
    return channels.get(key) if isinstance(channels, Mapping) else None


def _update(result: CompactionResult, output_messages_key: str | None) -> dict[str, Any]:
    return result.update if output_messages_key is None else {output_messages_key: result.messages}


def add_round_compaction(
    builder: StateGraph[Any, Any, Any, Any],
    compactor: RoundCompactor,
    *,
    before: str = "agent",
    messages_key: str = "messages",
    system_message: BaseMessage | str | None = None,
    tools: Sequence[Any] | None = None,
    agent_model: Any = None,
) -> None:
    """Wrap a model node in place, so that `goto`, `Send` and edges without a map cannot pass compaction by.

    The node sees the compacted messages; its own update and the compaction's go to the state as one.

    Args:
        builder: A graph that is not compiled yet; the node must have been added.
        compactor: What compacts.
        before: Name of the model node.
        messages_key: The state's key for messages. The kind of its channel is read from the builder.
        system_message: The agent's system prompt, when it is not in the state.
        tools: The agent's tools.
        agent_model: Tells the capacity when the agent's model is not the summariser.

    Raises:
        ConfigurationError: no such node or key, the builder is compiled already, or the channel works in a way that is not known.
    """
    spec = builder.nodes.get(before)
    if spec is None:
        msg = f"before={before!r} is not a node of this graph (it has: {', '.join(builder.nodes) or 'none'}): add the node first"
        raise ConfigurationError(msg)
    door = Door(messages_key=messages_key, channel=channel_kind(builder, messages_key))
    given = {"system_message": system_message, "tools": tools, "agent_model": agent_model, "door": door}
    wrapped = _compacting(cast("Runnable[Any, Any]", spec.runnable), compactor, before, given)
    builder.nodes[before] = dataclasses.replace(spec, runnable=wrapped)


def channel_kind(builder: StateGraph[Any, Any, Any, Any], messages_key: str) -> Channel:
    """How the builder's channel takes an update.

    Raises:
        ConfigurationError: there is no such key, or its channel or reducer is not known.
    """
    channel = builder.channels.get(messages_key)
    if channel is None:
        msg = f"messages_key={messages_key!r} is not a key of the graph's state (it has: {', '.join(builder.channels) or 'none'})"
        raise ConfigurationError(msg)
    kind = _kind(channel)
    if kind is not None:
        return kind
    msg = (
        f"the reducer {_name(_reducer(channel))!r} of {messages_key!r} is not known, so the right kind of update is not either: use add_messages or "
        "round_compact_messages, or add a RoundCompactNode(channel=...) of your own"
    )
    raise ConfigurationError(msg)


def _kind(channel: Any) -> Channel | None:
    """How a channel takes an update; None when it, or its reducer, is not known."""
    if isinstance(channel, LastValue):
        return "replace"
    reducer = _reducer(channel)
    name = _name(reducer).removesuffix("_with_round_compaction")  # of `compacting_reducer`: it takes what its base takes
    if name in _BY_ID or getattr(reducer, "works_by_id", False):
        return "add_messages"
    return "append" if name in ("add", "concat", "iadd", "iconcat") else None


def _reducer(channel: Any) -> Any:
    return channel.operator if isinstance(channel, BinaryOperatorAggregate) else getattr(channel, "reducer", None)


def _name(reducer: Any) -> str:
    return str(getattr(reducer, "__name__", type(reducer).__name__))


_BY_ID = frozenset({"add_messages", "_add_messages", "_messages_delta_reducer", "round_compact_messages", "round_compact_messages_delta"})


def _compacting(inner: Runnable[Any, Any], compactor: RoundCompactor, name: str, given: Mapping[str, Any]) -> Runnable[Any, Any]:
    door: Door = given["door"]

    def call_compacted(state: Any, config: RunnableConfig) -> Any:
        result = compactor.compact(state, **given)
        return _combined(result, inner.invoke(_seen(state, result, door), config), door)

    async def acall_compacted(state: Any, config: RunnableConfig) -> Any:
        result = await compactor.acompact(state, **given)
        return _combined(result, await inner.ainvoke(_seen(state, result, door), config), door)

    return RunnableLambda(call_compacted, afunc=acall_compacted, name=name)


def _seen(state: Any, result: CompactionResult, door: Door) -> Any:
    return with_messages(state, door.messages_key, result.messages) if result.changed else state


def _combined(result: CompactionResult, output: Any, door: Door) -> Any:
    """The compaction's update and the node's as one: first ours, then what the node wrote on top of it."""
    if not result.changed:
        return output
    key, ours = door.messages_key, result.update[door.messages_key]
    if output is None:
        return {key: ours}
    if isinstance(output, Command):
        if output.graph is not None:  # its update is another graph's
            return [{key: ours}, output]
        return dataclasses.replace(output, update=_merged(ours, output.update, door))
    if isinstance(output, list | tuple) and any(isinstance(item, Command | Mapping) for item in output):
        return [{key: ours}, *output] if not isinstance(ours, Overwrite) else _into_first(ours, output, door)
    return _merged(ours, output, door)


def _into_first(ours: Any, outputs: Sequence[Any], door: Door) -> list[Any]:
    """Only one overwrite may be written in a step, so all messages of the node go into it."""
    key, total, rest = door.messages_key, ours, []
    for item in outputs:
        update = item.update if isinstance(item, Command) else item
        if isinstance(update, Mapping) and key in update:
            total = _joined(total, update[key], door)
            update = {name: value for name, value in update.items() if name != key}
            item = dataclasses.replace(item, update=update) if isinstance(item, Command) else update  # noqa: PLW2901
        rest.append(item)
    return [{key: total}, *rest]


def _merged(ours: Any, update: Any, door: Door) -> Any:
    key = door.messages_key
    if update is None:
        return {key: ours}
    if isinstance(update, Mapping):
        return {**update, key: _joined(ours, update[key], door) if key in update else ours}
    if isinstance(update, BaseModel):
        return _merged(ours, {name: getattr(update, name) for name in update.model_fields_set}, door)
    if dataclasses.is_dataclass(update) and not isinstance(update, type):
        return _merged(ours, {field.name: getattr(update, field.name) for field in dataclasses.fields(update)}, door)
    if isinstance(update, list | tuple):  # pairs of key and value
        return list(_merged(ours, dict(update), door).items())
    return update


def _joined(ours: Any, theirs: Any, door: Door) -> Any:
    """What the node wrote, on top of the compaction. A last-value channel takes the node's list: it was made from the compacted one."""
    if isinstance(theirs, Overwrite) or door.channel == "replace":
        return theirs
    more = list(theirs) if isinstance(theirs, list | tuple) else [theirs]
    return Overwrite([*ours.value, *more]) if isinstance(ours, Overwrite) else [*ours, *more]
