"""Replay: what it counts, and that each of its checks really catches the fault it is there for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage

from langgraph_roundcompact import RoundCompactConfig
from langgraph_roundcompact.loaders import Conversation, load_conversation
from langgraph_roundcompact.replay import Replay

SHARED = Path(__file__).parents[3] / "shared" / "traces"


def pair(i: int, size: int = 1200) -> list[BaseMessage]:
    call = {"id": f"c{i}", "name": "read", "args": {"path": f"f{i}.py"}, "type": "tool_call"}
    return [AIMessage("", id=f"a{i}", tool_calls=[call]), ToolMessage(f"line {i} " + "x y " * (size // 4), id=f"t{i}", tool_call_id=f"c{i}")]


def talk(pairs: int = 12, *, more: tuple[BaseMessage, ...] = ()) -> Conversation:
    work = [message for i in range(pairs) for message in pair(i)]
    return Conversation(name="talk", messages=(SystemMessage("Be brief.", id="s"), HumanMessage("Fix it.", id="u"), *work, *more))


def replay(**config: Any) -> Replay:
    return Replay(config=RoundCompactConfig(context_window_tokens=3000, **config))


def test_a_step_for_each_model_call_and_one_at_the_end():
    report = replay().play(talk(3, more=(AIMessage("Done.", id="z"),)))
    assert [(step.position, step.model_call) for step in report.steps] == [(2, True), (4, True), (6, True), (8, True), (9, False)]
    report = replay().play(talk(3))
    assert [(step.position, step.model_call) for step in report.steps] == [(2, True), (4, True), (6, True), (8, True)]


def test_a_small_conversation_is_left_alone():
    report = replay().play(talk(2))
    figures = report.as_dict()
    assert (figures["compactions"], figures["invariant_failures"], figures["events"]) == (0, [], [])
    assert figures["input_tokens_with"] == figures["input_tokens_without"]


def test_a_long_round_is_compacted_and_costs_less():
    report = replay().play(talk(30))
    figures = report.as_dict()
    assert report.failures == []
    assert report.compactions >= 2
    assert figures["input_tokens_with"] < figures["input_tokens_without"] / 2
    assert figures["largest_window_with"] < 3000 < figures["largest_window_without"]
    assert {event["outcome"] for event in figures["events"]} == {"digested", "tiers_sufficed"}
    assert len(figures["events"]) == report.compactions + figures["folds_only"]


def test_sums_are_those_of_whole_lists():
    """Windows are counted as messages arrive; the result must be what counting the whole list gives."""
    player, conversation = replay(), talk(30)
    last = player.play(conversation).steps[-1]
    assert last.tokens_recorded == player.compactor.count_tokens(conversation.messages)


def test_recorded_usage_does_not_trigger():
    """It tells the size of requests that the replay does not make."""
    usage = {"input_tokens": 2900, "output_tokens": 50, "total_tokens": 2950}
    messages = [m.model_copy(update={"usage_metadata": usage}) if isinstance(m, AIMessage) else m for m in talk(3).messages]
    assert replay().play(Conversation(name="talk", messages=tuple(messages))).compactions == 0


def test_replaying_twice_gives_the_same_report():
    player = replay()
    assert player.play(talk(30)) == player.play(talk(30)) == replay().play(talk(30))


def test_the_conversation_is_not_touched():
    conversation = talk(30)
    before = repr([message.__dict__ for message in conversation.messages])
    replay().play(conversation)
    assert repr([message.__dict__ for message in conversation.messages]) == before


def test_a_later_round_keeps_the_block_of_the_earlier_one():
    later = [HumanMessage("And now the tests.", id="u2"), *(message for i in range(50, 80) for message in pair(i))]
    report = replay().play(talk(30, more=tuple(later)))
    assert report.failures == []
    assert report.compactions >= 2


@pytest.mark.parametrize("keep", [0, 1, 4])
def test_messages_to_keep_are_kept(keep):
    report = replay(keep_recent_messages=keep).play(talk(30))
    assert (report.failures, report.compactions > 0) == ([], True)


@pytest.mark.parametrize("size", [0, 1])
def test_very_short_recordings(size):
    assert replay().play(Conversation(name="x", messages=talk().messages[:size] or (HumanMessage("hi", id="m"),))).failures == []


# --- faults that must be found --------------------------------------------------------------------------------------------------------

Fault = Callable[[list[BaseMessage]], list[BaseMessage]]

BLOCK = "<memory_block_current>\n<summary>\nwork\n</summary>\n</memory_block_current>"


def block(message_id: str) -> HumanMessage:
    marks = {"lc_source": "round_compaction", "lc_data": {"kind": "checkpoint", "version": 1}}
    return HumanMessage(BLOCK, id=message_id, additional_kwargs=marks)


def gone(*ids: str) -> list[BaseMessage]:
    return [RemoveMessage(id=message_id) for message_id in ids]


def work(state: list[BaseMessage], stop: int = -2) -> list[str]:
    return [message.id or "" for message in state[2:stop]]


def good(state: list[BaseMessage]) -> list[BaseMessage]:
    first, *others = work(state)
    return [block(first), *gone(*others)]


def mutates(state: list[BaseMessage]) -> list[BaseMessage]:
    state[1].additional_kwargs["seen"] = True
    return good(state)


def longer(state: list[BaseMessage]) -> list[BaseMessage]:
    first, *others = work(state)
    return [block(first).model_copy(update={"content": BLOCK.replace("work", "w o r k " * 9000)}), *gone(*others)]


def swapped(state: list[BaseMessage]) -> list[BaseMessage]:
    """The last result under the id of the last call and the other way round: order by id is kept, messages are not."""
    call, result = state[-2:]
    return [*good(state), result.model_copy(update={"id": call.id}), call.model_copy(update={"id": result.id})]


FAULTS: dict[str, tuple[Fault, str]] = {
    "the request is removed": (lambda s: [*good(s), *gone("u")], "message u of the preserved prefix is gone"),
    "the system prompt is removed": (lambda s: [*good(s), *gone("s")], "message s of the preserved prefix is gone"),
    "the request is changed": (lambda s: [*good(s), s[1].model_copy(update={"name": "bob"})], "message u of the preserved prefix changed"),
    "the request is changed in place": (mutates, "message u of the preserved prefix changed"),
    "a result without its call": (lambda s: [block(s[2].id or ""), *gone(*work(s, -3)[1:], s[-4].id or "")], "pairing faults instead of 0"),
    "a call without its result": (lambda s: [*good(s), *gone(s[-1].id or "")], "no longer the end of the list"),
    "a message to keep is removed": (lambda s: [*good(s), *gone(s[-1].id or "", s[-2].id or "")], "no longer the end of the list"),
    "a message to keep is rewritten": (
        lambda s: [*good(s), s[-1].model_copy(update={"content": "changed " * 900})],
        "neither as recorded nor folded",
    ),
    "messages to keep change places": (swapped, "neither as recorded nor folded"),
    "two blocks": (lambda s: [block(s[2].id or ""), block(s[3].id or ""), *gone(*work(s)[2:])], "a second memory block"),
    "a new id": (lambda s: [*good(s), block("new")], "message new is new"),
    "the window grows": (longer, "the window went from"),
}


class Faulty:
    """A node that does something wrong when the window has grown to ten messages."""

    def __init__(self, player: Replay, fault: Fault) -> None:
        self.inner, self.fault = player._node, fault

    def invoke(self, state: dict[str, Any], config: Any = None) -> dict[str, Any]:
        messages = state["messages"]
        self.inner.invoke(state)  # so that there is a result to tell
        return {"messages": self.fault(messages)} if len(messages) == 12 else {}


def played(fault: Fault, **config: Any) -> list[str]:
    player = replay(trigger_token_threshold=10**9, **config)
    player._node = Faulty(player, fault)
    return player.play(talk(5)).failures


def test_the_right_update_has_no_fault():
    assert played(good) == []


@pytest.mark.parametrize(("fault", "words"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_found(fault, words):
    failures = played(fault)
    assert any(words in failure for failure in failures), failures
    assert all(failure.startswith("message 12: ") for failure in failures)


def test_a_fold_of_a_message_to_keep_by_number_is_found():
    def fold(state: list[BaseMessage]) -> list[BaseMessage]:
        return [*good(state), state[-1].model_copy(update={"content": "short"})]

    assert played(fold) == []
    assert any("protected tail changed" in failure for failure in played(fold, keep_recent_messages=2))


def test_a_block_as_call_and_result_is_one_block():
    assert replay(checkpoint_role="tool").play(talk(30)).failures == []


def test_a_second_compaction_right_after_is_found():
    class Restless(Faulty):
        def invoke(self, state: dict[str, Any], config: Any = None) -> dict[str, Any]:
            self.inner.invoke(state)
            messages = state["messages"]
            return {"messages": [block(messages[2].id or ""), *gone(messages[3].id or "")]} if len(messages) > 11 else {}

    player = replay(trigger_token_threshold=10**9)
    player._node = Restless(player, good)
    assert any("a second check right after" in failure for failure in player.play(talk(6)).failures)


def test_a_system_message_in_the_round_must_stay():
    def drop(state: list[BaseMessage]) -> list[BaseMessage]:
        return [block(state[3].id or ""), *gone("mid", *(m.id or "" for m in state[4:-2]))]

    messages = list(talk(5).messages)
    messages.insert(2, SystemMessage("The disk is nearly full.", id="mid"))
    player = replay(trigger_token_threshold=10**9)
    node = Faulty(player, drop)
    player._node = node
    failures = player.play(Conversation(name="x", messages=tuple(messages[:-1]))).failures
    assert any("system message mid is gone" in failure for failure in failures), failures


@pytest.mark.skipif(not SHARED.exists(), reason="recorded transcripts are not here")
@pytest.mark.parametrize(
    "name", ["transcripts/deer1-zh-food-delivery", "transcripts/pi-refactor-tui", "odd/odd-deer1-empty-call-ids", "odd/odd-cc-unanswered-call"]
)
def test_recorded_transcripts_hold(name):
    player = Replay(config=RoundCompactConfig(context_window_tokens=20_000))
    report = player.play(load_conversation(SHARED / f"{name}.jsonl"))
    assert report.failures == []
    assert report.compactions + report.as_dict()["folds_only"] > 0
