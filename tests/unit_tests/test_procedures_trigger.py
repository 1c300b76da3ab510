"""Reported faults of the trigger: what is counted, against which window, at what price, and when it must not fire.

| report | tests |
|---|---|
| 22 usage of an older request | `test_usage_of_a_kept_answer_does_not_fire_again`, `test_usage_of_an_earlier_round_does_not_fire` |
| 24 outside overhead | `test_a_large_first_usage_is_added_to_and_not_multiplied` |
| 25 tools and system prompt | `test_tools_and_system_prompt_fire_in_the_middleware`, `test_the_node_takes_tools_and_system_prompt` |
| | `test_each_tool_is_serialised_once`, `test_overhead_is_part_of_what_is_left_after_compaction` |
| 28 images add up | `test_thirty_images_add_up` |
| 29 nothing to gain | `test_a_prefix_over_the_trigger_asks_nobody_and_is_told_once` |
| 30 second check | `test_after_a_compaction_the_next_check_asks_nobody` |
| 31 no profile | `test_a_ratio_without_a_usable_profile_falls_back_with_one_warning`, `test_a_usable_profile_fires`, |
| | `test_the_configured_window_beats_the_profile` |
| 32 active model | `test_the_window_of_the_requests_model_counts`, `test_one_middleware_serves_models_of_two_sizes`, |
| | `test_the_node_takes_the_agents_model` |
| 34 room for the answer | `test_room_for_the_answer_is_kept`, `test_a_limit_bound_to_the_model_is_the_room_for_the_answer`, |
| | `test_a_limit_in_the_requests_settings_is_the_room_for_the_answer`, `test_a_reserve_as_large_as_the_window_is_bad_metadata` |
| 35 price of a check | `test_a_check_that_does_nothing_counts_the_list_once_and_then_what_is_new`, |
| | `test_a_compaction_asks_the_counter_as_often_for_a_long_list_as_for_a_short_one`, `test_no_count_is_asked_of_the_model` |
| 75 request over the trigger | `test_a_request_over_the_trigger_is_compacted_behind_once`, `test_a_request_over_the_window_is_left_to_the_provider` |
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelRequest, wrap_model_call
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from procedures import BOTH, blocks, compact, compactor, go, history, plain_counter, summariser, work

from langgraph_roundcompact import RoundCompactConfig, RoundCompactMiddleware, RoundCompactNode, RoundCompactor
from langgraph_roundcompact import compactor as compactor_module
from langgraph_roundcompact.testing import ScriptedChatModel


def usage(total: int) -> dict[str, int]:
    return {"input_tokens": total - 10, "output_tokens": 10, "total_tokens": total}


# --- 22, 24, 28: what usage and estimates are worth ------------------------------------------------------------------------------------


@BOTH
def test_usage_of_a_kept_answer_does_not_fire_again(how: str) -> None:
    """The kept step still reports the request before the compaction; a fresh answer's usage counts again."""
    model = summariser("ONE", "TWO")
    subject = compactor(model, keep_recent_messages=2)
    kept = work(3, 40)
    kept[0].usage_metadata = usage(2050)  # type: ignore[attr-defined]
    first = compact(how, subject, [*history(1, 2), *kept])
    assert first.compacted
    assert compact(how, subject, first.messages).outcome == "below_trigger"
    fresh = work(4, 40)
    fresh[0].usage_metadata = usage(900)  # type: ignore[attr-defined]
    assert compact(how, subject, [*first.messages, *fresh]).outcome == "below_trigger"
    assert len(model.requests) == 1
    fresh[0].usage_metadata = usage(1200)  # type: ignore[attr-defined]
    assert compact(how, subject, [*first.messages, *work(5, 2000), *fresh, *work(6, 40)]).compacted


@BOTH
def test_usage_of_an_earlier_round_does_not_fire(how: str) -> None:
    """A round that ended at a high figure is prefix now; with an answer of its own the new round is measured by counting."""
    model = summariser("ONE")
    old = AIMessage("done", id="old", usage_metadata=usage(190_000))
    given = [HumanMessage("first", id="h0"), old, *history(1, characters=40)]
    assert not compact(how, compactor(model, trigger=100_000, window=200_000), given).changed
    assert model.requests == []


@BOTH
def test_a_large_first_usage_is_added_to_and_not_multiplied(how: str) -> None:
    """9,900 tokens outside the list are an offset: 10,000 reported and 600 more are 10,600."""
    given = history(1, characters=2400)
    given[1].usage_metadata = usage(10_000)  # type: ignore[attr-defined]
    plan = compactor(trigger=50_000, window=80_000).plan(given)
    assert 10_500 < plan.window_tokens < 10_900
    assert not compact(how, compactor(trigger=50_000, window=80_000), given).changed


