"""Values in manifests of `kind: Secret`, as Kubernetes has them: base64 hides nothing, and their names need not tell what they are.

In YAML and in JSON, one or many, also in diffs and in listings with line numbers. A manifest says its kind before or behind its data, and a list
holds other kinds beside it, so the maps of the text are followed: by their indentation in YAML, by their braces in JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from langgraph_roundcompact._secret_judge import MARK, is_placeholder

_Span = tuple[int, int]

_KIND = re.compile(r"kind\\?[\"']?\s{0,3}:\s{0,3}\\?[\"']?Secret(?![\w.])")
_DATA: Final = frozenset({"data", "stringData"})
_DEEPEST: Final = 200


def hide_manifests(text: str) -> str:
    """`text` with `MARK` in place of the values of Kubernetes secrets; linear."""
    if "Secret" not in text or "ata" not in text or _KIND.search(text) is None:
        return text
    out, done = [], 0
    for start, stop in sorted({*_in_yaml(text), *_in_json(text, _TOKEN), *_in_json(text, _ESCAPED_TOKEN)}):
        if start >= done and start < stop and not is_placeholder(text[start:stop]):
            out += [text[done:start], MARK]
            done = stop
    return "".join([*out, text[done:]])


@dataclass(slots=True)
class _Map:
    """A map that is open while the text is read."""

    indent: int = 0
    is_secret: bool = False
    values: list[_Span] = field(default_factory=list)
    """Where values stand in its data."""
    opens_data: bool = False
    """Whether the map inside it that is read now, or comes next, is its data."""
    key: str = ""
    """JSON: the last key, where its value has not come yet."""

    def secrets(self) -> list[_Span]:
        """The values that are secrets, now that the map is complete."""
        return self.values if self.is_secret else []


# --- YAML --------------------------------------------------------------------------------------------------------------------------------

# What a listing or a diff puts in front of a line.
_MARK = re.compile(r"[ \t]{0,8}\d{1,6}(?:\t|→|: ?|\|)|[+>|](?!\Z)|-(?=[\w\"]|  )")
_ENTRY = re.compile(r"(?P<indent>[ ]{0,200}(?:- {1,8}){0,3})(?P<key>[\w./-]{1,253}|\"[^\"\n]{1,253}\") ?:(?![^\s])[ \t]*(?P<value>.*)", re.DOTALL)
_BLOCK = re.compile(r"[|>][+-]?\d?(?: *#.*)?")


def _in_yaml(text: str) -> Iterator[_Span]:
    reader, at = _Yaml(), 0
    for line in text.split("\n"):
        mark = _MARK.match(line)
        skipped = mark.end() if mark else 0
        yield from reader.read(line[skipped:].rstrip(), at + skipped)
        at += len(line) + 1
    yield from reader.closed(-1)


class _Yaml:
    """The maps that are open at a line, outermost first."""

    def __init__(self) -> None:
        self.maps: list[_Map] = []
        self.block: tuple[int, list[_Span]] | None = None
        """A block of text in the data: how its key is indented, and where its lines belong."""

    def read(self, line: str, at: int) -> Iterator[_Span]:
        """Take in the next line, which stands at a place of the text; gives what is known to be secret now."""
        body = line.lstrip(" ")
        indent = len(line) - len(body)
        if self.block is not None and body:
            if indent > self.block[0]:
                self.block[1].append((at + indent, at + len(line)))
                return
            self.block = None
        entry = _ENTRY.match(line)
        if entry is not None:
            # A list item begins a map of its own, however the one before it was indented.
            yield from self.closed(len(entry["indent"]) - ("-" in entry["indent"]))
            self._enter(entry, at)
        elif body.startswith("---"):
            yield from self.closed(-1)

    def closed(self, indent: int) -> Iterator[_Span]:
        """Close the maps that are indented more than so."""
        while self.maps and self.maps[-1].indent > indent:
            yield from self.maps.pop().secrets()

    def _enter(self, entry: re.Match[str], at: int) -> None:
        indent, key, value = len(entry["indent"]), entry["key"].strip('"'), entry["value"]
        if not self.maps or self.maps[-1].indent < indent:
            self.maps = [*self.maps[-_DEEPEST:], _Map(indent)]
        current = self.maps[-1]
        current.is_secret |= key == "kind" and value.strip("\"'") == "Secret"
        current.opens_data = key in _DATA and not value
        outer = self.maps[-2] if len(self.maps) > 1 else None
        if outer is None or not outer.opens_data or not value:
            return
        if _BLOCK.fullmatch(value):
            self.block = (indent, outer.values)
            return
        quoted = len(value) > 1 and value[0] in "\"'" and value[-1] == value[0]
        outer.values.append((at + entry.start("value") + quoted, at + entry.end("value") - quoted))


# --- JSON --------------------------------------------------------------------------------------------------------------------------------

# A string that does not end takes all the rest: to look for its end again from each quote in it would take for ever.
_TOKEN = re.compile(r"[{}]|\"(?P<text>[^\"\\]*+(?:\\.[^\"\\]*+)*+)(?:\"(?P<colon>\s{0,9}:)?|\\?\Z)", re.DOTALL)
# JSON inside a string of JSON.
_ESCAPED_TOKEN = re.compile(r"[{}]|\\\"(?P<text>[^\"\\]*+(?:\\[^\"][^\"\\]*+)*+)\\\"(?P<colon>\s{0,9}:)?", re.DOTALL)


def _in_json(text: str, form: re.Pattern[str]) -> Iterator[_Span]:
    maps: list[_Map] = []
    too_deep = 0
    for token in form.finditer(text):
        if token[0] == "{":
            too_deep += len(maps) >= _DEEPEST
            if not too_deep:
                if maps:
                    maps[-1].opens_data, maps[-1].key = maps[-1].key in _DATA, ""
                maps.append(_Map())
        elif token[0] == "}" and too_deep:
            too_deep -= 1
        elif token[0] == "}":
            yield from maps.pop().secrets() if maps else ()
        elif maps and not too_deep:
            _read_string(maps, token)
    for unfinished in maps:
        yield from unfinished.secrets()


def _read_string(maps: list[_Map], token: re.Match[str]) -> None:
    current = maps[-1]
    if token["colon"]:
        current.key = token["text"]
        return
    key, current.key = current.key, ""
    current.is_secret |= key == "kind" and token["text"] == "Secret"
    if key and len(maps) > 1 and maps[-2].opens_data:
        maps[-2].values.append(token.span("text"))
