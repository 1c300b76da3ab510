"""The commands: what they print, how they end, and that the demo proves what it claims."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import ToolException
from rich.console import Console

from langgraph_roundcompact import RoundCompactConfig, RoundCompactor
from langgraph_roundcompact._terminal import ASCII, UNICODE, Bar, cell, picture
from langgraph_roundcompact.cli import main
from langgraph_roundcompact.demo import tools as demo_tools
from langgraph_roundcompact.demo.agent import Demo, langgraph_sources
from langgraph_roundcompact.demo.checks import check
from langgraph_roundcompact.demo.script import LOST, Task, next_answer, report_of, visible_todos
from langgraph_roundcompact.demo.tools import count_definitions, make_tools
from langgraph_roundcompact.demo.view import conclude
from langgraph_roundcompact.replay import _checks

TALK = [{"role": "user", "content": "Fix it."}] + [
    record
    for i in range(30)
    for record in (
        {"role": "assistant", "content": "", "tool_calls": [{"id": f"c{i}", "function": {"name": "read", "arguments": f'{{"path": "f{i}.py"}}'}}]},
        {"role": "tool", "tool_call_id": f"c{i}", "content": f"file {i} " + "x y " * 300},
    )
]


@pytest.fixture
def talk(tmp_path):
    path = tmp_path / "talk.json"
    path.write_text(json.dumps(TALK))
    return str(path)


# --- demo -----------------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def demo_run():
    """The demo as a program sees it, run once."""
    out, sys.stdout = sys.stdout, io.StringIO()
    try:
        status = main(["demo", "--json"])
        return status, json.loads(sys.stdout.getvalue())
    finally:
        sys.stdout = out


def test_the_demo_proves_what_it_claims(demo_run):
    status, facts = demo_run
    assert (status, facts["passed"]) == (0, True)
    assert [claim["passed"] for claim in facts["checks"]] == [True] * 7
    assert facts["compactions"] >= 4
    assert facts["input_tokens_with"] < facts["input_tokens_without"] / 2


def test_the_demo_never_forgets_what_would_have_been_sent_without_compaction(demo_run):
    """A folded message counts as it was first sent."""
    without = [step["tokens_without"] for step in demo_run[1]["steps"]]
    assert without == sorted(without)


def test_the_demo_uses_all_its_tools_and_meets_an_error(demo_run):
    calls = [call for step in demo_run[1]["steps"] for call in step["calls"]]
    assert {call["name"] for call in calls} == {"list_files", "read_file", "search", "run_check", "write_todos"}
    assert calls[2]["args"]["path"] == "main.py" != calls[4]["args"]["path"]


def demo_at(folder: Path, **config) -> Demo:
    demo = Demo(window=8000, folder=folder, root=langgraph_sources())
    demo.compactor = RoundCompactor(config=RoundCompactConfig(**{"context_window_tokens": 8000, **config}), on_event=demo.events.append)
    return demo


def test_the_demo_fails_when_the_list_of_work_is_lost(tmp_path):
    demo = demo_at(tmp_path, reinject=())
    list(demo.run())
    claims = {claim.text: claim.passed for claim in check(demo)}
    assert demo.steps[-1].answer.text == LOST
    assert claims["the list of work is visible after 0 of 1 checkpoints"] is False
    assert [passed for text, passed in claims.items() if "report is wrong" in text] == [False]


def test_the_demo_fails_without_compaction(tmp_path):
    demo = demo_at(tmp_path, context_window_tokens=10**6)
    list(demo.run())
    claims = [claim.passed for claim in check(demo)]
    assert claims == [True, True, True, False, False, True, True]


def test_the_end_of_the_demo_is_readable_as_plain_text(tmp_path):
    demo = demo_at(tmp_path, reinject=())
    list(demo.run())
    out = io.StringIO()
    conclude(demo, check(demo), Console(file=out, width=100, color_system=None))
    text = out.getvalue()
    assert "\x1b" not in text
    assert "The window over time, in tokens" in text
    assert "✗ checkpoints made in one round: 1 (at least 4)" in text


@pytest.mark.parametrize("window", ["5", "1000000", "lots", "-8000"])
def test_a_window_the_demo_is_not_made_for_is_refused(window, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--window", window])
    assert ended.value.code == 2
    assert "--window" in capsys.readouterr().err


# --- the demo's model -----------------------------------------------------------------------------------------------------------------

TASK = Task(modules=2, lines=10)
QUESTION = HumanMessage(TASK.request)
RECOVERED = HumanMessage(
    "<recovered_context>\n"
    '<section name="todo">\n- [in_progress] b.py\n- [pending] c.py\nCompleted: a.py: 1 classes, 2 functions\nCounts: 3\n</section>\n'
    "</recovered_context>"
)


def test_the_script_starts_with_the_files():
    assert [call["name"] for call in next_answer([QUESTION], TASK).tool_calls] == ["list_files"]


def test_the_script_takes_the_next_module_from_the_recovered_context():
    assert visible_todos([QUESTION, RECOVERED]) == [
        {"content": "a.py: 1 classes, 2 functions", "status": "completed"},
        {"content": "b.py", "status": "in_progress"},
        {"content": "c.py", "status": "pending"},
    ]
    answer = next_answer([QUESTION, RECOVERED, *called("write_todos_", {}, "ok")], TASK)
    assert {call["args"]["path"] for call in answer.tool_calls} == {"b.py"}


def test_the_newest_list_counts():
    todos = [{"content": "z.py", "status": "in_progress"}]
    assert visible_todos([RECOVERED, *called("write_todos", {"todos": todos}, "ok")]) == todos


def test_the_script_is_lost_without_a_list():
    assert next_answer([QUESTION, *called("run_check", {"path": "a.py"}, "a.py compiles")], TASK).text == LOST


def test_the_report_adds_up():
    report = report_of([("b.py", "b.py compiles: 2 classes, 3 functions"), ("a.py", "a.py compiles: 1 classes, 0 functions")])
    assert report == "a.py: 1 classes, 0 functions\nb.py: 2 classes, 3 functions\nTotal: 2 modules, 3 classes, 3 functions"


def called(name: str, args: dict, result: str) -> list:
    return [AIMessage("", tool_calls=[{"id": "c", "name": name, "args": args}]), ToolMessage(result, tool_call_id="c", name=name)]


# --- the demo's tools -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def tools(tmp_path):
    root = tmp_path / "tree"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "a.py").write_text("class A:\n    def f(self):\n        raise ValueError\n")
    (root / "b.py").write_text("x = (\n")
    (tmp_path / "secret.py").write_text("secret")
    (tmp_path / "scratch").mkdir()
    return {tool.name: tool for tool in make_tools(root, tmp_path / "scratch")}


def test_tools_answer_from_the_tree(tools):
    assert tools["list_files"].invoke({}) == "     51 sub/a.py\n      6 b.py\n(2 files)"
    assert tools["read_file"].invoke({"path": "sub/a.py", "start": 2, "lines": 1}) == "    2      def f(self):\n(lines 2-2 of 4)"
    assert tools["search"].invoke({"text": "raise", "path": "sub/a.py"}) == "sub/a.py:3: raise ValueError\n(1 lines contain 'raise')"
    assert tools["run_check"].invoke({"path": "sub/a.py"}) == "sub/a.py compiles: 1 classes, 1 functions"


@pytest.mark.parametrize("path", ["../secret.py", "/etc/passwd", "sub/../../secret.py", "none.py", "sub"])
def test_tools_stay_inside_the_tree(tools, path):
    for name, more in (("read_file", {}), ("search", {"text": "s"}), ("run_check", {})):
        assert tools[name].invoke({"path": path, **more}) in (f"{path} is outside the code tree", f"no such file: {path}")


def test_a_file_that_does_not_compile_is_told(tools):
    assert tools["run_check"].invoke({"path": "b.py"}).startswith("exit status 1: SyntaxError")


def test_a_check_never_executes_the_file(tmp_path):
    (tmp_path / "bad.py").write_text("open('ran', 'w')\nraise SystemExit(3)\n")
    assert count_definitions(tmp_path / "bad.py", tmp_path) == "compiles: 0 classes, 0 functions"
    assert not (tmp_path / "ran").exists()


def test_a_check_that_takes_too_long_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(demo_tools, "_CHECK", "import time; time.sleep(60)")
    monkeypatch.setattr(demo_tools, "CHECK_SECONDS", 0.3)
    (tmp_path / "slow.py").write_text("")
    with pytest.raises(ToolException, match="was stopped"):
        count_definitions(tmp_path / "slow.py", tmp_path)


# --- replay ---------------------------------------------------------------------------------------------------------------------------


def test_replay_tells_what_was_compacted_and_that_all_held(talk, capsys):
    assert main(["replay", talk, "--window", "5000"]) == 0
    out, _ = capsys.readouterr()
    assert "before message" in out
    assert "digested" in out
    assert out.rstrip().endswith("✓ 0 invariant failures in 31 checks of 1 conversation")


def test_replay_as_json_tells_the_same_facts(talk, capsys):
    assert main(["replay", talk, talk, "--window", "5000", "--keep", "2", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["window"], facts["keep"], facts["summariser"], facts["not_read"]) == (5000, 2, "digest", [])
    assert facts["totals"]["conversations"] == 2
    assert facts["totals"]["invariant_failures"] == 0
    assert facts["totals"]["compactions"] == 2 * facts["conversations"][0]["compactions"] > 0
    assert facts["conversations"][0]["invariant_failures"] == []


def test_replay_with_a_summariser_that_says_nothing(talk, capsys):
    assert main(["replay", talk, "--window", "5000", "--summariser", "null", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert {event["outcome"] for event in facts["conversations"][0]["events"]} == {"summarised", "tiers_sufficed"}
    assert facts["totals"]["summary_tokens"] > 0


def test_no_conversation_is_one_line_and_exit_2(tmp_path, capsys):
    path = tmp_path / "notes.txt"
    path.write_text("milk\neggs\n")
    assert main(["replay", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"roundcompact replay: {path}: not JSON (line 1: Expecting value); it begins with 'milk\\x0aeggs\\x0a'\n"


def test_the_other_files_are_played_all_the_same(talk, tmp_path, capsys):
    assert main(["replay", str(tmp_path / "none.json"), talk, "--window", "5000"]) == 2
    out, err = capsys.readouterr()
    assert "0 invariant failures in 31 checks of 1 conversation" in out
    assert "none.json: cannot be read (No such file or directory)" in err


def test_an_invariant_that_fails_is_exit_1(talk, capsys, monkeypatch):
    monkeypatch.setattr(_checks, "_block_failures", lambda after: ["made up"])
    assert main(["replay", talk, "--window", "5000"]) == 1
    out, _ = capsys.readouterr()
    assert "made up" in out
    assert "✗ " in out
    assert "0 invariant failures" not in out


def test_names_from_files_cannot_speak_to_the_terminal(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # wide enough for the whole name, wherever the tests run
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"id": "\x1b[31m[bold]evil\n[/]", "messages": TALK[:3]}))
    assert main(["replay", str(path), "--plain"]) == 0
    out, _ = capsys.readouterr()
    assert "\x1b" not in out
    assert "\\x1b[31m[bold]evil\\x0a[/]" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--window", "0"], "not a whole number from 1 on"),
        (["--keep", "-1"], "not a whole number from 0 on"),
        (["--summariser", "magic"], "invalid choice"),
    ],
)
def test_wrong_arguments_are_told(talk, arguments, words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["replay", talk, *arguments])
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--summariser", "model"], "needs --model"),
        (["--base-url", "http://localhost:1"], "give --model too"),
        (["--model", "openai:gpt-5-mini"], "OPENAI_API_KEY"),
        (["--model", "openai:gpt-5-mini", "--summariser", "null"], "leave one of them out"),
        (["--model", "openai:gpt-5-mini"], "--base-url URL"),
        (["--model", "nobody:nothing"], "--model nobody:nothing"),
        (["--model", "nobody:nothing"], "give PROVIDER:NAME"),
    ],
)
def test_a_model_that_cannot_be_had_is_one_line(talk, arguments, words, capsys, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert main(["replay", talk, *arguments]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", [["demo"], ["replay", "x.json"]])
@pytest.mark.parametrize("missing", ["rich", "rich.text"])
def test_a_missing_extra_says_how_to_get_it(command, missing, capsys, monkeypatch):
    for name in [
        name for name in sys.modules if name.startswith(("rich", "langgraph_roundcompact._terminal", "langgraph_roundcompact._replay_view"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    assert main(command) == 2
    assert capsys.readouterr().err.endswith("pip install 'langgraph-roundcompact[cli]'\n")


def test_no_command_shows_the_usage(capsys):
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
    assert "demo" in capsys.readouterr().err


# --- drawing --------------------------------------------------------------------------------------------------------------------------


def test_the_picture_shows_the_window_and_what_was_taken_away():
    bars = [Bar(2), Bar(4), Bar(8), Bar(2, before=8)]
    drawn = picture(bars, capacity=8, trigger=4, width=12, height=4, glyphs=ASCII).plain.split("\n")
    assert drawn[:4] == ["      8   #:", "      4 --#:", "         ##:", "      0 ####"]


def test_the_picture_fits_its_width():
    drawn = picture([Bar(i % 70, 99 if i % 70 == 0 else None) for i in range(1000)], capacity=100, trigger=80, width=60, height=6, glyphs=UNICODE)
    rows = drawn.plain.split("\n")[:6]
    assert max(map(len, rows)) <= 60
    assert any("░" in row for row in rows)


def test_an_empty_picture_is_no_error():
    assert "request 1" in picture([], capacity=10, trigger=8, width=40, height=3, glyphs=UNICODE).plain


def test_cells_have_their_width():
    assert [cell("abc", 5), cell("abc", 5, right=True), cell("abcdef", 4)] == ["abc  ", "  abc", "abc…"]
