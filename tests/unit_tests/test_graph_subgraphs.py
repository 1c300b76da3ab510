"""Graphs in graphs: subgraphs that share `messages` and that do not, agents as nodes, supervisor and swarm, the names of agents.

A subgraph that shares `messages` compacts for its parent when both declare `round_compact_messages`. Smaller cases: `test_reducer.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from builders import call
from conftest import examples
from doors import ASK, REQUEST, ByIds, Merged, agent_loop, check_requests, look_up, run_anew, said, shared, stream, thread, working
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import AgentState, create_agent
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt
from langgraph_supervisor import create_supervisor
from langgraph_swarm import SwarmState, create_handoff_tool, create_swarm
from procedures import BOTH, blocks, compactor, go, history, ids, summariser, texts, work
from strategies import histories

from langgraph_roundcompact import (
    RoundCompactMiddleware,
    RoundCompactNode,
    add_round_compaction,
    round_compact_messages,
    round_compact_messages_delta,
)
from langgraph_roundcompact._leftovers import without_leftovers
from langgraph_roundcompact._memory_block import BlockData, checkpoint_messages, frame, replaced_ids
from langgraph_roundcompact._spans import is_real_user
from langgraph_roundcompact.testing import ScriptedChatModel, assert_valid_history, pairing_faults


class MergedDelta(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(round_compact_messages_delta)]


class MergedAgent(AgentState[Any]):
    messages: Annotated[list[AnyMessage], round_compact_messages]  # type: ignore[misc]


def ask(number: int) -> Any:
    return {"messages": [HumanMessage(f"Sort the invoices, part {number}.", id=f"h{number}")]}


def scripted(*runs: int, names: str = "c") -> ScriptedChatModel:
    """A model that in each turn calls `look_up` so many times, each call under an id of its own, and then answers."""
    key = iter(range(1, 1000))
    replies: list[Any] = []
    for turn, steps in enumerate(runs, 1):
        numbers = [next(key) for _ in range(steps)]
        replies += [AIMessage("", tool_calls=[call(f"{names}{number}", "look_up", key=number)]) for number in numbers]
        replies.append(f"done with {turn}")
    return ScriptedChatModel(replies=replies, strict=True)


# --- a subgraph that shares messages ---------------------------------------------------------------------------------------------------


def in_a_parent(inner: Any, schema: Any, **compile_with: Any) -> Any:
    parent = StateGraph(schema)
    parent.add_node("member", inner)
    parent.add_edge(START, "member")
    return parent.compile(**compile_with)


def member(kind: str, model: ScriptedChatModel, subject: Any, schema: Any, **compile_with: Any) -> Any:
    if kind == "create_agent":
        return create_agent(model, [look_up], middleware=[RoundCompactMiddleware(subject)], state_schema=MergedAgent, **compile_with)
    return agent_loop(model, subject, door=kind, schema=schema).compile(**compile_with)


@BOTH
@pytest.mark.parametrize("schema", [Merged, MergedDelta])
@pytest.mark.parametrize("kind", ["wrapper", "node", "create_agent"])
def test_a_member_sends_the_same_requests_as_on_its_own(how: str, kind: str, schema: Any) -> None:
    """Four turns: as a node of a parent that shares `messages`, and alone; equal requests, equal summaries paid, equal messages in the end."""
    runs = []
    for alone in (True, False):
        subject, notes = shared(trigger=2000)
        model = scripted(8, 8, 8, 8)
        if alone:
            graph = member(kind, model, subject, schema, checkpointer=InMemorySaver())
        else:
            graph = in_a_parent(member(kind, model, subject, schema), schema, checkpointer=InMemorySaver())
        for turn in range(1, 5):
            after = go(how, graph, ask(turn), thread("turns"))["messages"]
        assert_valid_history(after, pending_ok=False)
        assert graph.get_state(thread("turns")).values["messages"] == after
        runs.append(([[said(m) for m in request] for request in model.requests], len(notes.requests), [said(m) for m in after]))
    assert runs[0][1] >= 4
    assert runs[0] == runs[1]


@BOTH
@pytest.mark.parametrize("kind", ["wrapper", "node", "create_agent"])
def test_a_member_that_pauses_goes_on_in_a_new_process(how: str, kind: str, tmp_path: Path) -> None:
    """An interrupt inside a subgraph that compacts, on SQLite: as if there had been no pause, and no summary paid again."""

    @tool("look_up")
    def asked(key: int) -> str:
        """Look an invoice up when a person allows it.

        Args:
            key: Its number.
        """
        if key % 4 == 0:
            assert interrupt(f"may I look up {key}?") == "yes"
        return str(look_up.invoke({"key": key}))

    def build(saver: Any, tools: Any = asked) -> Any:
        subject = compactor(notes, trigger=2000, window=4000, keep_recent_messages=None)
        if kind == "create_agent":
            inner = create_agent(model, [tools], middleware=[RoundCompactMiddleware(subject)], state_schema=MergedAgent)
        else:
            inner = agent_loop(model, subject, door=kind, schema=Merged, tools=ToolNode([tools])).compile()
        return in_a_parent(inner, Merged, checkpointer=saver)

    notes = summariser(*(f"SUMMARY {number}: invoices so far" for number in range(1, 60)), strict=True)
    model = scripted(12)
    whole = go(how, build(InMemorySaver(), look_up), ASK, thread("whole"))["messages"]
    requests, in_all = [[said(m) for m in request] for request in model.requests], len(notes.requests)
    model, value, paid = scripted(12), ASK, 0
    for _ in range(4):
        notes = summariser(*(f"SUMMARY {number}: invoices so far" for number in range(paid + 1, 60)), strict=True)
        result = run_anew(how, tmp_path / "pauses.sqlite", build, value, thread("pauses"))
        paid += len(notes.requests)
        value = Command(resume="yes")
    assert "__interrupt__" not in result
    assert (paid, [[said(m) for m in request] for request in model.requests]) == (in_all, requests)
    assert [said(m) for m in result["messages"]] == [said(m) for m in whole]
    assert in_all >= 2


@BOTH
def test_nothing_of_a_members_compaction_reaches_the_parents_stream(how: str) -> None:
    """`messages` with subgraphs: the answers, and neither summary nor block."""
    subject, notes = shared(trigger=2000)
    model = scripted(8)
    graph = in_a_parent(member("wrapper", model, subject, Merged), Merged)
    parts = stream(how, graph, ASK, stream_mode="messages", subgraphs=True)
    text = "".join(str(chunk.content) for _, (chunk, _) in parts)
    assert len(notes.requests) >= 1
    assert "SUMMARY" not in text
    assert "memory_block" not in text


# --- a subgraph with messages of its own -----------------------------------------------------------------------------------------------


class Parent(TypedDict):
    messages: Annotated[list[AnyMessage], round_compact_messages]


class Own(TypedDict, total=False):
    work: Annotated[list[AnyMessage], round_compact_messages]
    messages: Annotated[list[AnyMessage], round_compact_messages]


@BOTH
@pytest.mark.parametrize("door", ["wrapper", "node"])
def test_a_private_key_is_compacted_and_the_parents_list_is_not_touched(how: str, door: str) -> None:
    """The subgraph works under a key of its own and hands over one answer."""
    subject, notes = shared(trigger=2000)
    model = working(10)
    inner = StateGraph(Own)
    inner.add_node("begin", lambda state: {"work": [HumanMessage(REQUEST, id="task")]})
    inner.add_node("agent", lambda state: {"work": [model.invoke(state["work"])]})
    inner.add_node("tools", ToolNode([look_up], messages_key="work"))
    inner.add_node("end", lambda state: {"messages": [AIMessage(str(state["work"][-1].content), id="answer")]})
    first = "agent"
    if door == "wrapper":
        add_round_compaction(inner, subject, messages_key="work")
    else:
        inner.add_node("compact", RoundCompactNode(subject, messages_key="work"))
        inner.add_edge("compact", "agent")
        first = "compact"
    inner.add_edge(START, "begin")
    inner.add_edge("begin", first)
    inner.add_edge("tools", first)
    inner.add_conditional_edges("agent", lambda state: "tools" if state["work"][-1].tool_calls else "end", ["tools", "end"])
    given = history(1, 2)
    graph = in_a_parent(inner.compile(), Parent, checkpointer=InMemorySaver())
    after = go(how, graph, {"messages": given}, thread("own"))["messages"]
    assert after[:-1] == given
    assert after[-1].content == "all done"
    assert len(notes.requests) >= 1
    check_requests(model.requests, summaries=len(notes.requests))


@BOTH
def test_a_member_with_its_own_memory_keeps_its_block_from_turn_to_turn(how: str) -> None:
    """A subgraph compiled with `checkpointer=True`, called by a node: its state is its own thread's, and what it compacted stays compacted."""
    subject, notes = shared(trigger=2000)
    model = scripted(8, 3)
    inner = agent_loop(model, subject).compile(checkpointer=True)

    def asks(state: Any) -> Any:
        return {"messages": [AIMessage(inner.invoke({"messages": [state["messages"][-1]]})["messages"][-1].content)]}

    async def aasks(state: Any) -> Any:
        return {"messages": [AIMessage((await inner.ainvoke({"messages": [state["messages"][-1]]}))["messages"][-1].content)]}

    graph = in_a_parent(asks if how == "sync" else aasks, ByIds, checkpointer=InMemorySaver())
    go(how, graph, ask(1), thread("memory"))
    paid = len(notes.requests)
    after = go(how, graph, ask(2), thread("memory"))["messages"]
    assert [m.content for m in after if m.type == "ai"] == ["done with 1", "done with 2"]
    assert paid >= 1
    first_of_second = model.requests[9]
    assert (blocks(first_of_second), first_of_second[-1].id) == ([1], "h2")
    for request in model.requests:
        assert_valid_history(request, pending_ok=False)


