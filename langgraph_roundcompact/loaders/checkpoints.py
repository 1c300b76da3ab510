"""Conversations from LangGraph's checkpoint databases: SQLite files and PostgreSQL.

Read as the thread's latest checkpoint tells them, with the package that wrote them. A database may come from anywhere, so nothing is written to it,
and values are read with a serialiser that builds LangChain's and LangGraph's own classes alone and never unpickles; objects of other classes stay
plain data. A `DeltaChannel` keeps no list but the writes to one: they are applied again, by the rules of `round_compact_messages_delta`, which for
lists that were never compacted are those of LangGraph's own reducer.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from langchain_core.messages import BaseMessage

from langgraph_roundcompact.loaders._conversation import Conversation, ConversationError, printable, with_ids
from langgraph_roundcompact.loaders._records import RecordError, messages_of, read_records

CONNECT_SECONDS = 10
_THREADS_SHOWN = 8
_SQLITE_EXTRA = "pip install 'langgraph-roundcompact[cli]'"
_POSTGRES_EXTRA = "pip install langgraph-checkpoint-postgres 'psycopg[binary]'"
_THREADS = (
    "SELECT thread_id AS thread, COUNT(*) AS number, MAX(checkpoint_id) AS newest FROM checkpoints WHERE checkpoint_ns = '' "
    "GROUP BY thread_id ORDER BY MAX(checkpoint_id) DESC, thread_id"
)
_SERDE_LOG = "langgraph.checkpoint.serde.jsonplus"


def load_sqlite(path: str | Path, thread: str | None = None, *, messages_key: str = "messages") -> Conversation:
    """The conversation of a thread in a SQLite file that `SqliteSaver` or `AsyncSqliteSaver` wrote. The file is not changed.

    Args:
        path: The database.
        thread: The thread's id; None: the only one there is.
        messages_key: The key of the state that holds the messages.

    Raises:
        ConversationError: the file is no such database, the thread is not in it, or its state has no messages there.
    """
    where = printable(str(path), 300)
    if not Path(path).is_file():
        msg = f"{where}: no such file"
        raise ConversationError(msg)
    with _sqlite(path, where) as connection, _clear_errors(where, sqlite3.Error, "not a database of LangGraph checkpoints"):
        rows = [(str(name), int(count)) for name, count, _ in connection.execute(_THREADS)]
        chosen = _choose(where, rows, thread)
        return _conversation(where, chosen, _sqlite_saver(connection), messages_key)


def load_postgres(url: str, thread: str | None = None, *, messages_key: str = "messages") -> Conversation:
    """The conversation of a thread in a PostgreSQL database that `PostgresSaver` or `AsyncPostgresSaver` wrote. Nothing is changed in it.

    Args:
        url: A libpq URL or connection string.
        thread: The thread's id; None: the only one there is.
        messages_key: The key of the state that holds the messages.

    Raises:
        ConversationError: the database cannot be reached, has no checkpoints, the thread is not in it, or its state has no messages there.
    """
    where = _without_password(url)
    try:
        import psycopg  # noqa: PLC0415 - not a dependency
        from langgraph.checkpoint.postgres import PostgresSaver  # noqa: PLC0415 - not a dependency
        from psycopg.rows import dict_row  # noqa: PLC0415 - not a dependency
    except ImportError as exc:
        msg = f"{where}: reading PostgreSQL needs {exc.name or exc}; {_POSTGRES_EXTRA}"
        raise ConversationError(msg) from None
    with _clear_errors(where, psycopg.Error, "cannot be read"):
        options: dict[str, Any] = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        with psycopg.connect(url, **_with_timeout(url), **options) as connection:
            connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
            if connection.execute("SELECT to_regclass('checkpoints') AS found").fetchone()["found"] is None:  # type: ignore[index]
                msg = f"{where}: no LangGraph checkpoints in this database"
                raise ConversationError(msg)
            rows = [(row["thread"], row["number"]) for row in connection.execute(_THREADS)]
            return _conversation(where, _choose(where, rows, thread), PostgresSaver(connection, serde=_serde()), messages_key)


@contextlib.contextmanager
def _sqlite(path: str | Path, where: str) -> Iterator[sqlite3.Connection]:
    """A connection that cannot write."""
    file = Path(path).absolute()
    # Reading a database in WAL mode leaves files beside it, and fails where none can be made. Without a log nobody has it open, and it can be
    # read as a file that does not change.
    mode = "immutable=1" if _is_idle_wal(file) else "mode=ro"
    try:
        connection = sqlite3.connect(f"file:{quote(str(file))}?{mode}", uri=True, check_same_thread=False)
    except sqlite3.Error as exc:
        msg = f"{where}: cannot be opened ({printable(str(exc), 120)})"
        raise ConversationError(msg) from None
    with contextlib.closing(connection):
        yield connection


def _is_idle_wal(file: Path) -> bool:
    """Whether a database is in WAL mode (two bytes of its header say so) and no connection to it is open."""
    try:
        with file.open("rb") as stream:
            header = stream.read(20)
    except OSError:
        return False
    return header[18:20] == b"\x02\x02" and not file.with_name(file.name + "-wal").exists()


def _sqlite_saver(connection: sqlite3.Connection) -> Any:
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415 - an extra
    except ImportError as exc:
        msg = f"reading SQLite checkpoints needs {exc.name or exc}; {_SQLITE_EXTRA}"
        raise ConversationError(msg) from None
    saver = SqliteSaver(connection, serde=_serde())
    # Its set-up creates tables and switches the journal: not in somebody's file. What it finds out beside that is one column.
    saver.is_setup = True
    saver._has_task_path = any(row[1] == "task_path" for row in connection.execute("PRAGMA table_info(writes)"))  # noqa: SLF001 - see above
    return saver


def _serde() -> Any:
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer  # noqa: PLC0415 - slow to import

    return JsonPlusSerializer(pickle_fallback=False, allowed_json_modules=None, allowed_msgpack_modules=None)


def _choose(where: str, threads: Sequence[tuple[str, int]], wanted: str | None) -> str:
    """The thread to read."""
    names = [name for name, _ in threads]
    if wanted is not None and wanted in names:
        return wanted
    if not names:
        msg = f"{where}: no threads in this database"
        raise ConversationError(msg)
    if wanted is None and len(names) == 1:
        return names[0]
    told = ", ".join(f"{printable(name, 60)} ({count:,} checkpoints)" for name, count in threads[:_THREADS_SHOWN])
    more = f", and {len(names) - _THREADS_SHOWN:,} more" if len(names) > _THREADS_SHOWN else ""
    which = f"{len(names):,} threads, name one with --thread" if wanted is None else f"no thread {printable(wanted, 80)}; there are"
    msg = f"{where}: {which}: {told}{more}"
    raise ConversationError(msg)


def _conversation(where: str, thread: str, saver: Any, key: str) -> Conversation:
    place = f"{where}: thread {printable(thread, 80)}"
    try:
        with _quiet():
            values, value = _state(saver, thread, key)
        if value is None:
            raise ConversationError(_no_messages(place, values, key))
        messages = read_records(value if isinstance(value, list | tuple) else [value])
    except RecordError as exc:
        msg = f"{place}: {printable(key, 40)}: {exc}"
        raise ConversationError(msg) from None
    except (ValueError, TypeError, KeyError, AttributeError, NotImplementedError, RecursionError) as exc:
        # Blobs that are not what LangGraph writes fail in many ways.
        msg = f"{place}: a checkpoint that cannot be read ({type(exc).__name__}: {printable(str(exc), 120)})"
        raise ConversationError(msg) from None
    if not messages:
        msg = f"{place}: a conversation without messages"
        raise ConversationError(msg)
    return Conversation(name=printable(thread, 80), messages=tuple(with_ids(messages)))


def _state(saver: Any, thread: str, key: str) -> tuple[Mapping[str, Any], Any]:
    """What the latest checkpoint holds, and the value under the key; None: there is none."""
    found = saver.get_tuple({"configurable": {"thread_id": thread, "checkpoint_ns": ""}})
    checkpoint = found.checkpoint if found is not None else {}
    values: Mapping[str, Any] = checkpoint.get("channel_values") or {}
    versions = checkpoint.get("channel_versions") or {}
    value = values.get(key)
    if found is not None and not isinstance(value, list) and (key in versions or key in values):
        value = _replayed(saver.get_delta_channel_history(config=found.config, channels=[key])[key], value)
    others = {name: _plain(other) for name, other in values.items()}
    return others | {name: None for name in versions if name not in others}, value


def _replayed(history: Mapping[str, Any], newest: Any) -> Any:
    """The value of a `DeltaChannel`: a snapshot, or one and the writes since then."""
    from langgraph.channels import DeltaChannel  # noqa: PLC0415 - slow to import

    from langgraph_roundcompact.reducer import round_compact_messages_delta  # noqa: PLC0415 - slow to import

    if newest is not None:
        return _plain(newest)
    channel: Any = DeltaChannel(round_compact_messages_delta, list).from_checkpoint(history.get("seed"))
    channel.replay_writes(history.get("writes") or [])
    return channel.get() or None


def _plain(value: Any) -> Any:
    """The value in a snapshot; anything else is what it is."""
    from langgraph.checkpoint.serde.types import _DeltaSnapshot  # noqa: PLC0415 - has no public name

    return value.value if isinstance(value, _DeltaSnapshot) else value


def _no_messages(place: str, values: Mapping[str, Any], key: str) -> str:
    """What is in the state instead."""
    holding = [
        name for name, value in values.items() if isinstance(value, list) and value and (isinstance(value[0], BaseMessage) or messages_of(value))
    ]
    names = ", ".join(
        printable(name, 40) for name in (holding or [name for name in values if not name.startswith(("__", "branch:"))])[:_THREADS_SHOWN]
    )
    hint = f"; messages are under: {names} (--messages-key)" if holding else f"; it has: {names} (--messages-key)" if names else ""
    return f"{place}: its state has no {printable(key, 40)}{hint}"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The serialiser warns of each class it leaves as plain data; here that is the intention."""
    log = logging.getLogger(_SERDE_LOG)
    drop: Callable[[logging.LogRecord], bool] = lambda record: False  # noqa: E731, ARG005 - the signature of a filter
    log.addFilter(drop)
    try:
        yield
    finally:
        log.removeFilter(drop)


@contextlib.contextmanager
def _clear_errors(where: str, kind: type[Exception], words: str) -> Iterator[None]:
    try:
        yield
    except kind as exc:
        lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
        msg = f"{where}: {words} ({printable(lines[0], 200) if lines else type(exc).__name__})"
        raise ConversationError(msg) from None


def _with_timeout(url: str) -> dict[str, Any]:
    return {} if "connect_timeout" in url else {"connect_timeout": CONNECT_SECONDS}


def _without_password(url: str) -> str:
    """A connection string for a message."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "the database"
    if not parts.scheme:
        return "the database"
    return printable(urlunsplit(parts._replace(netloc=host, query="", fragment="")), 120)
