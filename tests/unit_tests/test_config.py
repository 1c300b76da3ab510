"""Configuration is a value: checked once at construction, frozen, comparable, and silent about secrets."""

from __future__ import annotations

import ast
import copy
import inspect
import itertools
import pickle
import traceback
from typing import Any, get_args

import pytest
from pydantic import SecretStr, ValidationError

from langgraph_roundcompact import (
    CompressionRecallConfig,
    ConfigurationError,
    ModelClientConfig,
    RoundCompactConfig,
    RoundCompactError,
    RoundCompactor,
)
from langgraph_roundcompact.config import REINJECT_NAMES, ReinjectName

DEFAULTS = {
    "trigger_context_ratio": 0.8,
    "min_target_context_ratio": 0.1,
    "keep_recent_messages": None,
    "model": None,
    "model_client": None,
    "enable_compression_dump": False,
    "compression_dump_dir": None,
    "enable_kv_cache_affinity": False,
    "compression_recall": CompressionRecallConfig(),
    "trigger_token_threshold": None,
    "context_window_tokens": None,
    "target_context_ratio": None,
    "round_budget_tokens": None,
    "summary_max_tokens": None,
    "reinject_max_tokens": None,
    "ledger_max_tokens": None,
    "reclaim_at_least_tokens": None,
    "max_retries": 2,
    "timeout_seconds": 120.0,
    "cooldown_groups": 3,
    "breaker_failures": 3,
    "on_summary_failure": "keep",
    "summariser": "model",
    "require_snapshot": False,
    "archive_required": False,
    "checkpoint_role": "user",
    "reinject": ("plan_mode", "plan", "task_status", "todo", "skills", "read_file"),
}

_TOKENS = (
    "trigger_token_threshold",
    "context_window_tokens",
    "round_budget_tokens",
    "summary_max_tokens",
    "reinject_max_tokens",
    "ledger_max_tokens",
)
_COUNTS = ("keep_recent_messages", "reclaim_at_least_tokens", "max_retries", "cooldown_groups", "breaker_failures")
_SWITCHES = ("enable_compression_dump", "enable_kv_cache_affinity", "require_snapshot", "archive_required")

REFUSED: list[tuple[str, Any, str]] = [
    *(
        ("trigger_context_ratio", value, remedy)
        for value, remedy in [(0, "greater than 0"), (1, "less than 1"), (-0.1, "greater than 0"), (80, "less than 1")]
    ),
    *(("min_target_context_ratio", value, remedy) for value, remedy in [(-0.1, "greater than or equal to 0"), (1, "less than 1")]),
    *(("target_context_ratio", value, remedy) for value, remedy in [(0, "greater than 0"), (1, "less than 1"), ("0.5", "a number is needed")]),
    *(("trigger_context_ratio", value, "a number is needed") for value in ("0.5", True)),
    *(("trigger_context_ratio", value, "finite") for value in (float("nan"), float("inf"))),
    *((name, value, "greater than 0") for name in _TOKENS for value in (0, -1)),
    *((name, value, "integer") for name in _TOKENS for value in (1.5, "100", True)),
    *((name, -1, "greater than or equal to 0") for name in _COUNTS),
    *((name, value, "integer") for name in _COUNTS for value in (2.5, "3", True)),
    *((name, value, "boolean") for name in _SWITCHES for value in ("yes", 1, None)),
    ("timeout_seconds", -1, "greater than or equal to 0"),
    ("timeout_seconds", float("inf"), "finite"),
    ("timeout_seconds", None, "number"),
    ("on_summary_failure", "retry", "'keep' or 'digest'"),
    ("summariser", "rules", "'model' or 'digest'"),
    ("checkpoint_role", "system", "'user' or 'tool'"),
    ("model", 7, "string"),
    ("compression_dump_dir", 7, "string"),
    ("compression_recall", True, "CompressionRecallConfig"),
    ("compression_recall", {"chunk_size_tokens": 0}, "greater than 0"),
    ("reinject", "todo", "('todo',)"),
    ("reinject", ("todo", "todo"), "once"),
    ("reinject", ("nope",), "'plan_mode', 'plan', 'task_status', 'todo', 'skills' or 'read_file'"),
    ("reinject", (["todo"],), "'plan_mode'"),
    ("reinject", 7, "a sequence of names is needed"),
    ("reinject", None, "()"),
    ("reinject", {"todo": 1}, "a sequence of names is needed"),
]


