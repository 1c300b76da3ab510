"""The border of the round and the three spans: what may be replaced, and what never."""

from __future__ import annotations

import time
from typing import Any

import pytest
from builders import call, dump, ids, step, steps
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, HumanMessageChunk, SystemMessage, ToolMessage
from strategies import histories, valid_histories

from langgraph_roundcompact._groups import group_messages, is_native_compaction, results_of
from langgraph_roundcompact._memory_block import BlockData, checkpoint_messages, frame, is_own, recovered_message
from langgraph_roundcompact._spans import Cut, cut_round, find_round, find_stale_before, is_interim, is_real_user
from langgraph_roundcompact._splice import splice
from langgraph_roundcompact.testing import pairing_faults

LIVE = AIMessage("deploying", tool_calls=[call("live", "deploy"), call("live2", "notify")], id="a9")
BLOCK = checkpoint_messages(frame("Found Y."), BlockData(last_kept_id="t1", kept_messages=2), role="user", ids=["cp"])[0]
RECOVERED = recovered_message("<recovered_context>\nplan\n</recovered_context>", "rc")
NATIVE = AIMessage([{"type": "compaction", "encrypted_content": "E"}], id="n1")


def cut(messages: list[BaseMessage], keep_recent: int | None = None, **more: Any) -> Cut:
    return cut_round(messages, keep_recent=keep_recent, **more)


def target(messages: list[BaseMessage], keep_recent: int | None = None, **more: Any) -> list[str | None]:
    return ids(messages, cut(messages, keep_recent, **more).target)


# --- The border ----------------------------------------------------------------------------------------------------------------------


def test_the_round_starts_after_the_last_real_user_message() -> None:
    messages = [HumanMessage("older"), AIMessage("answer"), *steps(2)]
    assert find_round(messages) == 3


def test_a_steering_message_is_the_new_border() -> None:
    messages = [*steps(2), HumanMessage("also: do not rename", id="h2"), *step(3), *step(4)]
    assert (find_round(messages), target(messages, 0)) == (6, ["a3", "t3", "a4", "t4"])


def test_without_a_user_message_the_round_starts_after_the_leading_system_messages() -> None:
    assert find_round([SystemMessage("job"), SystemMessage("rules"), *step(1), SystemMessage("late")]) == 2
    assert find_round([]) == 0


def test_a_chunk_is_a_user_message() -> None:
    assert find_round([HumanMessageChunk(content="go"), *step(1)]) == 1


@pytest.mark.parametrize(
    "message",
    [
        BLOCK,
        RECOVERED,
        HumanMessage("<system-reminder>\nbe quick\n</system-reminder>"),
        HumanMessage(
            [{"type": "text", "text": "<system-reminder>a</system-reminder>"}, {"type": "text", "text": "<system-reminder>b</system-reminder>"}]
        ),
        HumanMessage("background task done", additional_kwargs={"lc_source": "background_task"}),
        AIMessage("hello"),
        ToolMessage("x", tool_call_id="c"),
        SystemMessage("x"),
    ],
)
def test_what_a_person_did_not_write_is_no_border(message: BaseMessage) -> None:
    assert not is_real_user(message)
    assert find_round([HumanMessage("go"), message]) == 1


@pytest.mark.parametrize(
    "message",
    [
        HumanMessage(""),
        HumanMessage("<system-reminder>be quick</system-reminder> and what does this tag mean?"),
        HumanMessage(
            [{"type": "text", "text": "<system-reminder>a</system-reminder>"}, {"type": "image_url", "image_url": {"url": "https://e.x/i.png"}}]
        ),
        HumanMessage("see <memory_block_current>x</memory_block_current>"),
        HumanMessage("go", name="alice", additional_kwargs={"trace": 7}),
        HumanMessage("go", additional_kwargs={"lc_source": None}),
    ],
)
def test_what_a_person_wrote_is_a_border(message: BaseMessage) -> None:
    assert is_real_user(message)


def test_the_callers_own_rule_decides_among_human_messages() -> None:
    messages = [HumanMessage("go", id="h1"), HumanMessage("nudge", name="bot"), AIMessage("x")]
    assert find_round(messages, lambda message: message.name != "bot") == 1
    assert find_round(messages, lambda message: True) == 2


# --- The tail ------------------------------------------------------------------------------------------------------------------------


def test_by_default_what_the_model_has_not_read_stays() -> None:
    assert target(steps(3)) == ["a1", "t1", "a2", "t2"]


def test_by_default_a_reminder_behind_the_newest_step_stays_with_it() -> None:
    messages = [*steps(2), HumanMessage("<system-reminder>x</system-reminder>", id="r")]
    assert target(messages) == ["a1", "t1"]


