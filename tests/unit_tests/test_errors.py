"""What a failed model call means: by type, status and code before words."""

from __future__ import annotations

import time

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core import exceptions as core

from langgraph_roundcompact.errors import (
    ConfigurationError,
    OverflowGap,
    RoundCompactError,
    SummaryRejected,
    classify,
    is_final,
    overflow_gap,
    retry_after_seconds,
    retry_moment,
    should_retry,
)


class HTTPError(Exception):
    """An error of any client: a status and what else the client sets."""

    def __init__(self, status: int, message: str = "", /, **fields: object) -> None:
        super().__init__(f"Error code: {status} - {message}")
        self.status_code = status
        self.__dict__.update(fields)


class Plain(Exception):
    """An error that has only words."""


@pytest.mark.parametrize(
    ("exc", "kind"),
    [
        (core.ContextOverflowError("too long"), "context_overflow"),
        (core.ModelAuthenticationError("x"), "authentication"),
        (core.ModelPermissionDeniedError("x"), "authentication"),
        (core.ModelRateLimitError("x"), "rate_limit"),
        (core.ModelTimeoutError("x"), "timeout"),
        (core.ModelConnectionError("x"), "server_unstable"),
        (core.ModelAPIError("x"), "server_unstable"),
        (core.ModelInvalidRequestError("x"), "api_request_error"),
        (core.ModelNotFoundError("x"), "api_request_error"),
        (core.ModelRefusalError("x"), "api_request_error"),
        (TimeoutError(), "timeout"),
        (httpx.PoolTimeout("full"), "timeout"),
        (ConnectionError("reset"), "server_unstable"),
        (BrokenPipeError(), "server_unstable"),
        (httpx.ReadTimeout("slow"), "timeout"),
        (httpx.ConnectTimeout("slow"), "timeout"),
        (httpx.ConnectError("refused"), "server_unstable"),
        (httpx.RemoteProtocolError("peer closed connection"), "server_unstable"),
        (httpx.ReadError("broken"), "server_unstable"),
        (ValueError("odd"), "unknown"),
        (Plain(""), "unknown"),
    ],
)
def test_a_known_type_decides_whatever_the_text_says(exc: BaseException, kind: str) -> None:
    """Known classes say what they mean, whatever their text."""
    assert classify(exc) == kind


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "api_request_error"),
        (401, "authentication"),
        (402, "authentication"),
        (403, "authentication"),
        (404, "api_request_error"),
        (408, "timeout"),
        (409, "server_unstable"),
        (413, "context_overflow"),
        (422, "api_request_error"),
        (424, "server_unstable"),
        (429, "rate_limit"),
        (500, "server_unstable"),
        (502, "server_unstable"),
        (503, "server_unstable"),
        (504, "server_unstable"),
        (529, "server_unstable"),
    ],
)
def test_a_status_decides_wherever_it_stands(status: int, kind: str) -> None:
    """A status is read from a field, and where there is none from a text that calls it one."""
    assert classify(HTTPError(status)) == kind
    assert classify(Plain(f"Error code: {status} - something")) == kind
    assert classify(Plain(f"HTTP {status}: something")) == kind


OVERFLOWS = [
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
    "prompt is too long: 96000 tokens > 6000 maximum",
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or `max_tokens` and try again",
    "The input token count (1234) exceeds the maximum number of tokens allowed (1000).",
    "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    "Input is too long for requested model.",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and 200 `max_new_tokens`",
    "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens.",
    "prompt token count of 150000 exceeds the limit of 128000",
]


@pytest.mark.parametrize("text", OVERFLOWS)
@pytest.mark.parametrize("status", [400, 413, 422, 429, 500])
def test_an_overflow_is_recognised_behind_any_status_that_providers_use_for_it(text: str, status: int) -> None:
    """The texts of all providers, with the status and alone."""
    assert classify(HTTPError(status, text)) == "context_overflow"
    assert classify(Plain(text)) == "context_overflow"


@pytest.mark.parametrize("code", ["context_length_exceeded", "exceed_context_size_error", "request_too_large"])
def test_a_code_tells_an_overflow_without_words(code: str) -> None:
    """As `e.code`, as `e.type`, and nested in the body."""
    assert classify(HTTPError(400, "no", code=code)) == "context_overflow"
    assert classify(HTTPError(400, "no", type=code)) == "context_overflow"
    assert classify(HTTPError(400, "no", body={"error": {"type": code}})) == "context_overflow"
    assert classify(HTTPError(400, "no", body={"error": {"innererror": {"code": code}}})) == "context_overflow"


