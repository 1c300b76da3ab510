"""Input of the engine: the parts a compactor was built from (`Parts`), and one check of one window (`Job`). Plain frozen records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import BaseMessage

from langgraph_roundcompact._session_memory import SessionMemory
from langgraph_roundcompact._spans import IsPending, IsRealUser
from langgraph_roundcompact._window import Limits
from langgraph_roundcompact.config import RoundCompactConfig
from langgraph_roundcompact.reinject import ReinjectBuilder
from langgraph_roundcompact.tiers import Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything that stays the same from step to step."""

    config: RoundCompactConfig
    estimate: Callable[[str], int]
    """Tokens of a text, quickly."""
    tiers: tuple[Tier, ...]
    reinjectors: Mapping[str, ReinjectBuilder]
    is_real_user: IsRealUser
    is_pending: IsPending
    redact: Callable[[str], str]
    model_key: str | None
    """Tells summarisers apart in the memo; None: there is no model."""
    session_memory: SessionMemory | None = None
    """Where the application keeps notes of the round."""
    has_archive: bool = False
    records: bool = False
    """Whether decisions and compactions are noted for the dump."""
    passes: tuple[type[BaseException], ...] = ()
    """Exceptions that are the host's control flow and pass through untouched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCall:
    """The agent's own next request, for a summary request that continues it. Built only when it is needed: binding tools takes time."""

    model: Callable[[], Any]
    """The agent's model, with tools and settings as its live request has them. May raise."""
    sent: Callable[[Sequence[BaseMessage]], Sequence[BaseMessage]]
    """What is sent for a window: the system message in front, and what the door changes in requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One check of one window."""

    messages: Sequence[BaseMessage]
    given: Sequence[BaseMessage] | None = None
    """The list as it was handed over, where something was taken out of it beforehand."""
    limits: Limits
    summariser_window: int
    """Capacity of the summariser, in tokens."""
    state: object = None
    system_message: BaseMessage | str | None = None
    tools: Sequence[Any] | None = None
    focus: str | None = None
    force: bool = False
    thread_id: str | None = None
    idle_seconds: float | None = None
    readable: bool = True
    """False: something in the list is not a message in any known form, so nothing about it can be decided."""
    by_id: bool = True
    """The channel removes by id."""
    writes_state: bool = True
    """False: the door returns a list and leaves the state alone, so a finished checkpoint must be found again at each step."""
    last_resort: bool = False
    """The agent's own model overflowed: without a summary rules make the checkpoint."""
    review: Any = None
    """True, or the user's callable: a checkpoint is shown before it is applied."""
    task_id: str = ""
    """The host's task around us, where it is run again from its start when an interrupt is answered."""
    origin: Any = None
    """Set by `_standing`: where the messages come from when a stand-in is among them."""
    native_compaction: bool = False
    """The model compacts by itself."""
    agent_call: AgentCall | None = None
    """None: a summary is asked for with a transcript."""
    store_items: Mapping[str, Any] = field(default_factory=dict)
