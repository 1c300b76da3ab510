"""Calls, results and groups: what belongs together, whatever ids, dialects and leftovers a history holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from builders import call, step, steps
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage, ToolMessage, ToolMessageChunk
from strategies import histories, valid_histories

from langgraph_roundcompact._groups import Group, declared_calls, group_messages, is_native_compaction, late_results, results_of, server_calls
from langgraph_roundcompact.testing import pairing_faults


def ai(*call_ids: str, id: str | None = None) -> AIMessage:
    return AIMessage("", tool_calls=[call(call_id) for call_id in call_ids], id=id)


def result(call_id: str, text: str = "r") -> ToolMessage:
    return ToolMessage(text, tool_call_id=call_id)


def shape(messages: list[BaseMessage], start: int = 0) -> list[tuple[int, int, str]]:
    return [(group.start, group.stop, group.state) for group in group_messages(messages, start=start)]


# --- What a message declares ---------------------------------------------------------------------------------------------------------


def test_a_call_in_tool_calls_and_in_the_content_is_one_call() -> None:
    block = {"type": "tool_use", "id": "c1", "name": "search", "input": {"q": 1}}
    assert [c.id for c in declared_calls(AIMessage([block], tool_calls=[call("c1")]))] == ["c1"]


def test_invalid_tool_calls_are_declared_calls() -> None:
    bad = {"name": "write", "args": '{"a', "id": "b1", "error": "cut", "type": "invalid_tool_call"}
    found = declared_calls(AIMessage("", tool_calls=[call("c1")], invalid_tool_calls=[bad]))
    assert [(c.id, c.kind, c.args) for c in found] == [("c1", "tool", {}), ("b1", "invalid", '{"a')]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "tool_use", "id": "x", "name": "f", "input": {}},
        {"type": "function_call", "id": "fc_1", "call_id": "x", "name": "f", "arguments": "{}"},
        {"type": "tool_call", "id": "x", "name": "f", "args": {}},
        {"type": "custom_tool_call", "call_id": "x", "name": "f", "input": "text"},
    ],
)
def test_a_call_that_lives_only_in_a_content_block_is_declared(block: dict[str, Any]) -> None:
    assert [(c.id, c.name) for c in declared_calls(AIMessage([block]))] == [("x", "f")]


def test_a_content_call_without_id_counts_where_it_is_the_only_declaration() -> None:
    block = {"type": "tool_use", "id": "", "name": "f", "input": {}}
    assert [c.name for c in declared_calls(AIMessage([block]))] == ["f"]
    assert [c.id for c in declared_calls(AIMessage([block], tool_calls=[call("c1", "f")]))] == ["c1"]


def test_a_nameless_block_without_id_is_no_call() -> None:
    assert declared_calls(AIMessage([{"type": "tool_use", "input": "{"}, {"type": "input_json_delta", "partial_json": "{"}])) == ()


def test_calls_of_a_chunk_are_declared() -> None:
    chunk = AIMessageChunk(content="", tool_call_chunks=[{"name": "search", "args": '{"q": 1}', "id": "c9", "index": 0, "type": "tool_call_chunk"}])
    assert [c.id for c in declared_calls(chunk)] == ["c9"]


def test_two_calls_under_one_id_are_two_calls() -> None:
    assert len(declared_calls(ai("same", "same"))) == 2


def test_only_ai_messages_declare_calls() -> None:
    assert declared_calls(HumanMessage([{"type": "tool_use", "id": "x", "name": "f", "input": {}}])) == ()


def test_server_calls_are_found_with_their_results() -> None:
    use = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    done = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    calls, answered = server_calls(AIMessage([use, done, {**use, "id": "s2"}]))
    assert ([c.id for c in calls], answered) == (["s1", "s2"], {"s1"})
    assert declared_calls(AIMessage([use, done])) == ()


@pytest.mark.parametrize("kind", ["compaction", "compaction_summary"])
def test_native_compaction_items_are_recognised(kind: str) -> None:
    assert is_native_compaction(AIMessage([{"type": kind, "encrypted_content": "E"}]))
    assert not is_native_compaction(AIMessage(kind))


@pytest.mark.parametrize("kind", ["compaction", "compaction_summary"])
def test_native_compaction_items_are_recognised_in_langchains_wrapping(kind: str) -> None:
    item = {"type": "non_standard", "value": {"type": kind, "encrypted_content": "E"}}
    assert is_native_compaction(AIMessage([item], response_metadata={"output_version": "v1"}))
    assert not is_native_compaction(AIMessage([{"type": "non_standard", "value": kind}, {"type": "non_standard"}]))


# --- Pairing by position -------------------------------------------------------------------------------------------------------------


def test_ids_that_repeat_in_every_turn_pair_with_the_turn_before() -> None:
    messages: list[BaseMessage] = [HumanMessage("go"), ai("call_0"), result("call_0"), ai("call_0"), result("call_0")]
    assert results_of(messages) == {2: (1, 0), 4: (3, 0)}
    assert shape(messages) == [(0, 1, "complete"), (1, 3, "complete"), (3, 5, "complete")]


def test_empty_ids_pair_with_siblings_in_order() -> None:
    messages: list[BaseMessage] = [ai("", ""), result("", "first"), result("", "second")]
    assert results_of(messages) == {1: (0, 0), 2: (0, 1)}


def test_results_in_another_order_than_the_calls_stay_in_the_group() -> None:
    assert shape([ai("p1", "p2", "p3"), result("p3"), result("p1"), result("p2")]) == [(0, 4, "complete")]


def test_an_orphan_stands_alone() -> None:
    assert shape([ai("b"), result("gone"), result("b"), result("gone")]) == [(0, 3, "complete"), (3, 4, "complete")]
    assert results_of([result("gone")]) == {}


def test_what_stands_between_call_and_result_belongs_to_the_group() -> None:
    assert shape([ai("a"), HumanMessage("steer"), SystemMessage("note"), result("a")]) == [(0, 4, "complete")]


def test_interleaved_calls_are_one_group() -> None:
    assert shape([ai("a"), ai("b"), result("a"), result("b"), *step(9)]) == [(0, 4, "complete"), (4, 6, "complete")]


def test_interleaved_calls_under_one_id_are_paired_from_the_inside() -> None:
    assert results_of([ai("same"), ai("same"), result("same"), result("same")]) == {2: (1, 0), 3: (0, 0)}


def test_one_lost_result_does_not_tie_later_turns_with_the_same_id_together() -> None:
    """Under empty ids a stray result at the end would otherwise belong to the abandoned call at the start, and nothing could ever go."""
    messages = [ai(""), ai(""), result(""), ai(""), result(""), ai(""), result(""), result("")]
    assert shape(messages)[-2:] == [(5, 7, "complete"), (7, 8, "complete")]


def test_late_results_are_those_whose_call_stands_before_the_start() -> None:
    messages = [HumanMessage("one"), ai("slow"), HumanMessage("two"), *step(1), result("slow"), result("nobody")]
    assert late_results(messages, 3) == {5}
    assert late_results(messages, 0) == frozenset()


# --- State ---------------------------------------------------------------------------------------------------------------------------


def test_only_an_open_call_in_the_last_ai_message_is_pending() -> None:
    assert shape([ai("dead"), ai("x"), result("x"), ai("live")]) == [(0, 1, "abandoned"), (1, 3, "complete"), (3, 4, "pending")]


def test_a_half_answered_last_step_is_pending_as_a_whole() -> None:
    assert shape([ai("safe", "danger"), result("safe")]) == [(0, 2, "pending")]


def test_a_reminder_behind_a_live_call_does_not_end_it() -> None:
    assert shape([ai("live"), HumanMessage("<system-reminder>x</system-reminder>")])[0] == (0, 1, "pending")


def test_invalid_calls_alone_are_never_pending() -> None:
    bad = {"name": "write", "args": "{", "id": "b", "error": "cut", "type": "invalid_tool_call"}
    assert shape([AIMessage("", invalid_tool_calls=[bad])]) == [(0, 1, "abandoned")]


def test_an_aborted_stream_at_the_end_is_pending() -> None:
    chunk = AIMessageChunk(content="", tool_call_chunks=[{"name": "s", "args": '{"q": "tr', "id": "c10", "index": 0, "type": "tool_call_chunk"}])
    assert shape([chunk])[0][2] == "pending"


def test_chunks_pair_like_messages() -> None:
    chunk = AIMessageChunk(content="", tool_call_chunks=[{"name": "s", "args": "{}", "id": "c9", "index": 0, "type": "tool_call_chunk"}])
    assert shape([chunk, ToolMessageChunk(content="r9", tool_call_id="c9")]) == [(0, 2, "complete")]


def test_an_open_server_call_is_pending_at_the_end_and_abandoned_before() -> None:
    paused = AIMessage([{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}])
    assert shape([paused, paused]) == [(0, 1, "abandoned"), (1, 2, "pending")]


def test_a_message_that_the_caller_calls_pending_makes_its_group_pending() -> None:
    messages = [*step(1), *step(2)]
    groups = group_messages(messages, is_pending=lambda message: message.id == "t1")
    assert [group.state for group in groups] == ["pending", "complete"]


# --- Properties ----------------------------------------------------------------------------------------------------------------------


@given(histories(max_steps=10, ids=("present",)), st.integers(0, 4))
def test_groups_cover_the_list_from_start_without_gaps(messages: list[BaseMessage], start: int) -> None:
    start = min(start, len(messages))
    groups = group_messages(messages, start=start)
    assert [i for group in groups for i in range(group.start, group.stop)] == list(range(start, len(messages)))
    assert all(len(group) > 0 for group in groups)


@given(histories(max_steps=10, ids=("present",)))
def test_every_result_is_in_the_group_of_its_call(messages: list[BaseMessage]) -> None:
    home = {i: group for group in group_messages(messages) for i in range(group.start, group.stop)}
    assert all(home[found] == home[owner] for found, (owner, _) in results_of(messages).items())


@given(histories(max_steps=10, ids=("present",)))
def test_each_call_has_at_most_one_result_and_it_comes_later(messages: list[BaseMessage]) -> None:
    pairs = results_of(messages)
    assert len(set(pairs.values())) == len(pairs)
    assert all(owner < found for found, (owner, _) in pairs.items())
    assert all(declared_calls(messages[owner])[number].id == (messages[found].tool_call_id or "") for found, (owner, number) in pairs.items())


@given(histories(max_steps=10, ids=("present",)))
def test_at_most_one_group_is_pending_and_it_holds_the_last_ai_message(messages: list[BaseMessage]) -> None:
    pending = [group for group in group_messages(messages) if group.state == "pending"]
    last = max((i for i, message in enumerate(messages) if isinstance(message, AIMessage)), default=-1)
    assert all(group.start <= last < group.stop for group in pending)


@settings(max_examples=300)
@given(valid_histories(max_steps=8, ids=("present",)), st.data())
def test_removing_any_whole_groups_but_pending_ones_leaves_a_valid_history_valid(messages: list[BaseMessage], data: st.DataObject) -> None:
    assert pairing_faults(messages) == []
    free = [group for group in group_messages(messages) if group.state != "pending"]
    gone = data.draw(st.sets(st.sampled_from(range(len(free))))) if free else set()
    removed = {i for k in gone for i in range(free[k].start, free[k].stop)}
    assert pairing_faults([message for i, message in enumerate(messages) if i not in removed]) == []


@given(histories(max_steps=10))
def test_grouping_does_not_touch_the_messages(messages: list[BaseMessage]) -> None:
    before = [message.model_dump() for message in messages]
    group_messages(messages)
    assert [message.model_dump() for message in messages] == before


# --- Time ----------------------------------------------------------------------------------------------------------------------------


def _parallel(n: int) -> list[BaseMessage]:
    return [ai(*[""] * n), *(result("") for _ in range(n))]


def _abandoned(n: int) -> list[BaseMessage]:
    return [ai("") for _ in range(n)]


def _nested(n: int) -> list[BaseMessage]:
    return [*(ai(f"c{i}") for i in range(n)), *(result(f"c{i}") for i in reversed(range(n)))]


def _chained(n: int) -> list[BaseMessage]:
    return [message for i in range(n) for message in (ai(f"c{i}"), result(f"c{i - 1}"))]


def _repeated(n: int) -> list[BaseMessage]:
    return [message for _ in range(n) for message in (ai("call_0"), result("call_0"))]


@pytest.mark.parametrize("build", [_parallel, _abandoned, _nested, _chained, _repeated])
def test_grouping_takes_linear_time(build: Callable[[int], list[BaseMessage]]) -> None:
    """5,000 calls take about ten times as long as 500; quadratic code takes a hundred times as long."""
    small, large = build(500), build(5000)
    assert _seconds(large) < 30 * _seconds(small) + 0.02


def _seconds(messages: list[BaseMessage]) -> float:
    best = float("inf")
    for _ in range(3):
        begun = time.process_time()
        groups = group_messages(messages)
        best = min(best, time.process_time() - begun)
    assert isinstance(groups[0], Group)
    return best


def test_a_plain_round_has_the_request_and_one_group_a_step() -> None:
    assert shape(steps(3)) == [(0, 1, "complete"), (1, 3, "complete"), (3, 5, "complete"), (5, 7, "complete")]
