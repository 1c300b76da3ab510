"""The ladder: the tiers fold the target one after the other; the window is measured after each, and the first that reaches the target size ends it.

A tier may be the user's code: what it returns is used only if it keeps every pair, names only messages of the target, and is no larger. What was
folded before, or is pinned, comes back as it was, whatever the tier made of it.

Folds that reach the target are sealed and become the step's result; the facts they hide travel on the messages. Folds that do not are given up:
they would break the provider's prefix cache for nothing, and a checkpoint is made from the originals.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage

from langgraph_roundcompact._archive_record import archive_key, archive_record
from langgraph_roundcompact._content import text_of
from langgraph_roundcompact._decisions import told_tier
from langgraph_roundcompact._draft import Round
from langgraph_roundcompact._effects import Count, Flow, MeasureWindow, Record, WriteArchive
from langgraph_roundcompact._fault import told
from langgraph_roundcompact._folded import is_folded, is_pinned, marked
from langgraph_roundcompact._gate import faults
from langgraph_roundcompact._groups import group_messages
from langgraph_roundcompact._memory_block import pointer
from langgraph_roundcompact._message_tokens import message_tokens
from langgraph_roundcompact._seal import seal_folds
from langgraph_roundcompact._standing import commit_folds
from langgraph_roundcompact.tiers import BUILT_IN_TIERS, Tier, TierContext, single_fold, superseded
from langgraph_roundcompact.tiers._idle import idle_seconds
from langgraph_roundcompact.tiers._results import preview_limit
from langgraph_roundcompact.tiers.single_fold import fold_unread

log = logging.getLogger("langgraph_roundcompact")

RECLAIM_RATIO = 0.05
"""Of the target's tokens: breaking the provider's prefix cache for less does not pay."""

FORESIGHT_TOKENS = 200_000
"""New work from which the ladder looks ahead whether it can reach the target."""

_LARGEST_SCALE = 20.0
"""Between a user's counter and the estimate there may lie a factor; beyond this one of them says nothing."""


@dataclass(frozen=True, slots=True)
class Ladder:
    """The window as the tiers left it."""

    messages: list[BaseMessage]
    tokens: int
    """The window now, in tokens."""
    folds: Mapping[int, BaseMessage] = field(default_factory=dict)
    """Folded messages by their index in the window."""
    gone: frozenset[int] = frozenset()
    """Indices of messages that a tier left out."""
    applied: tuple[str, ...] = ()
    reached: bool = False
    """Whether the folds alone reach the target."""
    gains: tuple[Mapping[str, Any], ...] = ()
    """What each tier did; noted only where dumping is on."""


def climb(round_: Round, *, pointers: bool = True) -> Flow[Ladder]:
    """Run the tiers over the new work until the window is at its target.

    Args:
        round_: The round.
        pointers: Whether previews may point to the archive.
    """
    job, parts = round_.job, round_.parts
    ladder = Ladder(list(job.messages), round_.sizes.window)
    places = tuple(i for group in round_.cut.groups for i in group)
    context = _context(round_, places, pointers=pointers)
    weight = round_.sizes.new_work
    for number, tier in enumerate(parts.tiers if places else ()):
        if ladder.tokens <= context.target_tokens or (tier is not superseded and _is_hopeless(round_, ladder, parts.tiers[number:], context)):
            break
        step = _step(ladder, tier, job.messages, places, replace(context, window_tokens=ladder.tokens), parts.passes)
        before, gain = ladder, 0
        if step is not None:
            gain = weight - (yield Count([step.folds.get(i, job.messages[i]) for i in places if i not in step.gone]))
        if step is not None and gain > 0:
            ladder = replace(step, tokens=ladder.tokens - int(gain * round_.sizes.scale))
            weight -= gain
        if pointers:
            ladder = yield from _noted(round_, _name(tier), before, ladder, "" if gain > 0 else "no_gain" if step is not None else "nothing_to_fold")
    if not ladder.applied or ladder.tokens > context.target_tokens:
        return ladder
    ladder = _sealed(round_, ladder)
    # Usage reported so far is of the unfolded window: the next check can only count, and must not find more than this step did.
    counted = yield _counted(round_, ladder)
    return replace(ladder, reached=counted.total < job.limits.trigger)


def _noted(round_: Round, name: str, before: Ladder, after: Ladder, reason: str) -> Flow[Ladder]:
    """The ladder with a note of what a tier did, where somebody wants to know."""
    if not round_.parts.records:
        return after
    folds = {i: new for i, new in after.folds.items() if new is not before.folds.get(i)}
    told = told_tier(round_, name, (before.tokens, after.tokens), folds, sorted(after.gone - before.gone), reason)
    yield Record("tier", told)
    return replace(after, gains=(*after.gains, told))


