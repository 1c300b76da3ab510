"""Failures as they come over the wire: a real `ChatOpenAI`, both APIs, streamed and not, in both colours, against a server on loopback.

For each: what kind it is, how many requests the server saw, how many attempts the result tells, and what became of the messages.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest
from http_server import BreakOff, Drop, Fail, ModelServer, Say, Slow, model_server
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI
from procedures import blocks, compact, compactor, history, snapshot

from langgraph_roundcompact import ModelClientConfig, RoundCompactConfig, RoundCompactor

ANSWER = Say(text=snapshot("NOTED"))

WIRES = [(how, api, stream) for how in ("sync", "async") for api in ("chat", "responses") for stream in (False, True)]
WIRE = pytest.mark.parametrize(("how", "api", "stream"), WIRES, ids=[f"{how}-{api}-{'streamed' if s else 'whole'}" for how, api, s in WIRES])
"""Colour, API, and whether answers are streamed."""
COLOUR = pytest.mark.parametrize("how", ["sync", "async"])


pytestmark = pytest.mark.usefixtures("waits")


def client(server: ModelServer, api: str = "chat", *, stream: bool = False, **more: Any) -> ChatOpenAI:
    """A user's model object; without a certificate store, which costs more than all the rest."""
    given = {"max_retries": 0, "http_client": httpx.Client(verify=False), "http_async_client": httpx.AsyncClient(verify=False), **more}
    return ChatOpenAI(model="local", base_url=server.base_url, api_key="key", streaming=stream, use_responses_api=api == "responses", **given)


def asked(server: ModelServer) -> list[int]:
    """Size of each request that came in, in characters."""
    return [len(seen.text) for seen in server.seen]


def untouched(result: Any, given: Sequence[BaseMessage], before: Sequence[dict[str, Any]]) -> bool:
    return (result.changed, result.compacted, result.update) == (False, False, {}) and [m.model_dump() for m in result.messages] == before == [
        m.model_dump() for m in given
    ]


# --- an overflow is answered by a smaller request ----------------------------------------------------------------------------------------


def openai_error(message: str, code: Any = None, kind: str = "invalid_request_error", **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code, **more}}


