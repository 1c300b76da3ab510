"""Facts ranked by use for their length, and as many of them as a budget holds.

Ranking is greedy cover: a line is worth the terms in it that nothing chosen before it holds, plus what it says as a line; it is taken by
worth per character. So many short exact strings win over prose, and nothing is paid for twice. The order does not depend on the budget,
hence a larger budget only ever adds.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from langgraph_roundcompact._facts import TERM_KINDS, Fact
from langgraph_roundcompact._terms import parts_of, terms_in, words_in_name

TERM = {"url": 1.2, "path": 1.3, "place": 0.6, "id": 2.0, "date": 2.0, "number": 0.3, "name": 1.4}
LINE = {"user": 10.0, "todo": 2.0, "intent": 1.8, "said": 1.4, "file": 1.8, "command": 0.9, "error": 2.4, "result": 0.8}
P = {"a0": 0.3, "a1": 5.0, "ap": 3, "r": 0.2, "n0": 0.1, "n1": 0.2, "l0": 0.75, "l1": 0.25, "tl": 0.45, "ov": 4.0, "w": 0.25, "wl": 0.85, "u": 2.25, "touch": 1.0, "want": 0.5, "dot": 0.6, "sp": 0.7, "need": 6.0, "seen": 2.0}
_WORD = re.compile(r"[^\W\d_]{4,}")


def rank(facts: Sequence[Fact]) -> tuple[Fact, ...]:
    """Facts, most useful for their length first. Deterministic; independent of the order given."""
    facts = sorted(facts, key=lambda fact: (fact.kind, fact.text))
    newest = max((fact.order for fact in facts), default=0)
    topics = _topics(facts, newest)
    worth = {fact.text: term_worth(fact, newest, topics) for fact in facts if fact.kind in TERM_KINDS}
    held = [_held(fact) for fact in facts]
    words = [frozenset() if fact.kind in TERM_KINDS else frozenset(word.lower() for word in _WORD.findall(fact.text)) for fact in facts]
    often = Counter(word for some in words for word in some)
    rare = {word: P["w"] / (1 + math.log2(count)) for word, count in often.items()}
    lines = [line_worth(fact, newest) for fact in facts]
    costs = [cost(fact.text) + P["ov"] for fact in facts]
    covered: set[str] = set()
    spoken: set[str] = set()

    def density(i: int) -> float:
        gain = sum(worth.get(term, 0.0) for term in held[i] if term not in covered)
        if lines[i]:
            fresh = sum(rare[word] for word in words[i] if word not in spoken)
            gain = gain * P["tl"] + lines[i] * P["wl"] + fresh
        return gain / costs[i]

    heap = [(-density(i), i) for i in range(len(facts))]
    heapq.heapify(heap)
    ranked: list[Fact] = []
    while heap:
        old, i = heapq.heappop(heap)
        now = -density(i)
        if now > old and heap and now > heap[0][0]:
            heapq.heappush(heap, (now, i))
            continue
        if facts[i].kind in TERM_KINDS and facts[i].text in covered:
            continue
        covered |= held[i]
        spoken |= words[i]
        ranked.append(facts[i])
    return tuple(ranked)


def _held(fact: Fact) -> frozenset[str]:
    if fact.kind in TERM_KINDS:
        return frozenset((fact.text, *parts_of(fact.text)))
    held: set[str] = set()
    for _, term in terms_in(fact.text):
        held.add(term)
        held.update(parts_of(term))
    return frozenset(held)


def _topics(facts: Sequence[Fact], newest: int) -> dict[str, float]:
    """The words that the assistant's own names are made of, and how lately it used them (0 to 1)."""
    topics: dict[str, float] = {}
    for fact in facts:
        if fact.kind in TERM_KINDS and fact.refs:
            for word in words_in_name(fact.text):
                topics[word] = max(topics.get(word, 0.0), (fact.order + 1) / (newest + 1))
    return topics


def _touch(text: str, topics: Mapping[str, float]) -> float:
    """0 to 1: how much of a name is made of words the assistant uses now."""
    words = words_in_name(text)
    return sum(topics.get(word, 0.0) ** 2 for word in words) / len(words) if words else 0.0


def term_worth(fact: Fact, newest: int, topics: Mapping[str, float]) -> float:
    """Points of a term: what the assistant itself wrote lately is wanted again, what only stood in a long result hardly ever."""
    recency = (fact.order + 1) / (newest + 1)
    if fact.refs:
        known = (P["a0"] + P["a1"] * recency ** P["ap"]) * (1 + P["r"] * min(fact.refs - 1, 4))
    else:
        known = (P["n0"] + P["n1"] * recency * recency) * (1 + P["touch"] * _touch(fact.text, topics)) * (P["seen"] if fact.seen > 1 else 1)
    if fact.kind in ("url", "date") and not fact.refs:
        known = P["u"] if fact.weight > 3 else P["u"] / 4
    if fact.kind == "name":
        known *= P["dot"] if "." in fact.text else P["sp"] if " " in fact.text else 1.0
    return TERM[fact.kind] * known * (1 + P['want'] * (fact.weight & 1)) + (P['need'] if fact.weight & 2 else 0)


def line_worth(fact: Fact, newest: int) -> float:
    """Points of a line beyond its terms."""
    if fact.kind in TERM_KINDS:
        return 0.0
    recency = (fact.order + 1) / (newest + 1)
    return LINE[fact.kind] * fact.weight * (P["l0"] + P["l1"] * recency)


def cost(text: str) -> float:
    """Length in quarter tokens: a character of a wide script counts four times."""
    wide = 0 if text.isascii() else sum(1 for ch in text if ord(ch) > 0x2E7F)
    return len(text) + 3 * wide


def fit(most: int, render: Callable[[int], str], budget_tokens: int, estimate: Callable[[str], int]) -> int:
    """The largest `k <= most` for which `render(k)` takes at most `budget_tokens`; `render` must grow with `k`."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if estimate(render(middle)) <= budget_tokens:
            low = middle
        else:
            high = middle - 1
    return low
