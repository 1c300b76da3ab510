"""Conversation files: what is read, what is refused, and that nothing in a file is trusted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, AIMessageChunk, FunctionMessage, HumanMessage, SystemMessage, ToolMessage, messages_to_dict

from langgraph_roundcompact.errors import RoundCompactError
from langgraph_roundcompact.loaders import Conversation, ConversationError, load_conversation, load_conversations

SHARED = Path(__file__).parents[3] / "shared" / "traces"

OPENAI = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Fix it."},
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "look first",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.py"}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "name": "read", "content": "no such file", "status": "error"},
    {"role": "assistant", "content": "Gone."},
]
LANGCHAIN = [
    SystemMessage("Be brief.", id="s"),
    HumanMessage([{"type": "text", "text": "Fix it."}], id="u", additional_kwargs={"k": 1}),
    AIMessage(
        "",
        id="a",
        tool_calls=[{"id": "c1", "name": "read", "args": {"path": "a.py"}, "type": "tool_call"}],
        invalid_tool_calls=[{"id": "c2", "name": "read", "args": "{", "error": "cut", "type": "invalid_tool_call"}],
        usage_metadata={"input_tokens": 5, "output_tokens": 2, "total_tokens": 7},
        response_metadata={"model_name": "m"},
    ),
    ToolMessage("no such file", id="t", tool_call_id="c1", status="error"),
]


def write(tmp_path: Path, text: str | bytes, name: str = "talk.json") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def as_lines(records: list[dict]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(OPENAI),
        json.dumps({"id": "talk", "messages": OPENAI}),
        as_lines([{"messages": OPENAI}]),
        as_lines(OPENAI),
        as_lines(OPENAI) + "\n\n",
    ],
    ids=["bare list", "object", "object on a line", "message a line", "blank lines at the end"],
)
def test_every_openai_layout_gives_the_same_messages(tmp_path, text):
    conversation = load_conversation(write(tmp_path, text))
    assert conversation == Conversation(
        name="talk",
        messages=(
            SystemMessage("Be brief.", id="m0"),
            HumanMessage("Fix it.", id="m1"),
            AIMessage(
                "",
                id="m2",
                tool_calls=[{"id": "c1", "name": "read", "args": {"path": "a.py"}}],
                additional_kwargs={"reasoning_content": "look first"},
            ),
            ToolMessage("no such file", id="m3", tool_call_id="c1", name="read", status="error"),
            AIMessage("Gone.", id="m4"),
        ),
    )


@pytest.mark.parametrize(
    "records",
    [messages_to_dict(LANGCHAIN), dumpd(LANGCHAIN), [m.model_dump() for m in LANGCHAIN]],
    ids=["messages_to_dict", "dumpd", "model_dump"],
)
@pytest.mark.parametrize("layout", [json.dumps, lambda r: json.dumps({"messages": r}), as_lines], ids=["list", "state", "lines"])
def test_langchain_forms_read_back_equal(tmp_path, records, layout):
    assert list(load_conversation(write(tmp_path, layout(records))).messages) == LANGCHAIN


def test_a_dumped_prompt_value_is_a_conversation(tmp_path):
    from langchain_core.prompt_values import ChatPromptValue

    path = write(tmp_path, json.dumps(dumpd(ChatPromptValue(messages=LANGCHAIN[:2]))))
    assert list(load_conversation(path).messages) == LANGCHAIN[:2]


def test_recorded_chunks_become_whole_messages(tmp_path):
    path = write(tmp_path, json.dumps([HumanMessage("x").model_dump(), AIMessageChunk("part", id="c").model_dump()]))
    assert load_conversation(path).messages[1] == AIMessage("part", id="c")


def test_other_roles_and_calls_in_langchain_form(tmp_path):
    records = [
        {"role": "developer", "content": "d"},
        {"role": "function", "name": "f", "content": "r"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "name": "n", "args": {"a": 1}}]},
    ]
    developer, function, answer = load_conversation(write(tmp_path, json.dumps(records))).messages
    assert (type(developer), developer.additional_kwargs) == (SystemMessage, {"__openai_role__": "developer"})
    assert (type(function), function.name) == (FunctionMessage, "f")
    assert answer.tool_calls == [{"id": "c", "name": "n", "args": {"a": 1}, "type": "tool_call"}]


@pytest.mark.parametrize("arguments", ['{"path": "a', "[1, 2]", "null and void", 7], ids=repr)
def test_arguments_that_are_no_object_make_an_invalid_call(tmp_path, arguments):
    record = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": {"name": "n", "arguments": arguments}}]}
    message = load_conversation(write(tmp_path, json.dumps([record]))).messages[0]
    assert message.tool_calls == []
    assert [(call["id"], call["name"]) for call in message.invalid_tool_calls] == [("c", "n")]


@pytest.mark.parametrize("arguments", ["", None, {}], ids=repr)
def test_no_arguments_are_an_empty_object(tmp_path, arguments):
    record = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": {"name": "n", "arguments": arguments}}]}
    assert load_conversation(write(tmp_path, json.dumps([record]))).messages[0].tool_calls[0]["args"] == {}


def test_ids_are_kept_where_they_exist_and_unique_afterwards(tmp_path):
    records = [{"role": "user", "content": "a", "id": "m1"}, {"role": "user", "content": "b"}, {"role": "user", "content": "c", "id": "m1"}]
    ids = [message.id for message in load_conversation(write(tmp_path, json.dumps(records))).messages]
    assert ids == ["m1", "m1-", "m2"]


def test_a_line_separator_inside_a_string_does_not_end_the_line(tmp_path):
    lines = json.dumps({"role": "user", "content": "a\u2028b"}, ensure_ascii=False) + "\n" + json.dumps({"role": "assistant", "content": "ok"})
    assert load_conversation(write(tmp_path, lines)).messages[0].content == "a\u2028b"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_other_unicode_encodings_are_read(tmp_path, encoding):
    path = write(tmp_path, json.dumps(OPENAI, ensure_ascii=False).encode(encoding))
    assert len(load_conversation(path).messages) == 5


def test_lone_surrogates_and_nul_are_kept(tmp_path):
    path = write(tmp_path, '[{"role": "user", "content": "a\\ud800\\u0000b"}]')
    assert load_conversation(path).messages[0].content == "a\ud800\x00b"


@pytest.mark.parametrize("layout", [as_lines, json.dumps], ids=["lines", "list"])
def test_several_conversations_in_one_file(tmp_path, layout):
    path = write(tmp_path, layout([{"messages": OPENAI}, {"id": "second", "messages": OPENAI[:2]}]))
    assert [(c.name, len(c.messages)) for c in load_conversations(path)] == [("talk#1", 5), ("second", 2)]
    with pytest.raises(ConversationError, match="holds 2 conversations"):
        load_conversation(path)


DEEP = '{"role": "user", "content": [{"type": "text", "text": "x", "junk": ' + "[" * 5000 + "]" * 5000 + "}]}"
NOT_CONVERSATIONS = {
    "empty": ("", "the file is empty"),
    "blank": (" \n\t\n", "the file is empty"),
    "prose": ("Once upon a time", "not JSON .* begins with 'Once upon a time'"),
    "cut off": (json.dumps(OPENAI)[:-9], "not JSON"),
    "cut off line": (as_lines(OPENAI)[:-9], "line 5 is not JSON"),
    "binary": (b"\x89PNG\r\n\x1a\n\xff\xfe", "not a text file"),
    "null": ("null", "not a conversation: null"),
    "number": ("42", "not a conversation: int 42"),
    "text": ('"hello"', "not a conversation: the text 'hello'"),
    "other object": ('{"name": "x", "version": 1}', "not a conversation: an object with the keys name, version"),
    "empty object": ("{}", "not a conversation: an empty object"),
    "empty list": ("[]", "without messages"),
    "no messages": ('{"messages": []}', "without messages"),
    "messages of another kind": ('{"messages": "hello"}', "not a conversation"),
    "list of numbers": ("[1, 2]", "message 0 is not a message: int 1"),
    "list of other objects": ('[{"a": 1}]', "message 0 is not a message: an object with the keys a"),
    "lines of other objects": ('{"a": 1}\n{"a": 2}\n', "message 0 is not a message"),
    "unknown role": ('[{"role": "critic", "content": "x"}]', "message 0 cannot be read: unknown role 'critic'"),
    "content is an object": ('[{"role": "user", "content": {"a": 1}}]', "content is an object"),
    "content is a number": ('[{"role": "user", "content": 5}]', "content is a number"),
    "content list of numbers": ('[{"role": "user", "content": [1]}]', "content is a list that holds something else"),
    "calls are text": ('[{"role": "assistant", "content": "", "tool_calls": "no"}]', "tool_calls is text"),
    "a removal": ('[{"type": "remove", "data": {"id": "x", "content": ""}}]', "'remove' is not a kind of message"),
    "fields of the wrong type": (
        '[{"type": "tool", "data": {"content": "x", "tool_call_id": "c", "status": "maybe"}}]',
        "cannot be read: 1 validation error",
    ),
    "field missing": ('[{"type": "tool", "data": {"content": "x"}}]', "cannot be read"),
    "huge nesting": ("[" * 100_000, "nested more than 200 levels"),
    "deep inside a message": (DEEP, "nested more than 200 levels"),
    "moderately deep": ("[" * 300 + "]" * 300, "nested more than 200 levels"),
    "deep line": ("{}\n" + "[" * 100_000, "nested more than 200 levels"),
    "number of 5000 digits": ("[" + "9" * 5000 + "]", "cannot be used"),
}


@pytest.mark.parametrize(("text", "found"), NOT_CONVERSATIONS.values(), ids=NOT_CONVERSATIONS.keys())
def test_what_is_no_conversation_is_one_clear_line(tmp_path, text, found):
    path = write(tmp_path, text)
    with pytest.raises(ConversationError, match=found) as caught:
        load_conversation(path)
    line = str(caught.value)
    assert line.startswith(f"{path}:")
    assert line.isprintable()
    assert isinstance(caught.value, RoundCompactError)


def test_what_is_no_file_is_one_clear_line(tmp_path):
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    for path, found in (
        (tmp_path / "none.json", "cannot be read"),
        (tmp_path, "this is a folder"),
        (fifo, "not a regular file"),
        ("a\0b", "cannot be read"),
    ):
        with pytest.raises(ConversationError, match=found):
            load_conversation(path)


def test_terminal_codes_in_a_file_do_not_reach_the_message(tmp_path):
    with pytest.raises(ConversationError) as caught:
        load_conversation(write(tmp_path, '{"\\u001b[31mred\\u0007": 1}'))
    assert str(caught.value).endswith("keys \\x1b[31mred\\x07")


@pytest.mark.parametrize(
    "path",
    [
        ["langchain_core", "prompts", "prompt", "PromptTemplate"],
        ["os", "system"],
        ["langchain", "chat_models", "openai", "ChatOpenAI"],
        [],
        "HumanMessage",
    ],
    ids=repr,
)
def test_a_file_cannot_name_the_class_that_is_made(tmp_path, path):
    record = {"lc": 1, "type": "constructor", "id": path, "kwargs": {"content": "x", "template": "x", "input_variables": []}}
    with pytest.raises(ConversationError, match="is not a kind of message"):
        load_conversation(write(tmp_path, json.dumps([record])))


def test_secrets_and_objects_inside_a_message_stay_plain_data(tmp_path, monkeypatch):
    monkeypatch.setenv("PLANTED", "from the environment")
    secret = {"lc": 1, "type": "secret", "id": ["PLANTED"]}
    record = dumpd(HumanMessage("x", id="u")) | {}
    record["kwargs"]["additional_kwargs"] = {"a": secret}
    assert load_conversation(write(tmp_path, json.dumps([record]))).messages[0].additional_kwargs == {"a": secret}


@pytest.mark.skipif(not SHARED.exists(), reason="recorded transcripts are not here")
@pytest.mark.parametrize("path", sorted(SHARED.glob("*/*.jsonl")) if SHARED.exists() else [], ids=lambda path: path.stem)
def test_recorded_transcripts_are_read_whole(path):
    raw = json.loads(path.read_text(encoding="utf-8").split("\n")[0])
    conversation = load_conversation(path)
    assert conversation.name == raw["id"]
    assert [message.id for message in conversation.messages] == [f"m{i}" for i in range(len(raw["messages"]))]
    assert [len(m.tool_calls) + len(m.invalid_tool_calls) for m in conversation.messages if isinstance(m, AIMessage)] == [
        len(r.get("tool_calls") or ()) for r in raw["messages"] if r["role"] == "assistant"
    ]


# --- Anthropic, standard input, other containers --------------------------------------------------------------------------------------

ANTHROPIC = {
    "model": "claude",
    "system": "Be brief.",
    "messages": [
        {"role": "user", "content": "Fix it."},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "I look."}, {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a.py"}}],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "no"}], "is_error": True},
                {"type": "text", "text": "And be quick."},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "Gone."}]},
    ],
}


def test_results_in_a_users_message_are_results(tmp_path):
    conversation = load_conversation(write(tmp_path, json.dumps(ANTHROPIC)))
    assert [message.type for message in conversation.messages] == ["system", "human", "ai", "tool", "human", "ai"]
    answer, result, more = conversation.messages[2:5]
    assert [(call["id"], call["name"], call["args"]) for call in answer.tool_calls] == [("c1", "read", {"path": "a.py"})]
    assert (result.tool_call_id, result.status, result.content) == ("c1", "error", [{"type": "text", "text": "no"}])
    assert more.content == [{"type": "text", "text": "And be quick."}]


def test_results_in_a_langchain_users_message_are_results_too(tmp_path):
    record = HumanMessage([{"type": "tool_result", "tool_use_id": "c1", "content": "x"}], id="u").model_dump()
    (message,) = load_conversation(write(tmp_path, json.dumps([record]))).messages
    assert message == ToolMessage("x", id="u", tool_call_id="c1")


@pytest.mark.parametrize("encoded", [json.dumps(OPENAI).encode(), as_lines(OPENAI).encode(), json.dumps(OPENAI).encode("utf-16")])
def test_standard_input_is_read(encoded, monkeypatch):
    import io
    import sys

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(encoded)))
    conversation = load_conversation("-")
    assert (conversation.name, len(conversation.messages)) == ("stdin", 5)


def test_a_database_is_told_what_to_do_with(tmp_path):
    with pytest.raises(ConversationError, match=r"SQLite database; .* use --sqlite FILE --thread ID"):
        load_conversation(write(tmp_path, b"SQLite format 3\x00" + bytes(100)))


def test_progress_is_told_in_bytes(tmp_path):
    told: list[tuple[int, int]] = []
    path = write(tmp_path, as_lines(OPENAI))
    load_conversations(path, progress=lambda done, total: told.append((done, total)))
    size = path.stat().st_size
    assert told[-1] == (size, size)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_only_the_texts_of_a_large_log_stay_in_memory(tmp_path):
    """A log repeats each result for the screen; a line is forgotten once it is read."""
    import tracemalloc

    text = "x" * 50_000
    lines = [{"type": "user", "uuid": "u", "sessionId": "s", "message": {"role": "user", "content": "Go."}}]
    for i in range(200):
        use = {"type": "tool_use", "id": f"c{i}", "name": "n", "input": {}}
        lines.append({"type": "assistant", "uuid": f"a{i}", "parentUuid": f"r{i - 1}", "message": {"id": f"m{i}", "content": [use]}})
        result = [{"type": "tool_result", "tool_use_id": f"c{i}", "content": f"{i}{text}"}]
        lines.append({"type": "user", "uuid": f"r{i}", "parentUuid": f"a{i}", "message": {"content": result}, "toolUseResult": {"stdout": text * 3}})
    path = write(tmp_path, as_lines(lines))
    tracemalloc.start()
    load_conversation(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < path.stat().st_size / 2
