"""What the recall tool does: which entries it looks into, what it asks of the archive, and what it answers. A generator, shared by sync and async."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from langchain_core.messages import BaseMessage

from langgraph_roundcompact._archive_items import Ask
from langgraph_roundcompact._entry_text import EntryText, calls_of, entry_text
from langgraph_roundcompact._recall_text import ids_in, points_to, round_ids, show_entry, show_message, show_passages, what_there_is
from langgraph_roundcompact._spans import IsRealUser, is_real_user

T = TypeVar("T")
Flow: TypeAlias = Generator[Ask, Any, T]

_MOST_LISTED = 20
_WIDER = 'scope="thread" looks into all earlier work of this conversation.'
_HOW = "Give an archive_id, a query of words to look for, or the id of a message or call."


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of the tool."""

    archive_id: str
    query: str
    message_id: str
    offset: int
    whole_thread: bool


@dataclass(frozen=True, slots=True)
class Desk:
    """The run in which the tool is called, and the limits of an answer."""

    messages: Sequence[BaseMessage]
    """The messages of the state; empty outside a graph."""
    thread_id: str | None
    max_tokens: int
    results: int
    estimate: Callable[[str], int]
    is_real_user: IsRealUser = is_real_user


def recall(wanted: Wanted, desk: Desk) -> Flow[str]:
    """The answer to one call of the tool."""
    scope = _scope(wanted, desk)
    if wanted.archive_id:
        record = yield from _entry(wanted.archive_id, desk)
        if record is None:
            return (yield from _miss(f"There is no archive {wanted.archive_id[:200]} in this conversation.", scope, wanted, desk))
        if not wanted.message_id and not wanted.query:
            return show_entry(wanted.archive_id, record, offset=wanted.offset, max_tokens=desk.max_tokens, estimate=desk.estimate)
        scope = [wanted.archive_id]
    if wanted.message_id:
        return (yield from _by_message(scope, wanted, desk))
    if wanted.query.strip():
        return (yield from _by_query(scope, wanted, desk))
    return (yield from _miss(_HOW, scope, wanted, desk))


def _scope(wanted: Wanted, desk: Desk) -> list[str] | None:
    """The archive ids to look into; None: the whole thread.

    Runs without a thread share one place. What such a run may look into is what its own messages point to, never the work of another one.
    """
    if not desk.messages:
        return None
    found = None if wanted.whole_thread else round_ids(desk.messages, desk.is_real_user)
    if found is None and desk.thread_id is None:
        return ids_in(desk.messages)
    return found


def _entry(key: str, desk: Desk) -> Flow[Mapping[str, Any] | None]:
    """An entry that was asked for by its id; None where the run may not see it."""
    if desk.thread_id is not None or not desk.messages:
        record: Mapping[str, Any] | None = yield Ask("get", (key,), {"thread_id": desk.thread_id})
        return record
    return dict((yield from _records(ids_in(desk.messages), desk, until=key))).get(key)


def _by_query(scope: list[str] | None, wanted: Wanted, desk: Desk) -> Flow[str]:
    options = {"thread_id": desk.thread_id, "limit": desk.results, "archive_ids": scope}
    passages = yield Ask("search", (wanted.query,), options)
    if passages:
        return show_passages(wanted.query, passages, max_tokens=desk.max_tokens, estimate=desk.estimate)
    return (yield from _miss(f"Nothing archived matches {wanted.query[:200]!r}.", scope, wanted, desk))


def _by_message(scope: list[str] | None, wanted: Wanted, desk: Desk) -> Flow[str]:
    """A message may stand in several entries, in some only as the preview that a tier left: the longest is the original."""
    best: tuple[int, str, EntryText, list[int]] | None = None
    for key, record in (yield from _records(scope, desk)):
        if not _has(record, wanted.message_id):
            continue
        entry = entry_text(record)
        places = entry.find(wanted.message_id)
        size = sum(entry.parts[place].stop - entry.parts[place].start for place in places)
        if places and (best is None or size > best[0]):
            best = size, key, entry, places
    if best is None:
        return (yield from _miss(f"No archived message or call has the id {wanted.message_id[:200]}.", scope, wanted, desk))
    return show_message(best[1], best[2], best[3], max_tokens=desk.max_tokens, estimate=desk.estimate)


def _has(record: Mapping[str, Any], wanted: str) -> bool:
    """Whether a message or call of an entry has an id; told without making the entry's text."""
    messages = record.get("messages")
    listed = [message for message in messages if isinstance(message, Mapping)] if isinstance(messages, list) else []
    return any(wanted in (message.get("id"), message.get("tool_call_id")) or wanted in [call.id for call in calls_of(message)] for message in listed)


def _miss(why: str, scope: list[str] | None, wanted: Wanted, desk: Desk) -> Flow[str]:
    keys = scope if scope is not None else (yield Ask("keys", (), {"thread_id": desk.thread_id}))
    listed = []
    for key in list(keys)[-_MOST_LISTED:]:
        record = yield Ask("get", (key,), {"thread_id": desk.thread_id})
        if record is not None:
            listed.append((key, record))
    hint = _WIDER if scope is not None and desk.thread_id is not None and not wanted.whole_thread else ""
    return what_there_is(why, listed, total=len(keys), hint=hint)


def _records(scope: list[str] | None, desk: Desk, until: str | None = None) -> Flow[list[tuple[str, Mapping[str, Any]]]]:
    """The entries of a scope, with those they point to; up to one that is looked for, if any."""
    waiting: dict[str, None] = dict.fromkeys(scope if scope is not None else (yield Ask("keys", (), {"thread_id": desk.thread_id})))
    asked: set[str] = set()
    found: dict[str, Mapping[str, Any]] = {}
    while waiting and until not in found:
        key = until if until is not None and until in waiting else next(iter(waiting))
        del waiting[key]
        asked.add(key)
        record = yield Ask("get", (key,), {"thread_id": desk.thread_id})
        if record is not None:
            found[key] = record
            waiting |= dict.fromkeys(one for one in points_to(record) if one not in asked)
    return list(found.items())
