"""Reading an exception of any client library: its chain, text, status, codes, headers, and the numbers an overflow states.

Clients agree on nothing: a status is an attribute, a field of the response, a field of the body or a word in the message; a code is an
attribute, an enum or nested in `error.innererror`. Everything is read by name, so no client has to be installed, and nothing here raises.
What the signs mean is decided in `errors`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import mktime_tz, parsedate_tz
from typing import Any, Final

TEXT_LIMIT: Final = 20_000
"""Characters of an error text that are looked at."""
_CHAIN_LIMIT: Final = 12
_LONGEST_DATE: Final = 60
_RECORD_LIMIT: Final = 40


@dataclass(frozen=True, slots=True)
class OverflowGap:
    """How far a request was over the limit, as the provider counts."""

    limit_tokens: int
    """The most tokens the prompt may hold; room that the provider says is taken by the output is already subtracted."""
    requested_tokens: int | None = None
    """Tokens of the prompt that was refused; `None` where the provider does not say."""


def chain_of(exc: BaseException) -> Iterator[BaseException]:
    """The exception, what it groups and what caused it, outermost first, each once, at most a dozen."""
    waiting, seen = [exc], set[int]()
    while waiting and len(seen) < _CHAIN_LIMIT:
        link = waiting.pop(0)
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        if isinstance(link, BaseExceptionGroup):
            waiting.extend(link.exceptions[:_CHAIN_LIMIT])
        origin = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
        if origin is not None:
            waiting.append(origin)


def text_of_error(exc: BaseException) -> str:
    """Message and body in lower case, white space collapsed, at most `TEXT_LIMIT` characters."""
    values = [exc, *(value for name in ("message", "body", "details") if isinstance(value := _field(exc, name), str | Mapping | list))]
    parts = dict.fromkeys(_as_text(value)[:TEXT_LIMIT] for value in values)
    return " ".join(" ".join(parts)[:TEXT_LIMIT].lower().replace("’", "'").split())


def status_of(exc: BaseException) -> int | None:
    """The HTTP status (400 to 599) in a field of the exception, of its response or of the body; `None` where no field holds one."""
    response = _field(exc, "response")
    fields = [_field(exc, name) for name in ("status_code", "http_status", "status", "code")]
    fields += [_field(response, name) for name in ("status_code", "status")]
    if isinstance(response, Mapping):
        metadata = response.get("ResponseMetadata")
        fields.append(metadata.get("HTTPStatusCode") if isinstance(metadata, Mapping) else None)
    fields += [record.get(name) for record in _records(exc) for name in ("code", "status", "status_code")]
    return next((status for status in map(_as_status, fields) if status is not None), None)


def codes_of(exc: BaseException) -> frozenset[str]:
    """Machine-readable words of the exception and its body: error codes and types, in lower case."""
    values = [_field(exc, name) for name in ("code", "type", "status", "reason", "error_code")]
    values += [record.get(name) for record in _records(exc) for name in ("code", "type", "status", "reason", "Code", "__type")]
    named = (getattr(value, "name", value) for value in values)
    return frozenset(name.strip().lower() for name in named if isinstance(name, str) and 0 < len(name) <= 200)


def stated_delay(exc: BaseException) -> float | None:
    """Seconds that one exception asks to wait: headers first, then a `retry_after` field, then its text."""
    for name, divisor in (("retry-after-ms", 1000.0), ("x-ms-retry-after-ms", 1000.0), ("retry-after", 1.0)):
        seconds = _as_seconds(_header(exc, name))
        if seconds is not None:
            return seconds / divisor
    moment, sent = stated_moment(exc), _as_moment(_header(exc, "date"))
    if moment is not None and sent is not None:
        return max(moment - sent, 0.0)  # by the provider's own clock
    field = _as_seconds(_field(exc, "retry_after"))
    return field if field is not None else _spoken_delay(text_of_error(exc))


def stated_moment(exc: BaseException) -> float | None:
    """The date before which one exception asks for no other try, in seconds since the epoch."""
    return _as_moment(_header(exc, "retry-after"))


def forbids_retry(exc: BaseException) -> bool:
    """Whether the server says that the same request will not succeed."""
    return str(_header(exc, "x-should-retry")).strip().lower() == "false"


def stated_gap(exc: BaseException) -> OverflowGap | None:
    """Limit and size of the refused request that one exception states."""
    text = text_of_error(exc)
    limit, requested = (_as_count(_field(exc, name)) or _named_number(text, name) for name in ("n_ctx", "n_prompt_tokens"))
    if limit:
        return _gap(limit, requested)
    for pattern, read in _GAPS:
        found = pattern.search(text)
        if found is not None:
            gap = _gap(*read([int(group.replace(",", "").replace("_", "")) if group else 0 for group in found.groups()]))
            if gap is not None:
                return gap
    return None


def _records(exc: BaseException) -> Iterator[Mapping[str, Any]]:
    """The JSON objects of the answer that can hold a code: body, `error`, `details` and `innererror`, a few levels deep."""
    waiting = [_field(exc, name) for name in ("body", "details", "error", "response")]
    given = _field(exc, "args")
    if isinstance(given, tuple):
        waiting.extend(given[:1])  # routers send errors with status 200 too: the client raises a plain exception with the body as its argument
    for _ in range(_RECORD_LIMIT):
        if not waiting:
            return
        record = waiting.pop(0)
        if isinstance(record, list):
            waiting.extend(record[:10])
        elif isinstance(record, Mapping):
            yield record
            waiting.extend(record.get(name) for name in ("error", "Error", "details", "innererror"))


def _field(owner: object, name: str) -> Any:
    """An attribute, `None` where it is missing, raises, or is a method without a plain answer (gRPC's `code()`)."""
    try:
        value = getattr(owner, name, None)
        return value() if name == "code" and callable(value) else value
    except Exception:  # noqa: BLE001 - httpx raises for fields that were never set; reading an error must not make another
        return None


def _as_text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the failure it describes
        return ""


def _as_status(value: object) -> int | None:
    if isinstance(value, str) and len(value) == 3 and value.isascii() and value.isdigit():
        value = int(value)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599 else None


def _as_count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _as_seconds(value: object) -> float | None:
    """A number of seconds, zero or more; `None` for dates, words, infinities and negative numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _as_moment(value: object) -> float | None:
    """An HTTP date in seconds since the epoch."""
    if not isinstance(value, str) or len(value) > _LONGEST_DATE:
        return None
    try:
        parsed = parsedate_tz(value)
        return float(mktime_tz(parsed)) if parsed else None
    except (ValueError, OverflowError, TypeError):
        return None


def _header(exc: BaseException, name: str) -> object:
    """A header of the answer, whatever holds the headers and however they are spelled."""
    response = _field(exc, "response")
    holders = [_field(response, "headers"), _field(exc, "headers")]
    if isinstance(response, Mapping):
        metadata = response.get("ResponseMetadata")
        holders.append(metadata.get("HTTPHeaders") if isinstance(metadata, Mapping) else None)
    for headers in holders:
        if isinstance(headers, Mapping):
            for key, value in headers.items():
                if isinstance(key, str) and key.lower() == name:
                    return value
    return None


# --- numbers in texts ------------------------------------------------------------------------------------------------------------------------

_DELAY: Final = re.compile(
    r"(?:retrydelay['\"]?[:=] ?['\"]?|(?:try again|retry|wait)(?: again)? (?:after|in) )"
    r"(?:(\d{1,3})h ?)?(?:(\d{1,4})m(?!s) ?)?(\d{1,6}(?:\.\d{1,9})?) ?(ms|s)(?![a-z])"
)
_DELAY_FIELD: Final = re.compile(r"(?<!\w)retry_(?:after(?:_seconds)?['\"]?[:=] ?['\"]?|delay \{ ?seconds: )(\d{1,6}(?:\.\d{1,9})?)(?![\w.])")
_DELAY_IN_WORDS: Final = re.compile(r"(?:try again|retry|wait)(?: again)? (?:after|in) (\d{1,6}) (second|minute|millisecond)")


def _spoken_delay(text: str) -> float | None:
    found = _DELAY.search(text)
    if found:
        hours, minutes, amount, unit = found.groups()
        return int(hours or 0) * 3600 + int(minutes or 0) * 60 + float(amount) / (1000 if unit == "ms" else 1)
    if (field := _DELAY_FIELD.search(text)) is not None:
        return float(field[1])
    found = _DELAY_IN_WORDS.search(text)
    return int(found[1]) * {"second": 1.0, "minute": 60.0, "millisecond": 0.001}[found[2]] if found else None


def _named_number(text: str, name: str) -> int | None:
    found = re.search(rf"(?<!\w){name}['\"]?[:=] ?(\d{{1,10}})(?!\d)", text)
    return int(found[1]) if found else None


def _gap(limit: int, requested: int | None = None) -> OverflowGap | None:
    """A gap that makes sense: a positive limit; a size only where it is over the limit."""
    return OverflowGap(limit, requested if requested and requested > limit else None) if limit > 0 else None


_N: Final = r"(\d[\d,_]{0,14})"
_LIMIT: Final = rf"(?:context length|context window)[^.]{{0,40}}? {_N} tokens?\b"
_Read = Callable[[list[int]], tuple[int, int]]


def _less_output(numbers: list[int]) -> tuple[int, int]:
    limit, total, output = numbers
    return limit - output, total - output


# Each text with the way to read its numbers, the most telling first: (limit of the prompt, size of the prompt).
_GAPS: Final[tuple[tuple[re.Pattern[str], _Read], ...]] = tuple(
    (re.compile(pattern), read)
    for pattern, read in (
        # input 190000 + output 20000 > 200000
        (rf"{_N} ?\+ ?{_N} ?> ?{_N}", lambda n: (n[2] - n[1], n[0])),
        # requested 9000 tokens (8000 in the messages, 1000 in the completion)
        (
            rf"{_LIMIT}.{{0,60}}?requested (?:about |a total of )?{_N} tokens.{{0,160}}?{_N}(?: tokens)? (?:in|for) the (?:completion|output)",
            _less_output,
        ),
        (rf"must be <= {_N}\. given: {_N} `?inputs`? tokens and {_N} `?max_new_tokens", lambda n: (n[0] - n[2], n[1])),
        # 'max_tokens' is too large: 5000. This model's maximum context length is 4096 tokens and your request has 1000 input tokens
        (rf"too large: {_N}\. .{{0,60}}?context length is {_N} tokens and your request has {_N} input", lambda n: (n[1] - n[0], n[2])),
        (rf"{_N}(?: tokens)? > {_N}", lambda n: (n[1], n[0])),
        (
            rf"context length (?:is|of)(?: only)? {_N} tokens?\b.{{0,80}}?(?:resulted in|requested|contains?|has|have)(?: about)? {_N}",
            lambda n: (n[0], n[1]),
        ),
        (rf"configured limit of {_N} tokens\b.{{0,60}}?resulted in {_N}", lambda n: (n[0], n[1])),
        (rf"contains? {_N} tokens.{{0,60}}?too large for model with {_N}", lambda n: (n[1], n[0])),
        (rf"maximum prompt length is {_N} but the request contains {_N}", lambda n: (n[0], n[1])),
        (rf"token count is {_N} but the model supports(?: only)? up to {_N}", lambda n: (n[1], n[0])),
        (rf"cannot exceed {_N} (?:tokens )?- received {_N}", lambda n: (n[0], n[1])),
        (rf"must have less than {_N} tokens\. given: {_N}", lambda n: (n[0], n[1])),
        (rf"first {_N} tokens when .{{0,120}}?context length of(?: only)? {_N}", lambda n: (n[1], n[0])),
        (rf"(?:token )?limit:? {_N},? \(?(?:used:? \d+, )?requested:? {_N}", lambda n: (n[0], n[1])),
        (
            rf"{_N}\)?(?: (?:input |prompt )?tokens?)?\)? (?:is |are )?(?:longer|greater|larger|exceeds?|exceeded)(?: than)?[^.\d]{{0,80}}?{_N}",
            lambda n: (n[1], n[0]),
        ),
        (rf"input length should be \[\d+, ?{_N}\]", lambda n: (n[0], 0)),
        (
            rf"(?:context (?:length|window|size|limit)|prompt length|model length|token limit)(?: is| of|:| =)?(?: only| about)? \(?{_N}",
            lambda n: (n[0], 0),
        ),
        (rf"(?:maximum|limit) of {_N} (?:input )?tokens", lambda n: (n[0], 0)),
    )
)
