"""Text from records, made fit for a page: what a terminal or an editor would obey is shown instead of obeyed, and nothing is lost of the rest.

Escaping for HTML is not done here: the template escapes everything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\)|[@-Z\\^_])")
_CONTROLS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
_DIRECTIONS = {code: f"[U+{code:04X}]" for code in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}
_SHOWN: dict[int, int | str] = {**_CONTROLS, **_DIRECTIONS, **dict.fromkeys(range(0xD800, 0xE000), 0xFFFD)}


def visible(text: str) -> str:
    """`text` without terminal codes; control characters, lone surrogates and direction marks as something that can be seen."""
    return _ANSI.sub("", text.replace("\r\n", "\n")).translate(_SHOWN)


def one_line(text: str, characters: int) -> str:
    """The beginning of `text` on one line."""
    head = " ".join(text[: characters * 4].split())
    return head if len(head) <= characters and len(text) <= characters * 4 else head[: characters - 1].rstrip() + "…"


def content_text(content: Any) -> str:
    """What a message says: its text, and blocks of other sorts as JSON."""
    if isinstance(content, str):
        return visible(content)
    if isinstance(content, Sequence):
        return "\n".join(filter(None, map(_block_text, content)))
    return "" if content is None else as_json(content)


def as_json(value: Any) -> str:
    """Plain data, compactly."""
    try:
        return visible(json.dumps(value, ensure_ascii=False, default=str))
    except (ValueError, TypeError, RecursionError):
        return "[cannot be shown]"


def _block_text(block: Any) -> str:
    if isinstance(block, str):
        return visible(block)
    if not isinstance(block, Mapping):
        return as_json(block)
    if isinstance(text := block.get("text"), str):
        return visible(text)
    thought = next((block[name] for name in ("thinking", "reasoning") if isinstance(block.get(name), str)), None)
    return as_json(block) if thought is None else f"[thinking] {visible(thought)}"


def text_at(record: Any, *keys: str) -> str:
    """The text at a path of keys; what is missing or odd is empty."""
    for key in keys:
        record = record.get(key) if isinstance(record, Mapping) else None
    if isinstance(record, str):
        return visible(record)
    return "" if record is None or isinstance(record, Mapping | list) else visible(str(record))


def number_at(record: Any, *keys: str) -> int:
    """The whole number at a path of keys; what is missing or odd is 0."""
    for key in keys:
        record = record.get(key) if isinstance(record, Mapping) else None
    if isinstance(record, bool) or not isinstance(record, int | float) or record != record or abs(record) > 10**15:  # noqa: PLR0124 - NaN
        return 0
    return int(record)


def items_at(record: Any, *keys: str) -> list[Any]:
    """The list at a path of keys; what is missing or odd is empty."""
    for key in keys:
        record = record.get(key) if isinstance(record, Mapping) else None
    return list(record) if isinstance(record, list | tuple) else []
