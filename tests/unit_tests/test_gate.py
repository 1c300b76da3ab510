"""The last check: nothing outside the target may be missing, changed or moved, and no pair may be broken that was whole.

And what stands around it in a step: when nothing is replaced although a summary was made, and that this is said truly.
"""

from __future__ import annotations

from typing import Any

import pytest
from builders import call, step, steps
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from procedures import BOTH, compact, compactor, history, summariser
from strategies import histories, valid_histories

from langgraph_roundcompact import _engine
from langgraph_roundcompact._gate import faults, whole
from langgraph_roundcompact._memory_block import BlockData, checkpoint_messages, frame
from langgraph_roundcompact._spans import cut_round
from langgraph_roundcompact._splice import splice
from langgraph_roundcompact.compactor import Door

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


@BOTH
def test_a_checkpoint_as_large_as_what_it_replaces_changes_nothing(how: str) -> None:
    """One message of 400 tokens in the place of one of 400 tokens gains nothing, and so costs nothing."""
    subject = compactor(summariser("NOTES"), token_counter=lambda messages: 400 * len(messages))
    messages = [HumanMessage("go", id="h"), AIMessage("thinking aloud", id="a"), AIMessage("", tool_calls=[call("live")], id="live")]
    result = compact(how, subject, messages, force=True)
    assert (result.outcome, result.reason, result.changed) == ("no_benefit", "not_smaller", False)


@BOTH
def test_groups_that_the_narrative_does_not_cover_stay(how: str) -> None:
    """Notes that reach to the second step replace two steps, whatever else stands in the target."""
    messages = history(1, 2, 3, 4)
    result = compact(how, compactor(None, session_memory=lambda state: ("Supplier A is done.", "t2")), messages)
    assert result.outcome == "summarised"
    assert result.messages[2:] == messages[5:]


@BOTH
def test_a_summary_that_succeeds_ends_the_row_of_failures(how: str) -> None:
    """Two failures, a success, two failures: the breaker, which opens at three in a row, stays closed."""
    down = ConnectionError("no route")
    model = summariser(down, down, "ONE", down, down, "TWO")
    subject = compactor(model, window=20_000, max_retries=0, cooldown_groups=0, breaker_failures=3)
    outcomes = [compact(how, subject, history(1, 2), thread_id="t").outcome for _ in range(3)]
    outcomes += [compact(how, subject, history(1, 2, 3), thread_id="t").outcome for _ in range(3)]
    assert outcomes == ["failed", "failed", "summarised", "failed", "failed", "summarised"]


@pytest.mark.parametrize(("writes_state", "outcome"), [(True, "below_trigger"), (False, "summarised")])
@BOTH
def test_usage_of_a_shorter_request_is_not_trusted_by_a_door_that_leaves_the_state_alone(how: str, writes_state: bool, outcome: str) -> None:
    """After a restart such a door is given the whole history again, while the last report is of a request that held a checkpoint of it."""
    messages = history(1, 2, 3, 4)
    messages[-2] = messages[-2].model_copy(update={"usage_metadata": {"input_tokens": 300, "output_tokens": 10, "total_tokens": 310}})
    subject = compactor(summariser("NOTES"), trigger=3000, window=10_000)
    assert compact(how, subject, messages, door=Door(writes_state=writes_state)).outcome == outcome


@pytest.mark.parametrize("force", [False, True])
@BOTH
def test_a_history_that_another_summarisation_keeps_is_left_alone(how: str, force: bool) -> None:
    """deepagents counts positions of the list in state: a checkpoint in it would move them."""
    state = {"messages": history(1, 2), "_summarization_event": {"cutoff_index": 1}}
    result = compact(how, compactor(summariser("NOTES")), state, force=force)
    assert (result.outcome, result.reason, result.changed) == ("stood_down", "foreign_compaction", False)
    assert compactor().plan(state, force=force).reason == "foreign_compaction"


@pytest.mark.parametrize("answer", ["perhaps", {"action": "edit", "summary": " "}, None, 7], ids=repr)
@BOTH
def test_an_answer_to_a_review_that_means_nothing_is_a_no(how: str, answer: Any) -> None:
    """It replaces nothing, and it is no failure of the summariser, so it opens no breaker."""
    result = compact(how, compactor(summariser("NOTES")), history(1, 2), door=Door(review=lambda review: answer))
    assert (result.outcome, result.reason, result.changed) == ("stood_down", "rejected", False)


@BOTH
def test_a_list_that_lost_a_message_is_never_returned(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last check stands between a fault of the package and the state: the window stays, and the result says so."""
    monkeypatch.setattr(_engine, "splice", lambda messages, replaced, new, folded: [*new, *messages[max(replaced) + 1 :]])
    messages = history(1, 2, 3)
    result = compact(how, compactor(summariser("NOTES")), messages)
    assert (result.outcome, result.reason, result.changed) == ("failed", "invalid_result", False)
    assert result.messages == messages


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
