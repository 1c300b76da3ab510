"""What a text is: told from its shape, with the tool's name and arguments as a hint; and the wrapping some tools put around it.

The order is that of certainty: what can be parsed or has unmistakable lines first, then what the hint says if the text does not contradict it, then
what most lines look like. Only the head of a text is looked at, so the cost does not grow with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from langgraph_roundcompact.tiers.previews import diffs, json_values, logs, matches, pages, prose, source, tables
from langgraph_roundcompact.tiers.previews._hints import Hint, hint_of
from langgraph_roundcompact.tiers.previews._json_reader import parse
from langgraph_roundcompact.tiers.previews._outline import Kind, Outline, joined, lines_of

_HEAD = 16_000
"""Characters that are looked at."""
_NESTED = 2
"""How deep documents inside strings of JSON are looked into."""

_WRAPPER = re.compile(r"<([A-Za-z_][\w.-]{0,40})>(?:([^<>\n]{0,200})</\1>)?\s{0,8}$")
_CLOSE = re.compile(r"</([A-Za-z_][\w.-]{0,40})>\s{0,8}$")
_LEAD = re.compile(
    r"\[File: |\[?(?:exit|return) ?(?:code|status)\b|(?:std)?out(?:put)?:\s*$|Here's the result of running |HTTP/\d|\$ \S|Command: |Wall time|"
    r"Status: |Exit code|\(\d+ more lines (?:above|below)\)|Found \d+ (?:files?|match)|\[(?:Command|The command|Process|Current|Python|Exit)\b",
    re.IGNORECASE,
)
_MOST_WRAPPING = 5
"""Lines at either end that may be wrapping."""


def outline_of(text: str, tool: str, arguments: Mapping[str, Any]) -> Outline:
    """The outline of a text, by the content type that knows it best."""
    return _outline(text, hint_of(tool, arguments), 0)


def _outline(text: str, hint: Hint, depth: int) -> Outline:
    lead, core, trail = _unwrapped(text)
    inner = _outline_of_core(core, hint, depth)
    return joined(inner, lead, trail)


def _outline_of_core(text: str, hint: Hint, depth: int) -> Outline:
    parsed = parse(text) if hint.kind != "code" or text[:1] in "[{" else None
    if parsed is not None:
        return json_values.outline(parsed, lambda inner: _outline(inner, Hint(), depth + 1) if depth < _NESTED else prose.outline(inner))
    sample = lines_of(logs.plain(text[:_HEAD]))
    if len(text) > _HEAD and len(sample) > 1:
        sample.pop()  # cut
    kind = _shape(text, sample, hint.kind)
    if kind == "table":
        return tables.outline(text, tables.delimiter_of(_table_sample(sample)))
    if kind == "search" and _are_paths(sample):
        return matches.paths_outline(text)
    found = _BY_KIND[kind](text) if kind in _BY_KIND else None
    # A page with next to no text is one that a program fills: what it is made of tells more.
    return found if found and not (kind == "page" and sum(map(len, found.lines)) * 50 < len(text)) else source.outline(text, hint.first_line)


_BY_KIND: dict[Kind, Callable[[str], Outline]] = {
    "log": logs.outline,
    "diff": diffs.outline,
    "search": matches.outline,
    "page": pages.outline,
    "text": prose.outline,
    "json": prose.outline,
}
"""A text that was hinted to be JSON and is not, is prose."""


def _shape(text: str, sample: Sequence[str], hint: Kind | None) -> Kind:
    """The kind of a text that is not JSON."""
    filled = [line for line in sample if line.strip()][:300]
    if _is_diff(filled, hint):
        return "diff"
    if hint != "code" and _is_page(text[:_HEAD]):
        return "page"
    if logs.flavour(text) and hint not in ("code", "text"):
        return "log"
    if hint in ("code", "text", "log") and (hint != "code" or source.looks_like_code(filled) or source.is_numbered(filled[1:60])):
        return hint
    if _are_matches(filled):
        return "search" if hint == "search" or not _are_entries(filled) else "log"
    if tables.delimiter_of(_table_sample(sample)) and not _are_entries(filled):
        return "table"
    if _are_paths(filled) and (hint == "search" or len(filled) > 8):
        return "search"
    if _are_entries(filled):
        return "log"
    if source.looks_like_code(filled):
        return "code"
    return "log" if hint == "log" or _is_output(filled) else "text"


def _is_diff(lines: Sequence[str], hint: Kind | None) -> bool:
    hunks = sum(line.startswith("@@ -") for line in lines)
    opened = [position for position, line in enumerate(lines) if line.startswith(("diff --", "--- ", "Index: "))]
    if not opened or not (hunks or hint == "diff" or lines[opened[0]].startswith("diff --git ")):
        return False
    return opened[0] < 60 if hint != "text" else opened[0] < 2


_PAGE_START = re.compile(
    r"\s{0,200}(?:<\?xml[^<>]{0,200}\?>\s{0,20})?(?:<!--.{0,2000}?-->\s{0,20})?<(?:!doctype html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
_LATE_START = re.compile(r"^\s{0,8}<(?:!doctype html|html)\b", re.IGNORECASE | re.MULTILINE)
"""Where a page begins after what a client printed before it."""
_ELEMENT = re.compile(r"</?([A-Za-z][A-Za-z0-9]{0,15})(?:\s[^<>]{0,2000})?/?>")


def _is_page(head: str) -> bool:
    if _PAGE_START.match(head):
        return True
    late = _LATE_START.search(head, 0, 2_000)
    if late and head.count("\n", 0, late.start()) < 16:
        return True
    found = [match for match in _ELEMENT.finditer(head) if match.group(1).lower() in pages.TAGS]
    markup = sum(len(match.group()) for match in found)
    return len(found) >= 12 and markup * 5 >= len(head) and head.lstrip()[:1] == "<"


def _are_matches(lines: Sequence[str]) -> bool:
    """Whether most lines are `path:line:text`, or numbered lines under paths."""
    if len(lines) < 3:
        return False
    strict = sum(1 for line in lines if matches.LOCATED.match(line))
    context = sum(1 for line in lines if matches.CONTEXT.match(line)) if strict else 0
    if strict and strict + context >= 0.6 * len(lines):
        return True
    numbered = [matches.NUMBERED.match(line) is not None for line in lines]
    if sum(numbered) >= 0.9 * len(lines) and not source.is_numbered(lines):
        return True
    headed = any(not first and second and matches.PATH.match(line) for line, (first, second) in zip(lines, pairwise(numbered), strict=False))
    return headed and sum(numbered) >= 0.5 * len(lines)


def _are_paths(lines: Sequence[str]) -> bool:
    """Whether nearly all lines are paths."""
    some = [line for line in lines if line.strip()][:200]
    found = sum(1 for line in some if len(line) < 300 and (matches.LISTED.match(line) or (matches.PATH.match(line) and _pathlike(line))))
    return len(some) > 2 and found >= 0.85 * len(some)


def _pathlike(line: str) -> bool:
    return ("/" in line or "\\" in line) or ("." in line[1:-1] and " " not in line.strip())


_ENTRY = re.compile(
    r"\W{0,3}(?:\d{4}[-/.]\d{2}[-/.]\d{2}|\d{2}/[A-Z][a-z]{2}/\d{4}|[A-Z][a-z]{2} {1,2}\d{1,2} \d{2}:\d{2}|\d{2}:\d{2}:\d{2})|"
    r"\W{0,3}(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b|[\d.]{7,15} - \S{1,60} \[|time=\"?\d{4}|level=\w|[IWEF]\d{4} \d{2}:\d{2}"
)
_OUTPUT = re.compile(
    r"\s{0,8}(?:error|warning|fatal|Traceback \(most|Collecting |Downloading |Installing |Requirement already|Get:\d|npm |\[\d+/\d+\]|Compiling |"
    r"make(?:\[\d+\])?: |\S{1,200}:\d+(?::\d+)?: (?:error|warning|fatal)|\w{1,60}Error: |added \d+ packages|> \S|\+ \S|ok\b|"
    r"PASS|FAIL|✓|✔|✗|✘|#\d+ \[)"
)


def _are_entries(lines: Sequence[str]) -> bool:
    """Whether the lines are entries of a log: they begin with a time or a level."""
    return sum(1 for line in lines if _ENTRY.match(line)) >= max(0.3 * len(lines), 3)


def _is_output(lines: Sequence[str]) -> bool:
    """Whether there are lines that a build or an installation prints."""
    traceback = any(line.startswith("Traceback (most recent") for line in lines)
    return traceback or sum(1 for line in lines if _OUTPUT.match(line)) >= max(0.08 * len(lines), 2)


def _table_sample(sample: Sequence[str]) -> Sequence[str]:
    return sample[:200]


def _unwrapped(text: str) -> tuple[list[str], str, list[str]]:
    """Lines that a tool puts before a result, the result, and lines after it."""
    start, lead, open_names = 0, list[str](), set[str]()
    for _ in range(_MOST_WRAPPING):
        end = text.find("\n", start, start + 400)
        if end < 0:
            break
        line = text[start:end].rstrip("\r")
        wrapper = _WRAPPER.match(line)
        if wrapper and wrapper.group(1).lower() not in pages.TAGS:
            open_names.update({wrapper.group(1)} if wrapper.group(2) is None else ())
        elif line.strip() and not _LEAD.match(line):
            break
        lead.append(line)
        start = end + 1
    stop, trail = len(text), list[str]()
    for _ in range(_MOST_WRAPPING):
        begin = text.rfind("\n", max(start, stop - 400), stop) + 1
        line = text[begin:stop].rstrip("\r")
        close = _CLOSE.match(line)
        if begin <= start or not (not line.strip() or (close and close.group(1) in open_names) or _is_trailing(line)):
            break
        trail.insert(0, line)
        stop = begin - 1
    if not any(line.strip() for line in trail):
        trail, stop = [], len(text)
    return [line for line in lead if line.strip()], text[start:stop], [line for line in trail if line.strip()]


def _is_trailing(line: str) -> bool:
    wrapper = _WRAPPER.match(line)
    return bool(wrapper and wrapper.group(2) is not None and wrapper.group(1).lower() not in pages.TAGS) or _LEAD.match(line) is not None
