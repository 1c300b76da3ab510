"""Remembered checkpoints and folds, for doors that leave the state alone (hook key, runnable, `persist=False`).

Such a door is given the whole history again at each step. Before measuring, the checkpoint of the longest covered head of the round stands in
for it, and so do folded messages, found by the content of what they cover, so that a summary is not paid at every step and the request is an exact
extension of the last one. The table is a cache: when the entry is gone, the summary is asked for again (and the summary memo may still know it).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from langchain_core.messages import BaseMessage, HumanMessage

from langgraph_roundcompact._ask import message_digest
from langgraph_roundcompact._draft import Draft, Round
from langgraph_roundcompact._effects import Flow, Memo, Offload
from langgraph_roundcompact._parts import Job, Parts
from langgraph_roundcompact._spans import IsRealUser, find_round


@dataclass(frozen=True, slots=True)
class Standing:
    """A remembered checkpoint, and the messages of a round it replaces."""

    replaced: tuple[int, ...]
    """Counted from the start of the round: what precedes the request may be longer or shorter the next time."""
    new: tuple[BaseMessage, ...]
    folds: Mapping[int, BaseMessage] = field(default_factory=dict)
    """Folded messages in the place of others, counted in the same way."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the messages of a list with stand-ins come from. `replaced`, `new` and `folds` are of the current round."""

    given: tuple[BaseMessage, ...]
    at: tuple[int | None, ...]
    """For each message its index in `given`; None for the stand-in's own."""
    replaced: tuple[int, ...]
    new: tuple[BaseMessage, ...] = ()
    """What stands for `replaced`."""
    folds: Mapping[int, BaseMessage] = field(default_factory=dict)
    """Folded messages by the index in `given` of what they stand for."""

    earlier: bool = False
    """Whether anything stands in for work of earlier rounds."""

    @property
    def stands(self) -> bool:
        """Whether anything stands in for something."""
        return bool(self.replaced or self.folds or self.earlier)


def stand_in(job: Job, parts: Parts) -> Flow[Job]:
    """The job with the longest known checkpoint of each round in the place of what it covers.

    Of the earlier rounds too: the state that such a door is given still has all their work, and the model has seen their checkpoints.
    """
    if job.writes_state:
        return job
    yield Offload()  # the keys cost a pass over the text of the rounds
    given, folds, blocks, gone = job.messages, dict[int, BaseMessage](), dict[int, tuple[BaseMessage, ...]](), set[int]()
    known: Standing | None = None
    for start, stop in _rounds(given, parts.is_real_user):
        keys = [key for _, key in _head_keys(given[:stop], start, job.thread_id)]
        known = (yield Memo("stand_ins", tuple(reversed(keys)))) if keys else None
        replaced = tuple(start + i for i in known.replaced) if known else ()
        current = {start + i: message for i, message in known.folds.items()} if known else {}
        if known and replaced:
            blocks[replaced[0]] = known.new
        gone.update(replaced)
        folds.update(current)
    messages: list[BaseMessage] = []
    at: list[int | None] = []
    for i, message in enumerate(given):
        block = blocks.get(i, ())
        messages += block
        at += [None] * len(block)
        if i not in gone:
            messages.append(folds.get(i, message))
            at.append(i)
    # What comes next adds to the last round's; of the earlier ones only that they are there is of interest.
    earlier = bool(gone.difference(replaced) or folds.keys() - current.keys())
    return replace(job, messages=messages, origin=Origin(tuple(given), tuple(at), replaced, known.new if known else (), current, earlier))


def _rounds(messages: Sequence[BaseMessage], is_real: IsRealUser) -> list[tuple[int, int]]:
    """Start and stop of each round; the last is the current one."""
    starts = [i + 1 for i, message in enumerate(messages) if isinstance(message, HumanMessage) and is_real(message)]
    starts = starts or [find_round(messages, is_real)]
    return list(zip(starts, [*(start - 1 for start in starts[1:]), len(messages)], strict=True))


def commit_standing(round_: Round, draft: Draft) -> Flow[None]:
    """Remember a finished checkpoint under the content of what it covers."""
    origin = round_.job.origin
    if origin is not None:
        covered = {*origin.replaced, *_given_places(origin, round_.cut.target)}
        folds = {i: message for i, message in origin.folds.items() if i not in covered}
        yield from _remember(round_.job, round_.parts.is_real_user, covered, draft.new, folds)


def commit_folds(job: Job, is_real: IsRealUser, folds: Mapping[int, BaseMessage], gone: Iterable[int] = ()) -> Flow[None]:
    """Remember folded messages, beside what stands in already."""
    origin = job.origin
    if origin is not None:
        covered = {*origin.replaced, *_given_places(origin, gone)}
        all_folds = {**origin.folds, **{at: message for i, message in folds.items() if (at := origin.at[i]) is not None}}
        yield from _remember(job, is_real, covered, origin.new, {i: message for i, message in all_folds.items() if i not in covered})


def _given_places(origin: Origin, indices: Iterable[int]) -> Iterator[int]:
    return (at for i in indices if (at := origin.at[i]) is not None)


def _remember(job: Job, is_real: IsRealUser, covered: set[int], new: tuple[BaseMessage, ...], folds: Mapping[int, BaseMessage]) -> Flow[None]:
    given = job.origin.given
    start = find_round(given, is_real)
    stop = max({*covered, *folds}, default=-1) + 1
    key = next((key for end, key in _head_keys(given, start, job.thread_id) if end == stop), None)
    if key is not None:
        standing = Standing(tuple(sorted(i - start for i in covered)), new, {i - start: message for i, message in folds.items()})
        yield Memo("stand_ins", (key,), standing)


def _head_keys(messages: Sequence[BaseMessage], start: int, thread_id: str | None) -> Iterator[tuple[int, str]]:
    """A key for each head `messages[start-1:end]` of the round: a running digest, so that all of them cost one pass."""
    running = hashlib.sha256((thread_id or "").encode("utf-8", "replace"))
    if start:
        running.update(message_digest(messages[start - 1]))
    for end in range(start, len(messages)):
        running.update(message_digest(messages[end]))
        yield end + 1, running.hexdigest()
