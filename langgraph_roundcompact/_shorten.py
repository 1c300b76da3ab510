"""Fitting texts into a budget: head and tail stay, what was left out is said, the largest give way first.

One common cap for all texts (water-filling): small texts stay whole however many large ones there are. The cap is found from the sorted lengths,
so fitting is O(n log n) in the number of texts and linear in the characters that are kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

_TAIL_SHARE = 3
"""One part in three of what is kept comes from the end."""


def head_and_tail(text: str, cap: int, *, line: str = " ") -> str:
    """`text`, or its head and tail with a statement of how much was left out.

    Args:
        text: Any text.
        cap: Characters of the text to keep; the statement comes on top.
        line: What stands around the statement: a blank, or a line break for texts of many lines.
    """
    if len(text) <= cap:
        return text
    kept = max(cap, 1)
    tail = kept // _TAIL_SHARE
    head = kept - tail
    omitted = len(text) - head - tail
    note = f"{line}[… {omitted:,} of {len(text):,} characters left out …]{line}"
    return text if len(note) >= omitted else text[:head] + note + text[len(text) - tail :]


class Waterline:
    """Finds the cap under which texts of given lengths come to a given sum."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self._sorted = sorted(lengths)
        self._sums = [0, *accumulate(self._sorted)]

    @property
    def total(self) -> int:
        """Characters of all texts."""
        return self._sums[-1]

    @property
    def longest(self) -> int:
        """Characters of the longest text."""
        return self._sorted[-1] if self._sorted else 0

    def cap(self, characters: int) -> int:
        """The largest common cap under which the texts have at most `characters` together; at least 0."""
        low, high = 0, self.longest
        while low < high:
            middle = (low + high + 1) // 2
            whole = bisect_right(self._sorted, middle)
            if self._sums[whole] + (len(self._sorted) - whole) * middle <= characters:
                low = middle
            else:
                high = middle - 1
        return low
