"""Events, results and plans: frozen records, the words in them are closed sets of literals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from langchain_core.messages import BaseMessage

from langgraph_roundcompact.errors import ErrorKind

Outcome = Literal[
    "below_trigger",
    "nothing_to_compact",
    "target_below_min",
    "tiers_sufficed",
    "summarised",
    "digested",
    "no_benefit",
    "cooling_down",
    "stood_down",
    "failed",
]
"""How a check ended. `tiers_sufficed` changes messages without a checkpoint; `summarised` and `digested` made one; the others changed nothing."""

PlainReason = Literal[
    "",
    "below_threshold",
    "reached_threshold",
    "forced",
    "no_compressible_span",
    "pending_only",
    "prefix_over_trigger",
    "no_new_work",
    "target_below_min",
    "foreign_compaction",
    "native_compaction",
    "run_is_paused",
    "thread_changed",
    "rejected",
    "no_ids",
    "unreadable_messages",
    "summary_rejected",
    "not_smaller",
    "cooldown",
    "breaker_open",
    "no_model",
    "digest_chosen",
    "session_memory",
    "redact_refused",
    "archive_failed",
    "invalid_result",
    "internal_error",
]
Reason = PlainReason | ErrorKind
"""Why. The error kinds name what the summariser answered last."""

Phase = Literal["started", "finished", "skipped", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One request to the summariser."""

    number: int
    """From 1."""
    kind: Literal["ok", "rejected"] | ErrorKind
    detail: str = ""
    """The reason of a rejection, or the type of the error and the beginning of its text, redacted."""
    request_tokens: int = 0
    """Estimated tokens of the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """Which key facts of the replaced work the checkpoint holds, each as one line of text."""

    kept: tuple[str, ...] = ()
    """Found verbatim in the summary, or in the recovered context beside it."""
    added: tuple[str, ...] = ()
    """Not in the summary; put into the ledger."""
    dropped: tuple[str, ...] = ()
    """Did not fit, least useful first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionEvent:
    """One thing that happened, for observers (`on_event`) and for the `custom` stream."""

    phase: Phase
    outcome: Outcome | None = None
    reason: Reason = ""
    tokens_before: int = 0
    tokens_after: int = 0
    thread_id: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    """Plain data, depending on the phase."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data for a stream: `{"type": "round_compaction", "phase": ..., ...}`."""
        return {
            "type": "round_compaction",
            "phase": self.phase,
            "outcome": self.outcome,
            "reason": self.reason,
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            **dict(self.details),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionReview:
    """A checkpoint that waits for a reviewer's decision. `as_dict` of it is what `interrupt()` shows."""

    summary: str
    """The narrative, redacted: the part that may be edited."""
    checkpoint: str
    """The whole text that would take the place of the work, facts and pointers included."""
    outcome: Outcome
    """`summarised`, or `digested` where rules made it."""
    reason: Reason
    replaced_messages: int
    tokens_before: int
    """Window now, in tokens."""
    tokens_after: int
    """Window with the checkpoint, in tokens."""
    covers: Mapping[str, Any] = field(default_factory=dict)
    """Plain data by which the step finds this text again when the run is resumed."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data: `{"type": "round_compaction_review", "summary": ..., ...}`."""
        return {
            "type": "round_compaction_review",
            "summary": self.summary,
            "checkpoint": self.checkpoint,
            "outcome": self.outcome,
            "reason": self.reason,
            "replaced_messages": self.replaced_messages,
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "covers": dict(self.covers),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CompactionReview:
        """Read back what `as_dict` gave."""
        return cls(**{name: data[name] for name in cls.__dataclass_fields__})


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """What `compact` would do with this input now, and why. Made without a model call."""

    would_compact: bool
    outcome: Outcome | None
    """The outcome that is already certain; `None` when the summariser decides."""
    reason: Reason
    window_tokens: int
    capacity_tokens: int
    trigger_tokens: int
    target_tokens: int
    """Where the window should come to."""
    round_budget_tokens: int
    """What checkpoint, recovered context and folds may take together."""
    prefix_messages: int
    target_messages: int
    tail_messages: int
    new_work_tokens: int
    """Tokens of the target that are newer than the last checkpoint."""

    def explain(self) -> str:
        """The plan in one sentence a person can act on."""
        doing = "would compact" if self.would_compact else "would leave the window alone"
        return (
            f"{doing} ({self.reason or 'ready'}): window {self.window_tokens:,} of {self.capacity_tokens:,} tokens, trigger {self.trigger_tokens:,}, "
            f"target {self.target_tokens:,}; {self.prefix_messages} messages preserved, {self.target_messages} replaceable "
            f"({self.new_work_tokens:,} tokens of new work), {self.tail_messages} kept at the end{self._how()}"
        )

    def _how(self) -> str:
        ways = {"tiers_sufficed": "folding results suffices", "digested": "rules make the checkpoint", None: "the summariser is asked"}
        return f"; {ways[self.outcome]}" if self.would_compact and self.outcome in ways else ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CompactionResult:
    """What a check did. `messages` is always a usable list, whatever happened."""

    messages: list[BaseMessage]
    """The new list; the given messages when nothing changed."""
    update: dict[str, Any]
    """What a node returns for the compactor's channel; `{}` when nothing changed."""
    changed: bool
    """Any message differs."""
    compacted: bool
    """A lossy checkpoint was made."""
    outcome: Outcome
    reason: Reason
    tokens_before: int
    """Window before, in tokens: messages, and system prompt and tools where they were given."""
    tokens_after: int
    memory_message: BaseMessage | None = None
    """The checkpoint."""
    archive_id: str | None = None
    attempts: tuple[Attempt, ...] = ()
    usage: Mapping[str, Any] | None = None
    """Usage reported by the summariser, summed over the attempts (`input_tokens`, `output_tokens`, `total_tokens`, `input_token_details`)."""
    audit: Audit | None = None

    def __repr__(self) -> str:
        """What happened, without the messages: a window of them would fill the screen."""
        size = f"{self.tokens_before:,} -> {self.tokens_after:,} tokens"
        return f"CompactionResult({self.outcome!r}, {self.reason!r}, {size}, {len(self.messages)} messages, changed={self.changed})"
