"""Reading the summariser's answer: the last complete snapshot, or the reason why there is none."""

from __future__ import annotations

import contextlib
import time
from types import SimpleNamespace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage

from langgraph_roundcompact._prompt import AFFINITY_INSTRUCTIONS, CLOSING, INSTRUCTIONS, SECTIONS
from langgraph_roundcompact._snapshot import read_summary
from langgraph_roundcompact.errors import RejectionReason, SummaryRejected

OPEN, CLOSE = "<state_snapshot>", "</state_snapshot>"
BLOCK = f"{OPEN}\n### 1. Active Task\nGo on.\n{CLOSE}"
TEXT = "### 1. Active Task\nGo on."


def rejection(answer: object, *, require_snapshot: bool = False) -> str:
    with pytest.raises(SummaryRejected) as caught:
        read_summary(answer, require_snapshot=require_snapshot)
    return caught.value.reason


@pytest.mark.parametrize(
    ("answer", "summary"),
    [
        (BLOCK, TEXT),
        (f"Here it is:\n\n{BLOCK}\n\nDone.", TEXT),
        (f"```xml\n{BLOCK}\n```", TEXT),
        (f"{OPEN}A{CLOSE}", "A"),
        (f"Sure: {OPEN}A{CLOSE} That is all.", "A"),
        (f"{OPEN}\nA\nB{CLOSE} Done.", "A\nB"),
        ('<State_Snapshot version="1" >\nA\n< / STATE_SNAPSHOT >', "A"),
        (f"<coverage_check>ok</coverage_check>{OPEN}A{CLOSE}", "A"),
    ],
)
def test_the_block_is_found_whatever_stands_around_it(answer: str, summary: str) -> None:
    """Attributes, case, blanks, fences and chatter."""
    assert read_summary(answer, require_snapshot=True) == summary


@pytest.mark.parametrize(
    ("answer", "summary"),
    [
        (f"{OPEN}FIRST{CLOSE} then {OPEN}SECOND{CLOSE}", "SECOND"),
        (f"{OPEN}\nFIRST\n{CLOSE}\n\n{OPEN}\nSECOND\n{CLOSE}", "SECOND"),
        (f"{OPEN}\ndraft\n{OPEN}\nreal\n{CLOSE}", "real"),
        (f"{OPEN}A{CLOSE}\n{OPEN}\nunfinished", "A"),
        (f"{OPEN}\nA\n{CLOSE}\n{OPEN}\n{CLOSE}", "A"),
        (f"{OPEN}\nA\n{CLOSE}\n{OPEN}\n...\n{CLOSE}", "A"),
        (f"{OPEN}<![CDATA[\nA\n]]>{CLOSE}", "A"),
        (f"{OPEN}\n### 1. Active Task\nError 401 unauthorized was returned\n{CLOSE}", "### 1. Active Task\nError 401 unauthorized was returned"),
    ],
)
def test_the_last_complete_block_wins(answer: str, summary: str) -> None:
    """A first version, a draft that was given up, a repetition that was cut off."""
    assert read_summary(answer, require_snapshot=True) == summary


@pytest.mark.parametrize(
    ("answer", "summary"),
    [
        (f"<think>{OPEN}draft{CLOSE}</think>{OPEN}REAL{CLOSE}", "REAL"),
        (f"<thinking>\n{OPEN}\ndraft\n{CLOSE}\n</thinking>\n{OPEN}\nREAL\n{CLOSE}", "REAL"),
        (f"{OPEN}draft{CLOSE} hm</think>{OPEN}REAL{CLOSE}", "REAL"),
        (f"I plan {OPEN} and more</think>\n{BLOCK}", TEXT),
        ("<think>thoughts</think>The text.", "The text."),
        ("<reasoning>a</reasoning>\nThe <b>text</b>.\n<think>b</think>", "The <b>text</b>."),
        ("<think>a<think>b</think>c</think>The text.", "The text."),
        (f"{OPEN}\nA\n<think>hm</think>\nB\n{CLOSE}", "A\n\nB"),
    ],
)
def test_reasoning_is_no_part_of_the_summary(answer: str, summary: str) -> None:
    """Nor is a draft inside it; also where the template opened the reasoning before the answer began."""
    assert read_summary(answer, require_snapshot=False) == summary


