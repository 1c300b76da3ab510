"""Consent to checkpoints in front of a model: the wrapper and the middleware, where the step that asks does more than ask.

LangGraph runs such a step again from its start when it is answered, and finds answers by the order of the questions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from doors import REQUEST, ByIds, agent_loop, check_requests, look_up, run_anew, shared, thread, working
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, ModelFallbackMiddleware, ModelRetryMiddleware
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, RetryPolicy, interrupt
from procedures import BOTH, blocks, compactor, go, history, ids, summariser

from langgraph_roundcompact import ConfigurationError, RoundCompactMiddleware, RoundCompactor, add_round_compaction
from langgraph_roundcompact.testing import ScriptedChatModel

THREAD = thread("t")
ASK: Any = {"messages": [HumanMessage(REQUEST, id="h")]}


def agent(door: str, subject: RoundCompactor, model: Any, *, approve: Any = True, middleware: Any = (), saver: Any = None) -> Any:
    """An agent whose door asks before it replaces anything."""
    saver = saver or InMemorySaver()
    if door == "wrapper":
        return agent_loop(model, subject, approve=approve).compile(checkpointer=saver)
    ours = RoundCompactMiddleware(subject, persist=door == "middleware", approve=approve)
    return create_agent(model, [look_up], middleware=[*middleware, ours], checkpointer=saver)


def one_step(subject: RoundCompactor, node: Any, *, saver: Any = None, **options: Any) -> Any:
    """A wrapped node that runs once."""
    builder = StateGraph(ByIds)
    builder.add_node("agent", node, **options)
    builder.add_edge(START, "agent")
    add_round_compaction(builder, subject, approve=True)
    return builder.compile(checkpointer=saver or InMemorySaver())


def answered(how: str, graph: Any, value: Any, *answers: Any) -> tuple[Any, list[Any]]:
    """Run to the end, with one answer for each pause, the last for all that follow; and what each pause showed."""
    shown: list[Any] = []
    out = go(how, graph, value, THREAD)
    while "__interrupt__" in out:
        (waiting,) = out["__interrupt__"]
        shown.append(waiting.value)
        out = go(how, graph, Command(resume=answers[min(len(shown), len(answers)) - 1]), THREAD)
    return out, shown


DOOR = pytest.mark.parametrize("door", ["wrapper", "middleware", "request only"])


@BOTH
@DOOR
def test_over_a_long_run_each_checkpoint_is_asked_for_and_paid_once(how: str, door: str) -> None:
    """Whichever door: the model is sent what was agreed to, and nothing is asked or paid twice."""
    subject, notes = shared()
    model = working(30)
    out, shown = answered(how, agent(door, subject, model), ASK, "accept")
    assert out["messages"][-1].content == "all done"
    model.assert_complete()
    assert 2 <= len(shown) == len(notes.requests)
    assert {one["type"] for one in shown} == {"round_compaction_review"}
    check_requests(model.requests, summaries=len(shown))
    sent = {str(request[at].content) for request in model.requests for at in blocks(request)}
    assert sent == {one["checkpoint"] for one in shown}
    assert blocks(out["messages"]) == ([] if door == "request only" else [1])


@BOTH
@DOOR
def test_after_a_no_the_window_stays_and_the_run_goes_on(how: str, door: str) -> None:
    """Nobody is asked again at each step."""
    subject, notes = shared(trigger=3000, window=40_000, cooldown_groups=3)
    model = working(16)
    out, shown = answered(how, agent(door, subject, model), ASK, False)
    assert out["messages"][-1].content == "all done"
    assert 2 <= len(shown) == len(notes.requests) <= 5
    assert not any(blocks(request) for request in model.requests)


@BOTH
@DOOR
def test_an_edited_text_is_what_the_model_is_sent(how: str, door: str) -> None:
    subject, _ = shared()
    model = working(14)
    answered(how, agent(door, subject, model), ASK, {"action": "edit", "summary": "EDITED by a person"})
    with_block = [request for request in model.requests if blocks(request)]
    assert with_block
    assert all("<summary>\nEDITED by a person\n</summary>" in str(request[1].content) for request in with_block)


@BOTH
@pytest.mark.parametrize("door", ["wrapper", "middleware"])
def test_a_new_process_at_each_pause_applies_what_was_shown_and_pays_nothing(how: str, door: str, tmp_path: Path) -> None:
    """Its summariser would fail; the text is read back from the database."""
    first, _ = shared(notes=summariser("NOTES of the first process", strict=True))
    second, _ = shared(notes=ScriptedChatModel(replies=[AssertionError("a second summary was asked for")]), max_retries=0)
    path = tmp_path / "threads.db"
    out = run_anew(how, path, lambda saver: agent(door, first, working(14), saver=saver), ASK, THREAD)
    (waiting,) = out["__interrupt__"]
    rest = ScriptedChatModel(replies=["that is all"], strict=True)
    out = run_anew(how, path, lambda saver: agent(door, second, rest, saver=saver), Command(resume=True), THREAD)
    assert rest.requests[0][1].content == waiting.value["checkpoint"] == out["messages"][1].content
    assert "NOTES of the first process" in waiting.value["checkpoint"]


# --- tries of one step ------------------------------------------------------------------------------------------------------------------


def shaky(failures: list[Exception], replies: int) -> ScriptedChatModel:
    """A model that works, and fails when it is first sent a checkpoint."""

    def reply(messages: Any) -> Any:
        if blocks(messages) and failures:
            raise failures.pop()
        done = sum(message.type == "tool" for message in messages)
        finished = done >= replies or blocks(messages)
        return AIMessage("all done") if finished else AIMessage("", tool_calls=[{"name": "look_up", "args": {"key": done}, "id": f"c{done}"}])

    return ScriptedChatModel(replies=[reply])


@BOTH
@pytest.mark.parametrize("persist", [True, False])
@pytest.mark.parametrize("kind", ["retry", "fallback"])
def test_a_model_call_that_is_tried_again_asks_nobody_again(how: str, kind: str, persist: bool) -> None:
    """Retry and fallback around ours: one question, one answer, however often the model is called in the step."""
    subject, notes = shared()
    model = shaky([ConnectionError("reset by peer")], 20)
    around: Any = ModelRetryMiddleware(initial_delay=0, jitter=False) if kind == "retry" else ModelFallbackMiddleware(shaky([], 20))
    out, shown = answered(how, agent("middleware" if persist else "request only", subject, model, middleware=[around]), ASK, True)
    assert out["messages"][-1].content == "all done"
    assert len(shown) == len(notes.requests) == 1


@BOTH
def test_a_node_that_is_retried_asks_nobody_again(how: str) -> None:
    subject, notes = compactor(summariser("NOTES", strict=True)), []
    failures: list[Exception] = [ConnectionError("reset by peer"), ConnectionError("reset by peer")]

    def node(state: Any) -> Any:
        notes.append(blocks(state["messages"]))
        if failures:
            raise failures.pop()
        return {"messages": [AIMessage("done", id="end")]}

    graph = one_step(subject, node, retry_policy=RetryPolicy(initial_interval=0.001, max_attempts=3))
    out, shown = answered(how, graph, {"messages": history(1, 2)}, True)
    assert (len(shown), notes) == (1, [[1], [1], [1]])
    assert ids(out["messages"]) == ["h", "a1", "end"]


@BOTH
@DOOR
def test_an_overflow_asks_before_it_makes_room(how: str, door: str) -> None:
    """The window was under the trigger, the model refuses: the checkpoint that would help is shown, and on a no the error is the caller's."""

    def strict(messages: Any) -> Any:
        if not blocks(messages):
            raise ContextOverflowError("too long")
        return AIMessage("done")

    def build() -> Any:
        return agent(door, compactor(summariser("NOTES"), trigger=50_000, window=100_000), ScriptedChatModel(replies=[strict]))

    given = {"messages": history(1, 2)}
    out, shown = answered(how, build(), given, True)
    assert len(shown) == 1
    assert out["messages"][-1].content == "done"
    graph = build()
    go(how, graph, given, THREAD)
    with pytest.raises(ContextOverflowError):
        go(how, graph, Command(resume=False), THREAD)


