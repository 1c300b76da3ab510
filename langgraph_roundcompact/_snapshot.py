"""Reading the summariser's answer: the snapshot in it, or why it is not a summary.

A checkpoint replaces hours of work, so whatever is not clearly a summary is refused: a tool call, an answer cut off, reasoning without an
answer, a refusal, an echo. Models are sloppy about the two blocks asked for. They draft a snapshot while thinking, name the tag in the coverage
check, quote it inside the snapshot, open it twice or close it twice. So the tags are read in one pass by the places where they stand:

* A tag between backticks or quotes is a mention.
* Inside reasoning and inside the coverage check nothing counts.
* A tag alone at a border of a line is *firm*, one amid a sentence is not. Inside a block whose text begins on a new line, only firm tags count.
* A firm closing tag behind a block that seemed finished belongs to it: the earlier one was a mention.

The last complete block wins. Without any, the raw text is taken, unless a snapshot is required. One scan, linear in the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from langgraph_roundcompact._content import CALL_TYPES, REASONING_TYPES, block_text, block_type
from langgraph_roundcompact._escape import storable
from langgraph_roundcompact._prompt import AFFINITY_INSTRUCTIONS, CLOSING, INSTRUCTIONS, SECTIONS
from langgraph_roundcompact.errors import SummaryRejected

_TAG = re.compile(r"<\s{0,8}(/?)\s{0,8}(think|thinking|thought|reasoning|state_snapshot|coverage_check)(?![\w-])([^<>]{0,400})>", re.IGNORECASE)
_REASONING_TAGS: Final = frozenset({"think", "thinking", "thought", "reasoning"})
_QUOTES: Final = "`'\"“”‘’«»"


def _set_of(words: str) -> frozenset[str]:
    return frozenset(words.split())


_CUT_OFF: Final = _set_of("length max_tokens max_output_tokens incomplete model_length model_context_window_exceeded token_limit")
_FILTERED: Final = _set_of("content_filter content_filtered safety recitation blocklist prohibited_content spii guardrail_intervened")
_REFUSED: Final = frozenset({"refusal"})


def read_summary(answer: object, *, require_snapshot: bool) -> str:
    """The summary in an answer.

    Args:
        answer: A message or chunk, a string, or any object with `content`.
        require_snapshot: Refuse text without a complete `<state_snapshot>` block.

    Returns:
        The text of the last complete snapshot, else the whole text; without reasoning, NUL and lone surrogates.

    Raises:
        SummaryRejected: The answer is not a summary; `reason` says why.
    """
    reading = _Reading.of(answer)
    if reading.finish & _FILTERED:
        raise SummaryRejected("content_filter")
    if reading.refused or reading.finish & _REFUSED:
        raise SummaryRejected("refusal")
    if reading.calls:
        raise SummaryRejected("tool_call")
    text = storable(reading.text)
    scan = _scan(text)
    if _is_echo(scan):
        raise SummaryRejected("prompt_echo")
    if scan.snapshot is not None:
        summary = _unwrapped(scan.snapshot)
        if summary:
            return summary
        raise SummaryRejected("cut_off" if reading.finish & _CUT_OFF else "blank")
    if reading.finish & _CUT_OFF or scan.unclosed:
        raise SummaryRejected("cut_off")
    return _raw(scan, reasoned=reading.reasoned, require_snapshot=require_snapshot)


# --- the answer ------------------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Reading:
    """What an answer says about itself, whatever its class."""

    text: str = ""
    reasoned: bool = False
    calls: bool = False
    refused: bool = False
    finish: frozenset[str] = frozenset()

    @classmethod
    def of(cls, answer: object) -> _Reading:
        if isinstance(answer, str):
            return cls(text=answer)
        reading = cls()
        content = getattr(answer, "content", answer.get("content") if isinstance(answer, Mapping) else None)
        texts = [content] if isinstance(content, str) else list(reading._texts(content if isinstance(content, list | tuple) else ()))
        extra = getattr(answer, "additional_kwargs", None)
        extra = extra if isinstance(extra, Mapping) else {}
        reading.text = "".join(texts)
        reading.reasoned |= any(extra.get(name) for name in ("reasoning_content", "reasoning", "thinking"))
        reading.refused |= isinstance(extra.get("refusal"), str) and bool(extra["refusal"].strip())
        reading.calls |= any(getattr(answer, name, None) for name in ("tool_calls", "invalid_tool_calls", "tool_call_chunks"))
        reading.calls |= any(extra.get(name) for name in ("tool_calls", "function_call"))
        reading.finish = frozenset(_finish_words(answer))
        return reading

    def _texts(self, blocks: Any) -> Iterator[str]:
        """Text of the blocks; notes what the others are."""
        for block in blocks:
            if isinstance(block, str):
                yield block
            elif isinstance(block, Mapping):
                kind = block_type(block)
                self.reasoned |= kind in REASONING_TYPES
                self.refused |= kind == "refusal"
                self.calls |= kind in CALL_TYPES or kind in ("server_tool_use", "server_tool_call") or kind.endswith("_call")
                yield block_text(block)


def _finish_words(answer: object) -> Iterator[str]:
    """Why the model stopped, in lower case, from all the places where providers say so."""
    metadata = getattr(answer, "response_metadata", None)
    metadata = metadata if isinstance(metadata, Mapping) else {}
    details = metadata.get("incomplete_details")
    values = [metadata.get(name) for name in ("finish_reason", "stop_reason", "done_reason", "stopReason", "status")]
    values.append(details.get("reason") if isinstance(details, Mapping) else None)
    extra = getattr(answer, "additional_kwargs", None)
    values.append(extra.get("finish_reason") if isinstance(extra, Mapping) else None)
    for value in values:
        named = getattr(value, "name", value)
        if isinstance(named, str):
            yield named.rpartition(".")[2].strip().lower()


# --- the tags --------------------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Open:
    """A snapshot block that has been opened."""

    start: int
    """Where its text begins."""
    firm: bool
    in_lines: bool
    """Its text begins on a new line."""
    maybe_end: int | None = None
    """The last closing tag amid a sentence."""


@dataclass(slots=True)
class _Scan:
    """One pass over the tags of an answer."""

    text: str
    outside: list[str] = field(default_factory=list)
    """Text outside reasoning and coverage checks."""
    snapshot: str | None = None
    unclosed: bool = False
    reasoned: bool = False
    checked: bool = False


def _scan(text: str) -> _Scan:
    """Find the last complete snapshot, and what is left outside reasoning and coverage check."""
    return _Scanner(text).run()


class _Scanner:
    """The state of the pass. Positions are of the text; `blocks` are complete snapshots as (start, stop)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.open: list[_Open] = []
        self.block: tuple[int, int] | None = None
        self.hidden: list[tuple[int, int]] = []
        self.inside: tuple[str, int] | None = None
        self.checked = False
        self.reasoned = False
        self.last_check = -1

    def run(self) -> _Scan:
        tags = [tag for tag in _TAG.finditer(self.text) if not self._is_mention(tag)]
        self.last_check = max((tag.start() for tag in tags if tag[1] and tag[2].lower() == "coverage_check"), default=-1)
        for tag in tags:
            name, closing = tag[2].lower(), bool(tag[1])
            family = "think" if name in _REASONING_TAGS else name
            if self.inside is not None and family == "state_snapshot" and not closing and self._ends_check(tag):
                self._leave(tag.start())
            if self.inside is not None:
                if closing and family == self.inside[0]:
                    self._leave(tag.end())
            elif family == "state_snapshot":
                self._close(tag) if closing else self._open(tag)
            elif family == "think":
                self._reasoning(tag, closing=closing)
            elif not closing and not self._in_block():
                self.inside = ("coverage_check", tag.start())
        self._end()
        return self._result()

    def _is_mention(self, tag: re.Match[str]) -> bool:
        before, after = self.text[tag.start() - 1 : tag.start()] if tag.start() else "", self.text[tag.end() : tag.end() + 1]
        return bool(before) and before in _QUOTES and (not after or after in _QUOTES)

    def _in_block(self) -> bool:
        return any(block.firm for block in self.open)

    def _ends_check(self, tag: re.Match[str]) -> bool:
        """Whether a snapshot begins in a coverage check that is never closed."""
        unclosed = self.inside is not None and self.inside[0] == "coverage_check" and self.last_check < tag.start()
        return unclosed and self._first_on_line(tag.start())

    def _leave(self, end: int) -> None:
        assert self.inside is not None
        kind, start = self.inside
        self.hidden.append((start, end))
        self.checked |= kind == "coverage_check"
        self.reasoned |= kind == "think"
        self.inside = None

    def _reasoning(self, tag: re.Match[str], *, closing: bool) -> None:
        if not closing:
            # Inside a snapshot it is reasoning only where it closes again; that is decided when the block is cut out.
            if not self._in_block():
                self.inside = ("think", tag.start())
        elif not self._in_block():
            # A closing tag alone: the template opened the reasoning before the answer began.
            self.hidden, self.open, self.block, self.checked, self.reasoned = [(0, tag.end())], [], None, False, True

    def _open(self, tag: re.Match[str]) -> None:
        firm = self._first_on_line(tag.start()) or self.text[tag.start() - 1 : tag.start()] == ">"
        if not self.open or firm or not self.open[-1].firm:
            self.open.append(_Open(tag.end(), firm, self._last_on_line(tag.end())))

    def _close(self, tag: re.Match[str]) -> None:
        firm = self._first_on_line(tag.start()) or self._last_on_line(tag.end())
        if not self.open:
            if firm and self.block is not None:
                self.block = (self.block[0], tag.start())
            return
        if self.open[-1].in_lines and not firm:
            self.open[-1].maybe_end = tag.start()
            return
        self.block = (self.open.pop().start, tag.start())

    def _end(self) -> None:
        if self.inside is not None:
            self._leave(len(self.text))
        for block in self.open:
            if block.maybe_end is not None and (self.block is None or block.maybe_end > self.block[1]):
                self.block = (block.start, block.maybe_end)

    def _first_on_line(self, at: int) -> bool:
        line = self.text.rfind("\n", max(0, at - 80), at)
        return (line >= 0 or at <= 80) and not self.text[line + 1 if line >= 0 else 0 : at].strip(" \t`*#>")

    def _last_on_line(self, at: int) -> bool:
        line = self.text.find("\n", at, at + 80)
        rest = self.text[at : line if line >= 0 else at + 80].strip(" \t\r`*")
        return rest.startswith("<") or (not rest and (line >= 0 or at + 80 >= len(self.text)))

    def _result(self) -> _Scan:
        scan = _Scan(self.text, checked=self.checked, reasoned=self.reasoned)
        at = 0
        for start, stop in self.hidden:
            scan.outside.append(self.text[at:start])
            at = stop
        scan.outside.append(self.text[at:])
        if self.block is not None:
            scan.snapshot = self.text[self.block[0] : self.block[1]]
        scan.unclosed = self.block is None and any(block.firm for block in self.open)
        return scan


