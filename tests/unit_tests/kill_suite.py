"""What must hold of an agent whose process is killed, whichever database its state is in: subclasses give the fixture `place`."""

from __future__ import annotations

from typing import Any

import pytest
from durable import (
    DOORS,
    POINTS,
    Door,
    Fuse,
    Place,
    Session,
    Spec,
    entries,
    in_process,
    is_open,
    pointers_in,
    subject_of,
    thread_config,
    twice_in_one_process,
)
from langchain_core.messages import BaseMessage
from persistence_suite import Suite, archive_check, look, progress_of, read
from procedures import BOTH

from langgraph_roundcompact.control import acompact_thread, compact_thread


class KillSuite(Suite):
    """`kill -9` at each point of a compaction."""

    @pytest.mark.parametrize(("door", "compaction"), [("wrapper", 1), *((door, 2) for door in DOORS)])
    @pytest.mark.parametrize("point", POINTS)
    def test_killed_at_a_point_of_a_compaction(self, place: Place, door: Door, point: str, compaction: int, log: str) -> None:
        """Everything is there before and after the resume, and the archive holds no entry that nothing points to: the next try found it again."""
        after = self._killed(place, Spec(door=door), point, compaction, log, how="sync", durability="sync")
        assert entries(place) == set(pointers_in(after))

    @pytest.mark.parametrize("point", POINTS)
    def test_killed_in_the_async_colour(self, place: Place, point: str, log: str) -> None:
        """The same for `ainvoke` and the async savers and stores."""
        after = self._killed(place, Spec(), point, 2, log, how="async", durability="sync")
        assert entries(place) == set(pointers_in(after))

    @pytest.mark.parametrize(("durability", "how"), [("async", "sync"), ("async", "async"), ("exit", "sync")])
    @pytest.mark.parametrize("point", ["asked", "before entry", "after entry", "before checkpoint", "after checkpoint"])
    def test_killed_with_checkpoints_written_late(self, place: Place, point: str, durability: str, how: str, log: str) -> None:
        """Steps that were not saved yet are done again; an entry that nothing points to may stay, a pointer without entry may not."""
        self._killed(place, Spec(), point, 2, log, how=how, durability=durability)

    @pytest.mark.parametrize("point", ["before entry", "after entry"])
    def test_killed_where_results_are_folded(self, place: Place, point: str, log: str) -> None:
        """The cheap steps write the archive too, before the folds."""
        fuse = Fuse(point, armed=True)
        assert in_process(Session(place, Spec(tiers=True), "sync", log, fuse).run, "t", durability="sync") == -9
        archive_check(place, read(place, Spec(tiers=True), "sync", "t"), "t")
        after = Session(place, Spec(tiers=True), "sync", log).run("t")
        assert archive_check(place, after, "t", 13) == 13

    @BOTH
    def test_a_step_whose_results_are_saved_but_not_applied_counts_as_a_run_to_go_on(self, place: Place, how: str) -> None:
        """Killed between a tool's write and the step's checkpoint, `next` is empty: compacting from outside must wait all the same."""
        spec, thread = Spec(), thread_config("t")
        assert in_process(Session(place, spec, how, "", Fuse(before_step=4)).run, "t", durability="sync") == -9
        state = look(place, spec, how, "t", lambda graph, config: graph.get_state(config))
        assert (state.next, state.values["messages"][-1].type) == ((), "tool")
        subject = subject_of(spec, None)

        def outside(graph: Any, _: str) -> Any:
            return compact_thread(graph, thread, subject)

        async def aoutside(graph: Any, _: str) -> Any:
            return await acompact_thread(graph, thread, subject)

        result = Session(place, spec, how).run("t", use=outside if how == "sync" else aoutside)
        assert (result.outcome, result.reason) == ("stood_down", "run_is_paused")
        assert archive_check(place, Session(place, spec, how).run("t"), "t", 13) == 13

    def _killed(self, place: Place, spec: Spec, point: str, compaction: int, log: str, *, how: str, durability: str) -> list[BaseMessage]:
        fuse = Fuse(point, compaction)
        assert in_process(Session(place, spec, how, log, fuse).run, "t", durability=durability) == -9
        state = look(place, spec, how, "t", lambda graph, config: graph.get_state(config))
        assert is_open(state) or point == "after checkpoint"
        if messages := state.values.get("messages"):
            archive_check(place, messages, "t")
        after = Session(place, spec, how, log).run("t", durability=durability)
        assert archive_check(place, after, "t", spec.last) == spec.last
        progress_of(place, spec, "t")
        assert twice_in_one_process(log) == []
        return after
