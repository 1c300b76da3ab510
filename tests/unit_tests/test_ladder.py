"""Folds as steps of a compactor: when they are enough, what they leave for later, and how they last through every kind of door."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from builders import call, dump
from conftest import case_files, examples
from hypothesis import given
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage, convert_to_messages
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph.message import add_messages
from langgraph.store.memory import InMemoryStore
from procedures import BOTH, compact, compactor, summariser
from scenes import Scene, must_stay, scenes

import langgraph_roundcompact
from langgraph_roundcompact import RoundCompactConfig, RoundCompactor, StoreArchive
from langgraph_roundcompact._folded import carried_facts, is_folded
from langgraph_roundcompact._memory_block import is_checkpoint
from langgraph_roundcompact._trigger import Failures, Sizes, decide, is_cooling_down, is_due, is_outgrown, recent_growth
from langgraph_roundcompact._window import Limits
from langgraph_roundcompact.compactor import Door
from langgraph_roundcompact.testing import pairing_faults
from langgraph_roundcompact.tiers import BUILT_IN_TIERS, single_fold

VIEW = Door(channel="replace", writes_state=False)
"""A door that leaves the state alone."""


def report(number: int, lines: int = 800) -> str:
    rows = [f"row {i}: nothing to see" for i in range(lines)]
    rows[lines // 2] = f"ERROR worker-{number}: connection to db-{number}.internal:54{number:02} refused (ticket OPS-{number}77)"
    return "\n".join(rows)


def step(number: int, text: str | None = None, total: int = 0, **fields: Any) -> list[BaseMessage]:
    """A step with a long report; `total`: the usage its answer was reported with."""
    usage: Any = {"input_tokens": total - 10, "output_tokens": 10, "total_tokens": total} if total else None
    return [
        AIMessage("", tool_calls=[call(f"c{number}", "look_up", key=f"k{number}")], id=f"a{number}", usage_metadata=usage),
        ToolMessage(report(number) if text is None else text, tool_call_id=f"c{number}", name="look_up", id=f"t{number}", **fields),
    ]


def window(*numbers: int, **more: Any) -> list[BaseMessage]:
    """A request and steps of about 4,600 tokens each by the plain counter."""
    return [HumanMessage("Why is it slow?", id="h"), *(message for number in numbers for message in step(number, **more))]


def subject(model: Any = None, **more: Any) -> RoundCompactor:
    """A window of 20,000 tokens, a trigger of 16,000, a target of 10,000, all tiers."""
    return compactor(model, **{"trigger": None, "window": 20_000, "tiers": BUILT_IN_TIERS, "keep_recent_messages": None, **more})


def folds(messages: list[BaseMessage]) -> list[str | None]:
    return [message.id for message in messages if is_folded(message)]


# --- when folds are enough -------------------------------------------------------------------------------------------------------------


@BOTH
def test_where_folds_reach_the_target_no_model_is_asked(how: str) -> None:
    model = summariser("NOTES")
    before = window(1, 2, 3, 4)
    result = compact(how, subject(model), before)
    assert (result.outcome, result.reason, result.changed, result.compacted) == ("tiers_sufficed", "reached_threshold", True, False)
    assert model.requests == []
    assert result.tokens_after <= 10_000 < 16_000 <= result.tokens_before
    assert folds(result.messages) == ["t1", "t2", "t3"]
    assert [message.id for message in result.messages] == [message.id for message in before]
    assert [message.id for message in result.update["messages"]] == ["t1", "t2", "t3"]
    assert add_messages(list(before), result.update["messages"]) == result.messages
    assert str(result.messages[2].content).startswith("[preview of ")


def test_where_they_do_not_the_checkpoint_is_made_from_the_originals() -> None:
    """What the tiers did in the same step is given up: no fold is in the result, and no fact is lost to one."""
    result = subject(target_context_ratio=0.02, keep_recent_messages=0).compact(window(1, 2, 3, 4))
    assert (result.outcome, result.compacted) == ("digested", True)
    assert folds(result.messages) == []
    assert "OPS-177" in str(result.messages[1].content)


def test_when_the_model_step_fails_folds_that_do_not_reach_the_target_are_dropped() -> None:
    before = window(1, 2, 3, 4)
    result = subject(summariser(ValueError("no"), ValueError("no"), ValueError("no")), target_context_ratio=0.02).compact(before)
    assert (result.outcome, result.changed, result.messages) == ("failed", False, before)


def test_when_a_forced_model_step_fails_folds_that_reach_the_target_stay() -> None:
    result = subject(summariser(ValueError("no"), ValueError("no"), ValueError("no"))).compact(window(1, 2, 3, 4), force=True)
    assert (result.outcome, result.changed, result.compacted) == ("tiers_sufficed", True, False)
    assert folds(result.messages) == ["t1", "t2", "t3"]


def test_a_budget_for_the_round_holds_for_folds_too() -> None:
    """The window would be at its target, but the round may take 600 tokens only."""
    result = subject(round_budget_tokens=600, keep_recent_messages=0).compact(window(1, 2, 3, 4))
    assert result.outcome == "digested"


@pytest.mark.parametrize("totals", [(0, 0, 0, 0), (4000, 8000, 12_000, 17_000)], ids=["counted", "reported"])
def test_a_second_check_right_after_does_nothing(totals: tuple[int, ...]) -> None:
    """Also where the answers carry usage of requests in which nothing was folded yet, and after a reload in another process."""
    before = [HumanMessage("Why is it slow?", id="h")]
    for number, total in enumerate(totals, 1):
        before += step(number, total=total)
    first = subject().compact(before)
    assert first.outcome == "tiers_sufficed"
    serde = JsonPlusSerializer()
    for state in (first.messages, serde.loads_typed(serde.dumps_typed(first.messages))):
        second = subject().compact(state)
        assert (second.outcome, second.changed) == ("below_trigger", False)


def test_folds_stay_byte_for_byte_at_every_later_step() -> None:
    """The request is an exact extension of the last one until the next fold, and folded messages never change again."""
    subject_, state, seen = subject(), window(1), {}
    for number in range(2, 12):
        state = add_messages(state, step(number))
        result = subject_.compact(state)
        state = result.messages
        if result.compacted:
            break
        for message in state:
            if is_folded(message):
                assert seen.setdefault(message.id, message.model_dump()) == message.model_dump()
    assert len(seen) >= 4


# --- what folds leave for later --------------------------------------------------------------------------------------------------------


def test_facts_that_a_fold_hid_reach_a_later_checkpoint() -> None:
    """A ticket that stands in the middle of a folded report, and that no preview shows, is in the ledger of the checkpoint."""
    quiet = "\n".join([*(f"row {i}: fine" for i in range(500)), "note: see OPS-4711 in src/net/pool.py:88", *(f"row {i}: fine" for i in range(500))])
    first = subject().compact([HumanMessage("Why is it slow?", id="h"), *step(1, quiet), *window(2, 3, 4)[1:]])
    assert first.outcome == "tiers_sufficed"
    folded = next(message for message in first.messages if message.id == "t1")
    assert "OPS-4711" in {fact.text for fact in carried_facts(folded)}
    second = subject(keep_recent_messages=0).compact(first.messages, force=True)
    assert second.compacted
    assert "OPS-4711" in str(second.messages[1].content)


def test_state_shrinks_by_a_fold_with_all_that_it_carries() -> None:
    serde = JsonPlusSerializer()
    before = window(1, 2, 3, 4)
    after = subject().compact(before).messages
    assert len(serde.dumps_typed(after)[1]) < 0.75 * len(serde.dumps_typed(before)[1])


def test_what_redact_takes_out_is_not_carried() -> None:
    text = report(1) + "\nnote: key ticket-SECRET99 opens src/app.py"
    first = subject(redact=lambda text: text.replace("ticket-SECRET99", "[gone]")).compact(
        [HumanMessage("Why?", id="h"), *step(1, text), *window(2, 3, 4)[1:]]
    )
    assert first.outcome == "tiers_sufficed"
    assert not [fact for message in first.messages for fact in carried_facts(message) if "SECRET99" in fact.text]


# --- archive ---------------------------------------------------------------------------------------------------------------------------


class _Broken(StoreArchive):
    def put(self, *given: Any, **more: Any) -> None:
        raise OSError

    async def aput(self, *given: Any, **more: Any) -> None:
        raise OSError


@BOTH
def test_originals_of_folds_are_archived_and_the_previews_point_to_them(how: str) -> None:
    shelf = StoreArchive(InMemoryStore())
    before = window(1, 2, 3, 4)
    result = compact(how, subject(archive=shelf), before, thread_id="one")
    assert result.outcome == "tiers_sufficed"
    for message, old in zip(result.messages, before, strict=True):
        if is_folded(message):
            pointer = str(message.content).partition("[[COMPRESSION_RECALL: id=")[2].partition("]]")[0]
            record = shelf.get(pointer, thread_id="one")
            assert record is not None
            assert record["messages"][0]["content"] == old.content


@BOTH
def test_without_an_entry_there_is_no_pointer(how: str) -> None:
    result = compact(how, subject(archive=_Broken(InMemoryStore())), window(1, 2, 3, 4))
    assert result.outcome == "tiers_sufficed"
    assert not [message for message in result.messages if "COMPRESSION_RECALL" in str(message.content)]


def test_where_an_archive_is_required_nothing_is_folded_without_it() -> None:
    before = window(1, 2, 3, 4)
    result = subject(archive=_Broken(InMemoryStore()), archive_required=True).compact(before)
    assert (result.outcome, result.reason, result.messages) == ("failed", "archive_failed", before)


# --- doors that leave the state alone --------------------------------------------------------------------------------------------------


@BOTH
def test_folds_stand_in_at_later_steps_of_a_door_that_writes_no_state(how: str) -> None:
    """It is given the whole history each time; the model sees an extension of what it saw."""
    subject_, given = subject(), window(1, 2, 3, 4)
    first = compact(how, subject_, given, door=VIEW)
    assert first.outcome == "tiers_sufficed"
    given = [*given, *step(5, "short")]
    second = compact(how, subject_, given, door=VIEW)
    assert (second.outcome, second.changed) == ("below_trigger", True)
    assert dump(second.messages[: len(first.messages)]) == dump(first.messages)
    assert second.messages[-2:] == given[-2:]


def test_later_folds_and_a_checkpoint_come_on_top_of_those_that_stand_in() -> None:
    subject_, given, seen, outcomes = subject(), window(1), {}, []
    for number in range(2, 14):
        given = [*given, *step(number)]
        result = subject_.compact(given, door=VIEW)
        outcomes.append(result.outcome)
        assert pairing_faults(result.messages) == []
        assert subject_.count_tokens(result.messages) < 16_000
        seen |= {message.id: message.content for message in result.messages if is_folded(message) and message.id not in seen}
        assert all(seen[message.id] == message.content for message in result.messages if is_folded(message))
    assert outcomes.count("tiers_sufficed") >= 2
    forced = subject_.compact(given, door=VIEW, force=True)
    assert forced.compacted
    after = subject_.compact([*given, *step(14, "short")], door=VIEW)
    assert sum(map(is_checkpoint, after.messages)) == 1
    assert dump(after.messages[:-2]) == dump(forced.messages)


def test_another_process_folds_the_same_messages_into_the_same_bytes() -> None:
    given = window(1, 2, 3, 4)
    assert dump(subject().compact(given, door=VIEW).messages) == dump(subject().compact(given, door=VIEW).messages)


# --- tiers of others -------------------------------------------------------------------------------------------------------------------


def clip(target: Any, context: Any) -> list[BaseMessage]:
    return [m.model_copy(update={"content": str(m.content)[:400]}) if isinstance(m, ToolMessage) else m for m in target]


def test_what_a_tier_of_the_users_changes_is_marked_and_never_changed_again() -> None:
    """`clip` would go on clipping whatever it is given."""

    def shorter(target: Any, context: Any) -> list[BaseMessage]:
        return [m.model_copy(update={"content": str(m.content)[:50]}) if isinstance(m, ToolMessage) else m for m in target]

    first = subject(tiers=(clip,)).compact(window(1, 2, 3, 4))
    assert (first.outcome, folds(first.messages)) == ("tiers_sufficed", ["t1", "t2", "t3"])
    assert first.messages[2].additional_kwargs["lc_data"]["tier"] == "clip"
    assert first.messages[2].additional_kwargs["lc_data"]["characters"] == len(report(1))
    second = subject(tiers=(shorter,)).compact([*first.messages, *step(5), *step(6), *step(7)])
    assert dump(second.messages[:7]) == dump(first.messages[:7])
    assert folds(second.messages) == ["t1", "t2", "t3", "t4", "t5", "t6"]


def test_pinned_messages_stay_whatever_a_tier_does() -> None:
    before = window(1, 2, 3, 4)
    before[2] = before[2].model_copy(update={"additional_kwargs": {"pinned": True}})
    assert folds(subject(tiers=(clip,)).compact(before).messages) == ["t2", "t3"]
    everything_first = subject(tiers=(lambda target, context: target[2:], clip)).compact(before)
    assert everything_first.messages[2] is before[2]


def test_what_a_tier_leaves_out_is_noted_on_what_stays() -> None:
    """Reported usage is of the longer request, and the facts of what went are still due."""
    before = [HumanMessage("Why is it slow?", id="h"), *step(1, total=4000), *step(2, total=8000), *step(3, total=10_000), *step(4, total=12_500)]
    first = subject(tiers=(lambda target, context: target[4:],)).compact(before)
    assert first.outcome == "tiers_sufficed"
    assert [message.id for message in first.messages] == ["h", "a3", "t3", "a4", "t4"]
    assert "OPS-177" in {fact.text for message in first.messages for fact in carried_facts(message)}
    assert subject().compact(first.messages).outcome == "below_trigger"


@pytest.mark.parametrize(
    "tier",
    [
        lambda target, context: target[::-1],
        lambda target, context: target[:1],
        lambda target, context: [HumanMessage("x", id="a1"), *target[1:]],
        lambda target, context: [*target[:1], target[1].model_copy(update={"tool_call_id": "other", "content": ""}), *target[2:]],
        lambda target, context: [message.model_copy(update={"id": "new"}) for message in target],
        lambda target, context: [message.model_copy(update={"content": "x" * 99_999}) for message in target],
        lambda target, context: [],
        lambda target, context: None,
    ],
    ids=["another order", "half a group", "another type", "another call", "other ids", "larger", "nothing", "no list"],
)
def test_what_cannot_be_used_of_a_tier_is_not_used(tier: Any) -> None:
    before = window(1, 2, 3, 4)
    result = subject(summariser(ValueError("no"), ValueError("no"), ValueError("no")), tiers=(tier,)).compact(before)
    assert (result.outcome, result.messages) == ("failed", before)


# --- results that the model has not read yet -------------------------------------------------------------------------------------------


@BOTH
def test_an_unread_result_larger_than_the_window_is_folded_in_place(how: str) -> None:
    """Nothing else could save the next request. Head and tail stay, and so does everything but the content; under a second."""
    text = "HEAD-MARK " + "m" * 400_000 + " MID-MARK " + "m" * 400_000 + " TAIL-MARK"
    before = window(1, 2) + step(3, text, status="success", artifact={"rows": 1})
    shelf = StoreArchive(InMemoryStore())
    subject_ = subject(archive=shelf, trigger=10_000, window=32_000)
    start = time.process_time()
    result = compact(how, subject_, before)
    assert time.process_time() - start < 1
    assert (result.outcome, result.compacted) == ("tiers_sufficed", False)
    last = result.messages[-1]
    assert {**last.model_dump(), "content": "", "additional_kwargs": {}} == {**before[-1].model_dump(), "content": "", "additional_kwargs": {}}
    assert "HEAD-MARK" in str(last.content)
    assert "TAIL-MARK" in str(last.content)
    assert subject_.count_tokens(result.messages) < 10_000
    assert "COMPRESSION_RECALL" in str(last.content)
    again = compact(how, subject_, result.messages)
    assert (again.changed, again.messages) == (False, result.messages)


@BOTH
def test_an_unread_result_that_cannot_be_archived_stays_whole(how: str) -> None:
    """The model has not read it yet: without its original it would be lost, and a pointer in its preview would be false."""
    before = step(1, "HEAD-MARK " + "m" * 400_000)
    before = [HumanMessage("Why is it slow?", id="h"), *before]
    result = compact(how, subject(archive=_Broken(InMemoryStore()), trigger=10_000, window=32_000), before)
    assert (result.changed, result.messages) == (False, before)


@pytest.mark.parametrize("share", [0.4, 0.7, 1.0])
def test_a_window_after_folds_is_told_in_the_unit_of_the_one_before(share: float) -> None:
    """A provider that reports fewer tokens than the counter finds: a gain is worth as much less as the window is, and no window is below zero."""
    before = [*window(*range(1, 11)), AIMessage("Next.", id="a")]
    counted = subject().count_tokens(before)
    before[-1] = AIMessage("Next.", id="a", usage_metadata={"input_tokens": 1, "output_tokens": 1, "total_tokens": int(counted * share)})
    result = subject(window=int(counted * share)).compact(before)
    assert (result.outcome, result.tokens_before) == ("tiers_sufficed", int(counted * share))
    assert result.tokens_after == pytest.approx(share * subject().count_tokens(result.messages), rel=0.05)


def test_the_gain_of_an_unread_result_is_told_as_it_was_counted() -> None:
    """No report covers it, however far what is reported lies below the count."""
    answer = AIMessage("", tool_calls=[call("c2", "look_up")], id="a2", usage_metadata={"input_tokens": 1, "output_tokens": 1, "total_tokens": 2_000})
    before = [*window(1), answer, ToolMessage(report(2, lines=8_000), tool_call_id="c2", id="t2")]
    result = subject().compact(before)
    assert (result.outcome, folds(result.messages)) == ("tiers_sufficed", ["t2"])
    assert result.tokens_after == 2_000 + subject().count_tokens(result.messages[-1:])


def test_older_work_is_compacted_in_the_same_step_where_that_is_due_too() -> None:
    before = window(1, 2, 3, 4, 5, 6) + step(7, "z" * 200_000)
    result = subject(tiers=(single_fold,), target_context_ratio=0.02).compact(before)
    assert (result.outcome, result.compacted) == ("digested", True)
    assert folds(result.messages) == ["t7"]
    assert result.tokens_after < result.tokens_before


def test_an_unread_result_within_the_window_stays() -> None:
    before = window(1, 2) + step(3, "z " * 30_000)
    result = subject().compact(before)
    assert result.messages[-1] is before[-1]


def test_pending_work_is_not_folded_however_large() -> None:
    live = AIMessage("", tool_calls=[call("c8", "look_up"), call("c9", "look_up")], id="a8")
    before = [*window(1), live, ToolMessage("z" * 400_000, tool_call_id="c8", id="t8")]
    result = subject().compact(before)
    assert result.messages[-2:] == before[-2:]


# --- when to act -----------------------------------------------------------------------------------------------------------------------


class TestGrowth:
    """The documented border is moved only by reported steps so large that the next one would overflow the capacity."""

    LIMITS = Limits(capacity=10_000, trigger=8000, target=5000)

    def reported(self, *totals: int) -> list[BaseMessage]:
        return [message for number, total in enumerate(totals, 1) for message in step(number, "short", total=total)]

    def test_the_largest_of_the_last_three_steps_counts(self) -> None:
        assert recent_growth(self.reported(500, 4000, 4100, 6100, 6400)) == 2000
        assert recent_growth(self.reported(500, 4500, 4600, 4700, 4800)) == 100
        assert recent_growth(self.reported(9000, 8000, 7000, 6000)) == 0

    def test_a_report_that_the_meter_would_not_trust_is_none(self) -> None:
        """Both read reports by one rule: a total of more tokens than any model has says nothing."""
        before = self.reported(500, 4000, 4100, 6100, 6400)
        usage = {"input_tokens": 10**9, "output_tokens": 10, "total_tokens": 10**9 + 10}
        before[-2] = before[-2].model_copy(update={"usage_metadata": usage})
        assert recent_growth(before) == 0

    def test_too_few_reports_are_none(self) -> None:
        assert recent_growth(self.reported(500, 3500, 6500)) == 0
        assert recent_growth(self.reported(500, 2000, 0, 5000, 7000)) == 0
        assert recent_growth(self.reported(500, 2000, 4000, 6000), start=2) == 0
        assert recent_growth([]) == 0

    @pytest.mark.parametrize(
        ("size", "growth", "due"),
        [(7999, 0, False), (8000, 0, True), (7999, 2001, False), (7999, 2002, True), (5000, 5000, False), (5000, 5001, True)],
    )
    def test_a_window_is_due_at_the_trigger_and_where_the_next_step_would_overflow(self, size: int, growth: int, due: bool) -> None:
        config = RoundCompactConfig(context_window_tokens=10_000)
        assert is_due(config, self.LIMITS, size, growth) is due

    def test_an_absolute_trigger_is_meant_literally(self) -> None:
        assert not is_due(RoundCompactConfig(trigger_token_threshold=8000), self.LIMITS, 7999, 9000)

    def test_a_window_that_the_next_step_would_overflow_is_compacted_before_the_trigger(self) -> None:
        before = [HumanMessage("Why is it slow?", id="h")]
        for number, total in enumerate((1000, 5500, 10_000, 15_500), 1):
            before += step(number, total=total) if number < 4 else step(number, "short", total=total)
        result = subject().compact(before)
        assert 15_500 < result.tokens_before < 16_000
        assert result.outcome == "tiers_sufficed"
        assert subject().compact(result.messages).outcome == "below_trigger"
        assert subject().compact(before[:-2]).outcome == "below_trigger"


class TestDecision:
    """What is due, and what is too little to make a block of."""

    LIMITS = Limits(capacity=10_000, trigger=8000, target=5000)

    @pytest.mark.parametrize(("new_work", "outcome"), [(1000, None), (999, "target_below_min"), (0, "nothing_to_compact")])
    def test_new_work_of_exactly_the_minimum_is_enough(self, new_work: int, outcome: str | None) -> None:
        sizes = Sizes(window=8000, target=new_work + 2000, new_work=new_work)
        assert decide(RoundCompactConfig(context_window_tokens=10_000), sizes, self.LIMITS, force=False).outcome == outcome

    @pytest.mark.parametrize(
        ("failed_at", "size", "groups", "outgrown"),
        [(9000, 10_000, 6, True), (9000, 9999, 6, False), (10_000, 11_000, 6, False), (9000, 10_000, 5, False)],
        ids=["grown past the capacity", "not yet", "past it before", "no new group"],
    )
    def test_a_window_is_outgrown_once_new_work_takes_it_past_the_capacity(self, failed_at: int, size: int, groups: int, outgrown: bool) -> None:
        sizes = Sizes(window=size, target=size, new_work=size)
        assert is_outgrown(self.LIMITS, sizes, Failures(1, 5, failed_at), groups) is outgrown


class TestCoolDown:
    """After a failure: enough new groups, and some new tokens in them."""

    LIMITS = Limits(capacity=10_000, trigger=8000, target=5000)

    @pytest.mark.parametrize(
        ("groups", "size", "cooling"),
        [(12, 9000, True), (13, 9000, False), (13, 8079, True), (13, 8080, False), (30, 8000, True), (13, 10_000, False), (9, 8000, False)],
        ids=["two groups", "three groups", "three polls", "enough", "many polls", "at capacity", "edited"],
    )
    def test_a_failure_cools_down_until_there_is_enough_new_work(self, groups: int, size: int, cooling: bool) -> None:
        sizes = Sizes(window=size, target=size, new_work=size)
        assert is_cooling_down(RoundCompactConfig(), self.LIMITS, sizes, Failures(1, 10, 8000), groups) is cooling

    def test_no_cool_down_means_none(self) -> None:
        sizes = Sizes(window=8000, target=8000, new_work=8000)
        assert not is_cooling_down(RoundCompactConfig(cooldown_groups=0), self.LIMITS, sizes, Failures(1, 10, 8000), 10)


# --- all of it over many histories -----------------------------------------------------------------------------------------------------


@examples(150)
@given(scenes(tiers=(BUILT_IN_TIERS,)))
def test_the_ladder_never_breaks_an_invariant(scene: Scene) -> None:
    """Who must stay is the same object; pairs are no worse; ids are known and in order; the list is no larger."""
    state, played = scene.state(), scene.play()
    before = state["messages"]
    held = dump(before)
    result = played.check(state)
    assert dump(before) == held
    there = {id(message) for message in result.messages}
    assert [i for i in must_stay(before, scene.config["keep_recent_messages"]) if id(before[i]) not in there] == []
    assert len(pairing_faults(result.messages)) <= len(pairing_faults(before))
    assert {message.id for message in result.messages} <= {message.id for message in before}
    assert played.compactor.count_tokens(result.messages) <= played.compactor.count_tokens(before)
    if result.outcome == "tiers_sufficed":
        assert not result.compacted
        assert [message.id for message in result.messages] == [message.id for message in before]
        scene_again = scene.play().check({**state, "messages": result.messages}, force=False)
        assert not scene_again.changed


@examples(40)
@given(scenes(tiers=(BUILT_IN_TIERS,), models=(False,)))
def test_sync_and_async_give_the_same_bytes(scene: Scene) -> None:
    one, two = scene.play().check(scene.state(), "sync"), scene.play().check(scene.state(), "async")
    assert (one.outcome, dump(one.messages)) == (two.outcome, dump(two.messages))


@pytest.mark.parametrize("case", case_files() or [None], ids=lambda case: case.stem if case else "absent")
def test_with_all_tiers_each_reported_case_keeps_prefix_pairs_and_size(
    case: Path | None, runner: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert case is not None
    space, _ = runner.load(case)

    class Tiered(RoundCompactor):
        def __init__(self, model: Any = None, **given: Any) -> None:
            super().__init__(model, **{**given, "tiers": BUILT_IN_TIERS})

    # The runner takes the class from here, and gives it no tiers.
    monkeypatch.setattr(langgraph_roundcompact, "RoundCompactor", Tiered)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        node, _, subject_ = runner.build(space)
        before = convert_to_messages(space["messages"])
        update = node.invoke({**space.get("STATE", {}), "messages": list(before)})
    after = add_messages(list(before), update["messages"]) if update.get("messages") else list(before)
    start = next((i for i in range(len(before) - 1, -1, -1) if subject_._parts.is_real_user(before[i])), -1) + 1
    stored = add_messages([], list(before))  # chunks become messages, and missing ids are given
    assert [{**data, "id": ""} for data in dump(after[:start])] == [{**data, "id": ""} for data in dump(stored[:start])]
    assert len(pairing_faults(after)) <= len(pairing_faults(before))
    assert subject_.count_tokens(after) <= subject_.count_tokens(before)
