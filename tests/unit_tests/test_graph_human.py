"""A human in the loop of graphs that compact: pauses before, in and after tools, decisions call by call, edits, restarts while paused.

The strongest property: a run with pauses sends its model what a run without sends, and asks for no more summaries. Further tests of paused runs:
`test_doors_wrapper.py` (a wrapped node that pauses), `test_doors_middleware.py` (batched approvals), `test_procedures_graphs.py` (decisions).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import call
from doors import REQUEST, ByIds, agent_loop, check_requests, look_up, one_node, run_anew, said, shared, thread, working
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt
from procedures import BOTH, blocks, compact, compactor, go, history, ids, summariser

from langgraph_roundcompact import RoundCompactMiddleware
from langgraph_roundcompact.testing import ScriptedChatModel, assert_valid_history

ASK: Any = {"messages": [HumanMessage(REQUEST, id="h")]}


@tool("look_up")
def asked_look_up(key: int) -> str:
    """Look an invoice up when a person allows it.

    Args:
        key: Its number.
    """
    return f"{interrupt(f'may I look up {key}?')}: invoice {key}: " + f"line of invoice {key}; " * 60


@tool("look_up")
def allowed_look_up(key: int) -> str:
    """Look an invoice up; the results are those of the tool that asks.

    Args:
        key: Its number.
    """
    return f"yes: invoice {key}: " + f"line of invoice {key}; " * 60


SMALL: Any = {"trigger": 2000, "window": 4000, "keep_recent_messages": None}

PAUSES: dict[str, dict[str, Any]] = {
    "before the model": {"interrupt_before": ["agent"]},
    "after the model": {"interrupt_after": ["agent"]},
    "before tools": {"interrupt_before": ["tools"]},
    "after tools": {"interrupt_after": ["tools"]},
    "in tools": {},
}


def whole_run(how: str, door: str, steps: int = 12) -> tuple[Any, Any, Any]:
    """The run without pauses: what the model was sent, how many summaries were asked for, the last state."""
    subject, notes = shared(trigger=2000)
    model = working(steps)
    graph = agent_loop(model, subject, door=door, tools=ToolNode([allowed_look_up])).compile()
    after = go(how, graph, ASK)["messages"]
    return [[said(m) for m in request] for request in model.requests], len(notes.requests), [said(m) for m in after]


@BOTH
@pytest.mark.parametrize("door", ["wrapper", "node"])
@pytest.mark.parametrize("pause", list(PAUSES))
def test_a_run_with_pauses_is_the_run_without(how: str, door: str, pause: str) -> None:
    """Twelve steps, a pause at each: the same requests, the same number of summaries, the same state at the end."""
    subject, notes = shared(trigger=2000)
    model = working(12)
    tools = ToolNode([asked_look_up if pause == "in tools" else allowed_look_up])
    graph = agent_loop(model, subject, door=door, tools=tools).compile(checkpointer=InMemorySaver(), **PAUSES[pause])
    go(how, graph, ASK, thread("t"))
    pauses = 0
    while graph.get_state(thread("t")).next:
        pauses += 1
        assert pauses < 30
        go(how, graph, Command(resume="yes") if pause == "in tools" else None, thread("t"))
    assert pauses in (12, 13)
    after = graph.get_state(thread("t")).values["messages"]
    requests, paid, state = whole_run(how, door)
    assert [[said(m) for m in request] for request in model.requests] == requests
    assert len(notes.requests) == paid >= 2
    assert [said(m) for m in after] == state


@BOTH
@pytest.mark.parametrize("door", ["wrapper", "node"])
def test_a_new_process_at_each_pause_changes_nothing(how: str, door: str, tmp_path: Path) -> None:
    """On SQLite, each step run by a process that has forgotten everything: still no summary is paid twice."""
    model = working(12)
    paid, count = 0, 0

    def build(saver: Any) -> Any:
        return agent_loop(model, compactor(notes, **SMALL), door=door, tools=ToolNode([asked_look_up])).compile(checkpointer=saver)

    value: Any = ASK
    while True:
        notes = summariser(*(f"SUMMARY {number}: invoices so far" for number in range(paid + 1, 60)), strict=True)
        result = run_anew(how, tmp_path / "paused.sqlite", build, value, thread("t"))
        paid += len(notes.requests)
        count += 1
        assert count < 30
        if "__interrupt__" not in result:
            break
        value = Command(resume="yes")
    requests, whole, state = whole_run(how, door)
    assert (count, paid) == (13, whole)
    assert [[said(m) for m in request] for request in model.requests] == requests
    assert [said(m) for m in result["messages"]] == state


@BOTH
def test_a_node_of_ones_own_that_compacts_and_then_asks_pays_once(how: str) -> None:
    """A node runs from its start at each resume: three pauses, one summary."""
    notes = summariser("NOTES", strict=True)
    subject = compactor(notes)

    def agent(state: ByIds) -> Any:
        result = subject.compact(state)
        told = interrupt("one?") + interrupt("two?") + interrupt("three?")
        return {"messages": [*result.update["messages"], AIMessage(told, id="answer")]}

    graph = one_node(agent, checkpointer=InMemorySaver())
    go(how, graph, {"messages": history(1, 2)}, thread("own"))
    for word in ("a", "b", "c"):
        after = go(how, graph, Command(resume=word), thread("own"))["messages"]
    assert (ids(after), after[-1].content) == (["h", "a1", "answer"], "abc")
    assert len(notes.requests) == 1


# --- several calls in one answer -------------------------------------------------------------------------------------------------------


def batches(count: int) -> ScriptedChatModel:
    """A model that makes two calls at a time."""
    pairs = [
        AIMessage("", tool_calls=[call(f"c{2 * number}", "look_up", key=2 * number), call(f"c{2 * number + 1}", "look_up", key=2 * number + 1)])
        for number in range(1, count + 1)
    ]
    return ScriptedChatModel(replies=[*pairs, "all done"], strict=True)


@BOTH
@pytest.mark.parametrize(
    "decisions", [["approve", "reject"], ["reject", "approve"], ["reject", "reject"], ["edit", "reject"], ["respond", "edit"]], ids="-".join
)
def test_decisions_about_a_batch_leave_valid_requests(how: str, decisions: list[str]) -> None:
    """Each batch decided call by call, some run, some not: every call has one result beside it, compacted or not."""
    choices: dict[str, Any] = {
        "approve": {"type": "approve"},
        "reject": {"type": "reject", "message": "not that one " * 100},
        "edit": {"type": "edit", "edited_action": {"name": "look_up", "args": {"key": 700}}},
        "respond": {"type": "respond", "message": "the person says: it is the blue one " * 40},
    }
    subject, notes = shared(trigger=2000)
    model = batches(8)
    hitl = HumanInTheLoopMiddleware(interrupt_on={"look_up": {"allowed_decisions": list(choices)}})
    agent = create_agent(model, [look_up], middleware=[hitl, RoundCompactMiddleware(subject)], checkpointer=InMemorySaver())
    result = go(how, agent, ASK, thread("batch"))
    while "__interrupt__" in result:
        result = go(how, agent, Command(resume={"decisions": [choices[kind] for kind in decisions]}), thread("batch"))
    assert len(model.requests) == 9
    assert len(notes.requests) >= 1
    check_requests(model.requests, summaries=len(notes.requests))
    assert_valid_history(result["messages"], pending_ok=False)


@BOTH
@pytest.mark.parametrize("answers", [["approve", "approve"], ["approve", "reject"], ["edit", "approve"]], ids="-".join)
def test_approvals_call_by_call_with_one_answered_first(how: str, answers: list[str]) -> None:
    """One result of two is there while the other call waits: nothing of the batch is replaced, then or later, before both have one."""
    choices: dict[str, Any] = {
        "approve": {"type": "approve"},
        "reject": {"type": "reject", "message": "no"},
        "edit": {"type": "edit", "edited_action": {"name": "look_up", "args": {"key": 9}}},
    }
    subject, notes = shared(trigger=1500)
    model = batches(6)
    hitl = HumanInTheLoopMiddleware(interrupt_on={"look_up": {"allowed_decisions": ["approve", "edit", "reject"]}}, interrupt_mode="per_call")
    agent = create_agent(model, [look_up], middleware=[hitl, RoundCompactMiddleware(subject)], checkpointer=InMemorySaver())
    result = go(how, agent, ASK, thread("calls"))
    half = 0
    while pauses := result.get("__interrupt__"):
        (pause, answer) = (pauses[0], answers[0]) if len(pauses) == 2 else (pauses[0], answers[1])
        result = go(how, agent, Command(resume={pause.id: choices[answer]}), thread("calls"))
        if result.get("__interrupt__") and len(result["__interrupt__"]) == 1:
            half += 1
            held = agent.get_state(thread("calls")).values["messages"]
            batch = next(i for i in range(len(held) - 1, -1, -1) if isinstance(held[i], AIMessage))
            asked = len(notes.requests)
            forced = compact(how, subject, held, force=True)
            assert forced.messages[len(forced.messages) - (len(held) - batch) :] == held[batch:]
            notes.requests[asked:] = []
    assert half == 6
    check_requests(model.requests, summaries=len(model.requests))
    assert any(blocks(request) for request in model.requests)
    assert_valid_history(result["messages"], pending_ok=False)


def test_a_half_answered_batch_survives_a_new_process(tmp_path: Path) -> None:
    """One call approved before the process ends, the other after: the summary of the work before is paid once, and both results are there."""
    hitl = HumanInTheLoopMiddleware(interrupt_on={"look_up": True}, interrupt_mode="per_call")
    path = tmp_path / "half.sqlite"
    paid: list[int] = []

    def build(saver: Any) -> Any:
        middleware: Any = [hitl, RoundCompactMiddleware(compactor(notes, trigger=1500, window=4000))]
        return create_agent(model, [look_up], middleware=middleware, checkpointer=saver)

    model = batches(1)
    value: Any = {"messages": history(1, 2)}
    for how in ("sync", "async", "sync"):
        notes = summariser("NOTES", strict=True)
        result = run_anew(how, path, build, value, thread("half"))
        paid.append(len(notes.requests))
        if pauses := result.get("__interrupt__"):
            value = Command(resume={pauses[-1].id: {"type": "approve"}})
    assert paid == [1, 0, 0]
    assert [message.type for message in result["messages"]] == ["human", "human", "ai", "tool", "tool", "ai"]
    assert blocks(result["messages"]) == [1]
    assert_valid_history(result["messages"], pending_ok=False)


# --- a word in between -----------------------------------------------------------------------------------------------------------------


@BOTH
def test_a_new_request_while_a_call_waits_starts_a_round_behind_it(how: str) -> None:
    """The person writes instead of deciding: the open call stays before the new request, in each later request, word for word."""
    subject, notes = shared()
    hitl = HumanInTheLoopMiddleware(interrupt_on={"look_up": True})
    first = ScriptedChatModel(replies=[AIMessage("", tool_calls=[call("open", "look_up", key=0)], id="asks")])
    saver = InMemorySaver()
    both: Any = [hitl, RoundCompactMiddleware(subject)]
    assert "__interrupt__" in go(how, create_agent(first, [look_up], middleware=both, checkpointer=saver), ASK, thread("word"))
    model = working(12)
    agent = create_agent(model, [look_up], middleware=[RoundCompactMiddleware(subject)], checkpointer=saver)
    after = go(how, agent, {"messages": [HumanMessage("Never mind, sort them by date.", id="h2")]}, thread("word"))["messages"]
    assert len(notes.requests) >= 1
    for request in [*model.requests, after]:
        assert ids(request[:3]) == ["h", "asks", "h2"]
        assert [c["id"] for c in request[1].tool_calls] == ["open"]  # type: ignore[attr-defined]
        assert_valid_history(request[2:])
    assert len(blocks(after)) == 1


@BOTH
@pytest.mark.parametrize("door", ["wrapper", "node"])
def test_a_correction_written_into_a_paused_thread_is_kept_word_for_word(how: str, door: str) -> None:
    """`update_state` while paused, with an edited call and a result by hand: what was written is what the model sees."""
    subject, notes = shared(trigger=2000)
    model = working(12)
    graph = agent_loop(model, subject, door=door).compile(checkpointer=InMemorySaver(), interrupt_before=["tools"])
    go(how, graph, ASK, thread("hand"))
    for step in range(1, 13):
        state = graph.get_state(thread("hand"))
        last = state.values["messages"][-1]
        if step % 3 == 0:
            edited = last.model_copy(update={"tool_calls": [{**last.tool_calls[0], "args": {"key": 1000 + step}}]})
            by_hand = ToolMessage(f"by hand {step} " + "word " * 300, tool_call_id=last.tool_calls[0]["id"], id=f"hand{step}")
            graph.update_state(state.config, {"messages": [edited, by_hand]}, as_node="tools")
        go(how, graph, None, thread("hand"))
    assert graph.get_state(thread("hand")).next == ()
    assert len(notes.requests) >= 2
    check_requests(model.requests, summaries=len(notes.requests))
    for step in (3, 6, 9, 12):
        seen = [m for request in model.requests for m in request if m.id == f"hand{step}"]
        assert seen
        assert all(str(m.content).startswith(f"by hand {step} ") for m in seen)