@pytest.mark.parametrize(
    "answer",
    [
        f"[THINK]plan[/THINK]{BLOCK}",
        f"◁think▷<state_snapshot>draft</state_snapshot>◁/think▷{BLOCK}",
        f"<|channel|>analysis<|message|>plan<|end|><|start|>assistant<|channel|>final<|message|>{BLOCK}",
        f"<|channel|>final<|message|>{BLOCK}<|return|>",
        f"<analysis>\nplan\n</analysis>\n{BLOCK}",
        BLOCK.replace("state_snapshot", "state-snapshot"),
        f"{OPEN}\n{BLOCK}\n{CLOSE}",
        f"&nbsp;\n{BLOCK}\n\nLet me know if you need more!",
    ],
)
def test_the_block_is_found_in_the_marks_of_other_templates(answer: str) -> None:
    """Reasoning of Magistral, Kimi and gpt-oss; a hyphen in the tag; a block in a block."""
    assert read_summary(answer, require_snapshot=True) == read_summary(BLOCK, require_snapshot=True)


@pytest.mark.parametrize(
    ("answer", "summary"),
    [
        (f"<coverage_check>it is in {OPEN} below</coverage_check>\n{BLOCK}", TEXT),
        (f"<coverage_check>yes {OPEN}draft{CLOSE}</coverage_check>{BLOCK}", TEXT),
        (f"<coverage_check>\n- all covered\n{BLOCK}", TEXT),
        (f"{OPEN}\nUse {CLOSE} and {OPEN} tags.\nEnd\n{CLOSE}", f"Use {CLOSE} and {OPEN} tags.\nEnd"),
        (f"{OPEN}\nUse `{OPEN}` and `{CLOSE}`\nEnd\n{CLOSE}", f"Use `{OPEN}` and `{CLOSE}`\nEnd"),
        (f"{OPEN}A {CLOSE} inside B{CLOSE}", f"A {CLOSE} inside B"),
        (f"{OPEN}\nexample:\n{OPEN}\nfoo\n{CLOSE}\nend\n{CLOSE}", f"example:\n{OPEN}\nfoo\n{CLOSE}\nend"),
        (f"{OPEN}\nthe `<think>` and </think> tags\n{CLOSE}", "the `<think>` and </think> tags"),
    ],
)
def test_a_tag_that_is_only_mentioned_is_text(answer: str, summary: str) -> None:
    """In the coverage check, in a sentence, between backticks, in an example."""
    assert read_summary(answer, require_snapshot=True) == summary


@pytest.mark.parametrize(
    "answer",
    [
        AIMessage("The text."),
        AIMessageChunk("The text."),
        AIMessage([{"type": "text", "text": "The text."}]),
        AIMessageChunk(content=[{"type": "text", "text": "The "}, "text."]),
        AIMessage([{"type": "reasoning", "id": "rs_1", "summary": []}, {"type": "text", "text": "The text.", "annotations": []}]),
        AIMessage([{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "The text."}]),
        {"content": "The text."},
        {"content": [{"type": "text", "text": "The text."}]},
        {"text": "The text."},
        SimpleNamespace(content={"type": "text", "text": "The text."}),
        SimpleNamespace(content=("The ", {"type": "output_text", "text": "text."})),
        SimpleNamespace(content=None, text="The text."),
        [HumanMessage("Sum it up."), AIMessage("The text.")],
        "The text.",
    ],
)
def test_any_shape_of_answer_is_read(answer: object) -> None:
    """Strings, blocks, chunks, output of the Responses API, plain mappings."""
    assert read_summary(answer, require_snapshot=False) == "The text."


