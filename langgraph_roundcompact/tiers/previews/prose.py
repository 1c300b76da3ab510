"""Plain text in any language: head and tail, headings, the first lines of sections, and lines that speak of errors."""

from __future__ import annotations

import re

from langgraph_roundcompact.tiers.previews._odd import raise_odd
from langgraph_roundcompact.tiers.previews._outline import Outline, counted, edge_ranks, lines_of, raise_edges, raise_rank

_HEADING = re.compile(
    r"(?:\s{0,40}\d{1,7}[→\t|:])?"
    r"(?:#{1,6} \S|\d{1,3}(?:\.\d{1,3}){1,4}\.? [^\W\d]|(?:第[一二三四五六七八九十百\d]{1,6}[章节条部篇]|[一二三四五六七八九十]{1,3}、).{1,40}$)"
)
_TITLE = re.compile(r"(?:\d{1,3}|[IVX]{1,5}|[A-Z])\. .{1,60}[^.;:,]$|[A-Z][A-Z &/-]{3,60}$")
"""A heading if it stands alone."""
_RULE = re.compile(r"\s{0,3}(?:={3,}|-{3,}|~{3,})\s*$")
_ERROR = re.compile(r"\s{0,8}(?:\w{1,40} ){0,4}(?:\w{0,60}Error|\w{0,60}Exception|error|ERROR|fatal|FATAL|Failed|failed|错误|失败)\b\s?[:：(]")


def outline(text: str) -> Outline:
    """Every line, with headings and edges first."""
    lines = lines_of(text)
    ranks = edge_ranks(lines)
    raise_edges(ranks, 2, 3, 2)
    raise_odd(lines, ranks, 4)
    headings = 0
    for position, line in enumerate(lines):
        if len(line) < 4:
            continue
        if _HEADING.match(line) or (_TITLE.match(line) and _alone(lines, position)):
            headings += 1
            _section(lines, ranks, position, min(position + 3, len(lines)), _level(line))
        elif _RULE.match(line) and position and 0 < len(lines[position - 1].strip()) < 100 and not lines[max(position - 2, 0)].strip():
            headings += 1
            raise_rank(ranks, position - 1, 3)
        elif _ERROR.match(line):
            raise_rank(ranks, position, 3)
    return Outline(
        kind="text",
        title=f"text, {counted(len(lines), 'lines')}" + (f", {counted(headings, 'headings')}" if headings else ""),
        lines=lines,
        ranks=ranks,
    )


def _alone(lines: list[str], position: int) -> bool:
    """Whether the lines around are blank."""
    before = position == 0 or not lines[position - 1].strip()
    return before and position + 1 < len(lines) and not lines[position + 1].strip()


def _section(lines: list[str], ranks: list[int], heading: int, stop: int, level: int) -> None:
    """A heading, and later the first line of what it stands over."""
    raise_rank(ranks, heading, 2 + level)
    for position in range(heading + 1, stop):
        if lines[position].strip():
            raise_rank(ranks, position, 20 + level)
            break


def _level(line: str) -> int:
    body = line.lstrip("0123456789 →\t|:")
    return max(len(body) - len(body.lstrip("#")), 1)