def test_by_default_a_final_answer_stays() -> None:
    assert target([*steps(2), AIMessage("Done: 12.5", id="end")]) == ["a1", "t1", "a2", "t2"]


def test_zero_takes_the_whole_round() -> None:
    assert target(steps(3), 0) == ["a1", "t1", "a2", "t2", "a3", "t3"]


@pytest.mark.parametrize(("keep", "left"), [(1, 2), (2, 2), (3, 4), (4, 4), (5, 6), (6, 6), (99, 6)])
def test_keep_recent_grows_to_whole_groups(keep: int, left: int) -> None:
    messages = steps(3)
    assert len(messages) - cut(messages, keep).tail_start == left


def test_one_result_in_the_tail_pulls_in_all_its_siblings() -> None:
    fan_out = AIMessage("", tool_calls=[call("p1"), call("p2"), call("p3")], id="a9")
    messages = [*steps(1), fan_out, *(ToolMessage("x", tool_call_id=p, id=p) for p in ("p3", "p1", "p2"))]
    assert target(messages, 1) == ["a1", "t1"]


# --- What never goes -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [None, 0, 1, 2])
def test_a_pending_call_stays(keep: int | None) -> None:
    assert target([*steps(2), LIVE], keep) == ["a1", "t1", "a2", "t2"][: 4 if keep in (None, 0, 1) else 2]


def test_a_half_answered_step_stays_whole() -> None:
    assert target([*steps(2), LIVE, ToolMessage("3 objects", tool_call_id="live", id="half")], 0) == ["a1", "t1", "a2", "t2"]


def test_work_behind_a_pending_call_goes_and_the_call_stays_as_an_island() -> None:
    messages = [*steps(1), LIVE, HumanMessage("<system-reminder>x</system-reminder>", id="r")]
    found = cut(messages, 0)
    assert (ids(messages, found.target), ids(messages, found.islands)) == (["a1", "t1", "r"], ["a9"])


def test_an_abandoned_call_does_not_block() -> None:
    dead = AIMessage("", tool_calls=[call("dead", "long_job")], id="dead")
    assert target([HumanMessage("go", id="h1"), dead, *step(1), *step(2)]) == ["dead", "a1", "t1"]


@pytest.mark.parametrize(
    "marks", [{"interim": True}, {"pending": True}, {"status": "running"}, {"status": "awaiting_approval"}, {"status": "In_Progress"}]
)
@pytest.mark.parametrize("where", ["additional_kwargs", "response_metadata"])
def test_a_result_marked_as_interim_stays_with_its_call(marks: dict[str, Any], where: str) -> None:
    messages = [*steps(1), *step(2), *step(3)]
    messages[4] = messages[4].model_copy(update={where: marks})
    assert target(messages, 0) == ["a1", "t1", "a3", "t3"]


@pytest.mark.parametrize("marks", [{"interim": 1}, {"status": ["running"]}, {"status": {"a": 1}}, {"status": None}, {"pending": "no"}])
def test_odd_marks_are_no_interim_marks_and_raise_nothing(marks: dict[str, Any]) -> None:
    assert not is_interim(ToolMessage("x", tool_call_id="c", additional_kwargs=marks))


@pytest.mark.parametrize("text", ['{"status": "running", "job": 7}', ' {"status":"PENDING"}', '{"log": "' + "x" * 5000 + '", "status": "queued"}'])
def test_the_newest_result_that_says_in_json_that_it_goes_on_stays(text: str) -> None:
    messages = [*steps(1), AIMessage("", tool_calls=[call("c")], id="a2"), ToolMessage(text, tool_call_id="c", id="t2")]
    assert target(messages, 0) == ["a1", "t1"]
    reminder = HumanMessage("<system-reminder>x</system-reminder>", id="r")
    assert target([*messages, reminder], 0) == ["a1", "t1", "r"]


def test_an_older_result_that_said_so_is_history() -> None:
    poll = [AIMessage("", tool_calls=[call("c")], id="a0"), ToolMessage('{"status": "running"}', tool_call_id="c", id="t0")]
    assert target([HumanMessage("go"), *poll, *step(1)], 0, by_id=False) == ["a0", "t0", "a1", "t1"]


@pytest.mark.parametrize(
    "text", ['{"a":' + "[" * 90_000, '{"status": ["running"]}', '{"status"', "[1]", '{"status": "done"}', "", '{"status":"\ud800"}']
)
def test_other_texts_are_finished_results(text: str) -> None:
    messages = [*steps(1), AIMessage("", tool_calls=[call("c")], id="a2"), ToolMessage(text, tool_call_id="c", id="t2")]
    assert target(messages, 0) == ["a1", "t1", "a2", "t2"]


