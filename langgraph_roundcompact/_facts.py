"""A fact: one line taken verbatim from the work, with what is needed to rank it, merge it and carry it as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

KINDS = (
    "user",  # an answer a person gave inside a tool result
    "todo",  # an item of the newest todo list
    "intent",  # what the assistant said last
    "said",  # other sentences of the assistant
    "file",  # what was done to a file
    "command",
    "error",
    "result",  # another telling line of a result
    "url",
    "path",
    "place",
    "id",
    "date",
    "number",
    "name",
)
TERM_KINDS = frozenset({"url", "path", "place", "id", "date", "number", "name"})
MAX_FACTS = 6000
"""Facts that are looked at in one compaction; the least useful beyond that are not ranked."""
MAX_TEXT = 600
"""Characters of one fact."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact of the replaced work."""

    kind: str
    """One of `KINDS`."""
    text: str
    """One line, verbatim from its source."""
    order: int = 0
    """Step at which it was last seen; grows through all compactions of a round."""
    refs: int = 0
    """Messages of the assistant that hold it after it was first seen."""
    seen: int = 1
    """Messages that hold it."""
    weight: int = 0
    """Points for what the line itself says (an error, a decision, a definition)."""
    note: str = ""
    """Of a file what was done to it, a letter each (`r` read, `w` written, `e` edited, `d` deleted); of a command its exit status."""

    def joined(self, note: str) -> str:
        """This fact's note continued by a later one."""
        if self.kind != "file":
            return note or self.note
        letters = self.note
        for letter in note:
            letters += letter if not letters.endswith(letter) else ""
        return letters[-6:]

    @property
    def key(self) -> tuple[str, str]:
        """What makes two facts the same."""
        return ("term" if self.kind in TERM_KINDS else self.kind, self.text)


def merge_facts(old: Sequence[Fact], new: Sequence[Fact]) -> tuple[Fact, ...]:
    """Facts of earlier compactions and of new work as one set.

    A fact told again becomes newer and better known; nothing else about an old fact changes, so that being carried costs it nothing. The
    todo list and the last intention are replaced as a whole when new work states them again.

    Args:
        old: Facts carried by the earlier checkpoint.
        new: Facts of the work since then, with orders of their own.
    """
    offset = 1 + max((fact.order for fact in old), default=-1) if new else 0
    told = {fact.kind for fact in new} & {"todo", "intent"}
    merged: dict[tuple[str, str], Fact] = {}
    for fact in old:
        if fact.kind == "intent" and "intent" in told:
            fact = replace(fact, kind="said")  # noqa: PLW2901 - the old intention is history now
        if not (fact.kind == "todo" and "todo" in told):
            _add(merged, fact)
    for fact in new:
        _add(merged, replace(fact, order=fact.order + offset))
    return tuple(merged.values())


def _add(merged: dict[tuple[str, str], Fact], fact: Fact) -> None:
    known = merged.get(fact.key)
    if known is None:
        merged[fact.key] = fact
        return
    merged[fact.key] = replace(
        known,
        order=max(known.order, fact.order),
        refs=known.refs + fact.refs,
        seen=known.seen + fact.seen,
        weight=max(known.weight, fact.weight),
        note=known.joined(fact.note),
    )


def facts_to_data(facts: Iterable[Fact]) -> list[list[str | int]]:
    """Facts as plain data: one short list each, for JSON and msgpack."""
    return [[fact.kind, fact.text, fact.order, fact.refs, fact.seen, fact.weight, fact.note] for fact in facts]


def facts_from_data(data: object) -> tuple[Fact, ...]:
    """Facts from what `facts_to_data` gave; entries that are not facts are left out, junk gives `()`."""
    if isinstance(data, str | bytes | Mapping) or not isinstance(data, Iterable):
        return ()
    facts = []
    for entry in data:
        if isinstance(entry, list | tuple) and len(entry) == 7 and entry[0] in KINDS and isinstance(entry[1], str) and isinstance(entry[6], str) and _counts(entry[2:6]):
            facts.append(Fact(*entry))
    return tuple(facts)


def _counts(values: Sequence[object]) -> bool:
    return all(isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53 for value in values)
