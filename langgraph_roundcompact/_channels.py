"""How a graph's channel takes an update: by id, by appending, or whole. Knows LangGraph's channels and reaches nothing else."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.channels import BinaryOperatorAggregate, LastValue, UntrackedValue
from langgraph.graph import StateGraph

from langgraph_roundcompact._splice import Channel
from langgraph_roundcompact.errors import ConfigurationError

_WHOLE = (LastValue, UntrackedValue)
_APPENDING = (operator.add, operator.concat, operator.iadd, operator.iconcat)
_BY_ID = frozenset({"add_messages", "_add_messages", "_messages_delta_reducer", "round_compact_messages", "round_compact_messages_delta"})


def channel_kind(builder: StateGraph[Any, Any, Any, Any], messages_key: str) -> Channel:
    """How the builder's channel takes an update.

    Raises:
        ConfigurationError: there is no such key, or its channel or reducer is not known.
    """
    channel = builder.channels.get(messages_key)
    if channel is None:
        msg = f"messages_key={messages_key!r} is not a key of the graph's state (it has: {', '.join(builder.channels) or 'none'})"
        raise ConfigurationError(msg)
    kind = kind_of(channel, messages_key)
    if kind is None:
        raise ConfigurationError(_unknown(channel, messages_key))
    return kind


def kind_of(channel: Any, key: str) -> Channel | None:
    """How a channel takes an update; None when its reducer is not known, or there is no channel.

    Raises:
        ConfigurationError: the channel has no reducer and does not keep what was last written: whatever we write, the list would not hold.
    """
    if channel is None:
        return None
    if isinstance(channel, _WHOLE):
        return "replace"
    reducer = _reducer(channel)
    if reducer is None:
        raise ConfigurationError(_unknown(channel, key))
    if reducer in _APPENDING:
        return "append"
    if getattr(reducer, "works_by_id", False):
        return "add_messages"
    if str(getattr(reducer, "__module__", "")).partition(".")[0] not in ("langgraph", "langgraph_roundcompact"):
        return None  # somebody else's function, whatever its name
    return "add_messages" if _name(reducer) in _BY_ID else None


def live_channel(config: RunnableConfig, key: str) -> Any:
    """The running graph's channel of a key, if it can be seen.

    LangGraph gives tasks a partial that reads state, with the channels as its second argument. That is no public interface: anything
    unexpected means that the channel is not known.
    """
    read = (config.get("configurable") or {}).get("__pregel_read")
    channels = read.args[1] if isinstance(read, functools.partial) and len(read.args) > 1 else None
    return channels.get(key) if isinstance(channels, Mapping) else None


def _unknown(channel: Any, key: str) -> str:
    reducer = _reducer(channel)
    if reducer is None:
        return f"a {type(channel).__name__} under {key!r} cannot take a compaction: give the key add_messages or round_compact_messages"
    return (
        f"how the reducer {_name(reducer)!r} of {key!r} takes a compaction is not known: use add_messages or round_compact_messages; or, if it "
        "replaces and removes by id like these, set its attribute works_by_id = True; or add a RoundCompactNode(channel=...) of your own"
    )


def _reducer(channel: Any) -> Any:
    reducer: Any = channel.operator if isinstance(channel, BinaryOperatorAggregate) else getattr(channel, "reducer", None)
    while True:
        if isinstance(reducer, functools.partial):  # `add_messages(format=...)`
            reducer = reducer.func
        elif getattr(reducer, "__module__", None) == "langgraph_roundcompact.reducer" and hasattr(reducer, "base"):
            reducer = reducer.base  # of `compacting_reducer`: it takes what its base takes
        else:
            return reducer


def _name(reducer: Any) -> str:
    return str(getattr(reducer, "__name__", type(reducer).__name__))
