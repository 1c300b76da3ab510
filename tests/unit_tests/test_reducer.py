"""The reducers: what a checkpoint stands for does not come back, and batching, order and sharing change nothing."""

from __future__ import annotations

import copy
import operator
import threading
from functools import partial
from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain.agents import AgentState, create_agent
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, BaseMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from strategies import histories

from langgraph_roundcompact import RoundCompactConfig
from langgraph_roundcompact._memory_block import BlockData, checkpoint_messages, frame, recovered_message
from langgraph_roundcompact.errors import ConfigurationError
from langgraph_roundcompact.reducer import compacting_reducer, round_compact_messages, round_compact_messages_delta
from langgraph_roundcompact.testing import ScriptedChatModel, assert_valid_history, pairing_faults


def step(i: int, size: int = 40) -> list[BaseMessage]:
    return [
        AIMessage("", tool_calls=[{"name": "search", "args": {"q": f"q{i}"}, "id": f"c{i}", "type": "tool_call"}], id=f"a{i}"),
        ToolMessage(f"r{i} " + "x" * size, tool_call_id=f"c{i}", name="search", id=f"t{i}"),
    ]


def block(*replaced: str, text: str = "done so far", id: str | None = None) -> BaseMessage:
    return checkpoint_messages(frame(text), BlockData(replaced_ids=replaced), role="user", ids=[id or replaced[0]])[0]


def recovered(id: str, text: str = "todo: one") -> BaseMessage:
    return recovered_message(f"<recovered_context>{text}</recovered_context>", id)


def removes(*ids: str) -> list[RemoveMessage]:
    return [RemoveMessage(id=i) for i in ids]


def ids(messages: list[BaseMessage]) -> list[str | None]:
    return [m.id for m in messages]


USER = HumanMessage("Research both firms", id="h1")
START_LIST: list[BaseMessage] = [USER, *step(1), *step(2)]
REPLACED = ("a1", "t1", "a2", "t2")
COMPACTION = [block(*REPLACED), recovered("t1"), *removes("a2", "t2")]


class TestLikeAddMessages:
    @pytest.mark.parametrize(
        "right",
        [
            "hello",
            ("user", "hello"),
            ["user", "hello"],
            {"role": "user", "content": "hello"},
            [{"role": "assistant", "content": "a", "id": "x"}, ("user", "b")],
            HumanMessage("hello", id="n"),
            [],
            [AIMessage("other", id="a1")],
            [RemoveMessage(id="a1"), AIMessage("again", id="a1")],
            [AIMessage("new", id="n"), RemoveMessage(id="n")],
            [HumanMessage("lost"), RemoveMessage(id=REMOVE_ALL_MESSAGES), HumanMessage("kept", id="k")],
            [AIMessageChunk(content="chunk", id="n")],
        ],
    )
    def test_every_form_of_input_is_merged_the_same(self, right: Any):
        ours = round_compact_messages(copy.deepcopy(START_LIST), copy.deepcopy(right))
        theirs = add_messages(copy.deepcopy(START_LIST), copy.deepcopy(right))
        known = {m.id for m in START_LIST} | {"n", "x", "k"}
        shown = [[(type(m), m.content, m.id if m.id in known else "new") for m in ms] for ms in (ours, theirs)]
        assert shown[0] == shown[1]
        assert all(m.id for m in ours)

    def test_an_unknown_removal_is_ignored(self):
        assert ids(round_compact_messages(START_LIST, removes("nowhere", "t2"))) == ["h1", "a1", "t1", "a2"]

    def test_remove_all_leaves_a_clean_list(self):
        write = [RemoveMessage(id=REMOVE_ALL_MESSAGES), HumanMessage("1", id="m"), HumanMessage("2", id="m"), RemoveMessage(id="gone")]
        assert [m.content for m in round_compact_messages(START_LIST, write)] == ["2"]

    @pytest.mark.parametrize(("left", "right"), [(None, []), ([], None)])
    def test_none_is_refused_with_the_side(self, left: Any, right: Any):
        with pytest.raises(ValueError, match="left" if left is None else "right"):
            round_compact_messages(left, right)

    def test_doubled_ids_in_state_are_all_removed(self):
        assert round_compact_messages([HumanMessage("1", id="m"), HumanMessage("2", id="m")], removes("m")) == []

    def test_given_objects_are_not_changed(self):
        left, right = [HumanMessage("a"), AIMessage("b", id="b")], [AIMessage("c"), *COMPACTION]
        before = copy.deepcopy((left, right))
        round_compact_messages(left, right)
        round_compact_messages_delta(left, [right])
        assert (left, right) == before

    def test_the_same_write_on_the_same_list_gives_the_same_ids(self):
        right = ["one", "one", AIMessage("two")]
        first, second = round_compact_messages(START_LIST, right), round_compact_messages(START_LIST, right)
        assert ids(first) == ids(second)
        assert len(set(ids(first))) == len(first) == 8

    def test_first_messages_of_two_threads_differ_in_id(self):
        assert ids(round_compact_messages([], "hi")) != ids(round_compact_messages([], "hi"))

    def test_a_derived_id_is_never_one_that_a_checkpoint_lists(self):
        listed = round_compact_messages([block("a1")], AIMessage("ok"))[1].id
        merged = round_compact_messages([block("a1", str(listed))], AIMessage("ok"))
        assert len(merged) == 2
        assert merged[1].id != listed

    def test_odd_text_gets_an_id(self):
        assert len(set(ids(round_compact_messages([], ["\ud800", "\x00", ""])))) == 3


