"""The agent's own model says that its window is full: compact whatever the size, ask once more, and never twice.

At each door that sees the model call: the middleware around it, the wrapped node that holds it. Errors are those of the real clients, with the
status, code and words that providers send. `test_doors_middleware.py` has further cases of the middleware (nothing to compact, other errors).
"""

from __future__ import annotations

from typing import Any

import anthropic
import httpx
import openai
import pytest
from builders import call
from doors import REQUEST, ByIds, look_up, said, shared, stream, thread
from langchain.agents import create_agent
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, RetryPolicy, interrupt
from procedures import BOTH, blocks, compactor, go, history, ids, summariser

from langgraph_roundcompact import RoundCompactMiddleware, add_round_compaction
from langgraph_roundcompact.testing import ScriptedChatModel, assert_valid_history


def answer(status: int, body: Any = None) -> httpx.Response:
    return httpx.Response(status, json=body, request=httpx.Request("POST", "http://127.0.0.1/v1"))


def openai_error(status: int, message: str, code: str | None = None) -> Exception:
    kind = {400: openai.BadRequestError, 422: openai.UnprocessableEntityError, 429: openai.RateLimitError}.get(status, openai.APIStatusError)
    return kind(f"Error code: {status}", response=answer(status), body={"message": message, "code": code, "type": "invalid_request_error"})


def anthropic_error(status: int, message: str) -> Exception:
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    kind = {400: anthropic.BadRequestError, 429: anthropic.RateLimitError}.get(status, anthropic.APIStatusError)
    return kind(message, response=answer(status, body), body=body)


OVERFLOWS: dict[str, Exception] = {
    "langchain": ContextOverflowError("prompt is too long"),
    "openai, code alone": openai_error(400, "see the code", "context_length_exceeded"),
    "vllm": openai_error(400, "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4500 in the messages)."),
    "llama.cpp": openai_error(400, "the request exceeds the available context size, try increasing it"),
    "payload too large": openai_error(413, "Request Entity Too Large"),
    "tokens a minute, one request alone": openai_error(429, "Request too large for gpt-x on tokens per min (TPM): Limit 30000, Requested 44000."),
    "anthropic": anthropic_error(400, "prompt is too long: 210000 tokens > 200000 maximum"),
    "anthropic with the answer": anthropic_error(400, "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"),
    "anthropic, payload": anthropic_error(413, "Request exceeds the maximum size"),
}

OTHERS: dict[str, Exception] = {
    "rate limit": openai_error(429, "Rate limit reached for gpt-x on requests per min"),
    "bad request": openai_error(400, "messages[3].content must be a string"),
    "a context manager": RuntimeError("no context given"),
    "a digit": ValueError("413 items"),
}

DOORS = pytest.mark.parametrize("door", ["wrapper", "middleware", "middleware, request alone"])


def agent_of(door: str, model: Any, subject: Any, **compile_with: Any) -> Any:
    if door == "wrapper":
        builder = StateGraph(ByIds)
        builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
        builder.add_node("tools", ToolNode([look_up]))
        builder.add_edge(START, "agent")
        builder.add_edge("tools", "agent")
        builder.add_conditional_edges("agent", tools_condition)
        add_round_compaction(builder, subject)
        return builder.compile(**compile_with)
    return create_agent(model, [look_up], middleware=[RoundCompactMiddleware(subject, persist=door == "middleware")], **compile_with)


def roomy(notes: Any = None, **more: Any) -> Any:
    """A compactor that believes there is room: the model knows better."""
    return compactor(notes if notes is not None else summariser("NOTES"), trigger=90_000, window=100_000, max_retries=0, **more)


