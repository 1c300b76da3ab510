"""The exception tree, and what an exception of a model call means.

    RoundCompactError
    ├── ConfigurationError (also ValueError)   wrong configuration, told at construction
    ├── SummaryRejected                        an answer that is not a summary; carries `reason`
    └── ArchiveError                           the replaced originals could not be written or read

`classify` reads an exception in the order of how much each sign can be trusted: type, status, machine-readable code, and only then words. Words
are whole phrases; a number in a text is a status only where the text says so ("Error code: 503"), so that a request id or "15000 tokens" never
counts as one. Two facts may refine a status: that the input is too long (providers report it as 400, 413, 422, 429 and 500), and that the
account cannot pay (429 and 400). An account that cannot pay is `authentication`: like a wrong key, no retry can help.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal

from langchain_core import exceptions as core

from langgraph_roundcompact._error_text import (
    OverflowGap,
    chain_of,
    codes_of,
    forbids_retry,
    stated_delay,
    stated_gap,
    stated_moment,
    status_of,
    text_of_error,
)

ErrorKind = Literal["context_overflow", "rate_limit", "authentication", "timeout", "server_unstable", "api_request_error", "unknown"]
"""What a failed model call means for the next step."""

RejectionReason = Literal[
    "blank",
    "reasoning_only",
    "tool_call",
    "cut_off",
    "refusal",
    "content_filter",
    "coverage_only",
    "prompt_echo",
    "no_snapshot",
]
"""Why an answer is not a summary. `blank` also covers error pages: nothing in them comes from the model."""


class RoundCompactError(Exception):
    """Base of all errors of this package."""


class ConfigurationError(RoundCompactError, ValueError):
    """A configuration that cannot work. The message names field, value and remedy."""


class SummaryRejected(RoundCompactError):
    """The summariser answered with something that is not a summary."""

    def __init__(self, reason: RejectionReason) -> None:
        super().__init__(reason)
        self.reason: RejectionReason = reason

    def __str__(self) -> str:
        return f"not a summary: {self.reason}"


class RedactionRefused(RoundCompactError):
    """The user's redaction vetoed the text: nothing is sent, stored or changed."""


class ArchiveError(RoundCompactError):
    """The archive could not be written or read."""


def classify(exc: BaseException) -> ErrorKind:
    """What a failed model call means.

    Args:
        exc: The exception; its causes (and contexts, where not suppressed) are read too, outermost first.

    Returns:
        The kind. Type, status and code beat words; an overflow found in a cause beats a plain bad request around it.
    """
    by_words: ErrorKind = "unknown"
    firm: ErrorKind | None = None
    for link in chain_of(exc):
        facts = _Facts.of(link)
        kind = _firm_kind(facts)
        if kind == "context_overflow" and firm in (None, "api_request_error"):
            return kind
        if firm is None:
            firm = kind
        if by_words == "unknown":
            by_words = _kind_by_words(facts.text)
    if firm in (None, "api_request_error") and by_words == "context_overflow":
        return by_words
    return firm or by_words


def should_retry(kind: ErrorKind) -> bool:
    """Whether the same request may succeed when sent again. An overflow needs a smaller one instead."""
    return kind in ("rate_limit", "timeout", "server_unstable", "unknown")


def retry_after_seconds(exc: BaseException) -> float | None:
    """How long the provider asks to wait, in seconds.

    Read from headers (`retry-after-ms`, `retry-after` in seconds, or as a date beside the `date` of the answer), a `retry_after` attribute,
    Gemini's `retryDelay`, and texts such as "try again in 1.5s". A date alone needs a clock: see `retry_moment`.

    Returns:
        Seconds, zero or more; `None` where nothing usable is said.
    """
    return next((seconds for link in chain_of(exc) if (seconds := stated_delay(link)) is not None), None)


def retry_moment(exc: BaseException) -> float | None:
    """The date until which the provider asks to wait, in seconds since the epoch; `None` where none is said."""
    return next((moment for link in chain_of(exc) if (moment := stated_moment(link)) is not None), None)


def is_final(exc: BaseException) -> bool:
    """Whether the server says that the same request will not succeed (`x-should-retry: false`), whatever the kind."""
    return any(map(forbids_retry, chain_of(exc)))


