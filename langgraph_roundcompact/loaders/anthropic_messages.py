"""Anthropic messages: roles `user` and `assistant`, content as blocks, calls as `tool_use`, results as `tool_result` in the user's message.

A result is not a request: each becomes a message of its own, and what a person wrote beside it stays theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from langgraph_roundcompact.loaders._tool_calls import answer_from_blocks, content_of, split_results

_OWN_BLOCKS = (
    "tool_use",
    "tool_result",
    "thinking",
    "redacted_thinking",
    "server_tool_use",
    "web_search_tool_result",
    "mcp_tool_use",
    "mcp_tool_result",
    "document",
)


def recognises(record: Mapping[str, Any]) -> bool:
    """Whether a record has this format; text alone is the same in OpenAI's."""
    content = record.get("content")
    if record.get("role") not in ("user", "assistant") or not isinstance(content, list):
        return False
    return any(isinstance(block, Mapping) and block.get("type") in _OWN_BLOCKS for block in content)


def to_messages(record: Mapping[str, Any]) -> list[BaseMessage]:
    """One record as messages: the results in it, then the rest.

    Raises:
        ValueError: an unknown role, or content that is neither text nor blocks.
    """
    content, message_id, role = content_of(record.get("content")), record.get("id"), record.get("role")
    known_id = message_id if isinstance(message_id, str) else None
    if role == "assistant":
        return [answer_from_blocks(content, id=known_id)]
    if role == "user":
        return split_results(HumanMessage(content, id=known_id))
    if role == "system":
        return [SystemMessage(content, id=known_id)]
    msg = f"unknown role {role!r} (known: user, assistant, system)"
    raise ValueError(msg)
