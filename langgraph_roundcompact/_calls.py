"""What a tool call does, read from the shape of its arguments; and what its result says about how it ended.

For the ledger, which must understand tools it has never heard of, at the price of a wrong guess now and then. `reinject._reads` answers the stricter
question which files an agent has read, by tool names that a user can configure: there a wrong guess would show an old text as the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langgraph_roundcompact._facts import COMMAND_LABEL, MAX_LABEL
from langgraph_roundcompact._groups import Call

_PATH_KEY = re.compile(r"^(?:abs(?:olute)?_?|target_?|relative_?|notebook_?|source_?)?(?:file_?)?(?:path|name|file)$", re.IGNORECASE)
_COMMAND_KEYS = ("command", "cmd", "script", "shell", "code", "input")
_SEARCH_KEY = re.compile(r"^(?:pattern|query|regex|search(?:_?(?:term|text|pattern))?|glob)$", re.IGNORECASE)
_NEW_TEXT_KEY = re.compile(r"new|content|replace|patch|diff|edit|insert|file_text|^text$|^source$", re.IGNORECASE)
_WHY_KEY = re.compile(r"^(?:description|explanation|reason|purpose|justification|rationale)$", re.IGNORECASE)
_SEARCHED_FILE = re.compile(r"[^/\\]\.\w{1,8}$")
_CHANGING_NAME = re.compile(r"write|edit|creat|replace|insert|patch|append|save|update", re.IGNORECASE)
_LOOKING_NAME = re.compile(r"search|find|grep|look|query|match|count|list|read|view|open|show|cat|check", re.IGNORECASE)
_DELETING_NAME = re.compile(r"delet|remove|unlink", re.IGNORECASE)
_DONE = re.compile(r"complete|done|finish|closed|cancel", re.IGNORECASE)
_NAME_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_ASKING_WORDS = frozenset({"ask", "question", "questions", "clarify", "clarification", "human"})
_PERSON_WORDS = frozenset({"user", "request", "human", "customer"})
_ANSWER_WORDS = frozenset({"input", "confirm", "confirmation", "approve", "approval", "feedback", "response", "reply", "answer", "choice"})
_PLAN_WORDS = frozenset({"exit", "plan"})
_QUESTION_KEY = re.compile(r"questions?$", re.IGNORECASE)
_REFUSED = re.compile(
    r"[^\n]{0,60}\b(?:user|human)\b[^\n]{0,30}\b(?:rejected|declined|denied|refused|interrupted|cancell?ed|doesn't want|does not want)\b",
    re.IGNORECASE,
)
_EXIT = re.compile(r"(?:exit(?:ed)?(?: with)?(?: code| status)?|return ?code)\W{1,4}(-?\d{1,3})\b", re.IGNORECASE)
_HERE_DOCUMENT = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?")
_CD = re.compile(r"^cd [^\s;&|]{1,200} *&& *")
_TAIL = re.compile(r"(?: *2>&1)?(?: *\| *(?:head|tail)(?: -n?)? *-?\d*)? *$")
_SHELL_PATH = re.compile(r"[\w./~@+\-]{1,200}\.\w{1,10}|[\w.~@+\-]{0,60}(?:/[\w.@+\-]{1,60}){1,20}")
_SHELL_FILES = (
    ("r", re.compile(r"(?:^|[;&|]) {0,2}(?:cat|head|tail|less|nl)((?: [^\s;&|<>]{1,200}){1,6})")),
    ("r", re.compile(r"\bsed -n [^\s;&|]{1,60} ([^\s;&|<>]{1,200})")),
    ("e", re.compile(r"\bsed -i[^;&|]{1,300}? ([^\s;&|<>'\"]{1,200})(?= *(?:$|[;&|]))")),
    ("w", re.compile(r"(?:>{1,2}|\btee(?: -a)?) {0,2}([^\s;&|<>]{1,200})")),
    ("d", re.compile(r"(?:^|[;&|]) {0,2}rm((?: [^\s;&|<>]{1,200}){1,6})")),
)
_CHANGING_COMMAND = re.compile(
    r"\b(?:install|rm|mv|cp|mkdir|commit|checkout|reset|push|merge|rebase|revert|stash|apply|patch|add|sed -i|touch|chmod|kill|start|stop|restart|"
    r"deploy|build|make|test|check|lint|fmt|run|pytest)\b"
)
_COMMAND_CHARACTERS = 240
_MOST_ITEMS = 60
_NOT_THE_ITEM = frozenset({"status", "id", "activeForm", "priority"})


@dataclass(frozen=True, slots=True)
class Reading:
    """What a call was made for."""

    text: str
    """All of its arguments as text."""
    files: tuple[tuple[str, str], ...] = ()
    """Files it works on: `r` read, `w` written, `e` edited or `d` deleted, and the path."""
    command: str = ""
    """What it runs, looks for or asks, in one line."""
    weight: int = 0
    todo: tuple[tuple[int, str, str], ...] = ()
    """Items of a todo list: points, status, text."""
    asks: bool = False
    """It puts a question to a person."""
    why: str = ""
    """What the assistant says it is for, where the call has an argument for that."""
    written: str = ""
    """New text of a file."""

    @property
    def label(self) -> str:
        """What tells lines of its result apart from those of other calls: its command, or its file."""
        return self.command[:COMMAND_LABEL] or (self.files[0][1][:MAX_LABEL] if self.files else "")


def read_call(call: Call, clean: Callable[[str], str]) -> Reading:
    """What a call does, from its arguments' names and values.

    Args:
        call: The call.
        clean: Runs over each text that is taken from it.
    """
    text, name = clean(_flat(call.args)), _one_line(clean(call.name))
    if not isinstance(call.args, Mapping):
        return Reading(text, command=_one_line(f"{name} {text}"), weight=4)
    args = {str(key): value for key, value in call.args.items()}
    todo = tuple(_todo(args, clean))
    if todo:
        return Reading(text, todo=todo)
    if _asks(name, args):
        return Reading(text, command=_any_call(name, args, clean), weight=1, asks=True)
    why = next((value for key, value in args.items() if _WHY_KEY.match(key) and isinstance(value, str)), "")
    return replace(_work(name, args, text, clean), why=clean(_one_line(why)))


def _work(name: str, args: Mapping[str, Any], text: str, clean: Callable[[str], str]) -> Reading:
    path = next((value for key, value in args.items() if isinstance(value, str) and 0 < len(value) < 300 and _PATH_KEY.match(key)), "")
    if path and ("/" in path or "." in path or "\\" in path):
        operation = _operation(name, args)
        if operation == "r" and any(map(_SEARCH_KEY.match, args)):
            # What it looked for tells it from other searches of the same place; a folder that was searched is no file that was read.
            files: tuple[tuple[str, str], ...] = ((operation, clean(path)),) if _SEARCHED_FILE.search(path) else ()
            return Reading(text, files=files, command=_any_call(name, args, clean), weight=4)
        written = [value for key, value in args.items() if isinstance(value, str) and _NEW_TEXT_KEY.search(key) and "old" not in key.lower()]
        new_text = clean("\n".join(written)) if operation in "we" else ""
        return Reading(text, files=((operation, clean(path)),), weight=4 if operation == "r" else 8, written=new_text)
    command = next((value for key, value in args.items() if key in _COMMAND_KEYS and isinstance(value, str)), None)
    if command is not None:
        line, touched = clean(_command(command)), tuple(_shell_files(clean(command[:4000])))
        return Reading(text, files=touched, command=line, weight=_command_weight(line, touched, command))
    return Reading(text, command=_any_call(name, args, clean), weight=6)


def _command_weight(line: str, files: Sequence[tuple[str, str]], command: str) -> int:
    if "<<" in command[:4000] and any(operation == "w" and line.endswith(f"> {path}") for operation, path in files):
        return 1  # it wrote a file, and the file says so
    return 8 if _CHANGING_COMMAND.search(line) else 5


def _any_call(name: str, args: Mapping[str, Any], clean: Callable[[str], str]) -> str:
    parts = [clean(_one_line(value if isinstance(value, str) else _flat(value))) for value in list(args.values())[:4]]
    return " ".join([name, " | ".join(part[:160] for part in parts if part)]).strip()


def _asks(name: str, args: Mapping[str, Any]) -> bool:
    """Whether a call puts a question to a person: by whole words of its name (`Task` does not ask), or by an argument that is the question."""
    words = {word.lower() for word in _NAME_WORD.findall(name)}
    asked = words & _ASKING_WORDS or (words & _PERSON_WORDS and words & _ANSWER_WORDS) or words >= _PLAN_WORDS
    return bool(asked) or any(map(_QUESTION_KEY.match, args))


def _operation(name: str, args: Mapping[str, Any]) -> str:
    sub = args.get("command")
    words = sub if isinstance(sub, str) and len(sub) < 30 else name
    if _DELETING_NAME.search(words):
        return "d"
    if _LOOKING_NAME.search(words) and not _CHANGING_NAME.search(words):
        return "r"  # what it looks for may be called `text` or `content`
    new_text = any(_NEW_TEXT_KEY.search(key) for key in args)
    if new_text and any("old" in key.lower() for key in args):
        return "e"
    if new_text and re.search("write|creat|save", words, re.IGNORECASE):
        return "w"
    return "e" if new_text or _CHANGING_NAME.search(words) else "r"


def _shell_files(command: str) -> Iterator[tuple[str, str]]:
    """Files that a shell command names where it reads, writes, edits in place or deletes."""
    document = _HERE_DOCUMENT.search(command)
    # A here-document is data; what is redirected may stand on both sides of its mark.
    head = command.replace("\n", " ; ", 3) if document is None else command[: document.start()] + command[document.end() :].split("\n", 1)[0]
    for operation, pattern in _SHELL_FILES:
        for match in list(pattern.finditer(head))[:6]:
            for path in match.group(1).split():
                if _SHELL_PATH.fullmatch(path):
                    yield operation, path


def _command(command: str) -> str:
    """One line of a command: no change of directory before it, no paging after it, no here-document in it."""
    head = command[:4000]
    document = _HERE_DOCUMENT.search(head)
    if document:
        head = head[: document.start()]
    line = _one_line(_CD.sub("", head.strip()))
    return _TAIL.sub("", line)


def _one_line(text: str) -> str:
    return " ".join(text[:4000].split())[:_COMMAND_CHARACTERS]


def _todo(args: Mapping[str, Any], clean: Callable[[str], str]) -> Iterator[tuple[int, str, str]]:
    """Items of the first argument that is a list of mappings which all have a status."""
    for value in args.values():
        if isinstance(value, list) and value and all(isinstance(item, Mapping) and "status" in item for item in value):
            for item in value[:_MOST_ITEMS]:
                status = item["status"] if isinstance(item["status"], str) else ""
                text = next((part for key, part in item.items() if isinstance(part, str) and part and key not in _NOT_THE_ITEM), "")
                yield (3 if _DONE.search(status) else 10), _one_line(clean(status))[:20], clean(_one_line(text))
            return


def answered_by_person(reading: Reading | None, text: str, *, failed: bool) -> bool:
    """Whether a result is what a person answered: to a question of the assistant, or by refusing to let a call run.

    A result of any other tool is never an answer, whatever it says of itself.
    """
    return (reading is not None and reading.asks) or (failed and _REFUSED.match(text[:200]) is not None)


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
