"""The archive of replaced originals on a LangGraph `BaseStore`, and the tool that finds them again.

An entry is written whole before the update that points to it. Its key comes from its content, so a retry finds the same entry; what a later
failure leaves behind is an orphan, never a false pointer. A thread's entries live under a namespace made of a digest of its id: no spelling
of an id reads another thread's.

What is to be done with a store, and with an archive, is written once, as generators that yield what they ask for (`Ask`); two small drivers
answer, one sync, one async. The async one advances them in a thread: cutting and indexing a long conversation takes longer than an event loop
should wait.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from langgraph.errors import GraphBubbleUp
from langgraph.store.base import BaseStore, GetOp, PutOp

from langgraph_roundcompact._archive_access import Corpus, arun, refused, run
from langgraph_roundcompact._archive_items import (
    Ask,
    Item,
    Manifest,
    checked_namespace,
    item_key,
    passage_items,
    read_manifest,
    thread_label,
    to_items,
)
from langgraph_roundcompact._entry_text import passages
from langgraph_roundcompact._estimate import estimate_tokens
from langgraph_roundcompact._memo import BoundedTable
from langgraph_roundcompact._recall_text import points_to
from langgraph_roundcompact._recall_tool import create_recall_tool, sized_recall_tool
from langgraph_roundcompact._search import LONGEST_QUERY, query_words, words_of
from langgraph_roundcompact.errors import ArchiveError, ConfigurationError

__all__ = ["PART_CHARS", "StoreArchive", "create_recall_tool", "sized_recall_tool"]

log = logging.getLogger("langgraph_roundcompact")

T = TypeVar("T")
Flow: TypeAlias = Generator[Ask, Any, T]

PART_CHARS = 100_000
"""Characters of text in one item: at most 400 kB as UTF-8, which is the least that stores allow."""
_PAGE, _BATCH = 500, 100
_PREPARED_ENTRIES, _KNOWN_LINKS, _CORPORA = 128, 8192, 8
_OVERFETCH = 20
"""Times as many passages as wanted are asked of a store's index, because some may be of other rounds or of replaced versions."""