def test_thirty_images_add_up() -> None:
    """Each image has its price, whatever its length in base64."""
    image = {"type": "image", "base64": "iVBORw0KGgo" + "A" * 200_000, "mime_type": "image/png"}
    subject = RoundCompactor(config=RoundCompactConfig(context_window_tokens=100_000))
    one = subject.count_tokens([HumanMessage([image])])
    thirty = subject.count_tokens([HumanMessage([image] * 30)])
    assert 85 <= one <= 5000
    assert 28 * (one - 20) <= thirty <= 30 * one


# --- 25: the whole request is measured --------------------------------------------------------------------------------------------------

HEAVY = [
    {
        "type": "function",
        "function": {
            "name": f"tool_{number}",
            "description": "what it does " * 60,
            "parameters": {"type": "object", "properties": {"a": {"type": "string", "description": "how it is given " * 50}}},
        },
    }
    for number in range(30)
]
PROMPT = "be careful with dates " * 800


@BOTH
def test_tools_and_system_prompt_fire_in_the_middleware(how: str) -> None:
    """The messages alone are far below the trigger; the request is not."""
    given = history(1, 2, characters=6000)
    model = summariser("NOTES")
    subject = compactor(model, trigger=12_000, window=20_000)
    assert compactor(trigger=12_000, window=20_000).plan(given).outcome == "below_trigger"
    agent = create_agent(ScriptedChatModel(replies=["done"]), tools=HEAVY, system_prompt=PROMPT, middleware=[RoundCompactMiddleware(subject)])
    after = go(how, agent, {"messages": given})["messages"]
    assert blocks(after) == [1]
    assert len(model.requests) == 1


@BOTH
def test_the_node_takes_tools_and_system_prompt(how: str) -> None:
    """Where they are not visible they are parameters."""
    given = {"messages": history(1, 2, characters=6000)}
    subject = compactor(summariser("NOTES"), trigger=12_000, window=20_000)
    assert go(how, RoundCompactNode(subject), given) == {}
    assert go(how, RoundCompactNode(subject, tools=HEAVY, system_message=PROMPT), given) != {}


@BOTH
def test_overhead_is_part_of_what_is_left_after_compaction(how: str) -> None:
    """The size reported afterwards has the overhead in it, and the next check sees that nothing is to be gained."""
    model = summariser("NOTES")
    subject = compactor(model, trigger=8_000, window=20_000)
    given = {"system_message": PROMPT, "tools": HEAVY}
    first = compact(how, subject, history(1, 2, characters=6000), **given)
    overhead = subject.plan([], **given).window_tokens
    assert first.tokens_after > overhead > 8_000
    second = compact(how, subject, first.messages, **given)
    assert (second.outcome, second.changed, len(model.requests)) == ("nothing_to_compact", False, 1)


