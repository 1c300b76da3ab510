"""Ours before and after each other middleware that touches requests, calls or messages: never a broken request, never a summary paid twice.

`test_doors_middleware.py` has the middlewares' own meaning (a todo list stays visible, a limit still counts, an overflow inside a retry, deepagents).
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from builders import call
from deepagents import create_deep_agent
from doors import REQUEST, check_requests, look_up, said, shared, thread, working
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    HumanInTheLoopMiddleware,
    LLMToolSelectorMiddleware,
    ModelCallLimitMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    PIIMiddleware,
    SummarizationMiddleware,
    TodoListMiddleware,
    ToolCallLimitMiddleware,
    ToolRetryMiddleware,
)
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_anthropic import ChatAnthropic
from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from procedures import BOTH, blocks, compactor, go, history, ids, summariser, texts
from pydantic import BaseModel

from langgraph_roundcompact import RoundCompactMiddleware
from langgraph_roundcompact.testing import ScriptedChatModel, assert_valid_history

ASK: Any = {"messages": [HumanMessage(REQUEST, id="h")]}

ORDERS = pytest.mark.parametrize("order", ["ours outside", "ours inside"])
PERSIST = pytest.mark.parametrize("persist", [True, False])


def in_order(order: str, ours: Any, *others: Any) -> list[Any]:
    return [ours, *others] if order == "ours outside" else [*others, ours]


def finished(how: str, agent: Any) -> list[BaseMessage]:
    """The messages at the end; whoever asks is told yes."""
    result = go(how, agent, ASK, {**thread("t"), "recursion_limit": 400})
    for _ in range(40):
        if "__interrupt__" not in result:
            break
        result = go(how, agent, Command(resume={"decisions": [{"type": "approve"}]}), thread("t"))
    messages: list[BaseMessage] = result["messages"]
    return messages


OTHERS: dict[str, Callable[[], Any]] = {
    "human in the loop": lambda: HumanInTheLoopMiddleware(interrupt_on={"look_up": True}),
    "model retry": lambda: ModelRetryMiddleware(max_retries=2, initial_delay=0.0, jitter=False),
    "tool retry": lambda: ToolRetryMiddleware(max_retries=2, initial_delay=0.0, jitter=False),
    "model fallback": lambda: ModelFallbackMiddleware(ScriptedChatModel(replies=[AssertionError("never asked")])),
    "context editing": lambda: ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=100_000)]),
    "pii": lambda: PIIMiddleware("email", apply_to_input=True, apply_to_output=True, apply_to_tool_results=True),
    "tool call limit": lambda: ToolCallLimitMiddleware(run_limit=100),
    "model call limit": lambda: ModelCallLimitMiddleware(run_limit=100),
    "prompt caching": lambda: AnthropicPromptCachingMiddleware(unsupported_model_behavior="ignore"),
}


@BOTH
@ORDERS
@PERSIST
@pytest.mark.parametrize("other", list(OTHERS))
def test_a_middleware_that_has_nothing_to_do_changes_nothing(how: str, order: str, persist: bool, other: str) -> None:
    """Sixteen steps: with another middleware that does not act, the model is sent what it is sent without it, and as many summaries are paid."""
    assert sixteen(how, order, persist, OTHERS[other]()) == without_others(how, persist)


@BOTH
@ORDERS
def test_langchains_summarisation_with_a_higher_trigger_finds_nothing_to_do(how: str, order: str) -> None:
    """Ours keeps the window below it: never both."""
    theirs = SummarizationMiddleware(ScriptedChatModel(replies=[AssertionError("never asked")]), trigger=("tokens", 3900), keep=("messages", 4))
    assert sixteen(how, order, True, theirs) == without_others(how, True)


def sixteen(how: str, order: str, persist: bool, *others: Any) -> Any:
    """A run of sixteen steps: what the model was sent, the summaries paid, the state at the end."""
    subject, notes = shared(trigger=2000)
    model = working(16)
    middleware = in_order(order, RoundCompactMiddleware(subject, persist=persist), *others)
    after = finished(how, create_agent(model, [look_up], middleware=middleware, checkpointer=InMemorySaver()))
    check_requests(model.requests, summaries=len(notes.requests))
    assert_valid_history(after, pending_ok=False)
    assert len(notes.requests) >= 2
    return [[said(m) for m in request] for request in model.requests], len(notes.requests), [said(m) for m in after]


@functools.cache
def without_others(how: str, persist: bool) -> Any:
    return sixteen(how, "ours outside", persist)


# --- middleware that acts --------------------------------------------------------------------------------------------------------------


@BOTH
@ORDERS
@PERSIST
def test_failing_model_calls_are_retried_without_a_second_summary(how: str, order: str, persist: bool) -> None:
    """Every third call fails once: the retried request is the failed one, and the summaries are those of a run without failures."""
    steady, steady_notes = shared(trigger=2000)
    plain = working(16)
    go(how, create_agent(plain, [look_up], middleware=[RoundCompactMiddleware(steady, persist=persist)]), ASK)
    subject, notes = shared(trigger=2000)
    replies: list[Any] = []
    for number, reply in enumerate(working(16).replies):
        replies += [ConnectionError("lost"), reply] if number % 3 == 2 else [reply]
    model = ScriptedChatModel(replies=replies, strict=True)
    retry = ModelRetryMiddleware(max_retries=2, initial_delay=0.0, jitter=False)
    middleware = in_order(order, RoundCompactMiddleware(subject, persist=persist), retry)
    after = go(how, create_agent(model, [look_up], middleware=middleware), ASK)["messages"]
    requests = [[said(m) for m in request] for request in model.requests]
    distinct = [request for i, request in enumerate(requests) if i == 0 or request != requests[i - 1]]
    assert distinct == [[said(m) for m in request] for request in plain.requests]
    assert len(notes.requests) == len(steady_notes.requests) >= 2
    assert_valid_history(after, pending_ok=False)


@BOTH
@ORDERS
def test_a_fallback_in_the_middle_of_a_run_gets_what_the_first_model_got(how: str, order: str) -> None:
    """The first model is down at each call; the second, with a smaller window, works: each of its requests was the first one's too."""
    subject, notes = shared(trigger=2000)
    first = ScriptedChatModel(replies=[ConnectionError("down")])
    second = working(16)
    middleware = in_order(order, RoundCompactMiddleware(subject), ModelFallbackMiddleware(second))
    after = go(how, create_agent(first, [look_up], middleware=middleware), ASK)["messages"]
    assert [[said(m) for m in r] for r in first.requests] == [[said(m) for m in r] for r in second.requests]
    assert len(notes.requests) >= 2
    check_requests(second.requests, summaries=len(notes.requests))
    assert_valid_history(after, pending_ok=False)


