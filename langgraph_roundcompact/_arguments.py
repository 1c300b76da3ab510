"""Refusing what cannot work, at construction, before any run depends on it. Each message says what to give instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from inspect import iscoroutinefunction
from typing import NoReturn

from langchain_core.messages import BaseMessage

from langgraph_roundcompact.config import RoundCompactConfig
from langgraph_roundcompact.errors import ConfigurationError
from langgraph_roundcompact.reinject import check_builders


def check_arguments(
    config: object, counter: object, tiers: object, reinjectors: object, archive: object, session_memory: object, *callables: object
) -> None:
    """Refuse arguments of `RoundCompactor` that cannot work."""
    if not isinstance(config, RoundCompactConfig):
        refuse("config", config, "a RoundCompactConfig")
    if isinstance(tiers, str | Mapping) or not isinstance(tiers, Sequence) or not all(map(_is_plain_callable, tiers)):
        refuse("tiers", tiers, "a sequence of callables (target, context) -> messages")
    if not isinstance(reinjectors, Mapping) or not all(map(_is_plain_callable, reinjectors.values())):
        refuse("reinjectors", reinjectors, "a mapping of section names to callables (ReinjectContext) -> str | None")
    check_builders(config.reinject, reinjectors)
    if archive is not None:
        check_archive(archive, "put", "aput", "get", "aget")
    if archive is None and (config.compression_recall.enabled or config.archive_required):
        msg = "compression_recall and archive_required need an archive: pass archive=StoreArchive(store), or switch them off"
        raise ConfigurationError(msg)
    for name, value in zip(("is_real_user", "is_pending", "redact", "on_event"), callables, strict=True):
        if (value is not None or name == "redact") and not _is_plain_callable(value):
            refuse(name, value, "a callable that is not async")
    if counter is not None and not _is_plain_callable(counter):
        refuse("token_counter", counter, "a callable, not async, from a list of messages to tokens")
    if session_memory is not None and not _is_source(session_memory):
        refuse("session_memory", session_memory, "a state key, a store item (namespace, key), or a callable, not async, from the state")


def check_archive(archive: object, *methods: str) -> None:
    """Refuse what is no archive, or has not these methods."""
    if hasattr(archive, "list_namespaces") or not all(callable(getattr(archive, name, None)) for name in methods):
        refuse("archive", archive, "an Archive; a langgraph store is wrapped: StoreArchive(store)")


def check_around(system_message: object, tools: object) -> None:
    """Refuse what cannot be counted beside the messages, instead of counting it as nothing."""
    if system_message is not None and not isinstance(system_message, str | BaseMessage):
        refuse("system_message", system_message, "a text or a SystemMessage")
    if tools is not None and (isinstance(tools, str | bytes) or not isinstance(tools, Sequence | AbstractSet)):
        refuse("tools", tools, "a list of tools")


def check_names(**names: object) -> None:
    """Refuse what cannot be a key of a state, or a name; None is left to the caller."""
    for name, value in names.items():
        if not isinstance(value, str) or not value:
            refuse(name, value, "a text that is not empty")


def check_yes_or_no(**flags: object) -> None:
    """Refuse what is truthy or falsy but neither True nor False: `"no"` would mean yes."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            refuse(name, value, "True or False")


def check_approve(approve: object) -> None:
    """Refuse what is neither yes, no nor somebody to ask."""
    if not isinstance(approve, bool) and not callable(approve):
        refuse("approve", approve, "True, or a callable from a CompactionReview to the decision")


def check_channel(channel: object) -> None:
    """Refuse a kind of channel for which no update can be made."""
    if channel not in ("add_messages", "append", "replace"):
        msg = f"channel={channel!r:.80} is unknown: use 'add_messages', 'append' or 'replace'"
        raise ConfigurationError(msg)


def _is_plain_callable(value: object) -> bool:
    """Whether calling it gives the answer. What an async function gives is truthy, whatever the answer would be, and is never awaited."""
    return callable(value) and not iscoroutinefunction(value) and not iscoroutinefunction(type(value).__call__)


def _is_source(value: object) -> bool:
    if isinstance(value, str):
        return bool(value)
    if isinstance(value, tuple):
        return len(value) == 2 and isinstance(value[0], tuple | list) and bool(value[0]) and isinstance(value[1], str)
    return _is_plain_callable(value)


def refuse(name: str, value: object, wanted: str) -> NoReturn:
    """Say that an argument cannot be used, and what can."""
    msg = f"{name}={value!r:.80} cannot be used: give {wanted}"
    raise ConfigurationError(msg)