def overflow_gap(exc: BaseException) -> OverflowGap | None:
    """The limit, and the size of the refused request, where the error states them.

    Args:
        exc: An exception that `classify` calls a context overflow; others give `None` unless their text happens to state a limit.

    Returns:
        The first gap found along the cause chain.
    """
    return next((gap for link in chain_of(exc) if (gap := stated_gap(link)) is not None), None)


@dataclass(frozen=True, slots=True)
class _Facts:
    """What one exception of the chain says about itself."""

    exc: BaseException
    status: int | None
    codes: frozenset[str]
    text: str

    @classmethod
    def of(cls, exc: BaseException) -> _Facts:
        text = text_of_error(exc)
        spoken = _SPOKEN_STATUS.search(text)
        return cls(exc, status_of(exc) or (int(spoken[1]) if spoken else None), codes_of(exc), text)


_TYPES: Final[tuple[tuple[type[BaseException], ErrorKind], ...]] = (
    (core.ContextOverflowError, "context_overflow"),
    (core.ModelAuthenticationError, "authentication"),
    (core.ModelPermissionDeniedError, "authentication"),
    (core.ModelRateLimitError, "rate_limit"),
    (core.ModelTimeoutError, "timeout"),
    (core.ModelConnectionError, "server_unstable"),
    (core.ModelAPIError, "server_unstable"),
    (core.ModelInvalidRequestError, "api_request_error"),
    (core.ModelNotFoundError, "api_request_error"),
    (core.ModelRefusalError, "api_request_error"),
    (TimeoutError, "timeout"),
    (ConnectionError, "server_unstable"),
)


def _by_word(table: Mapping[ErrorKind, str]) -> Mapping[str, ErrorKind]:
    return {word: kind for kind, words in table.items() for word in words.split()}


# Class names of client libraries that need not be installed: httpx, httpcore, aiohttp, requests, urllib3, botocore, litellm, providers' SDKs.
_NAMES: Final = _by_word(
    {
        "context_overflow": "ContextWindowExceededError ContextLengthExceededError RequestTooLargeError",
        "timeout": "TimeoutException Timeout APITimeoutError ReadTimeoutError ConnectTimeoutError ServerTimeoutError DeadlineExceeded",
        "authentication": """
            AuthenticationError PermissionDeniedError NoCredentialsError PartialCredentialsError CredentialRetrievalError TokenRetrievalError
            UnauthorizedSSOTokenError DefaultCredentialsError RefreshError ClientAuthenticationError CredentialUnavailableError Unauthenticated
            Unauthorized UnauthorizedError PermissionDenied Forbidden ForbiddenError""",
        "rate_limit": "RateLimitError TooManyRequests TooManyRequestsError ResourceExhausted ThrottlingException",
        "server_unstable": """
            TransportError NetworkError ProtocolError APIConnectionError ClientConnectionError HTTPClientError SSLError gaierror IncompleteRead
            ChunkedEncodingError ServerDisconnectedError ClientPayloadError InternalServerError OverloadedError ServiceUnavailableError
            ServiceUnavailable BrokenResourceError EndpointConnectionError ClientOSError ModelStreamErrorException ModelNotReadyException
            ServiceUnavailableException InternalServerException""",
        "api_request_error": "BadRequestError NotFoundError UnprocessableEntityError InvalidRequestError InvalidArgument ResourceNotFoundException",
    }
)

_SPOKEN_NAMES: Final = {name.lower(): kind for name, kind in _NAMES.items() if name.endswith(("Error", "Exception"))}
_NAME: Final = re.compile(r"(?<!\w)[a-z]{1,60}(?:error|exception)(?!\w)")