class TestCheckpoints:
    def test_a_compaction_keeps_the_place(self):
        after = round_compact_messages([*START_LIST, *step(3)], COMPACTION)
        assert ids(after) == ["h1", "a1", "t1", "a3", "t3"]
        assert after[1:3] == COMPACTION[:2]

    def test_late_writes_of_replaced_messages_are_dropped(self):
        state = round_compact_messages(START_LIST, COMPACTION)
        assert round_compact_messages(state, [*step(1), *step(2), AIMessage("new", id="n")]) == [*state, AIMessage("new", id="n")]

    def test_replaced_messages_in_the_same_write_are_dropped(self):
        assert ids(round_compact_messages([USER], [block(*REPLACED), *step(2), *step(3)])) == ["h1", "a1", "a3", "t3"]

    def test_a_parents_originals_vanish_when_the_subgraphs_list_arrives(self):
        answer = AIMessage("answer", id="z")
        merged = round_compact_messages([*START_LIST, HumanMessage("meanwhile", id="m")], [USER, block(*REPLACED, "a9"), recovered("t1"), answer])
        assert ids(merged) == ["h1", "a1", "t1", "m", "z"]
        assert merged[1].name == "round_checkpoint"
        assert merged[2].name == "recovered_context"

    def test_the_first_replaced_message_still_there_gives_the_place(self):
        merged = round_compact_messages([USER, *step(2), HumanMessage("m", id="m")], [block(*REPLACED), recovered("t1")])
        assert ids(merged) == ["h1", "a1", "t1", "m"]

    def test_recovered_context_stands_behind_its_checkpoint_where_the_parent_lacks_its_id(self):
        merged = round_compact_messages([USER, AIMessage("x", id="a1"), HumanMessage("m", id="m")], [block("a1", "new2", "new3"), recovered("new2")])
        assert ids(merged) == ["h1", "a1", "new2", "m"]

    def test_work_the_parent_never_had_is_appended(self):
        assert ids(round_compact_messages([USER], [USER, block("s1", "s2", "s3"), recovered("s2"), AIMessage("f", id="f")])) == [
            "h1",
            "s1",
            "s2",
            "f",
        ]

    def test_a_later_checkpoint_takes_the_earlier_ones_place_and_its_recovered_context_goes(self):
        state = round_compact_messages([*START_LIST, *step(3)], COMPACTION)
        later = block(*REPLACED, "a3", "t3", text="all three")
        assert round_compact_messages(state, [later, *removes("t1", "a3", "t3")]) == [USER, later]
        assert round_compact_messages(state, [USER, later]) == [USER, later]

    def test_a_late_earlier_checkpoint_is_ignored_with_its_recovered_context(self):
        later = [USER, block(*REPLACED, "a3", "t3"), recovered("t1", "newest")]
        assert round_compact_messages(later, COMPACTION) == later

    def test_the_same_checkpoint_again_may_bring_newer_recovered_context(self):
        state = round_compact_messages(START_LIST, COMPACTION)
        assert round_compact_messages(state, [block(*REPLACED), recovered("t1", "newer")]) == [USER, COMPACTION[0], recovered("t1", "newer")]

    def test_recovered_context_alone_may_be_renewed(self):
        state = round_compact_messages(START_LIST, COMPACTION)
        assert round_compact_messages(state, recovered("t1", "newer"))[2] == recovered("t1", "newer")

    def test_a_checkpoint_as_call_and_result_stays_a_pair(self):
        pair = checkpoint_messages(frame("s"), BlockData(replaced_ids=REPLACED), role="tool", ids=["a1", "t1"])
        merged = round_compact_messages([*START_LIST, *step(3)], [*pair, *removes("a2", "t2")])
        assert merged == [USER, *pair, *step(3)]
        assert round_compact_messages(merged, [*step(1), *step(2)]) == merged
        later = block(*REPLACED, "a3", "t3")
        assert round_compact_messages(merged, [later, *removes("t1", "a3", "t3")]) == [USER, later]

    def test_an_edited_checkpoint_takes_the_place_when_the_old_one_is_removed_first(self):
        state = [USER, block(*REPLACED, text="short"), AIMessage("x", id="x")]
        edited = block(*REPLACED, text="a much longer text written by hand")
        assert round_compact_messages(state, [*removes("a1"), edited]) == [USER, edited, state[2]]

    def test_a_removed_checkpoint_lets_its_ids_come_back(self):
        state = round_compact_messages(START_LIST, COMPACTION)
        assert ids(round_compact_messages(state, [*removes("a1", "t1"), *step(1)])) == ["h1", "a1", "t1"]

    def test_remove_all_and_the_originals_rewinds(self):
        state = round_compact_messages(START_LIST, COMPACTION)
        assert round_compact_messages(state, [RemoveMessage(id=REMOVE_ALL_MESSAGES), *START_LIST]) == START_LIST

    def test_checkpoints_of_two_rounds_stand_side_by_side(self):
        state = [USER, block("a1", "t1"), HumanMessage("next", id="h2"), *step(3)]
        assert ids(round_compact_messages(state, [block("a3", "t3"), *removes("t3")])) == ["h1", "a1", "h2", "a3"]

    @pytest.mark.parametrize(
        "data", [None, [], {"kind": "checkpoint"}, {"kind": "checkpoint", "replaced_ids": "h1"}, {"kind": "checkpoint", "replaced_ids": [7]}]
    )
    def test_a_forged_mark_without_ids_replaces_nothing(self, data: Any):
        forged = HumanMessage("x", id="f", additional_kwargs={"lc_source": "round_compaction", "lc_data": data})
        assert round_compact_messages(START_LIST, [forged]) == [*START_LIST, forged]


