"""The protocol of a builder, the context it is given, and what all builders read from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from langchain_core.messages import BaseMessage

from langgraph_roundcompact._content import text_of
from langgraph_roundcompact._escape import neutralise, storable
from langgraph_roundcompact._state import read_key

MISSING = object()
"""Stands for "no such key", which is not the same as a key that holds None."""


@dataclass(frozen=True, kw_only=True)
class ReinjectContext:
    """What a builder may look at. It reads; it never writes."""

    state: object = None
    """The graph's state at this moment: a mapping, dataclass, pydantic object, any object, or None."""
    target: tuple[BaseMessage, ...] = ()
    """Messages about to be replaced, in order."""
    kept: tuple[BaseMessage, ...] = ()
    """Messages that stay visible after the request, in order. What they say need not be said again."""
    store_items: Mapping[str, Any] = field(default_factory=dict)
    """Values the caller read from the store; asked for a key that the state does not have."""
    budget_tokens: int
    """The most this builder's section may take, in tokens. A longer text is cut."""
    estimate: Callable[[str], int]
    """Tokens of a text."""
    redact: Callable[[str], str]
    """Takes secrets out of a text. Applied to every section; builders that fit text to the budget apply it first."""
    passes: tuple[type[BaseException], ...] = ()
    """Exceptions that are the host's control flow and pass through a builder untouched."""


class ReinjectBuilder(Protocol):
    """Builds one section of the recovered context."""

    def __call__(self, ctx: ReinjectContext, /) -> str | None:
        """The section's text; None or blank for nothing to say. An exception is logged and the section left out."""


def lookup(ctx: ReinjectContext, keys: Iterable[str]) -> Any:
    """The value of the first of `keys` that state, or else the store items, have; `MISSING` where none has."""
    names = tuple(keys)
    for source in (ctx.state, ctx.store_items):
        for key in names:
            found = read_key(source, key, MISSING)
            # A method of that name belongs to the state's class and is no value.
            if found is not MISSING and not callable(found):
                return found
    return MISSING


def visible(ctx: ReinjectContext, text: str) -> bool:
    """Whether a kept message still shows this very text."""
    wanted = text.strip()
    return bool(wanted) and any(wanted in text_of(message) for message in ctx.kept)


def clean(ctx: ReinjectContext, text: str) -> str:
    """Text from outside as it may be stored in a section: secrets out, our own tags broken."""
    return neutralise(ctx.redact(storable(text)))


def one_line(value: object, limit: int = 400) -> str:
    """A string or number as one line of at most `limit` characters; `""` for everything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    # Only the head is looked at: megabytes in one field must not cost anything.
    # A slice of a string enumeration is its value, where str() would be its Python name.
    head = value[: limit * 4] if isinstance(value, str) else _number(value)
    line = " ".join(head.split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def _number(value: float) -> str:
    try:
        return str(value)
    except ValueError:
        # Python refuses to print integers of thousands of digits.
        return ""