# --- the text --------------------------------------------------------------------------------------------------------------------------------

_OWN_FRAME = re.compile(r"</?(?:memory_block_\w{1,40}|summary)(?:\s[^<>]{0,200})?>", re.IGNORECASE)
_OWN_PARTS = re.compile(r"<(meaning|conflict_policy)>[^<]{0,2000}</\1>", re.IGNORECASE)
_TAGS_ONLY = re.compile(r"<[^<>]{0,200}>")
_ERROR_PAGE = re.compile(
    r"\s*(?:<!doctype html|<html[\s>]|<\?xml[^>]{0,200}>\s*(?:<!doctype html|<html|<error)"
    r"|\{\s*\"(?:error|detail|message)\"\s*:|(?:error\s*)?(?:HTTP[ /]?[\d.]{0,4}\s*)?[45]\d\d\s+[A-Z][A-Za-z -]{3,40}\s*$"
    r"|(?:internal server error|bad gateway|service unavailable|gateway time-?out|upstream connect error[^\n]{0,200})[\s.]*$)",
    re.IGNORECASE,
)
_LONGEST_REFUSAL: Final = 500
_LONGEST_SHELL: Final = 4_000
_UNABLE: Final = r"(?:can't|cannot|can not|won't|will not|am unable to|'m unable to|am not able to|'m not able to|must decline to)"
_SERVE: Final = r"(?:help|assist|comply|fulfil|do (?:that|this)|provide|create|produce|write|generate|summari[sz]e|engage)"
_REFUSAL = re.compile(
    r"\W{0,3}(?:"
    rf"(?:(?:i'm |i am )?(?:very |so |really )?sorry|apologies|unfortunately|as an ai)\b[^\n]{{0,60}}?{_UNABLE}"
    rf"|i ?{_UNABLE} {_SERVE}|i (?:must|have to) (?:decline|refuse)"
    r"|(?:es )?tut mir (?:sehr )?leid[^\n]{0,60}?(?:kann|nicht)|leider kann ich[^\n]{0,60}nicht|(?:dabei |das )?kann ich [^\n]{0,30}nicht helfen"
    r"|(?:je suis )?désolée?[^\n]{0,60}?(?:ne peux|impossible)|je ne peux pas (?:vous |t')?(?:aider|répondre|fournir)"
    r"|lo siento[^\n]{0,60}?no puedo|no puedo (?:ayudar|cumplir|proporcionar)"
    r"|(?:desculpe|sinto muito|lamento)[^\n]{0,60}?não posso|não posso (?:ajudar|fornecer)"
    r"|mi dispiace[^\n]{0,60}?non posso|(?:извините|к сожалению|простите)[^\n]{0,60}?не могу"
    r"|(?:对不起|抱歉|很抱歉|非常抱歉)[^\n]{0,30}?(?:无法|不能|没办法)|我(?:无法|不能)(?:协助|帮助|提供)"
    r"|(?:申し訳|すみません|ごめん)[^\n]{0,60}?(?:できません|お手伝い|かねます)|(?:죄송|미안)[^\n]{0,60}?(?:없습니다|어렵습니다)"
    r")",
    re.IGNORECASE,
)
_ANNOUNCEMENT = re.compile(
    r"\W{0,3}(?:(?:ok|okay|sure|certainly|of course|understood|got it)[,.! ]{1,3})?(?:let me |i'll now |i will now |i'm going to )[^\n]{0,200}$",
    re.IGNORECASE,
)
_HINTS: Final = tuple(what for _, what in SECTIONS)
_ECHO_MARKS: Final = frozenset(line for text in (INSTRUCTIONS, AFFINITY_INSTRUCTIONS, CLOSING) for line in text.splitlines() if len(line) > 60)
_ECHO_HINTS: Final = 3


