"""How much room there is: the capacity of the active model, room for its answer, and the limits derived from both. No state, no I/O.

Models come wrapped: bound to tools, with retries, with fallbacks, configurable, in a sequence. What a wrapper hides is looked up through its fields,
never through attribute forwarding, and a lookup that fails means "unknown", not an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard

from langgraph_roundcompact.config import RoundCompactConfig

DEFAULT_WINDOW_TOKENS = 200_000
"""Capacity when neither the configuration nor the model says anything; the caller warns once."""

TARGET_OF_TRIGGER = 0.625
"""A compaction brings the window to this share of the trigger at most, so that it does not fire again at the next step."""

_LARGEST_RESERVE = 1 / 3
_REQUEST_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "num_predict")
_WRAPPED_IN = ("bound", "runnable", "default")
_DEPTH = 20


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the messages, system prompt and tools of one request may hold together, in tokens; room for the answer is already taken off."""

    tokens: int
    source: Literal["config", "profile", "default"]
    """Where the window came from. `default`: nobody said; `DEFAULT_WINDOW_TOKENS` was assumed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The figures that decisions compare with, in tokens."""

    capacity: int
    trigger: int
    """Act when the window holds at least this much."""
    target: int
    """Where a compaction tries to bring the window."""


def capacity(config: RoundCompactConfig, model: object | None) -> Capacity:
    """Usable input of the active model: its window less room for the answer.

    The configured window wins over the model's profile. Where a profile's `max_input_tokens` already leaves out the answer, the reserve is taken off
    twice; compaction then comes somewhat early, never too late. Give `context_window_tokens` to say otherwise.

    Args:
        config: `context_window_tokens` beats everything.
        model: The agent's model, in any wrapper, or `None`.
    """
    path = _path(model)  # once: resolving a configurable model builds it
    window, source = _window(config, _profile(path))
    return Capacity(max(window - _reserve(path, window), 1), source)


def limits(config: RoundCompactConfig, capacity_tokens: int) -> Limits:
    """Trigger and target for a capacity.

    An absolute `trigger_token_threshold` is taken as it is, even above the capacity: the user then relies on the provider to accept more than is
    known here.
    """
    trigger = config.trigger_token_threshold or max(int(capacity_tokens * config.trigger_context_ratio), 1)
    target = int(trigger * TARGET_OF_TRIGGER)
    if config.target_context_ratio is not None:
        target = min(target, int(capacity_tokens * config.target_context_ratio))
    return Limits(capacity_tokens, trigger, max(target, 1))


def output_reserve(model: object | None, window_tokens: int) -> int:
    """Tokens of the window kept free for the answer.

    The request's own limit (bound arguments, else the model's field), else the profile's `max_output_tokens`. A figure that is not smaller than the
    window is bad metadata and is passed over; never more than a third of the window is reserved.
    """
    return _reserve(_path(model), window_tokens)


def unwrap(model: object | None) -> Any | None:
    """The chat model inside any wrapper; `None` when there is none.

    Of fallbacks the primary counts, of configurable alternatives the one chosen by the wrapper's own config, of a sequence its first chat model.
    """
    return _model_of(_path(model))


def profile_of(model: object | None) -> Mapping[str, Any] | None:
    """The model's profile, through any wrapper; `None` when it has none."""
    return _profile(_path(model))


def bound_kwargs(model: object | None) -> dict[str, Any]:
    """Arguments bound by the wrappers, merged as a call would merge them: the outermost binding wins."""
    return _merged_kwargs(_path(model))


def _model_of(path: Sequence[Any]) -> Any | None:
    return path[-1] if path and _is_model(path[-1]) else None


def _profile(path: Sequence[Any]) -> Mapping[str, Any] | None:
    profile = _attribute(_model_of(path), "profile")
    return profile if isinstance(profile, Mapping) else None


