"""A model server on loopback: chat completions and Responses, streamed and not, answering from a script, with a byte-prefix cache.

The cache works like those of providers: what a request has in common with the beginning of an earlier, answered one is served from it. What
stands first in a provider's prompt stands first here too: model, tools and what else shapes the answer, then the messages in order.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

BYTES_PER_TOKEN = 4
_PIECE = 40
"""Characters of a streamed piece of text."""


@dataclass(frozen=True, kw_only=True)
class Say:
    """An answer of the model."""

    text: str = ""
    finish: str = "stop"
    """Chat completions' word for why the model stopped; Responses' own words are derived from it."""
    calls: Sequence[tuple[str, str, Mapping[str, Any]]] = ()
    """(id, name, arguments)"""
    refusal: str | None = None


@dataclass(frozen=True, kw_only=True)
class Fail:
    """An HTTP error, or any other body."""

    status: int = 500
    body: Any = None
    """Sent as JSON; `bytes` as they are."""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


@dataclass(frozen=True, kw_only=True)
class Drop:
    """The connection is reset: before an answer, or in the middle of one."""

    amid: bool = False


@dataclass(frozen=True, kw_only=True)
class Slow:
    """The same reply, late."""

    seconds: float
    then: Any = field(default_factory=lambda: Say(text="late"))


@dataclass(frozen=True, kw_only=True)
class BreakOff:
    """A stream that reports an error after some text; without streaming the same as `Fail`."""

    body: Mapping[str, Any]
    status: int = 500


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One request that came in."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str]
    prompt: bytes
    """The request as the cache sees it."""
    cached: int
    """Bytes of `prompt` that an earlier request had in common."""
    number: int
    """From 1."""

    @property
    def streamed(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def messages(self) -> list[Any]:
        """The messages, by either API's name."""
        return list(self.body.get("messages") or self.body.get("input") or [])

    @property
    def text(self) -> str:
        """All that was said, as JSON."""
        return json.dumps(self.messages, ensure_ascii=False)


class ModelServer:
    """The script, and what was asked. The last reply repeats; a reply may be a function of `Seen`."""

    def __init__(self, replies: Sequence[Any]) -> None:
        self.replies = list(replies)
        self.seen: list[Seen] = []
        self.base_url = ""
        self.released = threading.Event()
        """Set at the end, so that no late answer is waited for."""
        self._answered: list[bytes] = []
        self._lock = threading.Lock()

    def take(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> tuple[Seen, Any]:
        """Note a request and choose its reply."""
        prompt = serialised(body)
        with self._lock:
            cached = max((common_prefix(prompt, old) for old in self._answered), default=0)
            seen = Seen(path=path, body=body, headers=headers, prompt=prompt, cached=cached, number=len(self.seen) + 1)
            reply = self.replies[min(len(self.seen), len(self.replies) - 1)]
            self.seen.append(seen)
        reply = reply(seen) if callable(reply) else reply
        if isinstance(reply, str):
            reply = Say(text=reply)
        if isinstance(reply, Say):
            with self._lock:
                self._answered.append(prompt)
        return seen, reply


def serialised(body: Mapping[str, Any]) -> bytes:
    """A request in the order in which a model reads it."""
    shape = {key: body.get(key) for key in ("model", "instructions", "tools", "tool_choice", "response_format", "text", "reasoning")}
    parts = [shape, *(body.get("messages") or body.get("input") or [])]
    return "\n".join(json.dumps(part, ensure_ascii=False) for part in parts).encode("utf-8", "surrogatepass")


def common_prefix(a: bytes, b: bytes) -> int:
    """Length of what both begin with."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a[:middle] == b[:middle] else (low, middle - 1)
    return low


@contextmanager
def model_server(*replies: Any) -> Iterator[ModelServer]:
    """A server that lives as long as the block."""
    with served(ModelServer(replies)) as model:
        yield model


@contextmanager
def served(model: ModelServer) -> Iterator[ModelServer]:
    """The same for a model of one's own."""
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"model": model}))
    model.base_url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield model
    finally:
        model.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def server_bind(self) -> None:
        """Without looking up the host's name, which may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing on stderr: clients that give up are what is tested."""