OVERFLOWS: dict[str, Fail] = {
    "openai chat": Fail(
        status=400,
        body=openai_error(
            "This model's maximum context length is 4096 tokens. However, your messages resulted in 6200 tokens. Please reduce the length of the "
            "messages.",
            "context_length_exceeded",
        ),
    ),
    "openai responses": Fail(
        status=400, body=openai_error("Your input exceeds the context window of this model. Please adjust your input.", "context_length_exceeded")
    ),
    "openai string too long": Fail(
        status=400, body=openai_error("Invalid 'messages[0].content': string too long. Expected at most 10485760.", "string_above_max_length")
    ),
    "openai tokens per minute": Fail(
        status=429,
        headers={"retry-after": "20"},
        body=openai_error(
            "Request too large for gpt-x in organization org-1 on tokens per min (TPM): Limit 4000, Requested 6200. The input or output tokens must "
            "be reduced in order to run successfully.",
            "rate_limit_exceeded",
            "tokens",
        ),
    ),
    "azure": Fail(
        status=400,
        body=openai_error("This model's maximum context length is 4096 tokens, however you requested 6200 tokens.", "context_length_exceeded"),
    ),
    "azure models": Fail(
        status=413, body={"error": {"code": "tokens_limit_reached", "message": "Request body too large for the model. Max size: 4000 tokens."}}
    ),
    "anthropic prompt": Fail(
        status=400,
        body={
            "type": "error",
            "error": {"type": "invalid_request_error", "message": "prompt is too long: 6200 tokens > 4096 maximum"},
            "request_id": "req_011429503",
        },
    ),
    "anthropic prompt and answer": Fail(
        status=400,
        body={
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "input length and `max_tokens` exceed context limit: 6200 + 1000 > 5000, decrease input length or `max_tokens`",
            },
        },
    ),
    "anthropic body": Fail(status=413, body={"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}),
    "gemini": Fail(
        status=400,
        body=[
            {
                "error": {
                    "code": 400,
                    "message": "The input token count (6200) exceeds the maximum number of tokens allowed (4096).",
                    "status": "INVALID_ARGUMENT",
                }
            }
        ],
    ),
    "llama.cpp": Fail(
        status=400,
        body={
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size, try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 6200,
                "n_ctx": 4096,
            }
        },
    ),
    "llama.cpp, older": Fail(
        status=500,
        body={
            "error": {
                "code": 500,
                "message": "the request exceeds the available context size. try increasing the context size or enable context shift",
                "type": "server_error",
            }
        },
    ),
    "vllm": Fail(
        status=400,
        body={
            "object": "error",
            "message": "This model's maximum context length is 4096 tokens. However, you requested 6400 tokens (6200 in the messages, 200 in the "
            "completion). Please reduce the length of the messages or completion.",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
    ),
    "vllm, newer": Fail(
        status=400,
        body={
            "error": {
                "message": "You passed 6201 input tokens and requested 0 output tokens. However, the model's context length is only 4096 tokens.",
                "type": "BadRequestError",
                "param": "input_tokens",
                "code": 400,
            }
        },
    ),
    "tgi": Fail(
        status=422, body={"error": "Input validation error: `inputs` must have less than 4096 tokens. Given: 6200", "error_type": "validation"}
    ),
    "a proxy's own page": Fail(status=413, body=b"<html><head><title>413 Request Entity Too Large</title></head></html>", content_type="text/html"),
}


@WIRE
@pytest.mark.parametrize("name", OVERFLOWS)
def test_an_overflow_is_answered_by_a_smaller_request(how: str, api: str, stream: bool, name: str, waits: list[float]) -> None:
    """One refusal, then an answer: two attempts, the second clearly smaller, no wait, and one checkpoint in the place of the work."""
    with model_server(OVERFLOWS[name], ANSWER) as server:
        given = history(1, 2, 3, 4, 5, 6)
        result = compact(how, compactor(client(server, api, stream=stream)), given)
    first, second = asked(server)
    assert [attempt.kind for attempt in result.attempts] == ["context_overflow", "ok"]
    assert second < first * 0.95
    assert all(f"k{number}" in server.seen[1].text for number in range(1, 7)), "each step leaves a trace"
    assert (result.outcome, blocks(result.messages), len(result.messages)) == ("summarised", [1], 2)
    assert waits == []


@COLOUR
@pytest.mark.parametrize("name", OVERFLOWS)
def test_an_overflow_that_never_ends_costs_ever_smaller_requests_and_changes_nothing(how: str, name: str) -> None:
    """Never the same request twice, at most seven in all, and the messages stay."""
    given = history(1, 2, 3, 4, 5, 6)
    before = [message.model_dump() for message in given]
    with model_server(OVERFLOWS[name]) as server:
        result = compact(how, compactor(client(server)), given)
    sizes = asked(server)
    assert sizes == sorted(set(sizes), reverse=True)
    assert 2 <= len(sizes) <= 7
    assert [attempt.kind for attempt in result.attempts] == ["context_overflow"] * len(sizes)
    assert (result.outcome, result.reason) == ("failed", "context_overflow")
    assert untouched(result, given, before)


@COLOUR
def test_the_limit_that_an_overflow_states_sizes_the_next_request(how: str) -> None:
    """A request twice too large is halved at once, not by tenths."""
    gap = openai_error(
        "This model's maximum context length is 3000 tokens. However, your messages resulted in 6000 tokens.", "context_length_exceeded"
    )
    with model_server(Fail(status=400, body=gap), ANSWER) as server:
        result = compact(how, compactor(client(server)), history(1, 2, 3, 4, 5, 6))
    first, second = result.attempts
    assert first.request_tokens * 0.35 < second.request_tokens <= first.request_tokens * 0.5


@pytest.mark.parametrize("api", ["chat", "responses"])
@COLOUR
def test_an_overflow_told_in_the_middle_of_a_stream_is_one(how: str, api: str) -> None:
    """The status was 200 already; only the event says so."""
    event = {"message": "Your input exceeds the context window of this model.", "type": "invalid_request_error", "code": "context_length_exceeded"}
    with model_server(BreakOff(body=event), ANSWER) as server:
        result = compact(how, compactor(client(server, api, stream=True)), history(1, 2, 3, 4, 5, 6))
    assert [attempt.kind for attempt in result.attempts] == ["context_overflow", "ok"]
    assert asked(server)[1] < asked(server)[0]


# --- everything else: retried, or not ----------------------------------------------------------------------------------------------------

HTML = b"<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"


def anthropic(status: int, kind: str, message: str, **headers: str) -> Fail:
    return Fail(status=status, body={"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_011CSHoEeqs5"}, headers=headers)


def gemini(status: int, word: str, message: str, **more: Any) -> Fail:
    """As its OpenAI-compatible door answers: a list with one error."""
    return Fail(status=status, body=[{"error": {"code": status, "message": message, "status": word, **more}}])


def llama_cpp(status: int, kind: str, message: str) -> Fail:
    return Fail(status=status, body={"error": {"code": status, "message": message, "type": kind}})


def vllm(status: int, kind: str, message: str) -> Fail:
    return Fail(status=status, body={"error": {"message": message, "type": kind, "param": None, "code": status}})


def azure(status: int, code: str, message: str, **headers: str) -> Fail:
    return Fail(status=status, body={"error": {"code": code, "message": message}}, headers=headers)


FAILURES: dict[str, tuple[Any, str, int]] = {
    # name: (reply, kind, requests until it is given up)
    "openai wrong key": (Fail(status=401, body=openai_error("Incorrect API key provided: sk-1.", "invalid_api_key")), "authentication", 1),
    "anthropic wrong key": (
        Fail(status=401, body={"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}}),
        "authentication",
        1,
    ),
    "azure wrong key": (
        Fail(status=401, body={"error": {"code": "401", "message": "Access denied due to invalid subscription key or wrong API endpoint."}}),
        "authentication",
        1,
    ),
    "gemini wrong key": (
        Fail(status=400, body=[{"error": {"code": 400, "message": "API key not valid. Please pass a valid API key.", "status": "INVALID_ARGUMENT"}}]),
        "authentication",
        1,
    ),
    "no permission": (
        Fail(status=403, body=openai_error("You are not allowed to sample from this model", "model_not_allowed")),
        "authentication",
        1,
    ),
    "no money": (
        Fail(status=429, body=openai_error("You exceeded your current quota, please check your plan.", "insufficient_quota", "insufficient_quota")),
        "authentication",
        1,
    ),
    "no such model": (Fail(status=404, body=openai_error("The model `local` does not exist", "model_not_found")), "api_request_error", 1),
    "anthropic no such model": (
        Fail(status=404, body={"type": "error", "error": {"type": "not_found_error", "message": "model: local"}}),
        "api_request_error",
        1,
    ),
    "vllm no such model": (
        Fail(status=404, body={"object": "error", "message": "The model `local` does not exist.", "type": "NotFoundError", "code": 404}),
        "api_request_error",
        1,
    ),
    "bad request": (
        Fail(status=400, body=openai_error("Unsupported value: 'temperature' does not support 15000 with this model.", "unsupported_value")),
        "api_request_error",
        1,
    ),
    "unprocessable": (
        Fail(status=422, body={"detail": [{"loc": ["body", "messages", 0, "role"], "msg": "value is not valid", "type": "value_error"}]}),
        "api_request_error",
        1,
    ),
    "rate limit": (
        Fail(status=429, body=openai_error("Rate limit reached for requests", "rate_limit_exceeded", "requests")),
        "rate_limit",
        3,
    ),
    "anthropic rate limit": (
        Fail(
            status=429,
            body={"type": "error", "error": {"type": "rate_limit_error", "message": "This would exceed your limit of 30,000 input tokens a minute"}},
        ),
        "rate_limit",
        3,
    ),
    "gemini rate limit": (
        Fail(status=429, body=[{"error": {"code": 429, "message": "Resource has been exhausted.", "status": "RESOURCE_EXHAUSTED"}}]),
        "rate_limit",
        3,
    ),
    "request timeout": (Fail(status=408, body=openai_error("Request timed out")), "timeout", 3),
    "server error": (Fail(status=500, body=openai_error("The server had an error", kind="server_error")), "server_unstable", 3),
    "bad gateway page": (Fail(status=502, body=HTML, content_type="text/html"), "server_unstable", 3),
    "unavailable": (Fail(status=503, body=openai_error("The engine is overloaded, try again later")), "server_unstable", 3),
    "llama.cpp loading": (
        Fail(status=503, body={"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}),
        "server_unstable",
        3,
    ),
    "gateway timeout": (Fail(status=504, body=b"", content_type="text/plain"), "server_unstable", 3),
    "anthropic overloaded": (
        Fail(status=529, body={"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
        "server_unstable",
        3,
    ),
    "llama.cpp wrong key": (llama_cpp(401, "authentication_error", "Invalid API Key"), "authentication", 1),
    "vllm wrong key": (Fail(status=401, body={"error": "Unauthorized"}), "authentication", 1),
    "anthropic no permission": (anthropic(403, "permission_error", "Your API key does not have permission to use it"), "authentication", 1),
    "gemini no permission": (gemini(403, "PERMISSION_DENIED", "Generative Language API has not been used in project 1"), "authentication", 1),
    "azure no permission": (azure(403, "AccessDenied", "Public access is disabled. Please configure private endpoint."), "authentication", 1),
    "anthropic no money": (anthropic(400, "invalid_request_error", "Your credit balance is too low to access the API."), "authentication", 1),
    "azure no such deployment": (azure(404, "DeploymentNotFound", "The API deployment for this resource does not exist."), "api_request_error", 1),
    "gemini no such model": (gemini(404, "NOT_FOUND", "models/local is not found for API version v1main"), "api_request_error", 1),
    "llama.cpp no such path": (llama_cpp(404, "not_found_error", "File Not Found"), "api_request_error", 1),
    "azure filter": (azure(400, "content_filter", "The response was filtered due to the prompt triggering a policy."), "api_request_error", 1),
    "anthropic bad request": (anthropic(400, "invalid_request_error", "messages: at least one message is required"), "api_request_error", 1),
    "openai unprocessable": (Fail(status=422, body=openai_error("Unprocessable entity")), "api_request_error", 1),
    "anthropic unprocessable": (anthropic(422, "invalid_request_error", "max_tokens: must be at most 4096 characters"), "api_request_error", 1),
    "azure rate limit": (azure(429, "RateLimitReached", "Requests have exceeded the token rate limit of your tier."), "rate_limit", 3),
    "vllm overloaded": (vllm(429, "TooManyRequests", "Server is at capacity"), "rate_limit", 3),
    "anthropic server error": (anthropic(500, "api_error", "Internal server error"), "server_unstable", 3),
    "gemini server error": (gemini(500, "INTERNAL", "An internal error has occurred."), "server_unstable", 3),
    "azure server error": (azure(500, "InternalServerError", "Backend returned unexpected response."), "server_unstable", 3),
    "vllm server error": (vllm(500, "InternalServerError", "EngineCore encountered an issue."), "server_unstable", 3),
    "llama.cpp server error": (llama_cpp(500, "server_error", "failed to decode the batch"), "server_unstable", 3),
    "gemini unavailable": (gemini(503, "UNAVAILABLE", "The model is overloaded. Please try again later."), "server_unstable", 3),
    "openai overloaded": (Fail(status=529, body=openai_error("The engine is overloaded")), "server_unstable", 3),
    "dropped": (Drop(), "server_unstable", 3),
    "dropped amid the answer": (Drop(amid=True), "server_unstable", 3),
    "broken JSON": (Fail(status=200, body=b'{"id": "resp_1", "choices": [{"message"'), "unknown", 3),
    "a page instead of JSON": (Fail(status=200, body=b"<html><body>It works!</body></html>", content_type="text/html"), "unknown", 3),
}


@WIRE
@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_costs_what_it_may_and_changes_nothing(how: str, api: str, stream: bool, name: str, waits: list[float]) -> None:
    """Permanent failures: one request. Passing ones: two more, with growing waits. The messages stay, and the kind says why."""
    reply, kind, requests = FAILURES[name]
    given = history(1, 2)
    before = [message.model_dump() for message in given]
    with model_server(reply) as server:
        result = compact(how, compactor(client(server, api, stream=stream)), given)
    assert [attempt.kind for attempt in result.attempts] == [kind] * requests
    assert len(server.seen) == requests
    assert len({seen.text for seen in server.seen}) == 1
    assert (result.outcome, result.reason) == ("failed", kind)
    assert untouched(result, given, before)
    assert [round(wait, 1) for wait in waits] == [0.1, 0.1][: requests - 1]
    assert all(least <= wait <= least * 1.25 for least, wait in zip((0.05, 0.1), waits, strict=False))


@COLOUR
@pytest.mark.parametrize("name", [name for name, (_, _, requests) in FAILURES.items() if requests > 1])
def test_a_failure_that_passes_leaves_no_trace(how: str, name: str) -> None:
    """Two failures, then an answer: three attempts and one checkpoint."""
    reply, kind, _ = FAILURES[name]
    with model_server(reply, reply, ANSWER) as server:
        result = compact(how, compactor(client(server)), history(1, 2))
    assert [attempt.kind for attempt in result.attempts] == [kind, kind, "ok"]
    assert len(server.seen) == 3
    assert (result.outcome, blocks(result.messages), len(result.messages)) == ("summarised", [1], 2)


@pytest.mark.parametrize("api", ["chat", "responses"])
@COLOUR
def test_an_answer_without_choices_is_no_summary(how: str, api: str) -> None:
    """Whether the client chokes on it or hands over nothing: no checkpoint, and a bounded number of requests."""
    given = history(1, 2)
    before = [message.model_dump() for message in given]
    empty = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [], "output": []}
    with model_server(Fail(status=200, body=empty)) as server:
        result = compact(how, compactor(client(server, api)), given)
    assert [attempt.kind for attempt in result.attempts] == (["unknown"] * 3 if api == "chat" else ["rejected"] * 2)
    assert len(server.seen) == len(result.attempts)
    assert result.outcome == "failed"
    assert untouched(result, given, before)


@COLOUR
@pytest.mark.parametrize(
    ("error", "kind", "requests"),
    [
        ({"message": "Provider returned error", "code": 502}, "server_unstable", 3),
        ({"message": "Provider returned error", "code": 401}, "authentication", 1),
        ({"message": "Provider returned error", "code": 429}, "rate_limit", 3),
        (
            {"message": "This endpoint's maximum context length is 4096 tokens. However, you requested about 6200.", "code": 400},
            "context_overflow",
            1,
        ),
    ],
)
def test_an_error_sent_with_status_200_is_what_its_body_says(how: str, error: dict[str, Any], kind: str, requests: int) -> None:
    """Routers in front of several providers answer like this once they have begun; the client only raises a `ValueError` with the body."""
    with model_server(Fail(status=200, body={"id": "x", "error": error})) as server:
        result = compact(how, compactor(client(server)), history(1))
    assert [attempt.kind for attempt in result.attempts][:requests] == [kind] * requests
    assert len(server.seen) == len(result.attempts) >= requests
    assert (result.outcome, result.reason) == ("failed", kind)


@pytest.mark.parametrize("api", ["chat", "responses"])
@COLOUR
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"message": "Overloaded", "type": "overloaded_error", "code": "overloaded_error"}, "server_unstable"),
        ({"message": "The server had an error processing your request.", "type": "server_error", "code": "server_error"}, "server_unstable"),
        ({"message": "Rate limit reached for tokens", "type": "tokens", "code": "rate_limit_exceeded"}, "rate_limit"),
    ],
)
def test_a_stream_that_ends_in_an_error_is_retried_and_its_text_never_used(how: str, api: str, body: dict[str, Any], kind: str) -> None:
    """Half an answer came before the error."""
    with model_server(BreakOff(body=body), ANSWER) as server:
        result = compact(how, compactor(client(server, api, stream=True)), history(1, 2))
    assert [attempt.kind for attempt in result.attempts] == [kind, "ok"]
    assert "Half an ans" not in str(result.messages[1].content)
    assert result.outcome == "summarised"


# --- waiting -----------------------------------------------------------------------------------------------------------------------------

RATE = openai_error("Rate limit reached for requests", "rate_limit_exceeded", "requests")


@WIRE
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"Retry-After": "3", "Retry-After-Ms": "2500"}, 2.5),
        ({"retry-after": "3600"}, 120.0),
        ({"retry-after": "Wed, 21 Oct 2037 07:28:00 GMT"}, 120.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.05),
        ({"retry-after": "soon"}, 0.05),
        ({}, 0.05),
    ],
)
def test_the_provider_is_asked_again_when_it_says(
    how: str, api: str, stream: bool, headers: dict[str, str], seconds: float, waits: list[float]
) -> None:
    """In seconds, in milliseconds or with a date, never longer than one attempt may take; a word is passed over."""
    with model_server(Fail(status=429, body=RATE, headers=headers), ANSWER) as server:
        result = compact(how, compactor(client(server, api, stream=stream)), history(1, 2))
    (waited,) = waits
    assert seconds <= waited <= seconds * 1.25
    assert [attempt.kind for attempt in result.attempts] == ["rate_limit", "ok"]


