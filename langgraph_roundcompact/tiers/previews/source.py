"""Source code: imports, and the lines that open classes and functions with their line numbers; then the head of the file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from langgraph_roundcompact.tiers.previews._outline import FILL, NEVER, Outline, counted, edge_ranks, lines_of, raise_edges, raise_rank

NUMBERED = re.compile(r"\s{0,8}(\d{1,7})(?:→|\t|: ?|\| ?|  )")
"""The number some tools print before each line."""
DEFINITION = re.compile(
    r"\s{0,60}(?:@\w[\w.]{0,60}(?:\(.{0,80}\))? )?"
    r"(?:(?:export|default|declare|public|private|protected|internal|static|final|abstract|sealed|async|pub(?:\([a-z]{1,10}\))?|unsafe|const|override|virtual|"
    r"inline|extern|open|data|partial|readonly) ){0,6}"
    r"(?:(?:def|class|func|fn|function\*?|interface|struct|enum|trait|impl|type|module|mod|namespace|record|protocol|extension|object|macro|defmodule|defp?|sub|"
    r"procedure|package)\b[ (<*!]{0,3}[\w$\"(<]|(?:CREATE|ALTER) (?:OR REPLACE )?(?:TABLE|VIEW|INDEX|FUNCTION)\b|"
    r"(?:const|let|var) [\w$]{1,80}\b.{0,80}?= ?(?:async )?(?:function\b|\(.{0,200}=> ?[{(]?$|[\w$]{1,60} =>))"
)
_METHOD = re.compile(
    r"\s{1,12}(?:(?:public|private|protected|static|async|final|override|abstract|readonly|get|set) ){0,4}"
    r"[\w$#*<>\[\]]{1,80}(?: [\w$]{1,80})?\([^;{}]{0,200}\)(?:: [^;{}]{1,100})? \{$"
)
"""A method without a keyword of its own: `name(arguments) {`."""
_C_FUNCTION = re.compile(r"[A-Za-z_][\w *<>:,&]{2,120}[ *&]~?[\w:]{1,80}\([^;]{0,200}\)?\s{0,2}(?:const )?\{?$")
_NO_METHOD = re.compile(r"\s{1,12}(?:if|for|while|switch|catch|return|else|match|with|do|function)\b")
_IMPORT = re.compile(r"(?:import|from|use|using|require|#include|package|extern crate|source)\b[ (<\"{]|(?:const|let|var) .{1,80} = require\(")
_CONSTANT = re.compile(r"(?:export )?(?:const |let |var |static |pub const |#define )?[A-Z][A-Z\d_]{2,60}\b.{0,40}[=( ]|__all__ ")
_MARKDOWN = ("```", "## ", "### ", "- **")
"""Beginnings of lines of a document that has code in it."""
_NO_START = "}])\"'*.,;:+-=0123456789"
"""What no line begins with that opens something."""
_MARKS = ("TODO", "FIXME", "XXX", "HACK")
_END = re.compile(r"[{}();,:\[\]\\>]\s{0,8}$")
_PYTHONIC = re.compile(r"\s{0,60}(?:return|if|for|while|elif|else|try|except|with|raise|import|from|self\.|@|#|//|/\*|\*|\"\"\"|end\b|fi\b|done\b)")


def strip_number(line: str) -> str:
    """A line without the number that a tool printed before it."""
    match = NUMBERED.match(line[:24])
    return line[match.end() :] if match else line


def is_numbered(lines: Sequence[str]) -> bool:
    """Whether nearly each of these lines begins with a number, one more than the line before it."""
    numbers = [int(match.group(1)) if (match := NUMBERED.match(line[:24])) else -1 for line in lines]
    rising = sum(after == before + 1 for before, after in pairwise(numbers) if before >= 0)
    return len(lines) > 3 and rising >= 0.7 * (len(lines) - 1)


def looks_like_code(lines: Sequence[str]) -> bool:
    """Whether most of these lines end or begin as code does, and something is defined or imported."""
    bare = [strip_number(line) for line in lines if line.strip()]
    if len(bare) < 5 or sum(line.startswith(_MARKDOWN) for line in bare) > 1:
        return False
    ends = sum(1 for line in bare if _END.search(line[-40:]) or _PYTHONIC.match(line[:80]))
    named = sum(1 for line in bare if DEFINITION.match(line[:300]) or _IMPORT.match(line[:160]))
    return ends >= 0.5 * len(bare) and named >= 1


def outline(text: str, first_line: int | None = 1) -> Outline:
    """Every line, definitions and imports first.

    Args:
        text: Source code; lines may begin with the numbers that a tool printed.
        first_line: Number of the first line in its file; `None` where it is not known: then lines are not numbered, and gaps are marked.
    """
    source = lines_of(text)
    numbered = is_numbered([line for line in source if line.strip()][1:60])
    bare = [strip_number(line) for line in source] if numbered else source
    ranks = edge_ranks(bare)
    raise_edges(ranks, 30, 4, 1)
    definitions, last = 0, -1
    for position, line in enumerate(bare):
        rank = _rank(line[:400])
        if rank >= FILL:
            continue
        raise_rank(ranks, position, rank)
        if rank < 10:
            definitions, last = definitions + 1, position
            _first_words(bare, ranks, position, rank)
    raise_rank(ranks, last, 0)  # how far it goes
    # What fills is the file from its head on: a whole beginning says more than the ends of two halves.
    ranks = [FILL + position if FILL <= rank < NEVER else rank for position, rank in enumerate(ranks)]
    lines = source if numbered or first_line is None else _numbered(source, first_line)
    title = f"source code, {counted(len(source), 'lines')}, {counted(definitions, 'definitions')}"
    return Outline(kind="code", title=title, lines=lines, ranks=ranks, gaps=lines is source and not numbered)


def _numbered(lines: Sequence[str], first: int) -> list[str]:
    width = len(str(first + len(lines)))
    return [f"{number:>{width}}: {line}" if line.strip() else "" for number, line in enumerate(lines, first)]


def _rank(line: str) -> int:
    depth = (len(line) - len(line.lstrip())) // 2
    if line[:1] in "}" or line.lstrip()[:1] in _NO_START:
        return FILL
    if DEFINITION.match(line):
        return 2 + min(depth, 7)
    if line.endswith("{") and _METHOD.match(line) and not _NO_METHOD.match(line):
        return 3 + min(depth, 6)
    if _IMPORT.match(line):
        return 12
    if depth == 0 and line[:1].isalpha() and "(" in line and _C_FUNCTION.match(line) and not _PYTHONIC.match(line):
        return 3
    if _CONSTANT.match(line):
        return 14
    return 16 if any(mark in line for mark in _MARKS) else FILL


def _first_words(lines: Sequence[str], ranks: list[int], position: int, rank: int) -> None:
    """The line after a definition, if it tells what it is for."""
    if position + 1 < len(lines) and lines[position + 1].lstrip().startswith(('"""', "'''", "///", "//", "#")):
        raise_rank(ranks, position + 1, 20 + rank)
