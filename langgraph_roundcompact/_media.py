"""What media blocks cost: documented allowances, by pixels where they are known, never by the length of base64.

| block | tokens |
|---|---|
| image of known size | width x height / 750, at least 85, at most 1 600 (providers scale larger ones down) |
| image of unknown size | 1 600 |
| image with `detail: low` | 85 |
| audio | 2 000 |
| file (PDF and other documents) | 3 000 |
| video | 5 000 |

Pixels are read from the block, or from the header of a PNG, GIF or JPEG: the first few kilobytes of base64 are decoded, the payload is not touched.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from langgraph_roundcompact._content import block_type

MediaKind = Literal["image", "audio", "video", "file"]

ALLOWANCES: dict[MediaKind, int] = {"image": 1_600, "audio": 2_000, "video": 5_000, "file": 3_000}
"""Tokens of a block of unknown size."""

_IMAGE_LEAST, _IMAGE_MOST, _PIXELS_PER_TOKEN = 85, 1_600, 750
_HEADER_CHARACTERS = 8_192
_LARGEST_SIDE = 100_000

_KINDS: dict[str, MediaKind] = {
    "image": "image",
    "image_url": "image",
    "image_file": "image",
    "input_image": "image",
    "audio": "audio",
    "input_audio": "audio",
    "video": "video",
    "video_url": "video",
    "input_video": "video",
    "file": "file",
    "file_url": "file",
    "input_file": "file",
    "document": "file",
    "pdf": "file",
    "container_upload": "file",
}
_NESTED = ("image_url", "image", "source", "inline_data", "inlineData", "input_audio", "file", "audio", "video", "document")
_PAYLOAD_KEYS = ("data", "base64", "bytes", "file_data", "b64_json", "url", "image_url")


def media_kind(block: Mapping[str, Any]) -> MediaKind | None:
    """What medium a content block holds, in any provider's dialect; `None` when it is text or something else."""
    kind = block_type(block)
    if kind in _KINDS:
        return None if _is_text_document(block) else _KINDS[kind]
    if kind == "text-plain" and not isinstance(block.get("text"), str):
        return "file"
    if kind in ("", "media", "blob", "inline_data"):
        return _kind_by_mime(block) or _kind_by_key(block)
    return None


def media_tokens(block: Mapping[str, Any], kind: MediaKind) -> int:
    """The allowance of a media block, in tokens."""
    if kind != "image":
        return ALLOWANCES[kind]
    levels = list(_levels(block))
    if any(level.get("detail") == "low" for level in levels):
        return _IMAGE_LEAST
    size = next((size for level in levels if (size := _declared_size(level))), None) or _header_size(levels)
    if size is None:
        return ALLOWANCES["image"]
    return min(max(size[0] * size[1] // _PIXELS_PER_TOKEN, _IMAGE_LEAST), _IMAGE_MOST)


def is_payload(value: Any) -> bool:
    """Whether a leaf is a binary payload in base64 or bytes rather than words; looks at its first characters only."""
    if isinstance(value, bytes | bytearray | memoryview):
        return True
    if not isinstance(value, str) or len(value) <= 256:
        return False
    head = value[:512]
    return head.isascii() and " " not in head


def _is_text_document(block: Mapping[str, Any]) -> bool:
    source = block.get("source")
    return isinstance(source, Mapping) and source.get("type") in ("text", "content")


def _kind_by_mime(block: Mapping[str, Any]) -> MediaKind | None:
    for level in _levels(block):
        mime = level.get("mime_type") or level.get("media_type") or level.get("mimeType")
        if isinstance(mime, str) and any(key in level for key in (*_PAYLOAD_KEYS, "file_uri", "fileUri", "file_id")):
            family = mime.partition("/")[0]
            return _KINDS.get(family, "file") if family in ("image", "audio", "video") else "file"
    return None


def _kind_by_key(block: Mapping[str, Any]) -> MediaKind | None:
    """Blocks without a type that name their medium by a key, as Bedrock's `{"image": {"format": ..., "source": {"bytes": ...}}}` does."""
    for key, kind in _KINDS.items():
        value = block.get(key)
        if isinstance(value, Mapping) and any(name in level for level in _levels(value) for name in _PAYLOAD_KEYS):
            return None if _is_text_document(value) else kind
    return "image" if isinstance(block.get("image_url"), str) else None


def _levels(block: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The block and the mappings that dialects nest in it, two levels deep."""
    yield block
    for key in _NESTED:
        inner = block.get(key)
        if isinstance(inner, Mapping):
            yield inner
            source = inner.get("source")
            if isinstance(source, Mapping):
                yield source


def _declared_size(level: Mapping[str, Any]) -> tuple[int, int] | None:
    return _sane(level.get("width"), level.get("height"))


def _sane(width: Any, height: Any) -> tuple[int, int] | None:
    for side in (width, height):
        if not isinstance(side, int) or isinstance(side, bool) or not 0 < side <= _LARGEST_SIDE:
            return None
    return width, height


def _header_size(levels: list[Mapping[str, Any]]) -> tuple[int, int] | None:
    for level in levels:
        for key in _PAYLOAD_KEYS:
            header = _header(level.get(key))
            if header:
                return _png_size(header) or _gif_size(header) or _jpeg_size(header)
    return None


def _header(payload: Any) -> bytes:
    """The first bytes of an inline payload, `b""` when there is none (a link, a file id)."""
    if isinstance(payload, bytes | bytearray):
        return bytes(payload[:_HEADER_CHARACTERS])
    if not isinstance(payload, str):
        return b""
    start = 0
    if payload.startswith("data:"):
        start = payload.find(",", 0, 256) + 1
    elif "://" in payload[:16]:
        return b""
    try:
        return base64.b64decode(payload[start : start + _HEADER_CHARACTERS])
    except (binascii.Error, ValueError):
        return b""


def _png_size(header: bytes) -> tuple[int, int] | None:
    if not header.startswith(b"\x89PNG\r\n\x1a\n"):
        return None
    return _sane(int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big"))


def _gif_size(header: bytes) -> tuple[int, int] | None:
    if not header.startswith((b"GIF87a", b"GIF89a")):
        return None
    return _sane(int.from_bytes(header[6:8], "little"), int.from_bytes(header[8:10], "little"))


def _jpeg_size(header: bytes) -> tuple[int, int] | None:
    """Walk the segments to the frame header; `None` when it lies beyond the bytes at hand."""
    if not header.startswith(b"\xff\xd8"):
        return None
    at = 2
    while at + 9 <= len(header) and header[at] == 0xFF:
        marker = header[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return _sane(int.from_bytes(header[at + 7 : at + 9], "big"), int.from_bytes(header[at + 5 : at + 7], "big"))
        at += 2 + max(int.from_bytes(header[at + 2 : at + 4], "big"), 2)
    return None
