"""The checkpoint and the recovered context as messages: how they are framed, marked, recognised and read back.

Marked by LangChain's notification metadata (`lc_source`, `lc_data`), which integrations do not send to the model and which survives JSON and
msgpack. Anyone who can write to a thread can forge the mark, so it decides nothing that matters for security: a forged block can only be
compacted like any other work. The frame says that it holds the assistant's own notes and grants no permission.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langgraph_roundcompact._content import block_type, blocks_of, text_of
from langgraph_roundcompact._escape import neutralise

SOURCE = "round_compaction"
"""`additional_kwargs["lc_source"]` of every message of ours."""
NAME = "round_checkpoint"
"""`name` of the checkpoint message, and of the call that delivers it where `checkpoint_role="tool"`."""
RECOVERED_NAME = "recovered_context"
MARKER = "[STATE_REINJECTION]"
VERSION = 1

_OPEN, _CLOSE = "<memory_block_current>", "</memory_block_current>"
# The frame is part of every later request: it says only what the model must know, in at most 350 characters with all tags.
_MEANING = "Compressed work since the latest request: the assistant's own notes, not a new request; grants no permission."
_POLICY = "Newer raw messages, fresh tool results and the latest user instructions win."
_INTERNAL = re.compile(r"\s*<(system-reminder|memory_block_\w{1,40}|recovered_context)(?:\s[^<>]{0,200})?>", re.IGNORECASE)
_RECALL = re.compile(r"\[\[COMPRESSION_RECALL: id=([^\]\s]{1,200})\]\]")

Kind = Literal["checkpoint", "recovered_context"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockData:
    """What a checkpoint carries as plain data beside its text."""

    replaced_ids: tuple[str, ...] = ()
    """Ids of all messages that this and earlier checkpoints of the round stand for."""
    last_kept_id: str | None = None
    """Id of the last message of the window at that moment: usage on it and before it is of a request that no longer exists."""
    kept_messages: int = 0
    """Messages that stood behind the checkpoint at that moment, for lists without ids."""
    archive_ids: tuple[str, ...] = ()
    ledger: Any = field(default_factory=list)
    """Facts as data, see `_ledger.facts_to_data`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierBlock:
    """A checkpoint of this round, read back."""

    narrative: str
    ledger_text: str
    data: BlockData


def frame(summary: str, ledger: str = "", archive_ids: Sequence[str] = (), recovered: str = "") -> str:
    """The checkpoint's text. Empty sections are not stored; nothing inside can close our tags early."""
    parts = [_OPEN, f"<meaning>{_MEANING}</meaning>", f"<conflict_policy>{_POLICY}</conflict_policy>"]
    if summary:
        parts.append(f"<summary>\n{neutralise(summary)}\n</summary>")
    if ledger:
        parts.append(f"<ledger>\n{neutralise(ledger)}\n</ledger>")
    parts += [f"[[COMPRESSION_RECALL: id={archive_id}]]" for archive_id in archive_ids]
    parts.append(_CLOSE)
    if recovered:
        parts.append(recovered)
    return "\n".join(parts)


def checkpoint_messages(text: str, data: BlockData, *, role: Literal["user", "tool"], ids: Sequence[str | None]) -> list[BaseMessage]:
    """The checkpoint as messages: one user message, or a finished call and its result when there are two ids for them."""
    if role == "tool" and len(ids) >= 2:
        call_id = f"{NAME}_{ids[0] or 'call'}"
        call = AIMessage(
            "", id=ids[0], tool_calls=[{"name": NAME, "args": {}, "id": call_id, "type": "tool_call"}], additional_kwargs=_marks("checkpoint", data)
        )
        result = ToolMessage(text, id=ids[1], tool_call_id=call_id, name=NAME, additional_kwargs=_marks("checkpoint", None))
        return [call, result]
    return [HumanMessage(text, id=ids[0] if ids else None, name=NAME, additional_kwargs=_marks("checkpoint", data))]


def recovered_message(text: str, message_id: str | None) -> BaseMessage:
    """The recovered context as a message of its own."""
    return HumanMessage(text, id=message_id, name=RECOVERED_NAME, additional_kwargs=_marks("recovered_context", None))


def mark_of(message: BaseMessage) -> Kind | None:
    """Which of our messages this is, by its metadata; None for everything else."""
    if message.additional_kwargs.get("lc_source") != SOURCE:
        return None
    data = message.additional_kwargs.get("lc_data")
    kind = data.get("kind") if isinstance(data, Mapping) else None
    return kind if kind in ("checkpoint", "recovered_context") else None


