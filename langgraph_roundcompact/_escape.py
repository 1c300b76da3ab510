"""Text from outside must not open or close our own tags.

Tool output, file contents and model answers end up between our tags, so each of them could close the block it stands in and speak in its
place. Escaping everything would spoil HTML, XML and generics that the agent must see exactly; deleting would lose facts. So only the first
character of what reads as one of *our* tags or marks is written as an entity: `</section>` becomes `&lt;/section>`. What is read stays
readable, nothing else changes, and doing it again changes nothing.

Two names are also HTML (`section`, `summary`); there, not being fooled wins over showing the file exactly. A comparison such as
`i < section` is no tag: behind a gap an opening needs a `>` or an attribute.
"""

from __future__ import annotations

import re

OWN_TAGS = (
    r"memory_block_\w*+",
    "recovered_context",
    "section",
    "summary",
    "ledger",
    "meaning",
    "conflict_policy",
    "state_snapshot",
    "instruction",
    "system[-_]reminder",
)
"""Names of the tags that frame our blocks, as patterns."""

OWN_MARKS = ("COMPRESSION_RECALL", "STATE_REINJECTION")
"""Words that, behind an opening bracket, mark a pointer or a message of ours."""

# White space, and characters that look like nothing: a reader would still see the tag.
_GAP = r"[\s\u00ad\u200b-\u200f\u2060\ufeff\ufffd]"
_NAME = rf"(?:{'|'.join(OWN_TAGS)})(?![\w.:-])"
# Possessive gaps: each `<` looks at what follows once, so the scan stays linear in text made of `<` and blanks.
_OWN = re.compile(
    rf"<(?={_NAME}|{_GAP}*+/{_GAP}*+{_NAME}|{_GAP}++{_NAME}{_GAP}*+(?:/{_GAP}*+)?(?:>|[\w:-]++{_GAP}*+=(?!=)))|\[(?={_GAP}*+(?:{'|'.join(OWN_MARKS)}))",
    re.IGNORECASE,
)
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """`text` with NUL and lone surrogates, which databases and UTF-8 refuse, as U+FFFD."""
    return text if text.isascii() and "\x00" not in text else _UNSTORABLE.sub("\ufffd", text)


def neutralise(text: str) -> str:
    """`text` as it may stand between our own tags.

    Args:
        text: Anything; several megabytes are fine, the time is linear.

    Returns:
        The same text, except that tags and marks of ours no longer read as such and characters that cannot be stored are replaced.
    """
    text = storable(text)
    if "<" not in text and "[" not in text:
        return text
    return _OWN.sub(_entity, text)


def _entity(match: re.Match[str]) -> str:
    return "&lt;" if match[0] == "<" else "&#91;"