def _merged_kwargs(path: Sequence[Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for wrapper in reversed(path):
        kwargs = _fields(wrapper).get("kwargs")
        if isinstance(kwargs, Mapping) and not _is_model(wrapper):
            merged.update(kwargs)
    return merged


def _window(config: RoundCompactConfig, profile: Mapping[str, Any] | None) -> tuple[int, Literal["config", "profile", "default"]]:
    if config.context_window_tokens is not None:
        return config.context_window_tokens, "config"
    known = (profile or {}).get("max_input_tokens")
    # A number in a string is refused as well: what else in such metadata is wrong cannot be known.
    return (known, "profile") if _is_count(known) else (DEFAULT_WINDOW_TOKENS, "default")


def _reserve(path: Sequence[Any], window: int) -> int:
    for value in _answer_limits(path):
        if _is_count(value) and value < window:
            return min(value, int(window * _LARGEST_RESERVE))
    return 0


def _answer_limits(path: Sequence[Any]) -> Iterator[Any]:
    """Candidates for the length of the answer, the most specific first."""
    bound, inner = _merged_kwargs(path), _model_of(path)
    yield from (bound.get(name) for name in _REQUEST_LIMITS)
    yield from (_attribute(inner, name) for name in _REQUEST_LIMITS)
    yield (_profile(path) or {}).get("max_output_tokens")


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _path(model: object | None) -> list[Any]:
    """From the outermost wrapper to the model, both included; bounded, because wrappers may form a ring."""
    path: list[Any] = []
    node: Any = model
    while node is not None and len(path) < _DEPTH:
        path.append(node)
        node = None if _is_model(node) else _inside(node)
    return path


def _inside(node: Any) -> Any | None:
    """What a wrapper wraps."""
    fields = _fields(node)
    chosen = _chosen(node, fields)
    if chosen is not None:
        return chosen
    for name in _WRAPPED_IN:
        if fields.get(name) is not None:
            return fields[name]
    if "first" in fields and "last" in fields:
        steps = (fields["first"], *(fields.get("middle") or ()), fields["last"])
        return _first_with_model(steps)
    # langchain-core's own closures (a chain with message history) hold the model as a dependency. A user's function may choose among several.
    if str(getattr(fields.get("func"), "__module__", "")).startswith("langchain_core."):
        return _first_with_model(_attribute(node, "deps") or ())
    return None


def _first_with_model(nodes: Iterable[Any]) -> Any | None:
    return next((node for node in nodes if unwrap(node) is not None), None)


def _chosen(node: Any, fields: Mapping[str, Any]) -> Any | None:
    """What a configurable wrapper resolves to now.

    Configurable fields and alternatives resolve through `prepare`, the model of `init_chat_model(configurable_fields=...)` through its own builder;
    both may fail for want of configuration.
    """
    try:
        if "default" in fields and callable(getattr(type(node), "prepare", None)):
            return node.prepare(None)[0]
        if "_default_config" in fields and callable(build := getattr(type(node), "_model", None)):
            return build(node)
    except Exception:  # noqa: BLE001 - foreign code; the default, or an unknown window, is the answer then
        return None
    return None


def _fields(node: Any) -> Mapping[str, Any]:
    """An object's own fields. Attribute access would be forwarded by some wrappers and answer for the wrong object."""
    fields = getattr(node, "__dict__", None)
    return fields if isinstance(fields, Mapping) else {}


def _is_model(node: Any) -> bool:
    """Whether an object is a chat model: it generates, or it describes itself as one."""
    kind = type(node)
    if hasattr(kind, "_generate") or hasattr(kind, "profile"):
        return True
    return "profile" in _fields(node) and not any(name in _fields(node) for name in _WRAPPED_IN)


def _attribute(node: Any, name: str) -> Any:
    """An attribute of foreign code: a property may raise anything."""
    try:
        return getattr(node, name, None)
    except Exception:  # noqa: BLE001 - an unreadable attribute is an unknown one
        return None