CALLS_AS_TEXT = [
    '<tool_call>\n{"name": "read_file", "arguments": {"path": "a.py"}}\n</tool_call>',
    'Let me read it first.\n<tool_call>\n{"name": "read_file"}\n</tool_call>',
    '<function=read_file>{"path": "a.py"}</function>',
    '<function_calls>\n<invoke name="read_file">\n</invoke>\n</function_calls>',
    '{"name": "read_file", "parameters": {"path": "a.py"}}',
    '```json\n{"tool": "read_file", "args": {"path": "a.py"}}\n```',
    '[TOOL_CALLS][{"name": "read_file", "arguments": {}}]',
    '<|python_tag|>read_file.call(path="a.py")',
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read_file",
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.read_file:0",
    "```tool_code\nread_file(path='a.py')\n```",
    "Thought: I need the file.\nAction: read_file\nAction Input: a.py",
]
"""Calls as models write them where nothing parses them."""

TRANSCRIPT = "[§1 assistant]\nI look for it.\n[§1.1 call search id=c1] {}\n[§2 result of §1.1 search id=c1: ok]\nsrc/app.py:10"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (AIMessage(""), "blank"),
        (AIMessage("  \n"), "blank"),
        (AIMessage([]), "blank"),
        (None, "blank"),
        (f"{OPEN}\n\n{CLOSE}", "blank"),
        ("<memory_block_current>\n\n</memory_block_current>", "blank"),
        ("<html>502 Bad Gateway</html>", "blank"),
        ("<!DOCTYPE html><html><body>Error</body></html>", "blank"),
        ("502 Bad Gateway", "blank"),
        ("Internal Server Error", "blank"),
        ('{"error": {"message": "overloaded"}}', "blank"),
        (AIMessage([{"type": "thinking", "thinking": "so ...", "signature": "s"}]), "reasoning_only"),
        (AIMessage([{"type": "reasoning", "summary": [{"type": "summary_text", "text": "plan"}]}]), "reasoning_only"),
        (AIMessage("", additional_kwargs={"reasoning_content": "let me think"}), "reasoning_only"),
        ("<think>only thoughts, cut off", "reasoning_only"),
        (f"<think>{BLOCK}", "reasoning_only"),
        (AIMessage("let me look", tool_calls=[{"name": "ls", "args": {}, "id": "1", "type": "tool_call"}]), "tool_call"),
        (AIMessage(BLOCK, tool_calls=[{"name": "ls", "args": {}, "id": "1", "type": "tool_call"}]), "tool_call"),
        (AIMessage([{"type": "tool_use", "id": "1", "name": "ls", "input": {}}]), "tool_call"),
        (AIMessage("half a", response_metadata={"finish_reason": "length"}), "cut_off"),
        (AIMessage("half a", response_metadata={"stop_reason": "max_tokens"}), "cut_off"),
        (AIMessage("half a", response_metadata={"finish_reason": "MAX_TOKENS"}), "cut_off"),
        *(
            (AIMessage("half a", response_metadata={"finish_reason": word}), "cut_off")
            for word in ("error", "ERROR_LIMIT", "aborted", "FinishReason.OTHER", "lengthlength", "model_context_window_exceeded", "pause_turn")
        ),
        *(
            (AIMessage(BLOCK, response_metadata={"finish_reason": word}), "content_filter")
            for word in ("SAFETYSAFETY", "sensitive", "ERROR_TOXIC", "LANGUAGE", "guardrail_intervened", "FinishReason.PROHIBITED_CONTENT")
        ),
        (AIMessage("", response_metadata={"prompt_feedback": {"block_reason": "SAFETY", "safety_ratings": []}}), "content_filter"),
        (AIMessage("", response_metadata={"prompt_feedback": {"block_reason": "BLOCK_REASON_UNSPECIFIED"}}), "blank"),
        (AIMessage(BLOCK, response_metadata={"amazon-bedrock-guardrailAction": "INTERVENED"}), "content_filter"),
        (AIMessage("", response_metadata={"finish_reason": "MALFORMED_FUNCTION_CALL"}), "tool_call"),
        (AIMessage([{"type": "non_standard", "value": {"type": "refusal", "refusal": "I can't"}}]), "refusal"),
        (SimpleNamespace(content=None), "blank"),
        (SimpleNamespace(content={"type": "function_call", "name": "ls"}), "tool_call"),
        ([], "blank"),
        (42, "blank"),
        (AIMessage("half a", response_metadata={"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}), "cut_off"),
        (f"{OPEN}\nunfinished", "cut_off"),
        (AIMessage("x", response_metadata={"finish_reason": "content_filter"}), "content_filter"),
        (AIMessage("x", response_metadata={"finish_reason": "SAFETY"}), "content_filter"),
        (AIMessage("x", response_metadata={"stop_reason": "refusal"}), "refusal"),
        (AIMessage("", additional_kwargs={"refusal": "I can't"}), "refusal"),
        (AIMessage([{"type": "refusal", "refusal": "I can't"}]), "refusal"),
        ("<coverage_check>\nall covered\n</coverage_check>", "coverage_only"),
        ("<coverage_check>\nall covered", "coverage_only"),
        (INSTRUCTIONS, "prompt_echo"),
        (AFFINITY_INSTRUCTIONS, "prompt_echo"),
        (f"{INSTRUCTIONS}\n\n<user_request>\ngo\n</user_request>\n{CLOSING}", "prompt_echo"),
        (f"{OPEN}\n" + "\n".join(f"### {i}. {name}\n({what})" for i, (name, what) in enumerate(SECTIONS, 1)) + f"\n{CLOSE}", "prompt_echo"),
        ("Let me check that file.", "no_snapshot"),
        *(
            (text, "blank")
            for text in ("\u200b\ufeff", "\ud800", "\x00\x00", "```\n```", "...", f"{OPEN}...{CLOSE}", f"{OPEN}\n502 Bad Gateway\n{CLOSE}")
        ),
        (f"{OPEN}\n" + "\n".join(f"### {i}. {name}\n(none)" for i, (name, _) in enumerate(SECTIONS, 1)) + f"\n{CLOSE}", "blank"),
        (f"{OPEN}\n### 1. Active Task\n\n**2. Constraints and Preferences**\n- n/a\n{CLOSE}", "blank"),
        *(
            (text, "reasoning_only")
            for text in ("[THINK]plan[/THINK]", "◁think▷plan◁/think▷", "<seed:think>plan</seed:think>", "<analysis>plan</analysis>")
        ),
        ("<|channel|>analysis<|message|>let me think", "reasoning_only"),
        ("<|channel|>analysis<|message|>let me think<|end|>", "reasoning_only"),
        *((text, "tool_call") for text in CALLS_AS_TEXT),
        (f"{OPEN}\n{CALLS_AS_TEXT[0]}\n{CLOSE}", "tool_call"),
        (f"The work so far:\n{TRANSCRIPT}", "prompt_echo"),
        (f"{OPEN}\n{TRANSCRIPT}\n{CLOSE}", "prompt_echo"),
        ("```\n<coverage_check>x</coverage_check>\n```", "coverage_only"),
        (AIMessage("half a", response_metadata={"finish_reason": ["length"]}), "cut_off"),
        (AIMessage("", response_metadata={"choices": [{"finish_reason": "content_filter"}]}), "content_filter"),
        (f"{BLOCK[:-6]}", "cut_off"),
    ],
)
def test_what_is_not_a_summary_is_refused(answer: object, reason: str) -> None:
    """Each with its own reason, so that the second question can name it."""
    assert rejection(answer) == reason
    assert reason in get_args(RejectionReason)


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, I can't help with that.",
        "I’m sorry, but I can’t assist with that request.",
        "I cannot assist with this request.",
        "I am unable to help with that.",
        "Es tut mir leid, dabei kann ich nicht helfen.",
        "Je suis désolé, mais je ne peux pas vous aider.",
        "Lo siento, no puedo ayudar con eso.",
        "Desculpe, não posso ajudar com isso.",
        "Mi dispiace, non posso aiutarti.",
        "对不起，我无法协助处理。",
        "申し訳ありませんが、お手伝いできません。",
        "죄송하지만 도와드릴 수 없습니다.",
        "Извините, я не могу помочь.",
        "對不起，我無法協助。",
        "Sorry, daar kan ik niet bij helpen.",
        "Przepraszam, nie mogę w tym pomóc.",
        "Üzgünüm, bu konuda yardımcı olamam.",
        "Beklager, det kan ikke gøres af mig.",
        "عذرًا، لا أستطيع المساعدة في ذلك.",
        "Xin lỗi, tôi không thể giúp.",
        "Maaf, saya tidak bisa membantu.",
        "क्षमा करें, मैं मदद नहीं कर सकता।",
    ],
)
def test_a_text_that_only_refuses_is_refused(text: str) -> None:
    """In several languages, alone or as all that a snapshot says; beside other text the same words are a finding."""
    for answer in (text, f"{OPEN}\n{text}\n{CLOSE}", f"{OPEN}\n### 1. Active Task\n{text}\n### 2. Constraints and Preferences\n(none)\n{CLOSE}"):
        assert rejection(answer) == "refusal"
    finding = f"### 1. Active Task\n{text}\n### 5. Immediate Resume Point\nThe model refused in src/app.py:10."
    assert read_summary(f"{OPEN}\n{finding}\n{CLOSE}", require_snapshot=False) == finding


