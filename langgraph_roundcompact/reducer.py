"""The door for graph state: reducers for a `messages` key.

    class State(TypedDict):
        messages: Annotated[list[AnyMessage], round_compact_messages]

`round_compact_messages` and `round_compact_messages_delta` do not compact. They keep a list right on which others do: a node, a middleware, a
subgraph, two branches at once. `compacting_reducer` makes a reducer that compacts by itself, by rules and without a model.

A reducer is called once for each write, again for the edges that follow, and by a `DeltaChannel` again with other batches at each load. So
none of these asks a model, and none changes the objects it is given.
"""

from __future__ import annotations

import functools
import logging
import threading
import uuid
from collections.abc import Callable, Hashable, Sequence
from typing import Any, cast

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    BaseMessageChunk,
    MessageLikeRepresentation,
    ToolMessage,
    convert_to_messages,
    message_chunk_to_message,
)
from langgraph.graph.message import add_messages

from langgraph_roundcompact._fault import told
from langgraph_roundcompact._memory_block import mark_of
from langgraph_roundcompact._merge import MessageList, id_of, stands_for
from langgraph_roundcompact.config import RoundCompactConfig
from langgraph_roundcompact.errors import ConfigurationError

__all__ = ["compacting_reducer", "round_compact_messages", "round_compact_messages_delta"]

Messages = list[MessageLikeRepresentation] | MessageLikeRepresentation
Reducer = Callable[[Any, Any], Any]

_log = logging.getLogger(__name__)

_DEFAULT = RoundCompactConfig()


def round_compact_messages(left: Messages, right: Messages) -> list[BaseMessage]:
    """Merge a write into the list as `add_messages` does, and keep replaced messages replaced.

    Differences to `add_messages`:

    * A `RemoveMessage` for an unknown id is ignored, so two branches may remove the same message.
    * Ids that a checkpoint lists as replaced are dropped, in this write and in later ones, also when a parent graph still has them. The
      checkpoint takes the place of the first, its recovered context the place of the second.
    * Of two checkpoints the one that stands for more stays; for the same work, the smaller one, whichever comes first. To put an edited
      checkpoint in its place, write `[RemoveMessage(id=checkpoint.id), edited]`.
    * What follows `REMOVE_ALL_MESSAGES` is merged like any write: no doubled ids, no `RemoveMessage` left in the list.
    * The given objects are not changed. A message without id gets one on a copy, derived from the message and its predecessor, so that
      applying the same write again gives the same ids; only the first message of an empty list gets a random one.

    Args:
        left: The list in state, or one message.
        right: What was written: messages, dicts, tuples or strings; one or a list.

    Returns:
        A new list.

    Raises:
        ValueError: an argument is None.
    """
    if left is None or right is None:
        msg = f"round_compact_messages needs messages on both sides; {'left' if left is None else 'right'} is None"
        raise ValueError(msg)
    merged = MessageList(_as_messages(left), _random_id)
    merged.write(_as_messages(right))
    return merged.messages()


def round_compact_messages_delta(state: list[BaseMessage], writes: Sequence[Any]) -> list[BaseMessage]:
    """The same for `DeltaChannel`: `Annotated[list, DeltaChannel(round_compact_messages_delta)]`.

    Batching-invariant: `f(f(state, xs), ys) == f(state, xs + ys)`, because each write is applied whole and by the list alone. Nothing is
    random: LangGraph gives message objects their ids before it saves a write, and what still has none (strings, tuples) gets an id derived
    from the message and its predecessor, the same at each load.

    Args:
        state: The list so far.
        writes: The writes in order; each is one message or a list of them.

    Returns:
        A new list.
    """
    merged = MessageList(_as_messages(state), str)
    for write in writes:
        merged.write(_as_messages(write))
    return merged.messages()


def compacting_reducer(config: RoundCompactConfig = _DEFAULT, base: Reducer = add_messages) -> Reducer:
    """Make a reducer that compacts by rules: when a write completes a group and the window is over the trigger, the work becomes a digest.

    For plain channels only, not for `DeltaChannel`: there only writes are saved, and the list is made again from them at each load in other
    batches. The trigger would then be met at other moments, and the reloaded list would differ from the one that ran. The function cannot
    see its channel, but it refuses what only a `DeltaChannel` passes: lists inside the list.

    Compaction never makes a write fail: when it cannot be done, the list is what `base` gives. Applied twice to the same values the result
    is the same.

    Args:
        config: When and how to compact. Without `context_window_tokens` the capacity is a guess, since a reducer
            does not know the model.
        base: The reducer that merges the write first.

    Returns:
        A function `(left, right) -> list`. Equal arguments give the same object, so that several schemas may declare it on one key.

    Example:
        >>> reducer = compacting_reducer(RoundCompactConfig(context_window_tokens=128_000))
        >>> reducer is compacting_reducer(RoundCompactConfig(context_window_tokens=128_000))
        True
    """
    if not isinstance(config, RoundCompactConfig) or not callable(base):
        msg = f"compacting_reducer({config!r:.60}, {base!r:.60}) cannot work: give a RoundCompactConfig and a reducer such as add_messages"
        raise ConfigurationError(msg)
    key = (config, _base_key(base))
    with _made_lock:
        if key not in _made:
            _made[key] = _make_reducer(config, base)
        return _made[key]


