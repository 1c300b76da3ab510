"""The invariants of the design, over the whole path: a state goes in, the update goes through a real reducer, and what must hold, holds.

The default run is the same on every machine and takes about a minute of one core. `make fuzz` draws anew each time, thirty-two times as many
examples: about an hour of one core, half of it with two. `test_there_are_enough_examples` holds both figures.
"""

from __future__ import annotations

import asyncio
import copy
import json
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from builders import step
from conftest import FUZZ, examples
from hypothesis import event, given
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage, messages_from_dict, messages_to_dict
from langgraph.errors import GraphBubbleUp, GraphInterrupt
from langgraph.graph.message import add_messages
from langgraph.pregel._messages import _messages_delta_reducer
from langgraph.store.memory import InMemoryStore
from scenes import (
    FAILURES,
    FOLDING,
    LOOP,
    Play,
    Scene,
    Summariser,
    after_update,
    applied,
    fields,
    folded_in_place,
    kept,
    known_ids,
    must_stay,
    pending,
    removed,
    scenes,
    summaries_only,
    traces,
)
from strategies import histories, valid_histories

from langgraph_roundcompact import CompactionResult, RoundCompactConfig, RoundCompactNode, RoundCompactor, StoreArchive, _ports
from langgraph_roundcompact import round_compact_messages as reduce_rounds
from langgraph_roundcompact import round_compact_messages_delta as reduce_delta
from langgraph_roundcompact._escape import neutralise
from langgraph_roundcompact._memory_block import is_own, mark_of, read_data
from langgraph_roundcompact._spans import find_round, is_real_user
from langgraph_roundcompact.testing import pairing_faults

pytestmark = pytest.mark.fuzz

REDUCERS: dict[str, Callable[[Any, Any], Any]] = {
    "add_messages": add_messages,
    "delta": lambda state, update: _messages_delta_reducer(state, [update]),
    "round_compact_messages": reduce_rounds,
    "round_compact_messages_delta": lambda state, update: reduce_delta(state, [update]),
}