@BOTH
def test_an_agent_called_as_a_tool_compacts_its_own_work(how: str) -> None:
    """A sub-agent inside a tool: the outer agent sees its answer, the two rounds and their summaries do not mix."""
    outer_subject, outer_notes = shared(trigger=2000)
    inner_subject, inner_notes = shared(trigger=2000, notes=summariser(*(f"INNER {n}" for n in range(1, 40)), strict=True))
    inner_model = scripted(*[10] * 6, names="i")
    helper = create_agent(inner_model, [look_up], middleware=[RoundCompactMiddleware(inner_subject)], name="helper")

    @tool("delegate")
    def delegate(task: str) -> str:
        """Have a part done by the helper.

        Args:
            task: What to do.
        """
        return str(helper.invoke({"messages": [HumanMessage(task)]})["messages"][-1].content) + " and more" * 200

    replies = [AIMessage("", tool_calls=[call(f"d{number}", "delegate", task=f"part {number}")]) for number in range(1, 7)]
    model = ScriptedChatModel(replies=[*replies, "all done"], strict=True)
    agent = create_agent(model, [delegate], middleware=[RoundCompactMiddleware(outer_subject)], checkpointer=InMemorySaver(), name="outer")
    after = go(how, agent, ASK, thread("tool"))["messages"]
    assert min(len(outer_notes.requests), len(inner_notes.requests)) >= 1
    check_requests(model.requests, summaries=len(outer_notes.requests))
    assert not any("INNER" in text for text in texts([*model.requests, after]))
    assert not any("SUMMARY" in text for text in texts(inner_model.requests))
    for request in inner_model.requests:
        assert_valid_history(request, pending_ok=False)


