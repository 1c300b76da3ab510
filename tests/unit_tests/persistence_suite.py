"""What must hold of an agent whose state is in a database, whichever database that is: subclasses give the fixture `place`.

Each property is tried with a new connection, a new graph and a new compactor wherever a restart could fall, so that nothing can come from memory.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from builders import dump
from durable import (
    ASK,
    DOORS,
    Door,
    Place,
    Session,
    Spec,
    adrive,
    agent_of,
    assert_nothing_lost,
    drive,
    entries,
    in_process,
    invoice,
    next_step,
    pointers_in,
    subject_of,
    thread_config,
    work_of,
)
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command, RetryPolicy
from procedures import BOTH, blocks

from langgraph_roundcompact import StoreArchive
from langgraph_roundcompact._memory_block import mark_of
from langgraph_roundcompact.testing import ScriptedChatModel

DURABILITY = pytest.mark.parametrize("durability", ["sync", "async", "exit"])
EACH_DOOR = pytest.mark.parametrize("door", DOORS)


def resumed(how: str, config: Any) -> Any:
    """For `Session.run`: go on from a checkpoint."""

    async def aresume(graph: Any, thread: str) -> None:
        await graph.ainvoke(None, config)

    return aresume if how == "async" else lambda graph, thread: graph.invoke(None, config)


def told(messages: list[BaseMessage]) -> list[str]:
    """What the messages say, without archive ids: those come from the ids of messages, and work that is done again has new ones."""
    return [re.sub(r"id=rc-\w+", "id=", str(message.content)) for message in messages]


def read(place: Place, spec: Spec, how: str, thread: str) -> list[BaseMessage]:
    """The messages as a process finds them that has just started."""
    return look(place, spec, how, thread, lambda graph, config: graph.get_state(config)).values.get("messages", [])


def look(place: Place, spec: Spec, how: str, thread: str, see: Any) -> Any:
    """Call `see(graph, config)` in a new session; in the async colour on the graph's awaited methods."""
    config = thread_config(thread)

    async def asee(graph: Any, thread: str) -> Any:
        # Savers of this colour refuse the loop's own thread, not another one.
        return await asyncio.to_thread(see, graph, config)

    return Session(place, spec, how).run(thread, use=asee if how == "async" else lambda graph, thread: see(graph, config))


def history_of(place: Place, spec: Spec, thread: str) -> list[Any]:
    """All checkpoints of a thread, oldest first."""
    return Session(place, spec).run(thread, use=lambda graph, thread: list(graph.get_state_history(thread_config(thread)))[::-1])


def archive_check(place: Place, messages: list[BaseMessage], thread: str, last: int | None = None) -> int:
    """`assert_nothing_lost` with a store that is opened for it."""
    with place.opened() as (_, store):
        return assert_nothing_lost(messages, StoreArchive(store), thread, last)


def progress_of(place: Place, spec: Spec, thread: str) -> list[int]:
    """How far the work was at each checkpoint of a thread, oldest first; each is held to `assert_nothing_lost`."""
    states = history_of(place, spec, thread)
    with place.opened() as (_, store):
        archive = StoreArchive(store)
        return [assert_nothing_lost(state.values["messages"], archive, thread) for state in states if state.values.get("messages")]


def summaries(log: str) -> list[str]:
    """Digests of all requests to the summariser, of all processes."""
    return [line.split()[1] for line in Path(log).read_text(encoding="utf-8").splitlines()] if Path(log).exists() else []


class Suite:
    """Subclass it and give the fixture `place`."""

    @pytest.fixture
    def log(self, tmp_path: Path) -> str:
        """Where requests to the summariser are noted."""
        return str(tmp_path / "summaries.log")