class _Handler(BaseHTTPRequestHandler):
    model: ModelServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        """Nothing on stderr."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        seen, reply = self.model.take(self.path, body, {key.lower(): value for key, value in self.headers.items()})
        with suppress(BrokenPipeError, ConnectionResetError):  # the client gave up
            self._reply(seen, reply)
        self.close_connection = True

    def _reply(self, seen: Seen, reply: Any) -> None:
        while isinstance(reply, Slow):
            self.model.released.wait(reply.seconds)
            reply = reply.then
        if isinstance(reply, str):
            reply = Say(text=reply)
        if isinstance(reply, BreakOff) and not seen.streamed:
            reply = Fail(status=reply.status, body={"error": dict(reply.body)})
        match reply:
            case Say():
                self._stream(seen, reply) if seen.streamed else self._json(200, _api(seen).whole(reply, usage(seen, reply)))
            case Fail():
                self._json(reply.status, reply.body, reply.headers, reply.content_type)
            case BreakOff():
                self._head("text/event-stream")
                self._events(list(_api(seen).events(Say(text="Half an ans"), usage(seen, Say())))[:3])
                self._events([_api(seen).error(reply.body)])
            case Drop():
                self._drop(seen, reply)

    def _stream(self, seen: Seen, reply: Say) -> None:
        self._head("text/event-stream")
        self._events(_api(seen).events(reply, usage(seen, reply)))
        if _api(seen) is _Chat:
            self.wfile.write(b"data: [DONE]\n\n")

    def _events(self, events: Any) -> None:
        for event in events:
            name = f"event: {event['type']}\n" if "type" in event else ""
            self.wfile.write(f"{name}data: {json.dumps(event)}\n\n".encode())
        self.wfile.flush()

    def _drop(self, seen: Seen, reply: Drop) -> None:
        if reply.amid and seen.streamed:
            self._head("text/event-stream", {"transfer-encoding": "chunked"})
            event = json.dumps(next(iter(_api(seen).events(Say(text="Half"), usage(seen, Say())))))
            chunk = f"data: {event}\n\n".encode()
            self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        elif reply.amid:
            self._head("application/json", {"content-length": "100000"})
            self.wfile.write(b'{"id": "half')
        self.wfile.flush()
        # Lingering for no time makes the close a reset.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def _head(self, content_type: str, headers: Mapping[str, str] | None = None, status: int = 200) -> None:
        self.send_response(status)
        # No connection is used twice: clients keep theirs in pools that outlive an event loop.
        for key, value in {"content-type": content_type, "connection": "close", **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()

    def _json(self, status: int, body: Any, headers: Mapping[str, str] | None = None, content_type: str = "application/json") -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._head(content_type, {**(headers or {}), "content-length": str(len(data))}, status)
        self.wfile.write(data)


# --- the two APIs ------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Usage:
    """Tokens of one answer."""

    asked: int
    cached: int
    answered: int
    number: int = 1
    """Which answer of the server it is: each has ids of its own."""


def usage(seen: Seen, reply: Say) -> Usage:
    """Usage as the provider would bill it."""
    return Usage(len(seen.prompt) // BYTES_PER_TOKEN, seen.cached // BYTES_PER_TOKEN, len(reply.text) // BYTES_PER_TOKEN + 1, seen.number)


def _api(seen: Seen) -> type[_Chat | _Responses]:
    return _Responses if seen.path.endswith("/responses") else _Chat


def _pieces(text: str) -> list[str]:
    return [text[i : i + _PIECE] for i in range(0, len(text), _PIECE)]


class _Chat:
    """`/v1/chat/completions`."""

    @staticmethod
    def usage(spent: Usage) -> dict[str, Any]:
        return {
            "prompt_tokens": spent.asked,
            "completion_tokens": spent.answered,
            "total_tokens": spent.asked + spent.answered,
            "prompt_tokens_details": {"cached_tokens": spent.cached},
        }

    @classmethod
    def whole(cls, reply: Say, spent: Usage) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": reply.text or None, "refusal": reply.refusal}
        if reply.calls:
            message["tool_calls"] = [_chat_call(*call) for call in reply.calls]
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if reply.calls else reply.finish}
        return {
            "id": f"chatcmpl-{spent.number}",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [choice],
            "usage": cls.usage(spent),
        }

    @classmethod
    def events(cls, reply: Say, spent: Usage) -> Iterator[dict[str, Any]]:
        def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
            return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

        head = {"id": f"chatcmpl-{spent.number}", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        yield chunk({"role": "assistant", "content": ""})
        yield from (chunk({"content": piece}) for piece in _pieces(reply.text))
        if reply.refusal is not None:
            yield chunk({"refusal": reply.refusal})
        for index, call in enumerate(reply.calls):
            yield chunk({"tool_calls": [{"index": index, **_chat_call(*call)}]})
        yield chunk({}, "tool_calls" if reply.calls else reply.finish)
        yield {**head, "choices": [], "usage": cls.usage(spent)}

    @staticmethod
    def error(body: Mapping[str, Any]) -> dict[str, Any]:
        return {"error": dict(body)}


def _chat_call(id_: str, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


class _Responses:
    """`/v1/responses`."""

    @staticmethod
    def usage(spent: Usage) -> dict[str, Any]:
        return {
            "input_tokens": spent.asked,
            "input_tokens_details": {"cached_tokens": spent.cached},
            "output_tokens": spent.answered,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": spent.asked + spent.answered,
        }

    @staticmethod
    def items(reply: Say, number: int) -> list[dict[str, Any]]:
        part = {"type": "output_text", "text": reply.text, "annotations": []}
        if reply.refusal is not None:
            part = {"type": "refusal", "refusal": reply.refusal}
        said = {"type": "message", "id": f"msg_{number}", "status": "completed", "role": "assistant", "content": [part]}
        calls = [
            {"type": "function_call", "id": f"fc_{id_}", "call_id": id_, "name": name, "arguments": json.dumps(arguments), "status": "completed"}
            for id_, name, arguments in reply.calls
        ]
        return [said, *calls] if reply.text or reply.refusal is not None or not calls else calls

    @classmethod
    def whole(cls, reply: Say, spent: Usage) -> dict[str, Any]:
        why = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(reply.finish)
        return {
            "id": f"resp_{spent.number}", "object": "response", "created_at": 1, "model": "m", "output": cls.items(reply, spent.number),
            "tool_choice": "auto", "tools": [], "error": None, "parallel_tool_calls": True,
            "status": "incomplete" if why else "completed", "usage": cls.usage(spent),
            "incomplete_details": {"reason": why} if why else None, "metadata": {}, "instructions": None, "temperature": None, "top_p": None,
        }  # fmt: skip

    @classmethod
    def events(cls, reply: Say, spent: Usage) -> Iterator[dict[str, Any]]:
        for number, event in enumerate(cls._events(reply, spent)):
            yield {"sequence_number": number, **event}

    @classmethod
    def _events(cls, reply: Say, spent: Usage) -> Iterator[dict[str, Any]]:
        whole = cls.whole(reply, spent)
        yield {"type": "response.created", "response": {**whole, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}}
        for at, item in enumerate(whole["output"]):
            place = {"output_index": at, "item_id": item["id"]}
            yield {"type": "response.output_item.added", **place, "item": {**item, **({"content": []} if "content" in item else {"arguments": ""})}}
            for index, part in enumerate(item.get("content", ())):
                yield from cls._part({**place, "content_index": index}, part)
            if item["type"] == "function_call":
                yield {"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]}
                yield {"type": "response.function_call_arguments.done", **place, "arguments": item["arguments"]}
            yield {"type": "response.output_item.done", **place, "item": item}
        yield {"type": "response.incomplete" if whole["incomplete_details"] else "response.completed", "response": whole}

    @staticmethod
    def _part(place: dict[str, Any], part: dict[str, Any]) -> Iterator[dict[str, Any]]:
        kind = part["type"]
        field_name = "refusal" if kind == "refusal" else "text"
        yield {"type": "response.content_part.added", **place, "part": {**part, field_name: ""}}
        for piece in _pieces(part[field_name]):
            yield {"type": f"response.{kind}.delta", **place, "delta": piece, "logprobs": []}
        yield {"type": f"response.{kind}.done", **place, field_name: part[field_name], "logprobs": []}
        yield {"type": "response.content_part.done", **place, "part": part}

    @staticmethod
    def error(body: Mapping[str, Any]) -> dict[str, Any]:
        return {"type": "error", "sequence_number": 9, "param": None, "code": body.get("code"), "message": body.get("message")}


def wait_for(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait until something holds, or fail."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
