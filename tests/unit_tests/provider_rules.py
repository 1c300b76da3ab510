"""Strict providers on loopback: each checks every request as the real one would, and answers with one more step of work.

The rules are those that the providers' documentation and error texts state. What a rule refuses is noted in `faults`, so that a test can say
which request was wrong and why, instead of finding a run that stopped early.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any

Body = Mapping[str, Any]


class StrictServer:
    """What was asked, what was wrong with it, and the work that is left to do."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.base_url = ""
        self.bodies: list[dict[str, Any]] = []
        self.faults: list[str] = []

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Check a request and give the next answer."""
        self.bodies.append(body)
        number = len(self.bodies)
        self.faults += [f"request {number}: {fault}" for fault in self.check(body)]
        return self.reply(number, body, done=number > self.steps)

    def check(self, body: Body) -> list[str]:
        """What the provider would refuse."""
        raise NotImplementedError

    def reply(self, number: int, body: Body, *, done: bool) -> dict[str, Any]:
        """A call of `look_up`, or the end."""
        raise NotImplementedError

    @property
    def texts(self) -> list[str]:
        """Each request as text."""
        return [json.dumps(body, ensure_ascii=False) for body in self.bodies]


@contextmanager
def serving(server: StrictServer) -> Iterator[StrictServer]:
    """The server, reachable at `server.base_url`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)))
            said = json.dumps(server.answer(self.path, body)).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *args: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    server.base_url = f"http://127.0.0.1:{http.server_address[1]}"
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()


def tokens_of(body: Body) -> int:
    """About a quarter of what was sent."""
    return len(json.dumps(body, ensure_ascii=False)) // 4


# --- Anthropic --------------------------------------------------------------------------------------------------------------------------


def blocks_of(message: Body) -> list[Body]:
    """A message's blocks; a plain text as one."""
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


def anthropic_faults(body: Body, *, signatures: Mapping[str, str] | None = None) -> list[str]:
    """What the Messages API would refuse.

    Args:
        body: The request.
        signatures: Text of each reasoning block that the provider signed, by signature; `None`: not checked.
    """
    messages = body["messages"]
    faults = []
    if not messages or messages[0]["role"] != "user":
        faults.append("the first message is not the user's")
    for i, message in enumerate(messages):
        if i and message["role"] == messages[i - 1]["role"]:
            faults.append(f"messages {i - 1} and {i} have the same role")
        blocks = blocks_of(message)
        if not blocks:
            faults.append(f"message {i} is empty")
        faults += [f"message {i} has an empty text block" for block in blocks if block["type"] == "text" and not block["text"].strip()]
        faults += _reasoning_faults(i, message, blocks, signatures)
    faults += _anthropic_pairs(messages)
    if messages and messages[-1]["role"] == "assistant":
        faults.append("the last message is the assistant's: that is a prefill")
    thinking = body.get("thinking") or {}
    final = next((message for message in reversed(messages) if message["role"] == "assistant"), None)
    answering = bool(messages) and any(block["type"] == "tool_result" for block in blocks_of(messages[-1]))
    if thinking.get("type") == "enabled" and answering and final and blocks_of(final)[0]["type"] not in ("thinking", "redacted_thinking"):
        faults.append("reasoning has a budget, and the step that is being answered does not start with reasoning")
    marks = sum("cache_control" in block for message in messages for block in blocks_of(message))
    marks += sum("cache_control" in block for block in body.get("system") or () if isinstance(block, dict))
    marks += sum("cache_control" in tool for tool in body.get("tools") or ())
    if marks > 4:
        faults.append(f"{marks} cache marks: four at most")
    return faults


