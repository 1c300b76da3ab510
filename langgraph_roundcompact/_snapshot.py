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
from langgraph_roundcompact._no_summary import no_summary, says_nothing
from langgraph_roundcompact._prompt import AFFINITY_INSTRUCTIONS, CLOSING, INSTRUCTIONS, SECTIONS
from langgraph_roundcompact.errors import SummaryRejected

_TAG = re.compile(r"<\s{0,8}(/?)\s{0,8}(think|thinking|thought|reasoning|state_snapshot|coverage_check)(?![\w-])([^<>]{0,400})>", re.IGNORECASE)
_REASONING_TAGS: Final = frozenset({"think", "thinking", "thought", "reasoning"})
_QUOTES: Final = "`'\"“”‘’«»"


def _set_of(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Why a model stopped, in the words of OpenAI, Anthropic, Gemini, Bedrock, Mistral, Cohere, DeepSeek, GLM, Ollama, vLLM, TGI, watsonx.
_CUT_OFF: Final = _set_of(
    """length max_tokens max_output_tokens max_len incomplete model_length model_context_window_exceeded token_limit time_limit timeout abort aborted
    cancelled canceled error error_limit failed network_error insufficient_system_resource malformed_response pause_turn other"""
)
_FILTERED: Final = _set_of(
    """content_filter content_filtered safety image_safety recitation blocklist prohibited_content spii language sensitive error_toxic
    guardrail_intervened intervened content_policy_violation data_inspection_failed"""
)
_REFUSED: Final = frozenset({"refusal"})
_CALLED: Final = _set_of("malformed_function_call malformed_tool_call unexpected_tool_call too_many_tool_calls")


def read_summary(answer: object, *, require_snapshot: bool, replaces: int = 0) -> str:
    """The summary in an answer.

    Args:
        answer: A message or chunk, a string, or any object with `content`.
        require_snapshot: Refuse text without a complete `<state_snapshot>` block.
        replaces: Characters of the work that the summary is to stand for. Text without the block is refused where it is next to nothing
            beside it: "Done." is an answer, but no summary.

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
    if reading.calls or reading.finish & _CALLED:
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
    text = _raw(scan, reasoned=reading.reasoned)
    if require_snapshot or says_nothing(text, replaces):
        raise SummaryRejected("no_snapshot")
    return text


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
        if isinstance(answer, list | tuple) and answer and not isinstance(answer[-1], str | Mapping):
            answer = answer[-1]  # a chain that ends in a list of messages: the last is the answer
        reading = cls()
        reading.text = "".join(reading._texts(_field(answer, "content") or _field(answer, "text")))
        extra = _mapping(_field(answer, "additional_kwargs"))
        reading.reasoned |= any(extra.get(name) for name in ("reasoning_content", "reasoning", "thinking"))
        reading.refused |= isinstance(extra.get("refusal"), str) and bool(extra["refusal"].strip())
        reading.calls |= any(_field(answer, name) for name in ("tool_calls", "invalid_tool_calls", "tool_call_chunks"))
        reading.calls |= any(extra.get(name) for name in ("tool_calls", "function_call"))
        reading.finish = frozenset(_finish_words(answer))
        return reading

    def _texts(self, content: Any) -> Iterator[str]:
        """Text of the content, whatever its shape; notes what else is in it."""
        for item in content if isinstance(content, list | tuple) else (content,):
            if isinstance(item, str):
                yield item
            elif isinstance(item, Mapping):
                # What LangChain does not know, a refusal for instance, it wraps.
                inner = item.get("value") if block_type(item) == "non_standard" else None
                block = inner if isinstance(inner, Mapping) else item
                kind = block_type(block)
                self.reasoned |= kind in REASONING_TYPES
                self.refused |= kind == "refusal"
                self.calls |= kind in CALL_TYPES or kind in ("server_tool_use", "server_tool_call") or kind.endswith("_call")
                yield block_text(block)


def _field(owner: object, name: str) -> Any:
    """A field of a message, of any other object or of a mapping."""
    return owner.get(name) if isinstance(owner, Mapping) else getattr(owner, name, None)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _finish_words(answer: object) -> Iterator[str]:
    """Why the model stopped, in lower case, from all the places where providers say so."""
    metadata, extra = (_mapping(_field(answer, name)) for name in ("response_metadata", "additional_kwargs"))
    values = [metadata.get(name) for name in ("finish_reason", "stop_reason", "done_reason", "stopReason", "status")]
    values += [extra.get("finish_reason"), metadata.get("amazon-bedrock-guardrailAction")]
    values += [_mapping(metadata.get("incomplete_details")).get("reason"), _mapping(metadata.get("finish_details")).get("type")]
    for value in values:
        named = getattr(value, "name", value)
        if isinstance(named, str) and named:
            word = named.rpartition(".")[2].strip().lower()
            # Chunks that each say it are merged into "stopstop".
            yield word[: (word + word).find(word, 1)]
    blocked = _mapping(metadata.get("prompt_feedback")).get("block_reason")
    if blocked and "unspecified" not in str(blocked).lower():
        yield "content_filter"


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


def _begins_line(text: str, at: int) -> bool:
    """Whether nothing but blanks and marks of layout stands before a place on its line."""
    line = text.rfind("\n", max(0, at - 80), at)
    return (line >= 0 or at <= 80) and not text[line + 1 if line >= 0 else 0 : at].strip(" \t`*#>")


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
        return _begins_line(self.text, at)

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
_LONGEST_SHELL: Final = 4_000
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
                opened = tag.start() if opened < 0 and _begins_line(text, tag.start()) else opened
            elif opened >= 0:
                out.append(text[done:opened])
                done, opened = tag.end(), -1
    return "".join([*out, text[done:]])


def _raw(scan: _Scan, *, reasoned: bool) -> str:
    """The whole text as the summary, where nothing speaks against it."""
    text = _unwrapped("".join(scan.outside))
    if not text:
        raise SummaryRejected("coverage_only" if scan.checked else "reasoning_only" if reasoned or scan.reasoned else "blank")
    reason = no_summary(text)
    if reason is not None:
        raise SummaryRejected(reason)
    return text