class TestBranches:
    A = (block(*REPLACED, text="summary of A"), recovered("t1"), *removes("a2", "t2"), AIMessage("finding a", id="f_a"))
    B = (block(*REPLACED, text="summary by B, longer"), recovered("t1", "b"), *removes("a2", "t2"), AIMessage("finding b", id="f_b"))

    def test_two_blocks_for_one_span_become_one_whatever_the_order(self):
        ab = round_compact_messages(round_compact_messages(START_LIST, [*self.A]), [*self.B])
        ba = round_compact_messages(round_compact_messages(START_LIST, [*self.B]), [*self.A])
        assert ids(ab) == ["h1", "a1", "t1", "f_a", "f_b"]
        assert ids(ba) == ["h1", "a1", "t1", "f_b", "f_a"]
        assert ab[:3] == ba[:3] == [USER, self.A[0], self.A[1]]

    def test_a_longer_span_wins_over_a_shorter_whatever_the_order(self):
        short = [block("a1", "t1", text="short"), *removes("t1"), AIMessage("a", id="f_a")]
        ab = round_compact_messages(round_compact_messages(START_LIST, short), [*self.B])
        ba = round_compact_messages(round_compact_messages(START_LIST, [*self.B]), short)
        assert ab[:3] == ba[:3] == [USER, self.B[0], self.B[1]]
        assert {"f_a", "f_b"} <= {*ids(ab)} & {*ids(ba)}

    def test_branches_that_went_on_alone_keep_both_blocks(self):
        one = [USER, block(*REPLACED, "s1", "s2", text="one"), recovered("t1"), AIMessage("1", id="f1")]
        two = [USER, block(*REPLACED, "u1", "u2", text="two"), recovered("t1"), AIMessage("2", id="f2")]
        merged = round_compact_messages(round_compact_messages(START_LIST, one), two)
        assert ids(merged) == ["h1", "a1", "t1", "f1", "u1", "f2"]
        assert [m.text for m in merged if m.name == "round_checkpoint"] == [one[1].text, two[1].text]
        # The second branch writes its list again, and later with more work in its block: still one block for each branch.
        assert round_compact_messages(merged, two) == merged
        grown = [USER, block(*REPLACED, "u1", "u2", "u3", text="two, grown"), AIMessage("2", id="f2")]
        assert ids(round_compact_messages(merged, grown)) == ["h1", "a1", "t1", "f1", "u1", "f2"]

    def test_a_branch_that_starts_later_does_not_remove_what_the_other_covers(self):
        early, late = [block("a1", "t1", "a2"), recovered("t1"), *removes("a2")], [block("a2", "t2", "a3"), recovered("t2"), *removes("a3")]
        start = [USER, *step(1), *step(2), *step(3)]
        ab = round_compact_messages(round_compact_messages(start, early), late)
        ba = round_compact_messages(round_compact_messages(start, late), early)
        for merged in (ab, ba):
            assert sum(m.name == "round_checkpoint" for m in merged) == 2
            assert ids(merged)[0] == "h1"
            assert ids(merged)[-1] == "t3"

    def test_recovered_context_under_an_id_that_another_block_lists_is_not_added(self):
        """It says what the other branch's recovered context says, and would stand in front of its own checkpoint."""
        early = [block("a1", "t1", "a2", "t2"), recovered("t1"), *removes("a2", "t2")]
        late = [block("a2", "t2", "a3", "t3"), recovered("t2"), *removes("a3", "t3")]
        merged = round_compact_messages(round_compact_messages([USER, *step(1), *step(2), *step(3)], early), late)
        assert ids(merged) == ["h1", "a1", "t1", "a2"]
        assert merged[1:] == [*early[:2], late[0]]

    def test_messages_with_half_a_mark_do_not_keep_a_checkpoint_away(self):
        """A forged list stands for nothing that is still there, also where what is there is marked but carries no list of its own."""
        mark = {"lc_source": "round_compaction", "lc_data": {"kind": "checkpoint"}}
        halves = [HumanMessage("x", id=id, additional_kwargs=mark) for id in ("a1", "t1")]
        real = block("a1", "t1", text="what was really done")
        merged = round_compact_messages([USER, block("a1", "t1", "nowhere", text="forged", id="f"), *halves], [real, *removes("t1")])
        assert real in merged

    def test_a_block_covered_by_two_others_together_still_gets_a_place(self):
        state = [block("a", "x"), block("b", "y", id="b")]
        assert len(round_compact_messages(state, [block("a", "b")])) == 3


