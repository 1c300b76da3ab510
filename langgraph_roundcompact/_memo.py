"""The bounded table in which a compactor remembers finished summaries, failures and stand-ins: a cache, losing an entry costs one attempt."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any


class BoundedTable:
    """A thread-safe mapping that forgets what was not used for the longest time."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, Any] = OrderedDict()

    def get(self, *keys: str) -> Any:
        """The value of the first key that is known, else None."""
        with self._lock:
            for key in keys:
                if key in self._entries:
                    self._entries.move_to_end(key)
                    return self._entries[key]
        return None

    def put(self, key: str, value: Any) -> None:
        """Remember a value; it must not be changed afterwards."""
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            while len(self._entries) > self._size:
                self._entries.popitem(last=False)

    def __len__(self) -> int:
        return len(self._entries)
