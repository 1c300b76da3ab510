"""Calls, results and the groups they form. A group is kept or replaced as a whole.

A group is one AI message, all results of its calls, and what stands between them. The pairing rule is positional: a result belongs to the
nearest earlier call with its id that is still open. That one rule covers what id tables get wrong: ids that repeat in every turn, empty
ids, and results that another trimmer left behind (they find no open call and stand alone as orphans). When a later turn uses an id again,
calls under it that older turns left open are given up: otherwise one lost result would tie everything since then into one group. When
interleaved calls overlap (AI1 AI2 result1 result2) the ranges are joined. Everything is one pass over the list.

Only an open call in the last AI message is pending; an older open call was abandoned by a crash or a cut-off answer and must not block
compaction for good. An AI message whose only calls are invalid is never pending: no agent loop will run them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage

from langgraph_roundcompact._content import block_type, blocks_of

CallKind = Literal["tool", "invalid", "server"]
GroupState = Literal["complete", "pending", "abandoned"]
_Open: TypeAlias = tuple[int, deque[int]]
"""An AI message and the numbers of its open calls under one id, in the order in which siblings are answered."""


class Call(NamedTuple):
    """One declared tool call. A tuple, because thousands of them are made in one step."""

    id: str
    """Empty where the provider gave none."""
    name: str
    args: Any
    """A mapping; raw text where the arguments could not be parsed."""
    kind: CallKind


@dataclass(frozen=True, slots=True)
class Group:
    """A half-open range of messages that stays or goes as a whole."""

    start: int
    stop: int
    state: GroupState
    """`pending`: holds a live call or an interim result. `abandoned`: holds a call that will never be answered."""

    def __len__(self) -> int:
        return self.stop - self.start


def declared_calls(message: BaseMessage) -> tuple[Call, ...]:
    """The calls an AI message declares to be run by the client, each once, wherever they are declared."""
    if not isinstance(message, AIMessage):
        return ()
    calls = [_call(raw, "tool") for raw in message.tool_calls]
    if message.invalid_tool_calls:
        calls += [_call(raw, "invalid") for raw in message.invalid_tool_calls]
    if type(message.content) is str and not message.additional_kwargs.get("tool_calls"):
        return tuple(calls)
    known = {call.id for call in calls if call.id}
    in_blocks_only = not calls
    for call in _block_calls(message):
        # Without an id a block is a call only where nothing else declares one; a nameless one is a leftover of streaming.
        if call.id not in known if call.id else in_blocks_only and call.name:
            known.add(call.id)
            calls.append(call)
    return tuple(calls)


def server_calls(message: BaseMessage) -> tuple[tuple[Call, ...], frozenset[str]]:
    """Calls that the provider runs inside the message, and the ids of those that have their result there too."""
    if not isinstance(message, AIMessage) or isinstance(message.content, str):
        return (), frozenset()
    calls, answered = [], set()
    for block in blocks_of(message):
        kind = block_type(block)
        if kind in ("server_tool_use", "server_tool_call", "mcp_tool_use"):
            calls.append(Call(_string(block.get("id")), _string(block.get("name")), block.get("input", block.get("args")), "server"))
        elif kind.endswith("_tool_result") or kind == "server_tool_result":
            answered.add(_string(block.get("tool_use_id", block.get("tool_call_id"))))
    return tuple(calls), frozenset(answered)


def is_native_compaction(message: BaseMessage) -> bool:
    """Whether the message carries a provider's own compaction item, which stands for history only the provider knows."""
    return isinstance(message.content, list) and any(block_type(block) in ("compaction", "compaction_summary") for block in blocks_of(message))


def group_messages(messages: Sequence[BaseMessage], *, start: int = 0, is_pending: Callable[[BaseMessage], bool] | None = None) -> list[Group]:
    """Cut `messages[start:]` into groups.

    Args:
        messages: The whole list.
        start: First index to group; what stands before is not looked at.
        is_pending: Says of a message that its outcome is still open (an approval, an interim result), beyond what pairing tells.

    Returns:
        Adjacent groups that cover `messages[start:]`.
    """
    last_ai = max((i for i in range(start, len(messages)) if isinstance(messages[i], AIMessage)), default=-1)
    reach, unanswered = _pair(messages, start)
    groups: list[Group] = []
    i = start
    while i < len(messages):
        stop = _extent(i, reach)
        state = _state(messages, range(i, stop), last_ai, unanswered)
        if is_pending is not None and any(is_pending(messages[k]) for k in range(i, stop)):
            state = "pending"
        groups.append(Group(i, stop, state))
        i = stop
    return groups