def _reasoning_faults(i: int, message: Body, blocks: Sequence[Body], signatures: Mapping[str, str] | None) -> list[str]:
    reasoning = [block for block in blocks if block["type"] in ("thinking", "redacted_thinking")]
    faults = [f"message {i} has reasoning of the user's" for _ in reasoning if message["role"] != "assistant"]
    for block in reasoning:
        if block["type"] == "thinking" and not block.get("signature"):
            faults.append(f"message {i} has reasoning without a signature")
        elif signatures is not None and block["type"] == "thinking" and signatures.get(block["signature"]) != block["thinking"]:
            faults.append(f"message {i} has reasoning that is not what was signed")
    return faults


def _anthropic_pairs(messages: Sequence[Body]) -> list[str]:
    faults, seen = [], set()
    for i, message in enumerate(messages):
        blocks = blocks_of(message)
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        faults += [f"call {call} is made twice" for call in calls if call in seen or calls.count(call) > 1]
        seen |= set(calls)
        if calls:
            after = blocks_of(messages[i + 1]) if i + 1 < len(messages) else []
            answered = [block["tool_use_id"] for block in after if block["type"] == "tool_result"]
            faults += [f"call {call} of message {i} has no result right after it" for call in calls if call not in answered]
            if any(block["type"] != "tool_result" for block in after[: len(answered)]):
                faults.append(f"message {i + 1} has something in front of its results")
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        before = [block["id"] for block in blocks_of(messages[i - 1]) if block["type"] == "tool_use"] if i else []
        faults += [f"result {call} of message {i} has no call right before it" for call in results if call not in before]
    return faults


class Anthropic(StrictServer):
    """`/v1/messages`, with signed reasoning before each call."""

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.signed: dict[str, str] = {}

    def check(self, body: Body) -> list[str]:
        return anthropic_faults(body, signatures=self.signed)

    def reply(self, number: int, body: Body, *, done: bool) -> dict[str, Any]:
        content: list[dict[str, Any]] = []
        if body.get("thinking"):
            self.signed[f"sig-{number}"] = f"I think about invoice {number}"
            content.append({"type": "thinking", "thinking": self.signed[f"sig-{number}"], "signature": f"sig-{number}"})
        if done:
            content.append({"type": "text", "text": "all done"})
        else:
            content.append({"type": "text", "text": f"next is {number}"})
            content.append({"type": "tool_use", "id": f"toolu_{number}", "name": "look_up", "input": {"key": number}})
        return {
            "id": f"msg_{number}", "type": "message", "role": "assistant", "model": "claude", "content": content, "stop_sequence": None,
            "stop_reason": "end_turn" if done else "tool_use", "usage": {"input_tokens": tokens_of(body), "output_tokens": 40},
        }  # fmt: skip


# --- OpenAI chat completions ------------------------------------------------------------------------------------------------------------


def chat_faults(body: Body, *, alternate: bool = False) -> list[str]:
    """What a chat completions server would refuse.

    Args:
        body: The request.
        alternate: As templates of many open models: after the system message, user and assistant take turns; results belong to the call.
    """
    messages = body["messages"]
    faults: list[str] = []
    open_calls: list[str] = []
    for i, message in enumerate(messages):
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                faults.append(f"message {i} answers a call that was not made right before it")
            else:
                open_calls.remove(message["tool_call_id"])
            continue
        faults += [f"call {call} has no result before message {i}" for call in open_calls]
        open_calls = [call["id"] for call in message.get("tool_calls") or ()]
        if message["role"] == "assistant" and not message.get("content") and not open_calls:
            faults.append(f"message {i} of the assistant is empty")
        if message["role"] == "system" and i:
            faults.append(f"message {i} is a system message in the middle")
    faults += [f"call {call} has no result at the end" for call in open_calls]
    return faults + (_turn_faults(messages) if alternate else [])


def _turn_faults(messages: Sequence[Body]) -> list[str]:
    roles = [message["role"] for message in messages if message["role"] not in ("system", "tool")]
    turns = [role for i, role in enumerate(roles) if role != "assistant" or not i or roles[i - 1] != "assistant"]
    faults = [f"two turns of the {role} in a row" for role, following in pairwise(turns) if role == following]
    return faults if not turns or turns[0] == "user" else [*faults, "the first turn is not the user's"]


