"""An archive entry as text: what a reader sees of its messages, and the passages that a search finds.

The text is made from the entry, never stored beside it: one copy of the truth. It is the same each time, so that a place in it (a character) can
be named in one answer and asked for in the next.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage

from langgraph_roundcompact._groups import Call, declared_calls
from langgraph_roundcompact._visible import block_data, compact, plain, visible_parts, without_payloads

SIZE_TOKENS, OVERLAP_TOKENS = 3000, 300
"""Sizes of passages for an entry that does not say."""
_LINE_CHARS = 400
"""Longest piece in which text is measured, in characters; a longer line may be cut."""
_REQUEST_CHARS = 200
_GIST_CHARS = 160
"""Characters of a call's arguments in the heading of its result."""
_WIDE = re.compile("[\u2e80-\uffff\U00010000-\U0010ffff]")

Estimate = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Part:
    """One message in the text of an entry."""

    start: int
    """First character, that of the heading."""
    stop: int
    heading: str
    message_id: str | None
    role: str
    tool: str | None
    call_ids: tuple[str, ...]
    """Of the call a result answers, or of the calls a message makes."""


@dataclass(frozen=True, slots=True)
class EntryText:
    """The text of an entry, and where each message stands in it."""

    text: str
    parts: tuple[Part, ...]

    def find(self, wanted: str) -> list[int]:
        """Places of the messages with an id, or with a call under it: the call and its result."""
        return [place for place, part in enumerate(self.parts) if wanted == part.message_id or wanted in part.call_ids]


def entry_text(record: Mapping[str, Any]) -> EntryText:
    """What a reader sees of an entry. Anything may stand in it; what is no message is shown as JSON."""
    messages = record.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, Mapping) for message in messages):
        return EntryText(compact(plain(record)), ())
    request = record.get("request")
    # Its beginning, to tell entries apart: the request itself still stands in the conversation, and would be found in place of the work.
    head = f"[request] {request.strip()[:_REQUEST_CHARS]}\n\n" if isinstance(request, str) and request.strip() else ""
    pieces, parts, at = [head], [], len(head)
    gists: dict[str, str] = {}
    for message in messages:
        part, text = _part(message, at, gists)
        pieces.append(text)
        parts.append(part)
        at = part.stop
    return EntryText("".join(pieces), tuple(parts))


def passages(key: str, record: Mapping[str, Any], estimate: Estimate) -> list[dict[str, Any]]:
    """The passages of an entry, in order.

    Args:
        key: The entry's key.
        record: The entry; its `chunks` say how large passages are and how much neighbours share, in tokens.
        estimate: Tokens of a text.

    Returns:
        For each: `archive_id`, `message_id` (of the message it begins in), `message_ids`, `role`, `tool`, `text`, and its place in the text of the
        entry: `start`, `stop`, `length`, in characters. A passage that begins within a message repeats that message's heading, in which a result
        names its call.
    """
    entry = entry_text(record)
    size, overlap = _sizes(record.get("chunks"))
    lead = _Lead(entry, size, estimate)
    return [_passage(key, entry, start, stop, lead) for start, stop in cut(entry.text, size, overlap, estimate, lead=lead.tokens)]