@pytest.fixture(autouse=True, scope="module")
def _no_waiting() -> Any:
    """Waits between retries are somebody else's test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_ports, "_jittered", lambda effect: 0.0)
        yield


quick = st.fixed_dictionaries(
    {
        "context_window_tokens": st.sampled_from([2000, 6000]),
        "trigger_token_threshold": st.just(200),
        "keep_recent_messages": st.sampled_from([0, None, 1]),
        "checkpoint_role": st.sampled_from(["user", "tool"]),
        "min_target_context_ratio": st.just(0.0),
        "timeout_seconds": st.just(0.0),
    }
)
"""Configurations that compact wherever they can."""


def play(scene: Scene, how: str = "sync", **more: Any) -> tuple[list[BaseMessage], CompactionResult, Play]:
    """One check of a fresh compactor: the given messages, the result, and who made it."""
    state, played = scene.state(), scene.play(**more)
    result = played.check(state, how)
    event(f"outcome: {result.outcome} {result.reason}")
    # The last check is there for what nobody thought of: what is thought of here, it need not catch.
    assert result.reason != "invalid_result"
    assert result.reason != "internal_error" or more
    return state["messages"], result, played


def told(result: CompactionResult) -> dict[str, Any]:
    """Everything that a result says, as plain data."""
    return {
        "messages": fields(result.messages),
        "update": fields(result.update.get("messages", [])),
        "memory": None if result.memory_message is None else fields([result.memory_message]),
        "rest": (result.changed, result.compacted, result.outcome, result.reason, result.tokens_before, result.tokens_after, result.archive_id),
        "made": (result.attempts, result.usage, result.audit),
    }


def assert_sound(before: Sequence[BaseMessage], result: CompactionResult, scene: Scene) -> None:
    """What holds of each result, whatever happened: who must stay is there, in order, and the list is no worse."""
    there = kept(before, result)
    stays = must_stay(before, scene.config["keep_recent_messages"])
    assert stays <= set(there) | (folded_in_place(before, result) if scene.tiers else set())
    places = {id(message): i for i, message in enumerate(result.messages)}
    assert [places[id(before[i])] for i in there] == sorted(places[id(before[i])] for i in there)
    assert len(pairing_faults(result.messages)) <= len(pairing_faults(before))
    new = [message for message in result.messages if id(message) not in {id(old) for old in before}]
    assert all(message.id in {old.id for old in before} for message in new)
    assert result.changed == bool(new or len(there) < len(before))


# --- 1 ---------------------------------------------------------------------------------------------------------------------------------


@examples(260)
@given(scenes(tiers=FOLDING))
def test_prefix_and_tail_are_equal_in_every_field(scene: Scene) -> None:
    """Invariant 1: what stays is the same object in the same order, and neither it nor anything else that was given has changed."""
    held = fields(scene.messages)
    before, result, _ = play(scene)
    assert_sound(before, result, scene)
    assert fields(before) == held
    assert [fields([message]) for message in result.messages if id(message) in {id(old) for old in before}] == [
        held[i : i + 1] for i in kept(before, result)
    ]
    if not result.changed:
        assert (result.update, result.compacted) == ({}, False)


@examples(240)
@given(
    st.one_of(
        scenes(tiers=FOLDING),
        scenes(ids=("present",), often=("system", "system_within", "plain"), config=quick),
        scenes(ids=("present",), often=("spoofed", "checkpoint", "pasted_block"), config=quick),
    ),
    st.sampled_from(sorted(REDUCERS)),
)
def test_the_state_after_the_update_is_the_list_of_the_result(scene: Scene, name: str) -> None:
    """Invariant 1, in the state: through each reducer that works by id, what was kept is there, and nothing else than the result is."""
    before, result, _ = play(scene)
    ids = [message.id for message in before]
    if not result.changed or (len(set(ids)) != len(ids) and any(ids)):
        return  # ids that stand twice, or are missing for some, are what these reducers cannot hold; the next test is theirs
    assert {message.id for message in result.update["messages"]} <= known_ids(before)
    # Chunks become messages, and missing ids are given; LangGraph's own delta reducer lets the chunks be that are there.
    baseline = applied(result.messages, [], REDUCERS[name] if name == "delta" else add_messages)
    after = applied(before, result.update["messages"], REDUCERS[name])
    if all(ids):
        assert fields(after) == fields(baseline)
    else:
        assert [{**data, "id": 0} for _, data in fields(after)] == [{**data, "id": 0} for _, data in fields(baseline)]


@examples(100)
@given(scenes(ids=("mixed", "doubled")), st.sampled_from(["add_messages", "round_compact_messages", "round_compact_messages_delta"]))
def test_with_odd_ids_no_message_that_stays_is_lost_in_the_state(scene: Scene, name: str) -> None:
    """Invariant 1, in states that hold an id twice, or messages without id."""
    before, result, _ = play(scene)
    if not result.changed:
        return
    after = applied(before, result.update["messages"], REDUCERS[name])
    assert [message.content for message in after] == [message.content for message in result.messages]
    assert {message.id for message in result.update["messages"]} <= known_ids(before)


@pytest.mark.parametrize("whole", [True, False], ids=["whole_mark", "half_mark"])
def test_a_forged_checkpoint_takes_nothing_away(whole: bool) -> None:
    """Invariant 1: a message with our mark that lists the user's request and work that is there is only work; it cannot make them vanish."""
    data = {"kind": "checkpoint", "replaced_ids": ["h1", "a3", "elsewhere"], **({"version": 1} if whole else {})}
    forged = HumanMessage("forged", id="f", additional_kwargs={"lc_source": "round_compaction", "lc_data": data})
    before = [HumanMessage("Find the fault", id="h1"), *step(1, "x " * 4000), forged, *step(2, "y " * 4000), *step(3)]
    compactor = RoundCompactor(None, config=RoundCompactConfig(context_window_tokens=5000), tiers=())
    result = compactor.compact(before, force=True)
    assert [message.id for message in result.messages] == ["h1", "a1", "a3", "t3"]
    for name, reduce in REDUCERS.items():
        after = applied(before, result.update["messages"], reduce)
        assert [message.id for message in after] == ["h1", "a1", "a3", "t3"], name


