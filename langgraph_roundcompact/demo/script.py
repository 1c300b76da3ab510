"""The demo's model: a function from the messages of a request to the next answer.

It has no memory of its own. What to do next it takes from the list of work it sees: in its own last `write_todos` call, or in the recovered
context behind a checkpoint. What a module was found to contain it writes into that list, and the report at the end is made from it. So the
answer comes out right only if nothing that matters is lost on the way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

SYSTEM = "You review code with the tools you have. Keep the list of work up to date with write_todos; a finding goes into the item it belongs to."

LOST = "I no longer know what to do: I see no list of work."
"""What the model answers when its plan is gone."""

_SECTION = re.compile(r'<section name="todo">\n(.*?)\n</section>', re.DOTALL)
_ITEM = re.compile(r"- \[(\w+)\] (.+)")
_LISTED = re.compile(r"^ *\d+ (\S+\.py)$", re.MULTILINE)
_COUNTED = re.compile(r"(\d+) classes, (\d+) functions")
_PIECE = re.compile(r"\(lines \d+-(\d+) of (\d+)\)$")


@dataclass(frozen=True, slots=True)
class Task:
    """How much work there is."""

    modules: int = 12
    """Modules to go through, the largest of the tree."""
    lines: int = 100
    """Lines read at a time."""
    pieces: int = 2
    """Pieces read of a module."""

    @property
    def request(self) -> str:
        """What the user asks for."""
        return (
            f"Go through the {self.modules} largest modules of this code tree: read how each one begins, look for what it raises, have it checked. "
            "Do not change any file. At the end, report for each module its classes and functions, and the totals."
        )


Todos = list[dict[str, str]]


def visible_todos(messages: Sequence[BaseMessage]) -> Todos | None:
    """The newest list of work in a request; None when there is none to be seen."""
    for message in reversed(messages):
        calls = [call for call in message.tool_calls if call["name"] == "write_todos"] if isinstance(message, AIMessage) else []
        if calls:
            return list(calls[-1]["args"]["todos"])
        section = _SECTION.search(message.content) if isinstance(message.content, str) else None
        if section is not None:
            return _from_section(section[1])
    return None


def next_answer(messages: Sequence[BaseMessage], task: Task) -> AIMessage:
    """What the model answers to a request."""
    last = next((message for message in reversed(messages) if isinstance(message, AIMessage)), None)
    if last is None and messages[-1].text == task.request:
        return _call("I start with what there is.", ("list_files", {}))
    results = {message.tool_call_id: message for message in messages if isinstance(message, ToolMessage)}
    seen = [(call["name"], call["args"], results.get(call["id"] or "")) for call in last.tool_calls] if last is not None else []
    todos = visible_todos(messages)
    if todos is None:
        return _plan(seen, task)
    current = next((todo for todo in todos if todo["status"] != "completed"), None)
    if current is None:
        return AIMessage(_report(todos))
    return _work_on(current["content"], seen, todos, task)


def _plan(seen: Sequence[tuple[str, dict[str, Any], ToolMessage | None]], task: Task) -> AIMessage:
    """The list of work, from the list of files."""
    listing = next((result.text for name, _, result in seen if name == "list_files" and result is not None), "")
    paths = _LISTED.findall(listing)[: task.modules]
    if not paths:
        return AIMessage(LOST)
    todos = [{"content": path, "status": "in_progress" if i == 0 else "pending"} for i, path in enumerate(paths)]
    return _call(f"{len(paths)} modules to go through.", ("write_todos", {"todos": todos}))


def _work_on(path: str, seen: Sequence[tuple[str, dict[str, Any], ToolMessage | None]], todos: Todos, task: Task) -> AIMessage:
    """The next step for one module, from the results in sight."""
    counted = next((result.text for name, args, result in seen if name == "run_check" and args["path"] == path and result is not None), None)
    if counted is not None:
        return _call("", ("write_todos", {"todos": _completed(todos, path, counted)}))
    read = next(((args, result) for name, args, result in seen if name == "read_file" and result is not None), None)
    if read is None:
        # The first try goes wrong, as first tries do: a failed call belongs into every honest history.
        name = path.rpartition("/")[2] if all(todo["status"] != "completed" for todo in todos) else path
        return _call(f"Now {path}.", ("read_file", {"path": name, "start": 1, "lines": task.lines}), ("search", {"text": "raise ", "path": name}))
    args, result = read
    if args["path"] != path:
        return _call(
            "It needs the whole path.", ("read_file", {"path": path, "start": 1, "lines": task.lines}), ("search", {"text": "raise ", "path": path})
        )
    piece = _PIECE.search(result.text)
    stop, total = (int(piece[1]), int(piece[2])) if piece else (0, 0)
    if piece and stop < total and stop < task.lines * task.pieces:
        return _call("", ("read_file", {"path": path, "start": stop + 1, "lines": task.lines}))
    return _call("", ("run_check", {"path": path}))


def _completed(todos: Todos, path: str, counted: str) -> Todos:
    found = _COUNTED.search(counted)
    finding = f"{path}: {found[0]}" if found else f"{path}: {counted[-80:]}"
    done = [{"content": finding, "status": "completed"} if todo["content"] == path else dict(todo) for todo in todos]
    following = next((todo for todo in done if todo["status"] != "completed"), None)
    if following is not None:
        following["status"] = "in_progress"
    return done


def _report(todos: Todos) -> str:
    counts = [(int(found[1]), int(found[2])) for todo in todos if (found := _COUNTED.search(todo["content"]))]
    lines = sorted(todo["content"] for todo in todos)
    total = f"Total: {len(todos)} modules, {sum(c for c, _ in counts)} classes, {sum(f for _, f in counts)} functions"
    return "\n".join([*lines, total])


def report_of(findings: Sequence[tuple[str, str]]) -> str:
    """The report that is right for these modules: `(path, "… 3 classes, 5 functions")` each."""
    todos: Todos = [{"content": path, "status": "pending"} for path, _ in findings]
    for path, counted in findings:
        todos = _completed(todos, path, counted)
    return _report(todos)


def _from_section(text: str) -> Todos:
    """The list as the recovered context writes it: open items on lines of their own, completed ones on one line."""
    open_items = [{"content": content, "status": status} for status, content in _ITEM.findall(text)]
    done = next((line.removeprefix("Completed: ") for line in text.split("\n") if line.startswith("Completed: ")), "")
    return [{"content": content, "status": "completed"} for content in done.split("; ") if content] + open_items


def _call(text: str, *calls: tuple[str, dict[str, Any]]) -> AIMessage:
    return AIMessage(text, tool_calls=[{"name": name, "args": args, "id": f"{name}-{_slug(args)}", "type": "tool_call"} for name, args in calls])


def _slug(args: dict[str, Any]) -> str:
    """Ids made from the arguments: no clock and no chance, so that each run gives the same history."""
    todos = args.get("todos", ())
    done = sum(todo["status"] == "completed" for todo in todos)
    return re.sub(r"\W+", "_", f"{args.get('path', '')}_{args.get('start', '')}_{done if todos else ''}").strip("_") or "0"