@pytest.mark.parametrize(
    "text",
    [
        "SUMMARY-OK",
        "The server answered 401 unauthorized; a new key works.",
        "Fetched the page: <html>502 Bad Gateway</html>. Tried again: fine.",
        "The client said: I'm sorry, I can't help with that. So the ticket was escalated.",
        "任务：修复登录。已完成：改了 a.py。",
        "Resumo: corrigi o login.",
        "I can't reproduce the bug with version 2; next: try version 1.",
    ],
)
def test_plain_text_is_a_summary_unless_a_snapshot_is_required(text: str) -> None:
    """Words about errors and refusals are no errors and refusals."""
    assert read_summary(text, require_snapshot=False) == text
    assert rejection(text, require_snapshot=True) == "no_snapshot"


@pytest.mark.parametrize("text", ["ok", "Done.", "Got it!", "好的", "Fertig.", "Готово", "👍", "All done, thanks."])
def test_a_word_or_two_are_no_summary_of_hours_of_work(text: str) -> None:
    """By the size of what it would replace: a byte for each 500 characters is the least."""
    with pytest.raises(SummaryRejected, match="no_snapshot"):
        read_summary(text, require_snapshot=False, replaces=500 * (len(text.encode()) + 1))
    assert read_summary(text, require_snapshot=False, replaces=500 * len(text.encode())) == text
    assert read_summary(f"{OPEN}\n{text}\n{CLOSE}", require_snapshot=False, replaces=10**9) == text


