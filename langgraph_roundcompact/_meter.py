"""The meter: how full the window is, at the price of what is new.

What the provider reported last is the anchor; only what came after it is counted. Where nothing was reported, every message is counted, but each
only once: counts are kept in a bounded table under a fingerprint of everything the count depends on. A fingerprint, not an identity: a message that
was changed in place, or whose address was reused, has another one, and a history that was reloaded from a checkpointer has the same. The table holds
numbers only, so it keeps nothing alive; reads and writes are single dictionary operations, so threads share it without a lock.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.utils.function_calling import convert_to_openai_tool

from langgraph_roundcompact._effects import Count, MeasureWindow
from langgraph_roundcompact._encoding import TextCounter
from langgraph_roundcompact._message_tokens import FRAME_TOKENS, json_text, message_tokens
from langgraph_roundcompact._usage import reported_tokens

log = logging.getLogger("langgraph_roundcompact")

TokenCounter = Callable[[Sequence[BaseMessage]], int]
"""A user's counter: tokens of a list of messages. It may be slow, or block."""

_TABLE_LIMIT = 65_536
_TEXT_KEPT_FROM = 256
_DEPTH = 32

# One encoding a process: it takes some 50 MB, and what it counts does not depend on who asks.
_TEXT_COUNTER = TextCounter()


@dataclass(frozen=True, slots=True)
class WindowCount:
    """How full the window is, in tokens."""

    total: int
    """Messages, system prompt and tools."""
    anchored: bool
    """Whether a reported usage is part of the total."""
    overhead: int
    """System prompt and tools alone, always by the package's own count; 0 when they are not visible."""


class Meter:
    """Counts messages, texts and windows. One object serves any number of threads.

    Args:
        counter: Replaces the package's count of messages; never the reported usage, and not the count of system prompt and tools, which are no
            messages. It is called once at most for each window, only with what is new where that can be told.
        texts: How texts are counted; for tests.
    """

    def __init__(self, counter: TokenCounter | None = None, *, texts: TextCounter = _TEXT_COUNTER) -> None:
        self.custom = counter is not None
        """Whether a user's counter is in force: an event loop should call the meter in a thread then."""
        self._counter = counter
        self._failure_logged = False
        self._texts = texts
        self._counts: dict[int, int] = {}
        self._sums: dict[int, int] = {}
        self._exact_sums: dict[int, int] = {}

    @property
    def cold(self) -> bool:
        """Whether the first count will load an encoding (some tenths of a second): an event loop should call `prepare` in a thread then."""
        return self._texts.cold

    def prepare(self) -> None:
        """Load the encoding now, if there is one; cheap when it is loaded."""
        self._texts.prepare()

    def count(self, messages: Sequence[BaseMessage]) -> int:
        """Tokens of these messages, with the counter in force; the answer does not depend on what was counted before."""
        return self._sum(messages, exact=True)

    def count_text(self, text: str) -> int:
        """Tokens of a text, by the package's own count."""
        if len(text) < _TEXT_KEPT_FROM:
            return self._texts.count(text)
        return self._kept(hash(("text", text)), lambda: self._texts.count(text))

    def count_message(self, message: BaseMessage) -> int:
        """Tokens of one message, by the package's own count."""
        key = _fingerprint(message)
        known = self._counts.get(key)
        if known is None:
            known = message_tokens(message, self._texts.count)
            _keep(self._counts, key, known)
        return known

    def overhead(self, system_message: BaseMessage | str | None, tools: Sequence[Any] | None) -> int:
        """Tokens of system prompt and tools, the tools in the shape sent to the provider; each tool is serialised once."""
        total = 0
        if isinstance(system_message, BaseMessage):
            total = self.count_message(system_message)
        elif isinstance(system_message, str) and system_message:
            total = FRAME_TOKENS + self.count_text(system_message)
        return total + sum(map(self._count_tool, tools if isinstance(tools, Iterable) else ()))

    def window(
        self,
        messages: Sequence[BaseMessage],
        *,
        round_start: int,
        stale_before: int,
        system_message: BaseMessage | str | None = None,
        tools: Sequence[Any] | None = None,
        exact: bool = False,
    ) -> WindowCount:
        """How full the window is.

        Args:
            messages: The whole list.
            round_start: Index after the last real user message. Usage from an earlier round is taken only while this round has no answer of its own:
                a round whose answers carry no usage runs on a provider that reports none, and the older figure may describe another history.
            stale_before: Usage on messages before this index describes a history that no longer exists.
            system_message: Sent beside the messages, if so.
            tools: Sent beside the messages, if any.
            exact: Matters with a user's counter only. `False`: earlier sums are extended by what is new, which is exact for counters that add up.
                `True`: the counter sees everything at once, so that the answer does not depend on earlier calls. Decide on the exact figure.
        """
        overhead = self.overhead(system_message, tools)
        anchor = _anchor(messages, round_start, stale_before)
        if anchor is None:
            return WindowCount(self._sum(messages, exact=exact) + overhead, anchored=False, overhead=overhead)
        index, reported = anchor
        return WindowCount(reported + self._sum(messages[index + 1 :], exact=exact), anchored=True, overhead=overhead)

    def answer(self, effect: Count | MeasureWindow) -> int | WindowCount:
        """What the engine asks of a counter: tokens of some messages, or how full a window is."""
        if isinstance(effect, Count):
            return self.count(effect.messages)
        return self.window(
            effect.messages,
            round_start=effect.round_start,
            stale_before=effect.stale_before,
            system_message=effect.system_message,
            tools=effect.tools,
            exact=effect.exact,
        )

    def _count_tool(self, tool: Any) -> int:
        return self._kept(_tool_fingerprint(tool), lambda: self._texts.count(_tool_text(tool)))

    def _sum(self, messages: Sequence[BaseMessage], *, exact: bool) -> int:
        if not messages:
            return 0
        if self._counter is not None:
            total = self._custom_exact(messages) if exact else self._custom_extended(messages)
            if total is not None:
                return total
        return sum(map(self.count_message, messages))

    def _custom_exact(self, messages: Sequence[BaseMessage]) -> int | None:
        key = _chain(messages)[-1]
        known = self._exact_sums.get(key)
        if known is None:
            known = self._ask_counter(messages)
            if known is not None:
                _keep(self._exact_sums, key, known)
                _keep(self._sums, key, known)
        return known

    def _custom_extended(self, messages: Sequence[BaseMessage]) -> int | None:
        chain = _chain(messages)
        covered = next((stop for stop in range(len(chain), 0, -1) if chain[stop - 1] in self._sums), 0)
        base = self._sums.get(chain[covered - 1]) if covered else 0
        if base is None:  # another thread emptied the table in between
            covered, base = 0, 0
        if covered == len(chain):
            return base
        new = self._ask_counter(messages[covered:])
        if new is None:
            return None
        _keep(self._sums, chain[-1], base + new)
        if not covered:
            _keep(self._exact_sums, chain[-1], new)
        return base + new

    def _ask_counter(self, messages: Sequence[BaseMessage]) -> int | None:
        """The user's counter; `None` when it fails, with a warning the first time. The package's own count stands in then, for this list alone."""
        assert self._counter is not None
        try:
            value: Any = self._counter(list(messages))
            if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0:
                return int(value)
            problem = f"returned {value!r:.80}"
        except Exception as exc:  # noqa: BLE001 - a user's counter may raise anything; the agent goes on
            problem = f"raised {type(exc).__name__}"
        if not self._failure_logged:
            self._failure_logged = True
            log.warning(
                "token_counter %s; the package's own count stands in where it fails. It takes a list of messages and returns a number >= 0.", problem
            )
        return None

    def _kept(self, key: int, count: Callable[[], int]) -> int:
        known = self._counts.get(key)
        if known is None:
            known = count()
            _keep(self._counts, key, known)
        return known


