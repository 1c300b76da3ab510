"""Whatever a file holds, loading it gives a conversation or one clear line; playing what was loaded breaks nothing."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from conftest import examples
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage

from langgraph_roundcompact.loaders import FORMATS, Conversation, ConversationError, load_conversations

pytestmark = pytest.mark.fuzz

_KEYS = (
    "role type content messages message uuid parentUuid logicalParentUuid sessionId isSidechain isMeta isCompactSummary agentId subtype payload "
    "call_id id name arguments input output summary text tool_calls tool_call_id tool_use_id is_error function args parts functionCall "
    "functionResponse response toolCalls result thoughts projectHash $set $rewindTo inputs outputs run_type trace_id child_runs parent_run_id "
    "generations choices kwargs lc data system contents history replacement_history num_turns base_instructions timestamp status action"
)
_WORDS = (
    "user assistant system developer tool model human ai gemini info summary compact_boundary session_meta response_item event_msg compacted "
    "turn_context message function_call function_call_output custom_tool_call custom_tool_call_output local_shell_call reasoning thread_rolled_back "
    'tool_use tool_result text thinking image constructor a b c1 {} [] {"a":1} \ud800 \x00 \x1b[31m <local-command-stdout>'
)
KEYS, WORDS = _KEYS.split(), _WORDS.split(" ")

SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-2, 2**40), st.floats(allow_nan=True), st.sampled_from(WORDS), st.text(max_size=8))
VALUES = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)), max_leaves=8
)
RECORDS = st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1, max_size=5)


@st.composite
def shaped(draw: st.DrawFn) -> dict[str, Any]:
    """A record with the marks of a format, and junk in all other places."""
    kind = draw(st.sampled_from(["claude", "codex", "gemini", "run", "message", "dumpd"]))
    if kind == "claude":
        turn = st.sampled_from(["user", "assistant"])
        mark = {"type": draw(turn), "uuid": draw(st.sampled_from("abc")), "message": draw(RECORDS), "sessionId": "s"}
    elif kind == "codex":
        mark = {"type": draw(st.sampled_from(["response_item", "compacted", "event_msg", "session_meta"])), "payload": draw(RECORDS)}
    elif kind == "gemini":
        mark = {"type": draw(st.sampled_from(["user", "gemini"])), "content": draw(VALUES), "id": draw(st.sampled_from("abc"))}
    elif kind == "run":
        mark = {"run_type": "chain", "inputs": draw(RECORDS), "outputs": draw(VALUES), "child_runs": draw(VALUES)}
    elif kind == "message":
        mark = {"role": draw(st.sampled_from(["user", "assistant", "tool", "model"])), "content": draw(VALUES), "parts": draw(VALUES)}
    else:
        name = draw(st.sampled_from(["HumanMessage", "AIMessage", "ToolMessage"]))
        mark = {"lc": 1, "type": "constructor", "id": ["x", name], "kwargs": draw(RECORDS)}
    return {**draw(RECORDS), **mark}


def attempt(name: str, format: str | None) -> tuple[str, list[Conversation]]:
    try:
        return "", load_conversations(name, format=format)
    except ConversationError as exc:
        return str(exc), []


def loaded(raw: bytes, format: str | None = None) -> list[BaseMessage]:
    """All messages of a file with these bytes; none when it is refused, which must be in one printable line."""
    handle, name = tempfile.mkstemp(suffix=".json")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(raw)
        refusal, conversations = attempt(name, format)
        assert refusal.isprintable()
        assert len(refusal) < 1200
        for conversation in conversations:
            ids = [message.id for message in conversation.messages]
            assert conversation.messages
            assert len(set(ids)) == len(ids)
            assert all(ids)
        return [message for conversation in conversations for message in conversation.messages]
    finally:
        Path(name).unlink()


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


@given(raw=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))))
@examples(60)
def test_any_bytes_load_or_are_refused_in_one_line(raw):
    loaded(raw)


@given(value=st.one_of(VALUES, st.lists(shaped(), max_size=5), shaped()), format=st.sampled_from([None, *FORMATS]))
@examples(150)
def test_any_json_loads_or_is_refused_in_one_line(value, format):
    loaded(encoded(value), format)


@given(lines=st.lists(shaped(), min_size=2, max_size=6), cut=st.integers(0, 30), format=st.sampled_from([None, None, *FORMATS]))
@examples(200)
def test_any_lines_also_cut_off(lines, cut, format):
    raw = b"\n".join(map(encoded, lines))
    loaded(raw[: len(raw) - cut], format)
