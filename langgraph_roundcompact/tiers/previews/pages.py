"""HTML pages: title, headings, main text, lists, tables and links, without the markup.

The page is cut at its tags by one regular expression that never looks back; nothing is built as a tree. So a page that was cut off, or is not quite
HTML, is read as far as it goes, and what a page nests costs nothing.
"""

from __future__ import annotations

import contextlib
import html
import re
from dataclasses import dataclass, field

from langgraph_roundcompact.tiers.previews._odd import raise_odd
from langgraph_roundcompact.tiers.previews._outline import FILL, Outline, counted, raise_rank

_TOKEN = re.compile(r"<!--|<!\[CDATA\[|<([/!?]?)([A-Za-z][A-Za-z0-9:-]{0,40})([^<>]{0,20000})>|<[!?][^<>]{0,2000}>")
_ATTRIBUTE = re.compile(
    r"\b(href|content|name|property|alt|role|charset)\s{0,3}=\s{0,3}(?:\"([^\"]{0,2000})\"|'([^']{0,2000})'|([^\s\"'>]{1,2000}))", re.IGNORECASE
)
_SPACE = re.compile(r"\s+")
_SILENT = {"script", "style", "template", "svg", "noscript", "iframe", "object", "canvas", "select"}
_ASIDE = {"nav", "footer", "aside", "header", "form"}
_MAIN = {"main", "article"}
_HEADINGS = {"h1": 1, "h2": 2, "h3": 3, "h4": 4, "h5": 5, "h6": 6}
_BLOCKS = {
    "p", "div", "section", "article", "main", "nav", "footer", "aside", "header", "form", "li", "ul", "ol", "dl", "dt", "dd", "table", "tr", "thead",
    "tbody", "blockquote", "pre", "figure", "figcaption", "title", "body", "head", "html", "br", "hr", "address", "details", "summary", "option",
    *_HEADINGS,
}  # fmt: skip
TAGS = frozenset(
    _BLOCKS | _SILENT | {"a", "span", "b", "i", "em", "strong", "img", "td", "th", "meta", "link", "input", "button", "label", "code", "small", "sup"}
)
"""Names of elements of HTML."""
_SHORT_LINK = 160
_MOST_LINKS = 2_000


