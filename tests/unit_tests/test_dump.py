"""The dump: a file for each compaction, a line for each decision, nothing of it ever in the run's way, nothing secret in it."""

from __future__ import annotations

import errno
import json
import logging
import multiprocessing
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from builders import call
from conftest import examples
from doors import ByIds, one_node
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.graph import START, StateGraph
from procedures import BOTH, blocks, compact, compactor, go, history, snapshot, summariser, work

from langgraph_roundcompact import RoundCompactNode, RoundCompactor
from langgraph_roundcompact.archive import StoreArchive
from langgraph_roundcompact.dump import DECISIONS, MemoryRecorder, bounded, dump_writer, folder_of, safe_name
from langgraph_roundcompact.errors import ConfigurationError
from langgraph_roundcompact.report import read_dumps
from langgraph_roundcompact.testing import ScriptedChatModel
from langgraph_roundcompact.tiers import DEFAULT_TIERS

SECRET = "sk-" + "a1B2c3D4" * 6


def dumping(folder: Path, model: Any = None, **more: Any) -> RoundCompactor:
    return compactor(model if model is not None else summariser("NOTES"), enable_compression_dump=True, compression_dump_dir=str(folder), **more)


def files(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text("utf-8")) for path in sorted(folder.rglob("compaction-*.json"))]


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.rglob(DECISIONS)) for line in path.read_text("utf-8").splitlines()]


def kinds(folder: Path) -> list[str]:
    return [line["kind"] for line in lines(folder)]


# --- what a record holds ---------------------------------------------------------------------------------------------------------------


@BOTH
def test_a_compaction_is_one_file_with_all_there_is_to_know(how: str, tmp_path: Path) -> None:
    result = compact(how, dumping(tmp_path, keep_recent_messages=2), history(1, 2, 3), thread_id="t-1")
    (record,) = files(tmp_path)
    assert (record["kind"], record["outcome"], record["reason"], record["thread_id"]) == ("compaction", "summarised", "reached_threshold", "t-1")
    assert {name: [message["id"] for message in span] for name, span in record["spans"].items()} == {
        "prefix": ["h"],
        "replaced": ["a1", "t1", "a2", "t2"],
        "kept": ["a3", "t3"],
    }
    assert "result 2 yyy" in record["request"]["messages"][0]["content"]
    assert record["response"]["content"] == snapshot("NOTES")
    assert record["checkpoint"][0]["content"] == result.messages[blocks(result.messages)[0]].content
    assert (record["tokens"]["before"], record["tokens"]["after"]) == (result.tokens_before, result.tokens_after)
    assert record["usage"] == result.usage
    assert record["attempts"] == [{"number": 1, "kind": "ok", "detail": "", "request_tokens": result.attempts[0].request_tokens}]
    assert result.audit is not None
    assert record["audit"] == {"kept": list(result.audit.kept), "added": list(result.audit.added), "dropped": list(result.audit.dropped)}
    assert record["limits"] == {"capacity": 2000, "trigger": 1000, "target": 625}
    assert record["model"] == "scripted"
    assert record["archive_id"] is None
    assert record["recovered_context"] == ""


def test_a_rejected_answer_and_its_request_are_kept_beside_the_one_that_was_used(tmp_path: Path) -> None:
    compact("sync", dumping(tmp_path, ScriptedChatModel(replies=["", snapshot("SECOND")])), history(1, 2))
    (record,) = files(tmp_path)
    assert record["response"]["content"] == snapshot("SECOND")
    (earlier,) = record["earlier_exchanges"]
    assert (earlier["kind"], earlier["response"]["content"]) == ("rejected", "")
    assert earlier["request"]["messages"] != record["request"]["messages"]


def test_rules_alone_have_no_request_and_no_response(tmp_path: Path) -> None:
    rules = RoundCompactor(config=dumping(tmp_path).config, tiers=())
    assert rules.compact(history(1, 2)).outcome == "digested"
    (record,) = files(tmp_path)
    assert (record["request"], record["response"], record["attempts"], record["model"]) == (None, None, [], "")


def test_each_tiers_gain_stands_in_the_record(tmp_path: Path) -> None:
    compact("sync", dumping(tmp_path, tiers=DEFAULT_TIERS, keep_recent_messages=None), history(1, 2, 3))
    (record,) = files(tmp_path)
    assert [tier["tier"] for tier in record["tiers"]] == [tier.__name__ for tier in DEFAULT_TIERS]
    (acted,) = [tier for tier in record["tiers"] if tier["applied"]]
    assert (acted["tier"], acted["folded"], acted["tokens_before"]) == ("single_fold", 2, 3080)
    assert acted["tokens_after"] < acted["tokens_before"]
    assert [fold["id"] for fold in acted["messages"]] == ["t1", "t2"]