_CODES: Final = _by_word(
    {
        "context_overflow": """
            context_length_exceeded context_window_exceeded exceed_context_size_error request_too_large string_above_max_length prompt_too_long
            model_max_prompt_tokens_exceeded tokens_limit_reached input_too_long contextwindowexceedederror""",
        "authentication": """
            insufficient_quota billing_hard_limit_reached billing_not_active billing_error account_deactivated access_terminated invalid_api_key
            api_key_invalid authentication_error permission_error permission_denied unauthenticated unauthorized accessdeniedexception
            unrecognizedclientexception expiredtokenexception invalidsignatureexception invalid_authentication_error arrearage""",
        "rate_limit": """
            rate_limit_exceeded rate_limit_error rate_limit_reached_error too_many_requests resource_exhausted throttlingexception throttling
            toomanyrequestsexception servicequotaexceededexception""",
        "timeout": "deadline_exceeded timeout_error request_timeout modeltimeoutexception",
        "server_unstable": """
            overloaded_error engine_overloaded_error api_error server_error internal_server_error internal unavailable service_unavailable
            serviceunavailableexception internalserverexception modelnotreadyexception modelstreamerrorexception""",
        "api_request_error": """
            invalid_request_error invalid_argument model_not_found not_found not_found_error validationexception invalid_prompt content_filter
            content_policy_violation failed_precondition unsupported_parameter unsupported_value badrequesterror""",
    }
)

_RANK: Final[tuple[ErrorKind, ...]] = ("context_overflow", "authentication", "rate_limit", "timeout", "server_unstable", "api_request_error")


def _firm_kind(facts: _Facts) -> ErrorKind | None:
    """The kind by type, status or code, refined by the two facts that a status hides; `None` where there is only prose."""
    by_code = min((_CODES[code] for code in facts.codes if code in _CODES), key=_RANK.index, default=None)
    kind: ErrorKind | None = _kind_by_type(facts.exc) or _kind_by_status(facts.status) or by_code
    if kind is None or kind in ("context_overflow", "authentication", "timeout"):
        return kind
    if kind == "server_unstable" and facts.status not in (None, 424, 500):
        return kind  # 500 and 424 report what the model behind the server said
    if by_code == "context_overflow" or _says_too_long(facts.text, throttled=kind == "rate_limit"):
        return "context_overflow"
    if by_code == "authentication" or _says_cannot_pay(facts.text):
        return "authentication"
    # Bedrock reports throttling as a bad request.
    return "rate_limit" if by_code == "rate_limit" and facts.status == 400 else kind


def _kind_by_type(exc: BaseException) -> ErrorKind | None:
    for known, kind in _TYPES:
        if isinstance(exc, known):
            return kind
    kinds = [_NAMES[cls.__name__] for cls in type(exc).__mro__ if cls.__name__ in _NAMES]
    return "timeout" if "timeout" in kinds else kinds[0] if kinds else None


def _kind_by_status(status: int | None) -> ErrorKind | None:
    if status is None:
        return None
    if status in (401, 402, 403):
        return "authentication"
    if status == 408:
        return "timeout"
    if status == 413:
        return "context_overflow"
    if status == 429:
        return "rate_limit"
    # 409, 424, 425, 498 and 499 report a state that passes (lock, model not loaded yet, no capacity, connection given up).
    return "server_unstable" if status >= 500 or status in (409, 424, 425, 498, 499) else "api_request_error"


def _phrases(*phrases: str) -> re.Pattern[str]:
    """Whole phrases: not preceded or followed by a letter, digit or underscore."""
    return re.compile(r"(?<!\w)(?:" + "|".join(phrases) + r")(?!\w)")


