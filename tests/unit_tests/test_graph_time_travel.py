"""Going back in a thread that was compacted: forks before and after, replays, edits by hand; with full lists, with deltas, and on SQLite.

All memory of a compaction is in the messages: what is on a branch depends on that branch alone. Smaller cases: `test_procedures_graphs.py` (a rewind
by `update_state`), `test_reducer.py` (histories of a `DeltaChannel` reloaded at every step).
"""

from __future__ import annotations

import functools
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from doors import REQUEST, ByIds, agent_loop, check_requests, look_up, run_anew, said, shared, thread, working
from langchain.agents import AgentState, create_agent
from langchain_core.messages import AnyMessage, BaseMessage, HumanMessage, RemoveMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph.message import _messages_delta_reducer
from procedures import BOTH, blocks, go, ids, summariser

from langgraph_roundcompact import RoundCompactMiddleware, round_compact_messages, round_compact_messages_delta
from langgraph_roundcompact.testing import ScriptedChatModel, assert_valid_history

ASK: Any = {"messages": [HumanMessage(REQUEST, id="h")]}


class Merged(TypedDict):
    messages: Annotated[list[AnyMessage], round_compact_messages]


class Delta(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer, snapshot_frequency=4)]


class OurDelta(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(round_compact_messages_delta, snapshot_frequency=4)]


SCHEMAS = pytest.mark.parametrize("schema", [ByIds, Merged, Delta, OurDelta])
DOORS = pytest.mark.parametrize("door", ["wrapper", "node"])


def build(model: Any, subject: Any, door: str, schema: Any, saver: Any) -> Any:
    if door == "middleware":
        state: Any = AgentState if schema is ByIds else type("State", (AgentState,), {"__annotations__": schema.__annotations__})
        return create_agent(model, [look_up], middleware=[RoundCompactMiddleware(subject)], state_schema=state, checkpointer=saver)
    return agent_loop(model, subject, door=door, schema=schema).compile(checkpointer=saver)


@functools.cache
def run(how: str, door: str, schema: Any, steps: int = 14) -> tuple[Any, list[Any], Any]:
    """A finished run, made once: its graph, its checkpoints from the first to the last, and the summariser. Tests go on from forks of it."""
    subject, notes = shared(trigger=2000)
    graph = build(working(steps), subject, door, schema, InMemorySaver())
    go(how, graph, ASK, thread("line"))
    return graph, list(reversed(list(graph.get_state_history(thread("line"))))), notes


def compactions(line: list[Any]) -> list[int]:
    """Indices of checkpoints whose list has another block than the one before."""

    def block(snapshot: Any) -> str:
        messages = snapshot.values.get("messages", [])
        return "".join(str(messages[i].content) for i in blocks(messages))

    return [i for i in range(1, len(line)) if block(line[i]) != block(line[i - 1])]


def before_the_model(line: list[Any], start: int = 0) -> int:
    """The first checkpoint from `start` on at which every call has its result: what comes next is compaction or the model."""
    return next(i for i in range(start, len(line)) if line[i].next[:1] in (("agent",), ("compact",)))


@BOTH
@SCHEMAS
@pytest.mark.parametrize("door", ["wrapper", "node", "middleware"])
def test_each_checkpoint_of_the_line_holds_a_whole_list(how: str, door: str, schema: Any) -> None:
    """Read again one by one: the request first, one block at most, calls and results paired; what was replaced is there before and gone after."""
    _, line, notes = run(how, door, schema)
    cuts = compactions(line)
    assert len(cuts) == len(notes.requests) >= 2
    for snapshot in line:
        if messages := snapshot.values.get("messages", []):
            assert (messages[0].id, messages[0].content, len(blocks(messages)) <= 1) == ("h", REQUEST, True)
            assert_valid_history(messages)
    for cut in cuts:
        before, after = line[cut - 1].values["messages"], line[cut].values["messages"]
        replaced = after[blocks(after)[0]].additional_kwargs["lc_data"]["replaced_ids"]
        gone = [m for m in before if m.id in replaced]
        assert len(gone) > 2
        assert not {*ids(after)} & {m.id for m in gone} - {after[1].id}


@BOTH
@SCHEMAS
@DOORS
@pytest.mark.parametrize("where", ["before", "after"])
def test_a_fork_knows_nothing_of_the_other_branch(how: str, door: str, schema: Any, where: str) -> None:
    """Back to the moment before (after) the second compaction, with another word of the user: the branch goes on from that list alone."""
    graph, line, _ = run(how, door, schema)
    cut = compactions(line)[1]
    fork = line[cut - 1 if where == "before" else cut]
    held = fork.values["messages"]
    later = {m.id for m in line[-1].values["messages"]} - {m.id for m in held}
    model = working(9)
    subject, notes = shared(trigger=2000)
    again = build(model, subject, door, schema, graph.checkpointer)
    forked = again.update_state(fork.config, {"messages": [HumanMessage("By date instead, please.", id="h2")]}, as_node="tools")
    assert again.get_state(forked).values["messages"][: len(held)] == held
    after = go(how, again, None, forked)["messages"]
    model.assert_complete()
    assert len(notes.requests) >= 1
    assert after[: len(held)] == held
    assert not later & {*ids(after)}
    for request in model.requests:
        assert request[: len(held)] == held
        assert_valid_history(request[len(held) :])
    assert len(blocks(after[len(held) :])) == 1


