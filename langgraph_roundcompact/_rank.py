"""Which facts are worth their length, and as many of them as a budget holds.

Ranking is a greedy cover. The worth of a line is that of its kind, plus that of the terms and words in it which nothing chosen before it holds; the
worth of a term is how likely it is needed again. Facts are taken by worth per character, so many short exact strings win over prose, and nothing is
paid for twice. The order does not depend on the budget: a larger budget only ever adds.

The figures were measured on transcripts of real agents: of the names that the assistant itself used in the last fifth of its work, one in
three came back later; of those it used in the first half, one in fifty; of names that only ever stood in results, one in eighty, twice
as many when they stood in two results, or are made of words that the assistant uses now.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from langgraph_roundcompact._facts import COMMAND_LABEL, COMMON, FIXED, LEADING, NEEDED, STEP, TERM_KINDS, WANTED, Fact
from langgraph_roundcompact._lines import template
from langgraph_roundcompact._terms import Seen, parts_of, terms_in, words_in_name

_TERM_WORTH = {"url": 1.2, "path": 1.3, "place": 0.6, "id": 2.0, "date": 2.0, "number": 0.3, "name": 1.7}
_LINE_WORTH = {"user": 8.5, "todo": 1.7, "intent": 1.5, "said": 1.2, "file": 1.5, "command": 0.8, "error": 2.0, "result": 0.7}
_LINE_START = 8.0
"""Characters that a fact costs beside its text: its separator, its share of a label."""
_TERMS_IN_LINE = 0.45
"""Share of its terms' worth that a line gets: a term alone is the cheaper way to keep it."""
_WORD_WORTH = 0.3
_LINK_WORTH = 2.5
_NEEDED_WORTH = 6.0
_DECISION = re.compile(r"\bdeci(?:ded?|sion)\b|\bagreed\b|决定|決定", re.IGNORECASE)
_DECISION_FACTOR = 3.0
"""A decision that is lost is made again, perhaps the other way; names from a listing can be listed again."""
_FULL_SENTENCE = 60.0
"""Characters of a sentence that says something."""


@dataclass(frozen=True, slots=True)
class _Crowd:
    """What one of many of a kind in one message is worth."""

    few: float
    """So many take little from each other."""
    power: float
    alone: float
    """Worth of one that is alone."""

    def factor(self, count: int) -> float:
        """The factor for one of so many."""
        return self.alone * math.pow(self.few / (self.few - 1 + count), self.power)


_TERM_CROWD = _Crowd(16, 0.4, 1.3)
_LINE_CROWD = _Crowd(8, 0.5, 1.0)
"""Of a listing each entry says little; the only number of an answer says much."""
_OUTDATED = 0.5
"""Worth of an error that is fixed, and of a line from an earlier run of a command."""
_COMMON_WORTH = 0.1
_SHORT_ANSWER, _ANSWERS_FIRST = 200, 8
"""Characters of an answer of the user, and how many of them, that come before everything but the resume point."""
_FILL_FROM = 80
"""Facts after the first that does not fit, which are tried for the room that is left."""
_DIGIT = re.compile(r"\d")
_WORD = re.compile(r"[^\W\d_]{4,}")


@dataclass(frozen=True, slots=True)
class Ranking:
    """Facts in order of use."""

    facts: tuple[Fact, ...]
    """Most useful for their length first. A term that a line before it holds follows at no cost."""
    covered: frozenset[Fact]
    """Terms that facts before them hold verbatim; they need no text of their own."""


