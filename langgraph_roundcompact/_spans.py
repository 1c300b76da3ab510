"""Where the round starts, and the three spans: preserved prefix, target, protected tail. The target is the only part that may change.

The reference rule is "last real user message; keep_recent grown to whole groups". What it lacks and this module adds: pending work is never
in the target, nor is a result whose call stands in the prefix; system messages in mid-round stay where they are; a provider's own
compaction item is a border; a history without a user message starts after its leading system messages. What must stay in the middle of
the target is an island: ids keep every message in its place, so work on both sides of an island can still go.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langgraph_roundcompact._content import text_of
from langgraph_roundcompact._folded import folds_stale_before, is_pinned
from langgraph_roundcompact._groups import Group, group_messages, is_native_compaction, late_results
from langgraph_roundcompact._memory_block import is_checkpoint, is_internal, is_own, mark_of, read_data
from langgraph_roundcompact.events import Reason

IsRealUser = Callable[[BaseMessage], bool]
IsPending = Callable[[BaseMessage], bool]

_DUPLICATE_PASSES = 4
"""Ids that stand twice tie groups together; after so many passes of following the ties all of them stay."""

_INTERIM = frozenset({"pending", "running", "in_progress", "queued", "awaiting_approval", "requires_action", "interim"})
_LARGEST_STATUS = 100_000
"""Characters of a result that are read to see whether it is interim; what is longer is an output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The spans of one list, as indices into it."""

    round_start: int
    """Index after the last real user message (or after leading system messages)."""
    prefix_stop: int
    """`messages[:prefix_stop]` is preserved; past `round_start` when a native compaction item is a border."""
    own: tuple[int, ...]
    """Our earlier checkpoint and recovered context in the target."""
    groups: tuple[tuple[int, ...], ...]
    """Indices of the replaceable messages of each group, oldest first: the new work."""
    tail_start: int
    """`messages[tail_start:]` is protected."""
    reason: Reason = ""
    """Why there is nothing to replace, or which groups had to stay."""
    islands: tuple[int, ...] = field(default=())
    """Messages between prefix and tail that stay."""

    @property
    def target(self) -> tuple[int, ...]:
        """All replaceable indices, in order."""
        return tuple(sorted((*self.own, *(i for group in self.groups for i in group))))

    def keep_first(self, count: int) -> Cut:
        """The same cut with only the oldest `count` groups in the target; the others stay where they are."""
        stays = tuple(i for group in self.groups[count:] for i in group)
        return replace(self, groups=self.groups[:count], islands=tuple(sorted((*self.islands, *stays))))


def is_real_user(message: BaseMessage) -> bool:
    """Whether a person (or the caller) sent this message: the default of `RoundCompactor(is_real_user=...)`."""
    if not isinstance(message, HumanMessage):
        return False
    if isinstance(message.additional_kwargs.get("lc_source"), str) or mark_of(message) is not None:
        return False
    return not is_internal(message)


def is_interim(message: BaseMessage) -> bool:
    """Whether a tool result says by mark that the real one is still to come: the default of `RoundCompactor(is_pending=...)`."""
    if not isinstance(message, ToolMessage):
        return False
    marks = (message.additional_kwargs, message.response_metadata)
    return any(mark.get("interim") is True or mark.get("pending") is True or _goes_on(mark.get("status")) for mark in marks)


def find_round(messages: Sequence[BaseMessage], is_real: IsRealUser = is_real_user) -> int:
    """Index after the last real user message; without one, after the leading system messages."""
    for i in range(len(messages) - 1, -1, -1):
        message = messages[i]
        if isinstance(message, HumanMessage) and is_real(message):
            return i + 1
    start = 0
    while start < len(messages) and isinstance(messages[start], SystemMessage):
        start += 1
    return start


def request_of(messages: Sequence[BaseMessage], round_start: int, is_real: IsRealUser = is_real_user) -> BaseMessage | None:
    """The real user message that the round answers; None in a history without one."""
    return messages[round_start - 1] if round_start and is_real(messages[round_start - 1]) else None


def find_stale_before(messages: Sequence[BaseMessage]) -> int:
    """Index before which reported usage is of a request that no longer exists, because a checkpoint or folds were made after it."""
    newest = next((i for i in range(len(messages) - 1, -1, -1) if is_checkpoint(messages[i])), None)
    return max(0 if newest is None else _after_kept(messages, newest), folds_stale_before(messages))


def _after_kept(messages: Sequence[BaseMessage], at: int) -> int:
    # Delivered as call and result, the call carries the data.
    data = read_data(messages[at - 1] if at and isinstance(messages[at], ToolMessage) else messages[at])
    behind = at + 1
    while behind < len(messages) and is_own(messages[behind]):
        behind += 1
    if mark_of(messages[at]) is None:
        return len(messages)  # a block made by somebody else: nothing says what its request was
    stop = min(behind + data.kept_messages, len(messages))
    if data.last_kept_id is None or (stop > behind and messages[stop - 1].id == data.last_kept_id):
        return stop
    found = next((i for i in range(behind, len(messages)) if messages[i].id == data.last_kept_id), None)
    return stop if found is None else found + 1


def cut_round(
    messages: Sequence[BaseMessage],
    *,
    keep_recent: int | None,
    is_real: IsRealUser = is_real_user,
    is_pending: IsPending = is_interim,
    by_id: bool = True,
) -> Cut:
    """Cut a list into prefix, target and tail.

    Args:
        messages: The whole list.
        keep_recent: Messages kept at the end, grown to whole groups; `None`: what the model has not read yet; `0`: nothing but pending work.
        is_real: Whether a message is a real user message.
        is_pending: Whether a message's outcome is still open.
        by_id: Whether the channel removes by id: then a group that holds a message without a usable id stays while others have ids.

    Returns:
        The spans; with `groups` empty, `reason` says why.
    """
    round_start = find_round(messages, is_real)
    groups = _with_loose_results(messages, _with_interim(messages, group_messages(messages, start=round_start, is_pending=is_pending)))
    border = max(
        (group.stop for group in groups if any(is_native_compaction(messages[i]) for i in range(group.start, group.stop))), default=round_start
    )
    groups = [group for group in groups if group.start >= border]
    tail_start = _tail_start(messages, groups, keep_recent)
    frozen = _without_usable_id(messages, [group for group in groups if group.stop <= tail_start]) if by_id else frozenset()
    late = late_results(messages, round_start)
    own: list[int] = []
    target: list[tuple[int, ...]] = []
    islands: list[int] = []
    for group in groups:
        if group.start >= tail_start:
            break
        indices = range(group.start, group.stop)
        # A pin holds for the whole group: the call and its other results cannot go without it.
        stays = group.state == "pending" or any(i in frozen or is_pinned(messages[i]) for i in indices)
        movable = () if stays else tuple(i for i in indices if not isinstance(messages[i], SystemMessage) and i not in late)
        islands += [i for i in indices if i not in movable]
        if movable and all(is_own(messages[i]) for i in movable):
            own += movable
        elif movable:
            target.append(movable)
    reason = _why(messages, groups, round_start, border, target, frozen)
    return Cut(
        round_start=round_start,
        prefix_stop=border,
        own=tuple(own),
        groups=tuple(target),
        tail_start=tail_start,
        reason=reason,
        islands=tuple(islands),
    )


def _tail_start(messages: Sequence[BaseMessage], groups: Sequence[Group], keep_recent: int | None) -> int:
    """First protected index: what is asked for, grown to group borders, and pending work at the end."""
    end = len(messages)
    if keep_recent is None:
        start = next(
            (group.start for group in reversed(groups) if any(isinstance(messages[i], AIMessage) for i in range(group.start, group.stop))), None
        )
        if start is None or (mark_of(messages[start]) is not None):
            start = end  # nothing of the model's own yet, or only our checkpoint
    else:
        wanted = max(end - keep_recent, 0)
        start = next((group.start for group in groups if group.start <= wanted < group.stop), wanted)
        start = max(start, groups[0].start) if groups else end
    for group in reversed(groups):
        if group.stop <= start and group.state == "pending":
            start = group.start
        elif group.stop <= start:
            break
    return start


def _without_usable_id(messages: Sequence[BaseMessage], groups: Sequence[Group]) -> frozenset[int]:
    """Messages that an id-based channel cannot remove: no id while others have one, or an id that stands twice and not only in what may go."""
    places: dict[str, list[int]] = {}
    for i, message in enumerate(messages):
        places.setdefault(message.id or "", []).append(i)
    frozen = set(places.pop("", ()))
    twice = [held for held in places.values() if len(held) > 1]
    if not places:
        return frozenset()
    for _ in range(_DUPLICATE_PASSES):
        movable = _movable(messages, groups, frozen)
        stuck = {i for held in twice if not movable.issuperset(held) for i in held}
        if stuck <= frozen:
            return frozenset(frozen)
        frozen |= stuck  # their groups stay, so other ids of these groups may be stuck too
    return frozenset(frozen.union(*twice))


def _movable(messages: Sequence[BaseMessage], groups: Sequence[Group], frozen: set[int]) -> set[int]:
    free = [range(group.start, group.stop) for group in groups if group.state != "pending"]
    return {i for span in free if frozen.isdisjoint(span) for i in span if not isinstance(messages[i], SystemMessage)}


def _with_interim(messages: Sequence[BaseMessage], groups: list[Group]) -> list[Group]:
    """Mark the newest step as pending when a result in it says in its JSON that the work goes on. In older steps that is a poll, and history."""
    newest = max((i for i in range(groups[0].start, len(messages)) if isinstance(messages[i], AIMessage)), default=None) if groups else None
    if newest is None:
        return groups
    interim = any(isinstance(message, ToolMessage) and _status_in(text_of(message)) for message in messages[newest + 1 :])
    return [replace(group, state="pending") if interim and group.start <= newest < group.stop else group for group in groups]


def _with_loose_results(messages: Sequence[BaseMessage], groups: list[Group]) -> list[Group]:
    """Mark results of no known call behind live work as pending: they may belong to it."""
    live = next((group.stop for group in reversed(groups) if group.state == "pending"), len(messages))
    loose = [group.start >= live and isinstance(messages[group.start], ToolMessage) for group in groups]
    return [replace(group, state="pending") if is_loose else group for group, is_loose in zip(groups, loose, strict=True)]


def _status_in(text: str) -> bool:
    if len(text) > _LARGEST_STATUS or not text.lstrip().startswith("{"):
        return False
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict) and _goes_on(data.get("status"))


def _goes_on(status: object) -> bool:
    return isinstance(status, str) and status.lower() in _INTERIM


def _why(
    messages: Sequence[BaseMessage], groups: Sequence[Group], round_start: int, border: int, target: Sequence[object], frozen: frozenset[int]
) -> Reason:
    if border > round_start and not target:
        return "native_compaction"
    if frozen and any(i in frozen for i in range(round_start, len(messages))):
        return "no_ids"
    if target:
        return ""
    if any(group.state == "pending" for group in groups):
        return "pending_only"
    return "no_compressible_span"
