"""What one message costs, given what a text costs. Reads any shape, copies no payload, never raises.

Counted: a frame of 4 tokens a message; text; name; calls (6 tokens, name and arguments), each once however often the message repeats them in content
blocks and extra fields; reasoning as text. Signatures and encrypted parts: 50 tokens each. Media: `_media`. Unknown blocks: their leaves, at most
`_NODES` of them. Not counted: what no provider is sent (artifacts, response metadata, ids).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from langgraph_roundcompact._content import CALL_TYPES, REASONING_TYPES, block_type
from langgraph_roundcompact._groups import declared_calls
from langgraph_roundcompact._media import ALLOWANCES, is_payload, media_kind, media_tokens

FRAME_TOKENS = 4
"""Role and separators of a message."""
CALL_TOKENS = 6
"""Framing of a tool call."""
OPAQUE_TOKENS = 50
"""A signature or an encrypted part, whatever its length."""

_NODES = 20_000
_OPAQUE_KEYS = frozenset({"signature", "thought_signature", "thoughtSignature", "encrypted_content", "encrypted_index", "encrypted_stdout"})
_LABEL_KEYS = frozenset({"type", "id", "index", "status", "call_id", "tool_use_id", "tool_call_id", "cache_control"})
_BESIDE_MEDIA = ("text", "title", "context", "caption")


@dataclass(slots=True)
class _Parts:
    """What a message is made of: texts to be counted together, and tokens already known."""

    texts: list[str] = field(default_factory=list)
    tokens: int = 0

    def add_text(self, value: Any) -> None:
        if isinstance(value, str) and value:
            self.texts.append(value)


def message_tokens(message: BaseMessage, count_text: Callable[[str], int]) -> int:
    """Tokens of one message.

    Args:
        message: Any message; a chunk counts as the message it is part of.
        count_text: Tokens of a text; called once at most.
    """
    parts = _Parts(tokens=FRAME_TOKENS)
    parts.add_text(message.name)
    calls = _add_calls(message, parts) if isinstance(message, AIMessage) else False
    content: Any = message.content
    if isinstance(content, str):
        parts.add_text(content)
    elif isinstance(content, Sequence):
        for block in content:
            _add_block(block, parts, skip_calls=calls)
    elif content is not None:
        _add_leaves(content, parts)
    if isinstance(message, AIMessage):
        _add_reasoning_kwargs(message, parts)
    return parts.tokens + (count_text("\n".join(parts.texts)) if parts.texts else 0)


def json_text(value: Any) -> str | None:
    """The JSON a provider is sent for plain data; `None` when the value is not plain data."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), skipkeys=True, default=_type_name)
    except (TypeError, ValueError, RecursionError):
        return None


def _type_name(value: Any) -> str:
    return type(value).__name__


def _add_calls(message: AIMessage, parts: _Parts) -> bool:
    """Add the calls; whether there were any, so that blocks which repeat them are passed over."""
    try:
        calls = declared_calls(message)
    except (AttributeError, TypeError, ValueError):  # fields that were overwritten with junk after validation
        _add_leaves(message.tool_calls, parts)
        return True
    for call in calls:
        parts.tokens += CALL_TOKENS
        parts.add_text(call.name)
        _add_plain(call.args, parts)
    legacy = message.additional_kwargs.get("function_call")
    if not calls and isinstance(legacy, Mapping):
        parts.tokens += CALL_TOKENS
        _add_leaves(legacy, parts)
    return bool(calls) or isinstance(legacy, Mapping)


def _add_plain(value: Any, parts: _Parts) -> None:
    """Data that is sent as JSON; text as it stands."""
    if isinstance(value, str):
        parts.add_text(value)
    elif value:
        text = json_text(value)
        if text is None:
            _add_leaves(value, parts)
        else:
            parts.add_text(text)


def _add_block(block: Any, parts: _Parts, *, skip_calls: bool) -> None:
    if isinstance(block, Mapping):
        kind = block_type(block)
        if kind == "text" and isinstance(block.get("text"), str):
            parts.add_text(block["text"])
            return
        if skip_calls and kind in CALL_TYPES:
            return
    _add_leaves(block, parts)


def _add_leaves(value: Any, parts: _Parts) -> None:
    """Walk any value: texts, allowances for media and opaque parts. An explicit stack, so that depth and cycles cost no more than `_NODES` steps."""
    stack = [value]
    for _ in range(_NODES):
        if not stack:
            return
        node = stack.pop()
        if isinstance(node, str):
            parts.add_text(node)
        elif isinstance(node, Mapping):
            _add_mapping(node, parts, stack)
        elif isinstance(node, list | tuple):
            stack.extend(reversed(node[:_NODES]))
        elif isinstance(node, bytes | bytearray | memoryview):
            parts.tokens += ALLOWANCES["file"]
        elif node is not None:
            parts.tokens += 1


def _add_mapping(node: Mapping[str, Any], parts: _Parts, stack: list[Any]) -> None:
    medium = media_kind(node)
    if medium is not None:
        parts.tokens += media_tokens(node, medium)
        for key in _BESIDE_MEDIA:
            parts.add_text(node.get(key))
        return
    encrypted = block_type(node) == "redacted_thinking"
    for key, value in reversed(list(node.items())[:_NODES]):
        if key in _LABEL_KEYS or not value:
            continue
        if key in _OPAQUE_KEYS or (encrypted and key == "data"):
            parts.tokens += OPAQUE_TOKENS
        elif key in ("data", "base64", "file_data", "b64_json") and is_payload(value):
            parts.tokens += ALLOWANCES["file"]
        else:
            stack.append(value)


def _add_reasoning_kwargs(message: AIMessage, parts: _Parts) -> None:
    """Reasoning that some integrations keep beside the content; passed over when the content holds it too."""
    kept = [message.additional_kwargs[key] for key in ("reasoning_content", "reasoning") if message.additional_kwargs.get(key)]
    if not kept:
        return
    content: Any = message.content
    blocks = content if isinstance(content, list) else ()
    if not any(isinstance(block, Mapping) and block_type(block) in REASONING_TYPES for block in blocks):
        _add_leaves(kept[0], parts)
