"""A fact: one line taken verbatim from the work, with what is needed to rank it, merge it and carry it as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

LINE_KINDS = frozenset(
    {
        "user",  # an answer a person gave inside a tool result
        "todo",  # an item of a todo list
        "intent",  # what the assistant said last
        "said",  # other sentences of the assistant
        "file",  # a file that was worked on
        "command",  # another call
        "error",
        "result",  # another telling line of a result
    }
)
TERM_KINDS = frozenset({"url", "path", "place", "id", "date", "number", "name"})
"""Kinds whose text is one exact string instead of a line; see `_terms`."""

WANTED, NEEDED, LEADING = 1, 2, 4
"""Bits in the weight of a term: named by the request; named by the work that stays; among the first links of a result."""

MAX_TEXT = 600
"""Characters of one fact."""
STEP = 1024
"""Orders of one message: its place in the work times this, plus the place of the fact in it."""
_DEFAULTS: tuple[Any, ...] = ("", 0, 0, 1, 0, "")
SUPERSEDED = "superseded"
"""Note of a todo item that the newest list does not hold."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact of the replaced work."""

    kind: str
    """One of `LINE_KINDS` or `TERM_KINDS`."""
    text: str
    """One line, verbatim from its source."""
    order: int = 0
    """Where it was last seen; grows through all compactions of a round."""
    refs: int = 0
    """Messages of the assistant that hold it."""
    seen: int = 1
    """Messages that hold it."""
    weight: int = 0
    """Points for what a line says (an error, a decision, a definition); bits for a term."""
    note: str = ""
    """Of a file what was done to it, a letter each (`r` read, `w` written, `e` edited, `d` deleted); of a command its exit status; of a todo
    item its status."""

    @property
    def key(self) -> tuple[str, str]:
        """What makes two facts the same."""
        return ("term" if self.kind in TERM_KINDS else self.kind, self.text)

    def joined(self, later: Fact) -> Fact:
        """This fact told again: newer and better known, nothing else about it changes."""
        return replace(
            self,
            order=max(self.order, later.order),
            refs=self.refs + later.refs,
            seen=self.seen + later.seen,
            weight=(self.weight | later.weight) if self.kind in TERM_KINDS else max(self.weight, later.weight),
            note=later_note(self.kind, self.note, later.note),
        )


def later_note(kind: str, before: str, after: str) -> str:
    """The note of a fact that is told again: the newer one; of a file all operations, repeats left out, the last six."""
    if kind != "file":
        return after or before
    letters = before
    for letter in after:
        letters += "" if letters.endswith(letter) else letter
    return letters[-6:]


def join_facts(facts: Iterable[Fact]) -> list[Fact]:
    """The same facts, each once."""
    joined: dict[tuple[str, str], Fact] = {}
    for fact in facts:
        known = joined.get(fact.key)
        joined[fact.key] = fact if known is None else known.joined(fact)
    return list(joined.values())


def merge_facts(old: Sequence[Fact], new: Sequence[Fact]) -> tuple[Fact, ...]:
    """Facts of earlier compactions and of new work as one set.

    Being carried costs a fact nothing. An intention that was overtaken stays as one of the assistant's sentences; a todo item that a newer
    list leaves out stays, marked as superseded.

    Args:
        old: Facts carried by the earlier checkpoint.
        new: Facts of the work since then, with orders of their own.
    """
    if not new:
        return tuple(join_facts(old))
    offset = (max((fact.order for fact in old), default=-1) // STEP + 1) * STEP
    listed = {fact.text for fact in new if fact.kind == "todo"}
    told = any(fact.kind == "intent" for fact in new)
    aged = [_aged(fact, listed=listed, told=told) for fact in old]
    return tuple(join_facts((*aged, *(replace(fact, order=fact.order + offset) for fact in new))))


def _aged(fact: Fact, *, listed: set[str], told: bool) -> Fact:
    if fact.kind == "intent" and told:
        return replace(fact, kind="said", weight=min(fact.weight, 4))
    if fact.kind == "todo" and listed and fact.text not in listed:
        return replace(fact, note=SUPERSEDED, weight=1)
    if fact.kind == "todo" and listed:
        # The newest list alone says how much the item matters now.
        return replace(fact, weight=0)
    return fact


def facts_to_data(facts: Iterable[Fact]) -> list[list[Any]]:
    """Facts as plain data for JSON and msgpack: one list a kind, its name first, then a short list for each fact."""
    kinds: dict[str, list[Any]] = {}
    for fact in facts:
        kinds.setdefault(fact.kind, [fact.kind]).append(_entry(fact))
    return list(kinds.values())


def _entry(fact: Fact) -> list[Any]:
    """Text, order, references, times seen, weight, note; what equals the default is left out at the end."""
    entry: list[Any] = [fact.text, fact.order, fact.refs, fact.seen, fact.weight, fact.note]
    while len(entry) > 2 and entry[-1] == _DEFAULTS[len(entry) - 1]:
        entry.pop()
    return entry


def facts_from_data(data: object) -> tuple[Fact, ...]:
    """Facts from what `facts_to_data` gave; entries that are not facts are left out, junk gives `()`."""
    facts = []
    for group in data if isinstance(data, list | tuple) else ():
        if isinstance(group, list | tuple) and group and isinstance(group[0], str) and group[0] in LINE_KINDS | TERM_KINDS:
            facts += [fact for entry in group[1:] if (fact := _fact(group[0], entry))]
    return tuple(facts)


def _fact(kind: str, entry: object) -> Fact | None:
    if not isinstance(entry, list | tuple) or not 1 < len(entry) < 7:
        return None
    full: list[Any] = list(entry) + list(_DEFAULTS[len(entry) :])
    text, order, refs, seen, weight, note = full
    if not isinstance(text, str) or not text or not isinstance(note, str) or not all(map(_is_count, (order, refs, seen, weight))):
        return None
    return Fact(kind, text[:MAX_TEXT], order, refs, seen, weight, note[:40])


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**40
