"""Refusing what cannot work, at construction, before any run depends on it. Each message says what to give instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from langgraph_roundcompact.config import RoundCompactConfig
from langgraph_roundcompact.errors import ConfigurationError
from langgraph_roundcompact.reinject import check_builders


def check_arguments(config: object, counter: object, tiers: object, reinjectors: object, archive: object, *callables: object) -> None:
    """Refuse arguments of `RoundCompactor` that cannot work."""
    if not isinstance(config, RoundCompactConfig):
        refuse("config", config, "a RoundCompactConfig")
    if isinstance(tiers, str | Mapping) or not isinstance(tiers, Sequence) or not all(callable(tier) for tier in tiers):
        refuse("tiers", tiers, "a sequence of callables (target, context) -> messages")
    if not isinstance(reinjectors, Mapping) or not all(callable(builder) for builder in reinjectors.values()):
        refuse("reinjectors", reinjectors, "a mapping of section names to callables (ReinjectContext) -> str | None")
    check_builders(config.reinject, reinjectors)
    writes = all(callable(getattr(archive, name, None)) for name in ("put", "aput", "get", "aget"))
    if archive is not None and (hasattr(archive, "list_namespaces") or not writes):
        refuse("archive", archive, "an Archive; a langgraph store is wrapped: StoreArchive(store)")
    if archive is None and (config.compression_recall.enabled or config.archive_required):
        msg = "compression_recall and archive_required need an archive: pass archive=StoreArchive(store), or switch them off"
        raise ConfigurationError(msg)
    for name, value in zip(("is_real_user", "is_pending", "redact", "on_event"), callables, strict=True):
        if (value is not None or name == "redact") and not callable(value):
            refuse(name, value, "a callable")
    if counter is not None and not callable(counter):
        refuse("token_counter", counter, "a callable from a list of messages to tokens")


def check_approve(approve: object) -> None:
    """Refuse what is neither yes, no nor somebody to ask."""
    if not isinstance(approve, bool) and not callable(approve):
        refuse("approve", approve, "True, or a callable from a CompactionReview to the decision")


def check_channel(channel: object) -> None:
    """Refuse a kind of channel for which no update can be made."""
    if channel not in ("add_messages", "append", "replace"):
        msg = f"channel={channel!r:.80} is unknown: use 'add_messages', 'append' or 'replace'"
        raise ConfigurationError(msg)


def refuse(name: str, value: object, wanted: str) -> NoReturn:
    """Say that an argument cannot be used, and what can."""
    msg = f"{name}={value!r:.80} cannot be used: give {wanted}"
    raise ConfigurationError(msg)
