"""Characters that a reader takes for others: full-width and mathematical forms, letters of other alphabets, and those that show nothing.

A model reads `＜/ѕummary＞` as the tag it imitates, although no parser does. `plainly_seen` gives a text of the same length in which such characters
are the ones they look like, so that a pattern finds the tag and the place in the original is the same. Only for finding: nobody is shown it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from itertools import chain
from typing import Final

_SPANS: Final = (
    (0x00, 0x08), (0x0E, 0x1F), (0x7F, 0x84), (0x86, 0x9F), (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5),
    (0x180B, 0x180F), (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x2800, 0x2800), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0), (0xFFF0, 0xFFFD), (0xE0000, 0xE0FFF),
)  # fmt: skip
INVISIBLE: Final = "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in _SPANS)
"""Characters that show nothing, for use inside `[…]` of a pattern: controls, joiners, fillers, directions, variation selectors, tags."""

# What stands for `<`, `>`, `[` and `/` elsewhere in Unicode.
_SIGNS: Final = {
    "<": "‹〈〈⟨❮❰ᐸ˂≺⧼",
    ">": "›〉〉⟩❯❱ᐳ˃≻⧽",
    "[": "【〔⟦❲",
    "/": "⁄∕⧸╱⟋⫻",
    "\\": "⧵∖⟍╲",
    "-": "‐‑‒–—−⁃",
}  # fmt: skip
# Letters of other alphabets in the shape of ours: Cyrillic, Greek, Armenian, phonetic small capitals. In pairs, ours first.
_LETTERS: Final = (
    "aа cс dԁ eе hһ iі jј kк lӏ mм nп oо pр qԛ rг sѕ tт uц yу vѵ wѡ xх aА bВ cС eЕ hН iІ jЈ kК mМ oО pР sЅ tТ yУ xХ "
    "aα oο vν pρ uυ iι kκ tτ eε xχ nη wω cϲ aΑ bΒ eΕ zΖ hΗ iΙ kΚ mΜ nΝ oΟ pΡ tΤ yΥ xΧ oօ uս hհ nո gց gɡ "
    "aᴀ bʙ cᴄ dᴅ eᴇ gɢ iɪ jᴊ kᴋ lʟ mᴍ nɴ oᴏ pᴘ rʀ sꜱ tᴛ uᴜ vᴠ wᴡ yʏ zᴢ"
)
# Compatibility forms of ASCII: super- and subscript, circled, small and full-width, mathematical.
_FORMS: Final = (
    (0x02B0, 0x02B8),
    (0x1D2C, 0x1D6A),
    (0x2070, 0x209C),
    (0x2100, 0x214F),
    (0x24B6, 0x24E9),
    (0xFE4D, 0xFE6B),
    (0xFF01, 0xFF5E),
    (0x1D400, 0x1D7FF),
)


def _table() -> Iterator[tuple[int, str]]:
    for start, stop in _FORMS:
        for point in range(start, stop + 1):
            plain = unicodedata.normalize("NFKC", chr(point))
            if len(plain) == 1 and plain.isascii():
                yield point, plain
    for pair in _LETTERS.split():
        yield ord(pair[1]), pair[0]
    for plain, others in _SIGNS.items():
        yield from ((ord(other), plain) for other in others)


_PLAIN: Final = dict(_table())
_SIGN: Final = frozenset(chr(point) for point, plain in _PLAIN.items() if plain in "<[")
_ODD: Final = frozenset(map(chr, chain(_PLAIN, *(range(first, last + 1) for first, last in _SPANS))))


def plainly_seen(text: str) -> str | None:
    """`text` as a reader sees it, character by character; `None` where it holds no opening sign at all, or is what it seems."""
    signs = "<" in text or "[" in text
    if text.isascii() and not signs:
        return None
    characters = set(text)  # ten times as fast as looking for a class of so many characters
    if characters.isdisjoint(_ODD) or not (signs or not characters.isdisjoint(_SIGN)):
        return None
    return text.translate(_PLAIN)
