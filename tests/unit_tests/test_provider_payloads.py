"""What comes out after a compaction is valid for each provider: real requests of the real integrations, checked by strict servers on loopback.

`provider_rules` holds the rules. Each is shown to have teeth at the end of this file.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from doors import REQUEST, ByIds, look_up, stream
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from procedures import BOTH, blocks, go, summariser
from provider_rules import (
    SKIP_SIGNATURE,
    Anthropic,
    Chat,
    Gemini,
    OlderGemini,
    Responses,
    StrictServer,
    Template,
    anthropic_faults,
    blocks_of,
    chat_faults,
    gemini_faults,
    serving,
)

from langgraph_roundcompact import DEFAULT_TIERS, RoundCompactConfig, RoundCompactMiddleware, RoundCompactNode, RoundCompactor, add_round_compaction

STEPS = 14
KEY: Any = "no-key"
BETAS = ["context-management-2025-06-27"]


def claude(url: str, thinking: Any = None, **more: Any) -> ChatAnthropic:
    return ChatAnthropic(model_name="claude-sonnet-4-5", api_key=KEY, base_url=url, max_retries=0, max_tokens=2000, thinking=thinking, **more)


def responses(url: str, **more: Any) -> ChatOpenAI:
    return ChatOpenAI(model="gpt-5", api_key=KEY, base_url=url, max_retries=0, use_responses_api=True, output_version="responses/v1", **more)


PROVIDERS: dict[str, tuple[type[StrictServer], Any]] = {
    "anthropic": (Anthropic, claude),
    "anthropic, budgeted reasoning": (Anthropic, lambda url: claude(url, {"type": "enabled", "budget_tokens": 1024})),
    "anthropic, adaptive reasoning": (Anthropic, lambda url: claude(url, {"type": "adaptive"})),
    "anthropic, v1 content": (Anthropic, lambda url: claude(url, {"type": "enabled", "budget_tokens": 1024}, output_version="v1")),
    "chat completions": (Chat, lambda url: ChatOpenAI(model="m", api_key=KEY, base_url=url, max_retries=0)),
    "responses": (Responses, responses),
    "responses, v0 content": (Responses, lambda url: responses(url).model_copy(update={"output_version": None})),
    "responses, stateless": (Responses, lambda url: responses(url, store=False, include=["reasoning.encrypted_content"])),
    "responses, chained": (Responses, lambda url: responses(url, use_previous_response_id=True)),
    "gemini": (Gemini, lambda url: ChatGoogleGenerativeAI(model="gemini-3-pro-preview", api_key=KEY, base_url=url, max_retries=0)),
    "gemini, older": (OlderGemini, lambda url: ChatGoogleGenerativeAI(model="gemini-2.5-pro", api_key=KEY, base_url=url, max_retries=0)),
}
ALL = pytest.mark.parametrize("provider", PROVIDERS)


def subject(way: str = "summary", **fields: Any) -> RoundCompactor:
    """A compactor in a small window; `way`: by folding, by rules, or by a summary."""
    given: dict[str, Any] = {"trigger_token_threshold": 3000, "context_window_tokens": 4000, "min_target_context_ratio": 0.0, **fields}
    notes = summariser(*(f"SUMMARY {number}" for number in range(30))) if way == "summary" else None
    if way == "ladder":
        # Room enough for folds to reach the target.
        given |= {"target_context_ratio": 0.6, "context_window_tokens": 6000, "trigger_token_threshold": 5000}
    return RoundCompactor(notes, config=RoundCompactConfig(**given), tiers=DEFAULT_TIERS if way == "ladder" else ())


def agent(door: str, compactor: RoundCompactor, model: Any, around: Any = ()) -> Any:
    if door in ("middleware", "request only"):
        ours = RoundCompactMiddleware(compactor, persist=door == "middleware")
        return create_agent(model, [look_up], system_prompt="Be exact.", middleware=[*around, ours])
    bound = model.bind_tools([look_up])
    builder = StateGraph(ByIds)
    builder.add_node("agent", lambda state: {"messages": [bound.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode([look_up]))
    first = "agent"
    if door == "node":
        first = "compact"
        builder.add_node(first, RoundCompactNode(compactor, agent_model=model))
        builder.add_edge(first, "agent")
    else:
        add_round_compaction(builder, compactor, agent_model=model)
    builder.add_edge(START, first)
    builder.add_conditional_edges("agent", tools_condition, {"tools": "tools", END: END})
    builder.add_edge("tools", first)
    return builder.compile()


def work(server: StrictServer, graph: Any, how: str = "sync") -> list[BaseMessage]:
    """The agent's whole run: to its end, with nothing that the provider would refuse."""
    out = go(how, graph, {"messages": [HumanMessage(REQUEST, id="h")]}, {"recursion_limit": 200})["messages"]
    assert server.faults == []
    assert out[-1].text == "all done"
    assert len(server.bodies) == STEPS + 1
    assert all(REQUEST in text for text in server.texts if "previous_response_id" not in text)
    return list(out)