def test_a_check_with_room_and_a_fold_make_no_file(tmp_path: Path) -> None:
    subject = dumping(tmp_path, tiers=DEFAULT_TIERS, trigger=4000, window=5000, keep_recent_messages=None)
    assert subject.compact(history(1)).outcome == "below_trigger"
    assert subject.compact([*history(1, 2, 3), *work(4, 200), *work(5, 200), *work(6, 200), *work(7, 6000)]).outcome == "tiers_sufficed"
    assert files(tmp_path) == []
    assert kinds(tmp_path)[:2] == ["threshold_check", "threshold_check"]


def test_without_the_switch_nothing_is_asked_for_and_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    subject = compactor(summariser("NOTES"))
    subject._ports.write_dump = recorder = MemoryRecorder()
    assert subject.compact(history(1, 2)).compacted
    assert recorder.records == []
    assert list(tmp_path.iterdir()) == []


def test_planning_writes_nothing(tmp_path: Path) -> None:
    assert dumping(tmp_path, tiers=DEFAULT_TIERS).plan(history(1, 2, 3)).would_compact
    assert list(tmp_path.iterdir()) == []


# --- decisions -------------------------------------------------------------------------------------------------------------------------


@BOTH
def test_every_decision_has_its_line_in_order(how: str, tmp_path: Path) -> None:
    from langgraph.store.memory import InMemoryStore

    model = ScriptedChatModel(replies=["", snapshot("NOTES")])
    compact(
        how,
        dumping(tmp_path, model, archive=StoreArchive(InMemoryStore()), tiers=DEFAULT_TIERS, keep_recent_messages=None),
        history(1, 2, 3),
        thread_id="t",
    )
    told = lines(tmp_path)
    assert list(dict.fromkeys(line["kind"] for line in told)) == [
        "threshold_check", "span_built", "tier", "compression_retry", "audit", "archive", "gate", "done",
    ]  # fmt: skip
    assert {line["thread_id"] for line in told} == {"t"}
    retry = next(line for line in told if line["kind"] == "compression_retry")
    assert (retry["attempt"], retry["reason"], retry["detail"]) == (1, "rejected", "blank")
    done = told[-1]
    assert (done["outcome"], done["reason"], done["attempts"], done["compacted"]) == ("summarised", "reached_threshold", 2, True)


def test_a_check_with_room_says_so_in_one_line(tmp_path: Path) -> None:
    dumping(tmp_path).compact(history(), thread_id="t")
    (line,) = lines(tmp_path)
    assert line.pop("at")
    assert line == {
        "kind": "threshold_check", "thread_id": "t", "checkpoint_ns": "", "due": False, "reason": "below_threshold",
        "window": 14, "messages": 1, "capacity": 2000, "trigger": 1000, "target": 625,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "more", "last"),
    [
        (history(1, 2), {"min_target_context_ratio": 0.999, "window": 4000}, ("target_below_min", "target_below_min")),
        ([HumanMessage("x" * 9000, id="h")], {}, ("nothing_to_compact", "prefix_over_trigger")),
        (history(1, 2), {"model": ScriptedChatModel(replies=[PermissionError("no")], strict=True), "max_retries": 0}, ("failed", "unknown")),
        (history(1, 2), {"model": ScriptedChatModel(replies=["", ""], strict=True)}, ("failed", "summary_rejected")),
    ],
)
def test_where_nothing_happened_the_last_line_says_why(given: list[BaseMessage], more: dict[str, Any], last: tuple[str, str], tmp_path: Path) -> None:
    result = dumping(tmp_path, more.pop("model", None), **more).compact(given)
    assert not result.changed
    done = lines(tmp_path)[-1]
    assert (done["kind"], done["outcome"], done["reason"]) == ("done", *last)


def test_an_archive_that_fails_is_a_line_with_the_error(tmp_path: Path) -> None:
    from langgraph.store.memory import InMemoryStore

    class Full(InMemoryStore):
        def put(self, *args: Any, **kwargs: Any) -> None:
            raise OSError(errno.ENOSPC, "full")

        def batch(self, ops: Any) -> Any:
            raise OSError(errno.ENOSPC, "full")

    dumping(tmp_path, archive=StoreArchive(Full())).compact(history(1, 2))
    (line,) = [line for line in lines(tmp_path) if line["kind"] == "archive"]
    assert line["written"] is False
    assert line["reason"]


