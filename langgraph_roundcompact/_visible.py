"""What a transcript shows of a message: text, references to media, other data as compact JSON; no reasoning, signatures, encrypted or binary data.

Content comes in a dozen dialects. A block is shown as text where it has text, as a reference where it is a medium (its URL, or what it is and
how large), and as JSON otherwise, without the fields that are of no use to a reader. Base64 that stands in plain text or in arguments is
replaced by a statement of its size too: in data URLs always, elsewhere where a long run looks encoded.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

from langchain_core.messages import BaseMessage

from langgraph_roundcompact._content import CALL_TYPES, REASONING_TYPES, block_text, block_type, blocks_of
from langgraph_roundcompact._media import media_kind

_DATA_URL = re.compile(
    r"data:([\w.+-]{1,60}/[\w.+-]{1,60})?(?:;[\w.+-]{1,40}(?:=[\w.+\"-]{0,60})?){0,4};base64,\s{0,4}[A-Za-z0-9+/=_%-]*+", re.IGNORECASE
)
_LONG_RUN, _LONG_LINE = 160, 60
"""Characters of an unbroken run, and of a line among others, from which a text may be encoded data."""
_RUN = re.compile(r"[A-Za-z0-9+/=_-]{160,}+")
_LINES = re.compile(r"^(?:[A-Za-z0-9+/=]{60,128}+\r?\n){3,}+[A-Za-z0-9+/=]{0,128}+", re.MULTILINE)
_LINK = re.compile(r"(?!data:)[a-z][a-z0-9+.-]{1,20}://|files/|\.{0,2}/", re.IGNORECASE)
_SAMPLE: Final = 4_096


def _set_of(words: str) -> frozenset[str]:
    return frozenset(words.split())


_HIDDEN_KEYS: Final = _set_of(
    """signature thought_signature thoughtSignature encrypted_content encrypted_index encrypted_stdout redacted_thinking thinking reasoning
    reasoning_content logprobs cache_control index response_metadata usage usage_metadata"""
)
_PAYLOAD_KEYS: Final = _set_of("data base64 bytes file_data b64_json url image_url video_url file_url fileUri file_uri uri")
_MEDIA_NESTED: Final = sorted(_set_of("source image_url input_audio inline_data inlineData file image audio video document video_url"))
_DEEPEST: Final = 24
_LONGEST_REPR: Final = 2_000


def without_payloads(text: str) -> str:
    """`text` with data URLs and long runs of base64 replaced by a statement of what stood there. Linear."""
    if ";base64," in text:
        text = _DATA_URL.sub(_stated_url, text)
    if len(text) < _LONG_RUN or (longest := max(map(len, text.split()), default=0)) < _LONG_LINE:
        return text
    text = _LINES.sub(_stated_run, text)
    return _RUN.sub(_stated_run, text) if longest >= _LONG_RUN else text


def _stated_url(found: re.Match[str]) -> str:
    payload = len(found[0]) - found[0].index(",") - 1
    return f"[{found[1] or 'data'}, about {payload * 3 // 4:,} bytes, not shown]"


def _stated_run(found: re.Match[str]) -> str:
    return f"[encoded data, {len(found[0]):,} characters, not shown]" if _looks_encoded(found[0]) else found[0]


def _looks_encoded(run: str) -> bool:
    """Base64 mixes cases; filler, paths, hexadecimal digests and long identifiers do not, or one character dominates them."""
    middle = len(run) // 2
    counts = Counter(run[max(0, middle - _SAMPLE // 2) : middle + _SAMPLE // 2])
    total = counts.total()
    upper = sum(count for character, count in counts.items() if character.isupper())
    joints = sum(counts[character] for character in "/-_=")
    return upper >= total // 10 and joints <= total // 12 and counts.most_common(1)[0][1] < total // 2


def plain(value: Any, *, hidden: frozenset[str] = frozenset(), depth: int = 0) -> Any:
    """`value` as JSON data: `hidden` fields left out, bytes and unknown objects described, nesting bounded. Never raises."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return f"[{len(value):,} bytes, not shown]"
    if depth >= _DEEPEST:
        return "[… nested too deeply …]"
    try:
        return _plain_container(value, hidden, depth + 1)
    except Exception:  # noqa: BLE001 - arguments may be any object; one that cannot be read is described by its type
        return f"[{type(value).__name__}]"


def _plain_container(value: Any, hidden: frozenset[str], depth: int) -> Any:
    if not isinstance(value, type) and callable(dump := getattr(value, "model_dump", None)):
        value = dump()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item, hidden=hidden, depth=depth) for key, item in value.items() if key not in hidden}
    if isinstance(value, AbstractSet):
        return sorted((plain(item, hidden=hidden, depth=depth) for item in value), key=repr)
    if isinstance(value, list | tuple):
        return [plain(item, hidden=hidden, depth=depth) for item in value]
    # An address in memory would make the same conversation read differently each time.
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value)[:_LONGEST_REPR])