@BOTH
@ORDERS
@PERSIST
def test_cleared_results_and_blocks_stand_together(how: str, order: str, persist: bool) -> None:
    """Editing that clears at every step: requests valid, the person's words in each, and no step pays a summary for what was paid before."""
    subject, notes = shared(trigger=2000)
    model = working(24)
    editing = ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=1200, keep=1)])
    middleware = in_order(order, RoundCompactMiddleware(subject, persist=persist), editing)
    after = go(how, create_agent(model, [look_up], middleware=middleware), ASK)["messages"]
    model.assert_complete()
    for request in model.requests:
        assert [m.content for m in request if m.content == REQUEST] == [REQUEST]
        assert_valid_history(request, pending_ok=False)
        assert len(blocks(request)) <= 1
    assert_valid_history(after, pending_ok=False)
    assert not any(m.content == "[cleared]" for m in after)
    assert len(notes.requests) <= 12


@tool("look_up")
def look_up_with_address(key: int) -> str:
    """Look an invoice up; its results name a person.

    Args:
        key: Its number.
    """
    return f"invoice {key} of ann{key}@example.org: " + f"line of invoice {key}; " * 60


@BOTH
@ORDERS
@PERSIST
@pytest.mark.parametrize("strategy", ["redact", "mask", "hash"])
def test_what_is_redacted_in_results_reaches_neither_summariser_nor_block(how: str, order: str, persist: bool, strategy: Any) -> None:
    """PII is taken out of the state before a model call, so compaction works on clean messages."""
    subject, notes = shared(trigger=2000)
    model = working(16)
    pii = PIIMiddleware("email", strategy=strategy, apply_to_tool_results=True)
    middleware = in_order(order, RoundCompactMiddleware(subject, persist=persist), pii)
    after = go(how, create_agent(model, [look_up_with_address], middleware=middleware), ASK)["messages"]
    assert len(notes.requests) >= 2
    assert not any(re.search(r"ann\d+@example.org", text) for text in texts([*notes.requests, *model.requests, after]))
    check_requests(model.requests, summaries=len(notes.requests))


