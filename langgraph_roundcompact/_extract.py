"""Facts from messages, by rules alone.

Nothing here knows the tools of a framework. What a call does is read from the shape of its arguments (a path and a new text: a write; a
command; a question), what a result says from the shape of its lines. Text of tools stays text of tools: only the answer to a question that
the assistant put to a person is filed as an answer, and even that is never worded as a request.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langgraph_roundcompact._calls import answered_by_person, exit_status, read_call
from langgraph_roundcompact._content import text_of
from langgraph_roundcompact._facts import MAX_FACTS, MAX_TEXT, Fact
from langgraph_roundcompact._groups import Call, declared_calls, results_of
from langgraph_roundcompact._lines import answers, last_words, sentences, telling_lines, template
from langgraph_roundcompact._root import under_root
from langgraph_roundcompact._terms import terms_in

_SCAN = 400_000
"""Characters of one text that are looked at, head and tail; what lies between is payload."""
_ANSI = re.compile(r"\x1b\[[0-9;?]{0,12}[A-Za-z]")
_QUOTED = re.compile(r"`([^`\n]{2,60})`")


@dataclass(slots=True)
class _Term:
    kind: str
    last: int
    said: int = 0
    """Messages of the assistant that hold it."""
    seen: int = 0
    leading: bool = False
    """A link among the first of its result."""


@dataclass(slots=True)
class _Collector:
    redact: Callable[[str], str]
    terms: dict[str, _Term] = field(default_factory=dict)
    lines: dict[tuple[str, str], Fact] = field(default_factory=dict)
    shapes: Counter[str] = field(default_factory=Counter)
    todo: list[Fact] = field(default_factory=list)

    def clean(self, text: str) -> str:
        """Redacted text, bounded, without terminal codes."""
        text = self.redact(text)
        if len(text) > _SCAN:
            text = text[: _SCAN * 3 // 4] + "\n" + text[-_SCAN // 4 :]
        return _ANSI.sub("", text) if "\x1b" in text else text

    def line(self, kind: str, text: str, step: int, weight: int, note: str = "") -> None:
        text = text.strip()[:MAX_TEXT]
        if not text:
            return
        known = self.lines.get((kind, text))
        self.shapes[template(text)] += 1
        if known is None:
            self.lines[(kind, text)] = Fact(kind, text, step, 0, 1, weight, note)
        else:
            note = known.joined(note)
            self.lines[(kind, text)] = replace(known, order=step, seen=known.seen + 1, weight=max(known.weight, weight), note=note)

    def words(self, text: str, step: int, *, said: bool) -> None:
        links = 0
        for kind, term in terms_in(text):
            links += kind == "url"
            known = self.terms.get(term)
            if known is None:
                known = self.terms[term] = _Term(kind, step)
            known.seen += known.last != step or known.seen == 0
            known.last = step
            known.said += said
            known.leading |= kind == "url" and links < 3


def extract_facts(messages: Sequence[BaseMessage], *, request: str = "", later: str = "", redact: Callable[[str], str] = str) -> tuple[Fact, ...]:
    """Every fact of some messages, each once, in no order of use.

    Args:
        messages: The work to be replaced; checkpoints among it are not work and are left out.
        request: The user's request. What it names is needed.
        later: Text of the work that stays (the protected tail). What it names is needed.
        redact: Runs over each text before anything is taken from it.
    """
    out = _Collector(redact)
    results = results_of(messages)
    for step, message in enumerate(messages):
        if _is_ours(message):
            continue
        if isinstance(message, AIMessage):
            _assistant(out, message, step, messages, results)
        else:
            owner = results.get(step)
            call = declared_calls(messages[owner[0]])[owner[1]] if owner else None
            _result(out, message, call, step)
    _last_intention(out, messages)
    return _facts(out, request, later)


def _is_ours(message: BaseMessage) -> bool:
    return message.additional_kwargs.get("lc_source") == "round_compaction" or message.type == "system"


def _facts(out: _Collector, request: str, later: str) -> tuple[Fact, ...]:
    wanted = {term for _, term in terms_in(request)}
    needed = {term for _, term in terms_in(later)}
    terms = [
        Fact(term.kind, text, term.last, term.said, term.seen, (text in wanted) + 2 * (text in needed) + 4 * term.leading)
        for text, term in out.terms.items()
    ]
    lines = [replace(fact, weight=_novel(fact.weight, out.shapes[template(fact.text)])) if fact.kind != "todo" else fact for fact in out.lines.values()]
    terms = _most(terms, lambda fact: (-fact.refs, -fact.weight, -fact.order))
    lines = _most(lines, lambda fact: (-fact.weight, -fact.order))
    return tuple(under_root([*lines, *out.todo, *terms]))


def _most(facts: list[Fact], key: Callable[[Fact], tuple[int, ...]]) -> list[Fact]:
    return facts if len(facts) <= MAX_FACTS else sorted(facts, key=key)[:MAX_FACTS]


def _novel(weight: int, told: int) -> int:
    """A line of a form that came often says less each time."""
    return max(weight * 4 // (3 + told), 1) if told > 1 else weight


def _assistant(out: _Collector, message: AIMessage, step: int, messages: Sequence[BaseMessage], results: Mapping[int, tuple[int, int]]) -> None:
    text = out.clean(text_of(message))
    out.words(text, step, said=True)
    for quoted in _QUOTED.findall(text):
        known = out.terms.setdefault(quoted, _Term("name", step, 1, 1))
        known.last = step
    for weight, sentence in sentences(text):
        out.line("said", sentence, step, weight)
    for number, call in enumerate(declared_calls(message)):
        _call(out, call, step)
        del number


def _call(out: _Collector, call: Call, step: int) -> None:
    reading = read_call(call, out.clean)
    out.words(reading.text, step, said=True)
    if reading.todo:
        out.todo = [Fact("todo", item[:MAX_TEXT], step, 0, 1, weight) for weight, item in reading.todo]
    if reading.path:
        out.line("file", reading.path, step, reading.weight, reading.operation)
    elif reading.command:
        out.line("command", reading.command, step, reading.weight)


def _result(out: _Collector, message: BaseMessage, call: Call | None, step: int) -> None:
    text = out.clean(text_of(message))
    out.words(text, step, said=False)
    if answered_by_person(call, text):
        for piece in answers(text):
            out.line("user", piece, step, 10)
        return
    failed = isinstance(message, ToolMessage) and message.status == "error"
    status = exit_status(text, failed=failed)
    if call is not None and status:
        reading = read_call(call, out.clean)
        known = out.lines.get(("command", reading.command.strip()[:MAX_TEXT]))
        if known is not None:
            out.lines[(known.kind, known.text)] = replace(known, note=status)
    for kind, weight, line in telling_lines(text, failed=failed):
        out.line(kind, line, step, weight)


def _last_intention(out: _Collector, messages: Sequence[BaseMessage]) -> None:
    for step in range(len(messages) - 1, -1, -1):
        message = messages[step]
        if isinstance(message, AIMessage) and not _is_ours(message):
            last = last_words(out.clean(text_of(message)))
            if last:
                out.line("intent", last, step, 10)
                return
