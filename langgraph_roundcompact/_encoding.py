"""Counting a text with tiktoken's o200k_base, when its encoding is already on this machine; otherwise by estimate.

tiktoken fetches an encoding it does not have, and behind a firewall that hangs. So the file is looked for where tiktoken looks
(`TIKTOKEN_CACHE_DIR`, `DATA_GYM_CACHE_DIR`, the temporary folder) and its checksum compared, before tiktoken is asked at all: a file that tiktoken
would reject is one it would fetch again.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from langgraph_roundcompact._estimate import estimate_tokens, sample_of

log = logging.getLogger("langgraph_roundcompact")

ENCODING = "o200k_base"
_CACHE_NAME = "fb374d419588a4632f3f557e76b4b70aebbca790"
_CHECKSUM = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"

ENCODED_IN_FULL = 16_384
"""Characters up to which a text is encoded whole. Of a longer one slices are, and they correct the estimate of the rest."""

_CHUNK = 2_048
_SAMPLES, _SAMPLE = 16, 1_024

# One letter repeated, a mangled binary: o200k_base merges some of these eight letters to a token, other tokenisers do not. The estimate errs on the
# safe side.
_LONG_RUN = re.compile(r"[A-Za-z]{256,}")

Encode = Callable[[str], list[int]]


class TextCounter:
    """Tokens of a text. Loads on first use, in any thread; afterwards it is read-only."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded = False
        self._encode: Encode | None = None

    @property
    def cold(self) -> bool:
        """Whether the first count will load the encoding, which takes some tenths of a second."""
        return not self._loaded

    def prepare(self) -> bool:
        """Load now. Returns whether texts are encoded (`True`) or estimated."""
        if not self._loaded:
            with self._lock:
                if not self._loaded:
                    self._encode = _load()
                    self._loaded = True
        return self._encode is not None

    def count(self, text: str) -> int:
        """Tokens of a text, 0 for an empty one. Never raises; a megabyte takes a few milliseconds."""
        if not text:
            return 0
        self.prepare()
        if self._encode is None:
            return estimate_tokens(text)
        if len(text) <= ENCODED_IN_FULL:
            return max(_encoded(text, self._encode), 1)
        sample = sample_of(text, _SAMPLES, _SAMPLE)
        correction = _encoded(sample, self._encode) / estimate_tokens(sample)
        return max(round(estimate_tokens(text) * correction), 1)


def _encoded(text: str, encode: Encode) -> int:
    """Tokens of a text of moderate length, piece by piece: some tokenisers' time grows with the square of an unbroken piece."""
    total = 0
    if len(text) >= 256 and _LONG_RUN.search(text):
        runs = _LONG_RUN.findall(text)
        total = sum(estimate_tokens(run) for run in runs)
        text = _LONG_RUN.sub("\n", text)
    start = 0
    while start < len(text):
        stop = _border(text, start + _CHUNK)
        chunk = text[start:stop]
        total += _encode_chunk(chunk, encode)
        start = stop
    return total


def _border(text: str, near: int) -> int:
    """Where to cut: before the last space of the chunk, so that a word is not torn, else right there."""
    if near >= len(text):
        return len(text)
    space = text.rfind(" ", near - 128, near)
    return space if space > 0 else near


def _encode_chunk(chunk: str, encode: Encode) -> int:
    try:
        return len(encode(chunk))
    except Exception:  # noqa: BLE001 - a tokeniser that fails on odd text must not stop an agent
        return estimate_tokens(chunk)


def _load() -> Encode | None:
    """The encoder, or `None` with one warning."""
    if _at_hand():
        with contextlib.suppress(Exception):
            import tiktoken  # noqa: PLC0415 - a slow import, needed only here

            # "ordinary": special tokens in tool output are text like any other.
            return tiktoken.get_encoding(ENCODING).encode_ordinary
    log.warning(
        "tiktoken's %s encoding is not on this machine: tokens are estimated, within about 25%%. For exact counts run "
        "`python -c \"import tiktoken; tiktoken.get_encoding('%s')\"` once with network access, or point TIKTOKEN_CACHE_DIR to a folder that "
        "has it, or pass token_counter=.",
        ENCODING,
        ENCODING,
    )
    return None


def _at_hand() -> bool:
    """Whether tiktoken will find the encoding without a download."""
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    if folder == "":  # tiktoken's way to say: no cache
        return False
    path = Path(folder) if folder else Path(tempfile.gettempdir()) / "data-gym-cache"
    try:
        return hashlib.sha256((path / _CACHE_NAME).read_bytes()).hexdigest() == _CHECKSUM
    except (OSError, ValueError):
        return False
