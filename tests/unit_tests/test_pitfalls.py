"""The ways in which packages of this kind break in LangGraph, each with the tests that hold it off.

| pitfall | tests |
|---|---|
| P1 order by id | `test_splice::test_by_id_the_reducer_arrives_at_exactly_the_wanted_list`, |
| | `test_reducer::test_a_compaction_keeps_the_place` |
| P2 remove-all is a raw splice | `test_reducer::test_remove_all_leaves_a_clean_list`, |
| | `test_splice::test_without_any_ids_the_list_is_written_whole_and_state_gets_no_ids_from_it`, `test_pitfalls::test_a_reducer_that_reformats` |
| P3 zombie ids | `test_graph_time_travel::test_a_late_write_of_replaced_messages`, |
| | `test_reducer::test_late_writes_of_replaced_messages_are_dropped` |
| P4 missing ids | `test_procedures_graphs::test_messages_without_ids_end_as_request_and_block_in_each_channel`, |
| | `test_procedures_graphs::test_a_check_that_does_nothing_sets_no_ids` |
| P5 unknown removals | `test_splice::test_by_id_only_what_changes_is_written_and_only_known_ids_are_removed`, |
| | `test_graph_time_travel::test_a_message_of_the_tail_removed_by_hand_takes_nothing_else_along` |
| P6 pairs | `test_spans::test_calls_and_results_are_never_parted`, `test_invariants::test_a_valid_history_stays_valid` |
| P7 pending calls | `test_invariants::test_pending_work_stays`, `test_graph_human::test_approvals_call_by_call_with_one_answered_first` |
| P8 role of the summary | `test_memory_block::test_the_user_role_gives_one_marked_user_message_under_the_first_id`, |
| | `test_provider_payloads::test_every_request_of_a_long_run_is_valid` |
| P9 tools that read the state | `test_pitfalls::test_a_tool_that_reads_the_state_sees_the_block_and_finds_the_originals` |
| P10 a pause in the node that compacts | `test_graph_human::test_a_node_of_ones_own_that_compacts_and_then_asks_pays_once`, |
| | `test_doors_wrapper::test_a_node_that_pauses_twice_pays_once` |
| P11 a message during a pause | `test_graph_human::test_a_new_request_while_a_call_waits_starts_a_round_behind_it`, |
| | `test_procedures_graphs::test_a_chat_during_the_pause_protects_the_open_call` |
| P12 half-answered batches | `test_graph_human::test_a_half_answered_batch_survives_a_new_process`, |
| | `test_manual_control::test_an_interrupted_run_is_paused_and_refused` |
| P13 retries | `test_graph_middleware::test_failing_model_calls_are_retried_without_a_second_summary`, |
| | `test_graph_routing::test_a_retried_compaction_node_is_not_billed_twice` |
| P14 goto and hand-overs | `test_doors_node::test_goto_can_leave_out_a_node_but_not_break_it`, |
| | `test_graph_routing::test_two_graphs_that_hand_over_to_each_other` |
| P15 fan-out | `test_graph_routing::test_what_siblings_write_in_the_step_of_the_compaction_stays`, |
| | `test_graph_routing::test_a_long_run_with_a_fan_out_at_each_step` |
| P16 shared subgraphs | `test_graph_subgraphs::test_a_member_sends_the_same_requests_as_on_its_own`, |
| | `test_graph_subgraphs::test_a_swarm_with_its_own_plain_state_sends_valid_requests` |
| P17 time travel | `test_graph_time_travel::test_a_fork_knows_nothing_of_the_other_branch`, |
| | `test_graph_time_travel::test_a_replay_from_before_a_compaction_comes_to_the_same_list_without_paying` |
| P18 leaks into streams | `test_doors_streaming::test_the_messages_stream_holds_the_answer_and_nothing_else`, |
| | `test_doors_streaming::test_events_of_the_summary_carry_the_tag_and_the_others_do_not` |
| P19 calls that did not parse | `test_doors_middleware::test_a_call_that_could_not_be_parsed_is_repaired_beside_a_compaction`, |
| | `test_groups::test_invalid_calls_alone_are_never_pending` |
| P20 server-side tools | `test_groups::test_server_calls_are_found_with_their_results`, |
| | `test_groups::test_an_open_server_call_is_pending_at_the_end_and_abandoned_before`, |
| | `test_render::test_server_tools_show_title_and_url_and_no_encrypted_content` |
| P21 reasoning | `test_provider_payloads::test_reasoning_items_and_calls_stay_together_and_as_they_were`, |
| | `test_render::test_reasoning_signatures_and_metadata_stay_out` |
| P22 calls in blocks and raw fields | `test_invariants::test_prefix_and_tail_are_equal_in_every_field`, |
| | `test_groups::test_a_call_in_tool_calls_and_in_the_content_is_one_call` |
| P23 chained response ids | `test_provider_payloads::test_a_chain_is_cut_at_a_compaction_and_goes_on_behind_it` |
| P24 native compaction | `test_provider_payloads::test_compaction_by_the_provider_is_left_to_it`, |
| | `test_spans::test_a_native_compaction_item_is_a_border` |
| P25 structured output as a call | `test_graph_middleware::test_structured_answers_end_compacted_rounds` |
| P26 names and made-up users | `test_spans::test_what_a_person_did_not_write_is_no_border`, |
| | `test_graph_subgraphs::test_a_swarm_hands_over_compacted_histories`, `test_graph_subgraphs::test_the_summariser_is_told_which_agent_did_what` |
| P27 stale usage, thrashing | `test_procedures_trigger::test_usage_of_a_kept_answer_does_not_fire_again`, |
| | `test_doors_middleware::test_a_floor_over_the_trigger_does_not_summarise_at_each_step` |
| P28 callbacks | `test_pitfalls::test_the_summary_is_seen_by_the_runs_callbacks_under_a_name_of_its_own` |
| P29 stores have no transactions | `test_archive::test_a_fault_at_any_write_leaves_the_old_window_or_a_block_without_pointer`, |
| | `test_procedures_persistence::test_the_archive_is_written_before_the_originals_leave` |
| P30 reducers are pure | `test_reducer::test_batches_change_nothing`, `test_reducer::test_a_delta_channel_is_refused_with_the_reason` |
| P31 deepagents | `test_doors_middleware::test_beside_their_summarisation_ours_stands_down`, |
| | `test_graph_middleware::test_where_ours_fails_theirs_takes_over_and_ours_stays_down` |
| P32 a command beside the answer | `test_doors_middleware::test_a_message_of_the_request_alone_stays_there_and_never_reaches_the_state`, |
| | `test_pitfalls::test_the_fresh_answer_survives_the_compaction_of_its_own_step` |
| P33 what checkpoints can hold | `test_pitfalls::test_a_strict_serialiser_gives_back_what_was_stored`, |
| | `test_memory_block::test_data_and_texts_survive_json_msgpack_and_langchain_dumps` |
| P34 overflow in each provider's words | `test_graph_overflow::test_each_providers_overflow_is_answered_by_one_smaller_request` |
| P35 an id for each block | `test_procedures_graphs::test_the_second_boundary_is_found_by_looking`, |
| | `test_pitfalls::test_blocks_of_several_rounds_have_ids_and_places_of_their_own` |
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from doors import REQUEST, ByIds, agent_loop, look_up, one_node, shared, thread, working
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler, get_usage_metadata_callback
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import InjectedState, ToolNode
from procedures import BOTH, blocks, compact, compactor, go, history, ids, summariser, work

from langgraph_roundcompact import RoundCompactConfig, RoundCompactMiddleware, RoundCompactNode, add_round_compaction, compacting_reducer
from langgraph_roundcompact.testing import ScriptedChatModel, assert_valid_history

ASK: Any = {"messages": [HumanMessage(REQUEST, id="h")]}


def test_each_pitfall_has_a_test_and_each_test_is_there() -> None:
    """The table above against the files beside this one."""
    assert __doc__ is not None
    rows = re.findall(r"^\| (P\d+)[^|]*\|([^|]*)\|(?:\n\| \|([^|]*)\|)?(?:\n\| \|([^|]*)\|)?", __doc__, re.MULTILINE)
    named = {row[0]: re.findall(r"`(\w+)::(\w+)`", " ".join(row[1:])) for row in rows}
    assert list(named) == [f"P{number}" for number in range(1, 36)]
    assert [pitfall for pitfall, tests in named.items() if not tests] == []
    assert sum(map(len, named.values())) == __doc__.count("::")
    folder = Path(__file__).parent
    sources = {file: (folder / f"{file}.py").read_text() for tests in named.values() for file, _ in tests}
    missing = [f"{file}::{name}" for tests in named.values() for file, name in tests if f"def {name}(" not in sources[file]]
    assert missing == []


# --- P2 --------------------------------------------------------------------------------------------------------------------------------

REFORMATTING: dict[str, Any] = {
    "add_messages": add_messages(format="langchain-openai"),
    "by rules": compacting_reducer(
        RoundCompactConfig(context_window_tokens=2000, trigger_token_threshold=1000, min_target_context_ratio=0.0, keep_recent_messages=0),
        add_messages(format="langchain-openai"),
    ),
}


@BOTH
@pytest.mark.parametrize("kind", list(REFORMATTING))
@pytest.mark.parametrize("door", ["wrapper", "node"])
def test_a_reducer_that_reformats(how: str, kind: str, door: str) -> None:
    """`add_messages(format=...)` makes new messages without ids at each write: three compactions in a round still leave request and one block."""
    builder = StateGraph(TypedDict("State", {"messages": Annotated[list, REFORMATTING[kind]]}))  # type: ignore[misc]
    subject = compactor(summariser("ONE", "TWO", "THREE"))
    last = START
    for number in (1, 2, 3):
        builder.add_node(f"work{number}", lambda state, number=number: {"messages": work(2 * number) + work(2 * number + 1)})
        name = f"step{number}"
        if door == "wrapper":
            builder.add_node(name, lambda state: {"messages": []})
            add_round_compaction(builder, subject, before=name)
        else:
            builder.add_node(name, RoundCompactNode(subject))
        builder.add_edge(last, f"work{number}")
        builder.add_edge(f"work{number}", name)
        last = name
    after = go(how, builder.compile(), {"messages": [HumanMessage("Sort the invoices", id="h")]})["messages"]
    assert [m.type for m in after] == ["human", "human"]
    assert (after[0].text, blocks(after)) == ("Sort the invoices", [1])
    assert all(f"result {number}" in str(after[1].content) for number in (6, 7))


def test_equal_reformatting_reducers_are_one_reducer() -> None:
    """Each call of `add_messages(format=...)` is another object; two schemas that declare the same must not be told apart."""
    config = RoundCompactConfig(context_window_tokens=2000)
    one = compacting_reducer(config, add_messages(format="langchain-openai"))
    assert one is compacting_reducer(config, add_messages(format="langchain-openai"))
    assert one is not compacting_reducer(config, add_messages)


# --- P9 --------------------------------------------------------------------------------------------------------------------------------


@BOTH
def test_a_tool_that_reads_the_state_sees_the_block_and_finds_the_originals(how: str) -> None:
    """`InjectedState` is the compacted state; what was replaced is in the thread's earlier checkpoints, word for word."""
    seen: list[list[Any]] = []

    @tool("look_up")
    def reads(key: int, state: Annotated[Any, InjectedState]) -> str:
        """Look an invoice up.

        Args:
            key: Its number.
            state: The graph's.
        """
        seen.append(list(state["messages"]))
        return str(look_up.invoke({"key": key}))

    subject, notes = shared(trigger=2000)
    graph = agent_loop(working(12), subject, tools=ToolNode([reads])).compile(checkpointer=InMemorySaver())
    go(how, graph, ASK, thread("reads"))
    assert len(notes.requests) >= 2
    assert blocks(seen[-1]) == [1]
    assert all(messages[0].content == REQUEST for messages in seen)
    held = {m.content for s in graph.get_state_history(thread("reads")) for m in s.values["messages"] if isinstance(m, ToolMessage)}
    assert held == {look_up.invoke({"key": key}) for key in range(1, 13)}