@BOTH
@ORDERS
def test_a_block_redacted_as_if_it_were_input_stays_a_block(how: str, order: str) -> None:
    """By default PII looks at the last human message, which is the block: it loses the address, keeps its mark, and the next one takes its place."""
    subject, notes = shared(trigger=2000)
    model = working(20)
    middleware = in_order(order, RoundCompactMiddleware(subject), PIIMiddleware("email"))
    after = go(how, create_agent(model, [look_up_with_address], middleware=middleware), ASK)["messages"]
    assert len(notes.requests) >= 2
    for request in [*model.requests, after]:
        assert [m.content for m in request if m.content == REQUEST] == [REQUEST]
        assert len(blocks(request)) <= 1
        assert_valid_history(request, pending_ok=False)
    assert after[1].additional_kwargs["lc_source"] == "round_compaction"


@BOTH
@ORDERS
@pytest.mark.parametrize("behaviour", ["end", "continue"])
def test_limits_count_the_calls_that_were_compacted(how: str, order: str, behaviour: Any) -> None:
    """Ten tool calls are allowed and the block hides most of them: the eleventh is refused all the same."""
    subject, notes = shared(trigger=2000)
    model = working(12)
    limit = ToolCallLimitMiddleware(run_limit=10, exit_behavior=behaviour)
    middleware = in_order(order, RoundCompactMiddleware(subject), limit)
    after = go(how, create_agent(model, [look_up], middleware=middleware), ASK)["messages"]
    assert len(notes.requests) >= 1
    assert len(model.requests) == (11 if behaviour == "end" else 13)
    assert any("limit" in str(m.content).lower() for m in after)
    for request in [*model.requests, after]:
        assert_valid_history(request, pending_ok=False)


@BOTH
@ORDERS
def test_todos_are_put_back_wherever_ours_stands(how: str, order: str) -> None:
    """The list is written at the first step only; it is in every later request, and in the block's recovered context once its call is gone."""
    subject, notes = shared(trigger=2000)
    todos = [{"content": "list the open ones", "status": "in_progress"}, {"content": "send the letter", "status": "pending"}]
    model = ScriptedChatModel(replies=[AIMessage("", tool_calls=[call("w", "write_todos", todos=todos)]), *working(14).replies], strict=True)
    middleware = in_order(order, RoundCompactMiddleware(subject), TodoListMiddleware())
    go(how, create_agent(model, [look_up], middleware=middleware), ASK)
    assert len(notes.requests) >= 2
    for request in model.requests[1:]:
        assert "list the open ones" in str(request)
        assert "send the letter" in str(request)
    assert any("<recovered_context>" in str(m.content) for m in model.requests[-1])


class Choosing(ScriptedChatModel):
    """Chooses `look_up` whenever it is asked for tools, and notes by what it was asked."""

    asked: Any = None

    def with_structured_output(self, schema: Any, **kwargs: Any) -> Any:
        def choose(messages: Any) -> Any:
            self.asked.append(messages[-1])
            return {"tools": ["look_up"]}

        return RunnableLambda(choose)


@tool
def other(key: int) -> str:
    """Do something else.

    Args:
        key: Its number.
    """
    raise AssertionError(key)


