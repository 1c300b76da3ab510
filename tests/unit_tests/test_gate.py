"""The last check: nothing outside the target may be missing, changed or moved, and no pair may be broken that was whole."""

from __future__ import annotations

from builders import call, step, steps
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from strategies import histories, valid_histories

from langgraph_roundcompact._gate import faults, whole
from langgraph_roundcompact._memory_block import BlockData, checkpoint_messages, frame
from langgraph_roundcompact._spans import cut_round
from langgraph_roundcompact._splice import splice

BLOCK = HumanMessage("block", id="a1")


def test_a_valid_history_has_no_faults() -> None:
    assert faults(steps(3)) == 0


def test_orphans_and_abandoned_calls_are_faults() -> None:
    dead = AIMessage("", tool_calls=[call("dead"), call("dead2")])
    assert faults([dead, *steps(1), ToolMessage("x", tool_call_id="gone")]) == 3


def test_the_live_call_is_no_fault() -> None:
    assert faults([*steps(1), AIMessage("", tool_calls=[call("live")])]) == 0


def test_a_compacted_list_passes() -> None:
    before = steps(3)
    assert whole(before, splice(before, [1, 2, 3, 4], [BLOCK], {}), [1, 2, 3, 4])


def test_a_missing_message_fails() -> None:
    before = steps(3)
    assert not whole(before, [before[0], BLOCK, before[5]], [1, 2, 3, 4])


def test_a_message_in_another_place_fails() -> None:
    before = [*steps(2), HumanMessage("x", id="x")]
    assert not whole(before, [before[0], BLOCK, before[5], before[3], before[4]], [1, 2])


def test_an_equal_copy_in_the_place_of_a_preserved_message_fails() -> None:
    before = steps(2)
    assert not whole(before, [before[0].model_copy(), BLOCK, *before[3:]], [1, 2])


def test_half_a_pair_fails() -> None:
    before = steps(2)
    assert not whole(before, [before[0], BLOCK, *before[2:]], [1])


def test_a_repaired_pair_does_not_pay_for_a_broken_one() -> None:
    """Counting faults would let this pass: one orphan goes, one new orphan comes."""
    before = [HumanMessage("go"), ToolMessage("x", tool_call_id="gone"), *step(1), *step(2)]
    assert not whole(before, [before[0], BLOCK, before[3], *before[4:]], [1, 2])


@given(valid_histories(max_steps=8), st.one_of(st.none(), st.integers(0, 6)))
def test_what_the_package_makes_of_a_history_passes(messages: list[BaseMessage], keep: int | None) -> None:
    found = cut_round(messages, keep_recent=keep)
    new = checkpoint_messages(frame("x"), BlockData(), role="user", ids=[messages[i].id for i in found.target])
    assert whole(messages, splice(messages, found.target, new, {}), found.target)


@given(histories(max_steps=8), st.one_of(st.none(), st.integers(0, 6)))
def test_also_of_a_broken_one(messages: list[BaseMessage], keep: int | None) -> None:
    found = cut_round(messages, keep_recent=keep)
    new = checkpoint_messages(frame("x"), BlockData(), role="user", ids=[messages[i].id for i in found.target])
    assert whole(messages, splice(messages, found.target, new, {}), found.target)