def test_a_request_over_the_minute_limit_is_an_overflow_not_a_rate_limit() -> None:
    """Waiting cannot make a single request fit into tokens per minute."""
    text = "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 45000. The input or output tokens must be reduced."
    assert classify(HTTPError(429, text, code="rate_limit_exceeded")) == "context_overflow"
    assert overflow_gap(HTTPError(429, text)) == OverflowGap(30000, 45000)


@pytest.mark.parametrize(
    "text",
    [
        "Rate limit reached for gpt-4 on tokens per min (TPM): Limit 10000, Used 9500, Requested 1000. Please try again in 3s.",
        "Too many tokens, please wait before trying again.",
        "Requests have exceeded token rate limit of your current OpenAI S0 pricing tier. Please retry after 6 seconds.",
        "Number of request tokens has exceeded your per-minute rate limit",
        "Daily token limit reached",
    ],
)
def test_throttling_that_speaks_of_tokens_stays_a_rate_limit(text: str) -> None:
    """These pass with time; a smaller request is not the remedy."""
    assert classify(HTTPError(429, text)) == "rate_limit"


@pytest.mark.parametrize(
    "exc",
    [
        HTTPError(429, "You exceeded your current quota, please check your plan and billing details.", code="insufficient_quota"),
        HTTPError(429, "insufficient_quota"),
        HTTPError(400, "Your credit balance is too low to access the Anthropic API."),
        HTTPError(402, "Insufficient Balance"),
        HTTPError(400, "API key not valid. Please pass a valid API key.", details={"error": {"status": "INVALID_ARGUMENT"}}),
        core.ModelRateLimitError("Error code: 429 - {'error': {'code': 'insufficient_quota'}}"),
    ],
)
def test_an_account_that_cannot_pay_is_not_retried(exc: BaseException) -> None:
    """Like a wrong key: no retry can help."""
    assert classify(exc) == "authentication"
    assert not should_retry(classify(exc))


def test_geminis_quota_text_with_a_delay_is_a_rate_limit() -> None:
    """Gemini uses the billing text for its limits per minute."""
    body = {"error": {"code": 429, "message": "You exceeded your current quota, please check your plan", "status": "RESOURCE_EXHAUSTED"}}
    exc = HTTPError(429, str(body), details=body, code=429, status="RESOURCE_EXHAUSTED")
    assert classify(exc) == "rate_limit"
    assert classify(core.ModelRateLimitError(f"Error calling model 'm' (RESOURCE_EXHAUSTED): 429 RESOURCE_EXHAUSTED. {body}")) == "rate_limit"
    assert classify(Plain(f"429 RESOURCE_EXHAUSTED. {body}")) == "rate_limit"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Invalid API key provided", "authentication"),
        ("401 is not the answer, ticket 40123", "unknown"),
        ("request req_4010abcd429f failed", "unknown"),
        ("used 15000 tokens", "unknown"),
        ("status 15000 tokens", "unknown"),
        ("the summary mentions authorship", "unknown"),
        ("Too Many Requests", "rate_limit"),
        ("The read operation timed out", "timeout"),
        ("503 Service Unavailable", "server_unstable"),
        ("Overloaded", "server_unstable"),
        ("model does not exist", "api_request_error"),
        ("stream broke off", "unknown"),
    ],
)
def test_words_count_as_whole_phrases_only(text: str, kind: str) -> None:
    """Digits in ids and counts are no status; parts of words are no phrase."""
    assert classify(Plain(text)) == kind


@given(st.text(alphabet="0123456789abcdef", min_size=8, max_size=40))
def test_request_ids_never_change_the_kind(request_id: str) -> None:
    """Whatever digits an id holds, the status decides."""
    assert classify(HTTPError(400, f"bad (request id: {request_id})")) == "api_request_error"
    assert classify(HTTPError(500, f"oops (request id: {request_id})")) == "server_unstable"
    assert classify(Plain(f"oops {request_id}")) == "unknown"


def test_status_beats_words() -> None:
    """A 401 whose text speaks of context length is still about the key; a 503 about rate limits still a server fault."""
    assert classify(HTTPError(401, "context length of this key")) == "authentication"
    assert classify(HTTPError(503, "rate limit service unavailable")) == "server_unstable"


@pytest.mark.parametrize("status", [400, 401])
def test_output_limits_are_no_overflow_of_the_prompt(status: int) -> None:
    """A too large `max_tokens` is not cured by a shorter request."""
    text = "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens"
    assert classify(HTTPError(status, text)) != "context_overflow"


