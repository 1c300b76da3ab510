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

_TEXT_KEYS = ("text", "content", "output_text", "refusal")


def blocks_of(message: BaseMessage) -> Iterator[Mapping[str, Any]]:
    """Each content block as a mapping; a plain string is one text block, anything that is neither string nor mapping is skipped."""
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
            yield block


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


def as_messages(items: Sequence[Any]) -> list[BaseMessage]:
    """A new list of messages; dicts, tuples and strings are converted, message objects stay the same objects.

    Raises:
        ValueError, NotImplementedError, TypeError: something in it is not a message in any known form.
    """
    if all(issubclass(kind, BaseMessage) for kind in set(map(type, items))):
        return list(items)
    return convert_to_messages(list(items))