# --- other pauses -----------------------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(("answer", "left"), [(True, ["h", "a1", "end"]), (False, ["h", "a1", "t1", "a2", "t2", "end"])])
def test_a_node_that_pauses_too_gets_its_own_answers(how: str, answer: Any, left: list[str]) -> None:
    """Consent first, then two questions of the node's own: each meets its answer, also after a no."""
    got: list[Any] = []

    def node(state: Any) -> Any:
        got.append([interrupt("first?"), interrupt("second?")])
        return {"messages": [AIMessage("done", id="end")]}

    subject = compactor(summariser("NOTES", strict=True))
    out, shown = answered(how, one_step(subject, node), {"messages": history(1, 2)}, answer, "one", "two")
    assert [one if isinstance(one, str) else one["type"] for one in shown] == ["round_compaction_review", "first?", "second?"]
    assert got == [["one", "two"]]
    assert ids(out["messages"]) == left


@BOTH
@pytest.mark.parametrize(("answer", "block"), [(True, False), (False, False), ({"action": "edit", "summary": "EDITED"}, True)])
def test_where_the_shown_text_is_lost_only_a_persons_own_text_is_applied(how: str, answer: Any, block: bool, tmp_path: Path) -> None:
    """A restart between the consent and another pause of the same step: LangGraph kept the last interrupt alone, and a new text is not agreed to."""
    got: list[Any] = []

    def node(state: Any) -> Any:
        got.append(interrupt("and now?"))
        return {"messages": [AIMessage("done", id="end")]}

    def build(text: str) -> Any:
        return lambda saver: one_step(compactor(summariser(text)), node, saver=saver)

    path = tmp_path / "threads.db"
    run_anew(how, path, build("FIRST"), {"messages": history(1, 2)}, THREAD)
    run_anew(how, path, build("FIRST"), Command(resume=answer), THREAD)
    out = run_anew(how, path, build("SECOND, never shown"), Command(resume="go on"), THREAD)
    assert got == ["go on"]
    assert "SECOND" not in str(out["messages"])
    assert bool(blocks(out["messages"])) == block


