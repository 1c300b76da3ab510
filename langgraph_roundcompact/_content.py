"""Reading message content: any shape in, plain text and block records out. Never raises, never copies payloads.

Content is a string, or a list of strings and dicts; dicts come in a dozen provider dialects, and some lists hold junk. Reasoning, signatures,
encrypted data and base64 are not text: what must not reach a prompt, a ledger or a count of prose is left out here, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, convert_to_messages

REASONING_TYPES = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content"})
"""Blocks that hold a model's private reasoning or its signature."""

CALL_TYPES = frozenset({"tool_use", "function_call", "tool_call", "tool_call_chunk", "invalid_tool_call", "input_json_delta", "custom_tool_call"})
"""Blocks that declare a call which `tool_calls` usually declares too."""

_ENDS = 64
_TEXT_KEYS = ("text", "content", "output_text", "refusal")


def blocks_of(message: BaseMessage) -> Iterator[Mapping[str, Any]]:
    """Each content block as a mapping; a plain string is one text block, anything that is neither string nor mapping is skipped.

    LangChain wraps blocks that its standard form has no name for (a provider's compaction item, redacted reasoning): the inner block is given.
    """
    content: Any = message.content
    if isinstance(content, str):
        if content:
            yield {"type": "text", "text": content}
        return
    if not isinstance(content, list | tuple):
        return
    for block in content:
        if isinstance(block, str):
            yield {"type": "text", "text": block}
        elif isinstance(block, Mapping):
            inner = block.get("value") if block_type(block) == "non_standard" else None
            yield inner if isinstance(inner, Mapping) else block


def block_type(block: Mapping[str, Any]) -> str:
    """The block's type as a string, `""` where it has none."""
    kind = block.get("type")
    return kind if isinstance(kind, str) else ""


def block_text(block: Mapping[str, Any]) -> str:
    """The prose of a text block; `""` for every other kind."""
    if block_type(block) not in ("text", "input_text", "output_text", ""):
        return ""
    for key in _TEXT_KEYS:
        value = block.get(key)
        if isinstance(value, str):
            return value
    return ""


def text_of(message: BaseMessage) -> str:
    """Visible text of a message: its string, or its text blocks joined with newlines."""
    content: Any = message.content
    if isinstance(content, str):
        return content
    return "\n".join(part for part in map(block_text, blocks_of(message)) if part)


def as_messages(items: Sequence[Any], *, thorough: bool = True) -> list[BaseMessage]:
    """The items as a list of messages: the list itself where it is one, else a new list with dicts, tuples and strings converted.

    Args:
        items: What a state holds under its messages key.
        thorough: Look at every item. `False`: of a long list only at both ends, which is where a caller adds; for the check at every step.

    Raises:
        ValueError, NotImplementedError, TypeError: something in it is not a message in any known form.
    """
    looked_at = items if thorough or len(items) <= _ENDS * 2 else [*items[:_ENDS], *items[-_ENDS:]]
    if all(issubclass(kind, BaseMessage) for kind in set(map(type, looked_at))):
        return items if isinstance(items, list) else list(items)
    return convert_to_messages(list(items))
