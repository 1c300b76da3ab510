"""The command `replay`: where conversations come from, what is shown of them, and that it ends cleanly whatever happens around it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import HumanMessage
from test_cli import TALK

from langgraph_roundcompact import _encoding, _meter
from langgraph_roundcompact.cli import main

ROOT = Path(__file__).parents[2]


@pytest.fixture
def talk(tmp_path):
    path = tmp_path / "talk.json"
    path.write_text(json.dumps(TALK))
    return str(path)


def facts_of(capsys: Any, *arguments: str) -> dict[str, Any]:
    main(["replay", *arguments, "--json"])
    return json.loads(capsys.readouterr().out)


def started(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    """The command in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **options.pop("env", {})}
    return subprocess.Popen(
        [sys.executable, "-m", "langgraph_roundcompact", "replay", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        **options,
    )


# --- sources --------------------------------------------------------------------------------------------------------------------------


def test_standard_input_as_a_module(talk):
    process = started("-", "--window", "5000", stdin=subprocess.PIPE)
    out, err = process.communicate(Path(talk).read_bytes(), timeout=120)
    assert process.returncode == 0, err
    assert "✓ 0 invariant failures in 31 checks of 1 conversation" in out.decode()
    assert "stdin" in out.decode()
    assert "\x1b" not in out.decode()


class State(TypedDict):
    chat: Annotated[list, lambda left, right: [*left, *right]]


def database(path: Path, *threads: str) -> str:
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import START, StateGraph

    from langgraph_roundcompact.loaders import load_conversation

    source = path.with_suffix(".json")
    source.write_text(json.dumps(TALK))
    messages = list(load_conversation(source).messages)
    builder = StateGraph(State)
    builder.add_node("agent", lambda state: {"chat": messages[1:]})
    builder.add_edge(START, "agent")
    with SqliteSaver.from_conn_string(str(path)) as saver:
        graph = builder.compile(checkpointer=saver)
        for thread in threads:
            graph.invoke({"chat": [HumanMessage("Fix it.", id="m0")]}, {"configurable": {"thread_id": thread}})
    return str(path)


def test_threads_of_a_database(tmp_path, capsys):
    path = database(tmp_path / "graph.db", "one", "two")
    assert main(["replay", "--sqlite", path, "--messages-key", "chat"]) == 2
    assert "2 threads, name one with --thread: two (" in capsys.readouterr().err
    facts = facts_of(capsys, "--sqlite", path, "--thread", "one", "--thread", "two", "--messages-key", "chat", "--window", "5000")
    assert [one["name"] for one in facts["conversations"]] == ["one", "two"]
    assert facts["totals"]["compactions"] > 0
    assert facts["totals"]["invariant_failures"] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "nothing to replay: give a FILE, - for standard input, --sqlite FILE or --postgres URL"),
        (["TALK", "--thread", "x"], "give --sqlite FILE or --postgres URL too"),
        (["-", "-"], "give - once"),
        (["TALK", "--format", "docx"], "--format docx is not known: choose from responses, anthropic"),
        (["TALK", "--set", "trigger_context_ratio"], "give FIELD=VALUE"),
        (["TALK", "--set", "trigger_context_ratio=7"], "trigger_context_ratio"),
        (["TALK", "--set", "no_such_field=7"], "no_such_field"),
        (["TALK", "--probes", "none.json"], "none.json: cannot be read"),
        (["TALK", "--html", "no/such/folder/x.html"], "no such folder"),
    ],
)
def test_what_cannot_be_played_is_one_line_and_exit_2(talk, arguments, words, capsys):
    assert main(["replay", *[talk if one == "TALK" else one for one in arguments]]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err


@pytest.mark.parametrize(("option", "value"), [("--compare", "magic"), ("--compare", ""), ("--cached-price", "2"), ("--cached-price", "cheap")])
def test_wrong_values_show_the_usage(talk, option, value, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["replay", talk, option, value])
    assert ended.value.code == 2
    assert option in capsys.readouterr().err


def test_fields_of_the_configuration_can_be_tried(talk, capsys):
    early = facts_of(capsys, talk, "--window", "5000", "--set", "trigger_context_ratio=0.4", "--set", "checkpoint_role=tool")
    late = facts_of(capsys, talk, "--window", "5000")
    assert (early["trigger"], late["trigger"]) == (2000, 4000)
    assert early["conversations"][0]["largest_window_with"] < late["conversations"][0]["largest_window_with"]


# --- what is shown --------------------------------------------------------------------------------------------------------------------


def test_the_window_stands_above_the_table(talk, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    main(["replay", talk, "--window", "5000", "--keep", "4"])
    first = capsys.readouterr().out.split("\n")[0]
    assert first == "window 5,000 tokens · trigger 4,000 · target 2,500 · kept at the end: 4 messages · checkpoints by rules"


def test_a_comparison_is_shown_side_by_side(talk, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["replay", talk, "--window", "5000", "--compare", "none,tail,langchain"]) == 0
    out = capsys.readouterr().out
    lines = [line.split() for line in out.split("\n")]
    assert ["talk", "roundcompact", "none", "tail", "langchain"] in lines
    (bill,) = [line for line in lines if line[:1] == ["bill"]]
    assert len(bill) == 5
    assert any(line[:3] == ["request", "kept", "yes"] for line in lines)
    assert "what came from the cache at 0.1 of it" in out


def test_a_comparison_for_programs(talk, tmp_path, capsys):
    probes = tmp_path / "p.json"
    probes.write_text(json.dumps({"id": "talk", "mark_index": 31, "probes": [{"strings": ["f3.py"]}, {"strings": ["nowhere"]}]}))
    facts = facts_of(capsys, talk, talk, "--window", "5000", "--compare", "tail,none", "--probes", str(probes), "--cached-price", "0.5")
    names = ["roundcompact", "tail", "none"]
    assert [one["strategy"] for one in facts["compared"]] == [one["strategy"] for one in facts["conversations"][0]["compared"]] == names
    ours, tail, none = facts["compared"]
    assert ours["tokens_sent"] == facts["totals"]["input_tokens_with"]
    assert none["tokens_sent"] == facts["totals"]["input_tokens_without"]
    assert ours["bill"] == 2 * round(ours["tokens_uncached"] / 2 + 0.5 * ours["tokens_cached"] / 2)
    assert (none["probes"], none["probes_kept"], none["retention"]) == (4, 2, 1.0)
    assert (ours["request_kept"], tail["request_kept"]) == (True, False)
    assert facts["cached_price"] == 0.5


def test_the_page_is_written_and_holds_each_conversation(talk, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main(["replay", talk, "--window", "5000", "--html", str(page)]) == 0
    assert f"report: {page}" in capsys.readouterr().err
    text = page.read_text()
    assert text.lstrip().lower().startswith("<!doctype html>")
    assert "talk" in text


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 140])
def test_lines_fit_the_terminal(talk, width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["replay", talk, "--window", "5000", "--compare", "none,tail"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.split("\n"))) <= width
    assert "bill" in out


@pytest.mark.parametrize("variable", ["NO_COLOR", "TERM"])
def test_colours_are_left_out_where_they_are_not_wanted(talk, variable, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv(variable, "dumb")
    main(["replay", talk, "--window", "5000"])
    assert "\x1b[3" not in capsys.readouterr().out


@pytest.fixture
def estimating(monkeypatch, tmp_path):
    """A machine without tiktoken's encoding, in a process that has not said so yet."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "nothing"))
    counter = _encoding.TextCounter()
    monkeypatch.setattr(_meter, "_TEXT_COUNTER", counter)
    monkeypatch.setattr(_meter.Meter.__init__, "__kwdefaults__", {"texts": counter})


def test_an_estimate_is_told_once_shortly_and_only_where_it_matters(talk, estimating, capsys):
    main(["replay", talk, "--window", "900000"])
    assert capsys.readouterr().err == ""
    assert facts_of(capsys, talk)["counting"] == "estimate"


def test_an_estimate_that_decides_is_told(talk, estimating, capsys):
    main(["replay", talk, "--window", "5000"])
    assert capsys.readouterr().err == "note: tokens are estimated, within about 25 %: tiktoken's encoding is not on this machine\n"


# --- the end --------------------------------------------------------------------------------------------------------------------------


def long_talk(path: Path, steps: int) -> str:
    records: list[dict[str, Any]] = [{"role": "user", "content": "Fix it."}]
    for i in range(steps):
        call = {"id": f"c{i}", "function": {"name": "read", "arguments": json.dumps({"path": f"f{i}.py"})}}
        records.append({"role": "assistant", "content": "", "tool_calls": [call]})
        records.append({"role": "tool", "tool_call_id": f"c{i}", "content": f"file {i} " + "x y " * 800})
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def test_an_interrupt_ends_the_run_in_one_line(tmp_path):
    process = started(long_talk(tmp_path / "long.jsonl", 4000), "--window", "8000")
    assert process.stdout is not None
    assert process.stdout.read(6) == b"window"  # it plays
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.decode().strip()) == (130, "stopped")


@pytest.mark.parametrize("more", [(), ("--json",), ("--steps", "--compare", "none")])
def test_a_reader_that_leaves_is_no_failure(tmp_path, talk, more):
    process = started(talk, "--window", "5000", *more)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(timeout=120) == 0
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read().decode()


def test_the_usage_needs_nothing_heavy():
    code = "import sys, atexit\nfrom langgraph_roundcompact.cli import main\n"
    code += "atexit.register(lambda: print('loaded:', [name for name in ('langgraph', 'openai', 'rich') if name in sys.modules]))\n"
    code += "main(['replay', '--help'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--compare" in done.stdout
    assert done.stdout.endswith("loaded: []\n")