def cut(text: str, size: int, overlap: int, estimate: Estimate, lead: Callable[[int], int] = lambda _: 0) -> list[tuple[int, int]]:
    """Ranges of a text of at most `size` tokens each, at borders of lines where there are any; linear.

    Args:
        text: The text.
        size: Tokens of a range.
        overlap: Tokens at most that a range repeats of the one before; at most half of `size`.
        estimate: Tokens of a text.
        lead: Tokens that a range beginning at a character takes beside its text.
    """
    pieces = [(start, stop, _tokens(text[start:stop], estimate)) for start, stop in _pieces(text, max(min(_LINE_CHARS, size // 2), 1))]
    ranges: list[tuple[int, int]] = []
    first = new = shared = 0  # pieces: where the range begins, the first that no range has yet, and the tokens between
    while new < len(pieces):
        while first < new and lead(pieces[first][0]) + shared + pieces[new][2] > size:
            shared -= pieces[first][2]
            first += 1
        used, stop = lead(pieces[first][0]) + shared + pieces[new][2], new + 1
        while stop < len(pieces) and used + pieces[stop][2] <= size:
            used += pieces[stop][2]
            stop += 1
        # Counts of pieces are rounded: their sum may be less than the count of the whole.
        while stop > new + 1 and lead(pieces[first][0]) + _tokens(text[pieces[first][0] : pieces[stop - 1][1]], estimate) > size:
            stop -= 1
        ranges.append((pieces[first][0], pieces[stop - 1][1]))
        first = new = stop
        shared = 0
        while stop < len(pieces) and shared + pieces[first - 1][2] <= overlap:
            first -= 1
            shared += pieces[first][2]
    return ranges


def calls_of(message: Mapping[str, Any]) -> tuple[Call, ...]:
    """The calls an archived message makes, each once, wherever it declares them."""
    if not _is_ai(message):
        return ()
    fields = {name: message[name] for name in ("tool_calls", "invalid_tool_calls") if _are_mappings(message.get(name))}
    kwargs = message.get("additional_kwargs")
    return declared_calls(
        AIMessage.model_construct(content=_content(message), additional_kwargs=dict(kwargs) if isinstance(kwargs, Mapping) else {}, **fields)
    )


# --- messages as text --------------------------------------------------------------------------------------------------------------------


def _part(message: Mapping[str, Any], at: int, gists: dict[str, str]) -> tuple[Part, str]:
    calls = calls_of(message)
    answers = message.get("tool_call_id")
    heading = _heading(message, gists.get(answers, "") if isinstance(answers, str) else "")
    body = [_body(message), *(f"[call {call.name or '(no name)'}{_id(call.id)}] {_arguments(call.args)}" for call in calls)]
    gists.update((call.id, f"{call.name} {_gist(call.args)}") for call in calls if call.id)
    text = "\n".join([heading, *filter(None, body)]) + "\n\n"
    ids = [answers] if isinstance(answers, str) and answers else [call.id for call in calls if call.id]
    tool = _string(message.get("name")) if message.get("type") in ("tool", "function") else None
    part = Part(at, at + len(text), heading, _string(message.get("id")), str(message.get("type") or "message"), tool, tuple(ids))
    return part, text


def _heading(message: Mapping[str, Any], answers: str) -> str:
    """Who speaks, under which id; of a result, which call it answers and whether it failed."""
    kind, name = str(message.get("type") or "message"), _string(message.get("name"))
    if kind in ("tool", "function"):
        said = f"result of {answers or name or 'a call'}{' (error)' if message.get('status') == 'error' else ''}"
    else:
        role = {"ai": "assistant", "human": "user"}.get(kind.removesuffix("MessageChunk").lower(), kind)
        said = f"{role} {name}" if name else role
    return f"[{' '.join(said.split())}{_id(message.get('id'))}]"


def _id(value: object) -> str:
    return f" id={' '.join(value.split())[:200]}" if isinstance(value, str) and value else ""


def _body(message: Mapping[str, Any]) -> str:
    content = _content(message)
    if isinstance(content, str):
        return content.strip("\n")
    shown = visible_parts(HumanMessage.model_construct(content=content))
    return "\n".join(text for kind, data in shown if (text := _block(kind, data)))


def _block(kind: str, data: Any) -> str:
    if kind == "text":
        return without_payloads(data)
    label, body = (data[0], data[1]) if kind == "data" else (str(data.get("name") or data.get("type") or ""), block_data(data))
    return f"[{label}] {without_payloads(compact(body))}"


def _arguments(args: Any) -> str:
    """Arguments in one line of JSON; long texts among them as they are, line by line, where a reader and a search find them."""
    if not isinstance(args, Mapping):
        return args if isinstance(args, str) else compact(plain(args))
    if all(not isinstance(value, str) or (len(value) <= _LINE_CHARS and "\n" not in value) for value in args.values()):
        return compact(plain(args))
    return "\n".join(f"{key}: {value if isinstance(value, str) else compact(plain(value))}" for key, value in args.items())


def _gist(args: Any) -> str:
    return " ".join((args if isinstance(args, str) else compact(plain(args)))[: _GIST_CHARS * 4].split())[:_GIST_CHARS]


def _content(message: Mapping[str, Any]) -> Any:
    content = message.get("content")
    return content if isinstance(content, str | list) else "" if content is None else compact(plain(content))


def _is_ai(message: Mapping[str, Any]) -> bool:
    return str(message.get("type")) in ("ai", "AIMessageChunk")


def _are_mappings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, Mapping) for item in value)


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


# --- passages --------------------------------------------------------------------------------------------------------------------------------


class _Lead:
    """What a passage repeats that begins within a message: the message's heading, as long as it takes no more than an eighth."""

    def __init__(self, entry: EntryText, size: int, estimate: Estimate) -> None:
        self._entry, self._room, self._estimate = entry, size // 8, estimate
        self._known: dict[int, int] = {}

    def text(self, start: int) -> str:
        place = place_of(self._entry, start)
        if place is None or self._entry.parts[place].start == start:
            return ""
        return f"{self._entry.parts[place].heading} …\n" if self._size(place) <= self._room else ""

    def tokens(self, start: int) -> int:
        text = self.text(start)
        return _tokens(text, self._estimate) if text else 0

    def _size(self, place: int) -> int:
        if place not in self._known:
            self._known[place] = _tokens(self._entry.parts[place].heading, self._estimate) + 1
        return self._known[place]


def place_of(entry: EntryText, at: int) -> int | None:
    """The message in whose text a character stands; None before the first."""
    low, high = 0, len(entry.parts)
    while low < high:
        middle = (low + high) // 2
        if entry.parts[middle].start <= at:
            low = middle + 1
        else:
            high = middle
    return low - 1 if low else None


def _passage(key: str, entry: EntryText, start: int, stop: int, lead: _Lead) -> dict[str, Any]:
    first, last = place_of(entry, start), place_of(entry, max(stop - 1, start))
    within = entry.parts[first or 0 : last + 1] if last is not None else ()
    opening = within[0] if within else None
    return {
        "archive_id": key,
        "message_id": opening.message_id if opening else None,
        "message_ids": [part.message_id for part in within if part.message_id],
        "role": opening.role if opening else None,
        "tool": opening.tool if opening else None,
        "text": lead.text(start) + entry.text[start:stop],
        "start": start,
        "stop": stop,
        "length": len(entry.text),
    }


def _sizes(chunks: Any) -> tuple[int, int]:
    size, overlap = (chunks.get("size_tokens"), chunks.get("overlap_tokens")) if isinstance(chunks, Mapping) else (None, None)
    size = size if isinstance(size, int) and size > 0 else SIZE_TOKENS
    overlap = overlap if isinstance(overlap, int) and overlap >= 0 else OVERLAP_TOKENS
    # With more, each passage would bring little that is new, and a long text would become a thousand times as long.
    return size, min(overlap, size // 2)


def _pieces(text: str, longest: int) -> Iterator[tuple[int, int]]:
    """Lines, some short ones together, and parts of lines that are too long, cut at a blank where there is one near."""
    at = 0
    while at < len(text):
        newline = text.find("\n", at, at + longest)
        # Measuring takes as long for a word as for a paragraph. What a blank line parts stays apart: messages are.
        apart = text.find("\n\n", at, at + longest // 2)
        together = apart + 2 if apart >= 0 else text.rfind("\n", at, at + longest // 2) + 1
        stop = max(together, newline + 1) if newline >= 0 else min(at + longest, len(text))
        if newline < 0 and stop < len(text):
            blank = text.rfind(" ", at + longest // 2, stop)
            stop = blank + 1 if blank >= 0 else stop
        yield at, stop
        at = stop


def _tokens(text: str, estimate: Estimate) -> int:
    """Tokens of a text, not fewer than a quarter of its characters: a limit should hold for whoever counts."""
    return max(estimate(text), _at_least(text))


@lru_cache(maxsize=4096)
def _at_least(text: str) -> int:
    wide = 0 if text.isascii() else len(_WIDE.findall(text))
    return wide + -(-(len(text) - wide) // 4)
