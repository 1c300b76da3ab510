"""What a call says of its result: the ending of a path, the words of a command, the name of the tool."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from langgraph_roundcompact.tiers.previews._outline import Kind

_ENDINGS: dict[str, Kind] = {
    **dict.fromkeys(("json", "jsonl", "ndjson", "geojson", "ipynb"), "json"),
    **dict.fromkeys(("csv", "tsv"), "table"),
    **dict.fromkeys(("html", "htm", "xhtml"), "page"),
    **dict.fromkeys(("diff", "patch"), "diff"),
    **dict.fromkeys(("log", "out", "err"), "log"),
    **dict.fromkeys(("md", "txt", "rst", "adoc", "mdx"), "text"),
    **dict.fromkeys(
        (
            "py", "js", "jsx", "mjs", "cjs", "ts", "tsx", "go", "pyi", "rs", "java", "kt", "kts", "c", "h", "cc", "cpp", "cxx", "hpp", "cs", "rb",
            "php", "swift", "scala", "sh", "bash", "zsh", "sql", "lua", "r", "jl", "ex", "exs", "erl", "hs", "ml", "vue", "svelte", "dart",
            "m", "mm", "pl",
        ),
        "code",
    ),
}  # fmt: skip
_ENDING = re.compile(r"\.([A-Za-z]{1,7})(?:[?#:].{0,80})?$")
_COMMANDS: tuple[tuple[re.Pattern[str], Kind], ...] = (
    (re.compile(r"\bgit\b.{0,40}\b(?:diff|show|format-patch|log\b.{0,80}(?: -p|--patch))\b|(?:^|[;&|]\s?)diff "), "diff"),
    (
        re.compile(r"\b(?:pytest|unittest|jest|vitest|mocha|cargo|go test|tox|npm|yarn|pnpm|make|gradlew?|mvn|pip|apt(?:-get)?|docker|journalctl)\b"),
        "log",
    ),
    (re.compile(r"(?:^|[;&|]\s?|\bgit )(?:grep|rg|ag|ack|find|fd|ls)\b"), "search"),
)
_READ_COMMAND = re.compile(r"(?:^|&& ?|; ?)(?:cat|sed|head|tail|nl|bat|less)\b[^|;&<>]{0,200}")
_SEARCH_TOOL = re.compile(r"grep|glob|search_files|find_files|list_dir|list_files|\bls\b|code_search|search_code", re.IGNORECASE)
_PATH_KEYS = ("file_path", "path", "filename", "file", "target_file", "url", "uri")
_RANGE = re.compile(r"\bsed -n ['\"]?(\d{1,7}),\d{1,7}p|\btail -n \+(\d{1,7})")
_WHOLE = re.compile(r"(?:cd \S{1,200} && )?(?:cat|head)\b[^|;&<>]{0,300}$")
_OTHER_START = ("offset", "start", "line_number", "line", "range", "lines")
"""Arguments after which it is not sure which line of the file is the first: some tools count from 0, some print what is around."""


@dataclass(frozen=True, slots=True)
class Hint:
    """What is known of a text before it is looked at."""

    kind: Kind | None = None
    first_line: int | None = None
    """The line of the file that the text begins with, counted from 1; `None` where that is not known."""


def hint_of(tool: str, arguments: Mapping[str, Any]) -> Hint:
    """Read the hint; arguments of any type are taken as they come."""
    command = arguments.get("command") or arguments.get("cmd")
    if isinstance(command, str):
        return Hint(_by_command(command[:600]), _start_by_command(command[:600].strip()))
    if _SEARCH_TOOL.search(tool[:100]):
        return Hint("search")
    kinds = (_by_ending(value) for key in _PATH_KEYS if isinstance(value := arguments.get(key), str))
    return Hint(next((kind for kind in kinds if kind), None), _start_by_arguments(arguments))


def _start_by_command(command: str) -> int | None:
    ranges = _RANGE.findall(command)
    if len(ranges) == 1:
        return int(ranges[0][0] or ranges[0][1])
    return 1 if _WHOLE.match(command) else None


def _start_by_arguments(arguments: Mapping[str, Any]) -> int | None:
    value = arguments.get("start_line")
    view = arguments.get("view_range")
    if isinstance(view, list) and view:
        value = view[0]
    if isinstance(value, int):
        return max(value, 1)
    return None if any(arguments.get(key) for key in _OTHER_START) else 1


def _by_ending(path: str) -> Kind | None:
    match = _ENDING.search(path.strip()[-120:])
    return _ENDINGS.get(match.group(1).lower()) if match else None


def _by_command(command: str) -> Kind | None:
    for pattern, kind in _COMMANDS:
        if pattern.search(command):
            return kind
    read = _READ_COMMAND.search(command)
    return _by_ending(read.group()) if read else None