DELAYS: dict[str, tuple[Fail, float]] = {
    "anthropic": (anthropic(429, "rate_limit_error", "This request would exceed your rate limit", **{"retry-after": "12"}), 12.0),
    "anthropic overloaded": (anthropic(529, "overloaded_error", "Overloaded", **{"retry-after": "4"}), 4.0),
    "azure, in words": (azure(429, "429", "Requests have exceeded call rate limit. Please retry after 26 seconds."), 26.0),
    "azure, in a header": (azure(429, "RateLimitReached", "Please retry after 26 seconds.", **{"retry-after": "25", "x-ms-region": "x"}), 25.0),
    "gemini": (
        gemini(
            429, "RESOURCE_EXHAUSTED", "You exceeded your current quota, please check your plan and billing details.",
            details=[{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}],
        ),
        34.0,
    ),
    "openai, in words": (
        Fail(status=429, body=openai_error("Rate limit reached for gpt-x. Please try again in 1.898s.", "rate_limit_exceeded", "tokens")),
        1.898,
    ),
    "an unavailable server": (Fail(status=503, body=b"", headers={"retry-after": "9"}), 9.0),
}  # fmt: skip


@WIRE
@pytest.mark.parametrize("name", DELAYS)
def test_each_providers_way_to_ask_for_a_wait_is_understood(how: str, api: str, stream: bool, name: str, waits: list[float]) -> None:
    """In a header, a field or a sentence; what follows is the answer, and one checkpoint."""
    reply, seconds = DELAYS[name]
    with model_server(reply, ANSWER) as server:
        result = compact(how, compactor(client(server, api, stream=stream)), history(1, 2))
    (waited,) = waits
    assert seconds <= waited <= seconds * 1.25
    assert [attempt.kind for attempt in result.attempts] == ["server_unstable" if reply.status in (503, 529) else "rate_limit", "ok"]
    assert (result.outcome, len(server.seen)) == ("summarised", 2)