class PersistenceSuite(Suite):
    """What holds as long as no process dies in the middle of a step."""

    # --- after a restart --------------------------------------------------------------------------------------------------------------

    @BOTH
    @EACH_DOOR
    def test_a_restarted_process_finds_the_same_list(self, place: Place, door: Door, how: str) -> None:
        """Every field of every message, the marks of the checkpoint included."""
        spec = Spec(door=door)
        after = Session(place, spec, how).run("t")
        assert len(blocks(after)) == 1
        assert archive_check(place, after, "t", 13) == 13
        assert dump(read(place, spec, how, "t")) == dump(after)

    @BOTH
    @EACH_DOOR
    def test_work_goes_on_after_a_restart_at_every_step(self, place: Place, door: Door, how: str, log: str) -> None:
        """One process for each step: the end is that of a run without a restart, and no summary is asked for twice by anyone."""
        spec, steps = Spec(door=door, interrupt_before=("model" if door == "middleware" else "agent",)), 0
        while True:
            messages = Session(place, spec, how, log).run("t", durability="sync")
            archive_check(place, messages, "t")
            steps += 1
            if messages[-1].type == "ai" and not messages[-1].tool_calls:
                break
        assert steps == 13
        assert archive_check(place, messages, "t", 13) == 13
        asked = summaries(log)
        assert len(asked) == len(set(asked)) >= 3

    @BOTH
    @EACH_DOOR
    def test_a_later_round_after_a_restart_leaves_the_first_checkpoint_alone(self, place: Place, door: Door, how: str) -> None:
        """The new request begins a round; what the first round's checkpoint stands for stays readable."""
        spec = Spec(door=door)
        first = Session(place, spec, how).run("t")
        more = Spec(door=door, last=20)
        after = Session(place, more, how).run("t", given={"messages": [HumanMessage("Now the rest.", id="h2")]})
        assert dump(after[: len(first)]) == dump(first)
        assert after[len(first)].content == "Now the rest."
        with place.opened() as (_, store):
            assert work_of(after, StoreArchive(store), "t") == [(f"c{key}", invoice("t", key)) for key in range(1, 21)]

    @BOTH
    def test_threads_on_one_database_do_not_meet(self, place: Place, how: str) -> None:
        """Two threads with the same request, run by turns: each has its own invoices, in state and archive."""
        for thread in ("one", "two", "one "):
            after = Session(place, Spec(), how).run(thread)
            assert archive_check(place, after, thread, 13) == 13

    @DURABILITY
    @BOTH
    @EACH_DOOR
    def test_durability_changes_nothing_but_the_moment_of_writing(self, place: Place, door: Door, how: str, durability: str) -> None:
        """The list at the end is what the database holds, in each mode; with `exit` it was written once."""
        spec = Spec(door=door)
        after = Session(place, spec, how).run("t", durability=durability)
        assert archive_check(place, after, "t", 13) == 13
        assert dump(read(place, spec, how, "t")) == dump(after)
        if durability == "exit":
            assert len(history_of(place, spec, "t")) == 1

    # --- time travel --------------------------------------------------------------------------------------------------------------------

    @BOTH
    @EACH_DOOR
    def test_every_checkpoint_of_the_history_is_whole(self, place: Place, door: Door, how: str) -> None:
        """Whichever moment one goes back to: valid, no pointer without its entry, and all work up to that moment in state or archive."""
        spec = Spec(door=door)
        Session(place, spec, how).run("t")
        reached = progress_of(place, spec, "t")
        assert reached == sorted(reached)
        assert reached[-1] == 13

    @BOTH
    @EACH_DOOR
    def test_a_fork_before_a_compaction_has_the_originals(self, place: Place, door: Door, how: str) -> None:
        """The last checkpoint before the first compaction, taken up again: it compacts for itself and comes to the same end."""
        spec = Spec(door=door)
        first = Session(place, spec, how).run("t")
        at = next(i for i, state in enumerate(history_of(place, spec, "t")) if blocks(state.values.get("messages", []))) - 1
        before = history_of(place, spec, "t")[at]
        assert not pointers_in(before.values["messages"])
        Session(place, spec, how).run("t", use=resumed(how, before.config))
        again = read(place, spec, how, "t")
        assert archive_check(place, again, "t", 13) == 13
        assert told(again) == told(first)

    @BOTH
    @EACH_DOOR
    def test_a_fork_after_a_compaction_keeps_its_block_and_leaves_the_other_branch_alone(self, place: Place, door: Door, how: str) -> None:
        """From the first checkpoint with a block on, with other words of the user: both branches are whole, and archive entries stay valid."""
        spec = Spec(door=door)
        first = Session(place, spec, how).run("t")
        tip = look(place, spec, how, "t", lambda graph, config: graph.get_state(config)).config
        states = history_of(place, spec, "t")
        fork = next(state for state in states if blocks(state.values.get("messages", [])) and state.values["messages"][-1].type == "tool")

        words = {"messages": [HumanMessage("In euros, please.", id="h2")]}
        branched = look(place, spec, how, "t", lambda graph, config: graph.update_state(fork.config, words, as_node="tools"))
        Session(place, spec, how).run("t", use=resumed(how, branched))
        held = look(place, spec, how, "t", lambda graph, config: graph.get_state(tip))
        assert dump(held.values["messages"]) == dump(first)
        branch = read(place, spec, how, "t")
        assert [message.content for message in branch if message.type == "human" and mark_of(message) is None] == [ASK, "In euros, please."]
        with place.opened() as (_, store):
            assert work_of(branch, StoreArchive(store), "t") == [(f"c{key}", invoice("t", key)) for key in range(1, 14)]

    @BOTH
    @EACH_DOOR
    def test_a_replay_in_the_same_process_pays_for_no_summary_again(self, place: Place, door: Door, how: str, log: str) -> None:
        """`invoke(None)` on a checkpoint before the first compaction, by the same compactor: remembered by what it covers."""
        spec = Spec(door=door)

        def first_without_block(states: list[Any]) -> Any:
            return next(state for state in states if state.values.get("messages") and not blocks(state.values["messages"])).config

        def twice(graph: Any, thread: str) -> list[BaseMessage]:
            drive(graph, thread)
            graph.invoke(None, first_without_block(list(graph.get_state_history(thread_config(thread)))))
            return list(graph.get_state(thread_config(thread)).values["messages"])

        async def atwice(graph: Any, thread: str) -> list[BaseMessage]:
            await adrive(graph, thread)
            await graph.ainvoke(None, first_without_block([state async for state in graph.aget_state_history(thread_config(thread))]))
            return list((await graph.aget_state(thread_config(thread))).values["messages"])

        after = Session(place, spec, how, log).run("t", use=twice if how == "sync" else atwice)
        assert archive_check(place, after, "t", 13) == 13
        # The second and third compaction cover messages that were made anew, with ids of their own.
        assert summaries(log).count(summaries(log)[0]) == 1

    @BOTH
    @EACH_DOOR
    def test_an_edit_by_update_state_is_what_the_next_step_sees(self, place: Place, door: Door, how: str) -> None:
        """A result corrected by id and a message removed, between two processes: state and later checkpoint hold the correction."""
        spec = Spec(door=door, interrupt_before=("tools",))
        Session(place, spec, how).run("t")
        Session(place, spec, how).run("t")
        messages = read(place, spec, how, "t")
        result = next(message for message in messages if message.type == "tool")
        corrected = result.model_copy(update={"content": str(result.content).replace("line of", "corrected line of")})
        look(place, spec, how, "t", lambda graph, config: graph.update_state(config, {"messages": [corrected]}, as_node="tools"))
        held = read(place, spec, how, "t")
        assert [message.content for message in held if message.id == result.id] == [corrected.content]
        assert len(held) == len(messages)

    @BOTH
    @EACH_DOOR
    def test_an_edited_checkpoint_stays_as_it_was_edited(self, place: Place, door: Door, how: str) -> None:
        """A person rewrites the block with `update_state`; a later compaction carries its archive ids on."""
        spec = Spec(door=door, last=6)
        after = Session(place, spec, how).run("t")
        block = after[blocks(after)[0]]
        edited = block.model_copy(update={"content": str(block.content).replace("All looked up", "By hand: all looked up")})
        change = [RemoveMessage(id=block.id), edited] if door == "delta" else [edited]
        look(place, spec, how, "t", lambda graph, config: graph.update_state(config, {"messages": change}, as_node="tools"))
        held = read(place, spec, how, "t")
        assert [message.content for message in held if mark_of(message) == "checkpoint"] == [edited.content]
        later = Session(place, Spec(door=door, last=13), how).run("t")
        assert archive_check(place, [*later], "t") == 13

    @BOTH
    def test_delta_histories_reload_at_every_step_as_they_ran(self, place: Place, how: str) -> None:
        """Live values after each step against the list that is made again from the saved writes, by a process that has just started."""
        spec = Spec(door="delta", last=20)

        def lived(graph: Any, thread: str) -> list[Any]:
            return list(graph.stream({"messages": [HumanMessage(ASK, id="h")]}, thread_config(thread), stream_mode="values"))

        async def alived(graph: Any, thread: str) -> list[Any]:
            return [part async for part in graph.astream({"messages": [HumanMessage(ASK, id="h")]}, thread_config(thread), stream_mode="values")]

        live = [dump(part["messages"]) for part in Session(place, spec, how).run("t", use=lived if how == "sync" else alived)]
        reloaded = [dump(state.values["messages"]) for state in history_of(place, spec, "t") if state.values.get("messages")]
        assert len(live) > 30
        assert reloaded == live

    # --- people, failures -----------------------------------------------------------------------------------------------------------------

    @BOTH
    @EACH_DOOR
    def test_an_interrupted_run_is_resumed_by_another_process(self, place: Place, door: Door, how: str, log: str) -> None:
        """Approval of single calls, one of them beside a call that needs none: no summary is paid for twice, no result is lost."""
        spec = Spec(door=door, approvals=(4, 5, 9))
        assert in_process(Session(place, spec, how, log).run, "t") == 0
        for _ in range(3):
            state = look(place, spec, how, "t", lambda graph, config: graph.get_state(config))
            assert state.interrupts
            assert in_process(Session(place, spec, how, log).run, "t", given=Command(resume="approved")) == 0
        messages = read(place, spec, how, "t")
        with place.opened() as (_, store):
            done = work_of(messages, StoreArchive(store), "t")
        assert done == [(f"c{key}", invoice("t", key) + (" approved" if key in spec.approvals else "")) for key in range(1, 14)]
        assert messages[-1].content == "all done"
        asked = summaries(log)
        assert len(asked) == len(set(asked)) >= 3

    @BOTH
    @pytest.mark.parametrize("door", ["wrapper", "node", "delta"])
    def test_a_retried_model_node_pays_for_one_summary(self, place: Place, door: Door, how: str, log: str) -> None:
        """The model fails twice in the step of the compaction, and LangGraph runs the node again."""
        spec, calls = Spec(door=door, last=7, retry=RetryPolicy(initial_interval=0.01, max_attempts=3)), []

        def shaky(messages: list[BaseMessage]) -> AIMessage:
            calls.append(len(blocks(messages)))
            if calls[-1] and calls.count(1) <= 2:
                raise ConnectionError("reset by peer")
            return next_step(7, messages)

        def use(graph: Any, thread: str) -> Any:
            return drive(graph, thread) if how == "sync" else adrive(graph, thread)

        session = _WithModel(place, spec, how, log, model=ScriptedChatModel(replies=[shaky]))
        after = session.run("t", use=use)
        assert archive_check(place, after, "t", 7) == 7
        assert calls.count(1) >= 3
        assert len(summaries(log)) == 1

    @BOTH
    @EACH_DOOR
    def test_a_failed_step_resumed_later_loses_nothing(self, place: Place, door: Door, how: str, log: str) -> None:
        """The model is down in the step of the compaction; another process goes on from the saved state."""
        spec = Spec(door=door, last=9)

        def down(messages: list[BaseMessage]) -> AIMessage:
            if blocks(messages):
                raise ConnectionError("the model is down")
            return next_step(9, messages)

        with pytest.raises(ConnectionError):
            _WithModel(place, spec, how, log, model=ScriptedChatModel(replies=[down])).run("t")
        archive_check(place, read(place, spec, how, "t"), "t")
        after = Session(place, spec, how, log).run("t")
        assert archive_check(place, after, "t", 9) == 9
        assert entries(place) == set(pointers_in(after))

    # --- size -----------------------------------------------------------------------------------------------------------------------------

    @BOTH
    @EACH_DOOR
    def test_a_compaction_writes_its_block_and_ids_and_no_list(self, place: Place, door: Door, how: str) -> None:
        """What the step of a compaction saves does not hold the messages that stay, nor those that go."""
        spec = Spec(door=door)
        Session(place, spec, how).run("t")
        found = 0
        with place.opened() as (saver, _):
            for saved in saver.list(thread_config("t")):
                for _, channel, value in saved.pending_writes or []:
                    if channel == "messages" and isinstance(value, list) and blocks(value):
                        found += 1
                        assert not [message for message in value if message.type == "tool"]
                        assert sum(message.type == "ai" for message in value) <= 1
                        # The block's text, its facts as data, ids: bounded by the window, whatever the block stands for.
                        assert len(JsonPlusSerializer().dumps_typed(value)[1]) < 8000
        assert found >= 3

    @pytest.mark.parametrize("door", ["wrapper", "node", "middleware"])
    def test_compaction_makes_the_database_smaller(self, place: Place, door: Door) -> None:
        """All checkpoints of forty invoices, with blocks, facts as data and ids: less than two thirds of what whole histories take."""
        spec = Spec(door=door, last=40)
        Session(place, spec).run("compacted")
        _Idle(place, spec).run("whole")
        assert place.bytes("compacted") < 0.66 * place.bytes("whole")


class _Idle(Session):
    """A session in whose window everything has room."""

    def _graph(self, saver: Any, store: Any) -> Any:
        return agent_of(self.spec, subject_of(self.spec, StoreArchive(store), trigger=900_000, window=1_000_000), checkpointer=saver, store=store)


class _WithModel(Session):
    """A session whose agent has a model of its own."""

    def __init__(self, *given: Any, model: Any) -> None:
        super().__init__(*given)
        self.model = model

    def _graph(self, saver: Any, store: Any) -> Any:
        return agent_of(self.spec, subject_of(self.spec, StoreArchive(store), self._told), self.model, checkpointer=saver, store=store)