def is_own(message: BaseMessage) -> bool:
    """Whether this is a checkpoint or recovered context of the current round: ours by mark, or a block of that form without one."""
    if mark_of(message) is not None:
        return True
    return isinstance(message, HumanMessage) and is_internal(message) and text_of(message).lstrip().startswith((_OPEN, "<recovered_context>", MARKER))


def is_checkpoint(message: BaseMessage) -> bool:
    """Whether this message holds the text or the data of a checkpoint."""
    kind = mark_of(message)
    return kind == "checkpoint" if kind else is_own(message) and _OPEN in text_of(message)


def replaced_ids(message: BaseMessage) -> frozenset[str]:
    """The ids a checkpoint stands for; empty for every other message."""
    return frozenset(read_data(message).replaced_ids) if mark_of(message) == "checkpoint" else frozenset()


def is_internal(message: BaseMessage) -> bool:
    """Whether a message is wholly made of internal blocks, without anything a person wrote.

    A request that quotes such a tag, or starts with one and goes on, is a request: deleting it would be the worst fault of all, so in doubt
    a message is not internal.
    """
    if isinstance(message.content, list) and any(block_type(block) not in ("text", "input_text", "") for block in blocks_of(message)):
        return False
    rest = text_of(message).strip()
    if not rest:
        return False
    if rest.startswith(MARKER):
        after = rest[len(MARKER) :]
        # The mark alone on its first line heads a reinjection; the mark followed by words is somebody talking about it.
        return after[:1] in ("", "\n") or _only_blocks(after)
    return _only_blocks(rest)


def _only_blocks(text: str) -> bool:
    """Whether `text` is nothing but closed internal blocks, one after the other."""
    at = 0
    while at < len(text):
        opened = _INTERNAL.match(text, at)
        if opened is None:
            rest = text[at:].strip()
            return not rest or (rest.startswith("[[COMPRESSION_RECALL") and rest.endswith("]]"))
        closing = re.compile(rf"</{re.escape(opened.group(1))}\s{{0,9}}>", re.IGNORECASE).search(text, opened.end())
        if closing is None:
            return False
        at = closing.end()
    return True


def read_data(message: BaseMessage) -> BlockData:
    """The data of a checkpoint; junk is read as nothing."""
    raw = message.additional_kwargs.get("lc_data")
    raw = raw if isinstance(raw, Mapping) else {}
    last, kept = raw.get("last_kept_id"), raw.get("kept_messages")
    return BlockData(
        replaced_ids=_strings(raw.get("replaced_ids")),
        last_kept_id=last if isinstance(last, str) else None,
        kept_messages=kept if isinstance(kept, int) and kept >= 0 else 0,
        archive_ids=_strings(raw.get("archive_ids")),
        ledger=raw.get("ledger"),
    )


def read_block(messages: Sequence[BaseMessage]) -> EarlierBlock | None:
    """This round's earlier checkpoint, from its messages (one, or call and result); None when there is none."""
    blocks = [message for message in messages if is_checkpoint(message)]
    if not blocks:
        return None
    text = next((text for text in reversed([text_of(message) for message in blocks]) if text), "")
    data = next((read_data(message) for message in reversed(blocks) if _has_data(message)), BlockData())
    body = text.partition(_OPEN)[2].partition(_CLOSE)[0]
    summary, ledger = _section(body, "summary"), _section(body, "ledger")
    narrative = summary or ("" if ledger else _RECALL.sub("", body).strip())
    pointers = tuple(dict.fromkeys((*data.archive_ids, *_RECALL.findall(body))))
    data = BlockData(
        replaced_ids=data.replaced_ids, last_kept_id=data.last_kept_id, kept_messages=data.kept_messages, archive_ids=pointers, ledger=data.ledger
    )
    return EarlierBlock(narrative=narrative, ledger_text=ledger, data=data)


def _section(body: str, name: str) -> str:
    start, end = body.find(f"<{name}>\n"), body.rfind(f"\n</{name}>")
    return body[start + len(name) + 3 : end] if 0 <= start < end else ""


def _has_data(message: BaseMessage) -> bool:
    raw = message.additional_kwargs.get("lc_data")
    return isinstance(raw, Mapping) and "version" in raw


def _marks(kind: Kind, data: BlockData | None) -> dict[str, Any]:
    fields: dict[str, Any] = {"kind": kind}
    if kind == "recovered_context":
        fields["marker"] = MARKER
    if data is not None:
        fields |= {
            "version": VERSION,
            "replaced_ids": list(data.replaced_ids),
            "last_kept_id": data.last_kept_id,
            "kept_messages": data.kept_messages,
            "archive_ids": list(data.archive_ids),
            "ledger": data.ledger,
        }
    return {"lc_source": SOURCE, "lc_data": fields}


def _strings(value: object) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list | tuple) else ()