def results_of(messages: Sequence[BaseMessage], start: int = 0) -> dict[int, tuple[int, int]]:
    """For each result the position of its call: `{result index: (AI index, number of the call in declared_calls)}`. Orphans are left out."""
    found: dict[int, tuple[int, int]] = {}
    open_calls: dict[str, list[_Open]] = defaultdict(list)
    last_result = -1
    for i in range(start, len(messages)):
        message = messages[i]
        if isinstance(message, AIMessage):
            for number, call in enumerate(declared_calls(message)):
                _declare(open_calls[call.id], i, number, last_result)
        elif isinstance(message, ToolMessage):
            last_result = i
            waiting = open_calls.get(message.tool_call_id or "")
            if waiting:
                owner, numbers = waiting[-1]
                found[i] = (owner, numbers.popleft())
                if not numbers:
                    waiting.pop()
    return found


def late_results(messages: Sequence[BaseMessage], start: int) -> frozenset[int]:
    """Results at or after `start` that answer a call before it: an approval given after the next request, a slow background tool."""
    within = results_of(messages, start)
    loose = [i for i in range(start, len(messages)) if isinstance(messages[i], ToolMessage) and i not in within]
    if not loose or not start:
        return frozenset()
    owners = results_of(messages)
    return frozenset(i for i in loose if i in owners and owners[i][0] < start)


def _declare(waiting: list[_Open], owner: int, number: int, last_result: int) -> None:
    """Note an open call. Older ones under its id stay open only if no result has come since: then the turns overlap."""
    if not waiting or waiting[-1][0] != owner:
        if waiting and waiting[-1][0] < last_result:
            waiting.clear()
        waiting.append((owner, deque()))
    waiting[-1][1].append(number)


def _pair(messages: Sequence[BaseMessage], start: int) -> tuple[dict[int, int], dict[int, list[Call]]]:
    """How far each AI message reaches (index of its last result), and its calls without result."""
    results = results_of(messages, start)
    reach: dict[int, int] = {}
    answered: dict[int, set[int]] = defaultdict(set)
    for result, (owner, number) in results.items():
        reach[owner] = max(reach.get(owner, owner), result)
        answered[owner].add(number)
    unanswered: dict[int, list[Call]] = {}
    for i in range(start, len(messages)):
        calls = declared_calls(messages[i])
        left = [call for number, call in enumerate(calls) if number not in answered[i]] if calls else []
        server, done = server_calls(messages[i])
        left += [call for call in server if call.id not in done]
        if left:
            unanswered[i] = left
    return reach, unanswered


def _extent(start: int, reach: Mapping[int, int]) -> int:
    """End of the group that begins at `start`: ranges that overlap are one group."""
    end, i = reach.get(start, start), start + 1
    while i <= end:
        end = max(end, reach.get(i, i))
        i += 1
    return end + 1


def _state(messages: Sequence[BaseMessage], span: range, last_ai: int, unanswered: Mapping[int, list[Call]]) -> GroupState:
    open_at = [i for i in span if i in unanswered]
    if not open_at:
        return "complete"
    live = last_ai in open_at and (any(call.kind != "invalid" for call in unanswered[last_ai]) or isinstance(messages[last_ai], AIMessageChunk))
    return "pending" if live else "abandoned"


def _block_calls(message: AIMessage) -> Iterator[Call]:
    if isinstance(message.content, list):
        for block in blocks_of(message):
            if block_type(block) in ("tool_use", "function_call", "tool_call", "custom_tool_call"):
                args = block.get("input", block.get("args", block.get("arguments")))
                yield Call(_string(block.get("call_id") or block.get("id")), _string(block.get("name")), args, "tool")
    raw_calls = message.additional_kwargs.get("tool_calls")
    for raw in raw_calls if isinstance(raw_calls, list) else ():
        function = raw.get("function") if isinstance(raw, Mapping) else None
        if isinstance(function, Mapping):
            yield Call(_string(raw.get("id")), _string(function.get("name")), function.get("arguments"), "tool")


def _call(raw: Mapping[str, Any], kind: CallKind) -> Call:
    return Call(_string(raw.get("id")), _string(raw.get("name")), raw.get("args"), kind)


def _string(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)