@BOTH
@DOORS
@pytest.mark.parametrize("kind", list(OVERFLOWS))
def test_each_providers_overflow_is_answered_by_one_smaller_request(how: str, door: str, kind: str) -> None:
    """Two requests, the second smaller and valid; the answer and, where the door writes state, the block reach it."""
    model = ScriptedChatModel(replies=[OVERFLOWS[kind], "done"], strict=True)
    given = history(1, 2)
    after = go(how, agent_of(door, model, roomy()), {"messages": given})["messages"]
    assert [said(m) for m in model.requests[0]] == [said(m) for m in given]
    assert (len(model.requests), blocks(model.requests[1]), model.requests[1][0]) == (2, [1], given[0])
    assert_valid_history(model.requests[1], pending_ok=False)
    assert (after[-1].content, blocks(after)) == ("done", [] if door.endswith("alone") else [1])


@BOTH
@DOORS
@pytest.mark.parametrize("kind", list(OTHERS))
def test_what_is_no_overflow_passes_untouched(how: str, door: str, kind: str) -> None:
    """One request, no summary, the very error."""
    notes = summariser("NOTES")
    model = ScriptedChatModel(replies=[OTHERS[kind]], strict=True)
    with pytest.raises(type(OTHERS[kind])) as caught:
        go(how, agent_of(door, model, roomy(notes)), {"messages": history(1, 2)})
    assert caught.value is OTHERS[kind]
    assert (len(model.requests), len(notes.requests)) == (1, 0)


@BOTH
@DOORS
def test_an_overflow_after_the_compaction_reaches_the_caller_and_the_state_is_whole(how: str, door: str) -> None:
    """Two overflows: no third request, and the checkpoint holds every message."""
    model = ScriptedChatModel(replies=[ContextOverflowError("one"), ContextOverflowError("two")], strict=True)
    graph = agent_of(door, model, roomy(), checkpointer=InMemorySaver())
    with pytest.raises(ContextOverflowError, match="two"):
        go(how, graph, {"messages": history(1, 2)}, thread("two"))
    assert ids(graph.get_state(thread("two")).values["messages"]) == ["h", "a1", "t1", "a2", "t2"]


@BOTH
@DOORS
@pytest.mark.parametrize("summary", ["refused", "no model", "vetoed"])
def test_without_a_summary_rules_make_the_room(how: str, door: str, summary: str) -> None:
    """The last resort does not depend on anybody; but a veto of the application's redaction holds here too."""

    def redact(text: str) -> str:
        if summary == "vetoed" and "result 1" in text:
            raise PermissionError
        return text

    notes = None if summary == "no model" else ScriptedChatModel(replies=[ValueError("down")])
    subject = compactor(notes, trigger=90_000, window=100_000, max_retries=0, redact=redact)
    model = ScriptedChatModel(replies=[ContextOverflowError("full"), "done"], strict=True)
    graph = agent_of(door, model, subject)
    if summary == "vetoed":
        with pytest.raises(ContextOverflowError, match="full"):
            go(how, graph, {"messages": history(1, 2)})
        assert len(model.requests) == 1
    else:
        assert go(how, graph, {"messages": history(1, 2)})["messages"][-1].content == "done"
        assert blocks(model.requests[1]) == [1]


@BOTH
@DOORS
def test_a_model_with_a_smaller_window_than_anybody_said(how: str, door: str) -> None:
    """Twenty steps against a model that overflows at 2,500 tokens while the compactor believes in 100,000: the run comes to its end."""
    calls = [AIMessage("", tool_calls=[call(f"c{key}", "look_up", key=key)]) for key in range(1, 21)]
    model = ScriptedChatModel(replies=[*calls, "all done"], strict=True, overflow_at_tokens=2500)
    subject, notes = shared(trigger=90_000, window=100_000)
    after = go(how, agent_of(door, model, subject, checkpointer=InMemorySaver()), {"messages": [HumanMessage(REQUEST, id="h")]}, thread("small"))
    assert after["messages"][-1].content == "all done"
    assert 2 <= len(notes.requests) <= 10
    for request in model.requests:
        assert [m.content for m in request if m.content == REQUEST] == [REQUEST]
        assert_valid_history(request, pending_ok=False)
    if not door.endswith("alone"):
        assert len(blocks(after["messages"])) == 1
        overflows = len(model.requests) - 21
        assert overflows <= len(notes.requests) + 1