@BOTH
def test_what_the_model_is_sent_holds_no_time_and_does_not_depend_on_dumping(how: str, tmp_path: Path) -> None:
    plain, dumped = summariser("NOTES"), summariser("NOTES")
    one = compact(how, compactor(plain), history(1, 2))
    two = compact(how, dumping(tmp_path, dumped), history(1, 2))
    assert plain.requests == dumped.requests
    assert [message.model_dump() for message in one.messages] == [message.model_dump() for message in two.messages]


# --- secrets, refusals, oddities -------------------------------------------------------------------------------------------------------


@BOTH
def test_secrets_are_in_no_file_and_no_line(how: str, tmp_path: Path) -> None:
    given = [
        HumanMessage(f"my key is {SECRET}", id="h"),
        AIMessage([{"type": "text", "text": SECRET}], tool_calls=[call("c", "run", command=f"curl -H 'Authorization: Bearer {SECRET}'")], id="a"),
        ToolMessage(f"OPENAI_API_KEY={SECRET}\n" + "y" * 9000, tool_call_id="c", id="t"),
        *work(2),
    ]
    compact(how, dumping(tmp_path, summariser(f"the key was {SECRET}")), given)
    compact(how, dumping(tmp_path, tiers=DEFAULT_TIERS), given)
    assert files(tmp_path)
    assert [line for line in lines(tmp_path) if line["kind"] == "tier" and line["messages"]]
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or SECRET not in path.read_text("utf-8")


def test_a_text_that_redact_refuses_where_it_stays_costs_that_text_alone(tmp_path: Path) -> None:
    def picky(text: str) -> str:
        if "forbidden" in text:
            raise ValueError
        return text

    kept = [AIMessage("", tool_calls=[call("c9", "look_up")], id="a9"), ToolMessage("forbidden", tool_call_id="c9", id="t9")]
    result = dumping(tmp_path, redact=picky, keep_recent_messages=2).compact([*history(1, 2), *kept])
    plain = compactor(summariser("NOTES"), redact=picky, keep_recent_messages=2).compact([*history(1, 2), *kept])
    assert (result.outcome, result.reason) == (plain.outcome, plain.reason)
    if result.compacted:
        assert files(tmp_path)[0]["spans"]["kept"][1]["content"] == "[left out: redact refused this text]"


@pytest.mark.parametrize("odd", ["\ud83d lone", "\x00 NUL", "</script><img src=x onerror=alert(1)>", "\x1b[31mred\x1b[0m", "a\u2028b"])
def test_odd_text_is_written_as_valid_json(odd: str, tmp_path: Path) -> None:
    given = [HumanMessage(odd, id="h"), *work(1), *work(2)]
    given[2] = given[2].model_copy(update={"content": odd + "y" * 9000, "artifact": {"x": float("nan"), "y": object(), "z": b"\xff"}})
    dumping(tmp_path).compact(given, thread_id=odd)
    assert len(files(tmp_path)) == 1
    assert lines(tmp_path)


# --- names and places ------------------------------------------------------------------------------------------------------------------

NASTY = [
    "../../x",
    "..",
    ".",
    "",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "con",
    "NUL.txt",
    "lpt1",
    "x" * 5000,
    "ünïcode 线程",
    "a\x00b",
    "~",
    " ",
    "-",
    "\ud83d",
]


@pytest.mark.parametrize("name", NASTY)
def test_no_spelling_of_a_thread_leaves_the_folder(name: str, tmp_path: Path) -> None:
    dumping(tmp_path / "{thread_id}").compact(history(1, 2), thread_id=name)
    written = list(tmp_path.rglob("compaction-*.json"))
    assert len(written) == 1
    assert written[0].resolve().is_relative_to(tmp_path.resolve())
    assert written[0].parent.parent == tmp_path
    assert len(written[0].parent.name.encode()) <= 80


@examples(300)
@given(
    st.lists(
        st.one_of(st.text(max_size=90), st.sampled_from(NASTY), st.from_regex(r"\A[a-z]{1,4}-[0-9a-f]{10}\Z")), min_size=2, max_size=6, unique=True
    )
)
def test_different_names_stay_different_also_when_one_imitates_the_others(names: list[str]) -> None:
    names = [*names, *(safe_name(name) for name in names)]
    found = {name: safe_name(name) for name in names if name}
    assert len(set(found.values())) == len(found)