@BOTH
def test_approvals_of_calls_and_of_checkpoints_do_not_meet(how: str) -> None:
    """Human-in-the-loop middleware asks in a step of its own."""
    subject, notes = shared()
    model = working(10)
    hitl = HumanInTheLoopMiddleware(interrupt_on={"look_up": True})
    graph = agent("middleware", subject, model, middleware=[hitl])
    reviews = 0
    out = go(how, graph, ASK, THREAD)
    while "__interrupt__" in out:
        (waiting,) = out["__interrupt__"]
        ours = waiting.value.get("type") == "round_compaction_review"
        reviews += ours
        out = go(how, graph, Command(resume=True if ours else {"decisions": [{"type": "approve"}]}), THREAD)
    model.assert_complete()
    assert reviews == len(notes.requests) >= 1
    check_requests(model.requests, summaries=reviews)


@BOTH
@DOOR
def test_a_callable_decides_at_every_door(how: str, door: str) -> None:
    seen: list[Any] = []

    def judge(review: Any) -> bool:
        seen.append(review)
        return True

    subject, notes = shared()
    model = working(12)
    out, shown = answered(how, agent(door, subject, model, approve=judge), ASK)
    assert shown == []
    assert len(seen) == len(notes.requests) >= 1
    assert out["messages"][-1].content == "all done"


@pytest.mark.parametrize("approve", [None, "yes", 1])
def test_an_approve_that_cannot_work_is_refused_at_construction(approve: Any) -> None:
    with pytest.raises(ConfigurationError, match="approve="):
        RoundCompactMiddleware(compactor(), approve=approve)
    builder = StateGraph(ByIds)
    builder.add_node("agent", lambda state: {})
    with pytest.raises(ConfigurationError, match="approve="):
        add_round_compaction(builder, compactor(), approve=approve)
