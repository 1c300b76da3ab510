"""What the agent of the demo can do: look at a code tree, check a file in a separate process, keep a list of work.

The tools read below one folder only, and write nothing but a copy of the file to check, in a folder made for that.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, ToolException, tool
from langgraph.types import Command
from pydantic import BaseModel

MAX_HITS = 12
"""Lines that `search` shows."""

MAX_FILES = 40
"""Files that `list_files` shows."""

CHECK_SECONDS = 20.0
"""Time limit of one check, in seconds."""

_CHECK = """
import ast, sys
source = open(sys.argv[1], encoding="utf-8").read()
compile(source, sys.argv[1], "exec", dont_inherit=True)
nodes = list(ast.walk(ast.parse(source)))
classes = sum(isinstance(node, ast.ClassDef) for node in nodes)
functions = sum(isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) for node in nodes)
print(f"compiles: {classes} classes, {functions} functions")
"""
"""Run in a process of its own; the file is compiled and counted, never executed."""


class Todo(BaseModel):
    """One piece of work."""

    content: str
    status: Literal["pending", "in_progress", "completed"]


def make_tools(root: Path, scratch: Path) -> list[BaseTool]:
    """The demo's tools.

    Args:
        root: The code tree they work on; nothing outside it is read.
        scratch: A folder of one's own for checks.
    """
    makers: tuple[Callable[[], BaseTool], ...] = (
        lambda: _list_files(root),
        lambda: _read_file(root),
        lambda: _search(root),
        lambda: _run_check(root, scratch),
    )
    tools = [make() for make in makers]
    for made in tools:
        made.handle_tool_error = True
    return [*tools, write_todos]


@tool
def write_todos(todos: list[Todo], tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[str]:
    """Replace the list of work. Write what you found out into the item when you complete it."""
    done = sum(todo.status == "completed" for todo in todos)
    message = ToolMessage(f"list updated, {done} of {len(todos)} done", tool_call_id=tool_call_id, name="write_todos")
    return Command(update={"todos": [todo.model_dump() for todo in todos], "messages": [message]})


def python_files(root: Path) -> list[tuple[str, int]]:
    """Python files below `root` with their size in bytes, the largest first."""
    found = [(path.relative_to(root).as_posix(), path.stat().st_size) for path in root.rglob("*.py") if path.is_file()]
    return sorted(found, key=lambda item: (-item[1], item[0]))


def count_definitions(source: Path, scratch: Path) -> str:
    """What `run_check` answers for a file."""
    copy = shutil.copyfile(source, scratch / "checked.py")
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter and program, the file is an argument
            [sys.executable, "-I", "-c", _CHECK, str(copy)],
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=CHECK_SECONDS,
            cwd=scratch,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        msg = f"the check took more than {CHECK_SECONDS:.0f} s and was stopped"
        raise ToolException(msg) from exc
    if done.returncode != 0:
        msg = f"exit status {done.returncode}: {(done.stderr.strip().splitlines() or ['no output'])[-1]}"
        raise ToolException(msg)
    return done.stdout.strip()


def _list_files(root: Path) -> BaseTool:
    @tool
    def list_files(folder: str = "") -> str:
        """List the Python files below a folder with their size in bytes, the largest first."""
        base = _inside(root, folder)
        files = python_files(base)
        lines = [f"{size:>7} {(base / name).relative_to(root).as_posix()}" for name, size in files[:MAX_FILES]]
        return "\n".join([*lines, f"({len(files)} files)"])

    return list_files


def _read_file(root: Path) -> BaseTool:
    @tool
    def read_file(path: str, start: int = 1, lines: int = 100) -> str:
        """Read `lines` lines of a file, from line `start` on."""
        every = _text(root, path).split("\n")
        stop = min(start - 1 + lines, len(every))
        body = "\n".join(f"{number:>5}  {line}" for number, line in enumerate(every[start - 1 : stop], start))
        return f"{body}\n(lines {start}-{stop} of {len(every)})"

    return read_file


def _search(root: Path) -> BaseTool:
    @tool
    def search(text: str, path: str) -> str:
        """Find the lines of a file that contain a text."""
        hits = [f"{path}:{number}: {line.strip()[:120]}" for number, line in enumerate(_text(root, path).split("\n"), 1) if text in line]
        return "\n".join([*hits[:MAX_HITS], f"({len(hits)} lines contain {text!r})"])

    return search


def _run_check(root: Path, scratch: Path) -> BaseTool:
    @tool
    def run_check(path: str) -> str:
        """Compile a file in a separate Python process and count its classes and functions."""
        return f"{path} {count_definitions(_file(root, path), scratch)}"

    return run_check


def _inside(root: Path, name: str) -> Path:
    path = (root / name).resolve()
    if not path.is_relative_to(root.resolve()):
        msg = f"{name} is outside the code tree"
        raise ToolException(msg)
    return path


def _file(root: Path, name: str) -> Path:
    path = _inside(root, name)
    if not path.is_file():
        msg = f"no such file: {name}"
        raise ToolException(msg)
    return path


def _text(root: Path, name: str) -> str:
    return _file(root, name).read_text(encoding="utf-8", errors="replace")
