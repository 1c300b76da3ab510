"""Reading the summariser's answer: the snapshot in it, or why it is not a summary.

A checkpoint replaces hours of work, so whatever is not clearly a summary is refused: a tool call, an answer cut off, reasoning without an
answer, a refusal, an echo. Models are sloppy about the two blocks asked for. They draft a snapshot while thinking, name the tag in the coverage
check, quote it inside the snapshot, open it twice or close it twice. So the tags are read in one pass by the places where they stand:

* A tag between backticks or quotes is a mention.
* Inside reasoning and inside the coverage check nothing counts.
* A tag alone at a border of a line is *firm*, one amid a sentence is not. Inside a block whose text begins on a new line, only firm tags count.
* A firm closing tag behind a block that seemed finished belongs to it: the earlier one was a mention.

The last complete block that says something wins. Without any, the raw text is taken, unless a snapshot is required. One scan, linear in the answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from langgraph_roundcompact._answer import CALLED, CUT_OFF, FILTERED, REFUSED, Reading
from langgraph_roundcompact._escape import storable
from langgraph_roundcompact._no_summary import no_summary, says_nothing
from langgraph_roundcompact._prompt import AFFINITY_INSTRUCTIONS, CLOSING, INSTRUCTIONS, SECTIONS
from langgraph_roundcompact.errors import SummaryRejected

_TAG = re.compile(
    r"<\s{0,8}+(/?)\s{0,8}+((?:seed:|ant)?think(?:ing)?|thoughts?|reasoning|reflection|analysis|scratchpad|state[_-]snapshot|coverage[_-]check)"
    r"(?![\w-])([^<>]{0,400})>",
    re.IGNORECASE,
)
_BLOCKS: Final = ("state_snapshot", "coverage_check")
# Reasoning in the marks of other templates: Magistral, Kimi, and the channels of gpt-oss.
_OTHER_THOUGHTS = re.compile(r"(?:\[(/?)THINK\]|◁(/?)think▷)")
_CHANNEL_OPENED = re.compile(r"(?:<\|start\|>\s*assistant)?<\|channel\|>\s*(?:analysis|commentary)[^<\n]{0,100}<\|message\|>")
_CHANNEL_CLOSED = re.compile(r"<\|end\|>|(?:<\|start\|>\s*assistant)?<\|channel\|>\s*final[^<\n]{0,100}<\|message\|>|<\|return\|>\s*\Z")
_QUOTES: Final = "`'\"“”‘’«»"


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
    reading = Reading.of(answer)
    if reading.finish & FILTERED:
        raise SummaryRejected("content_filter")
    if reading.refused or reading.finish & REFUSED:
        raise SummaryRejected("refusal")
    if reading.calls or reading.finish & CALLED:
        raise SummaryRejected("tool_call")
    text = _in_known_marks(storable(reading.text))
    scan = _scan(text)
    if _is_echo(scan):
        raise SummaryRejected("prompt_echo")
    if scan.snapshot is not None:
        if scan.summary:
            _check_marked(scan.summary)
            return scan.summary
        raise SummaryRejected("cut_off" if reading.finish & CUT_OFF else "blank")
    if reading.finish & CUT_OFF or scan.unclosed:
        raise SummaryRejected("cut_off")
    text = _raw(scan, reasoned=reading.reasoned)
    if require_snapshot or says_nothing(text, replaces):
        raise SummaryRejected("no_snapshot")
    return text


# --- the tags -----------------------------------------------------------------------------------------------------------------------------


def _in_known_marks(text: str) -> str:
    """The text with reasoning in `<think>` tags, where another template marks it."""
    if "THINK]" in text or "think▷" in text:
        text = _OTHER_THOUGHTS.sub(lambda found: f"<{found[1] or found[2] or ''}think>", text)
    if text.lstrip().startswith(("<|channel|>", "<|start|>")):
        text = _CHANNEL_CLOSED.sub("</think>", _CHANNEL_OPENED.sub("<think>", text))
        text = text.removesuffix("</think>") if text.count("</think>") > text.count("<think>") else text
    return text


def _family(name: str) -> str:
    """`think` for every name of reasoning, else the name of the block."""
    name = name.lower().replace("-", "_")
    return name if name in _BLOCKS else "think"


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
    summary: str = ""
    """The snapshot without what does not belong to it."""
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
        self.blocks: list[tuple[int, int]] = []
        self.hidden: list[tuple[int, int]] = []
        self.inside: tuple[str, int] | None = None
        self.checked = False
        self.reasoned = False
        self.last_check = -1

    def run(self) -> _Scan:
        tags = [tag for tag in _TAG.finditer(self.text) if not self._is_mention(tag)]
        self.last_check = max((tag.start() for tag in tags if tag[1] and _family(tag[2]) == "coverage_check"), default=-1)
        for tag in tags:
            family, closing = _family(tag[2]), bool(tag[1])
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
            self.hidden, self.open, self.blocks, self.checked, self.reasoned = [(0, tag.end())], [], [], False, True

    def _open(self, tag: re.Match[str]) -> None:
        firm = self._first_on_line(tag.start()) or self.text[tag.start() - 1 : tag.start()] == ">"
        if not self.open or firm or not self.open[-1].firm:
            self.open.append(_Open(tag.end(), firm, self._last_on_line(tag.end())))

    def _close(self, tag: re.Match[str]) -> None:
        firm = self._first_on_line(tag.start()) or self._last_on_line(tag.end())
        if not self.open:
            if firm and self.blocks:
                self.blocks[-1] = (self.blocks[-1][0], tag.start())
            return
        if self.open[-1].in_lines and not firm:
            self.open[-1].maybe_end = tag.start()
            return
        self.blocks.append((self.open.pop().start, tag.start()))

    def _end(self) -> None:
        if self.inside is not None:
            self._leave(len(self.text))
        for block in self.open:
            if block.maybe_end is not None and (not self.blocks or block.maybe_end > self.blocks[-1][1]):
                self.blocks.append((block.start, block.maybe_end))

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
        if self.blocks:
            # An empty block behind a good one is a slip of the pen.
            for start, stop in reversed(self.blocks[-_BLOCKS_TRIED:]):
                scan.snapshot, scan.summary = self.text[start:stop], _unwrapped(self.text[start:stop])
                if scan.summary:
                    break
            else:
                scan.snapshot = self.text[slice(*self.blocks[-1])]
        scan.unclosed = not self.blocks and any(block.firm for block in self.open)
        return scan


# --- the text --------------------------------------------------------------------------------------------------------------------------------

_OWN_FRAME = re.compile(r"</?(?:memory_block_\w{1,40}|summary)(?:\s[^<>]{0,200})?>", re.IGNORECASE)
_OWN_PARTS = re.compile(r"<(meaning|conflict_policy)>[^<]{0,2000}</\1>", re.IGNORECASE)
_SNAPSHOT_TAG = r"</?state[_-]snapshot(?:\s[^<>]{0,200})?>"
_INNER_FRAME = re.compile(rf"{_SNAPSHOT_TAG}(.*){_SNAPSHOT_TAG}", re.IGNORECASE | re.DOTALL)
_TAGS_ONLY = re.compile(r"<[^<>]{0,200}>")
# A heading of ours, and what is written under one that has nothing.
_SIGN = r"(?:_|[^\w\U0001f000-\U0001ffff])"
_EMPTY_LINE = re.compile(
    rf"{_SIGN}*+(?:\d{{1,2}}[.)]?{_SIGN}{{0,3}})?(?:{'|'.join(re.escape(name) for name, _ in SECTIONS)}|none|unknown|n/?a|nothing|empty)?{_SIGN}*+",
    re.IGNORECASE,
)
_HEAD = re.compile(r"^\[§\d{1,6}(?:\.\d{1,6})? (?:assistant|user|result|call|system message|notification|server|has no)", re.MULTILINE)
_LONGEST_SHELL: Final = 4_000
_BLOCKS_TRIED: Final = 8
_HINTS: Final = tuple(what for _, what in SECTIONS)
_ECHO_MARKS: Final = frozenset(line for text in (INSTRUCTIONS, AFFINITY_INSTRUCTIONS, CLOSING) for line in text.splitlines() if len(line) > 60)
_ECHO_HINTS: Final = 3
_ECHO_HEADS: Final = 2


def _is_echo(scan: _Scan) -> bool:
    """Whether the answer repeats the request: its instructions, the hints under the headings, or entries of the transcript."""
    outside = "".join(scan.outside)
    summary = scan.snapshot if scan.snapshot is not None else outside
    if sum(hint in summary for hint in _HINTS) >= _ECHO_HINTS or sum(mark in outside for mark in _ECHO_MARKS) >= 2:
        return True
    return len(_HEAD.findall(summary)) >= _ECHO_HEADS


def _unwrapped(text: str) -> str:
    """A summary without reasoning spans and without the tags of our own block, should the model have imitated it."""
    text = _without_thoughts(text)
    if _OWN_FRAME.match(text.strip()):
        text = _OWN_FRAME.sub("", _OWN_PARTS.sub("", text))
    text = text.strip().removeprefix("<![CDATA[").removesuffix("]]>").strip()
    if (inner := _INNER_FRAME.fullmatch(text)) is not None:
        text = inner[1].strip()
    return text if len(text) > _LONGEST_SHELL or _said(_TAGS_ONLY.sub("", text)) else ""


def _said(text: str) -> list[str]:
    """The lines of a short text that are more than headings, placeholders and signs."""
    return [line for line in text.splitlines() if _EMPTY_LINE.fullmatch(line) is None]


def _without_thoughts(text: str) -> str:
    """Without reasoning that begins on a line of its own and closes again; a tag that stays open is a mention."""
    out, done, opened = [], 0, -1
    for tag in _TAG.finditer(text):
        if _family(tag[2]) == "think":
            if not tag[1]:
                opened = tag.start() if opened < 0 and _begins_line(text, tag.start()) else opened
            elif opened >= 0:
                out.append(text[done:opened])
                done, opened = tag.end(), -1
    return "".join([*out, text[done:]])


def _check_marked(summary: str) -> None:
    """Refuse a snapshot that is wholly an error page, a refusal or a call; the latter two also behind one of the headings."""
    reason = no_summary(summary, begins=True)
    said = _said(summary) if reason is None and len(summary) <= _LONGEST_SHELL else []
    if len(said) == 1:
        under_heading = no_summary(said[0].strip(), begins=True)
        reason = under_heading if under_heading != "blank" else None  # "401 Unauthorized" is a finding there
    if reason is not None:
        raise SummaryRejected(reason)


def _raw(scan: _Scan, *, reasoned: bool) -> str:
    """The whole text as the summary, where nothing speaks against it."""
    outside = "".join(scan.outside).strip()
    text = _unwrapped(outside)
    reason = no_summary(text or outside)
    if not text and reason is None:
        reason = "coverage_only" if scan.checked else "reasoning_only" if reasoned or scan.reasoned else "blank"
    if reason is not None:
        raise SummaryRejected(reason)
    return text
