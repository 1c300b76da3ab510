"""Exceptions in the log: type and place, never the text, which may quote a message or hold a secret."""

from __future__ import annotations

import re
import traceback
from typing import Final

from langgraph_roundcompact._error_text import chain_of

_FRAMES: Final = 4
"""Innermost frames that are told: the place, and how it was reached."""
_FOLDER = re.compile(r".*[/\\]", re.DOTALL)


def told(exc: BaseException) -> str:
    """What went wrong and where, for somebody who has the code: `KeyError at app.py:12 in fold < _ladder.py:254 in _call, from ValueError`."""
    frames = [f"{_FOLDER.sub('', frame.f_code.co_filename)}:{line} in {frame.f_code.co_name}" for frame, line in traceback.walk_tb(exc.__traceback__)]
    causes = [f", from {type(cause).__name__}" for cause in list(chain_of(exc))[1:]]
    place = f" at {' < '.join(reversed(frames[-_FRAMES:]))}" if frames else ""
    return f"{type(exc).__name__}{place}{''.join(causes)}"