def rank(facts: Sequence[Fact]) -> Ranking:
    """Order facts by use for their length. Deterministic, whatever the order given."""
    facts = sorted(facts, key=lambda fact: (fact.kind, fact.text))
    newest = max((fact.order for fact in facts), default=0)
    topics = _topics(facts, newest)
    crowds = _crowds(facts)
    worth = {fact.text: _term_worth(fact, newest, topics, crowds) for fact in facts if fact.kind in TERM_KINDS}
    held = _held_by(facts)
    words = [_words(fact) for fact in facts]
    often = Counter(word for some in words for word in some)
    rare = {word: _WORD_WORTH / (1 + math.log2(count)) for word, count in often.items()}
    shapes = _shapes(facts)
    runs = {fact.text[:COMMAND_LABEL]: fact.order for fact in facts if fact.kind == "command"}
    lines = [_line_worth(fact, newest, shapes, runs, crowds) for fact in facts]
    costs = [_cost(fact.text) + _LINE_START for fact in facts]
    covered: set[str] = set()
    spoken: set[str] = set()

    def density(i: int) -> float:
        gain = sum(worth.get(term, 0.0) for term in held[i] if term not in covered)
        if lines[i]:
            gain = gain * _TERMS_IN_LINE + lines[i] + sum(rare[word] for word in words[i] if word not in spoken)
        return gain / costs[i]

    # Worth only ever falls as more is covered, so an entry that is still the best after a fresh look is the best.
    first = {_resume_point(facts), *_answers(facts)}
    heap = [(-math.inf if i in first else -density(i), i) for i in range(len(facts))]
    heapq.heapify(heap)
    ranked: list[Fact] = []
    free: list[Fact] = []
    while heap:
        old, i = heapq.heappop(heap)
        now = -density(i) if old > -math.inf else old
        if now > old and heap and now > heap[0][0]:
            heapq.heappush(heap, (now, i))
            continue
        if facts[i].kind in TERM_KINDS and facts[i].text in covered:
            free.append(facts[i])
        covered.update(held[i])
        spoken.update(words[i])
        ranked.append(facts[i])
    return Ranking(tuple(ranked), frozenset(free))


def _resume_point(facts: Sequence[Fact]) -> int | None:
    """The newest statement of where to go on: it comes before everything else."""
    return max((i for i, fact in enumerate(facts) if fact.kind == "intent"), key=lambda i: facts[i].order, default=None)


def _answers(facts: Sequence[Fact]) -> list[int]:
    """The newest short answers to questions of the assistant: they come next. What a person decided in a few words cannot be looked up again.

    Where no question is known, a text of the user is one of many, and has to be worth its length as others do.
    """
    short = [i for i, fact in enumerate(facts) if fact.kind == "user" and fact.note and len(fact.text) <= _SHORT_ANSWER]
    return sorted(short, key=lambda i: facts[i].order)[-_ANSWERS_FIRST:]


def _shapes(facts: Sequence[Fact]) -> Counter[str]:
    """How often each form of a line came."""
    shapes: Counter[str] = Counter()
    for fact in facts:
        if fact.kind not in TERM_KINDS:
            shapes[template(fact.text)] += fact.seen
    return shapes


def choose(facts: Sequence[Fact], render: Callable[[Sequence[Fact]], str], budget_tokens: int, estimate: Callable[[str], int]) -> list[Fact]:
    """The longest run of first facts whose text fits, and what still fits of those that follow.

    Args:
        facts: Most useful first.
        render: Their text; it must grow with the facts.
        budget_tokens: The most the text may take, measured by `estimate`.
        estimate: Tokens of a text.
    """
    low, high = 0, len(facts)
    while low < high:
        middle = (low + high + 1) // 2
        if estimate(render(facts[:middle])) <= budget_tokens:
            low = middle
        else:
            high = middle - 1
    chosen = list(facts[:low])
    room = budget_tokens - estimate(render(chosen))
    extra: list[Fact] = []
    for fact in facts[low : low + _FILL_FROM]:
        need = estimate(fact.text) + 2
        if need <= room:
            extra.append(fact)
            room -= need
    while extra and estimate(render([*chosen, *extra])) > budget_tokens:
        extra.pop()
    return chosen + extra


def _held_by(facts: Sequence[Fact]) -> list[tuple[str, ...]]:
    """Of each fact the terms that whoever shows it shows too. In order, as sums of floats must be the same in every process."""
    seen = Seen()
    terms = ([fact.text] if fact.kind in TERM_KINDS else [term for _, term in terms_in(fact.text, seen)] for fact in facts)
    return [tuple(dict.fromkeys(part for term in some for part in (term, *parts_of(term)))) for some in terms]