def test_causes_are_read() -> None:
    """A wrapper without facts is what its cause is; a bad request around an overflow is the overflow."""
    wrapped = RuntimeError("summary failed")
    wrapped.__cause__ = HTTPError(429)
    assert classify(wrapped) == "rate_limit"
    outer = HTTPError(400, "bad request")
    outer.__cause__ = HTTPError(400, "no", code="context_length_exceeded")
    assert classify(outer) == "context_overflow"
    assert classify(ExceptionGroup("all failed", [ValueError("x"), HTTPError(401)])) == "authentication"


def test_circular_chains_end() -> None:
    """Two exceptions that cause each other."""
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert classify(first) == "unknown"


def test_a_suppressed_context_does_not_count() -> None:
    """`raise ... from None` says that the context is not the reason."""
    exc = ValueError("x")
    exc.__context__, exc.__suppress_context__ = HTTPError(401), True
    assert classify(exc) == "unknown"


def test_broken_exceptions_are_read_all_the_same() -> None:
    """An exception whose text and fields raise."""

    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

        @property
        def response(self) -> object:
            raise RuntimeError

    assert classify(Broken()) == "unknown"
    assert retry_after_seconds(Broken()) is None
    assert overflow_gap(Broken()) is None


@pytest.mark.parametrize(
    ("text", "gap"),
    [
        ("maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens", OverflowGap(8192, 9000)),
        (
            "maximum context length is 4097 tokens. However, you requested 5000 tokens (4000 in the messages, 1000 in the completion).",
            OverflowGap(3097, 4000),
        ),
        ("prompt is too long: 96000 tokens > 6000 maximum", OverflowGap(6000, 96000)),
        ("exceed context limit: 190000 + 20000 > 200000", OverflowGap(180000, 190000)),
        ("The input token count (1234) exceeds the maximum number of tokens allowed (1000).", OverflowGap(1000, 1234)),
        ("The input token count is 1100000 but the model supports only up to 1048576.", OverflowGap(1048576, 1100000)),
        ('{"error": {"n_prompt_tokens": 9000, "n_ctx": 8192}}', OverflowGap(8192, 9000)),
        ("request (9000 tokens) exceeds the available context size (8192 tokens)", OverflowGap(8192, 9000)),
        ("Prompt contains 40,000 tokens and 0 draft tokens, too large for model with 32,768 maximum context length", OverflowGap(32768, 40000)),
        ("The decoder prompt (length 5000) is longer than the maximum model length of 4096.", OverflowGap(4096, 5000)),
        ("The input (10000 tokens) is longer than the model's context length (8192 tokens).", OverflowGap(8192, 10000)),
        ("maximum prompt length is 131072 but the request contains 537812 tokens", OverflowGap(131072, 537812)),
        ("Range of input length should be [1, 129024]", OverflowGap(129024)),
        ("Your input exceeds the context window of this model.", None),
        ("", None),
    ],
)
def test_the_gap_is_read_from_the_providers_texts(text: str, gap: OverflowGap | None) -> None:
    """Room for the output, where stated, is subtracted from both numbers."""
    assert overflow_gap(Plain(text)) == gap


def test_the_gap_is_read_from_fields() -> None:
    """llama.cpp's numbers as attributes of the exception."""
    assert overflow_gap(HTTPError(400, "no", n_ctx=4096, n_prompt_tokens=5000)) == OverflowGap(4096, 5000)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"Retry-After": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "inf"}, None),
        ({}, None),
    ],
)
def test_the_delay_is_read_from_headers(headers: dict[str, str], seconds: float | None) -> None:
    """From real response objects and plain mappings alike; dates need a clock and are ignored."""
    response = httpx.Response(429, headers=headers, request=httpx.Request("POST", "http://x"))
    assert retry_after_seconds(HTTPError(429, response=response)) == seconds
    assert retry_after_seconds(HTTPError(429, headers=headers)) == seconds


DATE = "Wed, 21 Oct 2026 07:28:00 GMT"


@pytest.mark.parametrize(("sent", "seconds"), [("Wed, 21 Oct 2026 07:27:30 GMT", 30.0), ("Wed, 21 Oct 2026 07:28:30 GMT", 0.0), ("junk", None)])
def test_a_date_is_a_delay_by_the_providers_own_clock(sent: str, seconds: float | None) -> None:
    """The answer's own date says when it was sent."""
    assert retry_after_seconds(HTTPError(429, headers={"Retry-After": DATE, "Date": sent})) == seconds


