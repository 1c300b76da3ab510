"""Reads and changes of files among the calls, by tool and argument names that a user can configure (`FileTools`).

Used where a wrong answer would show an old text as the file, so in doubt a file has changed. The ledger's looser reading, which knows no tools, is
`_calls`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from langgraph_roundcompact.reinject._calls import Use, argument, json_mapping, tool_keys
from langgraph_roundcompact.reinject._context import one_line
from langgraph_roundcompact.reinject._files import path_key
from langgraph_roundcompact.reinject._shell import names_in, shell_of

_PATCH_PATH = re.compile(r"^(?:\*\*\* (?:Update|Add|Delete) File: |\*\*\* Move to: |\+\+\+ (?:b/)?|--- (?:a/)?)([^\t\n]{1,1000})", re.MULTILINE)
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_LOOKING = frozenset(
    (
        *("read", "view", "show", "get", "open", "cat", "head", "tail", "list", "ls", "dir", "tree", "stat", "find", "grep", "glob", "search"),
        *("query", "sql", "test", "tests", "look", "fetch", "browse", "navigate", "screenshot", "diff", "status", "log", "logs", "check", "lint"),
        *("count", "describe", "inspect", "analyze", "analyse", "analysis", "think", "thought", "todo", "todos", "plan", "ask", "note", "notes"),
        *("recall", "compact", "web", "skill"),
    )
)
"""Words in the name of a tool that only looks, or writes elsewhere than to files."""
_CHANGING = frozenset(
    (
        *("write", "edit", "change", "modify", "update", "save", "patch", "apply", "replace", "insert", "append", "delete", "remove", "move"),
        *("rename", "create", "overwrite", "put", "set", "format", "fix", "refactor", "checkout", "restore", "revert", "reset", "undo", "rollback"),
        *("merge", "rebase", "stash", "pull", "generate", "agent", "delegate", "transfer", "handoff"),
    )
)
"""Words in the name of a tool that may change what it names, whatever else the name says."""
_REACHING = frozenset(
    (
        *("format", "refactor", "checkout", "restore", "revert", "reset", "undo", "rollback", "merge", "rebase", "stash", "pull", "generate"),
        *("exec", "execute", "run", "agent", "subagent", "delegate", "dispatch", "transfer", "handoff"),
    )
)
"""Words in the name of a tool that may change what it does not name."""
_SEARCHED_CHARS = 20_000
"""Of each argument of an unknown tool, what is searched for names of files."""
_DEEPEST = 12
_LINE_ARGUMENTS = ("offset", "limit", "start_line", "end_line", "line_start", "line_end", "view_range", "pages", "range")
_TEXT_KEYS = ("content", "text", "body", "skill_content", "instructions")


@dataclass(frozen=True, kw_only=True)
class FileTools:
    """Names of tools and arguments that deal with files. Names of tools are compared without regard to case, `_` and `-`."""

    read: tuple[str, ...] = ("read_file", "Read", "view", "view_file", "open", "open_file", "cat", "get_file_contents", "read_text_file")
    """Tools that show a file."""
    look: tuple[str, ...] = ()
    """More tools that change no file. Of a tool that no list names, its name tells: `search_code` looks, `git_checkout` may have changed any
    file, and whatever else the files that its arguments name."""
    change: tuple[str, ...] = (
        *("edit_file", "Edit", "MultiEdit", "write_file", "Write", "create_file", "apply_patch", "str_replace", "insert", "NotebookEdit"),
        *("delete_file", "delete", "move_file", "rename_file", "replace", "replace_in_file", "append_file", "search_replace", "undo_edit"),
        *("save_file", "write_to_file", "update_file", "edit_files", "apply_diff", "patch_file", "create_or_update_file", "fs_write"),
    )
    """Tools that change, make or remove files."""
    editor: tuple[str, ...] = ("str_replace_editor", "str_replace_based_edit_tool", "text_editor", "editor")
    """Tools that do both; the argument `command` says which (`view` reads)."""
    shell: tuple[str, ...] = (
        *("bash", "shell", "execute", "run_command", "run_shell_command", "terminal", "exec_command", "local_shell", "exec", "powershell"),
        *("execute_command", "run_terminal_cmd", "run_in_terminal", "shell_command", "shell_exec", "execute_bash", "run_bash"),
    )
    """Tools that run a command line."""
    code: tuple[str, ...] = ("python", "python_repl", "execute_python", "run_python", "execute_code", "run_code", "code_interpreter")
    """Tools that run a program text; it may change the files that it names."""
    delegate: tuple[str, ...] = ("task", "agent", "sub_agent", "dispatch_agent", "spawn_agent", "new_task", "delegate_task")
    """Tools that hand work to another agent; it may change any file."""
    path_arguments: tuple[str, ...] = ("file_path", "path", "filename", "file", "target_file", "filePath", "absolute_path", "notebook_path", "source")
    """Arguments that name the file, in order of trust."""
    more_path_arguments: tuple[str, ...] = ("destination", "new_path", "target")
    """Arguments that name a second file of a change."""
    command_arguments: tuple[str, ...] = ("command", "cmd", "script", "code", "source", "query", "input")
    """Arguments that hold the command line or program text."""
    patch_arguments: tuple[str, ...] = ("patch", "input", "diff", "patch_text")
    """Arguments that hold a patch."""


@dataclass(frozen=True, slots=True)
class FileRead:
    """One successful read of one file."""

    path: str
    part: str
    """How a part was asked for, as one line; `""` for the whole file."""
    text: str | None
    """What was shown, where that is the file and nothing else."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """One change that did not fail."""

    keys: frozenset[str] = frozenset()
    """Files that were changed, as `path_key` gives them."""
    names: frozenset[str] = frozenset()
    """Base names of files that may have been changed."""
    everything: bool = False
    """Whether any other file may have been changed."""


def file_events(use: Use, tools: FileTools) -> Iterator[FileRead | FileChange]:
    """What a call did to files, changes before reads; nothing for a failed call."""
    if use.key in tool_keys(tools.shell):
        # A failed command may have changed something before it failed.
        yield from _shell_events(use, tools)
    elif use.key in tool_keys(tools.code):
        yield FileChange(names=frozenset(names_in(argument(use.args, tools.command_arguments))))
    elif use.key in tool_keys(tools.delegate):
        yield FileChange(everything=True)
    elif _is_read(use, tools):
        if use.result is not None and not use.failed:
            yield from _read(use, tools)
    elif use.key in tool_keys((*tools.change, *tools.editor)):
        if not use.failed:
            keys = frozenset(_changed(use, tools))
            yield FileChange(keys=keys, names=frozenset() if keys else _names_in_arguments(use))
    elif use.key not in tool_keys(tools.look) and not use.failed:
        yield from _perhaps_changed(use)


def shown_text(use: Use) -> str | None:
    """The text a result shows, taken out of a JSON record where it is in one; None where it is not the tool's whole text any more."""
    if not use.intact:
        return None
    data = json_mapping(use.text)
    return next((value for key in _TEXT_KEYS if isinstance(value := data.get(key), str) and value.strip()), use.text)