def _keep(table: dict[int, int], key: int, value: int) -> None:
    if len(table) >= _TABLE_LIMIT:
        table.clear()
    table[key] = value


def _anchor(messages: Sequence[BaseMessage], round_start: int, stale_before: int) -> tuple[int, int] | None:
    """The newest usable usage: index and tokens. Looks from the end, and no further than it must."""
    answered = False
    for index in range(len(messages) - 1, max(stale_before, 0) - 1, -1):
        message = messages[index]
        if not isinstance(message, AIMessage):
            continue
        if index < round_start and answered:
            return None
        reported = reported_tokens(message)
        if reported:
            return index, reported
        answered = answered or index >= round_start
    return None


def _chain(messages: Sequence[BaseMessage]) -> list[int]:
    """Running fingerprints: entry i stands for the first i+1 messages. With identities, since a user's counter may look at anything."""
    chain, running = [], 0
    for message in messages:
        running = hash((running, id(message), _fingerprint(message)))
        chain.append(running)
    return chain


_COUNTED_EXTRAS = ("tool_calls", "function_call", "reasoning_content", "reasoning")
"""The extra fields that a count reads; others, such as a checkpoint's data, may be large and change nothing."""


def _fingerprint(message: BaseMessage) -> int:
    """A number that differs when anything differs that a count depends on. Strings keep their hash, so this costs no pass over the text."""
    # The fields themselves: this runs for every message of a history without usage, and instance checks of models are slow.
    fields = vars(message)
    content, name, calls, invalid, more = map(fields.get, ("content", "name", "tool_calls", "invalid_tool_calls", "additional_kwargs"))
    return hash(
        (
            type(message),
            name if name is None else _print(name),
            hash(content) if type(content) is str else _print(content),
            _print(calls) if calls else 0,
            _print(invalid) if invalid else 0,
            tuple(_print(more[key]) for key in _COUNTED_EXTRAS if key in more) if more else (),
        )
    )


def _print(value: Any, depth: int = 0) -> int:
    kind = type(value)
    if kind is str:
        return hash(value)
    if depth > _DEPTH:
        return id(value)
    if kind is dict:
        return hash((kind, *value, *[hash(item) if type(item) is str else _print(item, depth + 1) for item in value.values()]))
    if kind is list or kind is tuple:
        return hash((kind, *[_print(item, depth + 1) for item in value]))
    if value is None or kind is int or kind is float or kind is bool or kind is bytes:
        return hash((kind, value))
    return id(value)


def _tool_fingerprint(tool: Any) -> int:
    if isinstance(tool, dict | str):
        return hash(("tool", _print(tool)))
    parts: list[Any] = ["tool", id(tool)]
    with contextlib.suppress(Exception):
        parts += [_print(getattr(tool, name, None)) for name in ("name", "__name__", "description", "__doc__", "args_schema")]
    return hash(tuple(parts))


def _tool_text(tool: Any) -> str:
    """A tool as the provider is sent it; a description of it where that cannot be had."""
    if isinstance(tool, Mapping) and tool.get("type") == "function":
        return json_text(dict(tool)) or ""  # in that shape already
    with contextlib.suppress(Exception):
        text = json_text(convert_to_openai_tool(tool))
        if text is not None:
            return text
    if isinstance(tool, Mapping):
        return json_text(dict(tool)) or ""
    with contextlib.suppress(Exception):
        name, description = getattr(tool, "name", ""), getattr(tool, "description", "")
        return f"{name} {description}".strip() or repr(tool)
    return type(tool).__name__
