"""The built-in tiers, each by what it folds and what it leaves alone, and all of them by the rules that hold for any tier."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from builders import call, dump
from conftest import examples
from hypothesis import given
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from strategies import histories

from langgraph_roundcompact._facts import Fact
from langgraph_roundcompact._folded import carried_facts, folds_stale_before, is_folded, marked, sealed
from langgraph_roundcompact.testing import check_tier, pairing_faults
from langgraph_roundcompact.tiers import (
    BUILT_IN_TIERS,
    Tier,
    TierContext,
    overall_total,
    round_total,
    single_fold,
    superseded,
    time_cleaning,
    trim_middle,
    whole_segment,
)
from langgraph_roundcompact.tiers._idle import idle_seconds

FOLDING_RESULTS = (time_cleaning, single_fold, overall_total)
"""Tiers that fold one large old result by itself."""


def context(**more: Any) -> TierContext:
    """A window of 10,000 tokens that has to come down to 4,000; a token is four characters."""
    given: dict[str, Any] = {
        "target_tokens": 4000,
        "window_tokens": 10_000,
        "round_budget_tokens": 4000,
        "reclaim_at_least_tokens": 0,
        "request": "Find the fault",
        "estimate": lambda text: -(-len(text) // 4),
        "idle_seconds": 7200.0,
    }
    return TierContext(**{**given, **more})


def used(number: int, text: str, tool: str = "search", said: str = "", args: dict[str, Any] | None = None, **fields: Any) -> list[BaseMessage]:
    """One finished step with the given result."""
    arguments = {"q": f"q{number}"} if args is None else args
    return [
        AIMessage(said, tool_calls=[call(f"c{number}", tool, **arguments)], id=f"a{number}"),
        ToolMessage(text, tool_call_id=f"c{number}", name=tool, id=f"t{number}", **fields),
    ]


def lines(count: int, word: str = "row") -> str:
    return "\n".join(f"{word} {i} of the listing" for i in range(count))


def recent(count: int = 5) -> list[BaseMessage]:
    """The newest steps, small enough to be protected."""
    return [message for i in range(90, 90 + count) for message in used(i, f"short answer {i}")]


def folded_ids(messages: Sequence[BaseMessage]) -> list[str | None]:
    return [message.id for message in messages if is_folded(message)]


# --- rules of every tier ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tier", BUILT_IN_TIERS, ids=lambda tier: tier.__name__)
def test_a_built_in_tier_keeps_the_rules(tier: Tier) -> None:
    """Pairs whole, ids in order, never larger, deterministic, idempotent, the same after a reload, nothing else of a history touched."""
    check_tier(tier, examples=25)


@pytest.mark.parametrize("tier", BUILT_IN_TIERS, ids=lambda tier: tier.__name__)
@examples(60)
@given(messages=histories(max_steps=10))
def test_any_history_is_folded_or_left_without_an_exception(tier: Tier, messages: list[BaseMessage]) -> None:
    """Whatever a target holds: the same messages in the same order, only texts of finished results and of the assistant differ."""
    before = dump(messages)
    after = list(tier(messages, context(target_tokens=1, window_tokens=100_000)))
    assert dump(messages) == before
    assert [(type(message), message.id) for message in after] == [(type(message), message.id) for message in messages]
    assert pairing_faults(after) == pairing_faults(messages)
    changed = [(old, new) for old, new in zip(messages, after, strict=True) if old is not new]
    assert all(isinstance(new, ToolMessage | AIMessage) and is_folded(new) for _, new in changed)
    assert all(len(str(new.content)) < len(str(old.content)) for old, new in changed)


@pytest.mark.parametrize("tier", BUILT_IN_TIERS, ids=lambda tier: tier.__name__)
def test_at_the_target_a_tier_does_nothing(tier: Tier) -> None:
    target = [*used(1, lines(900)), *used(2, lines(900)), *recent()]
    assert list(tier(target, context(window_tokens=4000))) == target


@pytest.mark.parametrize("tier", BUILT_IN_TIERS, ids=lambda tier: tier.__name__)
def test_a_small_gain_is_not_worth_a_break_of_the_cache(tier: Tier) -> None:
    target = [*used(1, lines(900)), *used(2, lines(900)), *recent()]
    assert list(tier(target, context(reclaim_at_least_tokens=50_000))) == target


@pytest.mark.parametrize("tier", FOLDING_RESULTS, ids=lambda tier: tier.__name__)
def test_only_the_content_of_a_folded_result_changes(tier: Tier) -> None:
    fields: dict[str, Any] = {
        "artifact": {"rows": [1, 2]},
        "status": "success",
        "additional_kwargs": {"ui": {"tab": 2}},
        "response_metadata": {"ms": 12},
    }
    old = used(1, lines(900), **fields)
    new = list(tier([*old, *recent()], context()))[1]
    data = {**new.model_dump(), "content": None, "additional_kwargs": {"ui": new.additional_kwargs["ui"]}}
    assert data == {**old[1].model_dump(), "content": None}
    assert new.additional_kwargs["lc_source"] == "round_compaction"
    assert new.additional_kwargs["lc_data"] == {"kind": "folded", "tier": tier.__name__, "characters": len(lines(900))}  # type: ignore[attr-defined]


@pytest.mark.parametrize("tier", FOLDING_RESULTS, ids=lambda tier: tier.__name__)
@pytest.mark.parametrize(
    "fields",
    [
        {"status": "error"},
        {"additional_kwargs": {"pinned": True}},
        {"additional_kwargs": {"lc_source": "somebody"}},
        {"response_metadata": {"context_editing": {"cleared": True}}},
    ],
    ids=["error", "pinned", "marked", "cleared"],
)
def test_errors_pinned_and_foreign_messages_stay(tier: Tier, fields: dict[str, Any]) -> None:
    target = [*used(1, lines(900), **fields), *recent()]
    assert folded_ids(tier(target, context())) == []


@pytest.mark.parametrize("tier", FOLDING_RESULTS, ids=lambda tier: tier.__name__)
@pytest.mark.parametrize("step", [("ask_user", {"question": "Which one?"}), ("load_skill", {"name": "pdf"}), ("read_file", {"path": "s/x/SKILL.md"})])
def test_answers_of_a_person_and_loaded_skills_stay(tier: Tier, step: tuple[str, dict[str, Any]]) -> None:
    target = [*used(1, lines(900), step[0], args=step[1]), *recent()]
    assert folded_ids(tier(target, context())) == []


def test_the_newest_results_are_protected_by_number_and_by_tokens() -> None:
    """The last three stay as long as they take no more than 15 % of the target together: 600 tokens here."""
    small = [message for i in range(1, 6) for message in used(i, lines(25) + str(i))]
    assert folded_ids(overall_total(small, context())) == ["t1", "t2"]
    large = [*used(1, lines(25)), *used(2, lines(900)), *used(3, lines(25))]
    assert folded_ids(overall_total(large, context())) == ["t1", "t2"]


def test_the_same_message_gives_the_same_preview_whoever_folds_it() -> None:
    """The tier, the window, what stands around it, and a reload between make no difference."""
    old = used(1, lines(900), "read_file", args={"path": "src/app.py"})
    made = [tier([*old, *recent()], context())[1].content for tier in FOLDING_RESULTS]
    serde = JsonPlusSerializer()
    reloaded = serde.loads_typed(serde.dumps_typed([*used(7, lines(300)), *old, *recent(9)]))
    made.append(next(message.content for message in overall_total(reloaded, context(window_tokens=99_000)) if message.id == "t1"))
    assert len(set(map(str, made))) == 1


def test_a_folded_message_is_not_touched_again_also_after_a_reload() -> None:
    first = list(single_fold([*used(1, lines(900)), *recent()], context()))
    serde = JsonPlusSerializer()
    reloaded = serde.loads_typed(serde.dumps_typed(first))
    for tier in BUILT_IN_TIERS:
        assert dump(tier(reloaded, context(window_tokens=90_000))[:2]) == dump(first[:2])


def test_a_preview_points_to_the_archive_where_there_is_one() -> None:
    target = [*used(1, lines(900)), *used(2, lines(900)), *recent()]
    where = {"where": lambda message: f"[[COMPRESSION_RECALL: id=rc-{message.id}]]"}
    for tier in (single_fold, superseded):
        assert "[[COMPRESSION_RECALL: id=rc-t1]]" in str(tier(target, context(**where))[1].content)


def test_content_in_blocks_stays_in_blocks_with_its_cache_mark() -> None:
    blocks: Any = [{"type": "text", "text": lines(900), "cache_control": {"type": "ephemeral"}}, {"type": "image", "base64": "iVBORw0KGgo=" * 99}]
    message = single_fold([*used(1, blocks), *recent()], context())[1]
    assert isinstance(message.content, list)
    block = message.content[0]
    assert isinstance(block, dict)
    assert (len(message.content), block["type"], block["cache_control"]) == (1, "text", {"type": "ephemeral"})
    assert "iVBOR" not in block["text"]


# --- each tier -------------------------------------------------------------------------------------------------------------------------


class TestTimeCleaning:
    TARGET = tuple(message for i in range(1, 9) for message in used(i, lines(40) + str(i)))

    def test_a_cold_cache_folds_all_but_the_newest_five(self) -> None:
        assert folded_ids(time_cleaning(self.TARGET, context(target_tokens=9999))) == ["t1", "t2", "t3"]

    @pytest.mark.parametrize("idle", [None, 0.0, 3599.0])
    def test_a_warm_cache_is_left_alone(self, idle: float | None) -> None:
        assert folded_ids(time_cleaning(self.TARGET, context(idle_seconds=idle))) == []

    @pytest.mark.parametrize(
        ("answer", "result", "seconds"),
        [
            ({"timestamp": 1_700_000_000}, {"timestamp": 1_700_003_600.5}, 3600.5),
            ({"created_at": 1_700_000_000_000}, {"created_at": 1_700_000_060_000}, 60.0),
            ({"created_at": "2026-03-01T10:00:00Z"}, {"timestamp": "2026-03-01 13:30:00+02:00"}, 5400.0),
            ({"timestamp": "2026-02-28T23:59:00"}, {"timestamp": "2026-03-01T00:01:00.25Z"}, 120.0),
            ({"timestamp": 20}, {"timestamp": 10}, 0.0),
            ({"timestamp": 1_700_000_000}, {}, None),
            ({}, {"timestamp": 1_700_000_000}, None),
            ({"timestamp": "yesterday"}, {"timestamp": True}, None),
            ({"timestamp": "2026-99-01T00:00:00"}, {"timestamp": 5}, None),
        ],
    )
    def test_timestamps_on_messages_tell_how_long_the_cache_was_unused(
        self, answer: dict[str, Any], result: dict[str, Any], seconds: float | None
    ) -> None:
        old, new = AIMessage("x", response_metadata=answer), ToolMessage("y", tool_call_id="c", additional_kwargs=result)
        assert idle_seconds([HumanMessage("go"), old, new]) == seconds

    def test_without_an_answer_nothing_is_told(self) -> None:
        assert idle_seconds([]) is None
        assert idle_seconds([HumanMessage("go", additional_kwargs={"timestamp": 5})]) is None


class TestSuperseded:
    def test_of_identical_results_the_newest_stays(self) -> None:
        target = [*used(1, lines(100)), *used(2, lines(100)), *recent()]
        after = superseded(target, context())
        assert folded_ids(after) == ["t1"]
        assert after[1].content == f"[search: the same result came again later; {len(lines(100)):,} characters left out]"

    def test_of_polls_the_newest_answer_stays(self) -> None:
        """Equal calls whose answers are of one form; a pager with equal calls answers something else each time."""
        polls = [
            message
            for i in range(1, 4)
            for message in used(i, "\n".join(f"job {k}: {i * 10 + k} % done" for k in range(40)), "job_status", args={"id": "7"})
        ]
        after = superseded([*polls, *recent()], context())
        assert folded_ids(after) == ["t1", "t2"]
        assert "a later call with the same arguments has the newer answer" in str(after[1].content)
        words = ("alpha", "beta", "gamma")
        pages = [message for i in range(3) for message in used(i, "\n".join(f"{words[i]} {k}{words[i]}" for k in "abcdefgh" * 8), "next", args={})]
        assert folded_ids(superseded([*pages, *recent()], context())) == []

    @pytest.mark.parametrize(
        ("first", "later", "said"),
        [
            (("read_file", {"path": "src/app.py"}), ("Read", {"file_path": "/repo/src/app.py"}), "app.py was read again later"),
            (("bash", {"command": "cat src/app.py"}), ("read_file", {"path": "src/app.py"}), "app.py was read again later"),
            (("read_file", {"path": "src/app.py"}), ("write_file", {"path": "src/app.py", "content": "x"}), "app.py was written anew later"),
            (("read_file", {"path": "app.py", "offset": 5}), ("read_file", {"path": "app.py", "offset": 5}), "app.py was read again later"),
            (("read_file", {"path": "app.py", "offset": 5}), ("read_file", {"path": "app.py"}), "app.py was read again later"),
        ],
    )
    def test_a_file_that_is_read_again_or_written_anew_supersedes_the_older_read(
        self, first: tuple[str, Any], later: tuple[str, Any], said: str
    ) -> None:
        target = [*used(1, lines(100, "old"), first[0], args=first[1]), *used(2, lines(90, "new"), later[0], args=later[1]), *recent()]
        after = superseded(target, context())
        assert folded_ids(after) == ["t1"]
        assert f": {said};" in str(after[1].content)

    @pytest.mark.parametrize(
        ("first", "later"),
        [
            (("read_file", {"path": "src/app.py"}), ("read_file", {"path": "src/app.py", "limit": 20})),
            (("read_file", {"path": "src/app.py"}), ("edit_file", {"path": "src/app.py", "old_string": "a", "new_string": "b"})),
            (("read_file", {"path": "src/app.py"}), ("read_file", {"path": "lib/app.py"})),
            (("bash", {"command": "ls; cat app.py"}), ("read_file", {"path": "app.py"})),
        ],
        ids=["only a part again", "edited", "another file", "more than the file"],
    )
    def test_a_read_that_says_more_than_what_came_later_stays(self, first: tuple[str, Any], later: tuple[str, Any]) -> None:
        target = [*used(1, lines(100, "old"), first[0], args=first[1]), *used(2, lines(90, "new"), later[0], args=later[1]), *recent()]
        assert folded_ids(superseded(target, context())) == []

    def test_a_failed_write_supersedes_nothing(self) -> None:
        wrote = used(2, "Error: permission denied", "write_file", args={"path": "app.py", "content": "x"}, status="error")
        target = [*used(1, lines(100), "read_file", args={"path": "app.py"}), *wrote, *recent()]
        assert folded_ids(superseded(target, context())) == []


def test_the_middle_of_a_long_run_is_trimmed_and_its_ends_stay() -> None:
    """Steps 0 to 2 and the last 20 stay; larger results are left to other tiers."""
    target = [message for i in range(60) for message in used(i, lines(900 if i == 10 else 20) + str(i))]
    assert folded_ids(trim_middle(target, context())) == [f"t{i}" for i in range(3, 40) if i != 10]
    assert folded_ids(trim_middle(target[:78], context())) == []


def test_single_results_are_folded_where_they_are_huge() -> None:
    """More than a tenth of the target, and never under 600 tokens: about 109 lines here."""
    target = [*used(1, lines(900)), *used(2, lines(90)), *used(3, lines(130)), *recent()]
    assert folded_ids(single_fold(target, context())) == ["t1", "t3"]
    assert folded_ids(single_fold(target, context(target_tokens=40_000, window_tokens=90_000))) == ["t1"]


def test_the_round_total_goes_down_largest_first_until_it_is_half_of_the_target() -> None:
    sizes = {1: 300, 2: 100, 3: 400, 4: 200}
    target = [message for i, size in sizes.items() for message in used(i, lines(size, f"row{i}"))]
    target += recent()
    assert folded_ids(round_total(target, context(target_tokens=8000, window_tokens=99_000))) == ["t3"]
    assert folded_ids(round_total(target, context(target_tokens=5200, window_tokens=99_000))) == ["t1", "t3"]
    assert folded_ids(round_total(target, context(target_tokens=40_000, window_tokens=99_000))) == []


def test_the_overall_total_goes_down_largest_first_until_the_window_is_at_its_target() -> None:
    target = [message for i in range(1, 5) for message in used(i, lines(100 * i, f"row{i}"))]
    target += recent()
    assert folded_ids(overall_total(target, context(target_tokens=4000, window_tokens=4500))) == ["t4"]
    assert folded_ids(overall_total(target, context(target_tokens=4000, window_tokens=8000))) == ["t2", "t3", "t4"]


def test_the_counter_in_force_says_how_much_must_go() -> None:
    """Ten tokens of the counter are one of the estimate: to lose 20,000 of the former, 2,000 of the latter are enough."""
    target = [message for i in range(1, 5) for message in used(i, lines(400, f"row{i}"))]
    target += recent()
    assert folded_ids(overall_total(target, context(target_tokens=4000, window_tokens=24_000, scale=10.0))) == ["t1"]


def test_of_the_oldest_steps_a_line_is_left_and_the_newest_stay() -> None:
    """Calls and results stay with their ids; the arguments of calls are not abridged."""
    said = "The parser drops the header. " * 40
    target = [message for i in range(1, 9) for message in used(i, lines(60) + str(i), said=said, args={"content": "x" * 900})]
    after = whole_segment(target, context(window_tokens=99_000))
    assert folded_ids(after) == [f"{kind}{i}" for i in range(1, 6) for kind in "at"]
    first, result = after[0], after[1]
    assert isinstance(first, AIMessage)
    assert first.content == "The parser drops the header. " * 4 + "The parser drops the header. [… 1,160 characters in all]"
    assert first.tool_calls == target[0].tool_calls  # type: ignore[attr-defined]
    assert result.content == f"[search: finished; {len(lines(60)) + 1:,} characters left out]"


def test_words_of_the_assistant_with_reasoning_beside_or_in_them_stay() -> None:
    said = "The parser drops the header. " * 40
    beside = AIMessage(said, id="a0", additional_kwargs={"reasoning_content": "hm"})
    within = AIMessage([{"type": "thinking", "thinking": said, "signature": "s"}, {"type": "text", "text": said}], id="a1")
    assert folded_ids(whole_segment([beside, within, *recent()], context())) == []


# --- what a fold carries ---------------------------------------------------------------------------------------------------------------


def test_the_mark_survives_json_and_carries_facts() -> None:
    message = single_fold([*used(1, lines(900)), *recent()], context())[1]
    fact = Fact("error", "ValueError: bad state 7", weight=5)
    message = sealed(message, last_kept_id="t9", kept_messages=4, facts=[fact], ended="1")
    again = type(message)(**json.loads(json.dumps(message.model_dump())))
    assert carried_facts(again) == (fact,)
    assert is_folded(again)


@pytest.mark.parametrize(
    "data", [None, [], "x", {"kind": "checkpoint"}, {"kind": "folded", "facts": "x", "kept_messages": "many", "last_kept_id": 7}]
)
def test_a_forged_mark_is_read_as_nothing(data: Any) -> None:
    message = ToolMessage("x", tool_call_id="c", additional_kwargs={"lc_source": "round_compaction", "lc_data": data})
    assert carried_facts(message) == ()
    assert folds_stale_before([HumanMessage("go"), message, AIMessage("x")]) <= 3


def test_usage_is_stale_up_to_the_end_of_the_window_at_the_fold() -> None:
    """Found by the id of the last message, or by the number of messages where there are no ids."""
    fold = sealed(marked(used(1, "x")[1], used(1, "x")[1], "mine"), last_kept_id="t2", kept_messages=2, facts=(), ended="")
    window = [HumanMessage("go", id="h"), used(1, "x")[0], fold, *used(2, "x"), AIMessage("new", id="a3")]
    assert folds_stale_before(window) == 5
    assert folds_stale_before([message.model_copy(update={"id": None}) for message in window]) == 5
    assert folds_stale_before(window[:2]) == 0