def settle(round_: Round, ladder: Ladder) -> Flow[Ladder | None]:
    """Make the folds of a climb last: archive what they hide, and remember them for doors that leave the state alone.

    Returns:
        The ladder, without pointers where the originals could not be archived; None when that is not allowed or no longer reaches the target.
    """
    parts, job = round_.parts, round_.job
    if parts.has_archive and not (yield from _archived(round_, ladder)):
        if parts.config.archive_required:
            return None
        ladder = yield from climb(round_, pointers=False)
        if not ladder.reached:
            return None
    yield from commit_folds(job, parts.is_real_user, ladder.folds, ladder.gone)
    return ladder


def relieve(round_: Round) -> Flow[Round | None]:
    """The round with huge results in its protected tail folded, where what must stay would overflow the window by itself; None otherwise.

    No compaction of older work could help then: the next request would be refused, at this step and each one after it.
    """
    job, parts, sizes = round_.job, round_.parts, round_.sizes
    places = _unread(round_) if single_fold in parts.tiers and sizes.fixed >= job.limits.capacity else ()
    if not places:
        return None
    tail = [job.messages[i] for i in places]
    context = replace(_context(round_, places, pointers=True), target_tokens=job.limits.target, window_tokens=sizes.fixed, reclaim_at_least_tokens=0)
    step = _step(Ladder(list(job.messages), sizes.window), fold_unread, job.messages, places, context, parts.passes)
    if step is None:
        return None
    step = _sealed(round_, step)
    if parts.has_archive and not (yield from _archived(round_, step)):
        return None  # never read, and not kept anywhere: better to be refused
    gain = (yield Count(tail)) - (yield Count([step.folds.get(i, job.messages[i]) for i in places]))
    after = sizes.without(gain)
    yield from commit_folds(job, parts.is_real_user, step.folds)
    yield from _noted(round_, _name(single_fold), Ladder([], sizes.window), replace(step, tokens=after.window), "protected_tail")
    return replace(round_, job=replace(job, messages=step.messages), sizes=replace(after, growth=0))


def _unread(round_: Round) -> tuple[int, ...]:
    """Indices of the tail's messages in finished groups that the channel can replace."""
    job, parts = round_.job, round_.parts
    messages = job.messages
    held = Counter(message.id or "" for message in messages)
    groups = group_messages(messages, start=round_.cut.tail_start, is_pending=parts.is_pending)
    places = (i for group in groups if group.state != "pending" for i in range(group.start, group.stop))
    return tuple(i for i in places if not job.by_id or set(held) == {""} or (messages[i].id and held[messages[i].id or ""] == 1))


def _sealed(round_: Round, ladder: Ladder) -> Ladder:
    """The ladder with everything on its folded messages that later steps ask of them."""
    job = round_.job
    left = [i for group in round_.cut.groups for i in group if i not in ladder.gone]
    folds = seal_folds(job.messages, ladder.folds, gone=ladder.gone, bearer=min([*ladder.folds] or left), redact=round_.parts.redact)
    return replace(ladder, folds=folds, messages=_placed(job.messages, folds, ladder.gone))


def _counted(round_: Round, ladder: Ladder) -> MeasureWindow:
    job = round_.job
    return MeasureWindow(
        messages=ladder.messages,
        round_start=round_.cut.round_start,
        stale_before=len(ladder.messages),
        system_message=job.system_message,
        tools=job.tools,
        exact=True,
    )


def _is_hopeless(round_: Round, ladder: Ladder, tiers: Sequence[Tier], context: TierContext) -> bool:
    """Whether the tiers of the package, as far as can be foreseen, will not reach the target: previews take half of their room at least.

    In a round of many hundred steps the previews would take as long as the checkpoint that is made anyway; in others it is worth a try.
    """
    if round_.sizes.new_work < FORESIGHT_TOKENS or not set(tiers) <= set(BUILT_IN_TIERS):
        return False
    left = [ladder.folds.get(i, round_.job.messages[i]) for group in round_.cut.groups for i in group if i not in ladder.gone]
    sizes = [message_tokens(message, context.estimate) for message in left]
    gain = sum(_foreseen_gain(message, size, context) for message, size in zip(left, sizes, strict=True))
    return ladder.tokens - int(gain * context.scale) > context.target_tokens