@WIRE
def test_a_slow_answer_is_given_up(how: str, api: str, stream: bool) -> None:
    """At the limit, not later: a timeout, nothing changed, and one request for each attempt."""
    given = history(1, 2)
    before = [message.model_dump() for message in given]
    with model_server(Slow(seconds=5)) as server:
        started = time.monotonic()
        result = compact(how, compactor(client(server, api, stream=stream), timeout_seconds=0.3, max_retries=1), given)
        took = time.monotonic() - started
    assert [attempt.kind for attempt in result.attempts] == ["timeout", "timeout"]
    assert (result.outcome, result.reason, len(server.seen)) == ("failed", "timeout", 2)
    assert took < 2.5
    assert untouched(result, given, before)


@pytest.mark.parametrize("wrap", ["bare", "bound", "retried"])
@COLOUR
def test_the_connection_of_a_slow_answer_is_given_up_too(how: str, wrap: str) -> None:
    """The limit reaches the client, also through wrappers, so that no thread waits on after it."""
    with model_server(Slow(seconds=30)) as server:
        model: Any = client(server)
        model = {"bare": model, "bound": model.bind(stop=["zzz"]), "retried": model.with_retry(stop_after_attempt=1)}[wrap]
        result = compact(how, compactor(model, timeout_seconds=0.2, max_retries=0), history(1, 2))
        assert result.reason == "timeout"
        end = time.monotonic() + 3
        while any(thread.name == "roundcompact-summary" for thread in threading.enumerate()) and time.monotonic() < end:
            time.sleep(0.02)
        assert [thread.name for thread in threading.enumerate() if thread.name == "roundcompact-summary"] == []