def test_every_field_has_its_documented_default() -> None:
    assert {name: getattr(RoundCompactConfig(), name) for name in RoundCompactConfig.model_fields} == DEFAULTS


def test_every_field_has_a_docstring_with_its_meaning() -> None:
    for kind in (RoundCompactConfig, ModelClientConfig, CompressionRecallConfig):
        body = ast.parse(inspect.getsource(kind)).body[0].body  # type: ignore[attr-defined]
        for field, after in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign):
                assert isinstance(after, ast.Expr), ast.unparse(field)


def test_every_field_is_checked() -> None:
    assert {name for name, _, _ in REFUSED} >= DEFAULTS.keys() - {"model_client"}


@pytest.mark.parametrize(("name", "value", "remedy"), REFUSED, ids=[f"{name}={value!r}" for name, value, _ in REFUSED])
def test_a_refusal_names_field_value_and_remedy(name: str, value: Any, remedy: str) -> None:
    with pytest.raises(ConfigurationError) as told:
        RoundCompactConfig(**{name: value})
    text = str(told.value)
    assert name in text
    assert remedy in text
    assert "\n" not in text
    if isinstance(value, str | int | float):
        assert repr(value) in text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("trigger_context_ratio", value) for value in (0.001, 0.999)),
        *(("min_target_context_ratio", value) for value in (0, 0.999)),
        *((name, 1) for name in _TOKENS),
        *((name, 0) for name in _COUNTS),
        ("keep_recent_messages", None),
        ("timeout_seconds", 0),
        ("reinject", ()),
        ("reinject", ["todo", "plan"]),
    ],
)
def test_the_borders_are_accepted(name: str, value: Any) -> None:
    config = RoundCompactConfig(**{name: value})
    assert getattr(config, name) == (tuple(value) if isinstance(value, list) else value)


def test_a_target_must_lie_below_the_trigger() -> None:
    with pytest.raises(ConfigurationError, match=r"target_context_ratio=0.8 must be below trigger_context_ratio=0.8"):
        RoundCompactConfig(target_context_ratio=0.8)
    assert RoundCompactConfig(target_context_ratio=0.79).target_context_ratio == 0.79


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"trigger_token_threshold": 5000, "context_window_tokens": 4000}, "trigger_token_threshold=5000 is not below context_window_tokens=4000"),
        ({"trigger_token_threshold": 4000, "context_window_tokens": 4000}, "trigger_token_threshold=4000 is not below context_window_tokens=4000"),
        (
            {"target_context_ratio": 0.9, "trigger_token_threshold": 1000, "context_window_tokens": 1250},
            "target_context_ratio=0.9 of 1250 tokens is not below trigger_token_threshold=1000: give less than 0.80",
        ),
        ({"reinject_max_tokens": 6401, "context_window_tokens": 8000}, "reinject_max_tokens=6401 would fill the window over its trigger of 6400"),
        ({"summary_max_tokens": 1001, "trigger_token_threshold": 1000}, "summary_max_tokens=1001 would fill the window over its trigger of 1000"),
        ({"ledger_max_tokens": 9999, "context_window_tokens": 8000}, "ledger_max_tokens=9999 would fill the window over its trigger of 6400"),
        ({"round_budget_tokens": 9999, "context_window_tokens": 8000}, "round_budget_tokens=9999 would fill the window over its trigger of 6400"),
        ({"round_budget_tokens": 500, "reinject_max_tokens": 501}, "reinject_max_tokens=501 is part of round_budget_tokens=500: give at most that"),
    ],
)
def test_fields_without_effect_are_told_with_what_to_give(fields: dict[str, Any], words: str, caplog: pytest.LogCaptureFixture) -> None:
    """Not refused: a limit that is never met also says "no limit"."""
    RoundCompactor(config=RoundCompactConfig(**fields))
    assert [record.message for record in caplog.records if words in record.message and record.levelname == "WARNING"] != []


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"trigger_token_threshold": 3999, "context_window_tokens": 4000},
        {"trigger_token_threshold": 10**6},
        {"target_context_ratio": 0.9, "trigger_token_threshold": 1000},
        {"reinject_max_tokens": 6400, "summary_max_tokens": 6400, "context_window_tokens": 8000},
        {"reinject_max_tokens": 10**6},
        {"round_budget_tokens": 500, "summary_max_tokens": 500, "ledger_max_tokens": 500},
    ],
    ids=str,
)
def test_fields_that_can_hold_together_give_no_warning(fields: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    RoundCompactor(config=RoundCompactConfig(**fields))
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == []


def test_an_overlap_must_be_smaller_than_the_chunk() -> None:
    with pytest.raises(ConfigurationError, match="chunk_overlap_tokens=300 must be smaller than chunk_size_tokens=300"):
        RoundCompactConfig(compression_recall={"chunk_size_tokens": 300})  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="chunk_overlap_tokens=5 must be smaller than chunk_size_tokens=5"):
        CompressionRecallConfig(chunk_size_tokens=5, chunk_overlap_tokens=5)


