"""Facts from messages, by rules alone.

Nothing here knows the tools of a framework. What a call does is read from the shape of its arguments (`_calls`), what a text says from the
shape of its lines (`_lines`), exact strings by their own shape (`_terms`). Text of tools stays text of tools: only the answer to a question
that the assistant put to a person is filed as an answer, and even that is never worded as a request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage

from langgraph_roundcompact._calls import Reading, answered_by_person, exit_status, read_call
from langgraph_roundcompact._content import text_of
from langgraph_roundcompact._escape import storable
from langgraph_roundcompact._facts import COMMON, LEADING, MAX_TEXT, NEEDED, STEP, TERM_KINDS, WANTED, Fact, later_note, settled
from langgraph_roundcompact._folded import carried_facts, carried_status, is_folded
from langgraph_roundcompact._groups import declared_calls, results_of
from langgraph_roundcompact._lines import answers, last_words, names_its_question, sentences, telling_lines
from langgraph_roundcompact._root import under_root
from langgraph_roundcompact._terms import Seen, is_common, terms_in
from langgraph_roundcompact.reinject._calls import looks_failed

MAX_LINES = 8000
"""Lines, and terms, of one extraction; the least telling beyond that are no facts."""
SCAN_ALL = 1_200_000
"""Characters of a round that are looked at at most: a fraction of a second of work."""
_SCAN_PER_LINE = 160
"""Characters looked at for each line, and for each term, that may become a fact."""
_LEADING_LINKS = 2
_WHY, _WRITTEN = 2, 1
"""Points of what a call says it is for, and of a line that the assistant wrote into a file: it can be read again."""
_ANSI = re.compile(r"\x1b\[[0-9;?]{0,12}[A-Za-z]")
_QUOTED = re.compile(r"`([^`\x00-\x1f\x7f-\x9f\u2028\u2029]{2,60})`")


def extract_facts(
    messages: Sequence[BaseMessage], *, request: str = "", later: str = "", redact: Callable[[str], str] = str, scan: int = SCAN_ALL
) -> tuple[Fact, ...]:
    """Every fact of some messages, each once, in no order of use.

    Args:
        messages: The work to be replaced; checkpoints among it are not work and are left out.
        request: The user's request. What it names is wanted.
        later: Text of the work that stays (the protected tail). What it names is needed.
        redact: Runs over each text before anything is taken from it.
        scan: Characters that are looked at, about. Where the messages have more, the newest are looked at whole and of the older ones head
            and tail of the longest.
    """
    out = _Collector(redact, limits=_limits([len(text_of(message)) for message in messages], scan), most=min(scan // _SCAN_PER_LINE, MAX_LINES))
    results = results_of(messages)
    readings: dict[tuple[int, int], Reading] = {}
    for step, message in enumerate(messages):
        if isinstance(message, SystemMessage) or (message.additional_kwargs.get("lc_source") == "round_compaction" and not is_folded(message)):
            continue
        out.start(step)
        # Of a folded message the text is a preview; what it hides was taken down when it was folded.
        out.carried(carried_facts(message), said=isinstance(message, AIMessage))
        if isinstance(message, AIMessage):
            readings.update(((step, number), reading) for number, reading in enumerate(_assistant(out, message)))
        else:
            owner = results.get(step)
            _result(out, message, readings.get(owner) if owner else None)
    out.say_last()
    return settled(under_root(out.facts(request, later)))


def fair_share(lengths: Sequence[int], total: int) -> int:
    """The limit under which the lengths together stay within a total: short ones whole, long ones cut alike."""
    left = total
    ordered = sorted(lengths)
    for i, length in enumerate(ordered):
        share = left // (len(ordered) - i)
        if length > share:
            return share
        left -= length
    return total


def _limits(lengths: Sequence[int], total: int) -> list[int]:
    """Characters to look at of each text."""
    newest, left = len(lengths), total // 4
    while newest and lengths[newest - 1] <= left:
        newest -= 1
        left -= lengths[newest]
    share = fair_share(lengths[:newest], total - total // 4 + left)
    return [share] * newest + [total] * (len(lengths) - newest)


def _assistant(out: _Collector, message: AIMessage) -> list[Reading]:
    text = out.clean(text_of(message)) if not is_folded(message) else ""
    out.words(text, said=True)
    out.quoted(text)
    out.last_said = text if text.strip() else out.last_said
    for weight, sentence in sentences(text):
        out.line("said", sentence, weight)
    readings = [read_call(call, out.clean) for call in declared_calls(message)]
    for reading in readings:
        out.words(reading.text, said=True)
        for weight, status, item in reading.todo:
            out.line("todo", item, weight, status)
        if reading.command:
            out.line("command", reading.command, reading.weight)
        if reading.why:
            out.line("said", reading.why, _WHY)
        for _, _, line in telling_lines(reading.written, failed=False, file=reading.label):
            out.line("result", line, _WRITTEN, reading.label)
    return readings


def _files(out: _Collector, reading: Reading | None, status: str) -> None:
    """The files of a call, once its result is there and does not say that it failed: what failed was not done."""
    if reading is not None and status in ("", "0"):
        for operation, path in reading.files:
            out.line("file", path, 4 if operation == "r" else 8, operation)


def _result(out: _Collector, message: BaseMessage, reading: Reading | None) -> None:
    if is_folded(message):
        if reading is not None and reading.command:
            out.ended(reading.command, carried_status(message))
        _files(out, reading, carried_status(message))
        return
    text = out.clean(text_of(message))
    out.words(text, said=False)
    failed = isinstance(message, ToolMessage) and message.status == "error"
    if answered_by_person(reading, text, failed=failed):
        question = reading.label if reading is not None and reading.asks and " " in reading.label and not names_its_question(text) else ""
        if reading is not None and question:
            out.told(reading.command)
        for weight, piece in answers(text):
            out.line("user", piece, weight, question)
        return
    if reading is not None and reading.todo:
        return  # the list that it confirms is told already
    status = exit_status(text, failed=failed or looks_failed(text))
    broken = status not in ("", "0")
    file = "" if reading is None or reading.command or not reading.files else reading.files[0][1]
    lines = telling_lines(text, failed=broken, file=file, asked=reading.command if reading else "")
    if reading is not None and reading.command:
        # Where no status is stated, what it said must tell.
        out.ended(reading.command, status or ("errors" if any(kind == "error" for kind, _, _ in lines) else "ok"))
    _files(out, reading, status)
    label = "" if reading is None else reading.label
    for kind, weight, line in lines:
        out.line(kind, line, weight, label)


@dataclass(slots=True)
class _Line:
    weight: int = 0
    order: int = 0
    seen: int = 0
    note: str = ""


@dataclass(slots=True)
class _Term:
    kind: str
    last: int = -1
    """Message that held it last."""
    order: int = 0
    said: int = 0
    """Messages of the assistant that hold it."""
    seen: int = 0
    leading: bool = False


@dataclass(slots=True)
class _Collector:
    """Facts as they come up, message by message."""

    redact: Callable[[str], str]
    limits: Sequence[int]
    """Characters that are looked at of the texts of each message."""
    most: int
    """Lines, and terms, that become facts."""
    words_seen: Seen = field(default_factory=Seen)
    terms: dict[str, _Term] = field(default_factory=dict)
    lines: dict[tuple[str, str], _Line] = field(default_factory=dict)
    last_said: str = ""
    step: int = 0
    place: int = 0

    def start(self, step: int) -> None:
        """A new message begins."""
        self.step, self.place = step, 0

    @property
    def order(self) -> int:
        return self.step * STEP + min(self.place, STEP - 1)

    def clean(self, text: str) -> str:
        """Redacted text, bounded, storable, without terminal codes."""
        text = storable(self.redact(text))
        limit = self.limits[self.step]
        if len(text) > limit:
            text = text[: limit * 3 // 4] + "\n" + text[len(text) - limit // 4 :]
        return _ANSI.sub("", text) if "\x1b" in text else text

    def line(self, kind: str, text: str, weight: int, note: str = "") -> None:
        """A line of some kind was found in the present message."""
        text = text.strip()[:MAX_TEXT].rstrip()
        if len(text.splitlines()) > 1:
            text = " ".join(text.split())
        if not text:
            return
        self.place += 1
        known = self.lines.get((kind, text))
        if known is None:
            known = self.lines[kind, text] = _Line()
        known.weight = weight if kind == "todo" else max(weight, known.weight)
        known.order, known.seen, known.note = self.order, known.seen + 1, later_note(kind, known.note, note)

    def told(self, command: str) -> None:
        """A command needs no line of its own: what came of it tells it."""
        self.lines.pop(("command", command.strip()[:MAX_TEXT].rstrip()), None)

    def ended(self, command: str, status: str) -> None:
        """A command's result said how it ended."""
        known = self.lines.get(("command", command.strip()[:MAX_TEXT].rstrip()))
        if known is not None and status:
            known.note = later_note("command", known.note, status)

    def words(self, text: str, *, said: bool) -> None:
        """The terms of a text of the present message."""
        links = 0
        for kind, term in terms_in(text, self.words_seen):
            links += kind == "url"
            self._term(kind, term, said=said, leading=kind == "url" and links <= _LEADING_LINKS)

    def quoted(self, text: str) -> None:
        """What the assistant set in code quotes is a name, whatever its shape."""
        for term in dict.fromkeys(_QUOTED.findall(text)):
            if len(term.strip()) > 1:
                self._term("name", term.strip(), said=True, leading=False)

    def _term(self, kind: str, text: str, *, said: bool, leading: bool) -> None:
        known = self.terms.get(text)
        if known is None:
            known = self.terms[text] = _Term(kind)
        if known.last != self.step:
            known.seen += 1
            known.said += said
            known.last, known.order = self.step, self.order
        known.leading |= leading

    def carried(self, facts: Iterable[Fact], *, said: bool) -> None:
        """Facts that the present message carries as data."""
        for fact in facts:
            if fact.kind in TERM_KINDS:
                self._term(fact.kind, fact.text, said=said, leading=bool(fact.weight & LEADING))
            else:
                self.line(fact.kind, fact.text, fact.weight, fact.note)

    def say_last(self) -> None:
        """File what the assistant said last as its intention."""
        last = last_words(self.last_said)
        if last:
            self.line("intent", last, 10)

    def facts(self, request: str, later: str) -> list[Fact]:
        """All facts, the least telling ones cut where there are too many."""
        wanted = {term for _, term in terms_in(request[:SCAN_ALL])}
        needed = {term for _, term in terms_in(later[:SCAN_ALL])}
        lines = [Fact(kind, text, line.order, 0, line.seen, line.weight, line.note) for (kind, text), line in self.lines.items()]
        words = self.words_seen.words
        bits = {
            text: WANTED * (text in wanted)
            + NEEDED * (text in needed)
            + LEADING * term.leading
            + COMMON * (term.kind == "name" and is_common(text, words))
            for text, term in self.terms.items()
        }
        terms = [Fact(term.kind, text, term.order, term.said, term.seen, bits[text]) for text, term in self.terms.items()]
        return [*_most(lines, self.most, _line_order), *_most(terms, self.most, _term_order)]


def _most(facts: list[Fact], most: int, order: Callable[[Fact], tuple[int, ...]]) -> Iterable[Fact]:
    return facts if len(facts) <= most else sorted(facts, key=order)[:most]


def _line_order(fact: Fact) -> tuple[int, ...]:
    return -fact.weight, -fact.order


def _term_order(fact: Fact) -> tuple[int, ...]:
    return -(fact.weight & NEEDED), -fact.refs, -min(fact.seen, 2), -fact.order