@COLOUR
def test_a_users_shorter_limit_stays(how: str) -> None:
    """Ours is 120 seconds by default; the client's own 0.2 still end the wait."""
    with model_server(Slow(seconds=5)) as server:
        for model in (client(server, timeout=0.2), client(server).bind(timeout=0.2), client(server, timeout=httpx.Timeout(0.2))):
            started = time.monotonic()
            result = compact(how, compactor(model, max_retries=0), history(1, 2))
            assert result.reason == "timeout"
            assert time.monotonic() - started < 2.5


@COLOUR
def test_a_late_answer_is_ignored(how: str, caplog: pytest.LogCaptureFixture) -> None:
    """It comes, whole, after the limit: neither the result nor the next step has it, and nothing is logged as an error."""
    given = history(1, 2)
    with model_server(Slow(seconds=0.6, then=Say(text=snapshot("TOO LATE"))), ANSWER) as server, caplog.at_level(logging.ERROR):
        # The client is told another limit, as one that takes none would not be: only ours ends the wait.
        model = client(server)
        deaf = RunnableLambda(model.invoke, afunc=model.ainvoke)
        subject = compactor(deaf, timeout_seconds=0.2, max_retries=0, cooldown_groups=0)
        first = compact(how, subject, given)
        time.sleep(0.8)
        second = compact(how, subject, given)
    assert (first.outcome, first.reason) == ("failed", "timeout")
    assert "NOTED" in str(second.messages[1].content)
    assert "TOO LATE" not in str(second.messages)
    assert caplog.records == []


