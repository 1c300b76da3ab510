"""The directory that the work happens in, said once instead of in front of each path."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from langgraph_roundcompact._facts import Fact

_ABSOLUTE = re.compile(r"(?:/|[A-Za-z]:[/\\])[^\s\"'`:;|&<>()]{2,200}")
_FILES = frozenset({"file", "path", "place"})
_LED_BY_PATH = frozenset({"error", "result"})


def under_root(facts: list[Fact]) -> Iterable[Fact]:
    """Facts with paths relative to the root, where the work has one; the root is a fact of its own."""
    root = _root(facts)
    if not root:
        return facts
    cut = {}
    for fact in facts:
        text = fact.text
        if text.startswith(root) and len(text) > len(root) and (fact.kind in _FILES or fact.kind in _LED_BY_PATH):
            fact = replace(fact, text=text[len(root) :])  # noqa: PLW2901 - the same fact, shorter
        elif text.rstrip("/") == root.rstrip("/") and fact.kind in _FILES:
            continue
        known = cut.get(fact.key)
        cut[fact.key] = fact if known is None else _joined(known, fact)
    newest = max(fact.order for fact in facts)
    return [Fact("path", root, newest, 9, 9, 2), *cut.values()]


def _joined(known: Fact, fact: Fact) -> Fact:
    return replace(
        known,
        order=max(known.order, fact.order),
        refs=known.refs + fact.refs,
        seen=known.seen + fact.seen,
        weight=max(known.weight, fact.weight),
        note=known.joined(fact.note),
    )


def _root(facts: list[Fact]) -> str:
    """The directory under which the same files are also named without it, or the one that most commands start in."""
    absolute = [fact.text for fact in facts if fact.kind in _FILES and _ABSOLUTE.match(fact.text)][:2000]
    relative = {fact.text for fact in facts if fact.kind in _FILES and "/" in fact.text and fact.text[0] not in "/."}
    votes: Counter[str] = Counter()
    for path in absolute:
        for at in [match.end() for match in re.finditer("/", path)][2:10]:
            if path[at:] in relative:
                votes[path[:at]] += 1
    best = max(votes.items(), key=lambda item: (item[1], len(item[0]), item[0]), default=("", 0))
    return best[0] if best[1] > 1 else ""
