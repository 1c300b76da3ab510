"""Text from outside must not open or close our own tags.

Tool output, file contents and model answers end up between our tags, so each of them could close the block it stands in and speak in its
place. Escaping everything would spoil HTML, XML and generics that the agent must see exactly; deleting would lose facts. So only the first
character of what reads as one of *our* tags or marks is written as an entity: `</section>` becomes `&lt;/section>`. What is read stays
readable, nothing else changes, and doing it again changes nothing.

What reads as a tag is decided by what a reader sees: blanks and invisible characters inside, other cases, a backslash as in JSON, and
characters of the same shape (`_lookalikes`) make no difference. What is an entity already is not a tag: nobody here decodes entities.

Two names are also HTML (`section`, `summary`); there, not being fooled wins over showing the file exactly. A comparison such as
`i < section` is no tag: behind a gap an opening needs a `>` or an attribute.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from langgraph_roundcompact._lookalikes import INVISIBLE, plainly_seen

OWN_TAGS = (
    "memory_block_",
    "recovered_context",
    "section",
    "summary",
    "ledger",
    "meaning",
    "conflict_policy",
    "state_snapshot",
    "instruction",
    "system-reminder",
    "system_reminder",
)
"""Names of the tags that frame our blocks; one that ends in `_` stands for all that begin so."""

OWN_MARKS = ("COMPRESSION_RECALL", "STATE_REINJECTION")
"""Words that, behind an opening bracket, mark a pointer or a message of ours."""

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_ENTITIES = {"<": "&lt;", "[": "&#91;"}


def storable(text: str) -> str:
    """`text` with NUL and lone surrogates, which databases and UTF-8 refuse, as U+FFFD."""
    return text if text.isascii() and "\x00" not in text else _UNSTORABLE.sub("\ufffd", text)


def escaper(tags: Sequence[str], marks: Sequence[str], *, joined: bool = False) -> Callable[[str], str]:
    """A function that takes the meaning from tags and marks in a text.

    Args:
        tags: Names of tags; one that ends in `_` stands for all that begin so.
        marks: What an opening bracket may not stand in front of.
        joined: The texts are put one behind the other, so one may not end in the beginning of a tag whose rest is in the next.

    Returns:
        A function from a text (several megabytes are fine, the time is linear) to the same text, except that these tags and marks no longer
        read as such and characters that cannot be stored are replaced. It changes nothing in its own result.
    """
    usual, odd = (_pattern(tags, marks, between, joined=joined) for between in ("", f"[{INVISIBLE}]*+"))

    def escape(text: str) -> str:
        text = storable(text)
        seen = plainly_seen(text)
        if seen is not None:
            return _at(text, [found.start() for found in odd.finditer(seen)])
        return usual.sub(lambda found: _ENTITIES[found[0]], text) if "<" in text or "[" in text else text

    return escape


def _pattern(tags: Sequence[str], marks: Sequence[str], between: str, *, joined: bool) -> re.Pattern[str]:
    """The sign in front of a tag or a mark. `between`: what may stand between two letters of a name."""
    gap = rf"[\s{INVISIBLE}]"
    names = "|".join(between.join(map(re.escape, tag)) + (rf"(?:\w|{between}\w)*+" if tag.endswith("_") else "") for tag in tags)
    name = rf"(?:{names})(?![\w.:-])"
    # Possessive gaps: each `<` looks at what follows once, so the scan stays linear in text made of `<` and blanks.
    opening = rf"{gap}++{name}{gap}*+(?:/{gap}*+)?(?:>|[\w:-]++{gap}*+=(?!=))"
    words = "|".join(between.join(map(re.escape, mark)) for mark in marks)
    slashes = rf"(?:{gap}*+[/\\])"
    tag_ends, mark_ends = (rf"|{slashes}*+{gap}*+\Z", r"|\Z") if joined else ("", "")
    return re.compile(rf"<(?={between}{name}|{slashes}++{gap}*+{name}|{opening}{tag_ends})|\[(?={gap}*+(?:{words}{mark_ends}))", re.IGNORECASE)


def _at(text: str, places: Sequence[int]) -> str:
    """`text` with an entity in each of the places."""
    out, done = [], 0
    for at in places:
        out += [text[done:at], _ENTITIES.get(text[at]) or f"&#{ord(text[at])};"]
        done = at + 1
    return "".join([*out, text[done:]]) if out else text


neutralise = escaper(OWN_TAGS, OWN_MARKS)
"""A text as it may stand between our own tags."""