@pytest.mark.parametrize("name", ["t-1", "user.42", "3f2b8c1e-0000-4000-8000-123456789abc", "Thread_7"])
def test_usual_names_stay_readable(name: str) -> None:
    assert safe_name(name) == name


@pytest.mark.parametrize("template", ["{user}/x", "{thread_id.__class__}", "{thread_id!r}", "{thread_id:>99}", "{}", "{0}", "{thread_id", "a}b"])
def test_a_template_that_cannot_be_filled_in_is_refused_at_construction(template: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"only \{thread_id\} and"):
        dumping(tmp_path / template)


def test_missing_names_have_a_folder_too() -> None:
    assert folder_of("a/{thread_id}/{checkpoint_ns}", {"thread_id": None, "checkpoint_ns": ""}) == Path("a/no-thread/main")


@BOTH
def test_in_a_graph_thread_and_namespace_are_those_of_the_running_graph(how: str, tmp_path: Path) -> None:
    from langgraph.checkpoint.memory import InMemorySaver

    node = RoundCompactNode(dumping(tmp_path / "{thread_id}" / "{checkpoint_ns}"))
    inner = one_node(node)
    builder = StateGraph(ByIds)
    builder.add_node("outer_compact", node)
    builder.add_node("part", inner)
    builder.add_edge(START, "part")
    builder.add_edge("part", "outer_compact")
    graph = builder.compile(checkpointer=InMemorySaver())
    go(how, graph, {"messages": history(1, 2)}, {"configurable": {"thread_id": "user/7"}})
    (thread,) = tmp_path.iterdir()
    assert thread.name == safe_name("user/7")
    names = sorted(path.name for path in thread.iterdir())
    assert len(names) == 2
    assert names[0] == "main"
    assert names[1].startswith("part_")
    assert {record["checkpoint_ns"] for record in files(thread / names[1])} == {line["checkpoint_ns"] for line in lines(thread / names[1])}
    assert lines(thread / names[1])[0]["checkpoint_ns"].startswith("part:")
    assert {line["checkpoint_ns"] for line in lines(thread / "main")} == {""}


# --- the disk --------------------------------------------------------------------------------------------------------------------------


def _is_a_file(folder: Path) -> Path:
    folder.write_text("here already")
    return folder


def _is_below_a_file(folder: Path) -> Path:
    folder.write_text("here already")
    return folder / "below"


def _has_a_nul(folder: Path) -> Path:
    return Path(f"{folder}\x00x")


