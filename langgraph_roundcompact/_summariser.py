"""Which model writes summaries: resolving names, telling models apart, and what a model does to history by itself."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from langchain_core.messages import BaseMessage, SystemMessage
from langchain_core.runnables import Runnable
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from langgraph_roundcompact._parts import AgentCall
from langgraph_roundcompact._window import bound_kwargs, capacity, unwrap
from langgraph_roundcompact.config import ModelClientConfig, RoundCompactConfig
from langgraph_roundcompact.errors import ConfigurationError

OPENAI_PROVIDERS = frozenset({"openai", "openai-compatible", "openai_compatible", "vllm", "llama.cpp", "lmstudio", "ollama-openai"})
"""Providers whose names resolve through langchain-openai."""

NO_KEY = "not-needed"
"""Key sent to a server of one's own that asks for none: the client insists on some text."""


LEAST_WINDOW_TOKENS = 8192
"""Assumed of a summariser that does not tell its window, however small the agent's is set: the instructions alone take a thousand tokens, and a
model that really has less says so in its error, which makes the request smaller."""


def resolve_model(model: Any, config: RoundCompactConfig) -> Runnable[Any, Any] | None:
    """The summariser: an object as it is, a name through langchain-openai, None for rules only.

    Raises:
        ConfigurationError: the object is not a runnable, or the name cannot be reached.
    """
    wanted = model if model is not None else config.model
    if wanted is None:
        return None
    if isinstance(wanted, str):
        return _by_name(wanted, config.model_client)
    if isinstance(wanted, Runnable):
        return wanted
    msg = (
        f"model={wanted!r:.80} cannot be used: give a chat model, any Runnable from messages to a message or text, "
        "a name such as 'openai:gpt-5-mini', or None for rules only"
    )
    raise ConfigurationError(msg)


def _by_name(name: str, client: ModelClientConfig | None) -> Runnable[Any, Any]:
    client = client or ModelClientConfig()
    provider, model_name = client.provider, name.strip()
    head, colon, rest = model_name.partition(":")
    # A name of a server of one's own may hold a colon ("qwen3:8b"); elsewhere what stands before it is a provider, and is never guessed away.
    if colon and (head.lower() in OPENAI_PROVIDERS or client.api_base is None) and not head.lower().startswith("ft"):
        provider, model_name = head, rest
    if provider.lower() not in OPENAI_PROVIDERS or not model_name:
        known = ", ".join(sorted(OPENAI_PROVIDERS))
        msg = f"model={name!r} with provider {provider!r} cannot be resolved by name (known: {known}): pass a model object"
        raise ConfigurationError(msg)
    options: dict[str, Any] = {"model": model_name}
    if client.api_base is not None:
        options["base_url"] = client.api_base
        options["api_key"] = client.api_key or NO_KEY
    elif client.api_key is not None:
        options["api_key"] = client.api_key
    if client.timeout_seconds is not None:
        options["timeout"] = client.timeout_seconds
    try:
        # Retries are ours: the client's own would multiply them.
        return ChatOpenAI(**options, max_retries=0)
    except Exception as exc:
        msg = (
            f"model={name!r} cannot be reached ({type(exc).__name__}): set OPENAI_API_KEY, or give "
            "RoundCompactConfig(model_client=ModelClientConfig(api_base=..., api_key=...)), or pass a model object"
        )
        raise ConfigurationError(msg) from exc


def model_key(model: Runnable[Any, Any]) -> str:
    """A key for the memo that differs from summariser to summariser: class and model name."""
    inner = unwrap(model)
    parts = (type(model).__qualname__, type(inner).__qualname__, getattr(inner, "model_name", None), getattr(inner, "model", None))
    return hashlib.sha256(repr(parts).encode("utf-8", "replace")).hexdigest()[:16]


def summariser_window(config: RoundCompactConfig, model: Any, agent_tokens: int) -> int:
    """The summariser's window: by its own profile where it has one, else the agent's, but never less than `LEAST_WINDOW_TOKENS`."""
    own = capacity(config.model_copy(update={"context_window_tokens": None}), model)
    return own.tokens if own.source == "profile" else max(agent_tokens, LEAST_WINDOW_TOKENS)


