"""The replaced work as a transcript that a model can read and nothing inside can break out of.

    [§3 assistant]
    I look for the timeout.
    [§3.1 call search id=c1] {"q": "timeout"}
    [§4 result of §3.1 search id=c1: ok]
    src/app.py:10: TIMEOUT = 5

Every entry begins with a head in `[§…]`. Content can hold neither that sign nor the tags the transcript stands between (`FRAME_TAGS`): where it
does, the first character becomes an entity; everything else, HTML included, stays as it is. The number in the
head is the message's place in the transcript, so that a call and its result are linked even where ids repeat or are empty.

Order matters: texts are redacted first, then payloads are replaced, then frames are escaped, and only then anything is shortened; half a secret
or half a tag would be recognised by nobody.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langgraph_roundcompact._escape import escaper, storable
from langgraph_roundcompact._groups import Call, declared_calls, results_of, server_calls
from langgraph_roundcompact._memory_block import is_internal
from langgraph_roundcompact._shorten import Waterline, head_and_tail
from langgraph_roundcompact._visible import block_data, compact, plain, visible_parts, without_payloads

Redact = Callable[[str], str]
Estimate = Callable[[str], int]

FRAME_TAGS: Final = ("work_transcript", "user_request", "earlier_checkpoint", "earlier_facts", "user_focus")
"""Tags that the request puts around texts from outside."""

LEAST_CHARACTERS: Final = 96
"""What is left of any text at least: enough for the first line of most results."""

_LEAST_OF_ALL: Final = 32
_LONGEST_NAME: Final = 120
_LONGEST_STRUCTURE: Final = 4_000
"""Characters of JSON, beside its long strings, up to which it stays JSON when it is shortened."""
_LONG_STRING: Final = 80
_TRIES: Final = 8
_COUNTED_AT_ONCE: Final = 32

escaped = escaper(FRAME_TAGS, ("§",), joined=True)
"""A text as it may stand inside the request: what reads as one of its tags or entry heads no longer does."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A text that may be shortened: a body, or a string inside JSON."""

    text: str
    json: bool = False

    def cut(self, cap: int) -> str:
        """The text under a cap, in the form in which it stands in the transcript."""
        shown = head_and_tail(self.text, cap, line=" " if self.json else "\n")
        return json.dumps(shown, ensure_ascii=False) if self.json else shown


Piece = str | Leaf


@dataclass(frozen=True, slots=True)
class Transcript:
    """A rendered transcript."""

    text: str
    groups: int
    """Leading groups it contains; the others did not fit even in their shortest form."""
    tokens: int
    """Estimated tokens of `text`."""


