"""Redaction by the detectors of `detect-secrets` on top of the default one: `pip install "langgraph-roundcompact[secrets]"`.

    compactor = RoundCompactor(model, redact=thorough_redact())

The library follows the token forms of providers more closely than a list of our own can. It costs about a second a megabyte, once for each text of
a round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from langgraph_roundcompact._redact import default_redact
from langgraph_roundcompact._secret_judge import MARK

__all__ = ["thorough_redact"]

_PIECE: Final = 2_000
"""Characters that a detector looks at in one go: some of its patterns take time with the square of that."""
_OVERLAP: Final = 400
"""Of a longer line, what the next piece repeats: tokens are shorter."""
_LEAST: Final = 8
_NOT_ASKED: Final = frozenset({"IPPublicDetector", "PrivateKeyDetector"})
"""An address is no secret; of a private key the detector names the heading alone, and the default redaction takes the whole."""


def thorough_redact(redact: Callable[[str], str] = default_redact) -> Callable[[str], str]:
    """A redaction for `RoundCompactor(redact=...)`: `redact` first, then what the detectors of `detect-secrets` find in its result.

    Args:
        redact: What runs first.

    Raises:
        ImportError: The extra `secrets` is not installed.
    """
    detectors = _detectors()

    def thorough(text: str) -> str:
        text = redact(text)
        found = {secret for piece in _pieces(text) for detector in detectors for secret in detector.analyze_string(piece)}
        # Longest first: one may hold another.
        for secret in sorted(found, key=lambda secret: (-len(secret), secret)):
            if len(secret) >= _LEAST and MARK not in secret:
                text = text.replace(secret, MARK)
        return text

    return thorough


def _detectors() -> Sequence[Any]:
    """Those that know a secret by its form. Made once; they hold no state, so threads may share them."""
    try:
        from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class  # noqa: PLC0415 - an extra
        from detect_secrets.plugins.base import RegexBasedDetector  # noqa: PLC0415
    except ImportError as exc:
        msg = 'thorough_redact needs detect-secrets: pip install "langgraph-roundcompact[secrets]"'
        raise ImportError(msg) from exc
    kinds: list[Any] = list(get_mapping_from_secret_type_to_class().values())
    return [kind() for kind in kinds if issubclass(kind, RegexBasedDetector) and kind.__name__ not in _NOT_ASKED]


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces of whole lines; longer lines in pieces that overlap."""
    held: list[str] = []
    size = 0
    for line in text.splitlines():
        if size + len(line) > _PIECE and held:
            yield "\n".join(held)
            held, size = [], 0
        if len(line) > _PIECE:
            yield from (line[at : at + _PIECE] for at in range(0, len(line), _PIECE - _OVERLAP))
        else:
            held.append(line)
            size += len(line) + 1
    if held:
        yield "\n".join(held)