@dataclass(slots=True)
class _Reader:
    """What has been read of a page."""

    lines: list[str] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    tag: str = ""
    """The block that the words stand in."""
    aside: int = 0
    main: int = 0
    title: str = ""
    links: dict[str, str] = field(default_factory=dict)
    href: str = ""
    link_words: int = 0
    """How many of the words stood before the open link."""
    link_end: int = 0
    """How many of the words stood before the end of the last link."""
    linked: int = 0
    """Characters of the block that are links."""
    fresh: bool = False
    """Whether the last block was a heading."""
    headings: int = 0
    last_heading: int | None = None
    """Its line."""
    paragraphs: int = 0

    def text(self, raw: str) -> None:
        """Words between two tags."""
        if not raw.isspace() or self.tag == "pre":
            self.words.append(raw)
        elif self.words:
            self.words.append(" ")

    def flush(self, tag: str) -> None:
        """End the block, and begin the next."""
        if not self.words:
            self.tag, self.linked = tag, 0
            return
        if self.tag == "pre":
            self._preformatted(tag)
            return
        block = _clean("".join(self.words))
        before = self.tag
        self.words.clear()
        linked, self.linked, self.link_words, self.link_end = self.linked, 0, 0, 0
        self.tag = tag
        if not block:
            return
        if before == "title" and not self.title:
            self.title = block
            return
        level = _HEADINGS.get(before, 0)
        self.lines.append(f"{'#' * level} {block}" if level else f"- {block}" if before == "li" else block)
        self.ranks.append(self._rank(block, level, linked))

    def _preformatted(self, tag: str) -> None:
        """Lines whose breaks mean something: examples of code."""
        lines = [line for line in _resolved("".join(self.words)).split("\n") if line.strip()]
        self.lines += lines
        self.ranks += [min(20 + self.paragraphs + position, FILL - 1) for position in range(len(lines))]
        self.words.clear()
        self.linked = self.link_words = self.link_end = 0
        self.tag = tag

    def _rank(self, block: str, level: int, linked: int) -> int:
        """Headings and what stands first under each, then real sentences, then the rest; at last menus and what is beside the page."""
        if self.aside and not self.main:
            return FILL + 500 + len(self.lines)
        if level:
            self.headings += 1
            self.fresh, self.last_heading = True, len(self.lines) - 1
            return min(2 * level + self.headings // 2, FILL - 1)
        # Bytes, not characters: a Chinese sentence is as short as an English word.
        size = len(block.encode("utf-8", "surrogatepass"))
        if linked * 5 > len(block) * 4 or size < 20:
            return FILL + len(self.lines)
        self.paragraphs += 1
        first, self.fresh = self.fresh, False
        rank = 6 + self.headings if first else (10 if self.main else 14) + self.paragraphs
        return min(rank + (20 if size < 60 else 0), FILL - 1)


_MANY_HEADINGS = 12
"""Headings from which the last one comes with the first ones."""


def outline(text: str) -> Outline:
    """The page as lines: title, description, headings and blocks in reading order, links at the end."""
    reader = _Reader()
    _read(text, reader)
    reader.flush("")
    shown = sum(map(len, reader.lines))
    lines, ranks = ([f"title: {reader.title}"], [0]) if reader.title else ([], [])
    links = [f"link: {label} -> {href}" for href, label in reader.links.items()]
    title = (
        f"HTML page, {counted(shown, 'characters')} of text in {counted(len(reader.lines) + len(lines), 'blocks')}, "
        f"{counted(reader.headings, 'headings')}, {counted(len(links), 'links')}"
    )
    raise_odd(reader.lines, reader.ranks, 8)
    if reader.last_heading is not None and reader.headings > _MANY_HEADINGS:
        raise_rank(reader.ranks, reader.last_heading, 2)  # how far the page goes
    lines += reader.lines + links
    ranks += reader.ranks + [60 + 3 * min(position, 300) for position in range(len(links))]
    return Outline(kind="page", title=title, lines=lines, ranks=ranks, unit="blocks")


def _read(text: str, reader: _Reader) -> None:
    """Walk over the tags once."""
    start = 0
    while match := _TOKEN.search(text, start):
        begin, end = match.span()
        if begin > start:
            reader.text(text[start:begin])
        slash, name, attributes = match.groups()
        if name:
            start = _tag(text, reader, slash == "/", name.lower(), attributes, end)
        elif text.startswith("<!--", begin):
            start = _after(text, "-->", end)
        elif text.startswith("<![CDATA[", begin):
            start = _after(text, "]]>", end)
            reader.text(text[end:start].removesuffix("]]>"))
        else:
            start = end
    reader.text(text[start:])


def _tag(text: str, reader: _Reader, closing: bool, name: str, attributes: str, end: int) -> int:
    """One tag; the position after it, or after the element whose content is not text."""
    if name in _BLOCKS:
        _block(reader, name, closing)
    elif name in _SILENT:
        return end if closing or attributes.endswith("/") else _after_element(text, name, end)
    elif name == "a":
        _link(reader, attributes, closing)
    elif name == "meta":
        _meta(reader, attributes)
    elif name in ("td", "th") and not closing and reader.words:
        reader.words.append(" | ")
    return end


def _block(reader: _Reader, name: str, closing: bool) -> None:
    inner = reader.tag if name == "br" else "" if closing else name
    if name == "br" and reader.tag in ("li", "tr", *_HEADINGS):
        reader.words.append(" ")
        return
    reader.flush(inner)
    step = -1 if closing else 1
    if name in _ASIDE:
        reader.aside = max(reader.aside + step, 0)
    elif name in _MAIN:
        reader.main = max(reader.main + step, 0)


def _link(reader: _Reader, attributes: str, closing: bool) -> None:
    if not closing:
        reader.href = html.unescape(_attributes(attributes).get("href", "")) if len(attributes) < 4_000 else ""
        if reader.link_end and reader.link_end == len(reader.words):
            reader.words.append(" ")
        reader.link_words = len(reader.words)
        return
    label = _clean("".join(reader.words[reader.link_words :]))[:_SHORT_LINK]
    href = reader.href
    reader.linked += len(label)
    reader.link_end = len(reader.words)
    if label and href and href[0] != "#" and not href.lower().startswith(("javascript:", "data:")) and len(reader.links) < _MOST_LINKS:
        reader.links.setdefault(href[:500], label)
    reader.href = ""


def _meta(reader: _Reader, attributes: str) -> None:
    found = _attributes(attributes[:4_000])
    if found.get("name", "").lower() == "description" and found.get("content"):
        reader.lines.append(f"description: {_clean(found['content'])}")
        reader.ranks.append(1)


def _attributes(text: str) -> dict[str, str]:
    return {match.group(1).lower(): match.group(2) or match.group(3) or match.group(4) or "" for match in _ATTRIBUTE.finditer(text)}


def _clean(text: str) -> str:
    """Entities resolved, runs of white space as one blank."""
    return _SPACE.sub(" ", _resolved(text)).strip()


def _resolved(text: str) -> str:
    """Entities as the characters they stand for."""
    # A number of thousands of digits is no character.
    with contextlib.suppress(ValueError, OverflowError):
        return html.unescape(text) if "&" in text else text
    return text


def _after(text: str, mark: str, start: int) -> int:
    end = text.find(mark, start)
    return len(text) if end < 0 else end + len(mark)


def _after_element(text: str, name: str, start: int) -> int:
    """The position after `</name>`; of a page that was cut off inside the element, its end."""
    match = _CLOSERS[name].search(text, start)
    return match.end() if match else len(text)


_CLOSERS = {name: re.compile(rf"</{name}\b[^<>]{{0,200}}>", re.IGNORECASE) for name in _SILENT}
