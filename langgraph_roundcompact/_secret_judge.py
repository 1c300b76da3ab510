"""Whether a value is a secret, or only stands where one could stand."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

MARK: Final = "[REDACTED]"
"""What stands in place of a secret."""

_DIGIT, _UPPER, _LOWER, _LATE_UPPER = re.compile(r"\d"), re.compile("[A-Z]"), re.compile("[a-z]"), re.compile("[a-z.][A-Z]")
_DIGITS = re.compile(r"\d+")
_PATH = re.compile(r"(?:~|\.{1,2})?(?:/[\w.-]+)++/?")
_TAIL_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def hide_unless(harmless: Callable[[str], bool]) -> Callable[[re.Match[str]], str]:
    """A replacement for `re.sub`: the second group becomes `MARK`, unless it is harmless; the first group stays."""
    return lambda found: found[0] if harmless(found[2]) else found[1] + MARK


def words_of(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


# As the last word of a key these make the value a name, a place or a number about the secret.
_ABOUT: Final = words_of(
    """type url uri name file path dir limit count counts length len min max env id ids ttl expiry expires expiration budget usage window estimate
    policy reset test tests field label size version provider endpoint header prefix suffix ref manager source store param index rate cost price
    threshold per second seconds minute hint input prompt column number required enabled status error message format"""
)


def is_placeholder(value: str) -> bool:
    """A variable, a hint at what to write, or a secret that is gone already."""
    return value.startswith(("$", "%", "{", "<", "*", "…", "...", MARK, "your-", "your_", "YOUR_")) or not value.strip("xX.*•-_")


def is_path(value: str) -> bool:
    """A path; forty characters without a dot are rather an AWS key."""
    return _PATH.fullmatch(value) is not None and not (len(value) == 40 and "." not in value)


def is_random(value: str) -> bool:
    """Whether a value looks generated or chosen as a secret rather than written as a word."""
    digit, upper, lower = _DIGIT.search(value), _UPPER.search(value), _LOWER.search(value)
    if digit:
        return upper is not None or lower is not None
    return len(value) >= 8 and upper is not None and lower is not None and (len(value) >= 16 or _LATE_UPPER.search(value) is not None)


def is_generated(value: str) -> bool:
    """Whether a value can hardly be anything but generated: `base64-encoded`, `v1.2.3beta` and `argon2id` are words."""
    if len(value) < 8 or not _DIGIT.search(value) or is_path(value):
        return False
    if _UPPER.search(value) and _LOWER.search(value):
        return True
    return value.isalnum() and not value.isdigit() and len(_DIGITS.findall(value)) >= 2


def is_scrambled(value: str) -> bool:
    """Whether letters alone look generated: many of them in upper case, and in more places than where words or abbreviations begin."""
    upper = len(_UPPER.findall(value))
    return 3 * len(value) <= 10 * upper <= 7 * len(value) and len(_LATE_UPPER.findall(value)) >= 3 and len(value) >= 16


def tells_about(tail: str) -> bool:
    """Whether the rest of a key says that the value is not the secret itself: `token_limit`, `tokenizer`, `passwordFile`."""
    if not tail:
        return False
    words = _TAIL_WORDS.findall(tail)
    return tail[0].islower() or (bool(words) and words[-1].lower() in _ABOUT)
