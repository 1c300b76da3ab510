"""Tables (CSV, TSV and their like, Markdown, columns of a database client): header, types of the columns, rows of both ends, number of rows."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence

from langgraph_roundcompact.tiers.previews._outline import Outline, counted, edge_ranks, lines_of, raise_edges, raise_rank

DELIMITERS = ",\t;|"
_INTEGER = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+$|[+-]?\d+$")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?%?$")
_DATE = re.compile(r"\d{4}[-/]\d{1,2}[-/]\d{1,2}(?:[T ]\d{1,2}:\d{2}\S{0,20})?$|\d{1,2}[./]\d{1,2}[./]\d{4}$")
_RULE = re.compile(r"[|+\s:=-]{3,}$")
_ODD = ("error", "fail", "exception")
_SAMPLE = 2_000
"""Rows whose values tell the type of a column."""
_MOST_COLUMNS = 200
_MOST_ODD = 20
_CELL = 60
"""Characters of a value that tell its type."""


def delimiter_of(lines: Sequence[str]) -> str:
    """The delimiter that cuts nearly all of these lines into the same number of two columns or more; an empty text where there is none."""
    some = [line for line in lines if line.strip() and not _RULE.match(line)]
    if len(some) < 3:
        return ""
    best, found = 0.0, ""
    for delimiter in DELIMITERS:
        counts = Counter(len(row) for row in _rows(some, delimiter))
        columns, rows = counts.most_common(1)[0] if counts else (1, 0)
        share = rows / max(sum(counts.values()), 1)
        if columns > 1 and share >= 0.8 and _tabular(some, delimiter, columns) and share * columns > best:
            best, found = share * columns, delimiter
    return found


def _tabular(lines: Sequence[str], delimiter: str, columns: int) -> bool:
    """Whether the pieces are cells, not the halves of sentences."""
    if sum("{" in line for line in lines) > len(lines) // 2:
        return False
    if delimiter in ",;" and sum(line.count(delimiter) == line.count(delimiter + " ") for line in lines) > len(lines) // 2:
        ended = sum(line.rstrip()[-1:] in ".!?。！？" for line in lines)
        return columns > 2 and ended < len(lines) // 4
    return not (delimiter == "|" and columns < 3 and not lines[0].startswith("|"))


def outline(text: str, delimiter: str) -> Outline:
    """Header and types as the first lines, then the rows."""
    lines = [line for line in lines_of(text) if line.strip()]
    rules = {position for position, line in enumerate(lines[:3]) if _RULE.match(line)}
    header_at = next((position for position in range(len(lines)) if position not in rules), 0)
    table = _rows([line for line in lines[header_at:] if not _RULE.match(line)], delimiter)
    has_header = _looks_like_header(table)
    rows = table[1:] if has_header else table
    columns = max((len(row) for row in table[:50]), default=0)
    names = table[0] if has_header and table else [f"column {i + 1}" for i in range(columns)]
    first = header_at + has_header
    ranks = edge_ranks(lines)
    raise_edges(ranks, 3, first + 2, 2)
    for position in range(first):
        raise_rank(ranks, position, 0 if position == header_at else 2)
    _mark_odd(lines, ranks, first)
    types = f"[columns: {_types(names, rows)}]"
    shown = [*lines[:first], types, *lines[first:]]
    units = dict.fromkeys(range(first + 1), 0)
    # Rows that go over several lines are counted as the reader of the format counts them.
    title = f"table, {counted(len(rows), 'rows')} x {counted(columns, 'columns')}"
    unit = "rows" if len(rows) == len(lines) - first else "lines"
    return Outline(kind="table", title=title, lines=shown, ranks=[*ranks[:first], 1, *ranks[first:]], unit=unit, units=units)


def _rows(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    """The cells; of lines that the csv module does not take, by the delimiter alone."""
    if delimiter == "|":
        return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    try:
        return [row for row in csv.reader(lines, delimiter=delimiter) if row]
    except csv.Error:
        return [line.split(delimiter) for line in lines]


def _mark_odd(lines: list[str], ranks: list[int], first: int) -> None:
    """A few rows that speak of errors or stand out by it."""
    odd: list[int] = []
    for position in range(first, len(lines)):
        lower = lines[position][:400].lower()
        if any(word in lower for word in _ODD):
            odd.append(position)
            if len(odd) > _MOST_ODD:
                return  # no exceptions, but what the table is about
    for order, position in enumerate(odd):
        raise_rank(ranks, position, 10 + order)


def _looks_like_header(table: Sequence[Sequence[str]]) -> bool:
    if len(table) < 2 or not table[0]:
        return False
    head = [cell.strip() for cell in table[0]]
    return all(head) and len(set(head)) == len(head) and not any(_INTEGER.match(cell) or _NUMBER.match(cell) or _DATE.match(cell) for cell in head)


def _types(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    some = rows if len(rows) <= _SAMPLE else [*rows[: _SAMPLE // 2], *rows[-_SAMPLE // 2 :]]
    told = []
    for index, name in enumerate(names[:_MOST_COLUMNS]):
        values = [cell for row in some if index < len(row) and (cell := row[index][:_CELL].strip())]
        told.append(f"{name.strip()[:40]} {_type(values, len(some))}")
    if len(names) > _MOST_COLUMNS:
        told.append(f"… {len(names) - _MOST_COLUMNS:,} more")
    return ", ".join(told)


def _type(values: Sequence[str], rows: int) -> str:
    if not values:
        return "empty"
    empty = f" ({round(100 * (rows - len(values)) / rows)} % empty)" if len(values) < rows else ""
    for name, pattern in (("integer", _INTEGER), ("number", _NUMBER), ("date", _DATE)):
        if all(pattern.match(value) for value in values):
            return name + _span(name, values) + empty
    return "text" + empty


def _span(name: str, values: Sequence[str]) -> str:
    """Smallest and largest value of a column, as they are written."""
    if name == "date":
        return f" {min(values)}…{max(values)}"
    keyed = sorted(((_float(value), value) for value in {*values[:_SAMPLE]}), key=lambda pair: pair)
    return f" {keyed[0][1]}…{keyed[-1][1]}" if keyed[-1][0] > keyed[0][0] else ""


def _float(value: str) -> float:
    return float(value.replace(",", "").rstrip("%"))