_SPOKEN_STATUS: Final = re.compile(
    r"(?<!\w)(?:error code|status code|status|http(?:/\d(?:\.\d)?)?(?: error)?(?: status)?(?: code)?)[:=]?[ (\[]{0,2}([45]\d\d)(?![\w,]|\.\d| tokens)"
)
_TOO_LONG: Final = _phrases(
    "context[ _]length(?:_exceeded)?",
    "context[ _]window(?:_exceeded)?",
    "context[ _](?:size|limit)",
    "(?:maximum|max) context",
    "maximum (?:model|prompt) length",
    "(?:prompt|input|request|conversation|payload) (?:is )?too (?:long|large)",
    "too many input tokens",
    "(?:content|entity|body) too large",
    "request exceeds the maximum size",
    r"exceeds? the maximum number of (?:input )?tokens(?: allowed)?",
    r"exceeds? the (?:configured |maximum )?(?:input )?token limit",
    r"input tokens exceed the configured limit",
    r"prompt token count[^.]{0,60} exceeds",
    r"input token count[^.]{0,60}(?:exceeds|but the model)",
    r"exceeded model token limit",
    r"tokens too large for model",
    r"reduce the length of (?:the|your) (?:messages|prompt|input)",
    r"(?:inputs?|`inputs`) tokens \+ (?:`?max_new_tokens`?) must be",
    r"(?:inputs?|`inputs`) must have less than \d+ tokens",
    "string too long",
    "exceed_context_size_error",
    r"(?:prompt|input|request|messages?) exceeds? (?:the )?(?:max(?:imum)?|model)[\w ]{0,20} (?:length|size)",
    r"exceeds? (?:the )?max(?:imum)? (?:message|prompt|input) (?:tokens|length)",
    "input tokens exceeded",
    r"number of input tokens exceeds?",
    r"max_tokens must be at least 1, got -\d{1,9}",
    "range of input length should be",
)
_TOO_LONG_UNLESS_THROTTLED: Final = _phrases("token limit", "too many tokens", "(?:total )?number of tokens[^.]{0,60} cannot exceed")
_CANNOT_PAY: Final = _phrases(
    "insufficient[_ ](?:quota|balance|credits?|funds)",
    "exceeded your current quota",
    "credit balance is too low",
    "payment required",
    "billing (?:hard limit|not active|is not active)",
    "api key (?:not valid|expired)",
    "api_key_invalid",
    "account (?:is )?(?:in arrears|suspended|deactivated)",
)
_CANNOT_PAY_ELSEWHERE: Final = ("余额不足", "欠费")
_THROTTLED: Final = _phrases(
    "rate[ _-]?limit(?:ed|s|ing)?(?:_error|_exceeded)?", "too many requests", "throttl(?:ed|ing)", "resource(?:_| has been )exhausted"
)
_WORDS: Final[tuple[tuple[ErrorKind, re.Pattern[str]], ...]] = (
    ("rate_limit", _THROTTLED),
    (
        "authentication",
        _phrases(
            "authentication(?:_error| error| failed| method)?",
            "unauthori[sz]ed",
            "(?:invalid|incorrect|wrong|missing) (?:x-)?api[- _]key",
            "api key (?:is )?invalid",
            "api[_ ]key (?:client option )?must be set",
            "did not find [a-z0-9_]{1,60}api_key",
            "invalid_grant",
            "permission denied",
            "access denied",
            "forbidden",
        ),
    ),
    ("server_unstable", _phrases("gateway time-?out")),
    ("timeout", _phrases("time-?out", "timed out", "(?:read|connect|request)[ _]?timeout", "deadline exceeded")),
    (
        "server_unstable",
        _phrases(
            "internal server error",
            "(?:internal_)?server_error",
            "server had an error",
            "service (?:is )?(?:temporarily )?unavailable",
            "bad gateway",
            "overloaded(?:_error)?",
            "temporarily unavailable",
            "connection (?:error|reset|refused|aborted|closed|lost)",
            "(?:server|peer) (?:disconnected|closed connection)",
            "incomplete chunked read",
        ),
    ),
    (
        "api_request_error",
        _phrases("bad request", "invalid[ _]request(?:_error)?", "unprocessable entity", "not found", "does not exist", "invalid_argument"),
    ),
)


def _says_too_long(text: str, *, throttled: bool) -> bool:
    """Whether the text says that the input is too long. What throttling texts also say ("too many tokens") does not count there."""
    return _TOO_LONG.search(text) is not None or (not throttled and _TOO_LONG_UNLESS_THROTTLED.search(text) is not None)


def _says_cannot_pay(text: str) -> bool:
    """Whether the text says that the account cannot pay or its key is void. Gemini words its limits per minute like a spent quota."""
    found = _CANNOT_PAY.search(text) is not None or any(word in text for word in _CANNOT_PAY_ELSEWHERE)
    return found and not ("resource_exhausted" in text or "retrydelay" in text)


def _kind_by_words(text: str) -> ErrorKind:
    if _says_too_long(text, throttled=_THROTTLED.search(text) is not None):
        return "context_overflow"
    if _says_cannot_pay(text):
        return "authentication"
    by_phrase = (kind for kind, pattern in _WORDS if pattern.search(text))
    # Routers and wrappers tell the class of the error that they caught: "litellm.RateLimitError: …".
    by_name = (_SPOKEN_NAMES[name] for name in _NAME.findall(text) if name in _SPOKEN_NAMES)
    return next(chain(by_phrase, by_name), "unknown")