def test_a_short_summary_is_enough_for_any_amount_of_work() -> None:
    """A thousand bytes, in any script."""
    for text in ("Tests pass; next: release. " * 40, "测试已通过，下一步是发布。" * 30):
        assert read_summary(text, require_snapshot=False, replaces=10**9) == text.strip()


@pytest.mark.parametrize(
    "text",
    [
        "Sure, I'll check the file first.",
        "First, let me run the tests.",
        "I need to look at the log.",
        "Ich werde mir die Datei ansehen.",
        "Je vais vérifier le fichier.",
        "Voy a revisar el archivo.",
        "Сейчас проверю файл.",
        "好的，让我先看一下这个文件。",
        "では、ファイルを確認します。",
        "먼저 파일을 확인하겠습니다.",
        "دعني أتحقق من الملف.",
        "What would you like me to do next?",
        "接下来要我做什么？",
        "ماذا تريد أن أفعل؟",
    ],
)
def test_an_aside_of_the_model_is_no_summary(text: str) -> None:
    """What it will do, or what it asks; a longer text may begin or end so."""
    assert rejection(text) == "no_snapshot"
    longer = f"{text}\nTask: fix the login. Done: changed a.py. Next: run the tests."
    assert read_summary(longer, require_snapshot=False) == longer


def test_a_complete_block_counts_although_the_answer_was_cut_off_behind_it() -> None:
    """The length limit hit what came after the block."""
    assert read_summary(AIMessage(f"{BLOCK}\nAnd now", response_metadata={"finish_reason": "length"}), require_snapshot=True) == TEXT