# --- whole runs -------------------------------------------------------------------------------------------------------------------------


@ALL
@pytest.mark.parametrize("way", ["ladder", "digest", "summary"])
def test_every_request_of_a_long_run_is_valid(provider: str, way: str) -> None:
    """Before and after compactions by folding, by rules and by a summary."""
    server_of, model_of = PROVIDERS[provider]
    with serving(server_of(STEPS)) as server:
        out = work(server, agent("middleware", subject(way), model_of(server.base_url)))
    if way == "ladder":
        assert any("round_compact" in str(message.additional_kwargs) or "fold" in str(message.additional_kwargs) for message in out)
    else:
        assert len(blocks(out)) == 1
        assert any("<memory_block_current>" in text for text in server.texts)


@ALL
@BOTH
def test_with_the_checkpoint_delivered_as_call_and_result(provider: str, how: str) -> None:
    """`checkpoint_role="tool"` is valid for each provider, in both colours."""
    server_of, model_of = PROVIDERS[provider]
    with serving(server_of(STEPS)) as server:
        out = work(server, agent("middleware", subject(checkpoint_role="tool"), model_of(server.base_url)), how)
    assert [out[i].type for i in (1, 2)] == ["ai", "tool"]
    assert any("round_checkpoint" in text for text in server.texts)


@ALL
@pytest.mark.parametrize("door", ["request only", "node", "wrapper"])
def test_by_each_door(provider: str, door: str) -> None:
    """The other doors stand down where the history is the provider's: the run is valid either way."""
    server_of, model_of = PROVIDERS[provider]
    with serving(server_of(STEPS)) as server:
        out = work(server, agent(door, subject(), model_of(server.base_url)))
    stands_down = provider == "responses, chained" and door != "request only"
    assert any("<memory_block_current>" in text for text in server.texts) is not stands_down
    assert bool(blocks(out)) is (door != "request only" and not stands_down)


@ALL
@pytest.mark.parametrize("keep", [0, 5])
def test_whatever_is_kept_at_the_end(provider: str, keep: int) -> None:
    server_of, model_of = PROVIDERS[provider]
    with serving(server_of(STEPS)) as server:
        work(server, agent("middleware", subject(keep_recent_messages=keep), model_of(server.base_url)))


# --- templates --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [None, 0, 4])
@pytest.mark.parametrize("door", ["middleware", "wrapper"])
def test_templates_that_refuse_two_user_messages_take_the_pair(keep: int | None, door: str) -> None:
    with serving(Template(STEPS)) as server:
        model = ChatOpenAI(model="m", api_key=KEY, base_url=server.base_url, max_retries=0)
        work(server, agent(door, subject(checkpoint_role="tool", keep_recent_messages=keep), model))