# LangGraph compares the reducers of one key by identity, so equal arguments must give one object for as long as the process lives.
_made: dict[tuple[RoundCompactConfig, Hashable], Reducer] = {}
_made_lock = threading.Lock()


def _base_key(base: Reducer) -> Hashable:
    """A key for a base reducer: `add_messages(format=...)` is a new partial at each call, and all of them are the same reducer."""
    if not isinstance(base, functools.partial):
        return base
    key = (functools.partial, _base_key(base.func), base.args, tuple(sorted(base.keywords.items())))
    try:
        hash(key)
    except TypeError:  # arguments that cannot be compared: each such partial is its own
        return base
    return key


def _make_reducer(config: RoundCompactConfig, base: Reducer) -> Reducer:
    def reduce_and_compact(left: Any, right: Any) -> Any:
        _refuse_delta_writes(right)
        merged = base(left, _without_replaced(left, right))
        return _compacted(merged, config)

    named = base
    while isinstance(named, functools.partial):
        named = named.func
    base_name = getattr(named, "__name__", type(named).__name__).strip("_")
    cast("Any", reduce_and_compact).base = named  # the doors take from it how the channel takes an update
    reduce_and_compact.__name__ = reduce_and_compact.__qualname__ = f"{base_name}_with_round_compaction"
    reduce_and_compact.__doc__ = f"Merge as `{base_name}` does, then compact by rules. Not for `DeltaChannel`. Made by `compacting_reducer`."
    return reduce_and_compact


def _refuse_delta_writes(right: Any) -> None:
    # A list of two strings is a legal message, ["user", "hello"]; any other list among the messages is a whole write.
    def is_write(item: Any) -> bool:
        return isinstance(item, list) and not (len(item) == 2 and all(isinstance(part, str) for part in item))

    if isinstance(right, list) and any(map(is_write, right)):
        msg = (
            "compacting_reducer cannot be used in a DeltaChannel: the list is made again from saved writes in other batches, so a threshold "
            "would be met at other moments and give another list on reload. Use DeltaChannel(round_compact_messages_delta) and compact in a node."
        )
        raise ConfigurationError(msg)


def _without_replaced(left: Any, right: Any) -> Any:
    """The write without what the node could not know: messages and removals of ids that a compaction in this reducer has replaced."""
    standing = [message for message in left if isinstance(message, BaseMessage)] if isinstance(left, list) else []
    gone = stands_for(standing)
    if not gone:
        return right
    items = right if isinstance(right, list) else [right]
    return [item for item in items if id_of(item) not in gone or (isinstance(item, BaseMessage) and mark_of(item))]


def _compacted(merged: Any, config: RoundCompactConfig) -> Any:
    try:
        from langgraph_roundcompact._rules import compact_by_rules  # noqa: PLC0415 - only graphs that compact here pay for the rules

        return compact_by_rules(merged, config) if _ends_in_complete_group(merged) else merged
    except Exception as exc:  # noqa: BLE001 - a write must not fail because of compaction
        _log.warning("round compaction in the reducer failed (%s); the messages are left as they are", told(exc))
        return merged


def _ends_in_complete_group(merged: Any) -> bool:
    """Whether the list ends in the last result of a group: the moment before the model is called again."""
    if not isinstance(merged, list) or not merged or not isinstance(merged[-1], ToolMessage):
        return False
    from langgraph_roundcompact._groups import group_messages  # noqa: PLC0415

    start = next((i for i in range(len(merged) - 1, -1, -1) if isinstance(merged[i], AIMessage)), len(merged))
    groups = group_messages(merged, start=start)
    return bool(groups) and groups[-1].state == "complete" and len(groups[-1]) > 1


def _as_messages(value: Any) -> list[BaseMessage]:
    items = value if isinstance(value, list) else [value]
    # By the few distinct types, because this looks at the whole list at every step.
    if all(issubclass(kind, BaseMessage) and not issubclass(kind, BaseMessageChunk) for kind in set(map(type, items))):
        return cast("list[BaseMessage]", items)
    return [message_chunk_to_message(item) if isinstance(item, BaseMessageChunk) else item for item in convert_to_messages(items)]


def _random_id() -> str:
    return str(uuid.uuid4())