# --- Properties ------------------------------------------------------------------------------------------------------------------------

_IDS = [f"m{n}" for n in range(8)]
_some_ids = st.lists(st.sampled_from(_IDS), min_size=1, max_size=6, unique=True)
_texts = st.sampled_from(["a", "bb", "ccc", ""])


def _one() -> st.SearchStrategy[BaseMessage]:
    blocks = st.builds(
        lambda listed, text, own: block(*listed, text=text, id=own or listed[0]), _some_ids, _texts, st.sampled_from([None, None, *_IDS])
    )
    return st.one_of(
        st.builds(AIMessage, _texts, id=st.sampled_from(_IDS)),
        st.builds(lambda i: RemoveMessage(id=i), st.sampled_from(_IDS)),
        blocks,
        st.builds(recovered, st.sampled_from(_IDS), _texts),
        st.builds(HumanMessage, _texts, id=st.sampled_from(_IDS)),
    )


_plain = st.one_of(st.builds(AIMessage, _texts, id=st.sampled_from(_IDS)), st.builds(lambda i: RemoveMessage(id=i), st.sampled_from(_IDS)))
_all = st.just(RemoveMessage(id=REMOVE_ALL_MESSAGES))
_writes = st.lists(st.one_of(st.lists(st.one_of(_one(), _one(), _one(), _all), max_size=5), _one()), max_size=6)
_unstamped = st.lists(st.lists(st.one_of(_texts, st.tuples(st.just("user"), _texts), _one()), max_size=4), max_size=5)
many = settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@many
@given(st.lists(_one(), max_size=5), _writes, _writes)
def test_batches_change_nothing(state: list[BaseMessage], xs: list[Any], ys: list[Any]):
    reduce = round_compact_messages_delta
    base = reduce([], [state])
    assert reduce(reduce(base, xs), ys) == reduce(base, xs + ys)


