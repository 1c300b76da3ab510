"""Messages of a record as rows of the page. Long texts go into a pool, each once: neighbouring compactions show mostly the same messages."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from langgraph_roundcompact.report._text import as_json, content_text, items_at, number_at, one_line, text_at

REASONING = ("thinking", "reasoning", "redacted_thinking")
CALLS = ("tool_use", "tool_call", "function_call")

State = Literal["stayed", "folded", "replaced", "checkpoint", "recovered"]

PREVIEW_CHARACTERS = 150
INLINE_CHARACTERS = 600
"""Texts up to this length stand in the page itself."""

MOST_ROWS = 240
"""Messages of one span that are shown; in the middle of longer ones a line says how many there are."""

_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "HumanMessageChunk": "user", "ToolMessageChunk": "tool"}


@dataclass(slots=True)
class Row:
    """One message, or a line that stands for several."""

    state: State
    role: str
    name: str
    preview: str
    tokens: int
    text: str = ""
    """The whole text where it is short and more than the preview."""
    ref: int | None = None
    """Place of a long text in the pool."""
    characters: int = 0
    gap: int = 0
    """Messages left out here; the row has nothing else then."""


class Pool:
    """Long texts, each once."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._places: dict[bytes, int] = {}

    def add(self, text: str) -> int:
        """Place of a text."""
        key = hashlib.sha256(text.encode("utf-8", "replace")).digest()
        if key not in self._places:
            self._places[key] = len(self.texts)
            self.texts.append(text)
        return self._places[key]


def tools_of(messages: Iterable[Any]) -> dict[str, str]:
    """Which tool each call was of, by the call's id: results often do not say."""
    calls = (call for message in messages for call in items_at(message, "tool_calls"))
    return {text_at(call, "id"): text_at(call, "name") for call in calls if text_at(call, "id")}


def rows_of(messages: Sequence[Any], state: State, pool: Pool, tools: Mapping[str, str]) -> list[Row]:
    """The rows of one span."""
    if len(messages) <= MOST_ROWS:
        return [row_of(message, state, pool, tools) for message in messages]
    half = MOST_ROWS // 2
    gap = Row(state, "", "", "", sum(number_at(message, "tokens") for message in messages[half:-half]), gap=len(messages) - 2 * half)
    return [*rows_of(messages[:half], state, pool, tools), gap, *rows_of(messages[-half:], state, pool, tools)]


def row_of(message: Any, state: State, pool: Pool, tools: Mapping[str, str] = MappingProxyType({})) -> Row:
    """One message. What is marked as folded says so, wherever it stands."""
    text = full_text(message)
    said = full_text(message, reasoning=False)
    kind = text_at(message, "type")
    mark = text_at(message, "additional_kwargs", "lc_data", "kind")
    if state == "stayed" and mark == "folded":
        state = "folded"
    if state == "checkpoint" and mark == "recovered_context":
        state = "recovered"
    name = text_at(message, "name") or tools.get(text_at(message, "tool_call_id"), "")
    row = Row(state, _ROLES.get(kind, kind) or "message", one_line(name, 60), one_line(said, PREVIEW_CHARACTERS), 0)
    row.tokens, row.characters = number_at(message, "tokens"), len(text)
    if isinstance(message, Mapping) and "left_out" in message and not kind:
        row.role, row.preview = "…", text_at(message, "left_out") + " left out of the dump"
    elif len(text) > INLINE_CHARACTERS:
        row.ref = pool.add(text)
    elif text.strip() != row.preview:
        row.text = text
    return row


def full_text(message: Any, *, reasoning: bool = True) -> str:
    """What a message says, and what it calls."""
    content = message.get("content") if isinstance(message, Mapping) else message
    if isinstance(content, list):
        # Calls in content blocks stand in the message's list of calls too.
        hidden = () if reasoning else REASONING
        hidden = (*hidden, *CALLS) if items_at(message, "tool_calls") else hidden
        content = [block for block in content if not (isinstance(block, Mapping) and text_at(block, "type") in hidden)]
    said = content_text(content)
    calls = [f"→ {text_at(call, 'name')}({_arguments(call)})" for call in items_at(message, "tool_calls")]
    calls += [f"→ {text_at(call, 'name')}, not readable: {_arguments(call)}" for call in items_at(message, "invalid_tool_calls")]
    return "\n".join(filter(None, (said, *calls)))


def _arguments(call: Any) -> str:
    args = call.get("args") if isinstance(call, Mapping) else None
    if isinstance(args, Mapping):
        return ", ".join(f"{name}={as_json(value)}" for name, value in args.items())
    return "" if args is None else as_json(args)