def render_transcript(groups: Sequence[Sequence[BaseMessage]], *, redact: Redact, estimate: Estimate, limit_tokens: int | None) -> Transcript | None:
    """The groups as a transcript within a limit.

    Args:
        groups: What is to be replaced, in order.
        redact: Applied to every text before anything is cut.
        estimate: Tokens of a text.
        limit_tokens: Tokens the transcript may take; `None`: no limit.

    Returns:
        The transcript; long texts keep head and tail, the longest give way first, and whole groups are left out from the end only when nothing
        can be shortened any more. `None` when not even one group fits.
    """
    if limit_tokens is None:
        whole_groups = list(_rendered_groups(groups, redact))
        text = _joined(chain.from_iterable(whole_groups), None)
        return Transcript(text, len(whole_groups), estimate(text))
    rendered = _as_many_as_may_fit(groups, redact, estimate, limit_tokens)
    whole = _fitted(rendered, estimate, limit_tokens) if len(rendered) == len(groups) else None
    if whole is not None:
        return whole
    fitting = _fitting_groups(rendered, estimate, limit_tokens)
    while fitting:
        head = _fitted(rendered[:fitting], estimate, limit_tokens)
        if head is not None:
            return head
        fitting -= max(fitting // 16, 1)
    return None


def render_text(message: BaseMessage, *, redact: Redact) -> str:
    """What one message shows, redacted and escaped, without a head: for the user's request."""
    return "".join(_joined(_body(message, redact), None)).strip("\n")


# --- fitting ---------------------------------------------------------------------------------------------------------------------------------


def _fitted(rendered: Sequence[Sequence[Piece]], estimate: Estimate, limit: int) -> Transcript | None:
    """The largest common cap whose transcript is within the limit, found by a few proportional steps."""
    pieces = list(chain.from_iterable(rendered))
    waterline = Waterline([len(piece.text) for piece in pieces if isinstance(piece, Leaf)])
    # A token is hardly ever longer than sixteen characters, so more than that need not be tried.
    characters = min(waterline.total, limit * 16)
    best: Transcript | None = None
    for _ in range(_TRIES):
        cap = None if characters >= waterline.total else max(waterline.cap(characters), LEAST_CHARACTERS)
        text = _joined(pieces, cap)
        tokens = estimate(text)
        if tokens <= limit:
            best = Transcript(text, len(rendered), tokens)
            if cap is None or tokens >= limit * 0.9:
                return best
            characters = min(characters * limit * 97 // (max(tokens, 1) * 100), waterline.total)
        elif cap == LEAST_CHARACTERS or best is not None:
            break
        else:
            characters = min(characters * limit * 95 // (tokens * 100), characters - 1)
    return best or _least(pieces, len(rendered), estimate, limit)


def _least(pieces: Sequence[Piece], groups: int, estimate: Estimate, limit: int) -> Transcript | None:
    """The shortest forms, the last resort before groups are left out."""
    for cap in (LEAST_CHARACTERS, _LEAST_OF_ALL):
        text = _joined(pieces, cap)
        tokens = estimate(text)
        if tokens <= limit:
            return Transcript(text, groups, tokens)
    return None


def _fitting_groups(rendered: Sequence[Sequence[Piece]], estimate: Estimate, limit: int) -> int:
    """How many leading groups fit in their shortest form, by the sum of their tokens."""
    total = 0
    for number, pieces in enumerate(rendered):
        total += estimate(_joined(pieces, _LEAST_OF_ALL))
        if total > limit:
            return number
    return len(rendered)


def _joined(pieces: Any, cap: int | None) -> str:
    return "".join(piece if isinstance(piece, str) else piece.cut(len(piece.text) if cap is None else cap) for piece in pieces)


# --- entries ---------------------------------------------------------------------------------------------------------------------------------


def _as_many_as_may_fit(groups: Sequence[Sequence[BaseMessage]], redact: Redact, estimate: Estimate, limit: int) -> list[list[Piece]]:
    """Leading groups, rendered until even their shortest forms are well over the limit: the others need not be looked at."""
    rendered: list[list[Piece]] = []
    tokens, counted = 0, 0
    for pieces in _rendered_groups(groups, redact):
        rendered.append(pieces)
        if len(rendered) - counted == _COUNTED_AT_ONCE:
            tokens += estimate(_joined(chain.from_iterable(rendered[counted:]), _LEAST_OF_ALL))
            counted = len(rendered)
            if tokens > limit * 1.1:
                break
    return rendered


def _rendered_groups(groups: Sequence[Sequence[BaseMessage]], redact: Redact) -> Iterator[list[Piece]]:
    messages = [message for group in groups for message in group]
    links = results_of(messages)
    answered = set(links.values())
    at = 0
    for group in groups:
        pieces: list[Piece] = []
        for message in group:
            pieces += _entry(message, at, links.get(at), answered, redact)
            at += 1
        yield pieces


def _entry(message: BaseMessage, at: int, link: tuple[int, int] | None, answered: set[tuple[int, int]], redact: Redact) -> Iterator[Piece]:
    """One message: head, what it shows, its calls."""
    number = at + 1
    body = list(_body(message, redact, number))
    calls = declared_calls(message)
    if body or message.name or not calls:
        yield f"[§{number} {_role(message, link, redact)}]\n"
    yield from body
    if not body and not calls:
        yield "(nothing to show)\n"
    for k, call in enumerate(calls):
        yield from _call(call, f"{number}.{k + 1}", (at, k) in answered, _parse_error(message, k), redact)


def _role(message: BaseMessage, link: tuple[int, int] | None, redact: Redact) -> str:
    """Who speaks; of a result, which call it answers and how it ended."""
    name = f" {_inline(message.name, redact)}" if message.name else ""
    if isinstance(message, ToolMessage):
        origin = f"result of §{link[0] + 1}.{link[1] + 1}" if link else "result without a call in this transcript"
        status = "error" if message.status == "error" else "ok"
        return f"{origin}{name}{_id(message.tool_call_id, redact)}: {status}"
    if isinstance(message, AIMessage):
        return f"assistant{name}"
    if isinstance(message, SystemMessage):
        return f"system message{name}"
    source = message.additional_kwargs.get("lc_source")
    if isinstance(source, str):
        return f"notification by {_inline(source, redact)}, not the user"
    if isinstance(message, HumanMessage):
        return f"notification{name}, not the user" if is_internal(message) else f"user{name}"
    return f"{_inline(str(getattr(message, 'role', message.type)), redact)}{name}"


def _call(call: Call, label: str, answered: bool, error: str, redact: Redact) -> Iterator[Piece]:
    name = _inline(call.name, redact) or "(no name)"
    if call.kind == "invalid":
        yield f"[§{label} call that could not be read {name}{_id(call.id, redact)}: never run{', ' + _inline(error, redact) if error else ''}] "
        yield Leaf(_clean(call.args if isinstance(call.args, str) else compact(plain(call.args)), redact))
    else:
        yield f"[§{label} call {name}{_id(call.id, redact)}] "
        yield from _arguments(call.args, redact)
    yield "\n"
    if not answered and call.kind != "invalid":
        yield f"[§{label} has no result: it was interrupted, or its result was lost; nothing shows that it was done]\n"


def _parse_error(message: BaseMessage, number: int) -> str:
    """What was wrong with the arguments of an invalid call."""
    if not isinstance(message, AIMessage):
        return ""
    k = number - len(message.tool_calls)
    error = message.invalid_tool_calls[k].get("error") if 0 <= k < len(message.invalid_tool_calls) else None
    return error if isinstance(error, str) else ""


def _body(message: BaseMessage, redact: Redact, number: int = 0) -> Iterator[Piece]:
    """Text, media, data and server-side tools of a message, in their order."""
    if isinstance(message.content, str):
        text = _clean(message.content, redact)
        if text.strip():
            yield Leaf(text)
            yield "\n"
        return
    open_server = {call.id for call in server_calls(message)[0]} - server_calls(message)[1]
    for kind, shown in visible_parts(message):
        if kind == "text":
            text = _clean(shown, redact)
            if text.strip():
                yield Leaf(text)
                yield "\n"
        elif kind == "data":
            yield f"[{_inline(shown[0], redact)}] "
            yield from _json(shown[1], redact)
            yield "\n"
        else:
            yield from _server(kind, shown, number, open_server, redact)


def _server(kind: str, block: Mapping[str, Any], number: int, open_server: set[str], redact: Redact) -> Iterator[Piece]:
    """A call that the provider ran itself, or its result."""
    call_id = str(block.get("id" if kind == "server_call" else "tool_use_id") or block.get("tool_call_id") or "")
    name = _inline(str(block.get("name") or block.get("type") or ""), redact)
    if kind == "server_call":
        yield f"[§{number} server call {name}{_id(call_id, redact)}] "
        known = ("type", "id", "name")
        arguments = block.get("input", block.get("args"))
        data = arguments if arguments is not None else {key: item for key, item in block.items() if key not in known}
        yield from _json(block_data(data), redact)
        yield "\n"
        if call_id in open_server:
            yield f"[§{number} server call{_id(call_id, redact)} has no result yet]\n"
        return
    yield f"[§{number} server result {name}{_id(call_id, redact)}] "
    yield from _json(block_data(block.get("content", block.get("output"))), redact)
    yield "\n"


# --- texts and JSON --------------------------------------------------------------------------------------------------------------------------


def _clean(text: str, redact: Redact) -> str:
    return escaped(without_payloads(redact(storable(text))))


def _inline(text: str, redact: Redact) -> str:
    """A name, an id or a short message on one line, bounded; brackets would end the head early."""
    return " ".join(_clean(text, redact).split())[:_LONGEST_NAME].replace("[", "(").replace("]", ")")


def _id(call_id: str | None, redact: Redact) -> str:
    return f" id={_inline(call_id, redact)}" if call_id else ""


def _arguments(args: Any, redact: Redact) -> Iterator[Piece]:
    if isinstance(args, str):
        try:
            args = json.loads(args)
        except (ValueError, RecursionError):
            yield Leaf(_clean(args, redact))
            return
    yield from _json(plain(args if args is not None else {}), redact)


def _json(data: Any, redact: Redact) -> Iterator[Piece]:
    """JSON data whose long strings can be shortened one by one, so that it stays JSON.

    Strings are redacted alone, and the whole once more as text, where a key tells what the value is.
    """
    data = _redacted_leaves(data, redact)
    text = compact(data)
    seen = redact(text)
    if seen != text:
        try:
            data = json.loads(seen)
        except (ValueError, RecursionError):
            yield Leaf(_clean(seen, redact))
            return
    pieces = list(_json_pieces(data))
    if sum(len(piece) for piece in pieces if isinstance(piece, str)) > _LONGEST_STRUCTURE:
        yield Leaf(escaped(without_payloads(compact(data))))
    else:
        yield from pieces


def _redacted_leaves(data: Any, redact: Redact) -> Any:
    if isinstance(data, str):
        return redact(storable(data))
    if isinstance(data, dict):
        return {redact(storable(key)): _redacted_leaves(item, redact) for key, item in data.items()}
    return [_redacted_leaves(item, redact) for item in data] if isinstance(data, list) else data


def _json_pieces(data: Any) -> Iterator[Piece]:
    if isinstance(data, dict):
        yield "{"
        for number, (key, item) in enumerate(data.items()):
            yield f"{', ' if number else ''}{json.dumps(escaped(key), ensure_ascii=False)}: "
            yield from _json_pieces(item)
        yield "}"
    elif isinstance(data, list):
        yield "["
        for number, item in enumerate(data):
            if number:
                yield ", "
            yield from _json_pieces(item)
        yield "]"
    elif isinstance(data, str):
        text = escaped(without_payloads(data))
        yield Leaf(text, json=True) if len(text) > _LONG_STRING else json.dumps(text, ensure_ascii=False)
    else:
        yield compact(data)