# --- P28 -------------------------------------------------------------------------------------------------------------------------------


class Recorder(BaseCallbackHandler):
    """Notes each model call of a run."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
        self.calls.append(kwargs)


@BOTH
@pytest.mark.parametrize("door", ["wrapper", "node", "middleware"])
def test_the_summary_is_seen_by_the_runs_callbacks_under_a_name_of_its_own(how: str, door: str) -> None:
    """Tracing and usage see every call that is paid for; what is the summariser's can be told by its mark."""
    notes = summariser("NOTES", model_name="summariser")
    subject = compactor(notes)
    model = ScriptedChatModel(replies=["done"], model_name="worker")
    if door == "middleware":
        graph: Any = create_agent(model, [], middleware=[RoundCompactMiddleware(subject)])
    else:
        graph = agent_loop(model, subject, door=door).compile()
    recorder = Recorder()
    with get_usage_metadata_callback() as usage:
        go(how, graph, {"messages": history(1, 2)}, {"callbacks": [recorder]})
    assert sorted(usage.usage_metadata) == ["summariser", "worker"]
    marked = [one for one in recorder.calls if (one.get("metadata") or {}).get("lc_source") == "round_compaction"]
    assert len(recorder.calls) == 2
    assert [("nostream" in one["tags"], one["name"]) for one in marked] == [(True, "round_compaction_summary")]


