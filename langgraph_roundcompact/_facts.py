"""A fact: one line taken verbatim from the work, with what is needed to rank it, merge it and carry it as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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

WANTED, NEEDED, LEADING, COMMON = 1, 2, 4, 8
"""Bits in the weight of a term: named by the request; named by the work that stays; among the first links of a result; made of ordinary words
(`MUST`, `Read The`), so that its shape alone says little."""

MAX_TEXT = 600
"""Characters of one fact."""
STEP = 1024
"""Orders of one message: its place in the work times this, plus the place of the fact in it."""
MAX_LABEL = 160
"""Characters of the label that says where a line comes from."""
COMMAND_LABEL = 80
"""Of a command, as many."""
LABELLED = frozenset({"user", "error", "result"})
"""Kinds whose note is the label of the call that they come from: its question, its file, or its command."""
FIXED = "✓"
"""First character of the note of an error whose command ended well later."""
SUPERSEDED = "superseded"
"""Note of a todo item that the newest list does not hold."""

_DEFAULTS: tuple[Any, ...] = ("", 0, 0, 1, 0, "")
_SAME = "="
"""In data, the note of the fact before it."""
_THEN = ", then "


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
    """Of a file what was done to it, a letter each (`r` read, `w` written, `e` edited, `d` deleted); of a command how it ended, of one that
    ended differently before also that (`1, then ok`); of a todo item its status; of an answer, an error or a result the call it comes from."""

    @property
    def key(self) -> tuple[str, str]:
        """What makes two facts the same."""
        return ("term" if self.kind in TERM_KINDS else self.kind, self.text)

    def joined(self, later: Fact) -> Fact:
        """This fact and a later sighting of it as one."""
        return replace(
            self,
            order=max(self.order, later.order),
            refs=self.refs + later.refs,
            seen=self.seen + later.seen,
            weight=(self.weight | later.weight) if self.kind in TERM_KINDS else max(self.weight, later.weight),
            note=later_note(self.kind, self.note, later.note),
        )


def later_note(kind: str, before: str, after: str) -> str:
    """The note of a fact that is seen again.

    The newer one; of a file all operations, repeats left out, the last six; of a command the last two endings that differ.
    """
    if kind == "command" and before and after:
        last = last_ending(before)
        return before if last == last_ending(after) else f"{last}{_THEN}{last_ending(after)}"
    if kind != "file":
        return after or before
    letters = before
    for letter in after:
        letters += "" if letters.endswith(letter) else letter
    return letters[-6:]


def last_ending(note: str) -> str:
    """How a command ended last."""
    return note.rpartition(_THEN)[2]


def ended_well(note: str) -> bool:
    """Whether a command's last run ended without a failure, as far as anything says so."""
    return last_ending(note) in ("0", "ok")


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
        return settled(join_facts(old))
    offset = (max((fact.order for fact in old), default=-1) // STEP + 1) * STEP
    listed = {fact.text for fact in new if fact.kind == "todo"}
    told = any(fact.kind == "intent" for fact in new)
    aged = [_aged(fact, listed=listed, told=told) for fact in old]
    return settled(join_facts((*aged, *(replace(fact, order=fact.order + offset) for fact in new))))


def settled(facts: Iterable[Fact]) -> tuple[Fact, ...]:
    """The same facts, with errors marked as fixed where the same command ended well later."""
    facts = tuple(facts)
    well: dict[str, int] = {}
    for fact in facts:
        if fact.kind == "command" and ended_well(fact.note):
            key = _same_command(fact.text)
            well[key] = max(well.get(key, -1), fact.order)
    return tuple(_marked_fixed(fact) if _is_fixed(fact, well) else fact for fact in facts)


def _is_fixed(fact: Fact, well: Mapping[str, int]) -> bool:
    return fact.kind == "error" and fact.note[:1] not in ("", FIXED) and well.get(_same_command(fact.note), -1) > fact.order


def _marked_fixed(fact: Fact) -> Fact:
    return replace(fact, note=FIXED + fact.note)


def _same_command(text: str) -> str:
    """What two runs of one command have in common: flags, pipes and redirections aside."""
    words = text[:COMMAND_LABEL].partition("|")[0].split()
    return " ".join(word for word in words if not word.startswith("-") and ">" not in word)


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
    kinds: dict[str, list[Fact]] = {}
    for fact in facts:
        kinds.setdefault(fact.kind, []).append(fact)
    return [[kind, *map(_entry, _by_label(group) if kind in LABELLED else group)] for kind, group in kinds.items()]


def _by_label(facts: Sequence[Fact]) -> Iterable[Fact]:
    """Lines of one source together, so that its label is written once."""
    before = ""
    for fact in sorted(facts, key=lambda fact: fact.note):
        yield replace(fact, note=_SAME) if fact.note and fact.note == before else fact
        before = fact.note


def _entry(fact: Fact) -> list[Any]:
    """Text, order, references, times seen, weight, note; what equals the default is left out at the end."""
    entry: list[Any] = [fact.text, fact.order, fact.refs, fact.seen, fact.weight, fact.note]
    while len(entry) > 2 and entry[-1] == _DEFAULTS[len(entry) - 1]:
        entry.pop()
    return entry


def facts_from_data(data: object) -> tuple[Fact, ...]:
    """Facts from what `facts_to_data` gave; entries that are not facts are left out, junk gives `()`."""
    facts: list[Fact] = []
    for group in data if isinstance(data, list | tuple) else ():
        if isinstance(group, list | tuple) and group and isinstance(group[0], str) and group[0] in LINE_KINDS | TERM_KINDS:
            facts += _labelled(fact for entry in group[1:] if (fact := _fact(group[0], entry)))
    return tuple(facts)


def _labelled(facts: Iterable[Fact]) -> Iterable[Fact]:
    before = ""
    for fact in facts:
        before = before if fact.note == _SAME else fact.note
        yield replace(fact, note=before) if fact.note == _SAME else fact


def _fact(kind: str, entry: object) -> Fact | None:
    if not isinstance(entry, list | tuple) or not 1 < len(entry) < 7:
        return None
    full: list[Any] = list(entry) + list(_DEFAULTS[len(entry) :])
    text, order, refs, seen, weight, note = full
    if not isinstance(text, str) or not text or not isinstance(note, str) or not all(map(_is_count, (order, refs, seen, weight))):
        return None
    return Fact(kind, text[:MAX_TEXT], order, refs, seen, weight, note[: MAX_LABEL + 1])


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**40