def test_where_a_model_is_needs_to_say_which() -> None:
    with pytest.raises(ConfigurationError, match=r"model_client .* give model="):
        RoundCompactConfig(model_client=ModelClientConfig())


@pytest.mark.parametrize("kind", [RoundCompactConfig, ModelClientConfig, CompressionRecallConfig])
def test_an_unknown_name_is_refused_with_the_known_ones(kind: Any) -> None:
    with pytest.raises(ConfigurationError, match="unknown field 'triger_context_ratio'; known fields: ") as told:
        kind(triger_context_ratio=0.5)
    assert all(name in str(told.value) for name in kind.model_fields)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("enable_recall", "CompressionRecallConfig(enabled=...)"),
        ("recall_chunk_size_tokens", "CompressionRecallConfig(chunk_size_tokens=...)"),
        ("recall_chunk_overlap_tokens", "CompressionRecallConfig(chunk_overlap_tokens=...)"),
    ],
)
def test_a_name_that_has_moved_is_refused_with_its_new_place(name: str, place: str) -> None:
    with pytest.raises(ConfigurationError) as told:
        RoundCompactConfig(**{name: 1})
    assert f"{name} has moved" in str(told.value)
    assert place in str(told.value)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ConfigurationError) as told:
        RoundCompactConfig(trigger_context_ratio=7, max_retries=-1, misspelt=1)  # type: ignore[call-arg]
    assert all(word in str(told.value) for word in ("trigger_context_ratio=7", "max_retries=-1", "'misspelt'"))


def test_a_fault_is_an_error_of_ours_and_a_value_error_without_a_trail() -> None:
    with pytest.raises(ConfigurationError) as told:
        RoundCompactConfig(max_retries=-1)
    assert isinstance(told.value, RoundCompactError | ValueError)
    assert told.value.__cause__ is None
    assert told.value.__suppress_context__


def test_fields_are_keywords_only() -> None:
    with pytest.raises(TypeError):
        RoundCompactConfig(0.5)  # type: ignore[call-arg]


# --- A value -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [RoundCompactConfig(), ModelClientConfig(), CompressionRecallConfig()], ids=lambda c: type(c).__name__)
def test_assignment_and_deletion_are_refused(config: Any) -> None:
    name = next(iter(type(config).model_fields))
    before = config.model_dump()
    with pytest.raises(ConfigurationError, match=f"{name} cannot be assigned: .*frozen"):
        setattr(config, name, 0.5)
    with pytest.raises(ConfigurationError):
        config.misspelt = 1
    with pytest.raises((ConfigurationError, ValidationError)):
        delattr(config, name)
    assert config.model_dump() == before


