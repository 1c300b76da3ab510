"""What is archived of a message: everything that is plain data, without secrets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conftest import examples
from hypothesis import given
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage, messages_from_dict
from pydantic import BaseModel, field_serializer
from strategies import histories

from langgraph_roundcompact import CompressionRecallConfig
from langgraph_roundcompact._archive_record import archive_key, archive_record
from langgraph_roundcompact._redact import default_redact


def record_of(message: BaseMessage, redact: Any = default_redact) -> dict[str, Any]:
    return archive_record([message], "go", redact)["messages"][0]


@examples(80)
@given(histories(max_steps=6))
def test_every_field_of_every_message_is_there(messages: list[BaseMessage]) -> None:
    """The record is JSON, and where nothing had to be replaced the messages can be made from it again."""
    record = archive_record(messages, "go", str)
    assert json.loads(json.dumps(record)) == record
    for message, kept in zip(messages, record["messages"], strict=True):
        assert kept.keys() == message.model_dump().keys()
        if kept == message.model_dump() and "Chunk" not in kept["type"]:
            assert messages_from_dict([{"type": kept["type"], "data": kept}]) == [message]


def test_the_sizes_of_passages_are_those_of_the_configuration() -> None:
    recall = CompressionRecallConfig(enabled=True, chunk_size_tokens=1000, chunk_overlap_tokens=50)
    assert archive_record([], "go", str, recall)["chunks"] == {"size_tokens": 1000, "overlap_tokens": 50}
    assert archive_record([], "go", str)["chunks"] == {"size_tokens": 3000, "overlap_tokens": 300}


class Unwilling(BaseModel):
    """Data that refuses to be written."""

    field: int = 1

    @field_serializer("field")
    def refuse(self, value: int) -> int:
        raise RuntimeError("not today")


class Nameless:
    """An object without any text."""

    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


def circle() -> dict[str, Any]:
    inside: dict[str, Any] = {}
    inside["me"] = inside
    return inside


@pytest.mark.parametrize(
    "odd", [Unwilling(), Nameless(), {Nameless(): 1}, circle(), 10**5000, {10**5000: 1}, [float("nan")], (n for n in "ab")], ids=type
)
def test_a_value_that_is_no_data_costs_itself_and_not_the_entry(odd: Any) -> None:
    message = ToolMessage("text", tool_call_id="c", id="t", artifact=odd)
    kept = record_of(message, str)
    assert (kept["content"], kept["id"], kept["tool_call_id"]) == ("text", "t", "c")
    assert json.loads(json.dumps(kept)) == kept
    assert archive_key([message], "t") == archive_key([message.model_copy()], "t")


def test_lone_surrogates_are_kept_and_tell_entries_apart() -> None:
    one, two = (ToolMessage(text, tool_call_id="c", id="t") for text in ("\ud800 a", "? a"))
    assert record_of(one, str)["content"] == "\ud800 a"
    assert archive_key([one], "t") != archive_key([two], "t")


SECRET = "hunter2Xq81"


@pytest.mark.parametrize(
    "message",
    [
        ToolMessage(f"DB_PASSWORD={SECRET}", tool_call_id="c", id="t"),
        ToolMessage([{"type": "text", "text": f"password: {SECRET}"}], tool_call_id="c", id="t"),
        AIMessage("", tool_calls=[{"name": "login", "args": {"user": "ann", "password": SECRET}, "id": "c", "type": "tool_call"}]),
        AIMessage("", tool_calls=[{"name": "login", "args": {"auth": {"api_key": SECRET}}, "id": "c", "type": "tool_call"}]),
        ToolMessage("ok", tool_call_id="c", artifact={"rows": [{"secret": SECRET}]}),
        ToolMessage("ok", tool_call_id="c", additional_kwargs={"password": SECRET}),
        AIMessage([{"type": "tool_use", "id": "c", "name": "login", "input": {"password": SECRET}}]),
        HumanMessage(f"my --token {SECRET}"),
    ],
)
def test_no_secret_is_archived_wherever_it_stands(message: BaseMessage) -> None:
    """In a text, or alone under a key that tells what it is."""
    record = json.dumps(record_of(message))
    assert SECRET not in record
    assert "REDACTED" in record


def test_what_is_no_secret_stays() -> None:
    args = {"token_limit": "4096", "path": "src/password.py", "user": "ann", "note": "the password is asked for", "key": "value"}
    kept = record_of(AIMessage("", tool_calls=[{"name": "f", "args": args, "id": "c", "type": "tool_call"}]))
    assert kept["tool_calls"][0]["args"] == args


def test_a_veto_of_the_redaction_passes_through() -> None:
    def veto(text: str) -> str:
        raise PermissionError

    with pytest.raises(PermissionError):
        record_of(HumanMessage("x"), veto)


def test_the_key_depends_on_content_and_thread_alone() -> None:
    messages = [HumanMessage("a", id="h"), AIMessage("b", id="x")]
    assert archive_key(messages, "t") == archive_key([message.model_copy() for message in messages], "t")
    assert len({archive_key(messages, "t"), archive_key(messages, None), archive_key(messages, ""), archive_key(messages[:1], "t")}) == 4