def compacts_by_itself(model: Any, *, chain_is_cut: bool) -> bool:
    """Whether history is the provider's: native compaction, or answers chained by response id (unless the door cuts that chain)."""
    inner = unwrap(model)
    if inner is None:
        return False
    bound = bound_kwargs(model)
    if bound.get("use_previous_response_id", getattr(inner, "use_previous_response_id", None)) is True and not chain_is_cut:
        return True
    management = bound.get("context_management", getattr(inner, "context_management", None))
    if isinstance(management, Mapping):
        management = management.get("edits")
    if not isinstance(management, list | tuple):
        return False
    return any(isinstance(edit, Mapping) and str(edit.get("type", "")).startswith("compact") for edit in management)


# --- continuing the agent's own request ------------------------------------------------------------------------------------------------

_MAY_DIFFER = frozenset(
    {"max_retries", "request_timeout", "default_request_timeout", "streaming", "disable_streaming", "profile", "name", "tags", "metadata", "verbose"}
)
"""Settings of a model that neither change its answers nor what a provider's cache can serve."""

_LEAVING = frozenset({"auto", "none"})


def agent_call(
    summariser: Any,
    agent: Any,
    *,
    tools: Sequence[Any] | None = None,
    tool_choice: Any = None,
    system_message: BaseMessage | str | None = None,
    as_sent: Callable[[Sequence[BaseMessage]], Sequence[BaseMessage]] | None = None,
) -> AgentCall | None:
    """The agent's own request, where a summary can be had by continuing it.

    Args:
        summariser: The compactor's model.
        agent: The agent's model. Tools bound to it are the live request's; `tools` count where none are.
        tools: The agent's tools.
        tool_choice: The request's, where it is not bound.
        system_message: Stands in front of the messages.
        as_sent: What the door changes in the messages of a request.

    Returns:
        `None` where it cannot work: another model than the agent's, a conversation chained by response ids, an answer that must call a tool
        or have a form, or tools that cannot be bound.
    """
    inner, bound = unwrap(agent), bound_kwargs(agent)
    if inner is None or not _is_same(inner, unwrap(summariser)):
        return None
    if bound.get("use_previous_response_id", getattr(inner, "use_previous_response_id", None)) is True:
        return None
    if bound.get("response_format") is not None or _forces_a_call(bound.get("tool_choice", tool_choice)):
        return None
    to_bind = list(tools or ()) if "tools" not in bound else []
    if to_bind and not callable(getattr(agent, "bind_tools", None)):
        return None
    system = SystemMessage(system_message) if isinstance(system_message, str) and system_message else system_message or None
    return AgentCall(model=partial(_bound, agent, to_bind, tool_choice), sent=partial(_sent, system, as_sent))


def _bound(agent: Any, tools: Sequence[Any], tool_choice: Any) -> Any:
    """The model as an agent binds it. A binding forwards `bind_tools` to the model inside, so what it holds itself is given along."""
    return agent.bind_tools(tools, tool_choice=tool_choice, **bound_kwargs(agent)) if tools else agent


def _sent(
    system: BaseMessage | None, as_sent: Callable[[Sequence[BaseMessage]], Sequence[BaseMessage]] | None, window: Sequence[BaseMessage]
) -> list[BaseMessage]:
    return [*([system] if system is not None else []), *(as_sent(window) if as_sent is not None else window)]


def _forces_a_call(tool_choice: Any) -> bool:
    """Whether the answer must be a call: a summary then cannot be one. What is not known to leave it open, a tool's name for instance, forces."""
    if isinstance(tool_choice, Mapping):
        return str(tool_choice.get("type", "")) not in _LEAVING
    return tool_choice is True or (isinstance(tool_choice, str) and tool_choice not in _LEAVING and tool_choice != "")


def _is_same(agent: Any, summariser: Any) -> bool:
    """Whether two objects stand for one model at one provider: another model, account or endpoint has another cache."""
    return agent is summariser or (type(agent) is type(summariser) and _settings(agent) == _settings(summariser))


def _settings(model: Any) -> dict[str, Any]:
    """The fields that are plain data. Clients, and whatever else is an object, are left out: each model has its own."""
    plain = (str, int, float, bool, SecretStr, list, dict, tuple, type(None))
    return {name: value for name, value in vars(model).items() if isinstance(value, plain) and not name.startswith("_") and name not in _MAY_DIFFER}