def same_file(one: str, other: str) -> bool:
    """Whether two keys may be one file: equal, or one of them relative and the end of the other."""
    return one == other or (posixpath.isabs(one) != posixpath.isabs(other) and (one.endswith(f"/{other}") or other.endswith(f"/{one}")))


def may_read(use: Use, tools: FileTools, name: str) -> bool:
    """Whether a call names a file of this lower-case base name at all; cheap, to be asked before `file_events`."""
    wanted = argument(use.args, tools.path_arguments) + _command(use, tools)
    return name in wanted.lower() or (_is_read(use, tools) and name in use.text[:2_000].lower())


def _is_read(use: Use, tools: FileTools) -> bool:
    if use.key in tool_keys(tools.editor):
        command = use.args.get("command")
        return isinstance(command, str) and command.lower() in ("view", "read", "open")
    return use.key in tool_keys(tools.read)


def _read(use: Use, tools: FileTools) -> Iterator[FileRead]:
    path = argument(use.args, tools.path_arguments) or argument(json_mapping(use.text), tools.path_arguments)
    if path:
        yield FileRead(path, _part(use), shown_text(use))


def _shell_events(use: Use, tools: FileTools) -> Iterator[FileRead | FileChange]:
    line = shell_of(_command(use, tools))
    if line.changes or line.reaches_all:
        yield FileChange(names=line.changes, everything=line.reaches_all)
    if line.reads and use.result is not None and not use.failed:
        text = shown_text(use) if line.whole or (line.part and len(line.reads) == 1) else None
        for path in line.reads:
            yield FileRead(path, line.part, text)


def _perhaps_changed(use: Use) -> Iterator[FileChange]:
    """What a tool may have changed that no list knows."""
    words = {word.lower() for word in _WORDS.findall(use.tool.rsplit("__", 1)[-1])}
    if words & _LOOKING and not words & _CHANGING:
        return
    yield FileChange(names=_names_in_arguments(use), everything=bool(words & _REACHING))


def _names_in_arguments(use: Use) -> frozenset[str]:
    return frozenset(name for text in _texts(use.args) for name in names_in(text[:_SEARCHED_CHARS]))


def _texts(value: object, depth: int = 0) -> Iterator[str]:
    """The strings in arguments, however they are nested."""
    if isinstance(value, str):
        yield value
    elif depth < _DEEPEST and isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(inner, depth + 1)


def _command(use: Use, tools: FileTools) -> str:
    for key in tools.command_arguments:
        value = use.args.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            # ["bash", "-lc", "cat x"]: the last word is the line.
            wrapped = len(value) == 3 and value[1].startswith("-") and value[1].endswith("c")
            return str(value[2]) if wrapped else " ".join(value)
    return ""


def _changed(use: Use, tools: FileTools) -> Iterator[str]:
    for key in (*tools.path_arguments, *tools.more_path_arguments):
        value = use.args.get(key)
        if isinstance(value, str) and value.strip():
            yield path_key(value)
    for key in tools.patch_arguments:
        value = use.args.get(key)
        if isinstance(value, str):
            yield from (path_key(found) for found in _PATCH_PATH.findall(value))


def _part(use: Use) -> str:
    named = ((key, use.args.get(key)) for key in _LINE_ARGUMENTS)
    return ", ".join(f"{key}={_short(value)}" for key, value in named if isinstance(value, int | str | list | tuple) and value not in ("", [], ()))


def _short(value: object) -> str:
    if isinstance(value, list | tuple):
        return "-".join(one_line(part, 12) for part in value[:2])
    return one_line(value, 40)
