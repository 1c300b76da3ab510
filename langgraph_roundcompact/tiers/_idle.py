"""How long the provider's prefix cache lay unused, from timestamps on messages, where a framework or the caller put some there."""

from __future__ import annotations

import calendar
import re
from collections.abc import Sequence

from langchain_core.messages import AIMessage, BaseMessage

_KEYS = ("timestamp", "created_at", "created", "time")
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:\.\d{1,9})?)?\s?(Z|[+-]\d\d:?\d\d)?")
_MILLISECONDS_FROM = 1e11
"""Numbers above this are milliseconds: as seconds they would be in the year 5138."""


def idle_seconds(messages: Sequence[BaseMessage]) -> float | None:
    """Seconds between the model's last answer and the newest message after it; None where the timestamps do not say."""
    answered = next((i for i in range(len(messages) - 1, -1, -1) if isinstance(messages[i], AIMessage)), None)
    start = _time_of(messages[answered]) if answered is not None else None
    if answered is None or start is None:
        return None
    later = [time for message in messages[answered + 1 :] if (time := _time_of(message)) is not None]
    return max(max(later) - start, 0.0) if later else None


def _time_of(message: BaseMessage) -> float | None:
    """Seconds since 1970; None without a timestamp in a known form."""
    for held in (message.additional_kwargs, message.response_metadata):
        for key in _KEYS:
            time = _seconds(held.get(key))
            if time is not None:
                return time
    return None


def _seconds(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return (value / 1000 if value > _MILLISECONDS_FROM else float(value)) if 0 < value < 1e15 else None
    found = _ISO.match(value) if isinstance(value, str) else None
    if found is None:
        return None
    year, month, day, hour, minute = (int(part) for part in found.groups()[:5])
    if not (year >= 1970 and 1 <= month <= 12 and 1 <= day <= 31):
        return None
    zone = found[7] or "Z"
    offset = 0 if zone == "Z" else (int(zone[1:3]) * 60 + int(zone[-2:])) * 60 * (1 if zone[0] == "+" else -1)
    return float(calendar.timegm((year, month, day, hour, minute, int(found[6] or 0), 0, 1, 0)) - offset)
