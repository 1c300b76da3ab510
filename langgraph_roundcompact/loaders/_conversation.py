"""What loading a file gives, and the one way it fails."""

from __future__ import annotations

from dataclasses import dataclass

from langchain_core.messages import BaseMessage

from langgraph_roundcompact.errors import RoundCompactError


class ConversationError(RoundCompactError):
    """A file that is not a conversation. One line: the file, and what was found in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A recorded conversation."""

    name: str
    """What the recording calls itself, else the file's name without its ending."""
    messages: tuple[BaseMessage, ...]
    """In order, each with an id that no other has: its own, or `m0`, `m1`, … by position where it has none or one that came before."""


def printable(text: str, limit: int = 60) -> str:
    """Foreign text as part of one line for a terminal: no control characters, at most `limit` characters."""
    short = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in short)
