"""Conversations of other programs, as LangChain messages: files, standard input, and LangGraph's checkpoint databases.

One module a format. Formats of single messages (`_records`) are two functions over one JSON object, `recognises(record)` and
`to_messages(record)`; formats of whole logs two over the file's values, `recognises(head)` and `read(values)`. What a file is tells its shape,
never its name. Files come from anywhere: nothing in them is executed, imported or resolved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from os import PathLike
from typing import Any

from langchain_core.messages import BaseMessage

from langgraph_roundcompact.loaders import claude_code, codex, gemini_cli, langchain_json, langsmith_runs
from langgraph_roundcompact.loaders._conversation import Conversation, ConversationError, Talk, describe, printable, with_ids
from langgraph_roundcompact.loaders._document import STDIN, Broken, Progress, Source, open_source, read_values
from langgraph_roundcompact.loaders._records import RECORD_FORMATS, UNREADABLE, RecordError, read_records, system_prompt, why
from langgraph_roundcompact.loaders.checkpoints import load_postgres, load_sqlite

__all__ = ["FORMATS", "STDIN", "Conversation", "ConversationError", "load_conversation", "load_conversations", "load_postgres", "load_sqlite"]

_HEAD = 64
"""Values of a file that are looked at to tell its format."""

_LOGS: dict[str, Any] = {"claude-code": claude_code, "codex": codex, "gemini-cli": gemini_cli, "langsmith": langsmith_runs}

FORMATS = (*RECORD_FORMATS, *_LOGS)
"""Names for `format`."""

_LISTS = ("messages", "contents", "history", "clientHistory", "input")
"""Keys under which a file holds its messages."""


def load_conversation(path: str | PathLike[str], *, format: str | None = None, messages_key: str = "messages") -> Conversation:
    """The one conversation in a file; of a log with subagents the main one.

    Args:
        path: A file in one of `FORMATS`, or `-` for standard input.
        format: One of `FORMATS`; None: told by the shape of what is read.
        messages_key: The key of the state that holds the messages, in runs of LangSmith.

    Returns:
        The conversation; each message has an id of its own.

    Raises:
        ConversationError: the file cannot be read, is not a conversation, or holds several.
    """
    found = [one for one in load_conversations(path, format=format, messages_key=messages_key) if one.part_of is None]
    if len(found) > 1:
        msg = f"{printable(str(path), 300)}: holds {len(found)} conversations; load_conversations reads them all"
        raise ConversationError(msg)
    return found[0]


def load_conversations(
    path: str | PathLike[str], *, format: str | None = None, messages_key: str = "messages", progress: Progress | None = None
) -> list[Conversation]:
    """All conversations of a file: one, unless each line holds one of its own, or subagents had theirs.

    Args:
        path: A file in one of `FORMATS`, or `-` for standard input.
        format: One of `FORMATS`; None: told by the shape of what is read.
        messages_key: The key of the state that holds the messages, in runs of LangSmith.
        progress: Told now and then how many bytes of how many have been read.

    Raises:
        ConversationError: the file cannot be read or is not a conversation.
        ValueError: `format` is not one of `FORMATS`.
    """
    if format is not None and format not in FORMATS:
        msg = f"format={format!r} is not known: give one of {', '.join(FORMATS)}"
        raise ValueError(msg)
    with open_source(str(path)) as source:
        values, lines = read_values(source, progress)
        head = list(islice(values, _HEAD))
        values = chain(head, values)
        kind = format or next((name for name, log in _LOGS.items() if log.recognises(head)), None)
        log = kind if kind in _LOGS else None
        talks = _read_log(source, log, values, messages_key) if log else _read_plain(source, list(_whole(values)), lines, kind)
    return _named(source, talks)


def _read_log(source: Source, kind: str, values: Iterator[Any], messages_key: str) -> list[Talk]:
    # The last line of a log is cut off when the program was killed, and programs that share one spoil others: as they do, skip it.
    whole = (value for value in values if not isinstance(value, Broken))
    read: Callable[..., list[Talk]] = _LOGS[kind].read
    try:
        talks = read(whole, messages_key) if kind == "langsmith" else read(whole)
    except UNREADABLE as exc:
        msg = f"{source.shown}: a {kind} log that cannot be read: {why(exc)}"
        raise ConversationError(msg) from None
    if not talks:
        msg = f"{source.shown}: a {kind} log without messages"
        raise ConversationError(msg)
    return talks


def _whole(values: Iterator[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, Broken):
            raise ConversationError(value.message)
        yield value


def _read_plain(source: Source, values: list[Any], lines: bool, only: str | None) -> list[Talk]:
    """Messages as a list, under a key, or one on each line; or several such conversations."""
    if lines and all(_messages_in(value) is None for value in values):
        return [_talk(source, "", "", values, only)]
    if not lines and isinstance(values[0], list) and values[0] and all(isinstance(value, Mapping) and _messages_in(value) for value in values[0]):
        values = values[0]
    several = len(values) > 1
    talks = []
    for number, value in enumerate(values, 1):
        where = f" conversation {number}:" if several else ""
        records = _messages_in(value)
        if records is None:
            msg = f"{source.shown}:{where} not a conversation: {describe(value)}"
            raise ConversationError(msg)
        prompt = system_prompt(value) if isinstance(value, Mapping) else []
        name = _name(value) or (f"{source.stem}#{number}" if several else "")
        talks.append(_talk(source, where, name, [*prompt, *records], only))
    return talks


def _messages_in(value: Any) -> Sequence[Any] | None:
    """The records of a value that is a whole conversation: a list, an object that has one; None for anything else."""
    if isinstance(value, list):
        return value
    if not isinstance(value, Mapping):
        return None
    inner = value["kwargs"] if langchain_json.is_constructor(value) else value
    found = next((inner[key] for key in _LISTS if isinstance(inner.get(key), list)), None)
    if found is not None and "messages" not in inner and isinstance(inner.get("output"), list):
        return [*found, *inner["output"]]
    return found


def _talk(source: Source, where: str, name: str, records: Sequence[Any], only: str | None) -> Talk:
    if not records:
        msg = f"{source.shown}:{where} a conversation without messages"
        raise ConversationError(msg)
    try:
        return Talk(messages=read_records(records, only), name=name)
    except RecordError as exc:
        msg = f"{source.shown}:{where} {exc}"
        raise ConversationError(msg) from None


def _named(source: Source, talks: Sequence[Talk]) -> list[Conversation]:
    found: list[Conversation] = []
    main: str | None = None
    for talk in talks:
        messages: list[BaseMessage] = with_ids(talk.messages)
        if not messages:
            msg = f"{source.shown}: a conversation without messages"
            raise ConversationError(msg)
        name = printable(talk.name, 80) or source.stem
        main = main if talk.side else name
        found.append(Conversation(name=name, messages=tuple(messages), part_of=main if talk.side else None))
    return found


def _name(value: Any) -> str:
    name = value.get("id", value.get("name")) if isinstance(value, Mapping) else None
    return name if isinstance(name, str) else ""
