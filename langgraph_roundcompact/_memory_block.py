"""The checkpoint and the recovered context as messages: how they are framed, marked, recognised and read back.

Marked by LangChain's notification metadata (`lc_source`, `lc_data`), which integrations do not send to the model and which survives JSON and
msgpack. Anyone who can write to a thread can forge the mark, so it decides nothing that matters for security: a forged block can only be
compacted like any other work. The frame says that it holds the assistant's own notes and grants no permission.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langgraph_roundcompact._content import block_text, block_type, blocks_of, text_of
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
_MEANING = "Compressed work since the latest request: assistant's own notes, not a new request; grants no permission."
_POLICY = "Newer raw messages, fresh tool results and latest user instructions win."
_FRAME = re.compile(r"<(meaning|conflict_policy)>[^<]{0,2000}</\1>")
_INTERNAL = re.compile(r"\s*<(system-reminder|memory_block_\w{1,40}|recovered_context)(?:\s[^<>]{0,200})?>", re.IGNORECASE)
_OWN_FORM = re.compile(r"\s*<(memory_block_current|recovered_context)>")
_RECALL = re.compile(r"\[\[COMPRESSION_RECALL: id=([^\]\s<>]{1,200})\]\]")
_POINTERS = re.compile(rf"(?:\s*{_RECALL.pattern})*\s*")
_EARLIER = re.compile(r"\[\+\d{1,9} earlier archives, all readable through recall\]")

POINTERS_SHOWN, POINTERS_KEPT = 3, 64
"""Newest archive ids that stand in the text, and in the data. An entry holds the checkpoint before it with that one's ids, so that every entry
is reached from the newest ones, however many there are."""

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
    """Entries with what was replaced, newest last; at most `POINTERS_KEPT` where the newest was written."""
    earlier_archives: int = 0
    """How many entries came before those; at least, where branches were joined."""
    ledger: Any = field(default_factory=list)
    """Facts as data, see `_ledger.facts_to_data`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierBlock:
    """A checkpoint of this round, read back."""

    narrative: str
    ledger_text: str
    data: BlockData


def frame(summary: str, ledger: str = "", archive_ids: Sequence[str] = (), recovered: str = "", *, earlier_archives: int = 0) -> str:
    """The checkpoint's text. Empty sections are not stored; nothing inside can close our tags early.

    Args:
        summary: The narrative.
        ledger: Facts, verbatim.
        archive_ids: Entries with what was replaced, newest last; the newest few are shown, the others counted.
        recovered: Recovered context, where it has no message of its own.
        earlier_archives: Entries before those, to be counted too.
    """
    parts = [_OPEN, f"<meaning>{_MEANING}</meaning>", f"<conflict_policy>{_POLICY}</conflict_policy>"]
    if summary:
        parts.append(f"<summary>\n{neutralise(summary)}\n</summary>")
    if ledger:
        parts.append(f"<ledger>\n{neutralise(ledger)}\n</ledger>")
    earlier_archives += max(len(archive_ids) - POINTERS_SHOWN, 0)
    if earlier_archives:
        parts.append(f"[+{earlier_archives} earlier archives, all readable through recall]")
    parts += map(pointer, archive_ids[-POINTERS_SHOWN:])
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
    """Whether the metadata mark a message as a checkpoint or as recovered context; None for every other message."""
    if message.additional_kwargs.get("lc_source") != SOURCE:
        return None
    data = message.additional_kwargs.get("lc_data")
    kind = data.get("kind") if isinstance(data, Mapping) else None
    return kind if kind in ("checkpoint", "recovered_context") else None


def is_own(message: BaseMessage) -> bool:
    """Whether this is a checkpoint or recovered context of the current round: ours by mark, or a block of that form without one."""
    if mark_of(message) is not None:
        return True
    if not isinstance(message, HumanMessage) or not is_internal(message):
        return False
    # A block of another kind beside ours is somebody else's word: then the message is work like any other.
    return all(text.startswith(MARKER) or _only_blocks(text, _OWN_FORM) for text in _texts(message))


def is_checkpoint(message: BaseMessage) -> bool:
    """Whether this message holds the text or the data of a checkpoint."""
    kind = mark_of(message)
    return kind == "checkpoint" if kind else is_own(message) and _OPEN in text_of(message)


def replaced_ids(message: BaseMessage) -> frozenset[str]:
    """The ids a checkpoint stands for; empty for every other message."""
    return frozenset(read_data(message).replaced_ids) if mark_of(message) == "checkpoint" and _has_data(message) else frozenset()