@BOTH
@ORDERS
@PERSIST
@pytest.mark.parametrize("role", ["user", "tool"])
def test_a_tool_selector_chooses_at_every_step(how: str, order: str, persist: bool, role: Any) -> None:
    """It reads the last human message. Delivered as a call and its result, the checkpoint is none: then it is asked with the person's words."""
    subject, notes = shared(trigger=2000, checkpoint_role=role)
    chooser = Choosing(asked=[])
    model = working(12)
    middleware = in_order(order, RoundCompactMiddleware(subject, persist=persist), LLMToolSelectorMiddleware(model=chooser))
    after = go(how, create_agent(model, [look_up, other], middleware=middleware), ASK)["messages"]
    assert len(notes.requests) >= 1
    assert len(chooser.asked) == 13
    assert all([t["function"]["name"] for t in options["tools"]] == ["look_up"] for options in model.options)
    if role == "tool":
        assert {m.content for m in chooser.asked} == {REQUEST}
    for request in [*model.requests, after]:
        assert_valid_history(request, pending_ok=False)


# --- prompt caching --------------------------------------------------------------------------------------------------------------------


class Claude(ChatAnthropic):
    """The real client up to the wire: it builds each payload, and a script answers in place of the provider."""

    script: Any = None
    payloads: Any = None

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        self.payloads.append(self._get_request_payload(messages, stop=stop, **kwargs))
        return ChatResult(generations=[ChatGeneration(message=self.script.invoke(messages))])

    async def _agenerate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        return self._generate(messages, stop, **kwargs)


