"""Completing folds before they are stored: each gets the facts its text held, and the moment from which reported usage counts again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from langchain_core.messages import AIMessage, BaseMessage

from langgraph_roundcompact._content import text_of
from langgraph_roundcompact._extract import extract_facts
from langgraph_roundcompact._facts import STEP, Fact
from langgraph_roundcompact._folded import marked, sealed
from langgraph_roundcompact._groups import results_of
from langgraph_roundcompact._rank import rank

MOST_CHARACTERS, MOST_SHARE = 24_000, 2
"""Facts of one message take at most this many characters as data, and at most half of its text: state must shrink by a fold."""
_SCAN = 400_000
"""Characters of one text that are looked at, about: more would hardly change which facts are the most useful ones."""
_FACT_DATA_CHARACTERS = 10
"""Characters that a fact takes as data beside its text, about."""
_FROM_CALLS = frozenset({"command", "file", "todo", "intent"})
"""Facts that the calls tell, which stay."""


def seal_folds(
    messages: Sequence[BaseMessage],
    folds: Mapping[int, BaseMessage],
    *,
    gone: frozenset[int] = frozenset(),
    bearer: int | None = None,
    redact: Callable[[str], str] = str,
) -> dict[int, BaseMessage]:
    """The folds, sealed.

    Args:
        messages: The window before.
        folds: Folded messages by their index in it.
        gone: Indices of messages that were left out.
        bearer: Index of the message that carries what those had to say; it is marked as folded, if it is not.
        redact: Runs over each text before facts are taken from it.
    """
    owners = results_of(messages)
    stays = [i for i in range(len(messages)) if i not in gone]
    behind = {i: len(stays) - 1 - k for k, i in enumerate(stays)}
    last = messages[stays[-1]].id if stays else None
    lost = _facts_of_all([messages[i] for i in sorted(gone)], redact)
    done = {}
    for i in sorted({*folds, *([bearer] if gone and bearer is not None else [])}):
        facts, ended = _hidden(messages, i, owners.get(i), redact)
        fold = folds[i] if i in folds else marked(messages[i], messages[i], "left_out")
        done[i] = sealed(fold, last_kept_id=last, kept_messages=behind[i], facts=[*(lost if i == bearer else ()), *facts], ended=ended)
    return done


def _hidden(messages: Sequence[BaseMessage], at: int, owner: tuple[int, int] | None, redact: Callable[[str], str]) -> tuple[Sequence[Fact], str]:
    """What the text of one message said, and how the command ended whose result it is."""
    message = messages[at]
    found = extract_facts([messages[owner[0]], message] if owner else [message], redact=redact, scan=_SCAN)
    first = STEP if owner else 0
    ended = next((fact.note for fact in found if owner and fact.kind == "command" and fact.note), "")
    told = [fact for fact in found if fact.order >= first and (isinstance(message, AIMessage) <= (fact.kind not in _FROM_CALLS))]
    return _best(told, len(text_of(message)) // MOST_SHARE), ended


def _facts_of_all(messages: Sequence[BaseMessage], redact: Callable[[str], str]) -> Sequence[Fact]:
    return _best(extract_facts(messages, redact=redact), sum(len(text_of(message)) for message in messages) // MOST_SHARE) if messages else ()


def _best(facts: Sequence[Fact], characters: int) -> list[Fact]:
    """The most useful facts for their length that fit."""
    fitting = _fitting(rank(facts).facts, min(characters, MOST_CHARACTERS))
    # Within a message only the sequence matters, and it is kept by the list.
    return [replace(fact, order=0, refs=0) for fact in sorted(fitting, key=lambda fact: fact.order)]


def _fitting(facts: Sequence[Fact], room: int) -> Iterator[Fact]:
    for fact in facts:
        size = len(fact.text) + _FACT_DATA_CHARACTERS
        if size <= room:
            room -= size
            yield fact