@BOTH
def test_each_tool_is_serialised_once(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten checks, one look at each schema."""

    @tool
    def weigh(parcel: str) -> str:
        """Weigh a parcel."""
        return parcel

    from langgraph_roundcompact import _meter

    seen: list[Any] = []
    real = _meter.convert_to_openai_tool
    monkeypatch.setattr(_meter, "convert_to_openai_tool", lambda given: seen.append(given) or real(given))
    node = RoundCompactNode(compactor(trigger=10_000, window=20_000), tools=[weigh])
    for _ in range(10):
        go(how, node, {"messages": history(1, characters=400)})
    assert len(seen) == 1


# --- 29, 30, 75: when there is nothing to gain -----------------------------------------------------------------------------------------


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@BOTH
@pytest.mark.parametrize("keep", [None, 0])
def test_a_prefix_over_the_trigger_asks_nobody_and_is_told_once(how: str, keep: int | None, caplog: pytest.LogCaptureFixture) -> None:
    """Twenty tiny steps behind a large prefix: no summary, one warning; as soon as the work is large, it is compacted."""
    model, events = summariser("NOTES"), []
    subject = compactor(model, window=10_000, keep_recent_messages=keep, on_event=events.append)
    messages: list[BaseMessage] = [SystemMessage("s" * 8000, id="s"), HumanMessage("h" * 8000, id="h")]
    with caplog.at_level(logging.WARNING, logger="langgraph_roundcompact"):
        for number in range(20):
            messages += [
                AIMessage("", tool_calls=[{"name": "ls", "args": {}, "id": f"c{number}", "type": "tool_call"}], id=f"a{number}"),
                ToolMessage("ok", tool_call_id=f"c{number}", id=f"t{number}"),
            ]
            result = compact(how, subject, messages)
            assert (result.changed, result.reason) == (False, "prefix_over_trigger")
    assert model.requests == []
    assert len([text for text in warnings_of(caplog) if "trigger" in text]) == 1
    assert [event.reason for event in events] == ["prefix_over_trigger"]
    assert compact(how, subject, [*messages, *work(50), *work(51), *work(52)]).compacted


@BOTH
def test_after_a_compaction_the_next_check_asks_nobody(how: str) -> None:
    """A summary of 4,000 tokens and much to put back: the block is kept small enough that the next step does not fire."""
    model = summariser("B" * 16_000)
    subject = compactor(model, trigger=3000, window=6000, reinject=("todo", "read_file"))
    state = {
        "messages": history(1, 2, characters=12_000),
        "todos": [{"content": "x" * 400, "status": "pending"}] * 10,
        "files": {f"/src/f{number}.py": "c" * 6000 for number in range(4)},
    }
    first = compact(how, subject, state)
    assert first.compacted
    assert first.tokens_after < 0.8 * 3000
    second = compact(how, subject, {**state, "messages": first.messages})
    assert (second.outcome, len(model.requests)) == ("below_trigger", 1)


@BOTH
def test_a_request_over_the_trigger_is_compacted_behind_once(how: str, caplog: pytest.LogCaptureFixture) -> None:
    """The request stays byte for byte, the work goes, and directly afterwards nothing more is tried."""
    model = summariser("NOTES")
    subject = compactor(model, trigger=10_000, window=64_000)
    given = history(1, 2, characters=8000, ask="Check this:\n" + "clause " * 20_000 + "\nLAST: yes or no")
    with caplog.at_level(logging.WARNING, logger="langgraph_roundcompact"):
        first = compact(how, subject, given)
        assert first.messages[0] == given[0]
        assert blocks(first.messages) == [1]
        for _ in range(3):
            again = compact(how, subject, first.messages)
            assert (again.changed, again.reason) == (False, "prefix_over_trigger")
    assert len(model.requests) == 1
    assert len([text for text in warnings_of(caplog) if "trigger" in text]) == 1


@BOTH
def test_a_request_over_the_window_is_left_to_the_provider(how: str) -> None:
    """Nothing is cut and nothing raised by the package: the provider's own error reaches the caller."""
    agent = create_agent(
        ScriptedChatModel(replies=[ContextOverflowError("too long")]),
        tools=[],
        middleware=[RoundCompactMiddleware(compactor(summariser("NOTES"), window=2000))],
    )
    with pytest.raises(ContextOverflowError, match="too long"):
        go(how, agent, {"messages": [HumanMessage("clause " * 20_000, id="h")]})


# --- 31, 32, 34: whose window ----------------------------------------------------------------------------------------------------------


def with_profile(profile: Any) -> ScriptedChatModel:
    """A model with metadata that its own constructor would refuse or repair."""
    model = summariser("NOTES")
    model.profile = profile
    return model


def by_ratio(model: Any = None, ratio: float = 0.5, **fields: Any) -> RoundCompactor:
    return compactor(model, trigger=None, window=None, trigger_context_ratio=ratio, **fields)


@BOTH
@pytest.mark.parametrize("profile", [None, {}, {"max_input_tokens": None}, {"max_input_tokens": "4000"}, {"max_input_tokens": -1}])
def test_a_ratio_without_a_usable_profile_falls_back_with_one_warning(
    how: str, profile: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Building never raises; the documented default applies, and is said once in a process."""
    monkeypatch.setattr(compactor_module, "_default_window_warned", False)
    with caplog.at_level(logging.WARNING, logger="langgraph_roundcompact"):
        for _ in range(2):
            subject = by_ratio(with_profile(profile))
            assert compact(how, subject, history(1, 2, 3)).outcome == "below_trigger"
            assert subject.plan(history(1)).trigger_tokens == 100_000
    assert len([text for text in warnings_of(caplog) if "200,000" in text]) == 1


@BOTH
def test_a_usable_profile_fires(how: str) -> None:
    """3,000 tokens are over half of 4,000."""
    assert compact(how, by_ratio(summariser("NOTES", profile={"max_input_tokens": 4000})), history(1, 2, 3)).compacted


def test_the_configured_window_beats_the_profile() -> None:
    """Whoever sets a window knows better than metadata."""
    subject = by_ratio(summariser(profile={"max_input_tokens": 4000}), context_window_tokens=64_000)
    assert subject.plan(history(1)).capacity_tokens == 64_000


SMALL, LARGE = {"max_input_tokens": 4000}, {"max_input_tokens": 200_000}


@BOTH
@pytest.mark.parametrize(("built_with", "asked_with", "fires"), [(LARGE, SMALL, True), (SMALL, LARGE, False)])
def test_the_window_of_the_requests_model_counts(how: str, built_with: Any, asked_with: Any, fires: bool) -> None:
    """Another middleware chooses the model of this request; neither the summariser's nor the agent's first model tells the window."""
    chosen = ScriptedChatModel(replies=["done"], profile=asked_with)

    class Choose(RoundCompactMiddleware):
        """Stands outside and exchanges the model."""

        def __init__(self) -> None:
            super().__init__(compactor(), name="choose")

        def wrap_model_call(self, request: ModelRequest[Any], handler: Any) -> Any:
            return handler(request.override(model=chosen))

        async def awrap_model_call(self, request: ModelRequest[Any], handler: Any) -> Any:
            return await handler(request.override(model=chosen))

    subject = by_ratio(summariser("NOTES", profile=built_with), 0.8)
    first = ScriptedChatModel(replies=["never"], profile=built_with)
    agent = create_agent(first, tools=[], middleware=[Choose(), RoundCompactMiddleware(subject)])
    after = go(how, agent, {"messages": history(1, 2, 3, 4)})["messages"]
    assert bool(blocks(after)) is fires
    assert after[-1].content == "done"


@BOTH
def test_one_middleware_serves_models_of_two_sizes(how: str) -> None:
    """Nothing about a window stays on the instance: small, large, small."""
    shared = RoundCompactMiddleware(by_ratio(summariser("NOTES"), 0.8))
    fired = []
    for profile in (SMALL, LARGE, SMALL):
        agent = create_agent(ScriptedChatModel(replies=["done"], profile=profile), tools=[], middleware=[shared])
        fired.append(bool(blocks(go(how, agent, {"messages": history(1, 2, 3, 4)})["messages"])))
    assert fired == [True, False, True]


@BOTH
@pytest.mark.parametrize("wrap", ["plain", "tools", "retry", "fallbacks", "config"])
def test_the_node_takes_the_agents_model(how: str, wrap: str) -> None:
    """In any wrapper the window is the model's, and beats the summariser's."""
    inner = ScriptedChatModel(replies=["done"], profile=SMALL)
    wrapped = {
        "plain": inner,
        "tools": inner.bind_tools([]),
        "retry": inner.with_retry(),
        "fallbacks": inner.with_fallbacks([ScriptedChatModel(profile=LARGE)]),
        "config": inner.with_config(tags=["t"]),
    }[wrap]
    node = RoundCompactNode(by_ratio(summariser("NOTES", profile=LARGE), 0.8), agent_model=wrapped)
    assert go(how, node, {"messages": history(1, 2, 3, 4)}) != {}


def thirteen() -> list[BaseMessage]:
    """About 13,100 tokens: below 0.9 x 15,000 and above 0.9 x (15,000 - 2,048)."""
    return history(*range(1, 14), characters=3920)


@BOTH
@pytest.mark.parametrize("window_from", ["profile", "config"])
def test_room_for_the_answer_is_kept(how: str, window_from: str) -> None:
    """Providers check prompt and answer together."""
    profile = {"max_input_tokens": 15_000, "max_output_tokens": 2048}
    given = {"context_window_tokens": 15_000} if window_from == "config" else {}
    assert compact(how, by_ratio(summariser("NOTES", profile=profile), 0.9, **given), thirteen()).compacted
    without = {"max_input_tokens": 15_000}
    assert compact(how, by_ratio(summariser("NOTES", profile=without), 0.9, **given), thirteen()).outcome == "below_trigger"


def test_a_limit_bound_to_the_model_is_the_room_for_the_answer() -> None:
    """The request's own limit beats the profile's."""
    inner = ScriptedChatModel(profile={"max_input_tokens": 15_000, "max_output_tokens": 4096})
    assert compactor_capacity(inner.bind(max_tokens=1000)) == 14_000
    assert compactor_capacity(inner) == 15_000 - 4096


def compactor_capacity(model: Any) -> int:
    return by_ratio(model, 0.9).plan(history(1)).capacity_tokens


@BOTH
@pytest.mark.parametrize(("limit", "fires"), [(2048, True), (100, False)])
def test_a_limit_in_the_requests_settings_is_the_room_for_the_answer(how: str, limit: int, fires: bool) -> None:
    """Middleware may set `max_tokens` for this request alone."""

    def with_limit(request: ModelRequest[Any]) -> ModelRequest[Any]:
        return request.override(model_settings={"max_tokens": limit})

    @wrap_model_call(name="limit")
    def limited(request: ModelRequest[Any], handler: Any) -> Any:
        return handler(with_limit(request))

    @wrap_model_call(name="limit")
    async def alimited(request: ModelRequest[Any], handler: Any) -> Any:
        return await handler(with_limit(request))

    model = ScriptedChatModel(replies=["done"], profile={"max_input_tokens": 15_000})
    outer = limited if how == "sync" else alimited
    agent = create_agent(model, tools=[], middleware=[outer, RoundCompactMiddleware(by_ratio(summariser("NOTES"), 0.9))])
    assert bool(blocks(go(how, agent, {"messages": thirteen()})["messages"])) is fires


@pytest.mark.parametrize("reserve", [15_000, 20_000, 0, None, "2048"])
def test_a_reserve_as_large_as_the_window_is_bad_metadata(reserve: Any) -> None:
    """The usable window is never negative, and never nothing."""
    assert compactor_capacity(with_profile({"max_input_tokens": 15_000, "max_output_tokens": reserve})) == 15_000


# --- 35: the price of a check -----------------------------------------------------------------------------------------------------------


class Counting:
    """A user's counter that keeps account of itself."""

    def __init__(self) -> None:
        self.calls = 0
        self.messages = 0

    def __call__(self, messages: Any) -> int:
        self.calls += 1
        self.messages += len(messages)
        return plain_counter(messages)


@BOTH
@pytest.mark.parametrize("door", ["node", "middleware", "chain"])
def test_a_check_that_does_nothing_counts_the_list_once_and_then_what_is_new(how: str, door: str) -> None:
    """Pass-through: one count over the list, and with one new step a count of that step only."""
    counter = Counting()
    subject = compactor(summariser(), trigger=900_000, window=1_000_000, token_counter=counter)
    node: Any = RoundCompactNode(subject) if door == "node" else subject.as_runnable()
    if door == "middleware":
        node = create_agent(ScriptedChatModel(replies=["done"], usage="none"), tools=[], middleware=[RoundCompactMiddleware(subject)])
    given = history(*range(200), characters=400)
    go(how, node, {"messages": given} if door != "chain" else given)
    assert (counter.calls, counter.messages) == (1, 401)
    given = [*given, *work(500, 400)]
    go(how, node, {"messages": given} if door != "chain" else given)
    assert counter.calls == 2
    assert counter.messages <= 401 + 2


@BOTH
def test_a_compaction_asks_the_counter_as_often_for_a_long_list_as_for_a_short_one(how: str) -> None:
    """No count for each candidate cut."""
    calls = []
    for steps in (10, 100, 400):
        counter = Counting()
        roomy = summariser("NOTES", profile={"max_input_tokens": 200_000})  # one request takes all the work
        result = compact(how, compactor(roomy, token_counter=counter), history(*range(steps), characters=400))
        assert result.compacted
        assert len(roomy.requests) == 1
        calls.append(counter.calls)
    assert max(calls) <= 12
    assert max(calls) - min(calls) <= 3


@BOTH
def test_no_count_is_asked_of_the_model(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's own counter may be a network call."""

    def refuse(*given: Any, **more: Any) -> int:
        pytest.fail("the model was asked to count")

    monkeypatch.setattr(ScriptedChatModel, "get_num_tokens_from_messages", refuse, raising=True)
    agent_model = ScriptedChatModel(profile={"max_input_tokens": 2000})
    subject = RoundCompactor(config=RoundCompactConfig(min_target_context_ratio=0.0))
    node = RoundCompactNode(subject, agent_model=agent_model, tools=HEAVY)
    assert go(how, node, {"messages": history(*range(20), characters=400)}) is not None


async def test_an_overflow_of_the_agents_model_is_answered_once() -> None:
    """The same request is never sent twice: what cannot be made smaller reaches the caller after one call."""
    model = ScriptedChatModel(replies=[ContextOverflowError("too long")])
    agent = create_agent(model, tools=[], middleware=[RoundCompactMiddleware(compactor(summariser("NOTES")))])
    with pytest.raises(ContextOverflowError):
        await asyncio.wait_for(agent.ainvoke({"messages": history(1, 2)}), 10)
    assert len(model.requests) == 1
