"""Configuration as a value: keyword-only, frozen, validated once at construction, equal configurations hash equal.

Units are in the names: tokens, seconds, groups (one AI message with all results of its calls), ratios of the capacity.
Anything that does not fit is a `ConfigurationError` that names the field, the value and the remedy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NoReturn, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, SecretStr, StrictBool, StrictInt, ValidationError, field_validator, model_validator

from langgraph_roundcompact.errors import ConfigurationError

ReinjectName = Literal["plan_mode", "plan", "task_status", "todo", "skills", "read_file"]
"""The builders that put state back, in their default order."""

REINJECT_NAMES: tuple[str, ...] = get_args(ReinjectName)

_OWN_NAME = re.compile(r"[A-Za-z0-9_.-]+(:[A-Za-z0-9_.-]+)+")
"""Name of a user's own builder: the colon distinguishes it from a misspelt built-in name."""

_MOVED = {
    "enable_recall": "compression_recall=CompressionRecallConfig(enabled=...)",
    "recall_chunk_size_tokens": "compression_recall=CompressionRecallConfig(chunk_size_tokens=...)",
    "recall_chunk_overlap_tokens": "compression_recall=CompressionRecallConfig(chunk_overlap_tokens=...)",
}

_MAY_HOLD_SECRETS = frozenset({"model_client", "api_key", "api_base"})

PositiveInt = Annotated[StrictInt, Field(gt=0)]
NonNegativeInt = Annotated[StrictInt, Field(ge=0)]


class _Value(BaseModel):
    """A frozen record; whatever is wrong with a value is raised as `ConfigurationError`."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False, use_attribute_docstrings=True)

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as exc:
            raise ConfigurationError(_explain(type(self), exc, data)) from None

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """A value from a mapping; errors are raised in the same way."""
        return cls(**obj) if isinstance(obj, dict) and not options else super().model_validate(obj, **options)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:  # noqa: ARG002 - frozen values need no deep copy
        """A new value with some fields changed; unlike pydantic's own, it is checked like any other."""
        fields = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**fields, **(update or {})})

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        msg = f"{type(self).__name__}.{name} cannot be assigned: configurations are frozen. Make a new one, for example with model_copy(update=...)."
        raise ConfigurationError(msg)


class ModelClientConfig(_Value):
    """Where a summariser named by `RoundCompactConfig.model` is reached."""

    provider: str = "openai"
    """Names resolve through langchain-openai (`"openai"` or any OpenAI-compatible server); other providers pass a model object."""
    api_base: str | None = Field(default=None, repr=False)
    """Base URL of the server; `None`: the provider's environment says where. Not in the repr: a URL may hold a password."""
    api_key: SecretStr | None = None
    """The key, kept as a secret; `None`: the provider's environment."""
    timeout_seconds: Annotated[float, Field(gt=0)] | None = None
    """Time limit of one request, in seconds."""


class CompressionRecallConfig(_Value):
    """Whether replaced originals are archived, and the sizes of the chunks that recall searches."""

    enabled: StrictBool = False
    """Archive the originals, if the compactor was given an archive."""
    chunk_size_tokens: PositiveInt = 3000
    """Size of one chunk, in tokens."""
    chunk_overlap_tokens: NonNegativeInt = 300
    """Tokens that neighbouring chunks share; smaller than the chunk."""

    @model_validator(mode="after")
    def _overlap_below_size(self) -> CompressionRecallConfig:
        if self.chunk_overlap_tokens >= self.chunk_size_tokens:
            msg = f"chunk_overlap_tokens={self.chunk_overlap_tokens} must be smaller than chunk_size_tokens={self.chunk_size_tokens}"
            raise ValueError(msg)
        return self


