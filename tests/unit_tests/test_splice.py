"""The new list, and the update that brings each kind of channel to exactly that list."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from builders import dump, ids, step, steps
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, SystemMessage
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES as LANGGRAPHS_MARK
from langgraph.graph.message import add_messages
from langgraph.pregel._messages import _messages_delta_reducer
from langgraph.types import Overwrite
from strategies import histories
from typing_extensions import TypedDict

from langgraph_roundcompact import RoundCompactConfig
from langgraph_roundcompact._memory_block import BlockData, checkpoint_messages, frame, recovered_message
from langgraph_roundcompact._spans import cut_round
from langgraph_roundcompact._splice import REMOVE_ALL_MESSAGES, splice, update_for
from langgraph_roundcompact.testing import pairing_faults

NEW = [HumanMessage("block", id="a1"), HumanMessage("recovered", id="t1")]


def after_of(before: list[BaseMessage]) -> list[BaseMessage]:
    return splice(before, [1, 2, 3, 4], NEW, {})


def plain(messages: list[BaseMessage]) -> list[dict[str, Any]]:
    """All fields but the id, to compare lists whose ids a reducer has yet to give."""
    return [{**message.model_dump(), "id": None} for message in messages]


# --- splice --------------------------------------------------------------------------------------------------------------------------


def test_new_messages_stand_where_the_first_replaced_one_stood() -> None:
    before = steps(3)
    after = after_of(before)
    assert ids(after) == ["h1", "a1", "t1", "a3", "t3"]
    assert (after[0] is before[0], after[1] is NEW[0], after[3] is before[5]) == (True, True, True)


def test_islands_keep_their_place() -> None:
    before = [*steps(1), SystemMessage("policy", id="s"), *step(2)]
    assert ids(splice(before, [1, 2, 4, 5], [HumanMessage("block", id="a1")], {})) == ["h1", "a1", "s"]


def test_folds_stand_in_the_place_of_what_they_fold() -> None:
    before = steps(1)
    fold = before[2].model_copy(update={"content": "shorter"})
    after = splice(before, [], [], {2: fold})
    assert (len(after), after[2] is fold, after[1] is before[1]) == (3, True, True)


def test_without_anything_to_replace_the_list_is_equal_and_new() -> None:
    before = steps(2)
    after = splice(before, [], [], {})
    assert after == before
    assert after is not before


def test_state_is_not_touched() -> None:
    before = steps(3)
    held = dump(before)
    update_for(before, after_of(before), "add_messages")
    assert dump(before) == held


# --- update_for ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channel", ["add_messages", "append", "replace"])
def test_an_unchanged_list_has_no_update(channel: Any) -> None:
    before = steps(2)
    assert update_for(before, list(before), channel) is None


def test_by_id_only_what_changes_is_written_and_only_known_ids_are_removed() -> None:
    before = steps(3)
    update = update_for(before, after_of(before), "add_messages")
    assert [(type(m).__name__, m.id) for m in update] == [
        ("HumanMessage", "a1"),
        ("HumanMessage", "t1"),
        ("RemoveMessage", "a2"),
        ("RemoveMessage", "t2"),
    ]


def test_the_update_can_be_applied_twice() -> None:
    """A node that is retried writes the same again; by then the removed ids are unknown, which the delta reducer forgives."""
    before = steps(3)
    update = update_for(before, after_of(before), "add_messages")
    once = _messages_delta_reducer(before, [update])
    assert ids(_messages_delta_reducer(once, [update])) == ids(once)


def test_what_a_parallel_branch_wrote_in_the_same_step_stays() -> None:
    before = steps(3)
    update = update_for(before, after_of(before), "add_messages")
    for order in ([update, [AIMessage("side", id="x")]], [[AIMessage("side", id="x")], update]):
        state: Any = list(before)
        for write in order:
            state = add_messages(state, write)
        assert ids(state) == ["h1", "a1", "t1", "a3", "t3", "x"]


def test_without_any_ids_the_list_is_written_whole_and_state_gets_no_ids_from_it() -> None:
    before = [message.model_copy(update={"id": None}) for message in steps(3)]
    update = update_for(before, splice(before, [1, 2, 3, 4], [HumanMessage("block")], {}), "add_messages")
    assert isinstance(update[0], RemoveMessage)
    assert update[0].id == LANGGRAPHS_MARK == REMOVE_ALL_MESSAGES
    result = add_messages([message.model_copy() for message in before], update)
    assert [str(message.content)[:5] for message in result] == ["Find ", "block", "", "r3 fo"]
    assert ids(before) == [None] * 7


def test_a_message_that_is_there_twice_is_removed_once() -> None:
    before = [*steps(1), HumanMessage("twin", id="x"), HumanMessage("twin", id="x")]
    update = update_for(before, before[:3], "add_messages")
    assert [message.id for message in update] == ["x"]


def test_append_channels_get_the_list_in_langgraphs_overwrite() -> None:
    before = steps(3)
    update = update_for(before, after_of(before), "append", Overwrite)
    assert isinstance(update, Overwrite)
    assert update.value == after_of(before)


def _drawn(messages: list[BaseMessage], keep: int | None, with_state: bool) -> list[BaseMessage] | None:
    """The list after a compaction as the package would make it; None when there is nothing to replace."""
    found = cut_round(messages, keep_recent=keep)
    if not found.groups:
        return None
    free = [messages[i].id for i in found.target]
    new = checkpoint_messages(frame("Did X."), BlockData(), role="user", ids=free)
    if with_state and len(free) > 1 and found.target[1] == found.target[0] + 1:
        new.append(recovered_message("<recovered_context>p</recovered_context>", free[1]))
    return splice(messages, found.target, new, {})


def _by_add_messages(before: list[BaseMessage], update: Any) -> Any:
    return add_messages(before, update)


def _by_delta(before: list[BaseMessage], update: Any) -> Any:
    return _messages_delta_reducer(before, [update])


@settings(max_examples=200)
@pytest.mark.parametrize("reduce", [_by_add_messages, _by_delta])
@given(messages=histories(max_steps=8, ids=("present", "missing")), keep=st.one_of(st.none(), st.integers(0, 5)), with_state=st.booleans())
def test_by_id_the_reducer_arrives_at_exactly_the_wanted_list(
    reduce: Callable[[Any, Any], Any], messages: list[BaseMessage], keep: int | None, with_state: bool
) -> None:
    # Reducers store plain messages: chunks in state have become messages by the time a node sees them.
    state: Any = add_messages([], [message.model_copy() for message in messages]) if any(m.id for m in messages) else messages
    wanted = _drawn(state, keep, with_state)
    if wanted is None:
        return
    held, wanted_dump = dump(state), plain(wanted)
    update = update_for(state, wanted, "add_messages")
    known = {message.id for message in state} | {REMOVE_ALL_MESSAGES}
    assert all(message.id in known for message in update)
    assert dump(state) == held
    got = reduce([message.model_copy() for message in state], update)
    if state and state[0].id:
        assert dump(got) == dump(wanted)
    else:
        assert [message["content"] for message in plain(got)] == [message["content"] for message in wanted_dump]
    assert dump(state) == held


@given(histories(max_steps=8, ids=("present", "missing", "mixed")), st.booleans())
def test_append_and_replace_channels_arrive_at_exactly_the_wanted_list(messages: list[BaseMessage], with_state: bool) -> None:
    wanted = _drawn(messages, 0, with_state)
    if wanted is None:
        return
    held = dump(messages)
    channel: Any = BinaryOperatorAggregate(list, operator.add)
    channel.update([list(messages)])
    channel.update([update_for(messages, wanted, "append", Overwrite)])
    assert dump(channel.get()) == dump(wanted) == dump(update_for(messages, wanted, "replace"))
    assert dump(messages) == held


@given(histories(max_steps=8, ids=("mixed", "doubled")), st.one_of(st.none(), st.integers(0, 5)))
def test_odd_ids_never_make_the_reducer_raise_and_never_cost_a_message_that_stays(messages: list[BaseMessage], keep: int | None) -> None:
    wanted = _drawn(messages, keep, False)
    if wanted is None:
        return
    update = update_for(messages, wanted, "add_messages")
    assert sorted(message.id for message in update if isinstance(message, RemoveMessage)) == sorted(
        {message.id for message in messages if message.id} - {message.id for message in wanted}
    )
    add_messages([message.model_copy() for message in messages], [message.model_copy() for message in update])


def test_in_a_running_graph_the_state_is_the_wanted_list() -> None:
    class State(TypedDict):
        messages: Annotated[list[Any], add_messages]

    def compact(state: State) -> dict[str, Any]:
        return {"messages": update_for(state["messages"], after_of(state["messages"]), "add_messages")}

    builder = StateGraph(State)
    builder.add_node("compact", compact)
    builder.add_edge(START, "compact")
    builder.add_edge("compact", END)
    assert ids(builder.compile().invoke({"messages": steps(3)})["messages"]) == ["h1", "a1", "t1", "a3", "t3"]


@pytest.mark.parametrize("role", ["user", "tool"])
@pytest.mark.parametrize("state", [{}, {"todos": [{"content": "check the port", "status": "pending"}]}], ids=["bare", "with_todo"])
def test_with_something_that_stays_between_the_first_two_replaced_messages_state_and_result_agree(role: Any, state: dict[str, Any]) -> None:
    """A system message inside the first step: a second message of ours would stand behind it in the state, a result away from its call."""
    first = step(1, "x " * 4000)
    before = [HumanMessage("Find the fault", id="h1"), first[0], SystemMessage("policy", id="s"), first[1], *step(2, "y " * 4000), *step(3)]
    from langgraph_roundcompact import RoundCompactor

    compactor = RoundCompactor(None, config=RoundCompactConfig(context_window_tokens=5000, checkpoint_role=role))
    result = compactor.compact({**state, "messages": before}, force=True)
    assert result.compacted
    assert pairing_faults(result.messages) == []
    assert dump(add_messages(list(before), result.update["messages"])) == dump(result.messages)