def test_system_messages_in_mid_round_stay() -> None:
    messages = [*steps(1), SystemMessage("policy", id="s"), *step(2)]
    messages.insert(2, SystemMessage("inside", id="s2"))
    assert target(messages, 0) == ["a1", "t1", "a2", "t2"]


def test_a_native_compaction_item_is_a_border() -> None:
    messages = [*steps(1), NATIVE, *step(2), *step(3)]
    found = cut(messages, 0)
    assert (found.prefix_stop, ids(messages, found.target)) == (4, ["a2", "t2", "a3", "t3"])
    assert cut([*steps(1), NATIVE], 0).reason == "native_compaction"


def test_a_result_whose_call_stands_in_the_prefix_stays() -> None:
    """An approval was given after the next request: taking the answer away would leave the call in the prefix open."""
    slow = AIMessage("", tool_calls=[call("slow")], id="a0")
    late = ToolMessage("approved", tool_call_id="slow", id="late")
    messages = [HumanMessage("one"), slow, HumanMessage("two"), late, *step(1), *step(2)]
    messages = [message.model_copy(update={"id": message.id or f"m{i}"}) for i, message in enumerate(messages)]
    assert target(messages, 0) == ["a1", "t1", "a2", "t2"]


def test_an_orphan_goes() -> None:
    messages = [*steps(1), ToolMessage("call is gone", tool_call_id="gone", id="o"), *step(2)]
    assert target(messages) == ["a1", "t1", "o"]


# --- Our earlier blocks, and messages without ids -------------------------------------------------------------------------------------


def test_an_earlier_checkpoint_and_its_recovered_context_are_own_and_no_new_work() -> None:
    messages = [HumanMessage("go", id="h1"), BLOCK, RECOVERED, *step(1), *step(2)]
    found = cut(messages)
    assert (ids(messages, found.own), found.groups) == (["cp", "rc"], ((3, 4),))


def test_an_earlier_checkpoint_delivered_as_call_and_result_is_own() -> None:
    pair = checkpoint_messages(frame("Found Y."), BlockData(), role="tool", ids=["cp", "cp2"])
    messages = [HumanMessage("go", id="h1"), *pair, *step(1), *step(2)]
    assert ids(messages, cut(messages).own) == ["cp", "cp2"]


def test_with_nothing_but_an_earlier_checkpoint_there_is_no_new_work() -> None:
    found = cut([HumanMessage("go", id="h1"), BLOCK, RECOVERED], 0)
    assert (found.groups, found.reason) == ((), "no_compressible_span")


def test_a_group_with_a_message_without_id_stays_while_others_have_ids() -> None:
    messages = steps(3)
    messages[2] = messages[2].model_copy(update={"id": None})
    found = cut(messages, 0)
    assert (ids(messages, found.target), found.reason) == (["a2", "t2", "a3", "t3"], "no_ids")


def test_without_any_ids_everything_can_go() -> None:
    messages = [message.model_copy(update={"id": None}) for message in steps(2)]
    assert cut(messages, 0).target == (1, 2, 3, 4)


def test_channels_that_take_lists_do_not_ask_for_ids() -> None:
    messages = steps(2)
    messages[2] = messages[2].model_copy(update={"id": None})
    assert cut(messages, 0, by_id=False).target == (1, 2, 3, 4)


def test_pending_work_alone_says_so() -> None:
    assert cut([HumanMessage("go", id="h1"), LIVE], 0).reason == "pending_only"


def test_keep_first_leaves_the_newer_groups_where_they_are() -> None:
    found = cut(steps(4), 0).keep_first(2)
    assert (found.target, found.islands) == ((1, 2, 3, 4), (5, 6, 7, 8))


# --- Usage from before a checkpoint --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["user", "tool"])
def test_usage_on_the_kept_tail_is_stale_and_on_the_next_answer_fresh(role: Any) -> None:
    block = checkpoint_messages(frame("x"), BlockData(last_kept_id="t1", kept_messages=2), role=role, ids=["cp", "cp2"])
    messages = [HumanMessage("go", id="h1"), *block, *step(1), AIMessage("fresh", id="a2")]
    assert find_stale_before(messages) == len(messages) - 1


def test_without_ids_the_number_of_kept_messages_says_what_is_stale() -> None:
    block = checkpoint_messages(frame("x"), BlockData(kept_messages=2), role="user", ids=[])
    messages = [HumanMessage("go"), *block, RECOVERED, *step(1), AIMessage("fresh")]
    assert find_stale_before(messages) == 5


def test_the_kept_message_is_found_by_id_after_others_were_inserted() -> None:
    messages = [HumanMessage("go", id="h1"), BLOCK, SystemMessage("new", id="s"), *step(1), AIMessage("fresh", id="a2")]
    assert find_stale_before(messages) == 5