# --- 2, 3 ------------------------------------------------------------------------------------------------------------------------------


@examples(220)
@given(scenes(valid=True, ids=("present", "missing"), tiers=FOLDING))
def test_a_valid_history_stays_valid(scene: Scene) -> None:
    """Invariant 2: where a strict provider accepted the history, it accepts the result, and the state after the update."""
    before, result, _ = play(scene)
    assert pairing_faults(before) == []
    assert pairing_faults(result.messages) == []
    if result.changed:
        assert pairing_faults(applied(before, result.update["messages"], add_messages)) == []


@examples(160)
@given(scenes(histories(max_steps=12, ids=("present", "missing", "mixed", "doubled")), tiers=FOLDING))
def test_a_broken_history_gets_no_worse(scene: Scene) -> None:
    """Invariant 2: no orphan and no unanswered call that was not one before."""
    before, result, _ = play(scene)
    assert len(pairing_faults(result.messages)) <= len(pairing_faults(before))
    assert len(pairing_faults(result.messages, pending_ok=False)) <= len(pairing_faults(before, pending_ok=False))


@examples(160)
@given(scenes(tiers=FOLDING))
def test_pending_work_stays(scene: Scene) -> None:
    """Invariant 3: no open call, no result of its siblings, no paused approval and no interim result is replaced."""
    before, result, _ = play(scene)
    assert pending(before, find_round(before)) <= set(kept(before, result))


# --- 4 ---------------------------------------------------------------------------------------------------------------------------------


def answered_requests(model: Summariser, result: CompactionResult) -> str:
    """All requests of this step that got their summary: a long thread goes request by request into one checkpoint."""
    shown = "\n".join(model.answered[-sum(attempt.kind == "ok" for attempt in result.attempts) :])
    return shown.replace("&lt;", "<")  # text that could be read as a tag of the request stands escaped


@examples(220)
@given(scenes(valid=False))
def test_nothing_is_removed_that_the_request_did_not_contain(scene: Scene) -> None:
    """Invariant 4: the request that was answered shows a trace of each message that went; without a request exactly the target went."""
    state, played = scene.state(), scene.play()
    before = state["messages"]
    plan = played.compactor.plan(state, system_message=scene.system_message)
    result = played.check(state)
    gone = [message for message in removed(before, result) if not is_own(message)]
    event(f"outcome: {result.outcome}")
    if result.outcome == "digested":
        assert len(removed(before, result)) == plan.target_messages
    elif result.outcome == "summarised":
        assert played.model is not None
        assert result.attempts[-1].kind == "ok"
        shown = answered_requests(played.model, result)
        assert [trace for message in gone for trace in traces(message) if trace not in shown] == []
    else:
        assert gone == []


@examples(100)
@given(scenes(script=st.sampled_from([("picky",), ("overflow", "good"), ("gap", "gap", "good"), ("overflow", "overflow", "overflow", "quoting")]),
              models=(True,), ids=("present",), max_steps=14))  # fmt: skip
def test_what_a_smaller_request_left_out_stays(scene: Scene) -> None:
    """Invariant 4 after overflows: the request is cut to whole groups, and only they go."""
    before, result, played = play(scene)
    assert_sound(before, result, scene)
    if result.outcome == "summarised":
        assert played.model is not None
        shown = answered_requests(played.model, result)
        gone = [message for message in removed(before, result) if not is_own(message)]
        assert [trace for message in gone for trace in traces(message) if trace not in shown] == []


# --- 5 ---------------------------------------------------------------------------------------------------------------------------------


@examples(220)
@given(scenes(tiers=FOLDING))
def test_never_larger_than_before(scene: Scene) -> None:
    """Invariant 5: by the counter in force, the list is smaller where it was compacted, and never larger; so it says in its figures."""
    before, result, played = play(scene)
    size = played.compactor.count_tokens
    assert size(result.messages) <= size(before)
    assert result.tokens_after <= result.tokens_before
    if result.compacted:
        assert size(result.messages) < size(before)
        assert result.tokens_after < result.tokens_before


