"""Capacity and limits: whatever the model is wrapped in, with room for the answer, and nothing a bad profile says can break it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory

from langgraph_roundcompact._window import Capacity, Limits, bound_kwargs, capacity, limits, output_reserve, profile_of, unwrap
from langgraph_roundcompact.config import RoundCompactConfig


class Model(BaseChatModel):
    """A chat model with a profile and a limit for its answers."""

    label: str = "m"
    max_tokens: int | None = None

    @property
    def _llm_type(self) -> str:
        return "test"

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage("ok"))])

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=tools, **kwargs)


def model(tokens: Any = 4_000, *, label: str = "m", max_tokens: int | None = None, **profile: Any) -> Model:
    return profiled(Model(label=label, max_tokens=max_tokens), {"max_input_tokens": tokens, **profile})


def profiled(bare: Model, profile: Any) -> Model:
    """The profile is set afterwards, where nothing validates it, as registries and users do."""
    bare.profile = profile
    return bare


def config(**fields: Any) -> RoundCompactConfig:
    return RoundCompactConfig(**fields)


BASE, SPARE = model(4_000, label="base"), model(9_000, label="spare")

WRAPPED = {
    "bare": BASE,
    "bind": BASE.bind(stop=["zzz"]),
    "bind_tools": BASE.bind_tools([]),
    "config": BASE.with_config(tags=["x"]),
    "retry": BASE.with_retry(stop_after_attempt=2),
    "fallbacks": BASE.with_fallbacks([SPARE]),
    "tools, retry, fallbacks, config": BASE.bind_tools([]).with_retry().with_fallbacks([SPARE]).with_config(tags=["x"]),
    "configurable fields": BASE.configurable_fields(max_tokens=ConfigurableField(id="max_tokens")),
    "configurable alternatives": BASE.configurable_alternatives(ConfigurableField(id="which"), spare=SPARE),
    "model first": BASE | StrOutputParser(),
    "model first, then a function": BASE | (lambda message: message.content),
    "model in the middle": ChatPromptTemplate.from_messages([("placeholder", "{messages}")]) | BASE | StrOutputParser(),
    "model last": RunnableLambda(lambda x: x) | BASE.bind(stop=["z"]),
}


@pytest.mark.parametrize("wrapped", WRAPPED.values(), ids=WRAPPED.keys())
def test_the_model_is_found_in_any_wrapper(wrapped: Any) -> None:
    found = unwrap(wrapped)
    assert found is not None
    assert found.label == "base"
    assert profile_of(wrapped) == {"max_input_tokens": 4_000}
    assert capacity(config(), wrapped) == Capacity(4_000, "profile")


@pytest.mark.filterwarnings("ignore:RunnableWithMessageHistory")
def test_the_model_is_found_behind_a_message_history() -> None:
    wrapped = RunnableWithMessageHistory(BASE, lambda session_id: InMemoryChatMessageHistory())
    assert capacity(config(), wrapped) == Capacity(4_000, "profile")


def test_the_chosen_alternative_counts() -> None:
    alternatives = BASE.configurable_alternatives(ConfigurableField(id="which"), spare=SPARE, lazy=lambda: model(7_000))
    assert capacity(config(), alternatives.with_config(configurable={"which": "spare"})).tokens == 9_000
    assert capacity(config(), alternatives.with_config(configurable={"which": "lazy"})).tokens == 7_000
    assert capacity(config(), alternatives.with_config(configurable={"which": "absent"})).tokens == 4_000


def test_a_model_made_by_init_chat_model_is_resolved() -> None:
    langchain = pytest.importorskip("langchain.chat_models")
    configurable = langchain.init_chat_model("gpt-4o", model_provider="openai", configurable_fields="any", api_key="x", max_tokens=1_000)
    known = profile_of(configurable)
    assert known is not None
    assert capacity(config(), configurable) == Capacity(known["max_input_tokens"] - 1_000, "profile")
    assert capacity(config(), langchain.init_chat_model(configurable_fields=("model",), api_key="x")).source == "default"


class Hostile:
    """Every attribute raises."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    @property
    def profile(self) -> Any:
        raise RuntimeError


class Ring:
    """A wrapper around itself."""

    def __init__(self) -> None:
        self.bound = self


class OddProfile(Model):
    """A profile that cannot be read."""

    @property
    def max_output_tokens(self) -> int:
        raise RuntimeError


@pytest.mark.parametrize(
    "odd", [None, "gpt-4o", 7, object(), {}, RunnableLambda(lambda x: x), Ring(), StrOutputParser()], ids=lambda odd: type(odd).__name__
)
def test_without_a_model_the_default_applies(odd: Any) -> None:
    assert unwrap(odd) is None
    assert profile_of(odd) is None
    assert bound_kwargs(odd) == {}
    assert capacity(config(), odd) == Capacity(200_000, "default")