def test_a_block_made_by_somebody_else_makes_all_usage_stale() -> None:
    block = HumanMessage("<memory_block_current>\nold work\n</memory_block_current>")
    assert find_stale_before([HumanMessage("go"), block, *step(1)]) == 4


def test_without_a_checkpoint_no_usage_is_stale() -> None:
    assert find_stale_before(steps(2)) == 0


# --- Properties ----------------------------------------------------------------------------------------------------------------------

keeps = st.one_of(st.none(), st.integers(0, 9))


@settings(max_examples=300)
@given(histories(max_steps=10, ids=("present", "missing", "mixed", "doubled")), keeps)
def test_the_target_never_holds_what_must_stay(messages: list[BaseMessage], keep: int | None) -> None:
    found = cut(messages, keep)
    groups = group_messages(messages, start=found.round_start)
    pending = {i for group in groups if group.state == "pending" for i in range(group.start, group.stop)}
    for i in found.target:
        assert max(found.round_start, found.prefix_stop) <= i < found.tail_start
        assert i not in pending
        assert not isinstance(messages[i], SystemMessage)
        assert not is_native_compaction(messages[i])
        assert not is_interim(messages[i])
        assert not is_real_user(messages[i])


@given(histories(max_steps=10, ids=("present", "missing")), keeps)
def test_every_message_behind_the_border_is_in_exactly_one_place(messages: list[BaseMessage], keep: int | None) -> None:
    found = cut(messages, keep)
    between = sorted((*found.own, *(i for group in found.groups for i in group), *found.islands))
    assert between == list(range(found.prefix_stop, max(found.tail_start, found.prefix_stop)))


@given(histories(max_steps=10, ids=("present", "missing")), keeps)
def test_calls_and_results_are_never_parted(messages: list[BaseMessage], keep: int | None) -> None:
    gone = set(cut(messages, keep).target)
    assert all((result in gone) == (owner in gone) for result, (owner, _) in results_of(messages).items())


@given(histories(max_steps=10, ids=("present", "missing")), st.integers(0, 9))
def test_at_least_keep_recent_messages_of_the_round_stay(messages: list[BaseMessage], keep: int) -> None:
    found = cut(messages, keep)
    assert len(messages) - found.tail_start >= min(keep, len(messages) - found.prefix_stop)


@settings(max_examples=300)
@given(valid_histories(max_steps=8, ids=("present", "missing")), keeps, st.sampled_from(["user", "tool"]))
def test_a_checkpoint_for_the_target_leaves_a_valid_history_valid(messages: list[BaseMessage], keep: int | None, role: Any) -> None:
    found = cut(messages, keep)
    if not found.groups:
        return
    adjacent = len(found.target) > 1 and found.target[1] == found.target[0] + 1
    new = checkpoint_messages(frame("x"), BlockData(), role=role if adjacent else "user", ids=[messages[i].id for i in found.target])
    assert pairing_faults(splice(messages, found.target, new, {})) == []


@given(histories(max_steps=10), keeps)
def test_cutting_does_not_touch_the_messages(messages: list[BaseMessage], keep: int | None) -> None:
    before = dump(messages)
    cut(messages, keep)
    find_stale_before(messages)
    assert dump(messages) == before


@given(histories(max_steps=10, ids=("present",)), keeps)
def test_own_blocks_are_no_new_work(messages: list[BaseMessage], keep: int | None) -> None:
    found = cut(messages, keep)
    assert all(is_own(messages[i]) for i in found.own)
    assert all(not all(is_own(messages[i]) for i in group) for group in found.groups)


def test_cutting_takes_linear_time() -> None:
    small, large = steps(500), steps(5000)
    assert _seconds(large) < 30 * _seconds(small) + 0.02


def _seconds(messages: list[BaseMessage]) -> float:
    best = float("inf")
    for _ in range(3):
        begun = time.process_time()
        cut(messages, 3)
        best = min(best, time.process_time() - begun)
    return best


# --- Pins ----------------------------------------------------------------------------------------------------------------------------


def test_a_pinned_message_stays_with_its_whole_group_and_work_on_both_sides_goes() -> None:
    messages = steps(4)
    messages[4] = messages[4].model_copy(update={"additional_kwargs": {"pinned": True}})
    found = cut(messages, 0)
    assert ids(messages, found.target) == ["a1", "t1", "a3", "t3", "a4", "t4"]
    assert ids(messages, found.islands) == ["a2", "t2"]


def test_where_everything_is_pinned_nothing_goes() -> None:
    messages = [message.model_copy(update={"additional_kwargs": {"pinned": True}}) for message in steps(2)]
    found = cut(messages, 0)
    assert (found.target, found.reason) == ((), "no_compressible_span")