@BOTH
@DOORS
def test_a_replay_from_before_a_compaction_comes_to_the_same_list_without_paying(how: str, door: str) -> None:
    """In the process that made it the summary is remembered: the replayed step gives the same block, byte for byte."""
    subject, notes = shared(trigger=2000)
    model = working(14)
    graph = build(model, subject, door, ByIds, InMemorySaver())
    go(how, graph, ASK, thread("line"))
    line = list(reversed(list(graph.get_state_history(thread("line")))))
    paid = len(notes.requests)
    cut = compactions(line)[-1]
    start = next(i for i in range(cut - 1, -1, -1) if line[i].next == (("agent",) if door == "wrapper" else ("compact",)))
    model.replies = [*model.replies, "done otherwise"]
    after = go(how, graph, None, line[start].config)["messages"]
    at = blocks(line[cut].values["messages"])[0]
    assert after[: at + 1] == line[cut].values["messages"][: at + 1]
    assert after[-1].content == "done otherwise"
    assert len(notes.requests) == paid
    assert_valid_history(after, pending_ok=False)


@BOTH
@SCHEMAS
def test_a_fork_by_a_new_process_on_disk(how: str, schema: Any, tmp_path: Path) -> None:
    """SQLite: the line is read by a process that has forgotten everything; forks before and after compactions run and stay apart."""
    path = tmp_path / "line.sqlite"
    subject, _ = shared(trigger=2000)
    run_anew(how, path, lambda saver: build(working(14), subject, "wrapper", schema, saver), ASK, thread("line"))
    with SqliteSaver.from_conn_string(str(path)) as saver:
        graph = build(working(0), subject, "wrapper", schema, saver)
        line = list(reversed(list(graph.get_state_history(thread("line")))))
        last = graph.get_state(thread("line")).values["messages"]
        cuts = compactions(line)
        assert len(cuts) >= 2
        at = [i for cut in cuts for i in (cut - 1, cut)]
        forks = [graph.update_state(line[i].config, {"messages": [HumanMessage(f"fork {i}", id=f"f{i}")]}, as_node="tools") for i in at]
    for i, fork in zip(at, forks, strict=True):
        held = line[i].values["messages"]
        model = ScriptedChatModel(replies=["done"], strict=True)
        config: Any = fork
        after = run_anew(how, path, lambda saver, model=model: build(model, subject, "wrapper", schema, saver), None, config)["messages"]
        assert after[: len(held)] == held
        assert (ids(after)[len(held)], after[-1].content, len(after)) == (f"f{i}", "done", len(held) + 2)
    with SqliteSaver.from_conn_string(str(path)) as saver:
        graph = build(working(0), subject, "wrapper", schema, saver)
        assert graph.get_state(line[-1].config).values["messages"] == last


# --- changes by hand -------------------------------------------------------------------------------------------------------------------


@BOTH
@SCHEMAS
@DOORS
def test_a_block_edited_by_hand_is_what_the_model_sees_from_then_on(how: str, door: str, schema: Any) -> None:
    """`update_state` with the block's id and another text: the next request has it, and the next compaction starts from it."""
    graph, line, _ = run(how, door, schema, steps=8)
    cut = before_the_model(line, compactions(line)[-1])
    held = line[cut].values["messages"]
    block = held[blocks(held)[0]]
    edited = block.model_copy(update={"content": str(block.content).replace("invoices so far", "invoices so far; SUPPLIER ACME IS BLOCKED")})
    model = working(9)
    subject, notes = shared(trigger=2000)
    again = build(model, subject, door, schema, graph.checkpointer)
    # A reducer that knows blocks tells an edit from a late write by the removal in front of it.
    write = [RemoveMessage(id=block.id), edited] if schema in (Merged, OurDelta) else [edited]
    forked = again.update_state(line[cut].config, {"messages": write}, as_node="tools")
    now = again.get_state(forked).values["messages"]
    assert [m.content for m in now] == [edited.content if m.id == block.id else m.content for m in held]
    go(how, again, None, forked)
    assert len(notes.requests) >= 1
    assert "SUPPLIER ACME IS BLOCKED" in str(notes.requests[0])
    assert all("SUPPLIER ACME IS BLOCKED" in str(request) or "SUMMARY" in str(request) for request in model.requests)
    check_requests(model.requests, summaries=len(notes.requests))