def test_they_would_refuse_the_checkpoint_as_a_user_message() -> None:
    """Which is why there is a choice."""
    with serving(Template(STEPS)) as server:
        model = ChatOpenAI(model="m", api_key=KEY, base_url=server.base_url, max_retries=0)
        agent("middleware", subject(), model).invoke({"messages": [HumanMessage(REQUEST, id="h")]}, {"recursion_limit": 200})
    assert {fault.split(": ")[1] for fault in server.faults} == {"two turns of the user in a row"}


# --- Claude's reasoning -----------------------------------------------------------------------------------------------------------------


def after_compaction(server: StrictServer) -> dict[str, Any]:
    """The first request with a checkpoint in it."""
    return next(body for body, text in zip(server.bodies, server.texts, strict=True) if "<memory_block_current>" in text)


def reasoning(body: dict[str, Any]) -> list[bool]:
    """For each assistant message whether it starts with reasoning."""
    return [blocks_of(message)[0]["type"] == "thinking" for message in body["messages"] if message["role"] == "assistant"]


@BOTH
@pytest.mark.parametrize(("keep", "kept"), [(None, [True]), (5, [False, False, True])])
def test_with_a_budget_the_step_being_answered_keeps_its_reasoning(how: str, keep: int | None, kept: list[bool]) -> None:
    """Claude refuses that request otherwise; the block is what was signed, byte for byte. Older kept steps go without theirs."""
    with serving(Anthropic(STEPS)) as server:
        model = claude(server.base_url, {"type": "enabled", "budget_tokens": 1024})
        out = work(server, agent("middleware", subject(keep_recent_messages=keep), model), how)
    assert reasoning(after_compaction(server)) == kept
    assert all(message.content[0]["type"] == "thinking" for message in out if isinstance(message, AIMessage))


def test_a_budget_given_with_the_request_counts_as_well() -> None:
    """By `model_settings` of other middleware, or bound to the model."""
    from langchain.agents.middleware import wrap_model_call

    @wrap_model_call
    def thinks(request: Any, handler: Any) -> Any:
        return handler(request.override(model_settings={**request.model_settings, "thinking": {"type": "enabled", "budget_tokens": 1024}}))

    with serving(Anthropic(STEPS)) as server:
        work(server, agent("middleware", subject(), claude(server.base_url), [thinks]))
    assert reasoning(after_compaction(server)) == [True]


def test_adaptive_reasoning_of_kept_steps_is_left_out_of_the_request_alone() -> None:
    """It is bound to the history that was replaced; the state keeps it, and what comes later keeps its own."""
    with serving(Anthropic(STEPS)) as server:
        out = work(server, agent("middleware", subject(), claude(server.base_url, {"type": "adaptive"})))
    assert reasoning(after_compaction(server)) == [False]
    assert any(reasoning(body)[-1:] == [True] for body in server.bodies[server.bodies.index(after_compaction(server)) :])
    assert all(message.content[0]["type"] == "thinking" for message in out if isinstance(message, AIMessage))


def prefix_breaks(server: StrictServer) -> list[int]:
    """Requests whose messages are no extension of the ones before, cache marks apart."""
    plain = [[without_marks(message) for message in body["messages"]] for body in server.bodies]
    return [i for i in range(1, len(plain)) if plain[i][: len(plain[i - 1])] != plain[i - 1]]


def without_marks(message: dict[str, Any]) -> Any:
    return {**message, "content": [{k: v for k, v in block.items() if k != "cache_control"} for block in blocks_of(message)]}


@pytest.mark.parametrize("thinking", [None, {"type": "enabled", "budget_tokens": 1024}, {"type": "adaptive"}])
@pytest.mark.parametrize("keep", [None, 5])
def test_between_compactions_each_request_extends_the_last(thinking: Any, keep: int | None) -> None:
    """So that the provider's cache holds, whatever is left out of requests."""
    with serving(Anthropic(STEPS)) as server:
        work(server, agent("middleware", subject(keep_recent_messages=keep), claude(server.base_url, thinking)))
    made = {text.partition("SUMMARY ")[2].partition("\\n")[0] for text in server.texts} - {""}
    assert len(prefix_breaks(server)) == len(made) >= 1