# --- answers that are no summary ---------------------------------------------------------------------------------------------------------

FINISHES: dict[str, tuple[Say, str]] = {
    "length": (Say(text="<state_snapshot>\n### 1. Active Task\nSort the", finish="length"), "cut_off"),
    "length, no tag": (Say(text="The task is to sort the invoices, and so far", finish="length"), "cut_off"),
    "filter": (Say(text=snapshot("NOTED"), finish="content_filter"), "content_filter"),
    "refusal": (Say(refusal="I cannot help with that."), "refusal"),
    "refusal in words": (Say(text="I'm sorry, but I can't assist with that request."), "refusal"),
    "tool call": (Say(calls=[("c9", "look_up", {"key": "k9"})]), "tool_call"),
    "text and tool call": (Say(text="Let me look that up first.", calls=[("c9", "look_up", {"key": "k9"})]), "tool_call"),
    "blank": (Say(text="  \n "), "blank"),
}


def expected_reason(name: str, api: str, stream: bool) -> str:
    # The client drops the refusal of a streamed chat completion: what is left is an answer without text.
    return "blank" if (name, api, stream) == ("refusal", "chat", True) else FINISHES[name][1]


@WIRE
@pytest.mark.parametrize("name", FINISHES)
def test_an_answer_that_is_no_summary_is_asked_for_once_more(how: str, api: str, stream: bool, name: str) -> None:
    """A second try that succeeds: two attempts, and the second request says what was wrong."""
    reply, _ = FINISHES[name]
    with model_server(reply, ANSWER) as server:
        result = compact(how, compactor(client(server, api, stream=stream)), history(1, 2))
    assert [(attempt.kind, attempt.detail) for attempt in result.attempts] == [("rejected", expected_reason(name, api, stream)), ("ok", "")]
    first, second = asked(server)
    assert 0 < second - first < 600
    assert (result.outcome, blocks(result.messages)) == ("summarised", [1])
    assert result.usage is not None
    assert result.usage["output_tokens"] > len(ANSWER.text) // 4, "both answers were paid for"