class Chat(StrictServer):
    """`/chat/completions`."""

    alternate = False

    def check(self, body: Body) -> list[str]:
        return chat_faults(body, alternate=self.alternate)

    def reply(self, number: int, body: Body, *, done: bool) -> dict[str, Any]:
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "look_up", "arguments": json.dumps({"key": number})}}
        message: dict[str, Any] = {"role": "assistant", "content": "all done" if done else None, **({} if done else {"tool_calls": [call]})}
        asked = tokens_of(body)
        return {
            "id": f"chatcmpl-{number}", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop" if done else "tool_calls"}],
            "usage": {"prompt_tokens": asked, "completion_tokens": 20, "total_tokens": asked + 20},
        }  # fmt: skip


class Template(Chat):
    """The same behind a template that refuses two user messages in a row."""

    alternate = True


# --- OpenAI Responses -------------------------------------------------------------------------------------------------------------------


class Responses(StrictServer):
    """`/responses`, with reasoning items; keeps what it answered, for `previous_response_id`."""

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.held: dict[str, list[Body]] = {}
        """The whole conversation up to each response."""
        self.made: dict[str, list[Body]] = {}
        """The items of each response."""
        self.resolved: list[list[Body]] = []
        """For each request the conversation that the model was given."""

    def check(self, body: Body) -> list[str]:
        before = body.get("previous_response_id")
        if before is not None and before not in self.held:
            return [f"previous response {before} is not known"]
        whole = [*self.held.get(before or "", ()), *body["input"]]
        self.resolved.append(whole)
        return self._pair_faults(whole) + self._reasoning_faults(whole) + _empty_faults(whole)

    def _pair_faults(self, items: Sequence[Body]) -> list[str]:
        faults: list[str] = []
        waiting: list[str] = []
        for i, item in enumerate(items):
            if item.get("type") == "function_call":
                waiting.append(item["call_id"])
            elif item.get("type") == "function_call_output":
                if item["call_id"] in waiting:
                    waiting.remove(item["call_id"])
                else:
                    faults.append(f"item {i}: no tool call found for output {item['call_id']}")
            elif item.get("role") == "user" and waiting:
                faults += [f"no output for call {call} before item {i}" for call in waiting]
                waiting = []
        return faults + [f"no output for call {call}" for call in waiting]

    def _reasoning_faults(self, items: Sequence[Body]) -> list[str]:
        faults = []
        for made in self.made.values():
            thought, act = made
            at = next((i for i, item in enumerate(items) if item.get("id") == thought["id"]), None)
            acted = next((i for i, item in enumerate(items) if item.get("id") == act["id"]), None)
            if acted is None and at is not None and act.get("type") == "message" and items[at + 1 :][:1] and items[at + 1].get("role") == "assistant":
                continue  # what was said may go back without its id
            if at is not None and acted != at + 1:
                faults.append(f"reasoning {thought['id']} is without the item that follows it")
            if acted is not None and at is None:
                faults.append(f"{act['id']} is without the reasoning it was made with")
        return faults

    def reply(self, number: int, body: Body, *, done: bool) -> dict[str, Any]:
        thought = {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": f"enc-{number}"}
        act: dict[str, Any]
        if done:
            part = {"type": "output_text", "text": "all done", "annotations": []}
            act = {"type": "message", "id": f"msg_{number}", "status": "completed", "role": "assistant", "content": [part]}
        else:
            act = {
                "type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": "look_up", "status": "completed",
                "arguments": json.dumps({"key": number}),
            }  # fmt: skip
        self.made[f"resp_{number}"] = [thought, act]
        whole = [*self.resolved[-1], thought, act]
        self.held[f"resp_{number}"] = whole
        asked = tokens_of({"input": self.resolved[-1]})
        usage = {
            "input_tokens": asked, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 5}, "total_tokens": asked + 20,
        }  # fmt: skip
        return {
            "id": f"resp_{number}", "object": "response", "created_at": 1, "model": "m", "output": [thought, act], "tool_choice": "auto",
            "tools": [], "error": None, "parallel_tool_calls": True, "status": "completed", "usage": usage, "incomplete_details": None,
            "metadata": {}, "instructions": None, "temperature": None, "top_p": None,
        }  # fmt: skip