@BOTH
@SCHEMAS
@DOORS
def test_a_message_of_the_tail_removed_by_hand_takes_nothing_else_along(how: str, door: str, schema: Any) -> None:
    """The last answer and its result are taken out; the run goes on from the block and what is left, and nobody trips over missing ids."""
    graph, line, _ = run(how, door, schema)
    at = next(i for i in range(len(line) - 1, -1, -1) if line[i].next == (("agent",) if door == "wrapper" else ("compact",)))
    held = line[at].values["messages"]
    assert blocks(held) == [1]
    model = working(9)
    subject, notes = shared(trigger=2000)
    again = build(model, subject, door, schema, graph.checkpointer)
    forked = again.update_state(line[at].config, {"messages": [RemoveMessage(id=m.id) for m in held[-2:]]}, as_node="tools")
    assert again.get_state(forked).values["messages"] == held[:-2]
    after = go(how, again, None, forked)["messages"]
    assert len(notes.requests) >= 1
    check_requests(model.requests, summaries=len(notes.requests))
    assert not {m.id for m in held[-2:]} & {*ids(after)}


@BOTH
@SCHEMAS
def test_a_late_write_of_replaced_messages(how: str, schema: Any) -> None:
    """Ids that a block lists come back: the package's reducers drop them; under the others they are appended and go with the next compaction."""
    graph, line, _ = run(how, "wrapper", schema)
    cut = compactions(line)[-1]
    before = line[cut - 1].values["messages"]
    cut = before_the_model(line, cut)
    held = line[cut].values["messages"]
    zombies = [m for m in before if m.id not in {*ids(held)}]
    pairs = [m for m in zombies if m.type == "ai" and m.tool_calls]
    late: list[BaseMessage] = [m for ai in pairs[:1] for m in before if m is ai or getattr(m, "tool_call_id", None) == ai.tool_calls[0]["id"]]
    assert len(late) == 2
    subject, _ = shared(trigger=2000)
    model = working(9)
    again = build(model, subject, "wrapper", schema, graph.checkpointer)
    forked = again.update_state(line[cut].config, {"messages": late}, as_node="tools")
    now = again.get_state(forked).values["messages"]
    assert now == (held if schema in (Merged, OurDelta) else [*held, *late])
    after = go(how, again, None, forked)["messages"]
    assert not {m.id for m in late} & {*ids(after)}
    for request in model.requests:
        assert_valid_history(request, pending_ok=False)


# --- delta channels --------------------------------------------------------------------------------------------------------------------


@BOTH
@DOORS
@pytest.mark.parametrize("frequency", [1, 3, 1000])
def test_a_delta_history_reloaded_at_every_step_is_the_one_that_ran(how: str, door: str, frequency: int, tmp_path: Path) -> None:
    """Whatever the snapshots' distance: each step runs in a new process on SQLite, and sends what one process would have sent."""
    channel = DeltaChannel(round_compact_messages_delta, snapshot_frequency=frequency)
    schema = TypedDict("State", {"messages": Annotated[list, channel]})  # type: ignore[misc]  # noqa: UP013 - the channel is a local
    model = working(12)
    paid = 0
    value: Any = ASK
    for _ in range(20):
        notes = summariser(*(f"SUMMARY {number}: invoices so far" for number in range(paid + 1, 60)), strict=True)
        subject, _ = shared(trigger=2000, notes=notes)

        def one_step(saver: Any, subject: Any = subject) -> Any:
            return agent_loop(model, subject, door=door, schema=schema).compile(checkpointer=saver, interrupt_before=["agent"])

        result = run_anew(how, tmp_path / "delta.sqlite", one_step, value, thread("delta"))
        paid += len(notes.requests)
        value = None
        if result["messages"][-1].content == "all done":
            break
    subject, notes = shared(trigger=2000)
    whole = working(12)
    after = go(how, agent_loop(whole, subject, door=door, schema=schema).compile(), ASK)["messages"]
    assert [[said(m) for m in request] for request in model.requests] == [[said(m) for m in request] for request in whole.requests]
    assert [said(m) for m in result["messages"]] == [said(m) for m in after]
    assert paid == len(notes.requests) >= 2


@BOTH
@pytest.mark.parametrize("schema", [Delta, OurDelta])
def test_every_checkpoint_of_a_delta_history_grows_by_what_was_written(how: str, schema: Any) -> None:
    """Between two checkpoints only the end changes, but at a compaction: there the block takes the place and the tail stays word for word."""
    _, line, _ = run(how, "wrapper", schema)
    cuts = {*compactions(line)}
    for number, (one, two) in enumerate(pairwise(line), 1):
        before, after = one.values.get("messages", []), two.values.get("messages", [])
        if number in cuts:
            tail = [m for m in before if m.id in {*ids(after)} and m.id != after[1].id]
            assert [m for m in after if m.id in {*ids(before)} and m.id != after[1].id] == tail
        else:
            assert after[: len(before)] == before
