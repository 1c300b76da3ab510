"""File values in state, and what must never be shown as text."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Any

from langgraph_roundcompact._state import read_key

_BINARY_SUFFIXES = frozenset(
    (
        *("7z", "a", "avi", "bin", "bmp", "bz2", "class", "db", "dll", "doc", "docx", "dylib", "exe", "gif", "gz", "ico", "jar", "jpeg", "jpg"),
        *("lib", "mov", "mp3", "mp4", "npy", "npz", "o", "obj", "otf", "parquet", "pdf", "pickle", "pkl", "png", "ppt", "pptx", "pt", "pyc"),
        *("rar", "so", "sqlite", "sqlite3", "tar", "tgz", "tif", "tiff", "ttf", "wasm", "wav", "webm", "webp", "whl", "woff", "woff2"),
        *("xls", "xlsx", "xz", "zip", "zst"),
    )
)
_MAGIC = (
    "%PDF-",
    "\x89PNG",
    "PK\x03\x04",
    "GIF87a",
    "GIF89a",
    "\x7fELF",
    "\xff\xd8\xff",
    "data:image/",
    "data:application/",
    "data:audio/",
    "data:video/",
)
_BASE64_LINE = re.compile(r"[A-Za-z0-9+/]{400,}={0,2}")
_SAMPLE = 8_000
"""Characters looked at to tell text from bytes."""


def file_text(value: Any) -> str | None:
    """The text of a file as state holds it: a string, a list of lines, or a record with `content`; None for bytes, base64 and junk."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return "\n".join(value) if all(isinstance(line, str) for line in value) else None
    if value is None or isinstance(value, bytes | bytearray | memoryview):
        return None
    encoding = read_key(value, "encoding")
    if isinstance(encoding, str) and encoding.lower().replace("-", "") not in ("utf8", "ascii", "utf8sig", "text", ""):
        return None
    content = read_key(value, "content")
    return file_text(content) if isinstance(content, str | list | tuple) else None


def looks_binary(text: str, path: str = "") -> bool:
    """Whether text is bytes in disguise, by the path's ending, a known beginning, control characters or one long run of base64."""
    if posixpath.splitext(path.lower())[1][1:] in _BINARY_SUFFIXES:
        return True
    sample = text[:_SAMPLE]
    if "\x00" in sample or sample.lstrip().startswith(_MAGIC):
        return True
    odd = sum(1 for char in sample if (char < " " and char not in "\t\n\r\f\x1b") or char == "\ufffd" or "\x7f" <= char <= "\x9f")
    return odd * 20 > len(sample) or _is_base64(sample)


def _is_base64(sample: str) -> bool:
    found = _BASE64_LINE.search(sample)
    run = found[0][:400] if found else ""
    # A long run of one letter is text too: bytes use the whole alphabet.
    return bool(run) and len(set(run)) >= 24 and any(map(str.isdigit, run)) and run != run.lower() and run != run.upper()


def path_key(path: str) -> str:
    """Spellings of one path made equal: `./src//a.py` and `src/a.py`."""
    return posixpath.normpath(path.strip())


def find_file(files: object, path: str) -> tuple[bool, Any]:
    """Whether state knows the file, and its value. A relative path also finds the file below the root."""
    if not isinstance(files, Mapping):
        return False, None
    key = path_key(path)
    for name in dict.fromkeys((path, key, "/" + key.lstrip("/"), key.lstrip("/"))):
        if name in files:
            return True, files[name]
    return False, None