def _foreseen_gain(message: BaseMessage, tokens: int, context: TierContext) -> int:
    """The most that folding a message gives, in tokens of the estimate."""
    if is_folded(message):
        return 0
    if isinstance(message, ToolMessage):
        return tokens - min(preview_limit(tokens) // 2, tokens)
    return context.estimate(message.content) if isinstance(message.content, str) else 0


def _context(round_: Round, places: Sequence[int], *, pointers: bool) -> TierContext:
    config, job, parts, sizes = round_.parts.config, round_.job, round_.parts, round_.sizes
    reclaim = config.reclaim_at_least_tokens
    estimated = sum(parts.estimate(text_of(job.messages[i])) for i in places)
    thread_id = job.thread_id
    where = {"where": lambda message: pointer(archive_key([message], thread_id))} if pointers and parts.has_archive else {}
    return TierContext(
        # What is left of the round must fit its budget too, where one is set.
        target_tokens=min(job.limits.target, sizes.fixed + round_.budget),
        window_tokens=sizes.window,
        round_budget_tokens=round_.budget,
        reclaim_at_least_tokens=int(sizes.new_work * sizes.scale * RECLAIM_RATIO) if reclaim is None else reclaim,
        request=text_of(round_.request) if round_.request is not None else "",
        estimate=parts.estimate,
        idle_seconds=job.idle_seconds if job.idle_seconds is not None else idle_seconds(job.messages),
        scale=sizes.scale * _counted_per_estimated(sizes.new_work, estimated),
        **where,
    )


def _counted_per_estimated(counted: int, estimated: int) -> float:
    return min(max(counted / estimated, 1 / _LARGEST_SCALE), _LARGEST_SCALE) if counted and estimated else 1.0


def _step(
    ladder: Ladder, tier: Tier, messages: Sequence[BaseMessage], places: Sequence[int], context: TierContext, passes: tuple[type[BaseException], ...]
) -> Ladder | None:
    """The ladder after one tier, not measured; None when it did nothing or nothing that can be used."""
    left = [i for i in places if i not in ladder.gone]
    given = [ladder.folds.get(i, messages[i]) for i in left]
    answer = _call(tier, given, context, passes)
    at = _placing(left, given, answer) if answer is not None else None
    if answer is None or at is None:
        return None
    now = dict(zip(left, given, strict=True))
    changed = {i: marked(new, messages[i], _name(tier)) for i, new in zip(at, answer, strict=True) if new is not now[i] and not _is_frozen(now[i])}
    gone = ladder.gone | (set(left) - set(at))
    if any(is_pinned(messages[i]) for i in gone):
        return None
    folds = {i: new for i, new in {**ladder.folds, **changed}.items() if i not in gone}
    if (not changed and gone == ladder.gone) or len(gone) == len(places):
        return None  # with all of it gone, nothing is left to say that this happened
    after = _placed(messages, folds, gone)
    if faults(after) > faults(messages):
        return None
    return replace(ladder, messages=after, folds=folds, gone=gone, applied=(*ladder.applied, _name(tier)))


def _call(tier: Tier, given: Sequence[BaseMessage], context: TierContext, passes: tuple[type[BaseException], ...]) -> list[BaseMessage] | None:
    try:
        return list(tier(tuple(given), context))
    except passes:
        raise
    except Exception as exc:  # noqa: BLE001 - anybody's code; the ladder goes on without it
        log.error("the tier %s failed (%s) and is skipped", _name(tier), told(exc))
        return None


def _placing(left: Sequence[int], given: Sequence[BaseMessage], answer: Sequence[BaseMessage]) -> list[int] | None:
    """Which message of the window each one of the answer is; None when it holds what was not given, or another order."""
    found: list[int] = []
    waiting = zip(left, given, strict=True)
    for message in answer:
        place = next((i for i, old in waiting if message is old or _same(message, old)), None)
        if place is None:
            return None
        found.append(place)
    return found


def _same(message: BaseMessage, old: BaseMessage) -> bool:
    """Whether one is the other with another text."""
    return type(message) is type(old) and message.id == old.id and getattr(message, "tool_call_id", None) == getattr(old, "tool_call_id", None)


def _is_frozen(message: BaseMessage) -> bool:
    return is_folded(message) or is_pinned(message)


def _placed(messages: Sequence[BaseMessage], folds: Mapping[int, BaseMessage], gone: frozenset[int]) -> list[BaseMessage]:
    return [folds.get(i, message) for i, message in enumerate(messages) if i not in gone]


def _archived(round_: Round, ladder: Ladder) -> Flow[bool]:
    """Write the originals, an entry for each; False when one could not be written."""
    job, parts = round_.job, round_.parts
    for i in sorted({*ladder.folds, *ladder.gone}):
        original = [job.messages[i]]
        try:
            record = archive_record(original, round_.request_text, parts.redact, parts.config.compression_recall)
            yield WriteArchive(archive_key(original, job.thread_id), record, job.thread_id)
        except parts.passes:
            raise
        except Exception as exc:  # noqa: BLE001 - any store may raise anything
            log.warning("folded messages could not be archived (%s); their previews have no pointer", type(exc).__name__)
            return False
    return True


def _name(tier: Tier) -> str:
    return str(getattr(tier, "__name__", type(tier).__name__))