# --- P32, P33, P35 ---------------------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("door", ["wrapper", "middleware"])
def test_the_fresh_answer_survives_the_compaction_of_its_own_step(how: str, door: str) -> None:
    """Both are written in one step, in a thread with and one without ids: the answer is last."""
    for given in (history(1, 2), [m.model_copy(update={"id": None}) for m in history(1, 2)]):
        model = ScriptedChatModel(replies=["fresh"])
        subject = compactor(summariser("NOTES"))
        if door == "middleware":
            graph: Any = create_agent(model, [], middleware=[RoundCompactMiddleware(subject)])
        else:
            graph = agent_loop(model, subject).compile()
        after = go(how, graph, {"messages": given})["messages"]
        assert ([m.type for m in after], after[-1].content) == (["human", "human", "ai"], "fresh")


@BOTH
@pytest.mark.parametrize("role", ["user", "tool"])
def test_a_strict_serialiser_gives_back_what_was_stored(how: str, role: Any) -> None:
    """Messages, strings, numbers and lists only: a checkpointer that allows no classes of strangers loses nothing."""
    strict = JsonPlusSerializer(allowed_msgpack_modules=None)
    state: dict[str, Any] = {"todos": [{"content": "send the letter", "status": "pending"}]}
    result = compact(how, compactor(summariser("NOTES"), checkpoint_role=role), {**state, "messages": history(1, 2)})
    assert result.compacted
    kind, data = strict.dumps_typed(result.messages)
    assert [m.model_dump() for m in strict.loads_typed((kind, data))] == [m.model_dump() for m in result.messages]
    stored = strict.loads_typed((kind, data))
    again = compact(how, compactor(summariser("AGAIN"), checkpoint_role=role), {**state, "messages": [*stored, *work(5), *work(6)]})
    assert ids(again.messages) == ids(result.messages)


