"""The compacted list, and the update that turns a channel of each kind into it. State objects are never mutated.

An id-based channel keeps its order when the checkpoint takes the id of the first message it replaces, and it keeps what a parallel branch
wrote in the same step, because nothing but the listed ids is removed. Remove-all is left for lists without any ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from langchain_core.messages import BaseMessage, RemoveMessage

Channel = Literal["add_messages", "append", "replace"]

REMOVE_ALL_MESSAGES = "__remove_all__"
"""LangGraph's mark for "remove all"; written out because pure modules do not import langgraph (a test compares the two)."""


def splice(
    messages: Sequence[BaseMessage], replaced: Sequence[int], new: Sequence[BaseMessage], folded: Mapping[int, BaseMessage]
) -> list[BaseMessage]:
    """The list with `new` in the place of the first replaced message, the other replaced messages gone, and folds in their places.

    Where the first id could not be taken, because it stands twice, the place is that of the id that was: so it will be in the state.
    """
    gone = set(replaced)
    taken = (i for i in sorted(gone) if new and new[0].id and messages[i].id == new[0].id)
    first = next(taken, min(gone) if gone else len(messages))
    after: list[BaseMessage] = []
    for i, message in enumerate(messages):
        if i == first:
            after += new
        if i not in gone:
            after.append(folded.get(i, message))
    return after


def update_for(
    before: Sequence[BaseMessage], after: Sequence[BaseMessage], channel: Channel, overwrite: Callable[[list[BaseMessage]], Any] = list
) -> Any:
    """What a node writes to the channel so that `before` becomes `after`; None when they are the same objects.

    Args:
        before: The list in state now.
        after: The list wanted: messages of `before`, and messages that took ids of `before`.
        channel: `add_messages` for reducers that work by id, `append` for `operator.add`, `replace` for last-value channels.
        overwrite: Wraps the list for an `append` channel: langgraph's `Overwrite`.
    """
    if len(before) == len(after) and all(a is b for a, b in zip(before, after, strict=True)):
        return None
    if channel == "replace":
        return list(after)
    if channel == "append":
        return overwrite(list(after))
    ids = {message.id for message in before if message.id}
    if not ids:
        # The reducer stamps ids on what it is given: it must not be state's own objects.
        return [RemoveMessage(id=REMOVE_ALL_MESSAGES), *(message.model_copy() for message in after)]
    kept = {id(message) for message in before}
    written = [message for message in after if id(message) not in kept]
    left = {message.id for message in after}
    gone = dict.fromkeys(message.id for message in before if message.id and message.id not in left)
    return [*written, *(RemoveMessage(id=message_id) for message_id in gone)]
