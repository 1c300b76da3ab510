"""Reading any state shape: mappings, dataclasses, pydantic objects, plain objects. Never raises, never writes."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from pydantic import BaseModel

from langgraph_roundcompact.errors import ConfigurationError

_MISSING = object()


def read_key(state: object, key: str, default: Any = None) -> Any:
    """The value under `key`, whatever the state's shape; `default` where there is none or reading it fails."""
    try:
        if isinstance(state, Mapping):
            return state.get(key, default)
        return getattr(state, key, default)
    except Exception:  # noqa: BLE001 - a property of the user's state may raise anything
        return default


def read_messages(state: object, key: str) -> Sequence[Any]:
    """The message list of a state, or the list itself.

    Raises:
        ConfigurationError: the state has no such key; the message names it and what there is.
    """
    if isinstance(state, Sequence) and not isinstance(state, str | bytes):
        return state
    found = read_key(state, key, _MISSING)
    if isinstance(state, BaseMessage):
        msg = f"one {type(state).__name__} is no list of messages: give [message]"
        raise ConfigurationError(msg)
    if found is _MISSING:
        held = ", ".join(_keys(state))
        remedy = "set messages_key" if held else f"set messages_key, or give a list of messages instead of a {type(state).__name__}"
        msg = f"the state has no key {key!r} to read messages from (it has: {held or 'none'}): {remedy}"
        raise ConfigurationError(msg)
    if found is None:
        return ()
    if isinstance(found, Sequence) and not isinstance(found, str | bytes):
        return found
    if isinstance(found, BaseMessage):
        return (found,)
    msg = f"the state's {key!r} holds a {type(found).__name__}, not a list of messages: set messages_key"
    raise ConfigurationError(msg)


def with_messages(state: Any, key: str, messages: list[BaseMessage]) -> Any:
    """A copy of the state whose `key` is `messages`; nothing else differs. A mapping becomes a dict, a bare list the list."""
    if isinstance(state, Mapping):
        return {**state, key: messages}
    if isinstance(state, BaseModel):
        return state.model_copy(update={key: messages})
    if isinstance(state, Sequence):
        return messages
    # Not `dataclasses.replace`: it runs `__post_init__` again and refuses fields that are no arguments.
    twin = copy.copy(state)
    object.__setattr__(twin, key, messages)
    return twin


def _keys(state: object) -> list[str]:
    if isinstance(state, Mapping):
        return [str(name) for name in state]
    if isinstance(state, BaseModel):
        return list(type(state).model_fields)
    if dataclasses.is_dataclass(state):
        return [field.name for field in dataclasses.fields(state)]
    return []
