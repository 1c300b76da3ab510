"""Typed previews: of one huge tool result the most informative part is left, with a count of what is missing and the way back to it.

A preview is a function of its arguments alone. What kind of text it is, is told from its shape, with the name and arguments of the tool as a hint;
each kind then says which lines are worth how much, and one packer fits them into the budget. Lines are the text's own, word for word; the preview's
own words stand in brackets with an ellipsis (`[… 12 lines …]`), or in its first line.

No parser library is used, on purpose: a preview that was made once is made again in other processes, byte for byte, whatever is installed there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from langgraph_roundcompact.tiers.previews._kind import outline_of
from langgraph_roundcompact.tiers.previews._outline import Kind, Outline, counted
from langgraph_roundcompact.tiers.previews._pack import Packed, pack

__all__ = ["Kind", "Preview", "preview"]

_CHARACTERS_PER_TOKEN = 32
"""No tokenizer packs more of ordinary text into a token: megabytes are not counted to find that they do not fit."""
_LEAST_BODY = 12
"""Tokens below which a body says nothing."""
_TRIES = 8


@dataclass(frozen=True, slots=True)
class Preview:
    """What is shown of a text."""

    text: str
    """At most as many tokens as were allowed; shorter than the text, or the text itself."""
    kind: str
    """What the text was taken for: one of `Kind`."""
    left_out_characters: int
    """Characters of the text that are not shown; 0 for the text itself."""


def preview(
    text: str,
    *,
    limit_tokens: int,
    estimate: Callable[[str], int],
    tool: str = "",
    arguments: Mapping[str, Any] | None = None,
    where: str = "",
) -> Preview:
    """Show the part of a tool result that tells most, within a number of tokens.

    Args:
        text: The whole result, as it came; any characters. Nothing in it is escaped, and nothing in the preview.
        limit_tokens: The most that the preview may take, in tokens.
        estimate: Tokens of a text.
        tool: Name of the tool, as a hint to what the text is.
        arguments: Arguments of the call, as a hint: the ending of a path, the words of a command.
        where: How to get the rest, for the reader: a call, or a sentence without a full stop.

    Returns:
        The preview; the text itself where it fits.
    """
    outline = outline_of(text, tool, arguments or {})
    if _fits(text, limit_tokens, estimate):
        return Preview(text, outline.kind, 0)
    room = limit_tokens - estimate(_header(outline, len(text), Packed("", 0, 0), where)) - 2
    for _ in range(_TRIES):
        if room < _LEAST_BODY:
            break
        packed = pack(outline, room, estimate)
        shown = f"{_header(outline, len(text), packed, where)}\n{packed.text}"
        tokens = estimate(shown)
        if tokens <= limit_tokens and len(shown) < len(text):
            return Preview(shown, outline.kind, max(len(text) - packed.characters, 0))
        scale = min(limit_tokens / max(tokens, 1), len(text) / len(shown))
        room = min(int(room * scale), room - 3)
    return Preview(_bare(outline, text, where, limit_tokens, estimate), outline.kind, len(text))


def _fits(text: str, limit_tokens: int, estimate: Callable[[str], int]) -> bool:
    head = text[: max(limit_tokens, 0) * _CHARACTERS_PER_TOKEN]
    return estimate(head) <= limit_tokens and (len(head) == len(text) or estimate(text) <= limit_tokens)


def _header(outline: Outline, size: int, packed: Packed, where: str) -> str:
    """The first line of a preview: what it is, how much of it is missing, how to get the rest."""
    lost = outline.total - packed.units
    units = f"{counted(lost, outline.unit)}, " if lost > 0 else ""
    rest = f"; the rest: {where}" if where else ""
    return f"[preview of {outline.title}, {size:,} characters; left out: {units}{max(size - packed.characters, 0):,} characters{rest}]"


def _bare(outline: Outline, text: str, where: str, limit_tokens: int, estimate: Callable[[str], int]) -> str:
    """What is left to say where there is no room for a body."""
    size = f"{len(text):,} characters"
    rest = f"; {where}" if where else ""
    pointer = f"[{where}]" if where else "[…]"
    for words in (f"[{outline.title}, {size} left out{rest}]", f"[{size} left out{rest}]", pointer, f"[{size} left out]", "[…]"):
        if len(words) < len(text) and estimate(words) <= limit_tokens:
            return words
    return ""