@BOTH
@pytest.mark.parametrize("door", ["wrapper", "node"])
def test_blocks_of_several_rounds_have_ids_and_places_of_their_own(how: str, door: str) -> None:
    """Four rounds: a block behind each request, under the id of the first message it replaced, and none moves any more."""
    subject, _ = shared(trigger=2000)
    saver = InMemorySaver()
    held: list[Any] = []
    for turn in range(1, 5):
        graph = agent_loop(working(8), subject, door=door).compile(checkpointer=saver)
        after = go(how, graph, {"messages": [HumanMessage(f"Part {turn}", id=f"h{turn}")]}, thread("rounds"))["messages"]
        assert after[: len(held)] == held
        assert len(blocks(after)) == turn
        held = after
    places = blocks(held)
    assert [held[i - 1].id for i in places] == ["h1", "h2", "h3", "h4"]
    assert len({*ids(held)}) == len(held)
    assert_valid_history(held, pending_ok=False)
    assert all(held[i].id == held[i].additional_kwargs["lc_data"]["replaced_ids"][0] for i in places)


# --- state with nothing but messages ---------------------------------------------------------------------------------------------------


@BOTH
def test_a_graph_of_the_node_alone_ends_where_it_began(how: str) -> None:
    """Below the trigger the node writes nothing: no checkpoint differs from the input."""
    saver = InMemorySaver()
    graph = one_node(RoundCompactNode(compactor(trigger=100_000, window=200_000)), ByIds, checkpointer=saver)
    given: list[AnyMessage] = [HumanMessage("hello", id="h"), AIMessage("good day", id="a")]
    assert go(how, graph, {"messages": given}, thread("idle"))["messages"] == given