# --- supervisor and swarm --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # both packages build on what LangGraph deprecates
        yield


def names(messages: list[BaseMessage]) -> dict[str, str | None]:
    """Which agent made each call that is still there."""
    return {one["id"]: message.name for message in messages if isinstance(message, AIMessage) for one in message.tool_calls}


class MergedSwarm(SwarmState):
    messages: Annotated[list[AnyMessage], round_compact_messages]


def swarm_member(name: str, other: str, visits: int, last: bool, subject: Any) -> tuple[ScriptedChatModel, Any]:
    """An agent that at each visit looks four invoices up and hands over, or ends the run."""
    replies: list[Any] = []
    for visit in range(1, visits + 1):
        replies += [AIMessage("", tool_calls=[call(f"{name}{visit}{k}", "look_up", key=10 * visit + k)]) for k in range(4)]
        ends = last and visit == visits
        replies.append("all done" if ends else AIMessage("", tool_calls=[call(f"{name}{visit}go", f"transfer_to_{other}")]))
    model = ScriptedChatModel(replies=replies, strict=True)
    tools = [look_up, create_handoff_tool(agent_name=other)]
    agent = create_agent(model, tools, name=name, middleware=[RoundCompactMiddleware(subject)], state_schema=MergedAgent)
    return model, agent