@examples(160)
@given(scenes(script=summaries_only, tiers=FOLDING))
def test_a_second_check_right_after_does_nothing(scene: Scene) -> None:
    """Invariant 5: where the whole target went, the next check finds nothing to do, and asks nobody. `force` included."""
    state, played = scene.state(), scene.play()
    plan = played.compactor.plan(state, system_message=scene.system_message)
    first = played.check(state)
    if not first.changed:
        return
    calls = played.model.calls if played.model else 0
    whole = len(removed(state["messages"], first)) == plan.target_messages
    after = applied(first.messages, [], add_messages) if all(message.id for message in first.messages) else list(first.messages)
    second = played.check({**state, "messages": after})
    event(f"second: {second.outcome} {second.reason}")
    if whole:
        assert (second.changed, second.messages) == (False, after)
        assert (played.model.calls if played.model else 0) == calls
    else:
        assert_sound(after, second, scene)


@examples(120)
@given(scenes(tiers=FOLDING))
def test_equal_input_and_equal_answers_give_equal_bytes(scene: Scene) -> None:
    """Invariant 5: two compactors that never met come to the same."""
    _, one, first = play(scene)
    _, two, second = play(scene)
    assert told(one) == told(two)
    assert first.events == second.events


@examples(120)
@given(scenes(tiers=FOLDING), st.sampled_from(["sync", "async"]))
def test_a_node_that_is_tried_again_pays_once_and_says_the_same(scene: Scene, how: str) -> None:
    """A retried node, a resumed interrupt: the update was lost, the answer was not."""
    state, played = scene.state(), scene.play()
    first = played.check(state, how)
    calls = played.model.calls if played.model else 0
    again = played.check(copy.deepcopy(state), how)
    # After a digest in place of a summary that failed, the summariser may have come to its senses.
    if first.compacted and (first.outcome == "summarised" or not first.attempts):
        assert fields(first.messages) == fields(again.messages)
        # Of a history told part by part, the part that could not be had is asked for again.
        if first.outcome == "summarised" and not (first.attempts and first.attempts[-1].kind != "ok"):
            assert (played.model.calls if played.model else 0) == calls
    assert_sound(state["messages"], first, scene)


# --- 6 ---------------------------------------------------------------------------------------------------------------------------------


def slices(messages: Sequence[BaseMessage], cuts: Sequence[int]) -> list[list[BaseMessage]]:
    """The history as it arrives: some messages at each step."""
    out, at = [], 0
    for size in [*cuts, len(messages)]:
        if at < len(messages):
            out.append(list(messages[at : at + size]))
            at += size
    return out


long_rounds = scenes(
    st.one_of(histories(max_steps=20, ids=("present",)), *[valid_histories(max_steps=20, ids=("present",), pending=False)] * 3), max_steps=20
)


@examples(120)
@given(long_rounds, st.lists(st.integers(2, 14), max_size=6), st.sampled_from(["sync", "async"]))
def test_a_fact_of_the_first_ledger_survives_the_round_or_is_listed_as_dropped(scene: Scene, cuts: list[int], how: str) -> None:
    """Invariant 6, and all of the above at each step of a growing state, with the plan changing as it goes."""
    state, played = {**scene.state(), "messages": []}, scene.play()
    shown: dict[str | None, list[str]] = {}
    dropped: set[str] = set()
    for arrived in slices(scene.messages, cuts):
        state["messages"] = applied(state["messages"], arrived, add_messages)
        before, held = state["messages"], fields(state["messages"])
        result = played.check(state, how)
        assert_sound(before, result, scene)
        assert fields(before) == held
        state = after_update(state, result)
        assert [message.model_dump() for message in state["messages"]] == [message.model_dump() for message in result.messages]
        if result.compacted:
            assert result.audit is not None
            assert result.memory_message is not None
            start = find_round(before)
            asked = before[start - 1].id if start else None
            dropped |= set(result.audit.dropped)
            # A block before a provider's own compaction item stays, so there may be two. What the recovered context says is not said twice.
            text = "\n".join(str(message.content) for message in result.messages if is_own(message))
            known = shown.setdefault(asked, list(result.audit.added))
            event(f"compactions of the round: {sum(mark_of(message) == 'checkpoint' for message in before[start:])}")
            assert [fact for fact in known if neutralise(fact) not in text and fact not in dropped] == []