def test_cache_marks_of_langchains_middleware_stay_within_the_limit() -> None:
    with serving(Anthropic(STEPS)) as server:
        work(server, agent("middleware", subject(), claude(server.base_url), [AnthropicPromptCachingMiddleware(min_messages_to_cache=0)]))
    assert all("cache_control" in text for text in server.texts)


@pytest.mark.parametrize("role", ["user", "tool"])
def test_cache_marks_in_the_request_itself_survive(role: str) -> None:
    """A mark on the user's message is part of the preserved prefix."""
    marked = HumanMessage([{"type": "text", "text": REQUEST, "cache_control": {"type": "ephemeral"}}], id="h")
    with serving(Anthropic(STEPS)) as server:
        graph = agent("middleware", subject(checkpoint_role=role), claude(server.base_url))
        graph.invoke({"messages": [marked]}, {"recursion_limit": 200})
    assert server.faults == []
    assert all(body["messages"][0]["content"][0] == marked.content[0] for body in server.bodies)


def test_clearing_of_tool_uses_by_the_provider_goes_along() -> None:
    """It changes nothing here, and stays in the request."""
    management = {"edits": [{"type": "clear_tool_uses_20250919"}]}
    with serving(Anthropic(STEPS)) as server:
        out = work(server, agent("middleware", subject(), claude(server.base_url, context_management=management, betas=BETAS)))
    assert len(blocks(out)) == 1
    assert all(body["context_management"] == management for body in server.bodies)


def test_compaction_by_the_provider_is_left_to_it() -> None:
    management = {"edits": [{"type": "compact_20260112"}]}
    with serving(Anthropic(STEPS)) as server:
        graph = agent("middleware", subject(), claude(server.base_url, context_management=management, betas=BETAS))
        told = stream("sync", graph, {"messages": [HumanMessage(REQUEST, id="h")]}, {"recursion_limit": 200}, stream_mode="custom")
    assert server.faults == []
    assert {(part["outcome"], part["reason"]) for part in told} == {("stood_down", "native_compaction")}


# --- chained responses ------------------------------------------------------------------------------------------------------------------


@BOTH
def test_a_chain_is_cut_at_a_compaction_and_goes_on_behind_it(how: str) -> None:
    """The provider would bring back the replaced work by the old id: the model is given the compacted conversation, then the chain is used again."""
    with serving(Responses(STEPS)) as server:
        work(server, agent("middleware", subject(), responses(server.base_url, use_previous_response_id=True)), how)
    cut = [i for i, body in enumerate(server.bodies) if not body.get("previous_response_id")]
    assert cut[0] == 0
    assert len(cut) >= 2
    assert all("<memory_block_current>" in server.texts[i] for i in cut[1:])
    for i in cut[1:]:
        assert json.dumps(server.resolved[i]).count("line of invoice 1;") == json.dumps(server.bodies[i]["input"]).count("line of invoice 1;")
    assert len(server.bodies) - len(cut) >= STEPS // 2
    largest = max(len(json.dumps(items)) for items in server.resolved)
    assert largest < 4000 * 6


def test_reasoning_items_and_calls_stay_together_and_as_they_were() -> None:
    """The kept step goes back with its ids and its encrypted reasoning."""
    with serving(Responses(STEPS)) as server:
        work(server, agent("middleware", subject(), responses(server.base_url, store=False, include=["reasoning.encrypted_content"])))
    items = after_compaction(server)["input"]
    kept = [item for item in items if item.get("type") in ("reasoning", "function_call")]
    number = kept[-1]["call_id"].removeprefix("call_")
    assert [(item["type"], item.get("encrypted_content")) for item in kept] == [("reasoning", f"enc-{number}"), ("function_call", None)]