@pytest.mark.parametrize(("date", "moment"), [(DATE, 1_792_567_680.0), ("7", None), ("Wed, 99 Foo 2026", None), ("9" * 100_000, None), (None, None)])
def test_a_date_is_read_as_a_moment(date: str | None, moment: float | None) -> None:
    """For whoever has a clock."""
    assert retry_moment(HTTPError(429, headers={"retry-after": date} if date else {})) == moment


@pytest.mark.parametrize(("value", "final"), [("false", True), ("False", True), ("true", False), ("", False)])
def test_a_server_may_forbid_a_retry(value: str, final: bool) -> None:
    """As OpenAI and Anthropic do, for any kind; also found in a cause."""
    exc = HTTPError(503, headers={"X-Should-Retry": value})
    outer = RuntimeError("wrapped")
    outer.__cause__ = exc
    assert is_final(exc) == is_final(outer) == final


class BotoError(Exception):
    """An error as botocore raises it."""

    def __init__(self, code: str, status: int, message: str = "x") -> None:
        super().__init__(f"An error occurred ({code}) when calling the Converse operation: {message}")
        self.response = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {}}}


def named(name: str, text: str = "x") -> Exception:
    """An error of a class known by its name."""
    return type(name, (Exception,), {})(text)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("exc", "kind"),
    [
        (BotoError("ThrottlingException", 400, "Too many requests, please wait"), "rate_limit"),
        (BotoError("ServiceQuotaExceededException", 400), "rate_limit"),
        (BotoError("ModelErrorException", 424, "This model's maximum context length is 8192 tokens."), "context_overflow"),
        (BotoError("ModelErrorException", 424), "server_unstable"),
        (BotoError("ValidationException", 400, "Input Tokens Exceeded: Number of input tokens exceeds maximum length."), "context_overflow"),
        (BotoError("ExpiredTokenException", 400), "authentication"),
        (HTTPError(400, "Prompt exceeds max length"), "context_overflow"),
        (HTTPError(400, "Total tokens of image and text exceed max message tokens."), "context_overflow"),
        (HTTPError(400, "max_tokens must be at least 1, got -200."), "context_overflow"),
        (HTTPError(400, "max_tokens must be at least 1, got 0."), "api_request_error"),
        (HTTPError(429, "余额不足或无可用资源包,请充值。"), "authentication"),
        (HTTPError(498, "Flex tier capacity exceeded"), "server_unstable"),
        (ValueError("litellm.ContextWindowExceededError: boom"), "context_overflow"),
        (ValueError("litellm.RateLimitError: RateLimitError: OpenAIException - slow down"), "rate_limit"),
        (ValueError("litellm.AuthenticationError: boom"), "authentication"),
        (ValueError("litellm.APIConnectionError: boom"), "server_unstable"),
        (ValueError("litellm.BadRequestError: boom"), "api_request_error"),
        (ValueError("litellm.BadRequestError: This model's maximum context length is 8192 tokens"), "context_overflow"),
        (named("DefaultCredentialsError", "Your default credentials were not found."), "authentication"),
        (named("ClientAuthenticationError"), "authentication"),
        (named("Forbidden"), "authentication"),
        (named("ClientOSError"), "server_unstable"),
        (named("EventStreamError", "An error occurred (modelStreamErrorException)"), "server_unstable"),
        (RuntimeError("The api_key client option must be set"), "authentication"),
        (AttributeError("'ValueErrors' object has no attribute 'RateLimitErrors'"), "unknown"),
    ],
)
def test_what_clouds_routers_and_wrappers_raise(exc: BaseException, kind: str) -> None:
    """Bedrock's codes behind a plain 400 or 424, litellm's class names in a text, credentials that are missing."""
    assert classify(exc) == kind


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("{'@type': 'RetryInfo', 'retryDelay': '12s'}", 12.0),
        ('"retryDelay":"1.5s"', 1.5),
        ("Please try again in 20ms.", 0.02),
        ("Please try again in 3.2s. Visit", 3.2),
        ("try again in 1m26.4s", 86.4),
        ("try again in 1h2m3s", 3723.0),
        ("'retry_after': 5.5}", 5.5),
        ("retry_delay {\n  seconds: 24\n}", 24.0),
        ("Please retry after 6 seconds.", 6.0),
        ("retry in 5 steps", None),
        ("try again later", None),
    ],
)
def test_the_delay_is_read_from_texts(text: str, seconds: float | None) -> None:
    """Gemini's RetryInfo, OpenAI's and Azure's sentences."""
    assert retry_after_seconds(Plain(text)) == pytest.approx(seconds) if seconds is not None else retry_after_seconds(Plain(text)) is None


