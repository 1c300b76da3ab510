"""Optional redaction on top of the default: the tokens that `detect-secrets` knows.

    from langgraph_roundcompact.redaction import redact_with_detect_secrets

    RoundCompactor(model, redact=redact_with_detect_secrets())

Needs the extra `secrets`. Only detectors with a form of their own are used: those that guess by entropy or by the word in front would take hashes
and ids out of the ledger, which the next steps need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from langgraph_roundcompact._redact import MARK, default_redact

__all__ = ["redact_with_detect_secrets"]

_WINDOW: Final = 2048
"""Characters that a detector sees at once: a pattern that goes back and forth costs this much squared, however long the line."""
_OVERLAP: Final = 512
"""Characters that two windows share: no known token is longer."""
_LEAST: Final = 6
"""Characters of a secret; what is shorter is part of something else."""
_NOT_SECRET: Final = frozenset({"Public IP (ipv4)", "Private Key"})
"""Addresses are needed for the work, and of a private key the default takes more than its first line."""


def redact_with_detect_secrets(base: Callable[[str], str] = default_redact) -> Callable[[str], str]:
    """A callable for `RoundCompactor(redact=...)` that also hides what `detect-secrets` finds.

    Args:
        base: Redaction that runs first.

    Returns:
        A function of one text; linear in its length. It may be shared by threads.

    Raises:
        ImportError: `detect-secrets` is not installed.
    """
    detectors = _detectors()

    def redact(text: str) -> str:
        return _hidden(base(text), detectors)

    return redact


@lru_cache(maxsize=1)
def _detectors() -> tuple[Any, ...]:
    """One detector of each kind. They are called directly, as the settings of the library are global to the process."""
    try:
        from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class  # noqa: PLC0415 - an extra
        from detect_secrets.plugins.base import RegexBasedDetector  # noqa: PLC0415
    except ImportError as exc:
        msg = 'detect-secrets is not installed: pip install "langgraph-roundcompact[secrets]"'
        raise ImportError(msg) from exc
    classes: dict[str, type[Any]] = get_mapping_from_secret_type_to_class()
    return tuple(kind() for name, kind in sorted(classes.items()) if name not in _NOT_SECRET and issubclass(kind, RegexBasedDetector))


def _hidden(text: str, detectors: Sequence[Any]) -> str:
    lines = text.split("\n")
    return "\n".join(_hidden_line(line, detectors) for line in lines)


def _hidden_line(line: str, detectors: Sequence[Any]) -> str:
    found = {secret for window in _windows(line) for detector in detectors for secret in detector.analyze_string(window)}
    # Longest first, so that no secret is left half by one that is part of it.
    for secret in sorted(found, key=lambda secret: (-len(secret), secret)):
        if len(secret) >= _LEAST and secret not in MARK:
            line = line.replace(secret, MARK)
    return line


def _windows(line: str) -> Iterator[str]:
    if len(line) < _LEAST:
        return
    for start in range(0, max(len(line) - _OVERLAP, 1), _WINDOW - _OVERLAP):
        yield line[start : start + _WINDOW]
