"""What a tool call does, read from the shape of its arguments; and what its result says about how it ended."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from langgraph_roundcompact._groups import Call

_PATH_KEY = re.compile(r"^(?:abs(?:olute)?_?|target_?|relative_?|notebook_?|source_?)?(?:file_?)?(?:path|name|file)$", re.IGNORECASE)
_COMMAND_KEYS = ("command", "cmd", "script", "shell", "code", "input")
_NEW_TEXT_KEY = re.compile(r"new|content|replace|patch|diff|edit|insert|file_text|^text$|^source$", re.IGNORECASE)
_CHANGING_NAME = re.compile(r"write|edit|creat|replace|insert|patch|append|save|update", re.IGNORECASE)
_DELETING_NAME = re.compile(r"delet|remove|unlink", re.IGNORECASE)
_DONE = re.compile(r"complete|done|finish|closed|cancel", re.IGNORECASE)
_ASKING_NAME = re.compile(r"ask|question|confirm|approv|clarif|human|user_input|exit_?plan|feedback", re.IGNORECASE)
_ANSWERED = re.compile(
    r"[^\n]{0,60}\b(?:user|human)\b[^\n]{0,30}\b(?:answered|approved|rejected|declined|denied|chose|selected|confirmed|doesn't want|does not want|said|responded|replied)\b",
    re.IGNORECASE,
)
_EXIT = re.compile(r"(?:exit(?:ed)?(?: with)?(?: code| status)?|return ?code)\W{1,4}(-?\d{1,3})\b", re.IGNORECASE)
_HERE_DOCUMENT = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?")
_CD = re.compile(r"^cd [^\s;&|]{1,200} *&& *")
_TAIL = re.compile(r"(?: *2>&1)?(?: *\| *(?:head|tail)(?: -n?)? *-?\d*)? *$")
_CHANGING_COMMAND = re.compile(
    r"\b(?:install|rm|mv|cp|mkdir|commit|checkout|reset|push|merge|rebase|revert|stash|apply|patch|add|sed -i|touch|chmod|kill|start|stop|restart|deploy|build|make|test|check|lint|fmt|run|pytest)\b"
)
_CONTINUE_FROM = 240
"""Characters of a command that are kept."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a call was made for."""

    text: str
    """All of its arguments as text."""
    path: str = ""
    """The file it works on."""
    operation: str = ""
    """`r` read, `w` written, `e` edited, `d` deleted."""
    command: str = ""
    """What it runs, looks for or asks, in one line."""
    weight: int = 0
    todo: tuple[tuple[int, str], ...] = ()
    """Items of a todo list: points, and `[status] text`."""


def read_call(call: Call, clean: Callable[[str], str]) -> Reading:
    """What a call does, from its arguments' names and values."""
    text = clean(_flat(call.args))
    if not isinstance(call.args, Mapping):
        return Reading(text, command=_one_line(f"{call.name} {text}"), weight=4)
    args = {str(key): value for key, value in call.args.items()}
    todo = tuple(_todo(args, clean))
    if todo:
        return Reading(text, todo=todo)
    path = next((value for key, value in args.items() if isinstance(value, str) and 0 < len(value) < 300 and _PATH_KEY.match(key)), "")
    if path and ("/" in path or "." in path or "\\" in path):
        operation = _operation(call.name, args)
        return Reading(text, path=clean(path), operation=operation, weight=4 if operation == "r" else 8)
    command = next((value for key, value in args.items() if key in _COMMAND_KEYS and isinstance(value, str)), None)
    if command is not None:
        line = clean(_command(command))
        return Reading(text, command=line, weight=8 if _CHANGING_COMMAND.search(line) else 5)
    parts = [clean(_one_line(value if isinstance(value, str) else _flat(value))) for value in list(args.values())[:4]]
    body = " | ".join(part[:160] for part in parts if part)
    return Reading(text, command=f"{call.name} {body}" if body else call.name, weight=6)


def _operation(name: str, args: Mapping[str, Any]) -> str:
    sub = args.get("command")
    words = f"{name} {sub}" if isinstance(sub, str) and len(sub) < 30 else name
    if _DELETING_NAME.search(words):
        return "d"
    new_text = any(_NEW_TEXT_KEY.search(key) for key in args)
    if new_text and any("old" in key.lower() for key in args):
        return "e"
    if new_text and re.search("write|creat|save", words, re.IGNORECASE):
        return "w"
    return "e" if new_text or _CHANGING_NAME.search(words) else "r"


def _command(command: str) -> str:
    """One line of a command: no change of directory before it, no paging after it, no here-document in it."""
    head = command[:4000]
    document = _HERE_DOCUMENT.search(head)
    if document:
        head = head[: document.start()]
    line = _one_line(_CD.sub("", head.strip()))
    return _TAIL.sub("", line)


def _one_line(text: str) -> str:
    return " ".join(text[:4000].split())[:_CONTINUE_FROM]


def _todo(args: Mapping[str, Any], clean: Callable[[str], str]) -> Iterator[tuple[int, str]]:
    for value in args.values():
        if isinstance(value, list) and value and all(isinstance(item, Mapping) and "status" in item for item in value):
            for item in value:
                status = item.get("status")
                text = next((part for key, part in item.items() if isinstance(part, str) and part and key not in ("status", "id", "activeForm", "priority")), "")
                status = status if isinstance(status, str) else ""
                yield (3 if _DONE.search(status) else 10), f"[{status[:20]}] {clean(_one_line(text))}"
            return


def answered_by_person(call: Call | None, text: str) -> bool:
    """Whether a result is what a person answered to a question of the assistant."""
    return (call is not None and _ASKING_NAME.search(call.name) is not None) or _ANSWERED.match(text[:200]) is not None


def exit_status(text: str, *, failed: bool) -> str:
    """`0`, `1`, ... where the result states it, `failed` where only that is known, else `""`."""
    for part in (text[:200], text[-300:]):
        found = _EXIT.search(part)
        if found:
            return found.group(1)
    return "failed" if failed else ""


def _flat(value: object, depth: int = 0) -> str:
    if isinstance(value, str):
        return value
    if depth > 6 or value is None:
        return ""
    if isinstance(value, Mapping):
        return "\n".join(_flat(item, depth + 1) for item in value.values())
    if isinstance(value, list | tuple):
        return "\n".join(_flat(item, depth + 1) for item in value)
    return json.dumps(value) if isinstance(value, bool | int | float) else str(value)
