"""Search results and lists of files: grouped by file or folder with counts, the first match of each before the second of any."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from langgraph_roundcompact.tiers.previews._odd import raise_odd
from langgraph_roundcompact.tiers.previews._outline import FILL, Outline, counted, edge_ranks, lines_of, raise_edges, raise_rank

LOCATED = re.compile(
    r"(?P<name>(?:[A-Za-z]:)?[^\s:,;(){}\"'<>|][^:\n\"'<>|(){};]{0,300}?)(?::\d{1,7}:|:\d{1,7}:\d{1,5}[: ]|\(\d{1,7},\d{1,5}\): )|--$"
)
"""A match: `path:12:text`, `path:12:7: text`, `path(12,7): text`; or what `grep` prints between two places."""
_UNNUMBERED = re.compile(r"(?P<name>[^\s:]{1,300}):(?=\S)")
"""A match without a line number: `path:text`."""
CONTEXT = re.compile(r"(?P<name>[^\s:,;(){}\"'<>|][^:,;(){}\"'<>|\n]{0,300}?)-(\d{1,7})-")
"""The context of a match: `path-13-text`."""
PATH = re.compile(r"(?:\./|/|~/|[A-Za-z]:[\\/])?(?:[\w.@+()\[\] \-]{1,100}[\\/]){0,30}[\w.@+()\[\]\- ]{1,100}/?:?$")
"""One path a line, as `find`, `ls -R` and file searches print them."""
LISTED = re.compile(r"[bcdlps-][r-][w-][xsS-][r-][w-][xsS-][r-][w-][xtT-][@+.]?\s|total \d+$")
"""A line of `ls -l`."""
NUMBERED = re.compile(r"(\d{1,7})([:\-])")
"""A match under the path of its file: `12:text`, or the context of one, `13-text`."""
_PROBLEM = re.compile(r"[Ee]rror\b|ERROR|[Ww]arning\b|WARN|FAILED|: [A-Z]{1,4}\d{2,5}\b")


def outline(text: str) -> Outline:
    """The results under the files they are in, each file with the number of its matches where there are several."""
    source = lines_of(text)
    places = _one_name(_places(source))
    counts = Counter(place.name for place in places if place and place.match)
    sizes = Counter(place.name for place in places if place)
    problem = [_PROBLEM.search(line[:300]) is not None for line in source]
    what = "diagnostics" if sum(problem) * 2 > len(source) else "search results"
    files = f" in {counted(len(counts), 'files')}" if "" not in counts else ""
    title = f"{what}, {counted(sum(counts.values()), 'matches')}{files}, {counted(len(source), 'lines')}"
    ranks = edge_ranks(source)
    raise_edges(ranks, 9, 0, 1)
    seen: Counter[str] = Counter()
    for position, place in enumerate(places):
        if place is None:
            if source[position] != "--":
                raise_rank(ranks, position, 8)
        elif place.match:
            seen[place.name] += 1
            raise_rank(ranks, position, min(10 * seen[place.name], FILL - 1) - 3 * problem[position])
    if sum(problem) * 2 <= len(source):
        raise_odd(source, ranks, 0)
    return _grouped(source, ranks, places, title, _headings(counts, sizes))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a line of the results belongs."""

    name: str
    """The file, or an empty text."""
    match: bool
    """Whether it is a match, not the context of one."""
    prefix: int
    """Characters of the line that name the file."""


def _places(lines: list[str]) -> list[_Place | None]:
    """For each line its place; none for headings, summaries and separators."""
    places: list[_Place | None] = []
    heading = ""
    for line in lines:
        numbered = NUMBERED.match(line)
        located = None if numbered else LOCATED.match(line)
        context = None if numbered or located else CONTEXT.match(line) or _UNNUMBERED.match(line)
        if numbered:
            places.append(_Place(heading, numbered.group(2) == ":", 0))
        elif located and located.group("name"):
            places.append(_Place(located.group("name"), True, located.end("name") + (line[located.end("name")] == ":")))
        elif context:
            places.append(_Place(context.group("name"), context.re is _UNNUMBERED, context.end("name") + 1))
        else:
            heading = line.rstrip(":") if PATH.match(line) and line != "--" else heading if line.strip() else ""
            places.append(None)
    return places


def _one_name(places: list[_Place | None]) -> list[_Place | None]:
    """The same places, where a file that is named by its whole path in one line and by the end of it in another has one name."""
    short: dict[str, str] = {}
    for place in places:
        if place and place.match:
            short.setdefault(place.name.rpartition("/")[2], place.name)
    names: dict[str, str] = {}
    for place in places:
        if place and place.name not in names:
            known = short.get(place.name.rpartition("/")[2], "")
            names[place.name] = known if known and place.name.endswith("/" + known) else place.name
    return [replace(place, name=names[place.name]) if place and names[place.name] != place.name else place for place in places]


def _headings(matches: Counter[str], sizes: Counter[str]) -> dict[str, str]:
    """The line of each file that has several lines."""
    return {name: f"[{name[:200]}: {counted(matches[name], 'matches')}]" for name, size in sizes.items() if size > 1 and name}


def _grouped(source: list[str], ranks: list[int], places: list[_Place | None], title: str, headings: Mapping[str, str]) -> Outline:
    """Under the line of its file, a match is shown without the name of the file."""
    lines: list[str] = []
    kept: list[int] = []
    units: dict[int, int] = {}
    needs: dict[int, int] = {}
    group, name = -1, ""
    for position, line in enumerate(source):
        place = places[position]
        if place and place.prefix and place.name in headings:
            if group < 0 or place.name != name:
                group, name = len(lines), place.name
                units[group] = 0
                lines.append(headings[name])
                kept.append(5)
            needs[len(lines)] = group
            kept[group] = min(kept[group], ranks[position])
        lines.append(line[place.prefix :] if len(lines) in needs and place else line)
        kept.append(ranks[position])
    return Outline(kind="search", title=title, lines=lines, ranks=kept, units=units, needs=needs, cap=160)


def paths_outline(text: str) -> Outline:
    """A list of paths: how many in each folder, the first ones of every folder, both ends of the list."""
    source = lines_of(text)
    ranks = edge_ranks(source)
    raise_edges(ranks, 4, 3, 2)
    folders: Counter[str] = Counter()
    for position, line in enumerate(source):
        folder = "" if LISTED.match(line) else line.rstrip("/").rpartition("/")[0]
        folders[folder] += 1
        raise_rank(ranks, position, min(10 * folders[folder], FILL - 1))
    largest = sorted(folders.items(), key=lambda item: -item[1])[:12]
    counts = [f"[{folder or '.'}/: {counted(count, 'paths')}]" for folder, count in largest if count > 2 and len(folders) > 1]
    title = f"list of paths, {counted(len(source), 'paths')} in {counted(len(folders), 'folders')}"
    shift = len(counts)
    return Outline(kind="search", title=title, lines=counts + source, ranks=[3] * shift + ranks, unit="paths", units=dict.fromkeys(range(shift), 0))