def test_the_frame_of_our_own_block_is_taken_off() -> None:
    """A model that imitates the block it has seen."""
    answer = "<memory_block_current>\n<meaning>x</meaning>\n<summary>\nThe text.\n</summary>\n</memory_block_current>"
    assert read_summary(answer, require_snapshot=False) == "The text."


def test_characters_that_cannot_be_stored_are_replaced() -> None:
    """NUL and lone surrogates."""
    assert read_summary(f"{OPEN}a\x00\ud800b{CLOSE}", require_snapshot=True) == "a\ufffd\ufffdb"


PIECES = [
    OPEN,
    CLOSE,
    "<think>",
    "</think>",
    "<coverage_check>",
    "</coverage_check>",
    "\n",
    "`",
    "word",
    " ",
    "<",
    "### 1.",
    "<state_snapshot a='b'>",
    "\ud800",
]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=25).map("".join))
def test_any_answer_gives_text_or_a_reason(answer: str) -> None:
    """Never another error, never a blank summary, never a character that cannot be stored."""
    try:
        summary = read_summary(answer, require_snapshot=False)
    except SummaryRejected as rejected:
        summary = f"rejected: {rejected.reason}"
    assert summary.strip() == summary != ""
    summary.encode()


@given(
    st.lists(
        st.sampled_from([p for p in PIECES if "state_snapshot" not in p and "think" not in p]) | st.text(alphabet="abc \n.", max_size=9), max_size=9
    ).map("".join),
    st.text(alphabet="abc \n.", min_size=1).filter(lambda text: text.strip(" \n.")),
)
def test_a_clean_block_at_the_end_is_found_whatever_came_before(before: str, body: str) -> None:
    """Half-finished coverage checks and noise do not hide it."""
    assert read_summary(f"{before}\n{OPEN}\n{body}\n{CLOSE}", require_snapshot=True) == body.strip()


@pytest.mark.parametrize(
    "unit",
    [
        OPEN,
        CLOSE,
        OPEN + CLOSE,
        f"{OPEN}\n",
        "<think>\n",
        "<coverage_check>",
        f"<coverage_check>\n{OPEN}\n",
        "<",
        "<   ",
        "`<think>`",
        "<state_snapshot ",
        "<meaning>",
        "sorry ",
    ],
)
@pytest.mark.parametrize("frame", ["{}", f"{OPEN}\n{{}}\n{CLOSE}"])
def test_a_megabyte_of_hostile_answer_takes_no_time(unit: str, frame: str) -> None:
    """A quadratic scan would need hours; the bound leaves room for a slow machine."""
    answer = frame.replace("{}", unit * (1_000_000 // len(unit)))
    started = time.process_time()
    with contextlib.suppress(SummaryRejected):
        read_summary(answer, require_snapshot=False)
    assert time.process_time() - started < 2