@BOTH
@pytest.mark.usefixtures("_quiet")
def test_a_swarm_hands_over_compacted_histories(how: str) -> None:
    """Six visits of two agents: every request valid with the person's words in it, one block, each kept call under the name of who made it."""
    subject, notes = shared(trigger=2000)
    alice_model, alice = swarm_member("alice", "bob", 3, False, subject)
    bob_model, bob = swarm_member("bob", "alice", 3, True, subject)
    swarm = create_swarm([alice, bob], default_active_agent="alice", state_schema=MergedSwarm).compile(checkpointer=InMemorySaver())
    after = go(how, swarm, ASK, thread("swarm"))
    alice_model.assert_complete()
    bob_model.assert_complete()
    assert after["active_agent"] == "bob"
    assert len(notes.requests) >= 3
    for model in (alice_model, bob_model):
        check_requests(model.requests, summaries=len(model.requests))
    for messages in [*alice_model.requests, *bob_model.requests, after["messages"]]:
        assert all(name is not None and one.startswith(name) for one, name in names(messages).items())
    assert len(blocks(after["messages"])) == 1
    assert_valid_history(after["messages"], pending_ok=False)
    assert swarm.get_state(thread("swarm")).values["messages"] == after["messages"]


@BOTH
@pytest.mark.usefixtures("_quiet")
def test_a_swarms_second_turn_goes_on_with_the_active_agent(how: str) -> None:
    """What the first turn compacted is prefix of the second, byte for byte."""
    subject, notes = shared(trigger=2000)
    _, alice = swarm_member("alice", "bob", 1, False, subject)
    bob_model, bob = swarm_member("bob", "alice", 1, True, subject)
    bob_model.replies = [*bob_model.replies, *scripted(8, names="bob9").replies]
    swarm = create_swarm([alice, bob], default_active_agent="alice", state_schema=MergedSwarm).compile(checkpointer=InMemorySaver())
    first = go(how, swarm, ASK, thread("swarm"))["messages"]
    assert len(notes.requests) >= 1
    after = go(how, swarm, ask(2), thread("swarm"))["messages"]
    assert after[: len(first)] == first
    assert len(blocks(after)) == 2
    for request in bob_model.requests[5:]:
        assert request[: len(first)] == first
        assert_valid_history(request, pending_ok=False)


SUPERVISOR_TURNS = 5


def team(how: str, door: str, output_mode: Any, agent_name: Any) -> Any:
    """A supervisor that asks two named workers in turn; both workers compact, and the supervisor does by the door."""
    subject, notes = shared(trigger=2000)
    workers, models = [], {}
    for name in ("reader", "writer"):
        models[name] = scripted(*[5] * SUPERVISOR_TURNS, names=name)
        middleware: Any = [RoundCompactMiddleware(subject)]
        workers.append(create_agent(models[name], [look_up], name=name, middleware=middleware, state_schema=MergedAgent))
    orders = [
        AIMessage("", tool_calls=[call(f"s{turn}{name}", f"transfer_to_{name}")]) for turn in range(SUPERVISOR_TURNS) for name in ("reader", "writer")
    ]
    models["supervisor"] = ScriptedChatModel(replies=[*orders, "all done"], strict=True)
    node = RoundCompactNode(subject, output_messages_key="llm_input_messages" if door == "hook" else None)

    class State(AgentState[Any]):
        messages: Annotated[list[AnyMessage], round_compact_messages]  # type: ignore[misc]
        remaining_steps: int

    builder = create_supervisor(
        workers,
        model=models["supervisor"],
        output_mode=output_mode,
        include_agent_name=agent_name,
        pre_model_hook=node,
        state_schema=State,
    )
    graph = builder.compile(checkpointer=InMemorySaver())
    return go(how, graph, ASK, {**thread("team"), "recursion_limit": 200})["messages"], models, notes


@BOTH
@pytest.mark.usefixtures("_quiet")
@pytest.mark.parametrize("door", ["hook", "state"])
@pytest.mark.parametrize(("output_mode", "agent_name"), [("full_history", None), ("last_message", "inline"), ("full_history", "inline")])
def test_a_supervisor_and_its_workers_compact(how: str, door: str, output_mode: str, agent_name: Any) -> None:
    """Ten hand-overs: every request valid and with the person's words, kept messages under the names of who wrote them."""
    after, models, notes = team(how, door, output_mode, agent_name)
    for model in models.values():
        model.assert_complete()
        for request in model.requests:
            assert len([m for m in request if m.content == REQUEST]) == 1
            assert_valid_history(request, pending_ok=False)
    assert len(notes.requests) >= 2
    assert_valid_history(after, pending_ok=False)
    assert after[-1].content == "all done"
    for one, name in names(after).items():  # the calls by which a worker goes back have ids of the package's own
        assert not one.startswith(("reader", "writer")) or one.startswith(str(name))
    assert {m.name for m in after if m.type == "ai"} <= {"supervisor", "reader", "writer"}