# --- the wrapped node ------------------------------------------------------------------------------------------------------------------


@BOTH
def test_a_retry_policy_sees_an_overflow_only_when_compaction_did_not_help(how: str) -> None:
    """Inside the node's own retries: the overflow is answered in the first attempt; other errors are the policy's."""
    replies = [ConnectionError("lost"), ContextOverflowError("full"), "done"]
    model = ScriptedChatModel(replies=replies, strict=True)
    notes = summariser("NOTES", strict=True)
    builder = StateGraph(ByIds)
    policy = RetryPolicy(initial_interval=0.001, max_attempts=2, jitter=False, retry_on=Exception)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]}, retry_policy=policy)
    builder.add_edge(START, "agent")
    add_round_compaction(builder, roomy(notes))
    after = go(how, builder.compile(), {"messages": history(1, 2)})["messages"]
    assert (after[-1].content, blocks(after), len(notes.requests)) == ("done", [1], 1)


@BOTH
def test_a_pause_in_the_node_is_no_overflow_and_one_after_it_is_answered(how: str) -> None:
    """The node asks, is told, and then its model overflows: it is run again, the person is asked what the second run asks."""
    model = ScriptedChatModel(replies=[ContextOverflowError("full"), "done"], strict=True)

    def agent(state: ByIds) -> Any:
        asked = interrupt("the prompt is too long: context length exceeded. Send it?") if len(state["messages"]) > 2 else "compacted"
        reply = model.invoke(state["messages"])
        return {"messages": [reply.model_copy(update={"content": f"{asked}: {reply.content}"})]}

    builder = StateGraph(ByIds)
    builder.add_node("agent", agent)
    builder.add_edge(START, "agent")
    add_round_compaction(builder, roomy())
    graph = builder.compile(checkpointer=InMemorySaver())
    assert "__interrupt__" in go(how, graph, {"messages": history(1, 2)}, thread("asks"))
    after = go(how, graph, Command(resume="yes"), thread("asks"))["messages"]
    assert (after[-1].content, blocks(after), len(model.requests)) == ("compacted: done", [1], 2)


@BOTH
def test_a_graph_as_node_is_not_run_a_second_time(how: str) -> None:
    """It has called tools before its model overflowed: their effects must not come twice. The error reaches the caller."""
    effects: list[int] = []

    def inner_tools(state: ByIds) -> Any:
        effects.append(1)
        return {}

    def inner_agent(state: ByIds) -> Any:
        raise ContextOverflowError("full")

    inner = StateGraph(ByIds)
    inner.add_node("tools", inner_tools)
    inner.add_node("model", inner_agent)
    inner.add_edge(START, "tools")
    inner.add_edge("tools", "model")
    builder = StateGraph(ByIds)
    builder.add_node("agent", inner.compile())
    builder.add_edge(START, "agent")
    add_round_compaction(builder, roomy())
    with pytest.raises(ContextOverflowError, match="full"):
        go(how, builder.compile(), {"messages": history(1, 2)})
    assert effects == [1]


@BOTH
@DOORS
def test_a_stream_is_told_what_happened_and_shows_the_answer_once(how: str, door: str) -> None:
    """`custom`: started (forced) and finished; `messages`: the answer alone."""
    model = ScriptedChatModel(replies=[ContextOverflowError("full"), "done at last"], strict=True)
    parts = stream(how, agent_of(door, model, roomy()), {"messages": history(1, 2)}, stream_mode=["custom", "messages"])
    told = [part for mode, part in parts if mode == "custom"]
    assert ([part["phase"] for part in told], told[0]["reason"]) == (["started", "finished"], "forced")
    assert "".join(str(part[0].content) for mode, part in parts if mode == "messages") == "done at last"