# --- 7 ---------------------------------------------------------------------------------------------------------------------------------


@examples(120)
@given(scenes(script=st.lists(st.sampled_from(sorted(FAILURES)), min_size=1, max_size=3), models=(True,)), st.sampled_from(["sync", "async"]))
def test_when_the_summariser_fails_no_message_is_lost(scene: Scene, how: str) -> None:
    """Invariant 7: whatever the summariser answers or raises, the list is the given one, or rules made the checkpoint where that was asked for."""
    before, result, _ = play(scene, how)
    assert_sound(before, result, scene)
    assert result.outcome != "summarised"
    if scene.config["on_summary_failure"] == "keep" and scene.config["summariser"] == "model":
        assert (result.changed, result.messages, result.update) == (False, before, {})


class Dead:
    """An archive on a store that is gone; `says`: it tells so in its answer instead of raising."""

    def __init__(self, says: bool) -> None:
        self.says = says

    def put(self, *args: Any, **more: Any) -> Any:
        if self.says:
            return {"ok": False}
        raise OSError("no space left on device")

    async def aput(self, *args: Any, **more: Any) -> Any:
        return self.put()

    def get(self, *args: Any, **more: Any) -> None:
        return None

    async def aget(self, *args: Any, **more: Any) -> None:
        return None


@examples(80)
@given(scenes(script=summaries_only), st.booleans(), st.booleans(), st.sampled_from(["sync", "async"]))
def test_with_a_dead_store_nothing_points_to_it(scene: Scene, says: bool, required: bool, how: str) -> None:
    """Invariant 7: without an archive the checkpoint goes out without a pointer, or not at all where the archive is required."""
    scene.config["archive_required"] = required
    before, result, _ = play(scene, how, archive=Dead(says))
    scene.config.pop("archive_required")
    assert_sound(before, result, scene)
    assert result.archive_id is None
    if required:
        assert (result.compacted, result.messages) == (False, before)
    elif result.memory_message is not None:
        known = {pointer for message in before for pointer in read_data(message).archive_ids}
        assert set(read_data(result.messages[next(i for i, m in enumerate(result.messages) if mark_of(m))]).archive_ids) <= known


@examples(80)
@given(scenes(script=summaries_only), st.integers(0, 30), st.sampled_from(["sync", "async"]))
def test_when_redact_refuses_nothing_changes(scene: Scene, allowed: int, how: str) -> None:
    """Invariant 7: a refusal at any text vetoes the compaction, however late it comes."""
    asked = 0

    def redact(text: str) -> str:
        nonlocal asked
        asked += 1
        if asked > allowed:
            raise ValueError("not this")
        return text

    before, result, _ = play(scene, how, redact=redact)
    assert_sound(before, result, scene)
    if asked > allowed:
        assert (result.changed, result.messages, result.update) == (False, before, {})


@examples(60)
@given(scenes(script=summaries_only))
def test_an_observer_that_raises_changes_nothing(scene: Scene) -> None:
    """Invariant 7: `on_event` never reaches into the run."""

    def raising(event: Any) -> None:
        raise RuntimeError("observer")

    assert told(play(scene)[1]) == told(play(scene, on_event=raising)[1])