@many
@given(_unstamped, _unstamped)
def test_batches_change_nothing_without_ids_either(xs: list[Any], ys: list[Any]):
    reduce = round_compact_messages_delta
    assert reduce(reduce([], xs), ys) == reduce([], xs + ys)


@many
@given(_writes)
def test_both_reducers_agree(writes: list[Any]):
    folded: list[BaseMessage] = []
    for write in writes:
        folded = round_compact_messages(folded, write)
    assert round_compact_messages_delta([], writes) == folded


@many
@given(st.lists(_plain, max_size=6), st.lists(_plain, max_size=6))
def test_without_checkpoints_it_is_add_messages(left: list[BaseMessage], right: list[BaseMessage]):
    left = list({m.id: m for m in left if not isinstance(m, RemoveMessage)}.values())
    known = {m.id for m in left}
    kept = []
    for message in right:
        if not isinstance(message, RemoveMessage):
            known.add(message.id)
        if message.id in known:
            kept.append(message)
    assert round_compact_messages(left, right) == add_messages(left, kept)


@many
@given(_writes)
def test_a_list_holds_each_id_once_and_nothing_that_a_block_replaced(writes: list[Any]):
    state = round_compact_messages_delta([], writes)
    assert len({*ids(state)}) == len(state)
    assert not any(isinstance(m, RemoveMessage) for m in state)
    listed = {i for m in state for i in m.additional_kwargs.get("lc_data", {}).get("replaced_ids", ())}
    assert not [m for m in state if m.id in listed and "lc_source" not in m.additional_kwargs]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories(ids=("present", "missing", "mixed", "doubled")), histories(ids=("missing",), max_steps=4))
def test_odd_histories_are_merged_without_a_change_to_them(left: list[BaseMessage], right: list[BaseMessage]):
    right = [m for m in right if m.additional_kwargs.get("lc_source") != "round_compaction"]
    before = [m.model_dump() for m in (*left, *right)]
    merged = round_compact_messages(left, right)
    assert [m.model_dump() for m in (*left, *right)] == before
    assert all(m.id for m in merged)
    assert len(merged) == len(left) + len(right)


@many
@given(st.integers(0, 2), st.integers(0, 2), st.integers(3, 6), st.integers(3, 6), _texts, _texts)
def test_branches_may_write_in_any_order(from_a: int, from_b: int, to_a: int, to_b: int, text_a: str, text_b: str):
    """Spans that begin together or hold one another: the same messages either way, and one block."""
    work = [AIMessage(f"w{n}", id=f"m{n}") for n in range(7)]

    def branch(start: int, stop: int, text: str, own: str) -> list[BaseMessage]:
        span = [f"m{n}" for n in range(start, stop)]
        return [block(*span, text=text), *([recovered(span[1], text)] if len(span) > 1 else []), *removes(*span[2:]), AIMessage(own, id=own)]

    a, b = branch(from_a, to_a, text_a, "f_a"), branch(from_b, to_b, text_b, "f_b")
    ab = round_compact_messages(round_compact_messages([USER, *work], a), b)
    ba = round_compact_messages(round_compact_messages([USER, *work], b), a)
    assert {"f_a", "f_b", "h1"} <= {*ids(ab)} & {*ids(ba)}
    nested = (from_a - from_b) * (to_a - to_b) <= 0
    assert sum(m.name == "round_checkpoint" for m in ab) == sum(m.name == "round_checkpoint" for m in ba) == (1 if nested else 2)
    if nested and (from_a, to_a, text_a) != (from_b, to_b, text_b):
        assert [m for m in ab if m.id not in ("f_a", "f_b")] == [m for m in ba if m.id not in ("f_a", "f_b")]