def _words(fact: Fact) -> tuple[str, ...]:
    return () if fact.kind in TERM_KINDS else tuple(dict.fromkeys(word.lower() for word in _WORD.findall(fact.text)))


def _topics(facts: Sequence[Fact], newest: int) -> dict[str, float]:
    """The words that the assistant's own names are made of, and how lately it used them (0 to 1)."""
    topics: dict[str, float] = {}
    for fact in facts:
        if fact.kind in TERM_KINDS and fact.refs:
            for word in words_in_name(fact.text):
                topics[word] = max(topics.get(word, 0.0), _recency(fact, newest))
    return topics


def _crowds(facts: Sequence[Fact]) -> Counter[tuple[str, int]]:
    """How many terms of one kind that nobody used stand in one message: of a listing each says little."""
    return Counter((fact.kind, fact.order // STEP) for fact in facts if (fact.kind in TERM_KINDS and not fact.refs) or fact.kind == "result")


def _recency(fact: Fact, newest: int) -> float:
    return (fact.order + 1) / (newest + 1)


def _term_worth(fact: Fact, newest: int, topics: Mapping[str, float], crowds: Mapping[tuple[str, int], int]) -> float:
    recency = _recency(fact, newest)
    if fact.refs:
        worth = (0.3 + 5.0 * recency**4) * (1 + 0.2 * min(fact.refs - 1, 4))
    elif fact.kind in ("url", "date"):
        # What a search found is cited by its address; nothing else about it says so.
        worth = _LINK_WORTH if fact.weight & LEADING else _LINK_WORTH / 4
    else:
        worth = (0.1 + 0.2 * recency**2) * (1 + _touch(fact.text, topics)) * (2.5 if fact.seen > 1 else 1.0)
        worth *= _TERM_CROWD.factor(crowds[fact.kind, fact.order // STEP])
    if fact.kind == "name":
        # Calls of methods (`line.strip`) and pairs of capitalised words are names less often than single words are.
        worth *= 0.6 if "." in fact.text else 0.7 if " " in fact.text else 1.0
        worth *= _COMMON_WORTH if fact.weight & COMMON else 1.0
    worth *= _TERM_WORTH[fact.kind] * (1.5 if fact.weight & WANTED else 1.0)
    return worth + _NEEDED_WORTH if fact.weight & NEEDED else worth


def _touch(text: str, topics: Mapping[str, float]) -> float:
    """0 to 1: how much of a name is made of words the assistant uses now."""
    words = words_in_name(text)
    return sum(topics.get(word, 0.0) ** 2 for word in words) / len(words) if words else 0.0


def _line_worth(fact: Fact, newest: int, shapes: Mapping[str, int], runs: Mapping[str, int], crowds: Mapping[tuple[str, int], int]) -> float:
    if fact.kind in TERM_KINDS:
        return 0.0
    # A line of a form that came often says less each time.
    decides = fact.kind in ("said", "intent") and _DECISION.search(fact.text) is not None
    told = shapes[template(fact.text)]
    novelty = 4 / (3 + told) if told > 1 and fact.kind != "file" and not decides else 1.0
    worth = _LINE_WORTH[fact.kind] * fact.weight * novelty * (0.75 + 0.25 * _recency(fact, newest))
    if fact.kind == "result":
        worth *= _LINE_CROWD.factor(crowds[fact.kind, fact.order // STEP])
    if fact.kind == "said" or (fact.kind == "result" and not _DIGIT.search(fact.text)):
        # A few words without a subject say little, however short they are.
        worth *= min(_cost(fact.text) / _FULL_SENTENCE, 1.0)
    if fact.kind in ("error", "result") and (fact.note.startswith(FIXED) or runs.get(fact.note, -1) > fact.order):
        worth *= _OUTDATED
    return worth * _DECISION_FACTOR if decides else worth


def _cost(text: str) -> float:
    """Length in quarter tokens: a character of a wide script counts four times."""
    wide = 0 if text.isascii() else sum(1 for ch in text if ord(ch) > 0x2E7F)
    return len(text) + 3 * wide
