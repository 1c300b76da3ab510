"""Diffs of git and patch: every file with its counts, every hunk by its header, then the changed lines, taken from all hunks in turn."""

from __future__ import annotations

import re
from dataclasses import dataclass

from langgraph_roundcompact.tiers.previews._outline import FILL, HIDDEN, Outline, counted, edge_ranks, lines_of, raise_edges, raise_rank

_HUNK = re.compile(r"@@@? -\d{1,9}(?:,(\d{1,9}))?(?: -\d{1,9}(?:,\d{1,9})?)? \+\d{1,9}(?:,(\d{1,9}))? @@")
_FILE = re.compile(r"diff --(?:git|cc|combined) |Index: \S|--- (?:\S|\"[^\"])")
_HEADER = re.compile(r"index [0-9a-f]|--- |\+\+\+ |(?:old|new) mode |={20,}|similarity index |\\ No newline")
_NEWS = re.compile(r"(?:new|deleted) file|rename (?:from|to) |copy (?:from|to) |Binary files |GIT binary patch|<{7} |={7}$|>{7} ")
_DROPPED = HIDDEN
"""Rank of a line that the one line of its file stands for."""
_COMMIT = re.compile(r"commit [0-9a-f]{7,64}\b|Author: |Date: |Subject: |From: ")
_STAT = re.compile(r" \d+ files? changed|\s\S.{0,200} \| +(?:\d+ [+-]*|Bin )")


@dataclass(slots=True)
class _File:
    """One file of a diff while it is read."""

    at: int
    name: str
    added: int = 0
    removed: int = 0
    hunks: int = 0
    head: int = 1
    """Lines of its head: what its one line stands for."""

    def count(self, sign: str) -> None:
        """One more changed line."""
        if sign == "+":
            self.added += 1
        else:
            self.removed += 1


def outline(text: str) -> Outline:
    """Every line of the diff; the head of each file is one line with its name and counts."""
    source = lines_of(text)
    files, ranks = _read(source)
    lines: list[str] = []
    kept: list[int] = []
    units: dict[int, int] = {}
    starts = {file.at: file for file in files}
    for position, line in enumerate(source):
        file = starts.get(position)
        if file is not None:
            units[len(lines)] = file.head
            lines.append(f"[{file.name}: +{file.added:,} -{file.removed:,}, {counted(file.hunks, 'hunks')}]")
            kept.append(1)
        elif ranks[position] != _DROPPED:
            lines.append(line)
            kept.append(ranks[position])
    added, removed = sum(file.added for file in files), sum(file.removed for file in files)
    title = f"diff, {counted(len(files), 'files')}, +{added:,} -{removed:,} lines, {counted(len(source), 'lines')}"
    return Outline(kind="diff", title=title, lines=lines, ranks=kept, units=units)


def _read(lines: list[str]) -> tuple[list[_File], list[int]]:
    """The files of a diff, and a rank for each line."""
    files: list[_File] = []
    ranks = edge_ranks(lines)
    raise_edges(ranks, 60, 3, 2)
    old = new = base = changed = 0
    for position, line in enumerate(lines):
        hunk = _HUNK.match(line)
        if hunk and files:
            old, new, changed = int(hunk.group(1) or 1), int(hunk.group(2) or 1), 0
            files[-1].hunks += 1
            base = _hunk_rank(files[-1])
            raise_rank(ranks, position, base)
        elif old > 0 or new > 0:
            old -= line[:1] not in ("+", "\\")
            new -= line[:1] not in ("-", "\\")
            if line[:1] in ("+", "-"):
                files[-1].count(line[0])
                if len(line) > 1 and not line[1:].isspace():
                    changed += 1
                    raise_rank(ranks, position, base + min(changed, 60))
        elif _FILE.match(line) and _starts_file(lines, position, files):
            files.append(_File(position, _name(lines, position)))
        elif _HEADER.match(line) and files and files[-1].hunks == 0:
            ranks[position] = _DROPPED
            files[-1].head += 1
        else:
            raise_rank(ranks, position, _rank_outside(line))
    return files, ranks


def _hunk_rank(file: _File) -> int:
    """A hunk comes after the first changes of the one before it."""
    return 2 + 5 * min(file.hunks - 1, 60)


def _rank_outside(line: str) -> int:
    """Rank of a line that is in no hunk: what happened to a file, who changed it and why."""
    if _NEWS.match(line) or _COMMIT.match(line):
        return 2
    if _STAT.match(line):
        return 3
    return 4 if line.startswith("    ") else FILL


def _starts_file(lines: list[str], position: int, files: list[_File]) -> bool:
    """Whether a line opens a new file: `--- a` does only where no `diff` or `Index` line stands just before it."""
    if not lines[position].startswith("--- "):
        return True
    follows = position + 1 < len(lines) and lines[position + 1].startswith("+++ ")
    return follows and not (files and position - files[-1].at <= 8 and files[-1].hunks == 0)


def _name(lines: list[str], position: int) -> str:
    """The path of the file that opens here: the new one, or the old one of a file that was deleted."""
    old = ""
    for line in lines[position : position + 10]:
        if line.startswith("+++ "):
            name = _path(line)
            return old if name == "/dev/null" and old else name
        if line.startswith("--- "):
            old = _path(line)
    return lines[position].rpartition(" ")[2].removeprefix("b/")[:300]


def _path(line: str) -> str:
    name = line[4:].partition("\t")[0].strip().strip('"')[:300]
    return name[2:] if name[:2] in ("a/", "b/") else name