def test_what_passes_is_retried_and_what_stays_is_not() -> None:
    """Overflow needs a smaller request instead of a retry."""
    assert {kind: should_retry(kind) for kind in ("rate_limit", "timeout", "server_unstable", "unknown")} == dict.fromkeys(
        ("rate_limit", "timeout", "server_unstable", "unknown"), True
    )
    assert not any(should_retry(kind) for kind in ("context_overflow", "authentication", "api_request_error"))


@given(st.text(max_size=300))
def test_any_text_is_classified_without_raising(text: str) -> None:
    """Error texts come from anywhere."""
    exc = Plain(text)
    assert classify(exc)
    overflow_gap(exc)
    retry_after_seconds(exc)


@pytest.mark.parametrize("unit", ["1 + 2 > ", "token limit ", "context length is ", "try again in ", "9" * 50 + " tokens ", "status code "])
def test_megabytes_of_error_text_take_no_time(unit: str) -> None:
    """Only the beginning of a text is looked at; a quadratic pattern would never end here."""
    exc = HTTPError(400, unit * (1_000_000 // len(unit)))
    began = time.thread_time()
    assert classify(exc) in ("api_request_error", "context_overflow")
    overflow_gap(exc)
    retry_after_seconds(exc)
    assert time.thread_time() - began < 2


def test_the_tree_hangs_together() -> None:
    """One base for all errors; a configuration error is a ValueError too."""
    assert issubclass(ConfigurationError, ValueError | RoundCompactError)
    assert SummaryRejected("blank").reason == "blank"


def _openai(status: int, body: dict[str, object] | None, headers: dict[str, str] | None = None) -> BaseException:
    """The error that ChatOpenAI's client raises for such an answer."""
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(api_key="none", base_url="http://localhost")
    transport = pytest.importorskip("httpx2" if "httpx2" in openai._base_client.__dict__ else "httpx")
    response = transport.Response(status, json=body or {}, headers=headers, request=transport.Request("POST", "http://localhost"))
    return client._make_status_error_from_response(response)


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (400, {"message": "This model's maximum context length is 8192 tokens.", "code": "context_length_exceeded"}, "context_overflow"),
        (400, {"message": "prompt is too long: 9 tokens > 6 maximum", "type": "invalid_request_error"}, "context_overflow"),
        (
            400,
            {"code": 400, "message": "the request exceeds it", "type": "exceed_context_size_error", "n_prompt_tokens": 9, "n_ctx": 8},
            "context_overflow",
        ),
        (400, {"message": "The decoder prompt (length 9) is longer than the maximum model length of 8.", "code": 400}, "context_overflow"),
        (413, {"message": "Request exceeds the maximum size", "type": "request_too_large"}, "context_overflow"),
        (429, {"message": "Request too large for m: Limit 3, Requested 4.", "code": "rate_limit_exceeded", "type": "tokens"}, "context_overflow"),
        (429, {"message": "Rate limit reached", "code": "rate_limit_exceeded"}, "rate_limit"),
        (429, {"message": "You exceeded your current quota", "code": "insufficient_quota"}, "authentication"),
        (401, {"message": "Incorrect API key", "code": "invalid_api_key"}, "authentication"),
        (403, {"message": "no"}, "authentication"),
        (404, {"message": "The model does not exist", "code": "model_not_found"}, "api_request_error"),
        (422, {"message": "field required"}, "api_request_error"),
        (500, {"message": "The server had an error", "type": "server_error"}, "server_unstable"),
        (529, {"type": "overloaded_error", "message": "Overloaded"}, "server_unstable"),
    ],
)
def test_answers_as_the_openai_client_raises_them(status: int, error: dict[str, object], kind: str) -> None:
    """OpenAI, Anthropic, llama.cpp, vLLM and Azure bodies behind an OpenAI-compatible door."""
    assert classify(_openai(status, {"error": error})) == kind


def test_headers_and_numbers_of_the_openai_client() -> None:
    """Retry-After and llama.cpp's gap, from the real response object."""
    assert retry_after_seconds(_openai(429, None, {"Retry-After": "3"})) == 3.0
    body = {"error": {"code": 400, "message": "too long", "type": "exceed_context_size_error", "n_prompt_tokens": 9000, "n_ctx": 8192}}
    assert overflow_gap(_openai(400, body)) == OverflowGap(8192, 9000)
