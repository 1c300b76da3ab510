"""Ways to keep a window in bounds side by side: what each figure counts, and that the strategies are what they say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conftest import examples
from hypothesis import given
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from strategies import histories

from langgraph_roundcompact import RoundCompactConfig
from langgraph_roundcompact.errors import ConfigurationError
from langgraph_roundcompact.loaders import Conversation, load_conversation
from langgraph_roundcompact.loaders._conversation import with_ids
from langgraph_roundcompact.replay import (
    STRATEGIES,
    Figures,
    Limits,
    Probe,
    ProbeError,
    Recording,
    Replay,
    Request,
    Tally,
    make_strategy,
    read_probes,
    report,
)
from langgraph_roundcompact.replay._recording import FaultCount, common_prefix
from langgraph_roundcompact.testing import ScriptedChatModel, pairing_faults

SHARED = Path(__file__).parents[3] / "shared" / "traces"


def count(messages: Sequence[BaseMessage]) -> int:
    """Ten tokens a message and one for each character of text."""
    return sum(10 + len(str(message.text)) for message in messages)


def step(i: int, size: int = 100) -> list[BaseMessage]:
    call = {"id": f"c{i}", "name": "read", "args": {"path": f"/src/file_{i}.py"}, "type": "tool_call"}
    return [AIMessage("", id=f"a{i}", tool_calls=[call]), ToolMessage(f"value_{i} = {i}000{i}\n".ljust(size, "x"), id=f"t{i}", tool_call_id=f"c{i}")]


def talk(steps: int, *, size: int = 100, more: Sequence[BaseMessage] = ()) -> Recording:
    work = [message for i in range(steps) for message in step(i, size)]
    return Recording(Conversation(name="talk", messages=(SystemMessage("Be brief.", id="s"), HumanMessage("Fix it.", id="u"), *work, *more)))


def tally(recording: Recording, **more: Any) -> Tally:
    return Tally("x", recording, count=count, **{"capacity": 1000, **more})


def weighed(recording: Recording, name: str, *, trigger: int = 800, target: int = 400, model: Any = None, **more: Any) -> Figures:
    found = tally(recording, **more)
    for request in make_strategy(name, Limits(trigger=trigger, target=target, count=count, model=model)).requests(recording):
        found.take(request)
    return found.figures()


def sent(recording: Recording, name: str, *, trigger: int = 800, target: int = 400, model: Any = None) -> list[Request]:
    return list(make_strategy(name, Limits(trigger=trigger, target=target, count=count, model=model)).requests(recording))


# --- the prefix cache -----------------------------------------------------------------------------------------------------------------


def test_a_request_that_extends_the_one_before_reads_only_what_is_new():
    figures = weighed(talk(3), "none")
    # Requests of 36, 156, 276 and 396 tokens: 19 + 17, and 120 for each step.
    assert (figures.requests, figures.tokens_sent) == (4, 36 + 156 + 276 + 396)
    assert (figures.tokens_cached, figures.tokens_uncached) == (36 + 156 + 276, 36 + 3 * 120)
    assert figures.bill == round(396 + 0.1 * 468)


def test_the_price_of_cached_tokens_is_a_parameter():
    bills = [weighed(talk(3), "none", cached_price=price).bill for price in (0.0, 0.5, 1.0)]
    assert bills == [396, 396 + 234, 864]


def test_the_cache_ends_at_the_first_message_that_differs():
    recording = talk(2, more=[HumanMessage("Next.", id="u2")])
    system, request, *work = recording.messages
    found = tally(recording)
    found.take(Request(4, [system, request, *work[:2]], count([system, request, *work[:2]]), (), False, False, 0))
    changed = [system, request.model_copy(update={"content": "Fix that."}), *work]
    found.take(Request(7, changed, count(changed), (), False, False, 0))
    figures = found.figures()
    assert figures.tokens_cached == count([system])
    assert figures.tokens_uncached == figures.tokens_sent - count([system])


def test_ids_and_metadata_are_not_sent_and_break_no_cache():
    first = step(1)
    second = [message.model_copy(update={"id": "other", "response_metadata": {"x": 1}}) for message in first]
    assert common_prefix(first, second) == 2
    assert common_prefix(first, [first[0], first[1].model_copy(update={"content": "y"})]) == 1
    assert common_prefix(first, []) == 0


@given(messages=histories())
@examples(60)
def test_the_shortcut_for_extensions_is_exact(messages):
    """Weighing a request as an extension gives the same figures as comparing it message by message."""
    kept = with_ids([message for message in messages if isinstance(message, BaseMessage)])
    if not kept:
        return
    recording = Recording(Conversation(name="x", messages=tuple(kept)))
    quick, slow = tally(recording), tally(recording)
    for request in sent(recording, "none"):
        quick.take(request)
        slow.take(Request(request.place, list(request.messages), request.tokens, request.arrived, False, False, 0))
    assert quick.figures() == slow.figures()


@given(messages=histories())
@examples(100)
def test_faults_counted_part_by_part_are_those_of_the_whole(messages):
    kept = with_ids([message for message in messages if isinstance(message, BaseMessage)])
    count_ = FaultCount()
    for i, message in enumerate(kept):
        count_.extend([message])
        if i + 1 == len(kept) or isinstance(kept[i + 1], AIMessage):
            assert count_.total == len(pairing_faults(kept[: i + 1]))


# --- what is told of requests ---------------------------------------------------------------------------------------------------------


def test_requests_over_the_window_are_counted():
    assert weighed(talk(12), "none").requests_over_window == sum(36 + 120 * i > 1000 for i in range(13)) == 4


def test_a_request_with_a_lost_pair_is_broken_but_not_one_that_the_recording_broke():
    recording = talk(2)
    found = tally(recording)
    orphan = [recording.messages[0], recording.messages[1], recording.messages[3]]
    found.take(Request(4, orphan, count(orphan), (), False, False, 0))
    assert found.figures().requests_broken == 1
    broken = Recording(Conversation(name="x", messages=(HumanMessage("a", id="u"), ToolMessage("r", id="t", tool_call_id="none"), *step(1))))
    assert weighed(broken, "none").requests_broken == 0


def test_an_empty_request_is_broken():
    recording = talk(1)
    found = tally(recording)
    found.take(Request(4, recording.messages[:1], 19, (), False, True, 0))
    assert (found.figures().requests_broken, found.figures().requests_without_request) == (1, 1)


def test_the_request_in_force_is_the_latest():
    recording = talk(1, more=[HumanMessage("And now that.", id="u2"), *step(5)])
    found = tally(recording)
    without_first = [recording.messages[0], *recording.messages[4:5]]
    found.take(Request(5, without_first, count(without_first), (), False, True, 0))
    assert found.figures().requests_without_request == 0
    found.take(Request(5, recording.messages[:4], 1, (), False, True, 0))
    assert found.figures().requests_without_request == 1


def test_retention_is_asked_at_the_last_call_of_each_round():
    recording = talk(3, more=[HumanMessage("And now that.", id="u2"), *step(50), *step(51)])
    assert sorted(recording.round_ends) == [6, 13]
    first, second = recording.facts[6], recording.facts[13]
    assert any("/src/file_0.py" in fact for fact in first)
    assert not any("file_50" in fact for fact in first)
    assert any("/src/file_50.py" in fact for fact in second)
    figures = weighed(recording, "none")
    assert (figures.facts, figures.facts_kept, figures.retention) == (len(first) + len(second), len(first) + len(second), 1.0)
    assert 0 < (weighed(recording, "tail", trigger=200).retention or 0) < 1


def test_without_work_there_is_no_retention():
    figures = weighed(Recording(Conversation(name="x", messages=(HumanMessage("hi", id="u"), AIMessage("hello", id="a")))), "none")
    assert (figures.facts, figures.retention) == (0, None)


def test_probes_are_asked_at_their_place():
    recording = talk(8)
    probes = [Probe("talk", 4, (("value_0 =",), ("nowhere", "value_1 ="))), Probe("another", 4, (("x",),)), Probe("talk", 999, (("value_7 =",),))]
    figures = weighed(recording, "none", probes=probes)
    assert (figures.probes, figures.probes_kept) == (3, 2)
    assert weighed(recording, "none").probes == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ("[]", "no probes"),
        ('{"id": "x", "mark_index": 1}', "no probes"),
        ('{"id": "x", "mark_index": "1", "probes": []}', "no probes"),
        ('{"id": "x", "mark_index": 1, "probes": [{"strings": "a"}]}', "no probes"),
        ('{"id": "x", "mark_index": 1, "probes": [{"strings": [""]}]}', "no probes"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_file_without_probes_is_one_clear_line(tmp_path, text, words):
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(ProbeError, match=words) as caught:
        read_probes(path)
    assert "\n" not in str(caught.value)


def test_probes_are_read_from_a_file_and_a_folder(tmp_path):
    (tmp_path / "p.json").write_text(json.dumps({"id": "talk", "mark_index": 4, "probes": [{"strings": ["a", "b"], "fact": "said"}]}))
    assert read_probes(tmp_path / "p.json") == read_probes(tmp_path) == [Probe("talk", 4, (("a", "b"),))]
    with pytest.raises(ProbeError, match="cannot be read"):
        read_probes(tmp_path / "none.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ProbeError, match=r"no \.json files"):
        read_probes(tmp_path / "empty")


def test_figures_add_up():
    one, other = weighed(talk(3), "none"), weighed(talk(12), "none")
    total = Figures.total([one, other])
    assert (total.strategy, total.requests, total.bill) == ("x", 4 + 13, one.bill + other.bill)
    assert total.largest_request == other.largest_request
    assert set(total.as_dict()) == {*Figures.__dataclass_fields__, "request_kept", "retention"}


# --- strategies -----------------------------------------------------------------------------------------------------------------------


def test_nothing_sends_everything():
    recording = talk(5)
    assert [list(request.messages) for request in sent(recording, "none")] == [recording.messages[: 2 + 2 * i] for i in range(6)]


def test_the_tail_fits_keeps_the_system_prompt_and_whole_pairs():
    recording = talk(30)
    requests = sent(recording, "tail")
    assert all(request.tokens <= 800 for request in requests)
    assert all(request.messages[0] is recording.messages[0] for request in requests)
    assert all(pairing_faults(list(request.messages)) == [] for request in requests)
    assert [request.compacted for request in requests[:7]] == [False] * 7
    assert all(request.compacted for request in requests[8:])
    assert requests[-1].messages[-1] is recording.messages[-1]


def test_the_tail_is_what_trim_messages_gives_of_the_whole_list():
    """Only the end that may fit is handed over, for the sake of time."""
    from langchain_core.messages import trim_messages

    recording = talk(40)
    whole = trim_messages(recording.messages, max_tokens=800, token_counter=count, strategy="last", include_system=True, start_on=("human", "ai"))
    assert list(sent(recording, "tail")[-1].messages) == whole


def test_langchain_summarises_and_loses_the_request():
    requests = sent(talk(30), "langchain")
    cut = next(request for request in requests if request.compacted)
    assert [message.type for message in cut.messages[:2]] == ["system", "human"]
    assert "The earlier work was done." in str(cut.messages[1].text)
    assert cut.summary_tokens > 0
    figures = weighed(talk(30), "langchain")
    assert not figures.request_kept
    assert figures.compactions > 1
    assert figures.requests_over_window == 0


def test_langchain_asks_the_model_that_is_given():
    model = ScriptedChatModel(replies=["They read files 0 to 9."])
    requests = sent(talk(30), "langchain", model=model)
    assert "They read files 0 to 9." in str(next(request for request in requests if request.compacted).messages[1].text)
    assert len(model.requests) == sum(request.compacted for request in requests)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_says_truly_whether_a_request_extends_the_one_before(name):
    for before, now in pairwise(sent(talk(30), name)):
        extension = [*before.messages, *now.arrived]
        assert not now.extends or list(now.messages) == extension
        assert now.tokens == count(list(now.messages))


def test_what_the_node_would_send_says_it_too():
    recording = talk(40, size=400)
    conversation = Conversation(name="talk", messages=tuple(recording.messages))
    player, requests = Replay(config=RoundCompactConfig(context_window_tokens=3000)), list[Request]()
    steps = list(player.steps(conversation, watch=requests.append, recording=recording))
    assert [request.place for request in requests] == [one.position for one in steps if one.model_call]
    for before, now in pairwise(requests):
        assert not now.extends or list(now.messages) == [*before.messages, *now.arrived]
        assert now.tokens == player.compactor.count_tokens(list(now.messages))
    assert 0 < sum(not request.extends for request in requests) < 20


def test_the_node_keeps_the_request_where_others_lose_it():
    recording = talk(60, size=400)
    conversation = Conversation(name="talk", messages=tuple(recording.messages))
    player = Replay(config=RoundCompactConfig(context_window_tokens=3000))
    plan, found = player.compactor.plan([]), Tally("x", recording, count=player.compactor.count_tokens, capacity=3000)
    assert report(conversation, player.steps(conversation, watch=found.take, recording=recording)).failures == []
    limits = Limits(trigger=plan.trigger_tokens, target=plan.target_tokens, count=player.compactor.count_tokens)
    others = {}
    for name in STRATEGIES:
        other = Tally(name, recording, count=player.compactor.count_tokens, capacity=3000)
        for request in make_strategy(name, limits).requests(recording):
            other.take(request)
        others[name] = other.figures()
    assert found.figures().request_kept
    assert not others["tail"].request_kept
    assert not others["langchain"].request_kept
    assert found.figures().bill < others["none"].bill
    assert found.figures().bill < others["tail"].bill


def test_an_unknown_strategy_and_a_missing_package_are_told(monkeypatch):
    import sys

    limits = Limits(trigger=1, target=1, count=count)
    with pytest.raises(ConfigurationError, match="choose from none, tail, langchain"):
        make_strategy("magic", limits)
    monkeypatch.setitem(sys.modules, "langchain.agents.middleware", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'langgraph-roundcompact\[langchain\]'"):
        make_strategy("langchain", limits)


@given(messages=histories())
@examples(40)
def test_no_recording_breaks_a_strategy(messages):
    kept = with_ids([message for message in messages if isinstance(message, BaseMessage)])
    if kept:
        recording = Recording(Conversation(name="x", messages=tuple(kept)))
        for name in STRATEGIES:
            figures = weighed(recording, name, trigger=200, target=100, capacity=250)
            assert figures.requests == sum(map(recording.is_model_call, recording.places))


def test_records_of_a_replay_are_those_of_the_report():
    from langgraph_roundcompact.dump import MemoryRecorder

    recorder = MemoryRecorder()
    conversation = Conversation(name="talk", messages=tuple(talk(40, size=400).messages))
    played = Replay(config=RoundCompactConfig(context_window_tokens=3000), recorder=recorder).play(conversation)
    assert sum(record["kind"] == "compaction" for record in recorder.records) == played.compactions > 0
    assert {record["thread_id"] for record in recorder.records} == {"talk"}


@pytest.mark.skipif(not SHARED.exists(), reason="recorded transcripts are not here")
def test_a_real_transcript_with_its_probes():
    conversation = load_conversation(SHARED / "transcripts" / "mini-django-13265.jsonl")
    recording, player = Recording(conversation), Replay(config=RoundCompactConfig(context_window_tokens=16_000))
    probes = read_probes(SHARED / "probes")
    found = Tally("x", recording, count=player.compactor.count_tokens, capacity=16_000, probes=probes)
    assert report(conversation, player.steps(conversation, watch=found.take, recording=recording)).failures == []
    figures = found.figures()
    assert (figures.requests_broken, figures.requests_over_window, figures.request_kept) == (0, 0, True)
    assert figures.probes == 20
    assert figures.probes_kept >= 14
