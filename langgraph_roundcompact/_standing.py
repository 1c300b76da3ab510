"""Checkpoints for doors that leave the state alone (hook key, runnable, `persist=False`).

Such a door is given the whole history again at each step. Before measuring, the checkpoint of the longest covered head of the round stands in
for it, found by the content of what it covers, so that a summary is not paid at every step and the request is an exact extension of the
last one. The table is a cache: when the entry is gone, the summary is asked for again (and the summary memo may still know it).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from langchain_core.messages import BaseMessage

from langgraph_roundcompact._ask import message_digest
from langgraph_roundcompact._draft import Draft, Round
from langgraph_roundcompact._effects import Flow, Memo, Offload
from langgraph_roundcompact._parts import Job, Parts
from langgraph_roundcompact._spans import find_round
from langgraph_roundcompact._splice import splice


@dataclass(frozen=True, slots=True)
class Standing:
    """What stands in for a head of a round."""

    replaced: tuple[int, ...]
    """Counted from the start of the round: what precedes the request may be longer or shorter the next time."""
    new: tuple[BaseMessage, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the messages of a list with a stand-in come from."""

    given: tuple[BaseMessage, ...]
    at: tuple[int | None, ...]
    """For each message its index in `given`; None for the stand-in's own."""
    replaced: tuple[int, ...]


def stand_in(job: Job, parts: Parts) -> Flow[Job]:
    """The job with the longest known checkpoint in the place of what it covers."""
    if job.writes_state:
        return job
    yield Offload()  # the keys cost a pass over the text of the round
    start = find_round(job.messages, parts.is_real_user)
    keys = [key for _, key in _head_keys(job.messages, start, job.thread_id)]
    known: Standing | None = (yield Memo("stand_ins", tuple(reversed(keys)))) if keys else None
    replaced = tuple(start + i for i in known.replaced) if known else ()
    new = known.new if known else ()
    messages = splice(job.messages, replaced, new, {}) if known else list(job.messages)
    first, gone = min(replaced, default=-1), set(replaced)
    at: list[int | None] = []
    for i in range(len(job.messages)):
        at += [None] * len(new) if i == first else []
        at += [i] if i not in gone else []
    return replace(job, messages=messages, origin=Origin(tuple(job.messages), tuple(at), replaced))


def commit_standing(round_: Round, draft: Draft) -> Flow[None]:
    """Remember a finished checkpoint under the content of what it covers."""
    origin = round_.job.origin
    if origin is None:
        return
    covered = {*origin.replaced, *(at for i in round_.cut.target if (at := origin.at[i]) is not None)}
    start = find_round(origin.given, round_.parts.is_real_user)
    stop = max(covered) + 1
    key = next((key for end, key in _head_keys(origin.given, start, round_.job.thread_id) if end == stop), None)
    if key is not None:
        yield Memo("stand_ins", (key,), Standing(tuple(sorted(i - start for i in covered)), draft.new))


def _head_keys(messages: Sequence[BaseMessage], start: int, thread_id: str | None) -> Iterator[tuple[int, str]]:
    """A key for each head `messages[start-1:end]` of the round: a running digest, so that all of them cost one pass."""
    running = hashlib.sha256((thread_id or "").encode("utf-8", "replace"))
    if start:
        running.update(message_digest(messages[start - 1]))
    for end in range(start, len(messages)):
        running.update(message_digest(messages[end]))
        yield end + 1, running.hexdigest()