def test_time_grows_with_the_list_and_not_with_its_square():
    import time

    def seconds(n: int) -> float:
        writes = [[AIMessage("x", id=f"a{i}"), HumanMessage("y", id=f"h{i}")] for i in range(n)]
        writes.append([block(*(f"a{i}" for i in range(n - 1)), *(f"h{i}" for i in range(n - 1))), recovered("h0")])
        start = time.process_time()
        round_compact_messages_delta([], [*writes, *writes])
        return time.process_time() - start

    seconds(100)
    assert seconds(8000) < 40 * max(seconds(800), 0.001)


# --- Real graphs -----------------------------------------------------------------------------------------------------------------------


class State(TypedDict):
    messages: Annotated[list[AnyMessage], round_compact_messages]


class DeltaState(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(round_compact_messages_delta, snapshot_frequency=3)]


def compact_all(state: dict[str, Any], name: str = "") -> dict[str, Any]:
    """A stand-in for a compacting node: everything behind the last request becomes one block."""
    messages = state["messages"]
    start = max(i for i, m in enumerate(messages) if isinstance(m, HumanMessage) and not m.additional_kwargs) + 1
    target = messages[start:]
    older = [i for m in target for i in m.additional_kwargs.get("lc_data", {}).get("replaced_ids", ())]
    replaced = list(dict.fromkeys([*older, *(m.id for m in target)]))
    if len(target) < 3:
        return {}
    new = [block(*replaced, id=target[0].id, text=f"stands for {len(replaced)}{name}"), recovered(target[1].id)]
    return {"messages": [*new, *(RemoveMessage(id=m.id) for m in target[2:])]}


class TestGraphs:
    def test_case_63_two_branches_compact_in_one_superstep(self):
        graph = StateGraph(State)
        for x in "ab":
            graph.add_node(f"compact_{x}", partial(compact_all, name=x))
            graph.add_node(f"work_{x}", lambda state, x=x: {"messages": [AIMessage(f"finding {x}", id=f"f_{x}")]})
            graph.add_edge(START, f"compact_{x}")
            graph.add_edge(f"compact_{x}", f"work_{x}")
            graph.add_edge(f"work_{x}", END)
        after = graph.compile().invoke({"messages": START_LIST})["messages"]
        assert ids(after) == ["h1", "a1", "t1", "f_a", "f_b"]
        assert sum(m.name == "round_checkpoint" for m in after) == 1

    def test_case_63_with_the_node_in_each_branch(self):
        from langgraph_roundcompact import RoundCompactNode, RoundCompactor

        config = RoundCompactConfig(trigger_token_threshold=1000, context_window_tokens=1250, min_target_context_ratio=0.0, keep_recent_messages=0)
        node = RoundCompactNode(RoundCompactor(config=config, tiers=()))
        graph = StateGraph(State)
        for x in "ab":
            graph.add_node(f"compact_{x}", node)
            graph.add_node(f"work_{x}", lambda state, x=x: {"messages": [AIMessage(f"finding {x}", id=f"f_{x}")]})
            graph.add_edge(START, f"compact_{x}")
            graph.add_edge(f"compact_{x}", f"work_{x}")
            graph.add_edge(f"work_{x}", END)
        after = graph.compile().invoke({"messages": [USER, *step(1, 4000), *step(2, 4000)]})["messages"]
        assert ids(after)[0] == "h1"
        assert ids(after)[-2:] == ["f_a", "f_b"]
        assert sum("<memory_block_current>" in m.text for m in after) == 1
        assert_valid_history(after)

    def test_a_subgraph_that_shares_messages_compacts_for_its_parent(self):
        inner = StateGraph(State)
        inner.add_node("compact", compact_all)
        inner.add_node("answer", lambda state: {"messages": [AIMessage("done", id="z")]})
        inner.add_edge(START, "compact")
        inner.add_edge("compact", "answer")
        outer = StateGraph(State)
        outer.add_node("agent", inner.compile())
        outer.add_edge(START, "agent")
        after = outer.compile().invoke({"messages": START_LIST})["messages"]
        assert ids(after) == ["h1", "a1", "t1", "z"]

    def test_a_delta_channel_reloads_to_the_same_list_at_every_step(self):
        graph = StateGraph(DeltaState)
        graph.add_node("work", lambda state: {"messages": step(len(state["messages"]))})
        graph.add_node("compact", lambda state: compact_all(state) if len(state["messages"]) > 6 else {})
        graph.add_edge(START, "work")
        graph.add_edge("work", "compact")
        saver = InMemorySaver()
        config = {"configurable": {"thread_id": "1"}}
        live = None
        for turn in range(12):
            # A new compilation on the same saver is a new process: all it knows is what was saved.
            app = graph.compile(checkpointer=saver)
            if live is not None:
                assert app.get_state(config).values["messages"] == live
            live = app.invoke({"messages": [("user", "begin")] if turn == 0 else [ToolMessage("late", tool_call_id="c1", id="t1")]}, config)[
                "messages"
            ]
            assert sum(m.name == "round_checkpoint" for m in live) <= 1
        assert any(m.name == "round_checkpoint" for m in live)
        assert len(live) < 10
        assert len({*ids(live)}) == len(live)

    def test_two_schemas_may_declare_it_on_one_key(self):
        class Input(TypedDict):
            messages: Annotated[list[AnyMessage], round_compact_messages]

        graph = StateGraph(State, input_schema=Input)
        graph.add_node("n", lambda state: {"messages": "ok"})
        graph.add_edge(START, "n")
        assert len(graph.compile().invoke({"messages": "hi"})["messages"]) == 2

    def test_create_agent_takes_it_from_the_state_schema(self):
        class Mine(AgentState):
            messages: Annotated[list[AnyMessage], round_compact_messages]

        agent = create_agent(ScriptedChatModel(replies=["one"]), state_schema=Mine, checkpointer=InMemorySaver())
        config = {"configurable": {"thread_id": "1"}}
        agent.invoke({"messages": START_LIST}, config)
        agent.update_state(config, {"messages": COMPACTION}, as_node="model")
        after = agent.invoke({"messages": [*step(2), HumanMessage("more", id="h2")]}, config)["messages"]
        assert [i for i in ids(after) if i in ("h1", "a1", "t1", "a2", "t2", "h2")] == ["h1", "a1", "t1", "h2"]

    def test_an_edge_sees_the_ids_that_state_will_have(self):
        seen: list[list[str | None]] = []
        graph = StateGraph(State)
        graph.add_node("n", lambda state: {"messages": [("assistant", "no id"), AIMessage("none either")]})
        graph.add_edge(START, "n")
        graph.add_conditional_edges("n", lambda state: seen.append(ids(state["messages"])) or END)
        after = graph.compile().invoke({"messages": "hi"})["messages"]
        assert seen == [ids(after)]