@BOTH
@pytest.mark.parametrize("broken", [_is_a_file, _is_below_a_file, _has_a_nul])
def test_a_folder_that_cannot_be_one_costs_one_warning_and_nothing_else(
    how: str, broken: Callable[[Path], Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    subject = dumping(broken(tmp_path / "dumps"), summariser("ONE", "TWO"))
    with caplog.at_level(logging.WARNING, "langgraph_roundcompact"):
        first = compact(how, subject, history(1, 2))
        second = compact(how, subject, history(3, 4))
    assert (first.outcome, second.outcome) == ("summarised", "summarised")
    assert len([record for record in caplog.records if "dump" in record.getMessage()]) == 1


@BOTH
def test_a_full_disk_costs_one_warning_and_leaves_no_half_file(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **kwargs: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("link", "write"):
        monkeypatch.setattr(f"langgraph_roundcompact.dump.os.{name}", full)
    monkeypatch.setattr("langgraph_roundcompact.dump.os.replace", full)
    with caplog.at_level(logging.WARNING, "langgraph_roundcompact"):
        result = compact(how, dumping(tmp_path), history(1, 2))
    assert result.outcome == "summarised"
    assert [record.getMessage() for record in caplog.records if "dump" in record.getMessage()] == [
        f"compactions cannot be dumped to {str(tmp_path)!r} (No space left on device); the run goes on without, and this is said once"
    ]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".writing")] == []


def test_half_a_line_does_not_swallow_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, real = dump_writer(str(tmp_path)), os.write
    monkeypatch.setattr("langgraph_roundcompact.dump.os.write", lambda handle, data: real(handle, data[:10]))
    write({"kind": "done", "reason": "lost"})
    monkeypatch.setattr("langgraph_roundcompact.dump.os.write", real)
    write({"kind": "done", "reason": "whole"})
    assert json.loads((tmp_path / DECISIONS).read_text().splitlines()[-1])["reason"] == "whole"


def test_lines_are_put_aside_when_their_file_is_full_and_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is there is read back in order."""
    monkeypatch.setattr("langgraph_roundcompact.dump.FULL_BYTES", 2_000)
    monkeypatch.setattr("langgraph_roundcompact.dump.KEPT_FULL", 2)
    write = dump_writer(str(tmp_path))
    for number in range(100):
        write({"kind": "done", "number": number, "text": "x" * 100})
    names = sorted(path.name for path in tmp_path.iterdir())
    assert set(names) <= {"decisions-00008.jsonl", "decisions-00009.jsonl", DECISIONS}
    assert len(names) >= 2
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 3 * 2_500
    read = [record["number"] for record in read_dumps(tmp_path)]
    assert read == list(range(100))[-len(read) :]
    assert len(read) > 20


@pytest.mark.parametrize("links", [True, False])
def test_threads_that_put_lines_aside_at_once_lose_none(links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*args: Any) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr("langgraph_roundcompact.dump.FULL_BYTES", 3_000)
    monkeypatch.setattr("langgraph_roundcompact.dump.KEPT_FULL", 1_000)
    if not links:
        monkeypatch.setattr("langgraph_roundcompact.dump.os.link", no_links)
    write = dump_writer(str(tmp_path))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: write({"kind": "done", "number": number, "text": "x" * 100}), range(400)))
    assert sorted(record["number"] for record in read_dumps(tmp_path)) == list(range(400))


def test_a_file_system_without_links_keeps_every_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*args: Any) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr("langgraph_roundcompact.dump.os.link", no_links)
    write = dump_writer(str(tmp_path))
    for number in range(3):
        write({"kind": "compaction", "number": number})
    assert [record["number"] for record in files(tmp_path)] == [0, 1, 2]


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    dumping(tmp_path / "dumps").compact(history(1, 2))
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "dumps").iterdir()} == {0}


def _many(folder: str, worker: int) -> None:
    write = dump_writer(folder)
    for number in range(25):
        write({"kind": "compaction", "worker": worker, "number": number, "text": "x" * 5000})
        write({"kind": "done", "worker": worker, "number": number, "text": "x" * 5000})


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=_many, args=(str(tmp_path), worker)) for worker in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    expected = sorted((worker, number) for worker in range(3) for number in range(25))
    assert sorted((record["worker"], record["number"]) for record in files(tmp_path)) == expected
    assert sorted((line["worker"], line["number"]) for line in lines(tmp_path)) == expected
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_equal_records_are_two_files(tmp_path: Path) -> None:
    write = dump_writer(str(tmp_path))
    for _ in range(2):
        write({"kind": "compaction", "same": True})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["compaction-00001.json", "compaction-00002.json"]


# --- size ------------------------------------------------------------------------------------------------------------------------------


def test_a_giant_text_keeps_head_and_tail_and_says_what_is_missing(tmp_path: Path) -> None:
    given = history(1, 2)
    given[2] = given[2].model_copy(update={"content": "HEAD" + "y" * 30_000_000 + "TAIL"})
    dumping(tmp_path).compact(given)
    (path,) = tmp_path.glob("compaction-*.json")
    assert path.stat().st_size < 16_000_000
    text = json.loads(path.read_text())["spans"]["replaced"][1]["content"]
    assert text.startswith("HEAD")
    assert text.endswith("TAIL")
    assert "characters left out of this dump" in text


@pytest.mark.parametrize(
    "giant",
    [
        {"a": "x" * 3_000_000},
        {"a": ["y" * 500] * 20_000},
        {"a": {str(i): "z" * 50 for i in range(100_000)}},
        {"x" * 2_000_000: 1},
        {"a": [[["w" * 20] * 60] * 60] * 60},
    ],
    ids=["text", "list", "mapping", "key", "nested"],
)
def test_whatever_is_giant_about_a_record_its_file_is_bounded(giant: Mapping[str, Any]) -> None:
    data = bounded({"kind": "done", **giant}, 200_000)
    assert len(data) <= 200_000
    assert json.loads(data)["kind"] == "done"


def test_a_small_record_is_written_as_it_is() -> None:
    record = {"kind": "done", "texts": ["a", {"b": [1, 2.5, None, True]}]}
    assert json.loads(bounded(record, 200_000)) == record