@WIRE
@pytest.mark.parametrize("name", FINISHES)
def test_an_answer_that_stays_no_summary_changes_nothing(how: str, api: str, stream: bool, name: str) -> None:
    given = history(1, 2)
    before = [message.model_dump() for message in given]
    with model_server(FINISHES[name][0]) as server:
        result = compact(how, compactor(client(server, api, stream=stream)), given)
    assert [attempt.kind for attempt in result.attempts] == ["rejected", "rejected"]
    assert {attempt.detail for attempt in result.attempts} == {expected_reason(name, api, stream)}
    assert (result.outcome, result.reason, len(server.seen)) == ("failed", "summary_rejected", 2)
    assert untouched(result, given, before)


# --- the client's own retries ------------------------------------------------------------------------------------------------------------


@COLOUR
def test_a_model_resolved_by_name_has_no_retries_of_its_own(how: str) -> None:
    """Three requests for a server that stays down, not nine."""
    with model_server(Fail(status=500, body={})) as server:
        access = ModelClientConfig(api_base=server.base_url, api_key="key")
        config = RoundCompactConfig(
            model="local", model_client=access, trigger_token_threshold=1000, min_target_context_ratio=0, keep_recent_messages=0
        )
        result = compact(how, RoundCompactor(config=config, tiers=()), history(1, 2, 3))
    assert (len(server.seen), len(result.attempts)) == (3, 3)