# --- The reducer that compacts ---------------------------------------------------------------------------------------------------------

SMALL = RoundCompactConfig(context_window_tokens=2000, trigger_token_threshold=1000, keep_recent_messages=0, min_target_context_ratio=0.0)


def long_work(n: int, size: int = 1200) -> list[BaseMessage]:
    return [m for i in range(1, n + 1) for m in step(i, size)]


class TestCompactingReducer:
    def test_equal_arguments_give_the_same_named_function(self):
        one = compacting_reducer(RoundCompactConfig(context_window_tokens=9000), add_messages)
        assert one is compacting_reducer(base=add_messages, config=RoundCompactConfig(context_window_tokens=9000))
        assert one is not compacting_reducer(RoundCompactConfig(context_window_tokens=9001))
        assert compacting_reducer() is compacting_reducer(RoundCompactConfig())
        assert one.__name__ == one.__qualname__ == "add_messages_with_round_compaction"
        assert one.__module__ == "langgraph_roundcompact.reducer"
        assert "DeltaChannel" in (one.__doc__ or "")

    def test_threads_get_one_object(self):
        got: list[Any] = []
        config = RoundCompactConfig(context_window_tokens=7777)
        threads = [threading.Thread(target=lambda: got.append(compacting_reducer(config))) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({id(f) for f in got}) == 1

    def test_a_base_without_a_name_is_taken(self):
        assert compacting_reducer(SMALL, add_messages(format="langchain-openai")).__name__ == "add_messages_with_round_compaction"

    def test_a_write_that_completes_a_group_over_the_trigger_compacts(self):
        work = long_work(5)
        state = compacting_reducer(SMALL)([USER, *work[:-1]], work[-1:])
        assert state[0] == USER
        assert sum(m.name == "round_checkpoint" for m in state) == 1
        assert len(state) < 11
        assert_valid_history(state)

    @pytest.mark.parametrize(
        ("left", "right"),
        [
            ([USER, *long_work(5)], [AIMessage("the answer", id="z")]),
            ([USER, *long_work(5)], [HumanMessage("more", id="h2")]),
            ([USER, *long_work(5)], [AIMessage("", tool_calls=[{"name": "s", "args": {}, "id": "p", "type": "tool_call"}], id="p")]),
            ([USER], step(1, 40)),
        ],
    )
    def test_any_other_write_is_what_the_base_makes_of_it(self, left: list[BaseMessage], right: list[BaseMessage]):
        assert compacting_reducer(SMALL)(list(left), list(right)) == add_messages(list(left), list(right))

    def test_a_half_answered_batch_waits(self):
        calls = [{"name": "s", "args": {}, "id": f"p{k}", "type": "tool_call"} for k in (1, 2)]
        left = [USER, *long_work(5), AIMessage("", tool_calls=calls, id="p")]
        half = compacting_reducer(SMALL)(left, [ToolMessage("1", tool_call_id="p1", id="r1")])
        assert ids(half) == [*ids(left), "r1"]
        assert any(m.name == "round_checkpoint" for m in compacting_reducer(SMALL)(half, [ToolMessage("2", tool_call_id="p2", id="r2")]))

    def test_applying_a_write_again_changes_nothing(self):
        work = long_work(5)
        reducer = compacting_reducer(SMALL)
        once = reducer([USER, *work[:-1]], work[-1:])
        assert reducer([USER, *work[:-1]], work[-1:]) == once
        assert reducer(once, work[-1:]) == once
        assert reducer(once, []) == once

    def test_removing_what_the_reducer_has_replaced_is_not_an_error(self):
        work = long_work(5)
        once = compacting_reducer(SMALL)([USER, *work[:-1]], work[-1:])
        assert compacting_reducer(SMALL)(once, [*removes("t2"), AIMessage("n", id="n")])[-1].id == "n"

    def test_a_failing_compaction_leaves_the_bases_list(self, monkeypatch, caplog):
        import langgraph_roundcompact._rules as rules

        def fail(messages: Any, config: Any) -> Any:
            raise RuntimeError("broken rules")

        monkeypatch.setattr(rules, "compact_by_rules", fail)
        work = long_work(5)
        assert ids(compacting_reducer(SMALL)([USER, *work[:-1]], work[-1:])) == ids([USER, *work])
        assert "left as they are" in caplog.text

    def test_a_base_that_keeps_something_else_is_left_alone(self):
        assert compacting_reducer(SMALL, operator.or_)({"a": 1}, {"b": 2}) == {"a": 1, "b": 2}

    def test_a_delta_channel_is_refused_with_the_reason(self):
        class Wrong(TypedDict):
            messages: Annotated[list[AnyMessage], DeltaChannel(compacting_reducer(SMALL))]

        graph = StateGraph(Wrong)
        graph.add_node("n", lambda state: {"messages": [AIMessage("x")]})
        graph.add_edge(START, "n")
        with pytest.raises(ConfigurationError, match="round_compact_messages_delta"):
            graph.compile().invoke({"messages": [HumanMessage("hi")]})

    def test_a_pair_of_strings_is_still_a_message(self):
        assert [m.content for m in compacting_reducer(SMALL)([], [["user", "hi"]])] == ["hi"]

    def test_a_long_run_in_a_graph_stays_small_and_valid(self):
        class Mine(TypedDict):
            messages: Annotated[list[AnyMessage], compacting_reducer(SMALL)]

        sizes: list[int] = []

        def work(state: dict[str, Any]) -> dict[str, Any]:
            assert pairing_faults(state["messages"]) == []
            assert state["messages"][0] == USER
            sizes.append(sum(len(str(m.content)) for m in state["messages"]))
            return {"messages": step(len(sizes), 1200)}

        graph = StateGraph(Mine)
        graph.add_node("work", work)
        graph.add_edge(START, "work")
        graph.add_conditional_edges("work", lambda state: END if len(sizes) == 30 else "work")
        after = graph.compile().invoke({"messages": [USER]}, {"recursion_limit": 100})["messages"]
        assert sum(m.name == "round_checkpoint" for m in after) <= 1
        assert max(sizes) < 8000
        assert isinstance(after[0], HumanMessage)
        assert not any(isinstance(m, SystemMessage) for m in after)