class RoundCompactConfig(_Value):
    """How and when the work of the current round is compacted. All fields are keywords; the value is frozen and hashable.

    Raises:
        ConfigurationError: a value is out of range, a name is unknown, or a field has moved.
    """

    trigger_context_ratio: Annotated[float, Field(gt=0, lt=1)] = 0.8
    """Act when the window holds at least `max(int(capacity * ratio), 1)` tokens."""
    min_target_context_ratio: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Skip when the new work since the last checkpoint holds fewer tokens than `capacity * ratio`."""
    keep_recent_messages: NonNegativeInt | None = None
    """Messages kept at the end; grows so that no group is cut. `None`: what the model has not read yet stays. `0`: the whole round goes."""
    model: str | None = None
    """Name of the summariser; an object goes to `RoundCompactor(model=...)`, which beats this name."""
    model_client: ModelClientConfig | None = None
    """Where `model` is reached."""
    enable_compression_dump: StrictBool = False
    """Write each real compaction to disk."""
    compression_dump_dir: str | None = None
    """Folder of the dumps; `{thread_id}` and `{checkpoint_ns}` are filled in."""
    enable_kv_cache_affinity: StrictBool = False
    """Ask for the summary with the agent's own request plus one instruction, so that the provider's prefix cache serves it.

    Only where the summariser is the agent's own model (the same object, or one with equal settings) and its answer is free: no forced tool call,
    no response format, no chain of response ids. Otherwise, where the request does not fit, and after an answer that is no summary, a transcript
    is sent. `redact` does not apply to the agent's request, only to what comes of it.
    """
    compression_recall: CompressionRecallConfig = CompressionRecallConfig()
    """Archive and chunk sizes; off by default."""
    trigger_token_threshold: PositiveInt | None = None
    """Absolute trigger in tokens; beats the ratio."""
    context_window_tokens: PositiveInt | None = None
    """Capacity in tokens; `None`: the active model's profile, else 200 000 with one warning."""
    target_context_ratio: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Where a compaction tries to bring the window; below the trigger ratio. Never above 0.625 x the effective trigger."""
    round_budget_tokens: PositiveInt | None = None
    """The most that checkpoint, recovered context and folded messages take together. `None`: what the target leaves beside the prefix."""
    summary_max_tokens: PositiveInt | None = None
    """Part of the budget for the summary text. `None`: by measurement."""
    reinject_max_tokens: PositiveInt | None = None
    """Part of the budget for the recovered context. `None`: by measurement."""
    ledger_max_tokens: PositiveInt | None = None
    """Part of the budget for the ledger. `None`: what summary and recovered context leave."""
    reclaim_at_least_tokens: NonNegativeInt | None = None
    """The least gain for which a tier touches anything. `None`: by measurement."""
    max_retries: NonNegativeInt = 2
    """More tries after a passing failure of the summariser."""
    timeout_seconds: Annotated[float, Field(ge=0)] = 120.0
    """Time limit of one summary request, in seconds; `0`: none."""
    cooldown_groups: NonNegativeInt = 3
    """New groups to wait for after a failed compaction."""
    breaker_failures: NonNegativeInt = 3
    """Failed compactions in a row after which rules make the checkpoint; `0`: never."""
    on_summary_failure: Literal["keep", "digest"] = "keep"
    """What happens when no summary could be had: the window stays, or rules make the checkpoint."""
    summariser: Literal["model", "digest"] = "model"
    """`"digest"`: rules make the checkpoint even when there is a model."""
    require_snapshot: StrictBool = False
    """Refuse an answer without a `<state_snapshot>` block."""
    archive_required: StrictBool = False
    """No archive, no compaction."""
    checkpoint_role: Literal["user", "tool"] = "user"
    """How the checkpoint is delivered: as a user message, or, where two in a row are refused, as a finished call-and-result pair."""
    reinject: tuple[str, ...] = REINJECT_NAMES
    """Which builders put state back, in this order. `()` puts nothing back.

    A builder of your own (`RoundCompactor(reinjectors=...)`) follows those that are listed, or has its place here under a name with a colon:
    `("plan", "my:notes", "todo")`.
    """

    @model_validator(mode="before")
    @classmethod
    def _moved_fields(cls, data: Any) -> Any:
        moved = sorted(_MOVED.keys() & data.keys()) if isinstance(data, dict) else []
        if moved:
            raise ValueError("; ".join(f"{name} has moved: use {_MOVED[name]}" for name in moved))
        return data

    @field_validator("trigger_context_ratio", "min_target_context_ratio", "target_context_ratio", "timeout_seconds", mode="before")
    @classmethod
    def _numbers_only(cls, value: Any) -> Any:
        if isinstance(value, bool | str):
            msg = f"a number is needed, not {type(value).__name__}"
            raise ValueError(msg)
        return value

    @field_validator("reinject", mode="before")
    @classmethod
    def _names_once(cls, value: Any) -> Any:
        if isinstance(value, str):
            msg = f"a sequence of names is needed; for one builder write ({value!r},)"
            raise ValueError(msg)
        if not isinstance(value, Sequence):
            msg = f"a sequence of names is needed, not {type(value).__name__}; () puts nothing back"
            raise ValueError(msg)
        names = tuple(value)
        if any(name in names[:i] for i, name in enumerate(names)):
            msg = f"each builder once, got {names}"
            raise ValueError(msg)
        unknown = [name for name in names if name not in REINJECT_NAMES and not (isinstance(name, str) and _OWN_NAME.fullmatch(name))]
        if unknown:
            known = ", ".join(map(repr, REINJECT_NAMES[:-1]))
            msg = f"{unknown[0]!r:.80} is none of {known} or {REINJECT_NAMES[-1]!r}; a builder of your own is listed by a name like 'my:notes'"
            raise ValueError(msg)
        return names

    @model_validator(mode="after")
    def _consistent(self) -> RoundCompactConfig:
        if self.target_context_ratio is not None and self.trigger_token_threshold is None and self.target_context_ratio >= self.trigger_context_ratio:
            msg = f"target_context_ratio={self.target_context_ratio} must be below trigger_context_ratio={self.trigger_context_ratio}"
            raise ValueError(msg)
        if self.model_client is not None and self.model is None:
            msg = "model_client says where a named model is reached: give model='...' too"
            raise ValueError(msg)
        return self


_BUDGET_PARTS = ("summary_max_tokens", "reinject_max_tokens", "ledger_max_tokens")


def without_effect(config: RoundCompactConfig) -> list[str]:
    """Fields that others leave without effect, each as one line with its value and what to give; for a warning.

    No errors: a limit that is never met is also how people write "no limit", and a trigger above the window how they write "never".
    """
    window, absolute, budget = config.context_window_tokens, config.trigger_token_threshold, config.round_budget_tokens
    trigger = absolute or (max(int(window * config.trigger_context_ratio), 1) if window else None)
    told = []
    if window and absolute and absolute >= window:
        told.append(
            f"trigger_token_threshold={absolute} is not below context_window_tokens={window}: a request is refused before it is met; give less"
        )
    ratio = config.target_context_ratio
    if window and absolute and ratio is not None and int(window * ratio) >= absolute:
        told.append(
            f"target_context_ratio={ratio} of {window} tokens is not below trigger_token_threshold={absolute}: give less than {absolute / window:.2f}"
        )
    for name in ("round_budget_tokens", *_BUDGET_PARTS):
        tokens = getattr(config, name)
        if tokens is not None and budget is not None and tokens > budget:
            told.append(f"{name}={tokens} is part of round_budget_tokens={budget}: give at most that, or raise the budget")
        elif tokens is not None and trigger is not None and tokens > trigger:
            told.append(f"{name}={tokens} would fill the window over its trigger of {trigger} tokens by itself: give less")
    return told


def _explain(cls: type[BaseModel], exc: ValidationError, data: dict[str, Any]) -> str:
    """One line a fault: field, value, what is wrong, what to do."""
    known = ", ".join(sorted(cls.model_fields))
    lines = []
    for error in exc.errors():
        name = ".".join(str(part) for part in error["loc"])
        if error["type"] == "extra_forbidden":
            lines.append(f"unknown field {name!r}; known fields: {known}")
        elif not name:
            lines.append(error["msg"].removeprefix("Value error, "))
        else:
            field = str(error["loc"][0])
            shown = "**********" if field in _MAY_HOLD_SECRETS else repr(data.get(field))[:80]
            lines.append(f"{name}={shown}: {error['msg'].removeprefix('Value error, ')}")
    return f"{cls.__name__}: " + "; ".join(lines)