@BOTH
def test_the_summariser_is_told_which_agent_did_what(how: str) -> None:
    """Names are part of what happened: after a hand-over the work of two agents stands in one round."""
    notes = summariser("NOTES")
    given = history(1, 2)
    named = [m.model_copy(update={"name": "alice" if m.id == "a1" else "bob"}) if isinstance(m, AIMessage) else m for m in given]
    graph = StateGraph(ByIds)
    graph.add_node("compact", RoundCompactNode(compactor(notes)))
    graph.add_edge(START, "compact")
    after = go(how, graph.compile(), {"messages": named})["messages"]
    assert ids(after) == ["h", "a1"]
    (text,) = texts(notes.requests)
    assert text.index("alice") < text.index("bob")


# --- parents that merge with another reducer -------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.usefixtures("_quiet")
@pytest.mark.parametrize("persist", [True, False])
def test_a_swarm_with_its_own_plain_state_sends_valid_requests(how: str, persist: bool) -> None:
    """Its parent cannot be told what was replaced, and hands it back at each visit: the agents are sent what the block left, paid once."""
    subject, notes = shared(trigger=2000)
    models, agents = [], []
    for name, other in (("alice", "bob"), ("bob", "alice")):
        model, _ = swarm_member(name, other, 4, name == "bob", subject)
        tools = [look_up, create_handoff_tool(agent_name=other)]
        agents.append(create_agent(model, tools, name=name, middleware=[RoundCompactMiddleware(subject, persist=persist)]))
        models.append(model)
    swarm = create_swarm(agents, default_active_agent="alice").compile(checkpointer=InMemorySaver())
    go(how, swarm, ASK, thread("swarm"))
    for model in models:
        model.assert_complete()
        check_requests(model.requests, summaries=len(model.requests))
        assert max(map(subject.count_tokens, model.requests)) < 2600
    assert 3 <= len(notes.requests) <= 8


@BOTH
@pytest.mark.parametrize("kind", ["wrapper", "node", "create_agent"])
def test_a_member_that_compacts_what_its_parent_holds(how: str, kind: str) -> None:
    """The parent has the work already and merges with `add_messages`: in the turns that follow, too, the member's requests are whole and small."""
    subject, notes = shared(trigger=2000)
    model = scripted(1, 1, 6)
    if kind == "create_agent":
        inner: Any = create_agent(model, [look_up], middleware=[RoundCompactMiddleware(subject)])
    else:
        inner = agent_loop(model, subject, door=kind).compile()
    graph = in_a_parent(inner, ByIds, checkpointer=InMemorySaver())
    go(how, graph, {"messages": history(*range(1, 13), characters=1200)}, thread("held"))
    assert len(notes.requests) == 1
    for turn in (2, 3):
        go(how, graph, ask(turn), thread("held"))
    for request in model.requests:
        assert_valid_history(request, pending_ok=False)
        assert blocks(request)[0] == 1
        assert not any(str(m.content).startswith("result 1 ") for m in request)
        assert subject.count_tokens(request) < 3200
    assert len(notes.requests) <= 3


@BOTH
@pytest.mark.parametrize("door", ["wrapper", "node"])
def test_the_parents_own_model_behind_a_member_that_compacts(how: str, door: str, caplog: pytest.LogCaptureFixture) -> None:
    """It merges with `add_messages`: a door in front of its model sends what the member's block left, heals the state, and the log says why once."""
    subject, notes = shared(trigger=2000)
    model = ScriptedChatModel(replies=["reported", "reported again"], strict=True)
    builder = StateGraph(ByIds)
    builder.add_node("team", agent_loop(scripted(1, 1), subject).compile())
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    if door == "node":
        builder.add_node("compact", RoundCompactNode(subject))
        builder.add_edge("compact", "agent")
    else:
        add_round_compaction(builder, subject)
    builder.add_edge(START, "team")
    builder.add_edge("team", "compact" if door == "node" else "agent")
    graph = builder.compile(checkpointer=InMemorySaver())
    given = history(*range(1, 13), characters=1200)
    for turn in ({"messages": given}, ask(2)):
        after = go(how, graph, turn, thread("own"))["messages"]
        assert_valid_history(after, pending_ok=False)
        assert len(blocks(after)) == 1
        assert not {"t1", "a2", "t2"} & {*ids(after)}
    for request in model.requests:
        assert_valid_history(request, pending_ok=False)
        assert subject.count_tokens(request) < 3200
    assert len(notes.requests) == 1
    assert caplog.text.count("use round_compact_messages for the messages of every graph around") == 1


