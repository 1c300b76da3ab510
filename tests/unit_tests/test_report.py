"""The report: one page, from records that may hold anything, that loads nothing and runs nothing but its own script."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args

import pytest
from conftest import examples
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage, ToolMessage
from procedures import compactor, history, summariser, work

from langgraph_roundcompact import cli
from langgraph_roundcompact.dump import MemoryRecorder
from langgraph_roundcompact.errors import ErrorKind
from langgraph_roundcompact.events import Outcome, PlainReason
from langgraph_roundcompact.report import DumpError, Prices, read_dumps, render_report
from langgraph_roundcompact.report._chart import chart_of, short
from langgraph_roundcompact.report._cost import cost_of
from langgraph_roundcompact.report._runs import runs_of
from langgraph_roundcompact.report._text import one_line, visible
from langgraph_roundcompact.report._words import OUTCOMES, REASONS
from langgraph_roundcompact.testing import ScriptedChatModel
from langgraph_roundcompact.tiers import DEFAULT_TIERS

ATTACKS = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "<!--<script>",
    "{{ 7*7 }}{% raw %}",
    "]]>",
    "javascript:alert(1)",
    "\x1b[31mred\x1b[0m\x1b]8;;http://evil\x07link",
    "\u202egnp.exe",
    "\ud83d\x00\x85\u2028",
]


def recorded(*talks: list[Any], **more: Any) -> list[dict[str, Any]]:
    """What a dumping compactor notes of some checks."""
    subject = compactor(more.pop("model", None) or summariser("NOTES"), enable_compression_dump=True, **more)
    subject._ports.write_dump = recorder = MemoryRecorder()
    for talk in talks:
        subject.compact(talk, thread_id="t-1")
    return recorder.records


class Page(HTMLParser):
    """Tags with their attributes, and the text that a reader sees."""

    VOID = frozenset({"meta", "input", "link", "br", "img", "path", "rect", "line", "circle"})

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.scripts: list[str] = []
        self._open: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        inside = self._open[-1] if self._open else ""
        (self.scripts if inside == "script" else self.text).append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


# --- the page --------------------------------------------------------------------------------------------------------------------------


def test_the_page_tells_the_story_of_a_run() -> None:
    page = Page(render_report(recorded(history(), history(1, 2), history(1), keep_recent_messages=0)))
    assert "Checkpoint 1" in page.words
    assert "2,058 →" in page.words
    assert "summarised" in page.words
    assert "Thread t-1" in page.words
    assert "window of 2,000 tokens, trigger at 1,000" in page.words
    assert "result 2 yyy" in page.words
    assert "<memory_block_current>" in page.words
    assert "Made by langgraph-roundcompact" in page.words


def test_equal_records_give_the_same_page() -> None:
    records = recorded(history(1, 2))
    assert render_report(records) == render_report(json.loads(json.dumps(records)))


def test_the_policy_lets_the_pages_own_style_and_script_run_and_nothing_else() -> None:
    source = render_report(recorded(history(1, 2)))
    page = Page(source)
    (policy,) = [attrs["content"] for tag, attrs in page.tags if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy"]

    def sum_of(element: str) -> str:
        (inner,) = re.findall(rf"<{element}>(.*?)</{element}>", source, re.DOTALL)
        return "sha256-" + base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()

    assert policy == (f"default-src 'none'; style-src '{sum_of('style')}'; script-src '{sum_of('script')}'; base-uri 'none'; form-action 'none'")


def test_nothing_is_loaded_and_no_handler_or_style_stands_in_an_attribute() -> None:
    page = Page(render_report(recorded(*([HumanMessage(attack, id="h"), *work(1), *work(2)] for attack in ATTACKS))))
    names = {name for _, attrs in page.tags for name in attrs}
    assert [name for name in names if name.startswith("on") or name in ("style", "src", "srcset", "action")] == []
    assert {attrs["href"][:1] for tag, attrs in page.tags if attrs.get("href")} == {"#"}  # type: ignore[index]
    assert {tag for tag, _ in page.tags} & {"img", "iframe", "object", "embed", "link", "base", "form"} == set()
    assert [tag for tag, _ in page.tags].count("script") == 2


@pytest.mark.parametrize("attack", ATTACKS)
def test_text_from_outside_stays_text_wherever_it_stands(attack: str) -> None:
    records = json.loads(json.dumps(recorded(history(1, 2), tiers=DEFAULT_TIERS, keep_recent_messages=0)))
    clean = len(Page(render_report(records)).tags)

    def poisoned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: item if key in ("kind", "type", "outcome", "reason") else poisoned(item) for key, item in value.items()}
        return [poisoned(item) for item in value] if isinstance(value, list) else attack if isinstance(value, str) else value

    page = Page(render_report(poisoned(records), title=attack))
    assert "alert" not in "".join(tag for tag, _ in page.tags)
    assert len([tag for tag, _ in page.tags if tag == "script"]) == 2
    assert abs(len(page.tags) - clean) < clean
    assert "49" not in page.words or "{{ 7*7 }}" not in attack or "{{ 7*7 }}" in page.words
    assert "\x1b" not in page.words
    assert "\u202e" not in page.words
    assert "\x00" not in page.words


def test_long_texts_stand_in_the_pool_once_and_cannot_end_their_element() -> None:
    long = "</script><b>" + "z" * 5000
    talk = [HumanMessage(long, id="h"), *work(1), *work(2)]
    source = render_report(recorded(talk, talk))
    page = Page(source)
    pool = json.loads(page.scripts[0])
    assert pool.count(long) == 1
    assert long not in source
    assert "<" not in page.scripts[0]


def test_many_messages_are_cut_in_the_middle_and_it_says_so() -> None:
    (record,) = [record for record in recorded(history(1, 2)) if record["kind"] == "compaction"]
    record["spans"]["replaced"] *= 200
    page = Page(render_report([record]))
    assert "560 more messages stand here" in page.words
    assert "800 messages" in page.words


def test_a_folded_message_that_stays_is_marked() -> None:
    mark = {"lc_source": "round_compaction", "lc_data": {"kind": "folded", "tier": "single_fold", "characters": 9000}}
    talk = history(1, 2)
    record = next(record for record in recorded(talk, keep_recent_messages=2) if record["kind"] == "compaction")
    record["spans"]["kept"][1]["additional_kwargs"] = mark
    assert "folded" in [attrs.get("class", "").split()[-1] for tag, attrs in Page(render_report([record])).tags if tag == "li" and attrs.get("class")]  # type: ignore[union-attr]


def test_folds_alone_are_a_card_with_what_stands_there_now() -> None:
    talk = [*history(1, 2, 3), *work(4, 200), *work(5, 200), *work(6, 200), *work(7, 6000)]
    page = Page(render_report(recorded(talk, tiers=DEFAULT_TIERS, trigger=4000, window=5000, keep_recent_messages=None)))
    assert "Folding, before call 1" in page.words
    assert "no model needed" in page.words
    assert "[preview of text" in page.words


def test_checks_that_left_the_window_alone_say_why_and_what_to_do() -> None:
    page = Page(render_report(recorded(history(), history(1, 2), min_target_context_ratio=0.999, window=4000)))
    assert "Nothing was compacted." in page.words
    assert "left alone the window had room 1 Nothing." in page.words
    assert "too little new work the new work is smaller than the least worth compacting 1 Lower min_target_context_ratio" in page.words


def test_every_outcome_and_reason_has_words() -> None:
    assert set(get_args(Outcome)) - OUTCOMES.keys() == set()
    assert {*get_args(PlainReason), *get_args(ErrorKind)} - REASONS.keys() == set()


def test_no_records_are_a_page_too() -> None:
    assert "Nothing was compacted." in Page(render_report([])).words


_JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
)
_KEYS = [
    "tokens", "limits", "spans", "checkpoint", "request", "response", "attempts", "usage", "audit", "tiers", "window", "due", "tier", "applied",
    "messages", "thread_id", "at", "outcome", "reason", "file", "model", "changed", "tokens_after", "untouched", "capacity", "recovered_context",
]  # fmt: skip


@examples(60)
@given(
    st.lists(
        st.fixed_dictionaries(
            {"kind": st.sampled_from(["compaction", "threshold_check", "tier", "done", "x"])}, optional=dict.fromkeys(_KEYS, _JUNK)
        ),
        max_size=6,
    )
)
def test_nothing_odd_in_a_record_raises(records: list[dict[str, Any]]) -> None:
    assert render_report(records).endswith("</html>")


# --- runs, picture, cost ---------------------------------------------------------------------------------------------------------------


def check(window: int, after: int | None = None, **more: Any) -> list[dict[str, Any]]:
    """The lines of one check, and the record where it made a checkpoint."""
    lines: list[dict[str, Any]] = [
        {"kind": "threshold_check", "window": window, "due": after is not None, "capacity": 1000, "trigger": 800, "target": 500}
    ]
    if after is not None:
        lines.append({"kind": "compaction", "outcome": "summarised", "tokens": {"before": window, "after": after, "prefix": 100}})
        lines.append({"kind": "done", "outcome": "summarised", "changed": True, "tokens_before": window, "tokens_after": after, **more})
    return lines


def test_runs_are_told_apart_by_thread_and_graph() -> None:
    records = [{**line, "thread_id": thread, "checkpoint_ns": ns} for thread, ns in (("a", ""), ("b", ""), ("a", "sub:1")) for line in check(100)]
    assert [(run.thread_id, run.checkpoint_ns, len(run.checks)) for run in runs_of(records)] == [("a", "", 1), ("b", "", 1), ("a", "sub:1", 1)]


def test_checks_of_threads_that_ran_at_once_are_not_mixed_up() -> None:
    one, two = ([{**line, "thread_id": name} for line in check(900, after)] for name, after in (("a", 300), ("b", 400)))
    mixed = [record for pair in zip(one, two, strict=True) for record in pair]
    assert [[(c.before, c.after) for c in run.checks] for run in runs_of(mixed)] == [[(900, 300)], [(900, 400)]]


def test_files_without_lines_are_runs_of_their_checkpoints() -> None:
    records = [record for record in (*check(900, 300), *check(850, 310)) if record["kind"] == "compaction"]
    (run,) = runs_of(records)
    assert ([(c.before, c.after) for c in run.checks], run.complete) == ([(900, 300), (850, 310)], False)


def test_the_bills_count_the_prefix_cache_and_its_break() -> None:
    usage = {"input_tokens": 700, "output_tokens": 50, "input_token_details": {"cache_read": 200}}
    (run,) = runs_of([*check(400), *check(900, 300, usage=usage), *check(500)])
    cost = cost_of(run)
    # With: 400 new; after the checkpoint 100 from the cache and 200 new; then 300 from the cache and 200 new.
    assert (cost.with_.fresh, cost.with_.cached) == (400 + 200 + 200, 100 + 300)
    # Without: 400; 900 of which 400 cached; 500 + 600 taken out before, of which 900 cached.
    assert (cost.without.fresh, cost.without.cached) == (400 + 500 + 200, 400 + 900)
    assert (cost.with_.summary_input, cost.with_.summary_cached, cost.with_.summary_output) == (700, 200, 50)
    assert cost.over_capacity_at == 3
    prices = Prices(input=1.0, cached=0.1, output=10.0)
    assert cost.with_.total(prices) == pytest.approx((800 + 0.1 * 400 + 500 + 0.1 * 200 + 10 * 50) / 1e6)
    assert cost.without.total(prices) == pytest.approx((1100 + 0.1 * 1300) / 1e6)


def test_the_prices_stand_on_the_page() -> None:
    page = Page(render_report([*check(400), *check(900, 300)], prices=Prices(input=3.5, cached=0.125, output=20)))
    assert "at $3.50 per million tokens of input, $0.125 from the prefix cache, $20.00 of output" in page.words


def test_without_the_calls_no_bill_is_made_up() -> None:
    page = Page(render_report([record for record in check(900, 300) if record["kind"] == "compaction"]))
    assert "Only the compactions are recorded here" in page.words
    assert "instead of" not in page.words


def test_the_picture_drops_where_something_was_taken_out() -> None:
    (run,) = runs_of([*check(400), *check(900, 300), *check(500)])
    chart = chart_of(run, {2: "c1"}, width=1000, height=300)
    (drop,) = chart.drops
    assert (drop.href, drop.label, drop.text, drop.kind) == ("#c1", "Call 2: 900 to 300 tokens", "−600", "checkpoint")
    assert drop.top < drop.bottom
    assert [(line.name, line.tokens) for line in chart.lines] == [("capacity", 1000), ("trigger", 800), ("target", 500)]


def test_a_very_long_run_is_drawn_with_few_points() -> None:
    records = [record for i in range(20_000) for record in (check(900, 300) if i % 97 == 0 else check(300 + i % 97))]
    (run,) = runs_of(records)
    assert len(chart_of(run, {}, width=1000, height=300).edge) < 40_000


@pytest.mark.parametrize(("tokens", "said"), [(0, "0"), (940, "940"), (18_200, "18.2k"), (20_000, "20k"), (1_300_000, "1.3M")])
def test_tokens_in_few_letters(tokens: int, said: str) -> None:
    assert short(tokens) == said


def test_what_a_terminal_would_obey_is_shown_or_gone() -> None:
    assert visible("a\x1b[1;31mb\x1b[0m\x1b]0;title\x07c\x00d\r\ne\u202ef\ud83d") == "abc\u2400d\ne[U+202E]f\ufffd"


def test_one_line_is_short_and_says_that_it_was_cut() -> None:
    assert one_line("a\n  b\tc", 10) == "a b c"
    assert one_line("x" * 100, 10) == "x" * 9 + "…"


# --- files -----------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """A folder with two threads."""
    folder = tmp_path / "dumps"
    subject = compactor(summariser("NOTES"), enable_compression_dump=True, compression_dump_dir=str(folder / "{thread_id}"))
    for thread in ("a", "b"):
        subject.compact(history(), thread_id=thread)
        subject.compact(history(1, 2), thread_id=thread)
    return folder


def test_a_folder_is_read_with_all_below_it(dump: Path) -> None:
    records = read_dumps(dump)
    assert [record["thread_id"] for record in records if record["kind"] == "compaction"] == ["a", "b"]
    assert records == sorted(records, key=lambda record: record["at"])
    assert {record["file"] for record in records} == {f"{name}/{file}" for name in "ab" for file in ("decisions.jsonl", "compaction-00001.json")}


def test_one_file_is_read_by_itself(dump: Path) -> None:
    assert [record["kind"] for record in read_dumps(dump / "a" / "compaction-00001.json")] == ["compaction"]
    assert {record["thread_id"] for record in read_dumps(dump / "b" / "decisions.jsonl")} == {"b"}


def test_a_broken_file_and_half_a_line_are_told_and_the_rest_is_read(dump: Path) -> None:
    (dump / "a" / "compaction-00002.json").write_text('{"kind": "compac')
    (dump / "a" / "compaction-00003.json").write_bytes(b"\xff\xfe\x00")
    (dump / "a" / "compaction-00004.json").write_text("[" * 100_000)
    (dump / "b" / "decisions.jsonl").write_text((dump / "b" / "decisions.jsonl").read_text() + '{"kind": "do')
    unreadable = [record["text"] for record in read_dumps(dump) if record["kind"] == "unreadable"]
    assert sorted(text.split(":")[0].split(",")[0] for text in unreadable) == [
        "a/compaction-00002.json", "a/compaction-00003.json", "a/compaction-00004.json", "b/decisions.jsonl",
    ]  # fmt: skip
    assert "a/compaction-00002.json: not JSON" in Page(render_report(read_dumps(dump))).words


def test_the_command_writes_the_page_and_says_so(dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "report.html"
    assert cli.main(["report", str(dump), "-o", str(out), "--price-in", "5", "--title", "My run"]) == 0
    assert capsys.readouterr().out.startswith(f"{out}: 2 checkpoints, ")
    assert "$5.00 per million" in Page(out.read_text("utf-8")).words
    assert [path.name for path in tmp_path.iterdir()] == ["dumps", "report.html"] or {path.name for path in tmp_path.iterdir()} == {
        "dumps",
        "report.html",
    }


def test_the_command_writes_to_standard_output(dump: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert cli.main(["report", str(dump), "-o", "-"]) == 0
    assert capfdbinary.readouterr().out.startswith(b"<!doctype html>")


def _no_such(folder: Path) -> Path:
    return folder / "missing"


def _empty(folder: Path) -> Path:
    return folder


def _text(folder: Path) -> Path:
    (folder / "a.json").write_text("not a dump")
    return folder / "a.json"


def _binary(folder: Path) -> Path:
    (folder / "a.json").write_bytes(bytes(range(256)))
    return folder / "a.json"


def _other_json(folder: Path) -> Path:
    (folder / "a.json").write_text('{"messages": []}')
    return folder / "a.json"


def _empty_file(folder: Path) -> Path:
    (folder / "a.jsonl").write_text("")
    return folder / "a.jsonl"


@pytest.mark.parametrize("make", [_no_such, _empty, _text, _binary, _other_json, _empty_file])
def test_what_is_no_dump_is_one_clear_line_and_status_2(make: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make(tmp_path)
    with pytest.raises(DumpError):
        read_dumps(path)
    assert cli.main(["report", str(path), "-o", str(tmp_path / "out.html")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert str(path) in said.err
    assert not (tmp_path / "out.html").exists()


@pytest.mark.parametrize("out", ["", "missing/folder/report.html"])
def test_a_place_that_cannot_be_written_is_one_clear_line_and_status_2(
    out: str, dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["report", str(dump), "-o", str(tmp_path / out)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("price", ["x", "-1", "nan", "inf", ""])
def test_a_price_that_is_none_is_refused(price: str, dump: Path) -> None:
    with pytest.raises(SystemExit) as refused:
        cli.main(["report", str(dump), "--price-in", price])
    assert refused.value.code == 2


def test_a_hundred_compactions_of_twenty_megabytes_are_rendered_quickly() -> None:
    (record,) = [record for record in recorded(history(1, 2)) if record["kind"] == "compaction"]

    def message(number: int) -> dict[str, Any]:
        return {**ToolMessage(f"{number} " + "line of output\n" * 280, tool_call_id=f"c{number}").model_dump(), "tokens": 1000}

    records = []
    for i in range(100):
        spans = {"prefix": record["spans"]["prefix"], "replaced": [message(i * 48 + j) for j in range(48)], "kept": [message(i * 48 + 48)]}
        records.append({**record, "spans": spans})
    assert len(json.dumps(records)) > 20_000_000
    began = time.process_time()
    source = render_report(records)
    assert time.process_time() - began < 15
    assert len(source) < 30_000_000


def test_a_failed_check_says_what_the_summariser_answered() -> None:
    page = Page(render_report(recorded(history(1, 2), model=ScriptedChatModel(replies=[PermissionError("door closed")], strict=True), max_retries=0)))
    assert "failed the summariser failed in an unknown way: PermissionError: door closed 1 The log has the error." in page.words
