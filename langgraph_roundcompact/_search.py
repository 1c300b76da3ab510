"""Finding passages by words: the words a text is found by, and BM25 over them.

An agent's text is not prose. A question says "the session state file" or "CapturePrePromptState", the text says `cli/session_state.go:174`. So each
name is findable whole, by its parts and by its words; words are findable in other forms of theirs; and in scripts that write no blanks, by
pairs of characters.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache

from langgraph_roundcompact._terms import parts_of

K1, B = 1.2, 0.75
"""BM25's usual figures. Measured on recorded work, others are no better."""
PREFIX = 5
"""Letters by which words of one stem still match (normalise, normalisation): suffixes differ from language to language, beginnings do not."""
LONGEST_QUERY = 10_000
"""Characters of a query that are read."""
SHORT_ID = 7
"""Letters by which a hash or an id is called in short."""

_LONGEST_RUN, _LONGEST_WORD = 300, 60
_RUN = re.compile(r"[\w./:@~+\-#$%]+")
_EDGE = ".,:;/-+@#$%~"
_WORD = re.compile(r"[^\W_]+")
_ID = re.compile(r"(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7}", re.IGNORECASE)
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
# Kana, ideographs, hangul; Thai, Lao, Burmese, Khmer.
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\U00020000-\U0003ffff]+")
_SUFFIXES = (("ies", "y"), ("sses", "ss"), ("ing", ""), ("edly", ""), ("ed", ""), ("ly", ""), ("es", ""), ("s", ""))


def words_of(text: str) -> list[str]:
    """What a text can be found by, as often as it occurs. Linear; never raises."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return [word for run in _RUN.findall(text) for word in (_words_of_run(run) if len(run) <= _LONGEST_RUN else _words_in(run))]


def scores(documents: Sequence[Sequence[str]], query: Collection[str]) -> list[float]:
    """BM25 of each document, in plain Python: what is used where the library is not installed.

    Args:
        documents: The words of each.
        query: What is looked for, each word once.
    """
    counts = [Counter(document) for document in documents]
    mean = max(sum(map(len, documents)) / max(len(documents), 1), 1)
    found = [0.0] * len(documents)
    for word in query:
        holding = [(number, count[word]) for number, count in enumerate(counts) if word in count]
        weight = math.log(1 + (len(documents) - len(holding) + 0.5) / (len(holding) + 0.5))
        for number, often in holding:
            found[number] += weight * often / (often + K1 * (1 - B + B * len(documents[number]) / mean))
    return found


def query_words(query: str) -> list[str]:
    """What is looked for, each word once, in a fixed order; of a query that is no query, what its beginning says."""
    return sorted(set(words_of(query[:LONGEST_QUERY])))


def best_lines(text: str, query: str, tokens: int, estimate: Callable[[str], int]) -> str:
    """The run of lines of at most `tokens` tokens that holds most of what is looked for."""
    wanted = set(query_words(query))
    lines = [line[start : start + 2_000] for line in text.splitlines(keepends=True) for start in range(0, len(line), 2_000)]
    sizes = [estimate(line) + 1 for line in lines]
    hits = [len(wanted.intersection(words_of(line))) for line in lines]
    best, best_hits, start, size, held = (0, 0), -1, 0, 0, 0
    for stop in range(1, len(lines) + 1):
        size, held = size + sizes[stop - 1], held + hits[stop - 1]
        while size > tokens and start < stop - 1:
            size, held, start = size - sizes[start], held - hits[start], start + 1
        if held > best_hits:
            best, best_hits = (start, stop), held
    return "".join(lines[best[0] : best[1]])[: tokens * 8]


@lru_cache(maxsize=65_536)
def _words_of_run(run: str) -> tuple[str, ...]:
    """A run of the characters that names are made of: its words, the whole, and the names inside it."""
    name = run.strip(_EDGE)
    words = _words_in(name)
    if len(words) < 2 or _UNSPACED.search(name):
        return tuple(words)
    parts = (name, *parts_of(name), *re.split("[/:.]", name))
    names = dict.fromkeys(part.lower() for part in parts if _PART.fullmatch(part) is None)
    names |= dict.fromkeys(part[:SHORT_ID].lower() for part in parts if _ID.match(part))
    return (*words, *("=" + part for part in names if part))


def _words_in(run: str) -> list[str]:
    found: list[str] = []
    for word in _WORD.findall(run):
        if word.isascii():
            found += [form for part in _PART.findall(word) if len(part) <= _LONGEST_WORD for form in _forms(part.lower())]
        elif _UNSPACED.search(word):
            found += _pairs(word)
        elif len(word) <= _LONGEST_WORD:
            found += _forms(word.casefold())
    return found


def _pairs(word: str) -> list[str]:
    """Pairs of characters where no blanks are written, and the words of other scripts beside them."""
    found = [piece[i : i + 2] for piece in _UNSPACED.findall(word) for i in range(max(len(piece) - 1, 1))]
    return found + [form for rest in _UNSPACED.split(word) if rest for form in _forms(rest.casefold())]


def _forms(word: str) -> tuple[str, ...]:
    stem = _stem(word) if word.isalpha() else word
    return (stem, "^" + word[:PREFIX]) if len(word) > PREFIX + 1 and word.isalpha() else (stem,)


def _stem(word: str) -> str:
    """A word without the endings of plural and of verbs; rough, and the same for question and text."""
    if len(word) < 4:
        return word
    for suffix, ending in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3 and not (suffix == "s" and word.endswith("ss")):
            word = word[: len(word) - len(suffix)] + ending
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "ls":
        word = word[:-1]
    return word[:-1] if len(word) > 3 and word.endswith("e") else word
