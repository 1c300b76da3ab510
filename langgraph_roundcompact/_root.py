"""The working directory of the replaced work: named once, so that its paths can be written relative to it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from langgraph_roundcompact._facts import LABELLED, WANTED, Fact, join_facts

_ABSOLUTE = re.compile(r"/[^\s\"'`:;|&<>()]{2,200}|[A-Za-z]:/[^\s\"'`:;|&<>()]{2,200}")
_PATHS = frozenset({"file", "path", "place"})
_MAY_START_WITH_PATH = frozenset({"file", "path", "place", "error", "result"})
_MOST_PATHS = 2000
_DEPTHS = slice(1, 10)
"""Directories of a path, from the third on, that may be the root."""


def under_root(facts: Sequence[Fact]) -> list[Fact]:
    """Facts with paths relative to the root, where the work has one; the root is a fact of its own.

    What is left of a text is verbatim still: only its head is cut off.
    """
    root = find_root(facts)
    if not root:
        return list(facts)
    cut = [_below(fact, root) for fact in facts if not (fact.kind in _PATHS and fact.text.rstrip("/") == root.rstrip("/"))]
    newest = max(fact.order for fact in facts)
    return [Fact("path", root, newest, 9, 9, WANTED), *join_facts(cut)]


def _below(fact: Fact, root: str) -> Fact:
    if fact.kind in LABELLED and fact.note.startswith(root):
        fact = replace(fact, note=fact.note[len(root) :])
    if fact.kind in _MAY_START_WITH_PATH and fact.text.startswith(root):
        return replace(fact, text=fact.text[len(root) :])
    return fact


def find_root(facts: Sequence[Fact]) -> str:
    """The directory under which the same files are also named without it, with its closing slash; `""` if there is none."""
    absolute = [fact.text for fact in facts if fact.kind in _PATHS and _ABSOLUTE.match(fact.text)][:_MOST_PATHS]
    relative = {fact.text for fact in facts if fact.kind in _PATHS and "/" in fact.text and fact.text[0] not in "/."}
    votes: Counter[str] = Counter()
    for path in absolute:
        for slash in list(re.finditer("/", path))[_DEPTHS]:
            if path[slash.end() :] in relative:
                votes[path[: slash.end()]] += 1
    root, count = max(votes.items(), key=lambda vote: (vote[1], len(vote[0]), vote[0]), default=("", 0))
    return root if count > 1 else ""
