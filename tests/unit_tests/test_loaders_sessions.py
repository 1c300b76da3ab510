"""Session logs of coding agents, and runs of LangSmith: told by their shape, read as the conversation that took place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langgraph_roundcompact._spans import is_real_user
from langgraph_roundcompact.loaders import FORMATS, Conversation, ConversationError, load_conversation, load_conversations
from langgraph_roundcompact.testing import pairing_faults


def write(tmp_path: Path, *lines: Any, name: str = "log.jsonl") -> Path:
    path = tmp_path / name
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def told(messages: Any) -> list[tuple[str, str]]:
    """Each message as its type and what it says or calls."""
    found = []
    for message in messages:
        calls = [f"{call['name']}({call['id']})" for call in getattr(message, "tool_calls", ())]
        found.append((message.type, " ".join([str(message.text), *calls]).strip()))
    return found


# --- Claude Code ----------------------------------------------------------------------------------------------------------------------


def line(uuid: str, parent: str | None, kind: str, content: Any, **more: Any) -> dict[str, Any]:
    """One line of a log of Claude Code."""
    message: dict[str, Any] = {"role": kind, "content": content}
    if kind == "assistant":
        message |= {"id": more.pop("answer", f"msg_{uuid}"), "type": "message", "model": "claude", "usage": {"input_tokens": 3}}
    envelope = {"cwd": "/x", "sessionId": "s-1", "version": "2.1", "timestamp": "2026-01-01T00:00:00Z", "isSidechain": False}
    return {"parentUuid": parent, **envelope, "type": kind, "message": message, "uuid": uuid, **more}


def use(call_id: str, name: str = "Read") -> list[dict[str, Any]]:
    return [{"type": "tool_use", "id": call_id, "name": name, "input": {"file_path": "a.py"}}]


def result(call_id: str, text: Any = "ok", **more: Any) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": call_id, "content": text, **more}]


def test_claude_blocks_of_one_answer_are_one_message_and_results_are_no_requests(tmp_path):
    path = write(
        tmp_path,
        {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}},
        line("u1", None, "user", "Fix it."),
        line("a1", "u1", "assistant", [{"type": "thinking", "thinking": "hm", "signature": "s"}], answer="m1"),
        line("a2", "a1", "assistant", [{"type": "text", "text": "I look."}], answer="m1"),
        line("a3", "a2", "assistant", use("t1"), answer="m1"),
        line("r1", "a3", "user", result("t1", [{"type": "text", "text": "boom"}], is_error=True), toolUseResult={"stderr": "boom"}),
        line("a4", "r1", "assistant", [{"type": "text", "text": "Done."}]),
    )
    conversation = load_conversation(path)
    request, answer, outcome, last = conversation.messages
    assert (conversation.name, conversation.part_of) == ("s-1", None)
    assert told(conversation.messages) == [("human", "Fix it."), ("ai", "I look. Read(t1)"), ("tool", "boom"), ("ai", "Done.")]
    assert [block["type"] for block in answer.content] == ["thinking", "text", "tool_use"]
    assert (outcome.tool_call_id, outcome.status, last.content) == ("t1", "error", "Done.")
    assert [is_real_user(message) for message in conversation.messages] == [True, False, False, False]
    assert request.id == "u1"
    assert pairing_faults(conversation.messages) == []


def test_claude_results_of_parallel_calls_beside_the_chain_are_kept(tmp_path):
    """Each result hangs on the line of its call, so the way back from the last line passes one of them by."""
    path = write(
        tmp_path,
        line("u1", None, "user", "Fix it."),
        line("a1", "u1", "assistant", use("t1"), answer="m1"),
        line("r1", "a1", "user", result("t1", "one"), sourceToolAssistantUUID="a1"),
        line("a2", "a1", "assistant", use("t2"), answer="m1"),
        line("r2", "a2", "user", result("t2", "two"), sourceToolAssistantUUID="a2"),
        line("a3", "r2", "assistant", [{"type": "text", "text": "Done."}]),
    )
    messages = load_conversation(path).messages
    assert told(messages) == [("human", "Fix it."), ("ai", "Read(t1) Read(t2)"), ("tool", "one"), ("tool", "two"), ("ai", "Done.")]
    assert pairing_faults(messages) == []


def test_claude_an_edited_prompt_leaves_its_old_branch_behind(tmp_path):
    path = write(
        tmp_path,
        line("u1", None, "user", "Hello."),
        line("a1", "u1", "assistant", [{"type": "text", "text": "Hi."}]),
        line("u2", "a1", "user", "Old request."),
        line("a2", "u2", "assistant", use("t1")),
        line("r2", "a2", "user", result("t1")),
        line("u3", "a1", "user", "New request."),
        line("a3", "u3", "assistant", [{"type": "text", "text": "Yes."}]),
    )
    assert [text for _, text in told(load_conversation(path).messages)] == ["Hello.", "Hi.", "New request.", "Yes."]


def test_claude_a_compaction_in_the_log_is_undone(tmp_path):
    """Its originals stand in the same file: what is replayed is the work as it was."""
    path = write(
        tmp_path,
        line("u1", None, "user", "Fix it."),
        line("a1", "u1", "assistant", use("t1")),
        line("r1", "a1", "user", result("t1")),
        line("a2", "r1", "assistant", [{"type": "text", "text": "Half done."}]),
        {"type": "system", "subtype": "compact_boundary", "uuid": "b", "parentUuid": None, "logicalParentUuid": "a2", "isMeta": False},
        line("c", "b", "user", "This session is being continued …", isCompactSummary=True, isVisibleInTranscriptOnly=True),
        line("a3", "c", "assistant", [{"type": "text", "text": "Done."}]),
    )
    messages = load_conversation(path).messages
    assert [text for _, text in told(messages)] == ["Fix it.", "Read(t1)", "ok", "Half done.", "Done."]
    assert [message.id for message in messages if is_real_user(message)] == ["u1"]


def test_claude_a_summary_without_its_originals_stays(tmp_path):
    path = write(
        tmp_path,
        {"type": "system", "subtype": "compact_boundary", "uuid": "b", "parentUuid": None, "logicalParentUuid": "gone"},
        line("c", "b", "user", "This session is being continued …", isCompactSummary=True),
        line("a3", "c", "assistant", [{"type": "text", "text": "Done."}]),
    )
    assert [text for _, text in told(load_conversation(path).messages)] == ["This session is being continued …", "Done."]


@pytest.mark.parametrize(
    ("content", "more"),
    [
        ("Caveat: The messages below were generated by the user while running local commands.", {"isMeta": True}),
        ("Base directory for this skill: /x", {"isMeta": True}),
        ("<local-command-stdout>Compacted.</local-command-stdout>", {}),
        ([{"type": "text", "text": "[Request interrupted by user for tool use]"}], {}),
        ("<system-reminder>Todo list is empty.</system-reminder>", {}),
    ],
)
def test_claude_what_the_program_wrote_is_no_request(tmp_path, content, more):
    path = write(tmp_path, line("u1", None, "user", "Fix it."), line("u2", "u1", "user", content, **more), line("a", "u2", "assistant", use("t1")))
    messages = load_conversation(path).messages
    assert [message.id for message in messages if is_real_user(message)] == ["u1"]
    assert len(messages) == 3


def test_claude_errors_of_the_api_are_no_answers(tmp_path):
    failed = line("e", "u1", "assistant", [{"type": "text", "text": "API Error: 529"}], isApiErrorMessage=True)
    failed["message"]["model"] = "<synthetic>"
    path = write(tmp_path, line("u1", None, "user", "Fix it."), failed, line("a", "e", "assistant", [{"type": "text", "text": "Done."}]))
    assert [text for _, text in told(load_conversation(path).messages)] == ["Fix it.", "Done."]


def test_claude_subagents_are_conversations_of_their_own(tmp_path):
    side = {"isSidechain": True}
    path = write(
        tmp_path,
        line("u1", None, "user", "Fix it."),
        line("a1", "u1", "assistant", use("t1", "Task")),
        line("s1", None, "user", "Look around.", **side),
        line("s2", "s1", "assistant", [{"type": "text", "text": "Nothing there."}], **side),
        line("r1", "a1", "user", result("t1", "Nothing there.")),
        line("a2", "r1", "assistant", [{"type": "text", "text": "Done."}]),
    )
    main, agent = load_conversations(path)
    assert (main.name, main.part_of, agent.name, agent.part_of) == ("s-1", None, "s-1/agent-1", "s-1")
    assert [text for _, text in told(agent.messages)] == ["Look around.", "Nothing there."]
    assert load_conversation(path) == main


def test_claude_a_log_of_one_subagent_is_a_conversation(tmp_path):
    side = {"isSidechain": True, "agentId": "abc"}
    path = write(tmp_path, line("s1", None, "user", "Look.", **side), line("s2", "s1", "assistant", [{"type": "text", "text": "Ok."}], **side))
    conversation = load_conversation(path)
    assert (conversation.name, conversation.part_of, len(conversation.messages)) == ("s-1/abc", None, 2)


def test_claude_broken_lines_and_links_of_the_chain_cost_nothing_else(tmp_path):
    path = write(
        tmp_path,
        line("u1", None, "user", "Fix it."),
        {"type": "progress", "uuid": "p", "parentUuid": "u1", "data": {}},
        line("a1", "p", "assistant", [{"type": "text", "text": "One."}]),
        line("a2", "not in this file", "assistant", [{"type": "text", "text": "Two."}]),
    )
    path.write_text(path.read_text().replace('"progress"', '"progress"', 1) + '{"type": "assist')
    assert [text for _, text in told(load_conversation(path).messages)] == ["Fix it.", "One.", "Two."]


def test_claude_a_log_of_summaries_alone_is_no_conversation(tmp_path):
    with pytest.raises(ConversationError, match="a claude-code log without messages"):
        load_conversation(
            write(tmp_path, {"type": "summary", "summary": "Fixing", "leafUuid": "x"}, {"type": "summary", "summary": "b", "leafUuid": "y"})
        )


# --- Codex ----------------------------------------------------------------------------------------------------------------------------


def item(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": "2026-01-01T00:00:00Z", "type": "response_item", "payload": {"type": kind, **payload}}


def said(role: str, text: str) -> dict[str, Any]:
    return item("message", role=role, content=[{"type": "output_text" if role == "assistant" else "input_text", "text": text}])


META = {"timestamp": "t", "type": "session_meta", "payload": {"id": "codex-1", "cwd": "/x", "base_instructions": {"text": "You are Codex."}}}
CODEX = [
    META,
    said("developer", "<permissions instructions>never</permissions instructions>"),
    said("user", "<environment_context>\n<cwd>/x</cwd>\n</environment_context>"),
    {"timestamp": "t", "type": "event_msg", "payload": {"type": "user_message", "message": "Fix it."}},
    said("user", "Fix it."),
    {"timestamp": "t", "type": "turn_context", "payload": {"model": "gpt"}},
    item("reasoning", summary=[{"type": "summary_text", "text": "Look first."}], encrypted_content="AAAA"),
    said("assistant", "I look."),
    item("function_call", name="exec_command", arguments='{"cmd": "ls"}', call_id="c1"),
    item("local_shell_call", call_id="c2", status="completed", action={"type": "exec", "command": ["ls", "-a"], "timeout_ms": None}),
    item("custom_tool_call", call_id="c3", name="apply_patch", input="*** Begin Patch"),
    item("function_call_output", call_id="c1", output="a.py"),
    item("function_call_output", call_id="c2", output={"content": "no", "success": False}),
    item("custom_tool_call_output", call_id="c3", output=[{"type": "input_text", "text": "patched"}]),
    item("web_search_call", status="completed", action={"type": "search", "query": "q"}),
    said("assistant", "Done."),
]


def test_codex_items_become_messages(tmp_path):
    conversation = load_conversation(write(tmp_path, *CODEX))
    assert conversation.name == "codex-1"
    assert told(conversation.messages) == [
        ("system", "You are Codex."),
        ("system", "<permissions instructions>never</permissions instructions>"),
        ("human", "<environment_context>\n<cwd>/x</cwd>\n</environment_context>"),
        ("human", "Fix it."),
        ("ai", "I look. exec_command(c1) local_shell(c2) apply_patch(c3)"),
        ("tool", "a.py"),
        ("tool", "no"),
        ("tool", "patched"),
        ("ai", "Done."),
    ]
    answer, failed = conversation.messages[4], conversation.messages[6]
    assert [call["args"] for call in answer.tool_calls] == [{"cmd": "ls"}, {"command": ["ls", "-a"]}, {"input": "*** Begin Patch"}]
    assert failed.status == "error"
    assert [message.text for message in conversation.messages if is_real_user(message)] == ["Fix it."]
    assert pairing_faults(conversation.messages) == []


def test_codex_a_compaction_in_the_log_is_undone_unless_nothing_stands_before_it(tmp_path):
    compacted = {
        "timestamp": "t",
        "type": "compacted",
        "payload": {"message": "They fixed it.", "replacement_history": [said("user", "Fix it.")["payload"]]},
    }
    undone = load_conversation(write(tmp_path, *CODEX, compacted, said("assistant", "More.")))
    assert [text for _, text in told(undone.messages)][-1] == "Done.\n\nMore."
    alone = load_conversation(write(tmp_path, META, compacted, said("assistant", "More.")))
    assert told(alone.messages) == [("system", "You are Codex."), ("human", "Fix it."), ("ai", "More.")]


def test_codex_a_rollback_takes_turns_away(tmp_path):
    rollback = {"timestamp": "t", "type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}}
    lines = [META, said("user", "One."), said("assistant", "1"), said("user", "Two."), said("assistant", "2"), rollback, said("user", "Three.")]
    assert [text for _, text in told(load_conversation(write(tmp_path, *lines)).messages)] == ["You are Codex.", "One.", "1", "Three."]


def test_codex_older_rollouts_have_bare_items(tmp_path):
    bare = [line["payload"] for line in CODEX if line["type"] == "response_item"]
    first = {"id": "old-1", "timestamp": "t", "instructions": "Be brief.", "git": {}}
    conversation = load_conversation(write(tmp_path, first, {"record_type": "state"}, *bare))
    assert conversation.name == "old-1"
    assert told(conversation.messages)[0] == ("system", "Be brief.")
    assert told(conversation.messages)[-1] == ("ai", "Done.")


def test_items_of_the_responses_api_are_read_as_they_are(tmp_path):
    request = {"instructions": "Be brief.", "input": [said("user", "Fix it.")["payload"]], "output": [CODEX[8]["payload"], CODEX[11]["payload"]]}
    path = tmp_path / "r.json"
    path.write_text(json.dumps(request))
    assert told(load_conversation(path).messages) == [("system", "Be brief."), ("human", "Fix it."), ("ai", "exec_command(c1)"), ("tool", "a.py")]


# --- Gemini ---------------------------------------------------------------------------------------------------------------------------

RESPONSE = {"functionResponse": {"id": "g1", "name": "read_file", "response": {"output": "x = 1"}}}
GEMINI = [
    {"id": "1", "timestamp": "t", "type": "user", "content": "Fix it."},
    {
        "id": "2",
        "timestamp": "t",
        "type": "gemini",
        "content": "I look.",
        "thoughts": [{"subject": "Plan", "description": "Read first."}],
        "toolCalls": [
            {"id": "g1", "name": "read_file", "args": {"path": "a.py"}, "result": [RESPONSE], "status": "success"},
            {"id": "g2", "name": "shell", "args": {}, "resultDisplay": "denied", "status": "cancelled"},
        ],
    },
    {"id": "3", "timestamp": "t", "type": "info", "content": "Update available"},
    {"id": "4", "timestamp": "t", "type": "gemini", "content": "Done."},
]
SESSION = {"sessionId": "gem-1", "projectHash": "h", "startTime": "t", "lastUpdated": "t"}


def as_one(tmp_path: Path) -> Path:
    path = tmp_path / "session.json"
    path.write_text(json.dumps({**SESSION, "messages": GEMINI}, indent=2))
    return path


@pytest.mark.parametrize("layout", ["one object", "lines"])
def test_gemini_logs_are_read_in_both_layouts(tmp_path, layout):
    path = as_one(tmp_path) if layout == "one object" else write(tmp_path, SESSION, *GEMINI, {"$set": {"lastUpdated": "t2"}})
    conversation = load_conversation(path)
    assert conversation.name == "gem-1"
    assert told(conversation.messages) == [
        ("human", "Fix it."),
        ("ai", "I look. read_file(g1) shell(g2)"),
        ("tool", "x = 1"),
        ("tool", "denied"),
        ("ai", "Done."),
    ]
    assert [message.status for message in conversation.messages if isinstance(message, ToolMessage)] == ["success", "error"]
    assert pairing_faults(conversation.messages) == []


def test_gemini_a_record_that_is_written_again_replaces_the_first_and_a_rewind_takes_back(tmp_path):
    again = {**GEMINI[3], "content": "Really done."}
    assert told(load_conversation(write(tmp_path, SESSION, *GEMINI, again)).messages)[-1] == ("ai", "Really done.")
    rewound = write(tmp_path, SESSION, *GEMINI, {"$rewindTo": "2"}, {**GEMINI[3], "id": "5"})
    assert told(load_conversation(rewound).messages) == [("human", "Fix it."), ("ai", "Done.")]


def test_gemini_contents_pair_calls_without_ids_by_name(tmp_path):
    call = {"functionCall": {"name": "read_file", "args": {"path": "a.py"}}}
    answer = {"functionResponse": {"name": "read_file", "response": {"error": "no such file"}}}
    contents = [
        {"role": "user", "parts": [{"text": "Fix it."}]},
        {"role": "model", "parts": [{"text": "hm", "thought": True}, call, call]},
        {"role": "user", "parts": [answer, {"functionResponse": {"name": "read_file", "response": {"output": "x"}}}]},
        {"role": "model", "parts": [{"text": "Done."}]},
    ]
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"contents": contents, "systemInstruction": {"parts": [{"text": "Be brief."}]}}))
    system, _, asked, first, second, _ = load_conversation(path).messages
    assert system.text == "Be brief."
    assert [call["id"] for call in asked.tool_calls] == [first.tool_call_id, second.tool_call_id]
    assert (first.status, first.content, second.content) == ("error", "no such file", "x")


# --- LangSmith ------------------------------------------------------------------------------------------------------------------------

WORK: list[BaseMessage] = [
    HumanMessage("Fix it.", id="u"),
    AIMessage("", id="a", tool_calls=[{"id": "c1", "name": "read", "args": {}, "type": "tool_call"}]),
    ToolMessage("x = 1", id="t", tool_call_id="c1"),
    AIMessage("Done.", id="z"),
]
PROMPT = SystemMessage("Be brief.")


def run_of(name: str, inputs: Any, outputs: Any, **more: Any) -> dict[str, Any]:
    return {"id": name, "name": name, "run_type": "chain", "trace_id": "trace-1", "inputs": inputs, "outputs": outputs, **more}


def dumped(messages: list[BaseMessage]) -> list[Any]:
    return [dumpd(message) for message in messages]


def generation(message: BaseMessage) -> dict[str, Any]:
    return {"generations": [[{"text": str(message.text), "message": dumpd(message)}]], "llm_output": None}


ROOT = run_of("agent", {"messages": dumped(WORK[:1])}, {"messages": dumped(WORK)})
CHILDREN = [
    run_of("ChatModel", {"messages": [dumped([PROMPT, *WORK[:1]])]}, generation(WORK[1]), parent_run_id="agent"),
    run_of("read", {"input": "{}"}, {"output": dumpd(WORK[2])}, parent_run_id="agent", run_type="tool"),
    run_of("ChatModel", {"messages": [dumped([PROMPT, *WORK[:3]])]}, generation(WORK[3]), parent_run_id="agent"),
]


@pytest.mark.parametrize("layout", ["nested", "list", "lines", "object of runs"])
def test_langsmith_a_trace_is_one_conversation_with_its_prompt(tmp_path, layout):
    if layout == "lines":
        path = write(tmp_path, ROOT, *CHILDREN)
    else:
        value = {"nested": {**ROOT, "child_runs": CHILDREN}, "list": [ROOT, *CHILDREN], "object of runs": {"runs": [ROOT, *CHILDREN]}}[layout]
        path = tmp_path / "run.json"
        path.write_text(json.dumps(value))
    conversation = load_conversation(path)
    assert (conversation.name, conversation.part_of) == ("trace-1", None)
    assert told(conversation.messages) == [("system", "Be brief."), ("human", "Fix it."), ("ai", "read(c1)"), ("tool", "x = 1"), ("ai", "Done.")]


def test_langsmith_a_subagent_is_a_conversation_of_its_own(tmp_path):
    side = [HumanMessage("Look around.", id="s1"), AIMessage("Nothing.", id="s2")]
    child = run_of("scout", {"messages": dumped(side[:1])}, {"messages": dumped(side)}, parent_run_id="agent")
    main, agent = load_conversations(write(tmp_path, ROOT, child, *CHILDREN))
    assert (agent.name, agent.part_of, told(agent.messages)) == ("trace-1/scout", "trace-1", [("human", "Look around."), ("ai", "Nothing.")])
    assert len(main.messages) == 5


def test_langsmith_runs_of_openai_clients_and_plain_dumps(tmp_path):
    request = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Fix it."}]
    openai = run_of("ChatOpenAI", {"messages": request, "model": "gpt"}, {"choices": [{"message": {"role": "assistant", "content": "Done."}}]})
    path = tmp_path / "run.json"
    path.write_text(json.dumps(openai))
    assert told(load_conversation(path).messages) == [("system", "Be brief."), ("human", "Fix it."), ("ai", "Done.")]
    plain = run_of("agent", {"input": {"messages": [m.model_dump() for m in WORK[:1]]}}, {"output": {"messages": [m.model_dump() for m in WORK]}})
    path.write_text(json.dumps(plain))
    assert told(load_conversation(path).messages)[0] == ("human", "Fix it.")
    assert len(load_conversation(path).messages) == 4


def test_langsmith_another_key_of_the_state(tmp_path):
    path = write(tmp_path, run_of("agent", {"chat": dumped(WORK[:1])}, {"chat": dumped(WORK)}), {})
    assert len(load_conversation(path, messages_key="chat").messages) == 4


def test_langsmith_several_traces_are_several_conversations(tmp_path):
    other = {**ROOT, "id": "second", "trace_id": "trace-2"}
    assert [conversation.name for conversation in load_conversations(write(tmp_path, ROOT, other))] == ["trace-1", "trace-2"]


def test_langsmith_runs_without_messages_are_no_conversation(tmp_path):
    with pytest.raises(ConversationError, match="a langsmith log without messages"):
        load_conversation(write(tmp_path, run_of("retriever", {"query": "x"}, {"documents": []}), {}))


# --- all ------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_a_forced_format_that_does_not_fit_is_one_clear_line(tmp_path, name):
    path = tmp_path / "other.json"
    path.write_text('{"messages": [{"neither": 1}]}')
    with pytest.raises(ConversationError) as caught:
        load_conversations(path, format=name)
    assert str(caught.value).startswith(f"{path}:")
    assert str(caught.value).isprintable()


def test_a_forced_format_is_obeyed(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "r"}]}]))
    assert isinstance(load_conversation(path).messages[0], ToolMessage)
    assert isinstance(load_conversation(path, format="openai").messages[0], HumanMessage)
    with pytest.raises(ValueError, match="give one of"):
        load_conversation(path, format="nonsense")


def test_files_that_only_look_like_logs_are_plain_conversations(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"sessionId": "s", "id": "talk", "messages": [{"role": "user", "content": "hi"}]}))
    assert load_conversation(path) == Conversation(name="talk", messages=(HumanMessage("hi", id="m0"),))