@pytest.mark.parametrize("odd", [Hostile(), OddProfile(profile={"max_input_tokens": 0})], ids=["hostile", "odd profile"])
def test_foreign_code_that_raises_means_unknown(odd: Any) -> None:
    assert capacity(config(), odd) == Capacity(200_000, "default")


@pytest.mark.parametrize(
    "profile", [None, {}, {"max_input_tokens": None}, {"max_input_tokens": "4000"}, {"max_input_tokens": True}, {"max_input_tokens": 0}]
)
def test_an_unusable_profile_means_the_default(profile: Any) -> None:
    """A number in a string is refused, not compared as text."""
    assert capacity(config(), profiled(Model(), profile)) == Capacity(200_000, "default")


def test_a_plain_object_with_a_profile_is_a_model() -> None:
    class Fake:
        def __init__(self) -> None:
            self.profile = {"max_input_tokens": 4_000}

    assert capacity(config(), Fake()) == Capacity(4_000, "profile")


def test_the_configured_window_always_wins() -> None:
    assert capacity(config(context_window_tokens=9_999), BASE) == Capacity(9_999, "config")
    assert capacity(config(context_window_tokens=9_999), None) == Capacity(9_999, "config")


def test_the_window_of_this_model_counts_not_of_the_last_one() -> None:
    assert [capacity(config(), m).tokens for m in (model(200_000), model(4_000), model(200_000))] == [200_000, 4_000, 200_000]


# Room for the answer


def test_room_for_the_answer_is_taken_off() -> None:
    """13,000 tokens fit 90 % of 15,000 but not of what an answer of 2,048 leaves."""
    small = model(15_000, max_output_tokens=2_048)
    room = capacity(config(), small)
    assert room == Capacity(12_952, "profile")
    assert limits(config(trigger_context_ratio=0.9), room.tokens).trigger == 11_656
    assert capacity(config(context_window_tokens=15_000), small) == Capacity(12_952, "config")


def test_the_requests_own_limit_beats_the_models_and_the_profiles() -> None:
    full = model(15_000, max_tokens=1_000, max_output_tokens=2_048)
    assert output_reserve(full, 15_000) == 1_000
    assert output_reserve(full.bind(max_tokens=500), 15_000) == 500
    assert output_reserve(full.bind(max_completion_tokens=600), 15_000) == 600
    assert output_reserve(full.bind(max_output_tokens=700).with_retry(), 15_000) == 700
    assert output_reserve(full.bind(max_tokens=None), 15_000) == 1_000


def test_the_outermost_binding_wins() -> None:
    bound = BASE.bind(max_tokens=100, stop=["a"]).with_retry().with_config(tags=["x"]).bind(max_tokens=200)
    assert bound_kwargs(bound) == {"max_tokens": 200, "stop": ["a"]}
    assert output_reserve(bound, 15_000) == 200


@pytest.mark.parametrize("value", [0, -1, -2, None, "2048", True, 15_000, 10**9])
def test_an_impossible_answer_length_is_passed_over(value: Any) -> None:
    assert output_reserve(BASE.bind(max_tokens=value), 15_000) == 0
    assert output_reserve(model(15_000, max_output_tokens=value), 15_000) == 0
    assert output_reserve(model(15_000, max_output_tokens=2_048).bind(max_tokens=value), 15_000) == 2_048


def test_at_most_a_third_of_the_window_is_reserved() -> None:
    assert output_reserve(model(15_000, max_output_tokens=14_999), 15_000) == 5_000
    assert capacity(config(), model(200_000, max_output_tokens=64_000)).tokens == 136_000


@given(st.integers(1, 10**7), st.one_of(st.none(), st.integers(-10, 10**8), st.text()), st.one_of(st.none(), st.integers(-10, 10**8)))
def test_the_usable_window_is_never_empty(window: int, bound: Any, declared: Any) -> None:
    room = capacity(config(context_window_tokens=window), model(1, max_output_tokens=declared).bind(max_tokens=bound))
    assert 1 <= room.tokens <= window
    assert room.tokens >= window - window // 3


# Limits


def test_trigger_and_target_follow_the_ratios() -> None:
    assert limits(config(), 100_000) == Limits(capacity=100_000, trigger=80_000, target=50_000)
    assert limits(config(target_context_ratio=0.3), 100_000).target == 30_000
    assert limits(config(target_context_ratio=0.7), 100_000).target == 50_000


def test_an_absolute_trigger_beats_the_ratio_even_above_the_capacity() -> None:
    assert limits(config(trigger_token_threshold=3_000), 100_000) == Limits(capacity=100_000, trigger=3_000, target=1_875)
    assert limits(config(trigger_token_threshold=300_000), 100_000).trigger == 300_000


def test_limits_are_never_zero() -> None:
    assert limits(config(), 1) == Limits(capacity=1, trigger=1, target=1)
    assert limits(config(target_context_ratio=0.001), 10).target == 1