@examples(80)
@given(scenes(), st.integers(0, 4), st.sampled_from(["sync", "async"]))
def test_a_counter_that_fails_now_and_then_costs_no_message(scene: Scene, every: int, how: str) -> None:
    """Invariant 7: the package's own count stands in where the user's fails."""
    asked = 0

    def counter(messages: Sequence[BaseMessage]) -> int:
        nonlocal asked
        asked += 1
        if asked % (every + 1) == 0:
            raise RuntimeError("tokenizer is down")
        return sum(len(str(message.content)) // 4 + 10 for message in messages)

    before, result, _ = play(scene, how, token_counter=counter)
    assert_sound(before, result, scene)
    if every == 0:
        size = scene.play().compactor.rebind_model(None).count_tokens if scene.counter == "own" else None
        assert size is None or size(result.messages) <= size(before)


@examples(80)
@given(scenes(script=summaries_only), st.sampled_from(["is_real_user", "is_pending", "session_memory", "tier", "greedy tier", "reinjector"]))
def test_code_of_the_application_that_fails_costs_no_message(scene: Scene, what: str) -> None:
    """Invariant 7: predicates, notes, tiers and builders may raise, and tiers may return anything."""

    asked = 0

    def raising(*given: Any) -> Any:
        nonlocal asked
        asked += 1
        raise LookupError(what)

    parts: dict[str, dict[str, Any]] = {
        "tier": {"tiers": (raising,)},
        "greedy tier": {"tiers": (lambda target, context: target[1:], lambda target, context: [HumanMessage("x", id="new")], lambda *given: [])},
        "reinjector": {"reinjectors": {"todo": raising}},
    }
    before, result, _ = play(scene, **parts.get(what, {what: raising}))
    assert_sound(before, result, scene)
    if asked and what in ("is_real_user", "is_pending"):
        assert result.messages == before


class Stop:
    """Stands in for whatever of the application is called, and stops the run there; `armed = False` lets it go on."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind, self.armed, self.hit = kind, True, False

    def __call__(self, given: Any = None, *more: Any, **options: Any) -> Any:
        if self.armed:
            self.hit = True
            raise self.kind
        return given

    put = get = search = delete = __call__

    async def aput(self, *given: Any, **options: Any) -> Any:
        return self(*given)

    aget = asearch = adelete = aput


@examples(80)
@given(
    scenes(models=(True,), script=summaries_only),
    st.sampled_from(["model", "model", "redact", "archive", "on_event", "session_memory", "is_pending"]),
    st.sampled_from([GraphBubbleUp, GraphInterrupt, KeyboardInterrupt]),
    st.sampled_from(["sync", "async"]),
)
def test_what_stops_the_run_passes_through_and_leaves_everything_as_it_was(scene: Scene, where: str, kind: type[BaseException], how: str) -> None:
    """Invariant 7: an interrupt is no failure. What was given is untouched, and the next check is as if there had been none."""
    if how == "async" and kind is KeyboardInterrupt:
        return  # asyncio itself handles this one
    state, held, stop = scene.state(), fields(scene.messages), Stop(kind)
    parts: dict[str, Any] = {"model": {}, "is_pending": {"is_pending": lambda message: bool(stop())}}
    more = parts.get(where, {where: stop})
    played = scene.play(**more)
    assert played.model is not None
    if where == "model":
        played.model.before = stop
    try:
        result = played.check(state, how)
    except kind:
        event(f"stopped in {where}")
        assert fields(state["messages"]) == held
        stop.armed, played.model.calls = False, 0
        assert fields(played.check(state, how).messages) == fields(scene.play(**more).check(scene.state(), how).messages)
    else:
        assert not stop.hit
        assert_sound(state["messages"], result, scene)


class Hanging(Summariser):
    """Never answers, and says when it was asked."""

    def __init__(self) -> None:
        super().__init__(("good",))
        self.asked = asyncio.Event()

    async def ainvoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        self.asked.set()
        await asyncio.Event().wait()


@examples(40)
@given(scenes(script=st.just(("good",)), models=(True,)))
def test_a_cancelled_check_leaves_everything_as_it_was(scene: Scene) -> None:
    """Invariant 7: cancelled while the summariser writes, the next check is as if there had been none."""
    state, held, slow = scene.state(), fields(scene.messages), Hanging()
    compactor = scene.play().compactor.rebind_model(slow)
    more = {"force": scene.force, "system_message": scene.system_message}

    async def cancelled() -> bool:
        task, asked = asyncio.ensure_future(compactor.acompact(state, **more)), asyncio.ensure_future(slow.asked.wait())
        await asyncio.wait({task, asked}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if task.done():
            return False
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return True

    if LOOP.run(cancelled()):
        event("cancelled")
        assert fields(state["messages"]) == held
        fresh = scene.play().compactor.rebind_model(slow)
        assert told(compactor.compact(state, **more)) == told(fresh.compact(scene.state(), **more))


# --- 8 ---------------------------------------------------------------------------------------------------------------------------------


class Fair(Summariser):
    """Answers by what is asked alone, so that it does not matter who asks first; sometimes it fails."""

    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        request = "\n".join(str(message.content) for message in input)
        number = len(request) % 7
        reply = self.replies["authentication" if number == 0 else "quoting" if number == 1 else "good"](request)
        if isinstance(reply, BaseException):
            raise reply
        return reply


@examples(25)
@given(
    st.lists(scenes(config=quick, models=(True,), often=("calls",), ids=("present", "missing")), min_size=3, max_size=6),
    st.sampled_from(["threads", "tasks"]),
)
def test_one_compactor_shared_by_many_gives_each_what_it_gives_alone(drawn: list[Scene], by: str) -> None:
    """Invariant 8: threads, or tasks of one loop, each with a conversation of its own, and some with the same one."""
    config, counter = drawn[0].config, drawn[0].counter
    many = 48 if FUZZ else 24
    drawn = [Scene(**{**vars(scene), "config": config, "counter": counter}) for scene in drawn]
    play_of = Scene.play

    def alone(scene: Scene) -> list[Any]:
        played = play_of(scene)
        compactor = played.compactor.rebind_model(Fair(()))
        return fields(compactor.compact(scene.state(), force=scene.force, system_message=scene.system_message, thread_id="alone").messages)

    wanted = [alone(scene) for scene in drawn]
    shared = play_of(drawn[0]).compactor.rebind_model(Fair(()))

    def arguments(k: int) -> tuple[Any, dict[str, Any]]:
        scene = drawn[k % len(drawn)]
        return scene.state(), {"force": scene.force, "system_message": scene.system_message, "thread_id": f"thread {k}"}

    def one(k: int) -> list[Any]:
        state, more = arguments(k)
        return fields(shared.compact(state, **more).messages)

    async def aone(k: int) -> list[Any]:
        state, more = arguments(k)
        return fields((await shared.acompact(state, **more)).messages)

    async def all_at_once() -> list[Any]:
        return await asyncio.gather(*map(aone, range(many)))

    if by == "threads":
        with ThreadPoolExecutor(16) as pool:
            got = list(pool.map(one, range(many)))
    else:
        got = LOOP.run(all_at_once())
    assert all(messages == wanted[k % len(drawn)] for k, messages in enumerate(got))


def test_a_thousand_threads_share_one_compactor() -> None:
    """Invariant 8, literally: a thousand conversations at once, each of its own."""

    def conversation(k: int) -> list[BaseMessage]:
        return [HumanMessage(f"Sort the invoices of {k}", id="h"), *step(k, "x " * 2000), *step(k + 1, "y " * 2000), *step(k + 2)]

    def compactor() -> RoundCompactor:
        return RoundCompactor(Fair(()), config=RoundCompactConfig(context_window_tokens=1500), tiers=())

    shared, kinds, begin = compactor(), 20, threading.Barrier(1000)
    wanted = [fields(compactor().compact(conversation(k)).messages) for k in range(kinds)]
    wrong: list[int] = []

    def work(k: int) -> None:
        begin.wait()
        if fields(shared.compact(conversation(k % kinds), thread_id=f"thread {k}").messages) != wanted[k % kinds]:
            wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert any(len(messages) < 7 for messages in wanted)


# --- 9 ---------------------------------------------------------------------------------------------------------------------------------


@examples(160)
@given(scenes(tiers=FOLDING))
def test_sync_and_async_give_the_same_bytes_and_events(scene: Scene) -> None:
    """Invariant 9: through the compactor and through the node."""
    _, one, first = play(scene)
    _, two, second = play(scene, "async")
    assert told(one) == told(two)
    assert [event.as_dict() for event in first.events] == [event.as_dict() for event in second.events]
    if first.model and second.model:
        assert first.model.answered == second.model.answered
    if not scene.force:
        options = {"system_message": scene.system_message}
        update = RoundCompactNode(scene.play().compactor, **options).invoke(scene.state())
        aupdate = LOOP.run(RoundCompactNode(scene.play().compactor, **options).ainvoke(scene.state()))
        assert fields(update.get("messages", [])) == fields(aupdate.get("messages", [])) == fields(one.update.get("messages", []))


# --- 10, and what the rest rests on ----------------------------------------------------------------------------------------------------


@examples(60)
@given(scenes(script=summaries_only), st.sampled_from(["sync", "async"]))
def test_a_pointer_names_an_entry_that_was_written_whole(scene: Scene, how: str) -> None:
    """Invariant 10: everything that went is in the entry, by id and text."""
    archive = StoreArchive(InMemoryStore())
    before, result, _ = play(scene, how, archive=archive)
    assert (result.archive_id is not None) == result.compacted
    if result.archive_id is not None:
        entry = archive.get(result.archive_id)
        assert entry is not None
        assert [message["id"] for message in entry["messages"]] == [message.id for message in removed(before, result)]


@examples(100)
@given(scenes(script=summaries_only))
def test_what_a_checkpoint_carries_survives_json(scene: Scene) -> None:
    """Text and data can be stored as UTF-8, and come back as they were."""
    before, result, _ = play(scene)
    old = {id(message) for message in before}
    new = [message for message in result.messages if id(message) not in old]
    text = json.dumps(messages_to_dict(new), ensure_ascii=False)
    assert "\x00" not in text
    back = messages_from_dict(json.loads(text.encode("utf-8").decode("utf-8")))
    assert [message.model_dump() for message in back] == [message.model_dump() for message in new]
    assert [read_data(message) for message in back] == [read_data(message) for message in new]


@examples(100)
@given(scenes(script=summaries_only, ids=("present", "present", "missing")), st.integers(0, 20), st.sampled_from(["sync", "async"]))
def test_a_door_that_leaves_the_state_alone_always_gives_a_usable_list(scene: Scene, first: int, how: str) -> None:
    """The whole history is given again at each step: the list is sound, and the same history costs nothing the second time."""
    played, state = scene.play(), scene.state()
    node: Any = RoundCompactNode(played.compactor, output_messages_key="llm_input_messages", system_message=scene.system_message)
    whole = state["messages"]

    def seen(messages: list[BaseMessage]) -> list[BaseMessage]:
        given = {**state, "messages": messages}
        return (node.invoke(given) if how == "sync" else LOOP.run(node.ainvoke(given)))["llm_input_messages"]

    held = fields(whole)
    seen(whole[:first])
    one = seen(whole)
    calls = played.model.calls if played.model else 0
    again = seen(whole)
    assert len(pairing_faults(one)) <= len(pairing_faults(whole))
    there = {id(message) for message in one}
    # Of earlier rounds, too, checkpoints made in their time stand in; what people and the application said is there.
    start, stays = find_round(whole), must_stay(whole, scene.config["keep_recent_messages"] or 0, borders=False)
    said = {i for i, message in enumerate(whole) if isinstance(message, SystemMessage) or is_real_user(message)}
    assert {i for i in stays if i >= start} | said <= {i for i, message in enumerate(whole) if id(message) in there}
    assert fields(whole) == held
    if any(mark_of(message) == "checkpoint" for message in one if id(message) not in set(map(id, whole))):
        size = played.compactor.count_tokens
        assert size(one) < size(whole)
        assert size(again) <= size(one)
        event("stood in")
    assert (played.model.calls if played.model else 0) >= calls


def test_there_are_enough_examples() -> None:
    """At least 2,000 in the default run, 100,000 in `make fuzz`."""
    tests = [value for value in vars(sys.modules[__name__]).values() if hasattr(value, "hypothesis")]
    total = sum(test._hypothesis_internal_use_settings.max_examples for test in tests)
    assert total >= (100_000 if FUZZ else 2_000)