# --- Gemini -----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["user", "tool"])
def test_thought_signatures_of_kept_calls_are_what_was_signed(role: str) -> None:
    """Of our own call there is none: there stands what Google documents for calls that its models did not make."""
    with serving(Gemini(STEPS)) as server:
        work(server, agent("middleware", subject(checkpoint_role=role), PROVIDERS["gemini"][1](server.base_url)))
    contents = after_compaction(server)["contents"]
    calls = [part for content in contents for part in content["parts"] if "functionCall" in part]
    signatures = [part["thoughtSignature"] for part in calls]
    assert all(signature in server.signed for signature in signatures[-1:])
    assert signatures[:-1] == ([SKIP_SIGNATURE] if role == "tool" else [])


# --- other shapes of history ------------------------------------------------------------------------------------------------------------


@ALL
def test_a_second_request_of_the_user_is_valid_too(provider: str) -> None:
    """The round of before, with its checkpoint, is now part of the preserved prefix."""
    server_of, model_of = PROVIDERS[provider]
    with serving(server_of(STEPS)) as server:
        graph = agent("middleware", subject(), model_of(server.base_url))
        first = work(server, graph)
        server.steps = len(server.bodies) + STEPS
        graph.invoke({"messages": [*first, HumanMessage("And now the credit notes.", id="h2")]}, {"recursion_limit": 200})
    assert server.faults == []


def test_many_agents_at_once() -> None:
    """One compactor for all, one server for each."""

    async def one(provider: str, compactor: RoundCompactor) -> list[str]:
        server_of, model_of = PROVIDERS[provider]
        with serving(server_of(STEPS)) as server:
            await agent("middleware", compactor, model_of(server.base_url)).ainvoke({"messages": [HumanMessage(REQUEST)]}, {"recursion_limit": 200})
        return server.faults

    async def together() -> list[list[str]]:
        compactor = subject()
        return list(await asyncio.gather(*(one(provider, compactor) for provider in PROVIDERS)))

    assert asyncio.run(together()) == [[]] * len(PROVIDERS)


# --- the rules have teeth ---------------------------------------------------------------------------------------------------------------

USER = {"role": "user", "content": "hi"}
ACT = {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "x", "input": {}}]}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "r"}]}


@pytest.mark.parametrize(
    ("messages", "more", "fault"),
    [
        ([USER, ACT, RESULT], {}, None),
        ([USER, USER], {}, "same role"),
        ([ACT, RESULT], {}, "not the user's"),
        ([USER, ACT], {}, "no result right after"),
        ([USER, ACT, {"role": "user", "content": "so?"}], {}, "no result right after"),
        ([USER, {"role": "assistant", "content": "a"}, RESULT], {}, "no call right before"),
        ([USER, {"role": "assistant", "content": [{"type": "text", "text": " "}]}, USER], {}, "empty text block"),
        ([USER, {"role": "assistant", "content": []}, USER], {}, "is empty"),
        ([USER, {"role": "assistant", "content": "a"}], {}, "prefill"),
        ([USER, ACT, RESULT, ACT, RESULT], {}, "made twice"),
        ([USER, ACT, {"role": "user", "content": [{"type": "text", "text": "x"}, *RESULT["content"]]}], {}, "in front of its results"),
        ([USER, ACT, RESULT], {"thinking": {"type": "enabled"}}, "does not start with reasoning"),
        ([USER, ACT, RESULT], {"thinking": {"type": "adaptive"}}, None),
        ([USER, {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"}, *ACT["content"]]}, RESULT], {}, "signed"),
        ([USER, {"role": "assistant", "content": [{"type": "thinking", "thinking": "t"}, *ACT["content"]]}, RESULT], {}, "without a signature"),
        ([USER], {"tools": [{"cache_control": {}}] * 5}, "cache marks"),
    ],
)
def test_the_rules_of_anthropic(messages: Any, more: Any, fault: str | None) -> None:
    faults = anthropic_faults({"messages": messages, **more}, signatures={})
    assert any(fault in one for one in faults) if fault else faults == []


CALLS = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]}
ANSWER = {"role": "tool", "tool_call_id": "c1", "content": "r"}


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([USER, CALLS, ANSWER, CALLS, ANSWER], None),
        ([USER, ANSWER], "not made right before"),
        ([USER, CALLS, USER], "no result before"),
        ([USER, CALLS], "no result at the end"),
        ([USER, {"role": "assistant", "content": ""}], "is empty"),
        ([USER, USER], "in a row"),
        ([USER, {"role": "system", "content": "x"}], "in the middle"),
        ([CALLS, ANSWER], "first turn"),
    ],
)
def test_the_rules_of_chat_completions_and_templates(messages: Any, fault: str | None) -> None:
    faults = chat_faults({"messages": messages}, alternate=True)
    assert any(fault in one for one in faults) if fault else faults == []


