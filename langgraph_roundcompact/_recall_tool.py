"""The recall tool as LangChain knows tools: its arguments, the state of the run it is called in, sync and async."""

from __future__ import annotations

import logging
from collections.abc import Generator
from functools import partial
from typing import Annotated, Any, Literal

from langchain_core.tools import BaseTool, StructuredTool
from langgraph.prebuilt import InjectedState

from langgraph_roundcompact._archive_access import arun, run
from langgraph_roundcompact._archive_items import Ask
from langgraph_roundcompact._arguments import check_archive
from langgraph_roundcompact._content import as_messages
from langgraph_roundcompact._estimate import estimate_tokens
from langgraph_roundcompact._fault import told
from langgraph_roundcompact._ports import Archive, current_thread_id
from langgraph_roundcompact._recall import Desk, Wanted, recall
from langgraph_roundcompact._recall_text import TOOL_NAME
from langgraph_roundcompact._spans import IsRealUser
from langgraph_roundcompact._spans import is_real_user as default_is_real_user
from langgraph_roundcompact._state import read_messages
from langgraph_roundcompact.errors import ArchiveError

log = logging.getLogger("langgraph_roundcompact")


ANSWER_TOKENS, RESULTS = 4000, 3
"""Tokens of an answer, and passages that a query finds, at most."""


def create_recall_tool(archive: Archive) -> BaseTool:
    """A tool by which the agent reads replaced originals again: by archive id, by message or call id, or by words.

    It looks into the archives of the current round, which it knows from the checkpoint in the state; in the whole thread where the state has no
    checkpoint, or on request. `archive.sized_recall_tool` is the same with sizes and an `is_real_user` of your own.

    Args:
        archive: Where the originals are.

    Raises:
        ConfigurationError: `archive` is no archive; a store is wrapped in `StoreArchive`.
    """
    return sized_recall_tool(archive)


def sized_recall_tool(
    archive: Archive, *, max_tokens: int = ANSWER_TOKENS, results: int = RESULTS, is_real_user: IsRealUser | None = None
) -> BaseTool:
    """Same as `create_recall_tool`, with the sizes of an answer and the rule by which rounds begin.

    Args:
        archive: Where the originals are.
        max_tokens: Tokens of an answer; what does not fit is pointed to.
        results: Passages that a query finds at most.
        is_real_user: Which messages a person sent, where the compactor was given such a rule: it tells where the current round begins.
    """
    check_archive(archive, "get", "search")
    desk = partial(_desk, max_tokens=max_tokens, results=results, is_real=is_real_user or default_is_real_user)

    def recall_compressed_context(
        archive_id: str | None = None,
        query: str | None = None,
        message_id: str | None = None,
        offset: int | None = 0,
        scope: Literal["round", "thread"] | None = "round",
        state: Annotated[Any, InjectedState] = None,
    ) -> str:
        """Read earlier work again that a checkpoint has replaced. Give one of archive_id, message_id and query.

        Args:
            archive_id: The id in a pointer [[COMPRESSION_RECALL: id=...]]: reads that archive from its start, or from offset.
            query: Words to look for: names, paths, error texts.
            message_id: The id of a message or of a tool call.
            offset: With archive_id: the character to begin at, as an earlier answer said.
            scope: "round": work on the current request. "thread": everything in this conversation.
            state: The state of the graph, given by the node that runs tools; the model does not see it.
        """
        try:
            return run(_flow(archive_id, query, message_id, offset, scope, desk(state)), archive)
        except ArchiveError as exc:
            return _unreadable(exc)

    async def arecall_compressed_context(
        archive_id: str | None = None,
        query: str | None = None,
        message_id: str | None = None,
        offset: int | None = 0,
        scope: Literal["round", "thread"] | None = "round",
        state: Annotated[Any, InjectedState] = None,
    ) -> str:
        try:
            return await arun(_flow(archive_id, query, message_id, offset, scope, desk(state)), archive)
        except ArchiveError as exc:
            return _unreadable(exc)

    return StructuredTool.from_function(recall_compressed_context, coroutine=arecall_compressed_context, name=TOOL_NAME, parse_docstring=True)


def _desk(state: Any, *, max_tokens: int, results: int, is_real: IsRealUser) -> Desk:
    return Desk(_messages(state), current_thread_id(), max_tokens, results, estimate_tokens, is_real)


def _flow(
    archive_id: str | None, query: str | None, message_id: str | None, offset: int | None, scope: str | None, desk: Desk
) -> Generator[Ask, Any, str]:
    return recall(Wanted(archive_id or "", query or "", message_id or "", offset or 0, whole_thread=scope == "thread"), desk)


def _unreadable(exc: ArchiveError) -> str:
    log.warning("the archive could not be read (%s)", told(exc))
    return "The archive cannot be read at the moment. Go on with what you know, or try again later."


def _messages(state: Any) -> list[Any]:
    """The messages of a state of any shape; none where it has none that can be read."""
    try:
        return as_messages(read_messages(state, "messages")) if state is not None else []
    except Exception:  # noqa: BLE001 - a graph may keep its messages elsewhere; the thread can still be searched
        return []