def block_data(value: Any) -> Any:
    """The data of a content block: as `plain`, without what providers add for themselves."""
    return plain(value, hidden=_HIDDEN_KEYS)


def compact(value: Any) -> str:
    """JSON in one line, readable characters as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def visible_parts(message: BaseMessage) -> Iterator[tuple[str, Any]]:
    """What a message shows, in order: `("text", str)`, `("server_call", block)`, `("server_result", block)` or `("data", (label, JSON data))`."""
    for block in blocks_of(message):
        kind = block_type(block)
        if kind in REASONING_TYPES or kind in CALL_TYPES:
            continue
        if kind.endswith("_tool_result") or kind in ("server_tool_result", "mcp_tool_result"):
            yield "server_result", block
        elif kind in ("server_tool_use", "server_tool_call", "mcp_tool_use") or kind.endswith("_call"):
            yield "server_call", block
        elif medium := media_kind(block):
            yield "text", media_reference(block, medium)
        elif text := block_text(block) or _document_text(block):
            yield "text", text + _sources(block)
        elif kind == "refusal":
            yield "text", f"[refusal] {block.get('refusal', '')}"
        elif kind not in ("text", "input_text", "output_text"):
            data = {str(key): item for key, item in block.items() if key not in ("type", "id")}
            yield "data", (kind or "data", block_data(data[kind] if set(data) == {kind} else data))


def media_reference(block: Mapping[str, Any], medium: str) -> str:
    """A medium as a reference: its URL where it has one, else its kind, name, type and size."""
    found: dict[str, str] = {}
    size = 0
    for level in _levels(block):
        for key in ("mime_type", "media_type", "mimeType", "format"):
            if isinstance(level.get(key), str):
                found.setdefault("mime", level[key][:80])
        for key in ("filename", "file_name", "title", "file_id", "name"):
            if isinstance(level.get(key), str):
                found.setdefault("name", level[key][:200])
        for key in _PAYLOAD_KEYS:
            value = level.get(key)
            if isinstance(value, str) and _is_link(value):
                found.setdefault("url", value[:2_000])
            elif isinstance(value, str | bytes | bytearray) and value:
                size = max(size, _bytes_of(value))
                if isinstance(value, str) and (mime := re.match(r"data:([\w.+-]{1,60}/[\w.+-]{1,60})", value)):
                    found.setdefault("mime", mime[1])
    details = [found.get("url", ""), found.get("name", ""), found.get("mime", ""), f"{size:,} bytes, not shown" if size else ""]
    return f"[{medium}: {', '.join(detail for detail in details if detail) or 'not shown'}]"


def _levels(block: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The block and the mappings that dialects nest in it."""
    waiting, left = [block], 12
    while waiting and left:
        level, left = waiting.pop(0), left - 1
        yield level
        waiting += [inner for key in _MEDIA_NESTED if isinstance(inner := level.get(key), Mapping)]


def _is_link(value: str) -> bool:
    return (
        re.match(r"(?!data:)[a-z][a-z0-9+.-]{1,20}://|[\w.-]{1,60}://|files/|/|\.{1,2}/", value[:100], re.IGNORECASE) is not None
        and len(value) <= 4_000
    )


def _bytes_of(value: str | bytes | bytearray) -> int:
    """Size of a payload: of base64 what it decodes to."""
    if not isinstance(value, str):
        return len(value)
    start = value.find(",", 0, 256) + 1 if value.startswith("data:") else 0
    return (len(value) - start) * 3 // 4 - value.count("=", max(0, len(value) - 2))


def _document_text(block: Mapping[str, Any]) -> str:
    """Text of documents and search results that carry it in a source or in blocks of their own."""
    title = block.get("title") if isinstance(block.get("title"), str) else ""
    source, texts = block.get("source"), []
    if isinstance(source, Mapping) and source.get("type") in ("text", "content"):
        texts = _texts(source.get("data", source.get("content")))
    elif block_type(block) in ("search_result", "text-plain", "document"):
        texts = [source] if isinstance(source, str) else []
        texts += _texts(block.get("content", block.get("text")))
    return "\n".join(part for part in (title, *texts) if part) if texts else ""


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [block_text(item) for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _sources(block: Mapping[str, Any]) -> str:
    """The links a text block cites, once each, a few at most."""
    links: dict[str, str] = {}
    for key in ("citations", "annotations"):
        cited = block.get(key)
        for item in cited if isinstance(cited, list) else ():
            if isinstance(item, Mapping) and isinstance(item.get("url"), str):
                links.setdefault(item["url"][:500], str(item.get("title") or "")[:200])
    shown = [f"{title} <{url}>".strip() for url, title in list(links.items())[:10]]
    return f"\n[sources: {'; '.join(shown)}]" if shown else ""