@COLOUR
def test_retries_of_a_users_own_client_are_the_users(how: str) -> None:
    """`max_retries` of the object stays in force inside each of our attempts: with one of ours and one of theirs, four requests."""
    with model_server(Fail(status=500, body={}, headers={"retry-after-ms": "1"})) as server:
        result = compact(how, compactor(client(server, max_retries=1), max_retries=1), history(1, 2))
    assert (len(server.seen), len(result.attempts)) == (4, 2)


@WIRE
def test_nothing_is_sent_that_was_not_asked_for(how: str, api: str, stream: bool) -> None:
    """No limit of the answer, no temperature, no tools: the model's settings are the user's."""
    with model_server(ANSWER) as server:
        result = compact(how, compactor(client(server, api, stream=stream)), history(1, 2))
    (seen,) = server.seen
    assert set(seen.body) <= {"model", "messages", "input", "stream", "stream_options"}
    assert result.usage == {
        "input_tokens": len(seen.prompt) // 4,
        "output_tokens": len(ANSWER.text) // 4 + 1,
        "total_tokens": len(seen.prompt) // 4 + len(ANSWER.text) // 4 + 1,
        **({"output_token_details": {"reasoning": 0}} if api == "responses" else {"output_token_details": {}}),
        "input_token_details": {"cache_read": 0},
    }
    assert json.loads(seen.text)[0]["role"] == "user"


@pytest.fixture(autouse=True)
def _no_leftovers() -> Iterator[None]:
    """Threads of ours do not outlive a test by much."""
    yield
    end = time.monotonic() + 3
    while any(thread.name == "roundcompact-summary" for thread in threading.enumerate()) and time.monotonic() < end:
        time.sleep(0.01)
