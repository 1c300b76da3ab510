"""Logs, and the output of commands and test runs: summaries and exit status, failing tests and their assertions, errors with a little context.

Lines are found by searching the whole text for words, at the speed of the machine, and only those are looked at closely: a log of a megabyte in which
nothing happened costs milliseconds.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate

from langgraph_roundcompact.tiers.previews._outline import FILL, NEVER, Outline, counted, edge_ranks, lines_of, raise_edges, raise_rank

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]{0,32}[ -/]?[@-~]|\][^\x07\x1b\n]{0,400}(?:\x07|\x1b\\)|[@-Z\\-_])")
"""What a terminal turns into colours and titles."""

_WORDS = (
    "error", "fail", "exception", "traceback", "fatal", "panic", "assert", "warn", "\nexpected", "expected:", "received:", " expected", "exit",
    "passed", "passing", "test result", "tests:", "suites:", "test files", "\nran ", "\nok", "✗", "✘", "✕", "● ", "\nnot ok", "denied", "not found",
    "cannot ", "undefined", "refused", "timed out", "timeout", "killed", "abort", "segmentation", "conflict", "unable to", "could not", "no such",
    "returncode", "non-zero", "\ne  ", "\n____", "    at ", "   > ", "\n----", "_test.go:", "want ", "left:", "right:", "got:",
    "错误", "失败", "异常", "无法", "警告", "拒绝", "超时",
)  # fmt: skip
_PASSED_LATER = 1_000_000
"""How much later than other lines the one about a test that passed comes."""
_MOST_FORMS = 1_500
"""Lines, digits apart, that are looked at closely; what differs from all of those is taken for more of the same."""

_SUMMARY = re.compile(
    r"=+ .{0,200}\b(?:passed|failed|errors?|skipped|no tests ran)\b.{0,200}=+$|"
    r"\s{0,4}(?:Tests|Test Suites|Test Files|Snapshots|Suites)\s{0,4}:?\s{1,12}(?:\d|.{0,60}\d)|\s{0,4}Tests run:|test result:|"
    r"(?:FAIL|ok)\s+\S{1,200}\s+(?:\d[\d.]*m?s|\(cached\)|\[)|FAIL$|"
    r"\s{0,8}(?:✖ |Found )?\d[\d,]* (?:tests? )?(?:passing|failing|pending|passed|failed|errors?|warnings?|problems?)\b|"
    r"Ran \d+ tests?|FAILED \(|OK\b.{0,40}$|"
    r"\S{0,20}\s?BUILD (?:SUCCESS|FAIL)|error: (?:aborting|could not compile)",
    re.IGNORECASE,
)
_STATUS = re.compile(
    r"\b(?:exit(?:ed)?\b.{0,24}?(?:status|code)?|return ?code|status code)\b\W{0,4}-?\d+|returned non-zero|<returncode>|Killed$|core dumped",
    re.IGNORECASE,
)
_STATUS_WORDS = ("exit", "return", "status", "killed", "dumped")
_FAILED = re.compile(
    r"(?:FAILED|ERROR) \S+(?:::|\.)\S|\s{0,16}--- FAIL: |test .{1,200} \.\.\. FAILED|\s{0,4}● \S|\s{0,4}FAIL:? +\S|not ok \d|\s{0,16}[✕✗✘×] \S"
)
"""The name of a test that failed."""
_ASSERTION = re.compile(
    r"E {1,12}\S|\s{0,16}Assertion\w{0,10}Error|.{0,200}\bassertion .{0,80}failed|thread '.{1,120}' .{0,20}panicked at|panic: |"
    r"\s{0,12}[+-]?\s?(?:Expected|Received|expected|actual|left|right|got|want)\b.{0,40}?[:=]|\s{1,16}\S{1,120}_test\.go:\d+:|error\[E\d+\]"
)
"""What a test expected, and what it got."""
_BLOCK = re.compile(r"_{4,} .{1,200} _{4,}$|---- .{1,200} ----$")
"""The head of what a failed test printed."""
_PROGRESS = re.compile(r"\S{1,200}::\S{1,300}\s(?:FAILED|ERROR)\b")
_PLACE = re.compile(r"\s{2,12}at (?!.{0,200}(?:node_modules|node:|internal/)).{0,200}:\d+|\s{0,8}> \d+ \|")
"""Where in the project it happened, as JavaScript tells it."""
_PASSED = re.compile(r"=== RUN |\s{0,16}--- PASS: |test .{1,200} \.\.\. ok$|\s{0,16}[✓✔√○] |PASS +\S|\S{1,400}\s{1,200}PASSED\b|ok \d+ ")
_ERRORS = (
    "error", "exception", "traceback", "fail", "fatal", "panic", "denied", "not found", "cannot ", "undefined", "refused", "timed out", "timeout",
    "killed", "abort", "segmentation", "conflict", "unable to", "could not", "no such", "错误", "失败", "异常", "无法", "拒绝", "超时",
)  # fmt: skip
"""Words of errors, in lower case."""
_NO_ERROR = re.compile(
    r"\b(?:0|no|without) (?:errors?|failures?|failed)|\berrors?[:=]\s?0\b|\b(?:INFO|DEBUG|TRACE)\b|\bPASS(?:ED)?\b|\.\.\. ok$|^\s*✓", re.IGNORECASE
)
_FINAL = re.compile(r"[A-Za-z_][\w.]{0,200}(?:: |$)")
_MASK = re.compile(r"/[^\s:]+|[^\W\d]{0,40}\d\w*")
_FATAL_WORDS = ("fatal", "critical", "emerg", "panic", "segmentation", "dumped", "memory", "oom")
_FATAL = re.compile(r"\b(?:FATAL|CRITICAL|EMERG|fatal:)|^panic|Segmentation fault|core dumped|out of memory|\bOOM\b", re.IGNORECASE)
_FLAVOURS = (
    ("pytest", re.compile(r"^=+ (?:test session starts|short test summary info|FAILURES|ERRORS|.{0,120} in \d[\d.]*s)\b", re.MULTILINE)),
    ("vitest", re.compile(r"^\s{0,4}Test Files  ", re.MULTILINE)),
    ("jest", re.compile(r"^Test Suites: ", re.MULTILINE)),
    ("cargo test", re.compile(r"^test result: |^running \d+ tests?$", re.MULTILINE)),
    ("go test", re.compile(r"^\s{0,8}--- (?:FAIL|PASS): |^=== RUN |^(?:ok|FAIL)\s{1,4}\S+\s{1,4}(?:\d[\d.]*s|\()", re.MULTILINE)),
    ("unittest", re.compile(r"^Ran \d+ tests? in ", re.MULTILINE)),
    ("mocha", re.compile(r"^\s{1,4}\d+ passing \(", re.MULTILINE)),
)


def plain(text: str) -> str:
    """The text without terminal escapes."""
    return _ESCAPES.sub("", text) if "\x1b" in text else text


def flavour(text: str) -> str:
    """The tool whose output this is, or an empty text."""
    edges = text if len(text) < 24_000 else text[:12_000] + "\n" + text[-12_000:]
    return next((name for name, pattern in _FLAVOURS if pattern.search(edges)), "")


def outline(text: str) -> Outline:
    """Every line; those that tell how it ended and what went wrong first."""
    text = plain(text)
    lines = lines_of(text)
    ranks = edge_ranks(lines)
    raise_edges(ranks, 4, 2, 4)
    errors, forms = _rank_marked(text, lines, ranks)
    name = flavour(text)
    if name:
        ranks = [rank + _PASSED_LATER if FILL <= rank < NEVER and _PASSED.match(lines[position]) else rank for position, rank in enumerate(ranks)]
    title = f"{name} output" if name else "log"
    found = f", {counted(errors, 'error lines')}" + (f" of {forms} forms" if 1 < forms < errors else "") if errors else ""
    return Outline(kind="log", title=f"{title}, {counted(len(lines), 'lines')}{found}", lines=lines, ranks=ranks)


def _rank_marked(text: str, lines: list[str], ranks: list[int]) -> tuple[int, int]:
    """Rank the lines that hold one of the words; how many are errors, and of how many forms."""
    known: dict[bytes, tuple[int, str]] = {}
    seen: Counter[str] = Counter()
    last: dict[str, int] = {}
    errors = 0
    error_forms: set[str] = set()
    for position in _marked(text, lines):
        rank, form = _judged(lines[position], known)
        if rank >= FILL:
            continue
        seen[form] += 1
        if rank == _IS_ERROR:
            errors += 1
            error_forms.add(form)
        if rank in (_IS_ERROR, _IS_WARNING):
            last[form] = position
            rank = rank if seen[form] == 1 else 20 + min(seen[form], 400)
        elif seen[form] > _ALIKE:
            rank = 20
        elif rank == _IS_ASSERTION and position and lines[position].startswith("E ") and lines[position - 1].startswith("E "):
            rank = 10  # what pytest says to explain the line before
        raise_rank(ranks, position, rank)
        if rank <= _IS_ERROR:
            _context(lines, ranks, position)
    for position in last.values():
        raise_rank(ranks, position, 9)
    return errors, len(error_forms)


def _judged(line: str, known: dict[bytes, tuple[int, str]]) -> tuple[int, str]:
    """Rank and form of a line; of lines that differ in digits alone only the first is looked at."""
    key = line[:300].encode("utf-8", "surrogatepass").translate(None, b"0123456789")
    found = known.get(key)
    if found is None:
        if len(known) >= _MOST_FORMS:
            return (_IS_ERROR if "error" in line[:300].lower() else FILL), ""
        found = known[key] = _rank(line[:600]), _MASK.sub("0", line[:200])[:80]
    return found


_ALIKE = 12
"""Lines of one form, names of failed tests for example, that all come first."""
_IS_ASSERTION, _IS_ERROR, _IS_WARNING = 2, 4, 8


def _rank(line: str) -> int:
    lower = line.lower()
    if _SUMMARY.match(line) or (any(word in lower for word in _STATUS_WORDS) and _STATUS.search(line)):
        return 0
    if _FAILED.match(line):
        return 1
    if _ASSERTION.match(line):
        return _IS_ASSERTION
    if _BLOCK.match(line):
        return 3
    if any(word in lower for word in _FATAL_WORDS) and _FATAL.search(line):
        return 3
    if _PLACE.match(line):
        return 6
    if _PROGRESS.match(line):
        return 14
    if any(word in lower for word in _ERRORS):
        return _IS_ERROR if not _NO_ERROR.search(line) else FILL
    return _IS_WARNING if "warn" in lower or "警告" in line else FILL


def _context(lines: list[str], ranks: list[int], position: int) -> None:
    """The line before, the two after; and under the head of a Python traceback its last frame and what was raised."""
    for near in (position - 1, position + 1, position + 2):
        raise_rank(ranks, near, 12)
    if not lines[position].lstrip().startswith("Traceback (most recent"):
        return
    indent = len(lines[position]) - len(lines[position].lstrip())
    for end in range(position + 1, min(position + 400, len(lines))):
        line = lines[end]
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            if _FINAL.match(line.lstrip()):
                raise_rank(ranks, end, 1)
            raise_rank(ranks, end - 1, 5)
            raise_rank(ranks, end - 2, 5)
            break


def _marked(text: str, lines: list[str]) -> Iterator[int]:
    """Positions of lines that hold one of the words, in order."""
    if text.find("\r") >= 0:
        text = "\n".join(lines)
    # A character that changes its length in lower case would shift every position after it; `casefold` is not used for the same reason.
    lower = "\n" + (text.lower() if len(text.lower()) == len(text) else text)
    starts = list(accumulate((len(line) + 1 for line in lines), initial=1))
    found: set[int] = set()
    for word in _WORDS:
        found.update(_lines_with(lower, word, starts))
    yield from sorted(found)


def _lines_with(text: str, word: str, starts: list[int]) -> Iterator[int]:
    """Lines in which a word begins."""
    skip = 1 if word.startswith("\n") else 0
    position, line = text.find(word), 0
    while position >= 0:
        line = bisect_right(starts, position + skip, line) - 1
        if line >= len(starts) - 1:
            return
        yield line
        position = text.find(word, max(starts[line + 1] - 1, position + 1))
