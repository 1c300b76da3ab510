"""Terms: the short exact strings in a text that nobody can rebuild from a paraphrase.

Paths, file names, `file:line`, URLs, hashes, ids, versions, amounts, identifiers. They are
recognised by shape alone, never by a list of tools or of languages. The text is first cut into runs of the characters such strings are made
of, in one linear pass, and each run is then judged by itself, once for all texts that repeat it; a run of a megabyte (base64, minified code)
costs one look at its length.
"""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass, field
from functools import lru_cache

Term = tuple[str, str]
"""`(kind, text)`: the kind is `url`, `path`, `place` (file and line), `id`, `date`, `number` or `name`."""

MAX_TERM = 160
"""Characters. Longer runs are payload, not names."""

_URL = re.compile(r"https?://[^\s\"'<>`\\)\]}，。；）]{3,300}")
_RUN = re.compile(r"[#$@~./]?\w[\w./:@~+\-#$%]*")
_CLOSING_TAG = re.compile(r"</[\w:\-]{1,60}>")
_ESCAPE = re.compile(r"\\[nrt](?=\w)")
# What must not stand in front is asked behind the first letter: `re` skips to a member of a set at C speed, and to nothing else.
_PROPER = re.compile(r"[A-Z](?<!\w.)[a-z]{2,15}(?: [A-Z][A-Za-z]{1,15}){1,3}\b")
_WIDE_NUMBER = re.compile(r"\d[\d.,:]{0,12} ?[年月日号时分秒万亿千百元块倍个家名人次单座岁吨米件家所条款项章%](?:\d{1,2}[月日号])?")
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\.?"
_MONTH_NAME = re.compile(rf"\b{_MONTH}$")
_DATE = re.compile(rf"\b{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?(?:, ?\d{{4}})?\b|\b\d{{1,2}} {_MONTH} \d{{4}}\b")
_HEX = re.compile(r"[0-9a-f]{7,64}|[0-9A-F]{7,64}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NUMBER = re.compile(r"[#$v]?\d[\d.,_:/\-]{0,20}(?:%|[A-Za-z]{1,4})?")
_TELLING_NUMBER = re.compile(r"[#$v]\d.*|.*%|\d{1,3}(?:[.,:]\d+)+|\d{4,}|\d+[a-zA-Z]{2,4}|\d{4}-\d\d.*")
_FILE = re.compile(r"[\w\-+@.]{1,80}\.[A-Za-z][A-Za-z0-9]{0,5}")
_PLACE = re.compile(r"[^:]{1,150}\.\w{1,10}(?::\d+){1,2}")
_CAMEL = re.compile(r"[a-z\d][A-Z]|[A-Z]{2}[a-z]")
_WORD_IN_NAME = re.compile(r"[A-Z]?[a-z]{3,}|[A-Z]{3,}(?![a-z])")
_EXTENSIONS = frozenset(
    re.findall(
        r"\w+",
        "py pyi js jsx ts tsx mjs cjs go rs java kt c h cc cpp hpp cs rb php swift scala m mm lua r jl ex exs erl hs ml dart vue svelte sh bash zsh "
        "ps1 bat sql proto tf gradle md rst txt json jsonl yaml yml toml ini cfg conf env xml html htm css scss csv tsv log lock patch diff orig "
        "original bak tmp out err pem key crt png jpg jpeg gif svg webp ico mp3 mp4 wav pdf docx xlsx pptx zip gz tgz tar whl jar ipynb db sqlite "
        "parquet pkl pt bin exe so dll map snap mod sum",
    )
)
"""Endings by which a bare name is a file; with a directory before it any name is one."""
_COMMON_PARTS = re.compile(r"[ .]")
_LETTER = re.compile(r"[A-Za-z]")
_LETTERS = re.compile(r"[A-Za-z]{2}")
_DIFF_SIDE = re.compile(r"[ab]/[^/]+(?:/|\.\w{1,5}$)")
"""A path as diffs write it, with its side in front."""
_EDGE = ".,:;/-+@"
_IN_RUN = re.compile(rb"[\w./:@~+\-#$%\x80-\xff]")
_APART = bytes(byte if _IN_RUN.match(bytes([byte])) else 32 for byte in range(256))
_DIGIT = re.compile(r"\d")


@dataclass(slots=True)
class Seen:
    """What is known of words that were looked at already: the texts of one round repeat most of theirs."""

    words: dict[str, tuple[Term, ...]] = field(default_factory=dict)
    months: set[str] = field(default_factory=set)
    """Words with the name of a month."""


def terms_in(text: str, seen: Seen | None = None) -> list[Term]:
    """Each term of a text, once, in reading order of its first occurrence.

    Args:
        text: Any text.
        seen: What is known of words, for many texts in a row.
    """
    seen = seen or Seen()
    found: dict[Term, None] = {}
    if "://" in text:
        found.update(dict.fromkeys(("url", url.rstrip(".,;:")) for url in _URL.findall(text)))
    if "</" in text:
        text = _CLOSING_TAG.sub(" ", text)  # it is no path
    if "\\" in text:
        # In quoted source a newline is written with a letter, which is not part of the name after it.
        text = _ESCAPE.sub(" ", text)
    words, known = dict.fromkeys(_cut(text)), seen.words
    for word in words:
        terms = known.get(word)
        if terms is None:
            terms = known[word] = _terms_of(word)
            if not word.islower() and _MONTH_NAME.search(word):
                seen.months.add(word)
        for term in terms:
            found[term] = None
    found.update(dict.fromkeys(("name", name) for name in _PROPER.findall(text)))
    if not seen.months.isdisjoint(words):
        found.update(dict.fromkeys(("date", date) for date in _DATE.findall(text)))
    if not text.isascii():
        found.update(dict.fromkeys(("number", number) for number in _WIDE_NUMBER.findall(text)))
    return list(found)


def is_common(name: str, words: Container[str]) -> bool:
    """Whether a name is ordinary words in capitals, at the start of a sentence, or on both sides of a full stop without a space.

    Args:
        name: The name.
        words: All words that came up.
    """
    if name.isalpha():
        return name.isupper() and name.lower() in words
    parts = _COMMON_PARTS.split(name)
    return 1 < len(parts) < 5 and all(part.isalpha() and part.lower() in words for part in parts) and (" " in name or parts[-1].istitle())


def _cut(text: str) -> list[str]:
    """The text cut at every character of ASCII that no term holds, and at white space."""
    return text.encode("utf-8", "surrogatepass").translate(_APART).decode("utf-8", "surrogatepass").split()


def _terms_of(word: str) -> tuple[Term, ...]:
    """The terms in a piece of `_cut`."""
    if word.isalpha() and word.islower():
        return ()
    if word.isascii() and (word[0].isalnum() or word[0] == "_"):
        return _judge(word) if len(word) <= MAX_TERM else ()
    runs = dict.fromkeys(_RUN.findall(word))
    return tuple(dict.fromkeys(term for run in runs if len(run) <= MAX_TERM and not (run.isalpha() and run.islower()) for term in _judge(run)))


@lru_cache(maxsize=65_536)
def _judge(run: str) -> tuple[Term, ...]:
    term = run.rstrip(_EDGE)
    if len(term) < 2 or "//" in term:
        return ()
    if _DIFF_SIDE.match(term):
        term = term[2:]
    kind = kind_of(term)
    found = [(kind, term)] if kind else []
    # `file:12:code` and `key:value` hold terms of their own.
    if kind in ("", "place") and ":" in term:
        for part in term.split(":"):
            inner = kind_of(part)
            if inner and inner != "number":
                found.append((inner, part))
    return tuple(found)


def kind_of(term: str) -> str:
    """The kind of one run of characters; `""` for an ordinary word."""
    if not term or not term.isascii():
        return ""
    if term.isalpha():
        return _kind_of_letters(term)
    if _HEX.fullmatch(term):
        return "id" if _DIGIT.search(term) and not term.isdigit() else "number"
    if term[0] in "#$v0123456789" and _NUMBER.fullmatch(term):
        return "number" if _TELLING_NUMBER.fullmatch(term) else ""
    if ":" in term:
        return "place" if _PLACE.fullmatch(term) else ""
    if "/" in term:
        return "path" if _LETTERS.search(term) else ""
    if _FILE.fullmatch(term):
        return "path" if term.rsplit(".", 1)[1].lower() in _EXTENSIONS else "name"
    return "name" if _is_name(term) else ""


def _kind_of_letters(term: str) -> str:
    if len(term) < 4 or term.islower() or term[1:].islower():
        return ""
    if term.isupper():
        return "number" if _HEX.fullmatch(term) else "name"
    return "name" if _CAMEL.search(term) else ""


def _is_name(term: str) -> bool:
    if len(term) < 4 or not _LETTER.search(term):
        return False
    return (
        "_" in term.strip("_")
        or ("." in term.strip(".") and _LETTERS.search(term) is not None)
        or term.isupper()
        or _CAMEL.search(term) is not None
        or ("-" in term and _DIGIT.search(term) is not None)
        or term[0].isdigit()
    )


@lru_cache(maxsize=65_536)
def parts_of(term: str) -> tuple[str, ...]:
    """Shorter terms that stand inside a term, so that whoever shows the long one shows them too."""
    parts: list[str] = []
    bare = term
    if ":" in bare and "://" not in bare:
        bare = bare.split(":", 1)[0]
        parts.append(bare)
    if "/" in term and "://" not in term:
        pieces = bare.split("/")[-7:]
        tails = ["/".join(pieces[start:]) for start in range(1, len(pieces))]
        parts += tails
        parts += [tail + term[len(bare) :] for tail in tails if bare != term]
    elif "." in bare:
        parts += [piece for piece in bare.split(".") if len(piece) > 3]
    return tuple(part for part in parts if part and part != term)


@lru_cache(maxsize=65_536)
def words_in_name(name: str) -> tuple[str, ...]:
    """The words a compound name is made of, each once, in lower case."""
    return tuple(dict.fromkeys(word.lower() for word in _WORD_IN_NAME.findall(name)))
