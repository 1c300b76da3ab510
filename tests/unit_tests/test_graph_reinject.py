"""State put back in real compactions: builders of the user's own in their place, junk in every key over many passes, nothing that grows.

`test_reinject.py` has the builders' texts word for word and the fuzz of each builder alone.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Annotated, Any, TypedDict

import pytest
from conftest import examples
from doors import REQUEST, agent_loop, shared, thread, working
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AnyMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import add_messages
from procedures import BOTH, blocks, compact, compactor, go, history, ids, summariser, work
from test_reinject import _STATES, _USES, use

from langgraph_roundcompact import DEFAULT_REINJECTORS, ConfigurationError, RoundCompactConfig, RoundCompactor
from langgraph_roundcompact.testing import assert_valid_history

OWN: dict[str, Callable[[Any], str | None]] = {
    "notes": lambda ctx: f"my notes, {len(ctx.target)} messages go",
    "my:first": lambda ctx: "mine comes first",
    "team.a:board": lambda ctx: "board of team a",
}


def sections(messages: list[BaseMessage]) -> list[str]:
    """Names of the recovered sections, in their order."""
    return re.findall(r'<section name="([^"]*)">', "\n".join(str(m.content) for m in messages))


# --- builders of the user's own --------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("listed", "own", "expected"),
    [
        (None, ["notes"], ["plan", "todo", "notes"]),
        (None, ["my:first", "notes"], ["plan", "todo", "my:first", "notes"]),
        (("my:first", "todo", "plan"), ["notes", "my:first"], ["my:first", "todo", "plan", "notes"]),
        (("todo", "team.a:board"), ["my:first", "team.a:board"], ["todo", "team.a:board", "my:first"]),
        (("my:first",), ["my:first"], ["my:first"]),
        ((), ["notes", "my:first"], []),
    ],
)
def test_own_builders_have_the_place_that_the_configuration_gives_them(how: str, listed: Any, own: list[str], expected: list[str]) -> None:
    """Listed by a name with a colon: there; under any other name, or not listed: behind the others, in the mapping's order; `()`: nothing."""
    subject = RoundCompactor(
        config=RoundCompactConfig(
            trigger_token_threshold=1000, context_window_tokens=4000, min_target_context_ratio=0.0, keep_recent_messages=0,
            **({} if listed is None else {"reinject": listed}),
        ),
        reinjectors={**DEFAULT_REINJECTORS, **{name: OWN[name] for name in own}},
        tiers=(),
    )  # fmt: skip
    state = {"messages": history(1, 2), "todos": [{"content": "send it", "status": "pending"}], "plan": ["read", "write"]}
    result = compact(how, subject, state)
    assert result.compacted
    assert sections(result.messages) == expected


@BOTH
def test_own_builders_alone(how: str) -> None:
    """A mapping without the defaults: they are not missed, in no log."""
    subject = compactor(summariser("NOTES"), reinjectors={"notes": OWN["notes"]})
    result = compact(how, subject, {"messages": history(1, 2), "todos": ["a"]})
    assert sections(result.messages) == ["notes"]


@BOTH
def test_a_default_that_is_left_out_is_no_fault(how: str, caplog: pytest.LogCaptureFixture) -> None:
    """`reinject` lists six by default; whoever passes fewer builders wants fewer."""
    with caplog.at_level(logging.WARNING):
        result = compact(how, compactor(summariser("NOTES"), reinjectors={"todo": DEFAULT_REINJECTORS["todo"]}), {"messages": history(1, 2)})
    assert result.compacted
    assert "no builder" not in caplog.text


def test_an_own_name_without_a_builder_is_told_at_construction() -> None:
    """With the name and what to pass; after a rebinding too."""
    config = RoundCompactConfig(reinject=("todo", "my:notes"))
    with pytest.raises(ConfigurationError, match=r"config\.reinject lists 'my:notes'.*DEFAULT_REINJECTORS, 'my:notes'"):
        RoundCompactor(config=config)
    made = RoundCompactor(config=config, reinjectors={**DEFAULT_REINJECTORS, "my:notes": OWN["notes"]})
    assert made.rebind_model(None).config == config


