"""Properties of everything that reads or frames text from outside, for any text at all: one source for hypothesis and for the byte fuzzers.

`SEEN` is a reader of its own. It shares no pattern with the package: what it takes for a tag of ours is decided character by character.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import cache

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langgraph_roundcompact._escape import neutralise, storable
from langgraph_roundcompact._memory_block import BlockData, checkpoint_messages, frame, is_checkpoint, read_block
from langgraph_roundcompact._redact import default_redact
from langgraph_roundcompact._render import escaped
from langgraph_roundcompact._request import SummarySource, transcript_request
from langgraph_roundcompact._snapshot import read_summary
from langgraph_roundcompact.errors import SummaryRejected

OUR_TAGS = ("memory_block_current", "recovered_context", "section", "summary", "ledger", "meaning", "conflict_policy", "state_snapshot")
REQUEST_TAGS = ("work_transcript", "user_request", "earlier_checkpoint", "earlier_facts", "user_focus")

TOKENS = [
    *(f"<{tag}>" for tag in (*OUR_TAGS, *REQUEST_TAGS)), *(f"</{tag}>" for tag in (*OUR_TAGS, *REQUEST_TAGS)),
    "<state_snapshot version='1'>", "</STATE_SNAPSHOT >", "< / summary\t>", "<\\/summary>", "&lt;/summary&gt;", "&#60;/summary&#62;",
    "\\u003c/summary\\u003e",
    "＜/summary＞", "<／summary>", "</ѕummary>", "</sum\u200bmary>", "<\u00ad/section>", "<\x01/memory_block_current>", "</ｓｅｃｔｉｏｎ>",
    "</𝗅edger>", "〈/ledger〉",
    "<coverage_check>", "</coverage_check>", "<think>", "</think>", "<thinking>", "</reasoning>", "<thought>", "`<think>`", "`</state_snapshot>`",
    "[[COMPRESSION_RECALL: id=x]]", "[STATE_REINJECTION]", "［STATE_REINJECTION", "[ COMPRESSION", "_RECALL", "[§1 user]\n", "[ §", "§",
    "<system-reminder>", "</system-reminder>", "<instruction>", "<![CDATA[", "]]>", "<!-- ", "-->", "```\n", "```", "`", "'", '"', "“",
    "<", ">", "/", "\\", "[", "]", "=", "&", ";", "{", "}", ":", "-", "_", "\n", "\r\n", "\t", " ", "\x00", "\ud800", "\udfff", "\ufffd",
    "\ufeff", "\u2028",
    "### 1. Active Task\n", "Continue.", "I'm sorry, I can't help with that.", "Let me check.", "memory_block_", "current", "sum", "mary", "section",
    "第一步", "Привет", "مرحبا", "e\u0301", "𝕏", "🙂",
]  # fmt: skip
"""Pieces of which hostile texts are made, beside any others."""

_SHAPES = str.maketrans({"ѕ": "s", "о": "o", "е": "e", "а": "a", "／": "/", "〈": "<", "〉": ">", "‹": "<", "›": ">"})


@cache
def _seen(character: str) -> str:
    if character in "\n\t\r ":
        return " "
    if unicodedata.category(character) in ("Cc", "Cf", "Cs") or character == "\ufffd":
        return ""
    plain = unicodedata.normalize("NFKC", character.translate(_SHAPES))
    return plain.lower() if len(plain) == 1 else character


def seen(text: str) -> str:
    """A text as a reader sees it: no invisible characters, look-alikes as what they look like, in lower case."""
    return "".join(map(_seen, text))


def tags_in(text: str) -> Counter[str]:
    """Tags of ours that a reader sees, by name; closing ones with a slash in front. An opening one counts where it begins without a gap."""
    found = Counter[str]()
    if "<" in (shown := seen(text)):
        for tag in _TAG.finditer(shown):
            slash = "/" if tag[1].strip() else ""
            if slash or not tag[1]:
                found[slash + tag[2]] += 1
    return found


_TAG = re.compile(rf"<([\s/\\]*)({'|'.join((*OUR_TAGS, *REQUEST_TAGS))})(?![\w.:-])")


# --- the parser --------------------------------------------------------------------------------------------------------------------------


def check_parser(answer: str, finish: str = "stop", *, require_snapshot: bool = False) -> bool:
    """An answer is a clean summary that stays inside its block, or a rejection; whether it was one."""
    try:
        summary = read_summary(AIMessage(answer, response_metadata={"finish_reason": finish}), require_snapshot=require_snapshot)
    except SummaryRejected:
        return False
    assert summary == summary.strip() != ""
    assert summary == storable(summary)
    if require_snapshot:
        assert "state_snapshot" in answer.lower()
    check_frame(summary, "")
    return True


def check_found(before: str, body: str) -> None:
    """A clean block that says something is found, whole, behind any text without tags of its kind."""
    before = re.sub(r"(?i)think|thought|reasoning|state_snapshot|coverage_check", "x", before)
    body = f"Next: step 7.\n{re.sub(r'[<>`§]', '', body)}".strip()
    found = read_summary(f"{before}\n<state_snapshot>\n{body}\n</state_snapshot>", require_snapshot=True)
    assert found == storable(body).strip()


# --- the block ---------------------------------------------------------------------------------------------------------------------------


def check_escape(text: str) -> None:
    """Only the first character of a tag or mark is changed, once, and no closing tag is left to be seen."""
    for escape, tags in ((neutralise, OUR_TAGS), (escaped, REQUEST_TAGS)):
        once = escape(text)
        assert escape(once) == once
        left = tags_in(once)
        assert [tag for tag in tags if left[tag] or left[f"/{tag}"]] == []
        _same_but_for_entities(storable(text), once)


def _same_but_for_entities(text: str, escaped_text: str) -> None:
    at = 0
    for character in text:
        if escaped_text[at : at + 1] == character:
            at += 1
            continue
        entity = {"<": "&lt;", "[": "&#91;"}.get(character, f"&#{ord(character)};")
        assert escaped_text.startswith(entity, at)
        assert character in "<[" or not character.isascii()
        at += len(entity)
    assert at == len(escaped_text)


def check_frame(summary: str, ledger: str, recovered: str = "") -> None:
    """One block, whatever is in it; what is read back is what was stored; storing that again changes nothing."""
    context = f"<recovered_context>\n{neutralise(recovered)}\n</recovered_context>" if recovered else ""
    text = frame(summary, ledger, ["k1"], context)
    text.encode()
    parts = {"memory_block_current": True, "meaning": True, "conflict_policy": True, "summary": bool(summary), "ledger": bool(ledger)}
    parts["recovered_context"] = bool(recovered)
    ours = {tag: count for tag, count in tags_in(text).items() if tag.removeprefix("/") in OUR_TAGS}
    assert ours == {sign + tag: 1 for tag, there in parts.items() if there for sign in ("", "/")}
    assert len(re.findall(r"\[\s*compression_recall", seen(text))) == 1
    messages = checkpoint_messages(text, BlockData(archive_ids=("k1",)), role="user", ids=["a"])
    assert all(map(is_checkpoint, messages))
    block = read_block(messages)
    assert block is not None
    assert (block.narrative, block.ledger_text, block.data.archive_ids) == (neutralise(summary), neutralise(ledger), ("k1",))
    again = frame(block.narrative, block.ledger_text, block.data.archive_ids, context)
    assert again == text


def check_request(request: str, result: str, earlier: str, focus: str) -> None:
    """The transcript opens and closes each of its tags once behind the instructions, and each entry is one of ours."""
    call = {"name": "look_up", "args": {"key": result[:80]}, "id": result[:20] or "c1"}
    work: list[BaseMessage] = [
        AIMessage([request[:50], {"type": "text", "text": result[-50:]}], tool_calls=[call]),
        ToolMessage([{"type": "text", "text": result}, {"type": "text", "text": earlier}], tool_call_id=call["id"], name=focus[:30]),
    ]
    source = SummarySource(request=HumanMessage(request), earlier=earlier, earlier_facts=focus, groups=[work], focus=focus, redact=default_redact)
    for limit in (None, 2_500):
        made = transcript_request(source, limit_tokens=limit, estimate=lambda text: len(text) // 4)
        if made is None:
            assert limit is not None
            continue
        text = str(made.messages[0].content)
        text.encode()
        tags = tags_in(text[text.index("The user's request, already preserved:") :])
        for tag in REQUEST_TAGS:
            assert tags[tag] == tags[f"/{tag}"] <= 1
        heads = re.findall(r"\[\s*§([^\]\n]{0,20})", seen(text[text.rindex("<work_transcript>") :]))
        assert all(re.match(r"[12](\.1)? ", head) for head in heads), heads


# --- redaction ---------------------------------------------------------------------------------------------------------------------------

PLANTED = (
    "API_KEY={}", 'password: "{}"', "Authorization: Bearer {}", '{{"client_secret": "{}"}}', "https://bob:{}@db.internal/x", "--token {} --verbose",
    "AccountKey={};EndpointSuffix=x", "export DB_PASSWORD='{}'", "curl -u bob:{} https://x", "Cookie: sid={}; theme=dark", "ghp_{}", "sk-proj-{}",
    "-----BEGIN PRIVATE KEY-----\n{}{}\n-----END PRIVATE KEY-----", "https://x.y/z?access_token={}&user=1", "<password>{}</password>",
)  # fmt: skip
"""Places of a secret, each on lines of its own."""

SECRET = "Zq7RtW2mXv9KpL4sDf8HjN3bQc6YgTx1"


def check_redaction(before: str, place: int, after: str) -> None:
    """Redacting again changes nothing, and a secret on lines of its own is gone whatever stands around it."""
    for text in (before, before + after):
        once = default_redact(text)
        assert default_redact(once) == once
    form = PLANTED[place % len(PLANTED)]
    text = f"{before}\n{form.format(SECRET, SECRET) if '{}{}' in form else form.format(SECRET)}\n{after}"
    assert SECRET not in default_redact(text)