REASONED = {"type": "reasoning", "id": "rs_1"}
CALLED = {"type": "function_call", "id": "fc_1", "call_id": "call_1"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "r"}


@pytest.mark.parametrize(
    ("items", "fault"),
    [
        ([USER, REASONED, CALLED, OUTPUT], None),
        ([USER, CALLED, OUTPUT], "without the reasoning"),
        ([USER, REASONED], "without the item that follows"),
        ([USER, REASONED, OUTPUT], "no tool call found"),
        ([USER, REASONED, CALLED], "no output for call"),
        ([USER, REASONED, CALLED, USER, OUTPUT], "no output for call"),
        ([{"role": "user", "content": ""}], "is empty"),
    ],
)
def test_the_rules_of_responses(items: Any, fault: str | None) -> None:
    server = Responses(1)
    server.made["resp_1"] = [REASONED, CALLED]
    faults = server.check({"input": items})
    assert any(fault in one for one in faults) if fault else faults == []
    assert server.check({"input": [], "previous_response_id": "gone"}) == ["previous response gone is not known"]


ASK = {"role": "user", "parts": [{"text": "hi"}]}
FUNCTION = {"role": "model", "parts": [{"functionCall": {"name": "x", "args": {}}, "thoughtSignature": "s"}]}
OTHERS = {"role": "model", "parts": [{"functionCall": {"name": "x", "args": {"k": 1}}, "thoughtSignature": "s"}]}
RETURNED = {"role": "user", "parts": [{"functionResponse": {"name": "x", "response": {}}}]}


@pytest.mark.parametrize(
    ("contents", "fault"),
    [
        ([ASK, FUNCTION, RETURNED], None),
        ([ASK, FUNCTION, RETURNED, FUNCTION, RETURNED], None),
        ([FUNCTION, RETURNED], "not the user's"),
        ([ASK, FUNCTION], "number of function responses"),
        ([ASK, FUNCTION, ASK], "number of function responses"),
        ([ASK, RETURNED], "without a call"),
        ([ASK, {"role": "model", "parts": [{"functionCall": {"name": "x", "args": {}}}]}, RETURNED], "missing a thought signature"),
        ([ASK, {"role": "model", "parts": [{"text": "a"}]}, FUNCTION, RETURNED], "does not come after"),
        (
            [ASK, {"role": "model", "parts": [{"functionCall": {"name": "x", "args": {"k": 1}}, "thoughtSignature": "s"}]}, RETURNED],
            "not of this call",
        ),
        ([ASK, {"role": "model", "parts": [{"text": ""}]}, ASK], "empty part"),
        ([ASK, {"role": "model", "parts": []}, ASK], "no parts"),
    ],
)
def test_the_rules_of_gemini(contents: Any, fault: str | None) -> None:
    faults = gemini_faults({"contents": contents}, signatures={"s": "{}"})
    assert any(fault in one for one in faults) if fault else faults == []