@pytest.mark.parametrize("name", ['a"b', "two\nlines", "", "a b", "<section>", 7, None, "x" * 81])
def test_a_name_that_cannot_be_written_is_told_at_construction(name: Any) -> None:
    """Names stand in an attribute of a tag that the model reads."""
    with pytest.raises(ConfigurationError, match="reinjectors="):
        RoundCompactor(reinjectors={**DEFAULT_REINJECTORS, name: OWN["notes"]})


@pytest.mark.parametrize("name", ["my notes:x", "notes", ":x", "x:", 'a:"', "a:\n", "tood", "plan "])
def test_a_listed_name_that_may_be_a_misspelling_is_refused(name: str) -> None:
    """Known names and names with a colon; everything else is told with the known ones."""
    with pytest.raises(ConfigurationError, match=r"'plan_mode', 'plan', 'task_status', 'todo', 'skills' or 'read_file'.*'my:notes'"):
        RoundCompactConfig(reinject=("todo", name))


class Noted(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    notes: str


@BOTH
@pytest.mark.parametrize("door", ["wrapper", "node"])
def test_an_own_builder_reads_the_graphs_state_of_this_moment(how: str, door: str) -> None:
    """Two turns with other notes in the state: each block's recovered context has those of its own turn."""
    subject, notes = shared(trigger=2000, reinjectors={**DEFAULT_REINJECTORS, "notes": lambda ctx: f"notes: {ctx.state['notes']}"})
    saver = InMemorySaver()
    for turn, text in enumerate(("written on Monday", "written on Tuesday"), 1):
        graph = agent_loop(working(8), subject, door=door, schema=Noted).compile(checkpointer=saver)
        after = go(how, graph, {"messages": [HumanMessage(f"{REQUEST} {turn}", id=f"h{turn}")], "notes": text}, thread("notes"))["messages"]
    assert len(notes.requests) >= 2
    first, second = blocks(after)
    assert "written on Monday" in str(after[first + 1].content) + str(after[first].content)
    assert "written on Tuesday" in str(after[second + 1].content) + str(after[second].content)
    assert_valid_history(after, pending_ok=False)


# --- many passes -----------------------------------------------------------------------------------------------------------------------


@examples(60)
@given(state=_STATES, as_object=st.booleans(), uses=_USES, model=st.booleans())
def test_junk_in_the_state_breaks_no_compaction_and_nothing_grows_from_pass_to_pass(
    state: dict[str, Any], as_object: bool, uses: list[list[BaseMessage]], model: bool
) -> None:
    """Four compactions of one round with whatever stands in the keys: each is made, its text fits, and the recovered context does not pile up."""
    subject = compactor(summariser("NOTES") if model else None, window=6000, trigger=1500, reinject_max_tokens=400)
    messages: list[Any] = history(1, 2, characters=3000)
    messages += [m.model_copy(update={"id": f"use{i}"}) for i, m in enumerate(m for group in uses for m in group)]
    sizes = []
    for number in (5, 7, 9, 11):
        messages = [*messages, *work(number, 3000), *work(number + 1, 3000)]
        given_state: Any = SimpleNamespace(**state, messages=messages) if as_object else {**state, "messages": messages}
        result = subject.compact(given_state)
        assert result.reason not in ("unknown", "invalid_result"), result
        if result.compacted:
            recovered = "\n".join(str(m.content) for m in result.messages)
            assert recovered.count("<recovered_context>") <= 1
            sizes.append(subject._parts.estimate(recovered.partition("<recovered_context>")[2]))
            recovered.encode()
            assert_valid_history(result.messages, pending_ok=True)
        messages = result.messages
    assert all(size <= 416 for size in sizes)
    # From the second pass on the state is the same and the calls are gone: the same text, or less.
    assert all(later <= earlier for earlier, later in pairwise(sizes[1:]))


@BOTH
def test_the_same_state_is_put_back_in_the_same_words_in_every_pass(how: str) -> None:
    """Six compactions of a round: byte for byte the same recovered context, once."""
    subject = compactor(summariser("NOTES"), window=6000, trigger=1500)
    messages = history(1, 2)
    seen = set()
    for number in range(3, 15, 2):
        messages = [*messages, *work(number), *work(number + 1)]
        state = {"messages": messages, "todos": [{"content": "send it", "status": "pending"}], "files": {"/plans/p.md": {"content": "# Plan\nread"}}}
        messages = compact(how, subject, state).messages
        (text,) = [str(m.content) for m in messages if "<recovered_context>" in str(m.content)]
        seen.add(text)
        assert ids(messages)[:3] == ["h", "a1", "t1"]
    assert len(seen) == 1


# --- faults of the reference, each absent ----------------------------------------------------------------------------------------------


@BOTH
def test_what_only_calls_told_survives_a_second_compaction_of_the_round(how: str) -> None:
    """There a second pass lost skills and files that the first had put back; here they are facts of the ledger from then on."""
    subject = compactor(summariser("ONE", "TWO", "THREE"), window=8000, trigger=2500)
    told = [
        *use("write_todos", "ok", todos=[{"content": "send the letter", "status": "pending"}]),
        *use("read_file", "first line of the file\nsecond line", path="/src/app.py"),
        *use("load_skill", "Deploy on Fridays only after lunch.", name="deploy"),
    ]
    messages = [*history(1, 2), *(m.model_copy(update={"id": f"told{i}"}) for i, m in enumerate(told))]
    for number in (5, 7, 9):
        messages = compact(how, subject, [*messages, *work(number), *work(number + 1)]).messages
        text = "\n".join(str(m.content) for m in messages)
        for fact in ("send the letter", "/src/app.py", "first line of the file", "deploy", "Deploy on Fridays only after lunch."):
            assert fact in text, (number, fact)


@BOTH
def test_a_restored_order_is_the_configured_one(how: str) -> None:
    """There a list only selected and the registry's order held."""
    subject = compactor(summariser("NOTES"), reinject=("todo", "plan", "plan_mode"), window=4000)
    state = {"messages": history(1, 2), "todos": [{"content": "a", "status": "pending"}], "plan": ["x", "y"], "plan_mode": "plan"}
    assert sections(compact(how, subject, state).messages) == ["todo", "plan", "plan_mode"]


@BOTH
def test_the_limit_of_what_is_restored_can_be_set(how: str) -> None:
    """There the limits were read from fields that no configuration had."""
    state = {"messages": history(1, 2, characters=8000), "todos": [{"content": f"item {n} " + "word " * 20, "status": "pending"} for n in range(60)]}
    sizes = []
    for most in (80, 240):
        subject = compactor(summariser("NOTES"), reinject_max_tokens=most, window=16_000, trigger=2000)
        text = "\n".join(str(m.content) for m in compact(how, subject, state).messages)
        sizes.append(subject._parts.estimate(text[text.index("<recovered_context>") :]))
    assert sizes[0] <= 80 + 8 < sizes[1] <= 240 + 8


@BOTH
def test_state_of_an_agents_thread_beats_what_files_on_disk_say(how: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """There todos and plans were read from a workspace folder, and those in the state were ignored; here no folder is looked at."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "todo.json").write_text('[{"content": "from the disk", "status": "pending"}]')
    (tmp_path / ".plans").mkdir()
    (tmp_path / ".plans" / "p.md").write_text("plan from the disk")
    subject = compactor(summariser("NOTES"), window=4000)
    state = {
        "messages": history(1, 2),
        "todos": [{"content": "from the state", "status": "pending"}],
        "plan_mode": {"mode": "plan", "plan_slug": "p"},
    }
    text = "\n".join(str(m.content) for m in compact(how, subject, state).messages)
    assert "from the state" in text
    assert "from the disk" not in text


@BOTH
def test_running_work_and_a_team_board_do_not_hide_each_other(how: str) -> None:
    """There a team's state hid the list of background work."""
    subject = compactor(summariser("NOTES"), window=4000)
    state = {
        "messages": history(1, 2),
        "team_task_status": {"members": 5},
        "background_tasks": [{"id": "b1", "description": "build the index", "status": "running"}],
    }
    text = "\n".join(str(m.content) for m in compact(how, subject, state).messages)
    assert "build the index" in text