class StoreArchive:
    """An archive in a LangGraph store (in memory, SQLite, PostgreSQL, Redis …).

    Args:
        store: Where entries go; None: the store of the run around (`compile(store=...)`).
        namespace: Prefix of all namespaces; labels without dots.
        ttl: Minutes after which entries that nobody reads expire, where the store supports it; None: the store's own default.
        timeout_seconds: How long writing an entry may take; 0: no limit. A slower write counts as failed. In sync code the limit is looked at
            between items: a single call that hangs is ended by the driver's own limit.
        part_chars: Characters of text in one item of the store.

    Raises:
        ConfigurationError: an argument cannot work.
    """

    def __init__(
        self,
        store: BaseStore | None = None,
        *,
        namespace: Sequence[str] = ("round_compaction",),
        ttl: float | None = None,
        timeout_seconds: float = 30.0,
        part_chars: int = PART_CHARS,
    ) -> None:
        if store is not None and not isinstance(store, BaseStore):
            msg = f"store={store!r:.80} cannot be used: give a langgraph BaseStore, for example InMemoryStore(), or None for the store of the run"
            raise ConfigurationError(msg)
        for name, value, least in (("ttl", ttl, 0.0), ("timeout_seconds", timeout_seconds, -1.0), ("part_chars", part_chars, 0.0)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > least):
                msg = f"{name}={value!r:.80} cannot be used: give a number {'of at least 0' if least < 0 else 'above 0'}"
                raise ConfigurationError(msg)
        self._store = store
        self._prefix = checked_namespace(namespace)
        self._ttl = ttl
        self._limit = timeout_seconds
        self._part_chars = max(int(part_chars), 1)
        self._prepared = BoundedTable(_PREPARED_ENTRIES)
        self._links = BoundedTable(_KNOWN_LINKS)
        self._corpora = BoundedTable(_CORPORA)
        if ttl is not None and store is not None and not store.supports_ttl:
            log.warning("%s cannot expire entries: ttl=%s has no effect there", type(store).__name__, ttl)

    def put(self, key: str, record: Mapping[str, Any], *, thread_id: str | None = None) -> None:
        """Write an entry whole.

        Raises:
            ArchiveError: it could not be written, or not be read back as it was written.
        """
        store = self._reach()
        run(self._writing(store, self._space(thread_id), key, record), store, self._limit)

    async def aput(self, key: str, record: Mapping[str, Any], *, thread_id: str | None = None) -> None:
        """Same as `put`, awaited; a write over the time limit is cancelled."""
        store = self._reach()
        await arun(self._writing(store, self._space(thread_id), key, record), store, self._limit)

    def get(self, key: str, *, thread_id: str | None = None) -> dict[str, Any] | None:
        """Read an entry back; None when the thread has none under this key, or none that is whole.

        Raises:
            ArchiveError: the store could not be read. So for all that read.
        """
        return run(self._reading(self._space(thread_id), key), self._reach())

    async def aget(self, key: str, *, thread_id: str | None = None) -> dict[str, Any] | None:
        """Same as `get`, awaited."""
        return await arun(self._reading(self._space(thread_id), key), self._reach())

    def keys(self, *, thread_id: str | None = None) -> list[str]:
        """The keys of a thread's entries, sorted."""
        return run(self._listing(self._space(thread_id)), self._reach())

    async def akeys(self, *, thread_id: str | None = None) -> list[str]:
        """Same as `keys`, awaited."""
        return await arun(self._listing(self._space(thread_id)), self._reach())

    def search(self, query: str, *, thread_id: str | None = None, limit: int = 3, archive_ids: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Passages of the thread's entries nearest to the query, best first.

        By the store's own index where it has one, else by BM25.

        Args:
            query: What to look for, in words.
            thread_id: Whose entries.
            limit: The most passages.
            archive_ids: Only these entries, and those they point to themselves; None: all of the thread.

        Returns:
            For each passage `archive_id`, `message_id`, `message_ids`, `role`, `tool`, `text`, its place `start`, `stop` in the `length`
            characters of its entry, and `score`.
        """
        store = self._reach()
        return run(self._searching(store, self._space(thread_id), query, limit, archive_ids), store)

    async def asearch(
        self, query: str, *, thread_id: str | None = None, limit: int = 3, archive_ids: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """Same as `search`, awaited."""
        store = self._reach()
        return await arun(self._searching(store, self._space(thread_id), query, limit, archive_ids), store)

    def delete(self, *, thread_id: str | None = None) -> None:
        """Delete all entries of a thread.

        Raises:
            ArchiveError: something is still there.
        """
        run(self._deleting(self._space(thread_id)), self._reach())

    async def adelete(self, *, thread_id: str | None = None) -> None:
        """Same as `delete`, awaited."""
        await arun(self._deleting(self._space(thread_id)), self._reach())

    def _space(self, thread_id: str | None) -> tuple[str, ...]:
        # Store namespaces may not hold dots, and an id may be anything: the digest is both safe and one to one.
        return (*self._prefix, thread_label(thread_id))

    def _reach(self) -> BaseStore:
        if self._store is not None:
            return self._store
        try:
            from langgraph.config import get_store  # noqa: PLC0415 - needed only for the store of a run

            store = get_store()
        except Exception as exc:
            msg = "there is no store: this archive uses the store of the run, so compile the graph with compile(store=...)"
            raise ArchiveError(msg) from exc
        if store is None:
            msg = "the run has no store: compile the graph with compile(store=...), or give the archive one: StoreArchive(store)"
            raise ArchiveError(msg)
        return store

    # --- writing and reading ----------------------------------------------------------------------------------------------------------

    def _writing(self, store: BaseStore, space: tuple[str, ...], key: str, record: Mapping[str, Any]) -> Flow[None]:
        *parts, last = to_items(key, record, self._part_chars, space[-1])
        ttl = {"ttl": self._ttl} if self._ttl is not None and store.supports_ttl else {}
        for item in parts:
            yield from _put(space, item, ttl)
        if _has_index(store):
            yield from self._index(store, space, passage_items(key, last.value["digest"], passages(key, record, estimate_tokens)))
        yield from _put(space, last, ttl)
        manifest = yield from _manifest(space, last.key)
        whole = manifest is not None and manifest.digest == last.value["digest"] and (yield from _text(space, manifest)) is not None
        if not whole:
            msg = f"archive entry {key} was not written whole"
            raise ArchiveError(msg)

    def _index(self, store: BaseStore, space: tuple[str, ...], items: Sequence[Item]) -> Flow[None]:
        ttl = self._ttl if self._ttl is not None else (store.ttl_config or {}).get("default_ttl")
        for start in range(0, len(items), _BATCH):
            # In one call, so that their embeddings are made in one call.
            answers = yield Ask("batch", ([PutOp(space, item.key, item.value, index=["text"], ttl=ttl) for item in items[start : start + _BATCH]],))
            if any(map(refused, answers)):
                msg = "the store refused passages of an archive entry"
                raise ArchiveError(msg)

    def _reading(self, space: tuple[str, ...], key: str) -> Flow[dict[str, Any] | None]:
        manifest = yield from _manifest(space, item_key(key))
        text = (yield from _text(space, manifest)) if manifest is not None else None
        return None if text is None else dict(json.loads(text))

    def _listing(self, space: tuple[str, ...]) -> Flow[list[str]]:
        return sorted((yield from _manifests(space)))

    def _deleting(self, space: tuple[str, ...]) -> Flow[None]:
        gone: set[str] = set()
        while keys := [item.key for item in (yield from _items(space, None))]:
            if gone.issuperset(keys):
                msg = f"{len(keys)} items of an archive could not be deleted"
                raise ArchiveError(msg)
            gone.update(keys)
            for start in range(0, len(keys), _BATCH):
                yield Ask("batch", ([PutOp(space, key, None) for key in keys[start : start + _BATCH]],))

    # --- searching ------------------------------------------------------------------------------------------------------------------------

    def _searching(
        self, store: BaseStore, space: tuple[str, ...], query: str, limit: int, archive_ids: Sequence[str] | None
    ) -> Flow[list[dict[str, Any]]]:
        if not query.strip() or limit < 1:
            return []
        if _has_index(store):
            try:
                return (yield from self._by_index(space, query, limit, archive_ids))
            except GraphBubbleUp:
                raise
            except Exception as exc:  # noqa: BLE001 - an embedding service that is away; the words are still there
                log.warning("the store's index could not be asked (%s); passages are looked for by words", type(exc).__name__)
        words = query_words(query)
        corpus = (yield from self._corpus(space, archive_ids)) if words else None
        return corpus.best(words, limit) if corpus is not None else []

    def _by_index(self, space: tuple[str, ...], query: str, limit: int, archive_ids: Sequence[str] | None) -> Flow[list[dict[str, Any]]]:
        """What the store's own index finds, without passages of other entries and of replaced versions."""
        if archive_ids is None:
            manifests = list((yield from _manifests(space)).values())
        else:
            manifests = list((yield from self._scope(space, archive_ids)).values())
        current = {(manifest.key, manifest.digest) for manifest in manifests}
        page = yield Ask(
            "search", (space,), {"query": query[:LONGEST_QUERY], "filter": {"kind": "passage"}, "limit": limit * _OVERFETCH, "refresh_ttl": False}
        )
        hits = [item for item in page if item.score is not None and (item.value.get("entry"), item.value.get("digest")) in current]
        return [{**{key: value for key, value in item.value.items() if key not in _OWN_FIELDS}, "score": item.score} for item in hits[:limit]]

    def _scope(self, space: tuple[str, ...], archive_ids: Sequence[str] | None) -> Flow[dict[str, Manifest]]:
        """The entries to look into, by their keys: those named and those they point to, or all of the thread."""
        if archive_ids is None:
            return dict(sorted((yield from _manifests(space)).items()))
        waiting = list(dict.fromkeys(archive_ids))
        seen = set(waiting)
        found: dict[str, Manifest] = {}
        for key in waiting:  # grows while it runs
            manifest = yield from _manifest(space, item_key(key))
            links = (yield from self._points_to(space, key, manifest)) if manifest is not None else None
            if manifest is not None and links is not None:
                found[key] = manifest
                waiting += [one for one in links if one not in seen]
                seen.update(links)
        return found

    def _points_to(self, space: tuple[str, ...], key: str, manifest: Manifest) -> Flow[Sequence[str] | None]:
        """Where an entry points to; None when it is not whole."""
        known: Sequence[str] | None = self._links.get(_name(space, manifest))
        if known is not None:
            return known
        entry = yield from self._entry(space, key, manifest)
        return entry.points_to if entry is not None else None

    def _entry(self, space: tuple[str, ...], key: str, manifest: Manifest) -> Flow[_Entry | None]:
        """An entry made ready to be searched, once."""
        name = _name(space, manifest)
        known: _Entry | None = self._prepared.get(name)
        if known is not None:
            return known
        text = yield from _text(space, manifest)
        if text is None:
            return None
        record = json.loads(text)
        entry = _Entry(tuple(passages(key, record, estimate_tokens)), tuple(points_to(record)))
        self._prepared.put(name, entry)
        self._links.put(name, entry.points_to)
        return entry

    def _corpus(self, space: tuple[str, ...], archive_ids: Sequence[str] | None) -> Flow[Corpus | None]:
        """What is searched by words, indexed once; None where there is nothing."""
        scope = yield from self._scope(space, archive_ids)
        # Of any number of entries a name of one length.
        name = hashlib.sha256("\n".join(_name(space, manifest) for manifest in scope.values()).encode()).hexdigest()
        known: Corpus | None = self._corpora.get(name)
        if known is not None:
            return known
        entries = []
        for key, manifest in scope.items():
            entry = yield from self._entry(space, key, manifest)
            entries += [entry] if entry is not None else []
        held = [passage for entry in entries for passage in entry.passages]
        if not held:
            return None
        corpus = Corpus(held, [words for entry in entries for words in entry.words])
        self._corpora.put(name, corpus)
        return corpus


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry made ready to be searched."""

    passages: tuple[dict[str, Any], ...]
    points_to: tuple[str, ...]
    _words: list[list[str]] = field(default_factory=list)

    @property
    def words(self) -> list[list[str]]:
        """The words of each passage; found out once."""
        if len(self._words) != len(self.passages):
            self._words[:] = [words_of(passage["text"]) for passage in self.passages]
        return self._words


def _name(space: tuple[str, ...], manifest: Manifest) -> str:
    return f"{'/'.join(space)}/{manifest.key}/{manifest.digest}"


# --- asking a store ------------------------------------------------------------------------------------------------------------------------


def _put(space: tuple[str, ...], item: Item, ttl: Mapping[str, Any]) -> Flow[None]:
    if refused((yield Ask("put", (space, item.key, item.value), {"index": False, **ttl}))):
        msg = "the store answered with an error"
        raise ArchiveError(msg)


def _manifest(space: tuple[str, ...], key: str) -> Flow[Manifest | None]:
    item = yield Ask("get", (space, key))
    return read_manifest(key, getattr(item, "value", None), space[-1])


def _text(space: tuple[str, ...], manifest: Manifest) -> Flow[str | None]:
    """An entry's text; None when it is not whole."""
    values: list[Any] = []
    keys = manifest.part_keys()
    for start in range(0, len(keys), _BATCH):
        items = yield Ask("batch", ([GetOp(space, key) for key in keys[start : start + _BATCH]],))
        values += [getattr(item, "value", None) for item in items]
    return manifest.text(values)


def _items(space: tuple[str, ...], kind: Mapping[str, str] | None) -> Flow[list[Any]]:
    """All items of exactly this namespace, or those of a kind."""
    found: dict[tuple[Any, ...], Any] = {}
    offset = 0
    while True:
        page = yield Ask("search", (space,), {"filter": None if kind is None else dict(kind), "limit": _PAGE, "offset": offset, "refresh_ttl": False})
        before = len(found)
        found.update(((*item.namespace, item.key), item) for item in page)
        offset += len(page)
        # A store that does not know offsets answers with the same page for ever.
        if len(page) < _PAGE or len(found) == before:
            mine = [item for item in found.values() if _is_of(item, space)]
            return [item for item in mine if kind is None or item.value.get("kind") == kind["kind"]]


def _manifests(space: tuple[str, ...]) -> Flow[dict[str, Manifest]]:
    """What says which entries a thread has, by their keys."""
    items = yield from _items(space, {"kind": "entry"})
    found = ((str(item.value.get("key")), read_manifest(item.key, item.value, space[-1])) for item in items)
    return {key: manifest for key, manifest in found if manifest is not None}


def _is_of(item: Any, space: tuple[str, ...]) -> bool:
    """Whether an answer is an item of this namespace and none below; a store may put a tenant's name in front."""
    return tuple(item.namespace)[-len(space) :] == space and isinstance(item.value, Mapping)


_OWN_FIELDS = ("kind", "entry", "digest")


def _has_index(store: BaseStore) -> bool:
    return bool(getattr(store, "index_config", None))