def _empty_faults(items: Sequence[Body]) -> list[str]:
    return [f"item {i} is empty" for i, item in enumerate(items) if item.get("role") in ("user", "assistant") and not item.get("content")]


# --- Gemini -----------------------------------------------------------------------------------------------------------------------------


def gemini_faults(body: Body, *, signatures: Mapping[str, str] | None = None, required: bool = True) -> list[str]:
    """What `generateContent` would refuse of a model that signs its thoughts.

    Args:
        body: The request.
        required: Whether calls of the current turn need a signature, as from Gemini 3 on.
        signatures: The call that each thought signature was made with, by signature.
    """
    contents = body["contents"]
    faults = [f"content {i} has no parts" for i, content in enumerate(contents) if not content.get("parts")]
    faults += [f"content {i} has an empty part" for i, content in enumerate(contents) for part in content.get("parts") or () if _is_empty(part)]
    if not contents or contents[0]["role"] != "user":
        faults.append("the first content is not the user's")
    turn = max((i for i, content in enumerate(contents) if content["role"] == "user" and not _results(content)), default=0)
    for i, content in enumerate(contents):
        calls = [part for part in content["parts"] if "functionCall" in part]
        if calls:
            after = _results(contents[i + 1]) if i + 1 < len(contents) else []
            if sorted(after) != sorted(part["functionCall"]["name"] for part in calls):
                faults.append(f"content {i}: the number of function responses is not that of the calls right before")
            if i and contents[i - 1]["role"] == "model":
                faults.append(f"content {i}: a call does not come after a user's turn or a function response")
            signature = calls[0].get("thoughtSignature")
            if required and i > turn and not signature:
                faults.append(f"content {i}: the call is missing a thought signature")
            elif signature not in (None, SKIP_SIGNATURE) and signatures is not None and signatures.get(signature) != _args(calls[0]):
                faults.append(f"content {i}: the thought signature is not of this call")
        if _results(content) and (not i or not any("functionCall" in part for part in contents[i - 1]["parts"])):
            faults.append(f"content {i}: a function response without a call right before it")
    return faults


SKIP_SIGNATURE = "skip_thought_signature_validator"
"""What Google documents for calls that its models did not make."""


def _args(part: Body) -> str:
    return json.dumps(part["functionCall"]["args"])


def _results(content: Body) -> list[str]:
    return [part["functionResponse"]["name"] for part in content["parts"] if "functionResponse" in part]


def _is_empty(part: Body) -> bool:
    return not any(key in part for key in ("functionCall", "functionResponse", "inlineData")) and not str(part.get("text") or "").strip()


class Gemini(StrictServer):
    """`:generateContent`, with a thought signature on each call."""

    required = True

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.signed: dict[str, str] = {}

    def check(self, body: Body) -> list[str]:
        return gemini_faults(body, signatures=self.signed, required=self.required)

    def reply(self, number: int, body: Body, *, done: bool) -> dict[str, Any]:
        part: dict[str, Any] = {"text": "all done"}
        if not done:
            signature = base64.b64encode(f"thought {number}".encode()).decode()
            self.signed[signature] = json.dumps({"key": number})
            part = {"functionCall": {"name": "look_up", "args": {"key": number}}, "thoughtSignature": signature}
        asked = tokens_of(body)
        return {
            "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": asked, "candidatesTokenCount": 20, "totalTokenCount": asked + 20},
            "modelVersion": "gemini",
        }


class OlderGemini(Gemini):
    """Before Gemini 3: signatures are read where they are, and not asked for."""

    required = False
