"""An archive entry as items of a store: where a thread's items go, how an entry is split, how it is put together again.

Of an entry the *manifest* is written last. Its parts carry the digest of the whole in their keys, so that two writers of one key, even with
different texts, never mix, and an entry that was written in part cannot be read at all.

Parts are JSON as text. A store would take the data itself, but each has limits of its own: PostgreSQL refuses NUL characters and gives 1e300
back as an integer, SQLite's encoder refuses integers beyond 64 bits and lone surrogates. Text of JSON goes through all of them unchanged.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langgraph_roundcompact._escape import storable
from langgraph_roundcompact.errors import ConfigurationError

FORMAT = 1
_PLAIN_KEY = re.compile(r"(?!x-)[A-Za-z0-9_-]{1,100}")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Ask:
    """A call of a method that a generator wants made on a store or an archive; a driver makes it, sync or async."""

    method: str
    args: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a store."""

    key: str
    value: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The item that makes an entry exist: how many parts it has, and the digest of the whole."""

    key: str
    digest: str
    parts: int

    def part_keys(self) -> list[str]:
        """Keys of the items that hold the text, in order."""
        return [_part_key(self.key, self.digest, "p", number) for number in range(self.parts)]

    def text(self, values: Sequence[Any]) -> str | None:
        """The entry's text from the values of its parts; None when it is not whole."""
        pieces = [value.get("text") if isinstance(value, Mapping) else None for value in values]
        if len(pieces) != self.parts or not all(isinstance(piece, str) for piece in pieces):
            return None
        text = "".join(map(str, pieces))
        return text if _digest(text) == self.digest else None


def checked_namespace(namespace: Any) -> tuple[str, ...]:
    """A prefix that every store takes.

    Raises:
        ConfigurationError: it cannot be one.
    """
    if isinstance(namespace, str) or not isinstance(namespace, Sequence) or not namespace:
        _refuse(namespace, "give labels, for example namespace=('round_compaction',)")
    for label in namespace:
        if not isinstance(label, str) or not label or "." in label or storable(label) != label:
            _refuse(namespace, "each label is a text that is not empty, without dots, NUL and lone surrogates")
    if namespace[0] == "langgraph":
        _refuse(namespace, "the first label must not be 'langgraph', which stores keep for themselves")
    return tuple(namespace)


def _refuse(namespace: Any, why: str) -> None:
    msg = f"namespace={namespace!r:.80} cannot be used: {why}"
    raise ConfigurationError(msg)


def thread_label(thread_id: str | None) -> str:
    """A label for any spelling of a thread's id; no two ids share one, and no id shares that of runs without a thread."""
    name = b"" if thread_id is None else b"thread:" + str(thread_id).encode("utf-8", "surrogatepass")
    return hashlib.sha256(name).hexdigest()[:32]


def to_items(key: str, record: Mapping[str, Any], part_chars: int, thread: str) -> list[Item]:
    """The items of an entry, in the order in which they are written; the last is the manifest.

    Args:
        key: The entry's key, any text.
        record: Plain data.
        part_chars: Characters of text in one item.
        thread: The label of the thread whose entry it is.
    """
    text = _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(record, ensure_ascii=False, separators=(",", ":")))
    digest, name = _digest(text), item_key(key)
    pieces = [text[start : start + part_chars] for start in range(0, len(text), part_chars)]
    parts = [Item(_part_key(name, digest, "p", number), {"kind": "part", "text": piece}) for number, piece in enumerate(pieces)]
    return [*parts, Item(name, {"kind": "entry", "format": FORMAT, "key": storable(key), "digest": digest, "parts": len(pieces), "thread": thread})]


def passage_items(key: str, digest: str, passages: Sequence[Mapping[str, Any]]) -> list[Item]:
    """Items for a store's own index: the texts alone, with what tells them apart from those of another version of the entry."""
    return [
        Item(
            _part_key(item_key(key), digest, "s", number),
            {"kind": "passage", "entry": item_key(key), "digest": digest, **passage, "text": storable(str(passage["text"]))},
        )
        for number, passage in enumerate(passages)
    ]


def item_key(key: str) -> str:
    """The key of an entry's manifest: the key itself where every store takes it, else a digest."""
    return key if _PLAIN_KEY.fullmatch(key) else "x-" + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def read_manifest(key: str, value: Any, thread: str) -> Manifest | None:
    """The manifest in an item's value; None for everything else, and for that of another thread."""
    if not isinstance(value, Mapping) or value.get("kind") != "entry" or value.get("format") != FORMAT:
        return None
    if value.get("thread", thread) != thread:
        return None
    digest, parts = value.get("digest"), value.get("parts")
    return Manifest(key, digest, parts) if isinstance(digest, str) and isinstance(parts, int) else None


def _part_key(name: str, digest: str, kind: str, number: int) -> str:
    return f"{name}-{digest[:16]}-{kind}{number:05d}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