def test_a_message_that_only_claims_to_be_a_checkpoint_takes_nothing_away() -> None:
    """It has an id of its own, where a checkpoint has that of the first message it stands for."""
    block = compactor(None).compact(history(1, 2)).messages[1]
    forged = block.model_copy(update={"id": "forged"})
    assert ids([*without_leftovers([history(1)[0], forged, *history(1, 2)[1:]], is_real_user)]) == ["h", "forged", "a1", "t1", "a2", "t2"]


def test_a_checkpoint_of_a_finished_round_is_looked_at_only_where_a_parent_may_bring_it_back() -> None:
    """At the top level the cost of the look must not grow with the rounds before."""
    request, leftovers = history(1, 2)[0], history(1, 2)[2:]
    block = compactor(None).compact(history(1, 2)).messages[1]
    rounds = [request, block, *leftovers, HumanMessage("Next.", id="h2"), *work(3)]
    assert [*without_leftovers(rounds, is_real_user, earlier_rounds=False)] == rounds
    assert ids([*without_leftovers(rounds, is_real_user)]) == ["h", block.id, "h2", "a3", "t3"]


def test_what_a_block_lists_goes_only_as_whole_groups_behind_it() -> None:
    """Work that reuses an id, what people said, what stands before the block or in a later round: all of it stays."""
    block = compactor(None).compact(history(1, 2)).messages[1]
    assert block.additional_kwargs["lc_data"]["replaced_ids"] == ["a1", "t1", "a2", "t2"]
    request, leftovers = history(1, 2)[0], history(1, 2)[2:]

    def left(*behind: BaseMessage) -> list[str | None]:
        return ids([*without_leftovers([request, block, *behind], is_real_user)])[2:]

    new = [m.model_copy(update={"id": f"new {m.id}"}) for m in work(7)]
    assert left(*leftovers) == []
    assert left(*leftovers, *new) == ["new a7", "new t7"]
    reused = [new[0], new[1].model_copy(update={"id": "t1"})]
    assert left(*reused) == ["new a7", "t1"]
    said = HumanMessage("and this too", id="a2")
    assert left(said, *work(2)) == ["a2", "a2", "t2"]
    assert left(SystemMessage("note", id="t1")) == ["t1"]
    assert left(work(2)[0]) == ["a2"]  # a call that waits
    assert [*without_leftovers(history(1, 2), is_real_user)] == history(1, 2)
    front = [*history(1, 2), block]
    assert [*without_leftovers(front, is_real_user)] == front


@examples(100)
@given(messages=histories(), claim=st.sets(st.integers(0, 40)), at=st.integers(0, 40))
def test_nothing_goes_that_no_block_lists_and_no_pair_is_torn(messages: list[BaseMessage], claim: set[int], at: int) -> None:
    """Odd histories with a block that lists any of their ids: order and objects stay, so does what people said, and the pairs get no new fault."""
    listed = [m.id for i, m in enumerate(messages) if i in claim and m.id]
    (block,) = checkpoint_messages(frame("notes", "", (), ""), BlockData(replaced_ids=("block", *listed)), role="user", ids=["block"])
    given_list = [*messages[:at], block, *messages[at:]]
    left = [*without_leftovers(given_list, is_real_user)]
    kept = iter(given_list)
    assert all(any(m is other for other in kept) for m in left)
    gone = [m for m in given_list if not any(m is other for other in left)]
    known = {key for m in given_list for key in replaced_ids(m)}
    assert all(m.id in known and not is_real_user(m) and m.type != "system" for m in gone)
    assert all(any(m is other for other in left) for m in messages[: at if not any(map(replaced_ids, messages)) else 0])
    assert len(pairing_faults(left)) <= len(pairing_faults(given_list))
    assert [*without_leftovers(left, is_real_user)] == left
