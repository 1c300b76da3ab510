"""What the engine may ask for: a closed set of frozen records. The engine yields one, a driver answers it.

Precedents: httpx `Auth.auth_flow`, psycopg `generators.py`. A failure is thrown back in at the line that asked, so retry, splitting and the
benefit check are ordinary Python, written once for sync and async.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

from langchain_core.messages import BaseMessage

from langgraph_roundcompact.events import CompactionEvent, CompactionReview

T = TypeVar("T")

DecisionKind = Literal["threshold_check", "span_built", "tier", "compression_retry", "audit", "gate", "archive", "done"]


@dataclass(frozen=True, slots=True)
class Count:
    """How many tokens do these messages hold? Answer: int. A user's counter may block."""

    messages: Sequence[BaseMessage]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureWindow:
    """How full is the window? Answer: `WindowCount`. `exact`: without the shortcuts of the check at every step."""

    messages: Sequence[BaseMessage]
    round_start: int
    stale_before: int
    system_message: BaseMessage | str | None
    tools: Sequence[Any] | None
    exact: bool


@dataclass(frozen=True, slots=True)
class Offload:
    """From here on the work between effects is heavy: an event loop should not wait for it. Answer: None."""


@dataclass(frozen=True, slots=True)
class CallModel:
    """Ask the summariser. Answer: what the model returned."""

    messages: Sequence[BaseMessage]
    timeout_seconds: float
    model: Any = None
    """The agent's own model as its live request has it, tools bound, for a request that continues that one; None: the summariser."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait before the next try; the driver adds jitter. Answer: None."""

    seconds: float
    until: float | None = None
    """A date that the provider asks to wait for, in seconds since the epoch."""
    most: float = 120.0
    """Seconds that waiting for the date may take at most."""


@dataclass(frozen=True, slots=True)
class Memo:
    """Read (`value` is None) or write a bounded table. Answer: the value of the first key that is known, or None."""

    table: Literal["summaries", "failures", "stand_ins"]
    keys: tuple[str, ...]
    value: Any = None


@dataclass(frozen=True, slots=True)
class ReadStore:
    """An item of the graph's store. Answer: its value, or None."""

    namespace: tuple[str, ...]
    key: str


@dataclass(frozen=True, slots=True)
class WriteArchive:
    """Write the replaced originals. Answer: None; anything but success raises."""

    key: str
    record: dict[str, Any]
    thread_id: str | None


@dataclass(frozen=True, slots=True)
class Emit:
    """Tell observers and the `custom` stream. Answer: None."""

    event: CompactionEvent


@dataclass(frozen=True, slots=True)
class Warn:
    """Say something in the log, once for each key. Answer: True when it was said now."""

    key: str
    text: str


@dataclass(frozen=True, slots=True)
class WriteDump:
    """Write the record of a finished compaction to disk. Answer: None, also when the disk is full."""

    record: dict[str, Any]
    thread_id: str | None


@dataclass(frozen=True, slots=True)
class Record:
    """Note one decision for the debug records. Asked for only where dumping is switched on. Answer: None, also when the disk is full."""

    kind: DecisionKind
    data: dict[str, Any]
    """Plain data, secrets out."""


@dataclass(frozen=True, slots=True)
class Review:
    """Show a checkpoint before it is applied. Answer: what the reviewer said, in any form; or the run is interrupted here."""

    review: CompactionReview
    by: Any
    """The user's callable; anything else: the run is interrupted."""


@dataclass(frozen=True, slots=True)
class ShownBefore:
    """What was shown for review before this step was run again. Answer: the review of that key, or None."""

    key: str


Effect: TypeAlias = (
    Count | MeasureWindow | Offload | CallModel | Sleep | Memo | ReadStore | WriteArchive | Emit | Warn | WriteDump | Record | Review | ShownBefore
)
Flow: TypeAlias = Generator[Effect, Any, T]