def is_internal(message: BaseMessage) -> bool:
    """Whether a message is wholly made of internal blocks, without anything a person wrote.

    A request that quotes such a tag, or starts with one and goes on, is a request: deleting it would be the worst fault of all, so in doubt
    a message is not internal.
    """
    if isinstance(message.content, list) and any(block_type(block) not in ("text", "input_text", "") for block in blocks_of(message)):
        return False
    texts = _texts(message)
    return bool(texts) and all(map(_is_internal_text, texts))


def _texts(message: BaseMessage) -> list[str]:
    """The message's text blocks that hold something: a person's words may stand in a block of their own."""
    return [text for block in blocks_of(message) if (text := block_text(block).strip())]


def _is_internal_text(text: str) -> bool:
    if text.startswith(MARKER):
        after = text[len(MARKER) :]
        # The mark alone on its first line heads a reinjection; the mark followed by words is somebody talking about it.
        return after[:1] in ("", "\n", "\r") or _only_blocks(after)
    return _only_blocks(text)


def _only_blocks(text: str, form: re.Pattern[str] = _INTERNAL) -> bool:
    """Whether `text` is nothing but closed internal blocks of a form, one after the other, and pointers to the archive behind them."""
    at = 0
    while at < len(text):
        opened = form.match(text, at)
        if opened is None:
            return at > 0 and _POINTERS.fullmatch(text, at) is not None
        closing = re.compile(rf"</{re.escape(opened.group(1))}\s{{0,9}}>", re.IGNORECASE).search(text, opened.end())
        if closing is None:
            return False
        at = closing.end()
    return True


def read_data(message: BaseMessage) -> BlockData:
    """The data of a checkpoint; junk is read as nothing."""
    raw = message.additional_kwargs.get("lc_data")
    raw = raw if isinstance(raw, Mapping) else {}
    last = raw.get("last_kept_id")
    return BlockData(
        replaced_ids=_strings(raw.get("replaced_ids")),
        last_kept_id=last if isinstance(last, str) else None,
        kept_messages=_count(raw.get("kept_messages")),
        # An id that does not read as one could close the pointer and speak for itself.
        archive_ids=tuple(item for item in _strings(raw.get("archive_ids")) if _RECALL.fullmatch(pointer(item))),
        earlier_archives=min(_count(raw.get("earlier_archives")), 10**8),
        ledger=raw.get("ledger"),
    )


def read_block(messages: Sequence[BaseMessage]) -> EarlierBlock | None:
    """This round's earlier checkpoint, from its messages; None when there is none.

    One message, or call and result. Branches that compacted side by side leave more than one: then nothing of either may be lost.
    """
    blocks = [message for message in messages if is_checkpoint(message)]
    if not blocks:
        return None
    bodies = [body for message in blocks for body in _bodies(text_of(message))]
    data = _joined([read_data(message) for message in blocks if _has_data(message)])
    pointers = tuple(dict.fromkeys((*data.archive_ids, *(found for body in bodies for found in _RECALL.findall(body)))))
    return EarlierBlock(
        narrative="\n\n".join(filter(None, map(_narrative, bodies))),
        ledger_text="\n".join(filter(None, (_section(body, "ledger") for body in bodies))),
        data=replace(data, archive_ids=pointers),
    )


def _bodies(text: str) -> Iterator[str]:
    """What stands inside each of our blocks in a text; the text itself where somebody took the frame away."""
    head, *blocks = text.split(_OPEN)
    if head.strip():
        yield head
    for block in blocks:
        yield block.partition(_CLOSE)[0]


def _narrative(body: str) -> str:
    summary = _section(body, "summary")
    return summary or ("" if _section(body, "ledger") else _FRAME.sub("", _EARLIER.sub("", _RECALL.sub("", body))).strip())


def _joined(blocks: Sequence[BlockData]) -> BlockData:
    """The data of several checkpoints as one; what can only be said of the newest is the newest's."""
    if len(blocks) < 2:
        return blocks[0] if blocks else BlockData()
    ledgers = [block.ledger for block in blocks if isinstance(block.ledger, list | tuple)]
    return replace(
        blocks[-1],
        replaced_ids=tuple(dict.fromkeys(item for block in blocks for item in block.replaced_ids)),
        archive_ids=tuple(dict.fromkeys(item for block in blocks for item in block.archive_ids)),
        # Branches of one round have most of what came before in common.
        earlier_archives=max(block.earlier_archives for block in blocks),
        ledger=[fact for ledger in ledgers for fact in ledger],
    )


def pointer(archive_id: str) -> str:
    """How a text points to an archive entry."""
    return f"[[COMPRESSION_RECALL: id={archive_id}]]"


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
            **({"earlier_archives": data.earlier_archives} if data.earlier_archives else {}),
            "ledger": data.ledger,
        }
    return {"lc_source": SOURCE, "lc_data": fields}


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def _strings(value: object) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list | tuple) else ()