def _is_echo(scan: _Scan) -> bool:
    """Whether the answer repeats the request: a line of the instructions, or the hints under the headings in what would be the summary."""
    outside = "".join(scan.outside)
    summary = scan.snapshot if scan.snapshot is not None else outside
    return sum(hint in summary for hint in _HINTS) >= _ECHO_HINTS or sum(mark in outside for mark in _ECHO_MARKS) >= 2


def _unwrapped(text: str) -> str:
    """A summary without reasoning spans and without the tags of our own block, should the model have imitated it."""
    text = _without_thoughts(text)
    if _OWN_FRAME.match(text.strip()):
        text = _OWN_FRAME.sub("", _OWN_PARTS.sub("", text))
    text = text.strip()
    return text if len(text) > _LONGEST_SHELL or _TAGS_ONLY.sub("", text).strip() else ""


def _without_thoughts(text: str) -> str:
    """Without reasoning that begins on a line of its own and closes again; a tag that stays open is a mention."""
    out, done, opened = [], 0, -1
    for tag in _TAG.finditer(text):
        if tag[2].lower() in _REASONING_TAGS:
            if not tag[1]:
                alone = not text[text.rfind("\n", max(0, tag.start() - 80), tag.start()) + 1 : tag.start()].strip()
                opened = tag.start() if opened < 0 and alone else opened
            elif opened >= 0:
                out.append(text[done:opened])
                done, opened = tag.end(), -1
    return "".join([*out, text[done:]])


def _raw(scan: _Scan, *, reasoned: bool, require_snapshot: bool) -> str:
    """The whole text as the summary, where nothing speaks against it."""
    text = _unwrapped("".join(scan.outside))
    if not text:
        raise SummaryRejected("coverage_only" if scan.checked else "reasoning_only" if reasoned or scan.reasoned else "blank")
    if _ERROR_PAGE.match(text):
        raise SummaryRejected("blank")
    if len(text) <= _LONGEST_REFUSAL and _REFUSAL.match(text.replace("’", "'")):
        raise SummaryRejected("refusal")
    if require_snapshot or _ANNOUNCEMENT.match(text.replace("’", "'")):
        raise SummaryRejected("no_snapshot")
    return text