def test_equal_configurations_are_equal_and_hash_equal() -> None:
    one = RoundCompactConfig(model="m", model_client=ModelClientConfig(api_key=SecretStr("k")), reinject=("todo",), trigger_context_ratio=0.8)
    two = RoundCompactConfig(model="m", model_client={"api_key": "k"}, reinject=["todo"])  # type: ignore[arg-type]
    assert one == two
    assert len({one, two, RoundCompactConfig()}) == 2


@pytest.mark.parametrize(("name", "value"), [("max_retries", 3), ("reinject", ()), ("compression_recall", CompressionRecallConfig(enabled=True))])
def test_different_configurations_differ(name: str, value: Any) -> None:
    assert RoundCompactConfig(**{name: value}) != RoundCompactConfig()


def test_copies_are_equal() -> None:
    config = RoundCompactConfig(model="m", model_client=ModelClientConfig(api_key=SecretStr("k")), max_retries=1)
    assert config == copy.copy(config) == copy.deepcopy(config) == pickle.loads(pickle.dumps(config)) == config.model_copy()
    assert RoundCompactConfig.model_validate(config.model_dump()) == config


def test_a_changed_copy_is_checked_like_any_other() -> None:
    config = RoundCompactConfig(max_retries=1)
    changed = config.model_copy(update={"trigger_context_ratio": 0.5})
    assert (changed.max_retries, changed.trigger_context_ratio, config.trigger_context_ratio) == (1, 0.5, 0.8)
    with pytest.raises(ConfigurationError, match="trigger_context_ratio=7"):
        config.model_copy(update={"trigger_context_ratio": 7})
    with pytest.raises(ConfigurationError, match="misspelt"):
        config.model_copy(update={"misspelt": 7})


def test_a_mapping_is_checked_like_keywords() -> None:
    assert RoundCompactConfig.model_validate({"max_retries": 1}) == RoundCompactConfig(max_retries=1)
    with pytest.raises(ConfigurationError, match="trigger_context_ratio=7"):
        RoundCompactConfig.model_validate({"trigger_context_ratio": 7})
    with pytest.raises(ConfigurationError, match="enable_recall has moved"):
        RoundCompactConfig.model_validate({"enable_recall": True})


def test_the_names_of_the_builders_are_the_literal() -> None:
    assert REINJECT_NAMES == get_args(ReinjectName) == DEFAULTS["reinject"]


# --- Secrets -------------------------------------------------------------------------------------------------------------------------

SECRET = "sk-do-not-show"


@pytest.mark.parametrize(
    "wrong",
    [
        {"model": "m", "model_client": {"api_key": SECRET, "timeout_seconds": -1}},
        {"model": "m", "model_client": {"apikey": SECRET}},
        {"model": "m", "model_client": {"api_key": SECRET, "provider": 7}},
        {"model": "m", "model_client": {"api_base": f"https://user:{SECRET}@host/v1", "provider": 7}},
        {"model": "m", "model_client": SECRET},
        {"model": "m", "model_client": [SECRET]},
        {"model_client": {"api_key": SECRET}},
        {"model": "m", "model_client": {"api_key": SECRET}, "max_retries": -1},
        {"api_key": SECRET},
    ],
    ids=str,
)
def test_no_message_shows_a_secret(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as told:
        RoundCompactConfig(**wrong)
    assert SECRET not in str(told.value)
    # A log prints the chain of exceptions, where it is not suppressed.
    trail = traceback.TracebackException.from_exception(told.value)
    assert SECRET not in "".join(trail.format_exception_only())


@pytest.mark.parametrize("wrong", [{"api_key": 7}, {"api_key": [SECRET]}, {"api_key": SECRET, "provider": None}, {"api_base": [SECRET]}], ids=str)
def test_no_message_of_the_client_shows_a_secret(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as told:
        ModelClientConfig(**wrong)
    assert SECRET not in str(told.value)


def test_no_repr_shows_a_secret() -> None:
    client = ModelClientConfig(api_key=SecretStr(SECRET), api_base=f"https://user:{SECRET}@host/v1")
    config = RoundCompactConfig(model="m", model_client=client)
    for shown in (repr(client), str(client), repr(config), str(config), f"{config}", repr(config.model_dump()["model_client"]["api_key"])):
        assert SECRET not in shown