@BOTH
@ORDERS
@PERSIST
def test_cache_marks_of_anthropics_middleware_are_on_compacted_requests(how: str, order: str, persist: bool) -> None:
    """Marks on prompt, tools and request, four at most; between compactions each payload extends the one before, mark for mark."""
    subject, notes = shared(trigger=2000)
    claude = Claude(model="claude-sonnet-4-5", api_key="none", script=working(16), payloads=[])  # type: ignore[call-arg,arg-type]
    caching = AnthropicPromptCachingMiddleware(ttl="1h")
    middleware = in_order(order, RoundCompactMiddleware(subject, persist=persist), caching)
    agent = create_agent(claude, [look_up], system_prompt="Be exact.", middleware=middleware)
    go(how, agent, ASK)
    assert len(claude.payloads) == 17
    mark = {"type": "ephemeral", "ttl": "1h"}
    broken = 0
    for number, payload in enumerate(claude.payloads):
        assert payload["system"][-1]["cache_control"] == mark
        assert payload["tools"][-1]["cache_control"] == mark
        assert payload["cache_control"] == mark
        assert str(payload).count("cache_control") <= 4
        assert [message["role"] for message in payload["messages"]] == ["user", "assistant"] * (len(payload["messages"]) // 2) + ["user"]
        before = claude.payloads[number - 1]["messages"] if number else []
        broken += payload["messages"][: len(before)] != before
    assert len(notes.requests) >= 2
    assert broken == len(notes.requests)


# --- structured output -----------------------------------------------------------------------------------------------------------------


class Invoice(BaseModel):
    """The answer's shape."""

    total: float


STRUCTURED: dict[str, tuple[Any, list[Any]]] = {
    "tool": (ToolStrategy(Invoice), [AIMessage("", tool_calls=[call("good", "Invoice", total=12.5)])]),
    "tool, second try": (
        ToolStrategy(Invoice),
        [AIMessage("", tool_calls=[call("bad", "Invoice", total="?")]), AIMessage("", tool_calls=[call("good", "Invoice", total=12.5)])],
    ),
    "provider": (ProviderStrategy(Invoice), [AIMessage('{"total": 12.5}')]),
}


@BOTH
@PERSIST
@pytest.mark.parametrize("strategy", list(STRUCTURED))
@pytest.mark.parametrize("affinity", [False, True])
def test_structured_answers_end_compacted_rounds(how: str, persist: bool, strategy: str, affinity: bool) -> None:
    """Two rounds of a thread: the answer is parsed, each request valid, and the first round's answer is prefix of the second."""
    response_format, end = STRUCTURED[strategy]
    saver, held = InMemorySaver(), []
    for turn in (1, 2):
        subject, notes = shared(trigger=2000, enable_kv_cache_affinity=affinity)
        steps = [AIMessage("", tool_calls=[call(f"c{turn}{key}", "look_up", key=key)]) for key in range(1, 13)]
        ends = [m.model_copy(update={"tool_calls": [{**c, "id": f"{c['id']}{turn}"} for c in m.tool_calls]}) for m in end]
        model = ScriptedChatModel(replies=[*steps, *ends], strict=True)
        middleware: Any = [RoundCompactMiddleware(subject, persist=persist)]
        agent = create_agent(model, [look_up], response_format=response_format, middleware=middleware, checkpointer=saver)
        result = go(how, agent, {"messages": [HumanMessage(f"Add the invoices up, part {turn}.", id=f"h{turn}")]}, thread("structured"))
        assert result["structured_response"] == Invoice(total=12.5)
        assert len(notes.requests) >= 1
        for request in model.requests:
            at = ids(request).index(f"h{turn}")
            check_requests([request[at:]], summaries=0, ask=f"Add the invoices up, part {turn}.")
            assert_valid_history(request, pending_ok=False)
        assert_valid_history(result["messages"], pending_ok=False)
        if persist:
            assert result["messages"][: len(held)] == held
        held = result["messages"]


# --- deepagents ------------------------------------------------------------------------------------------------------------------------


def deep_agent(model: Any, *middleware: Any, **more: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return create_deep_agent(model, [look_up], middleware=list(middleware), checkpointer=InMemorySaver(), **more)


def either(steps: int) -> ScriptedChatModel:
    """One model works, and summarises for deepagents when that asks."""
    counter = iter(range(1, steps + 1))

    def reply(messages: list[BaseMessage]) -> Any:
        if any("<messages>" in str(m.content) for m in (messages[0], messages[-1])):
            return "THEIRS: what was done"
        key = next(counter, None)
        return "all done" if key is None else AIMessage("", tool_calls=[call(f"c{key}", "look_up", key=key)])

    return ScriptedChatModel(replies=[reply], profile={"max_input_tokens": 14_000})


@BOTH
@pytest.mark.parametrize("good", [0, 1])
def test_where_ours_fails_theirs_takes_over_and_ours_stays_down(how: str, good: int) -> None:
    """Our summariser answers so many times and then never: their summarisation sets in, every request stays valid, and ours does not come back."""
    model = either(60)
    replies = [f"<state_snapshot>\nOURS {number}\n</state_snapshot>" for number in range(good)]
    notes = ScriptedChatModel(replies=[*replies, ConnectionError("down")])
    subject = compactor(
        notes, trigger=None, window=None, keep_recent_messages=None, trigger_context_ratio=0.7, max_retries=0, breaker_failures=0, cooldown_groups=1
    )
    agent = deep_agent(model, RoundCompactMiddleware(subject, name="ours"))
    after = go(how, agent, ASK, {**thread("both"), "recursion_limit": 400})["messages"]
    requests = [request for request, options in zip(model.requests, model.options, strict=True) if options.get("tools")]
    assert len(requests) == 61
    for request in requests:
        assert_valid_history(request, pending_ok=False)
        assert not (blocks(request) and "THEIRS" in str(request[-1].content))
    assert agent.get_state(thread("both")).values["_summarization_event"] is not None
    asked = len(notes.requests)
    go(how, agent, {"messages": [HumanMessage("And by date?", id="h2")]}, thread("both"))
    assert len(notes.requests) == asked
    assert len(blocks(after)) == min(good, 1)


@BOTH
def test_sub_agents_of_a_deep_agent_compact_on_their_own(how: str) -> None:
    """Ours in the sub-agent's list: its round is compacted, the main agent sees its answer alone."""
    subject, notes = shared(trigger=6000, window=12_000)
    inner = ScriptedChatModel(
        replies=[*(AIMessage("", tool_calls=[call(f"i{key}", "look_up", key=key)]) for key in range(1, 21)), "part done"], strict=True
    )
    task = AIMessage("", tool_calls=[call("d1", "task", description="look them all up", subagent_type="reader")])
    outer = ScriptedChatModel(replies=[task, "all done"], strict=True)
    reader: Any = {
        "name": "reader",
        "description": "reads invoices",
        "system_prompt": "Read.",
        "model": inner,
        "tools": [look_up],
        "middleware": [RoundCompactMiddleware(subject, name="SummarizationMiddleware")],
    }
    after = go(how, deep_agent(outer, subagents=[reader]), ASK, {**thread("sub"), "recursion_limit": 400})["messages"]
    inner.assert_complete()
    assert len(notes.requests) >= 1
    for request in inner.requests:
        assert_valid_history(request, pending_ok=False)
    assert any(blocks(request) for request in inner.requests)
    assert not blocks(after)
    assert [m.content for m in after if m.type == "tool"] == ["part done"]


# --- a rule of the user's own about requests -------------------------------------------------------------------------------------------


@BOTH
@PERSIST
def test_a_rule_of_the_users_own_decides_what_is_foreign(how: str, persist: bool) -> None:
    """A relay writes the request under a source mark: by the user's rule it is the request. Where the request holds it, ours does not stand down."""
    relayed = HumanMessage(REQUEST, id="h", additional_kwargs={"lc_source": "relay"})
    nudge = HumanMessage("go on", id="n")

    class Trimming(AgentMiddleware[Any, Any, Any]):
        """Leaves the nudges out of each request."""

        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return handler(request.override(messages=[m for m in request.messages if m.content != "go on"]))

        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            return await handler(request.override(messages=[m for m in request.messages if m.content != "go on"]))

    notes = summariser("NOTES")
    subject = compactor(notes, is_real_user=lambda m: m.additional_kwargs.get("lc_source") == "relay")
    model = ScriptedChatModel(replies=["done"])
    agent = create_agent(model, [], middleware=[Trimming(), RoundCompactMiddleware(subject, persist=persist)])
    go(how, agent, {"messages": [relayed, *history(1, 2)[1:], nudge]})
    assert len(notes.requests) == 1
    assert (ids(model.requests[0])[0], blocks(model.requests[0])) == ("h", [1])


@BOTH
def test_a_rule_that_raises_does_not_stop_the_agent(how: str) -> None:
    """The window stays as it is, and the model is asked."""

    def broken(message: BaseMessage) -> bool:
        raise KeyError("source")

    class Copying(AgentMiddleware[Any, Any, Any]):
        """Hands over a list of its own, so that the door has to look for the request in it."""

        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return handler(request.override(messages=[m.model_copy() for m in request.messages]))

        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            return await handler(request.override(messages=[m.model_copy() for m in request.messages]))

    model = ScriptedChatModel(replies=["done"])
    middleware: Any = [Copying(), RoundCompactMiddleware(compactor(summariser("NOTES"), is_real_user=broken))]
    after = go(how, create_agent(model, [], middleware=middleware), {"messages": history(1, 2)})["messages"]
    assert (after[-1].content, len(model.requests[0])) == ("done", 5)


def test_a_rule_of_the_users_own_decides_whose_usage_counts() -> None:
    """What was reported before the request, by the user's rule, is of an earlier round as soon as this one has an answer."""
    usage: Any = {"input_tokens": 1900, "output_tokens": 50, "total_tokens": 1950}
    given = [
        HumanMessage("hello", id="h0"),
        AIMessage("good day", id="a0", usage_metadata=usage),
        HumanMessage(REQUEST, id="h", additional_kwargs={"lc_source": "relay"}),
        *history(1, characters=400)[1:],
    ]
    relay = compactor(is_real_user=lambda m: m.additional_kwargs.get("lc_source") == "relay", trigger=100_000, window=200_000)
    assert relay.plan(given).window_tokens == relay.count_tokens(given) < 1000
    assert compactor(trigger=100_000, window=200_000).plan(given).window_tokens > 1950
