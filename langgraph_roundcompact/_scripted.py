"""A chat model that answers from a script. Public as `langgraph_roundcompact.testing.ScriptedChatModel`."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import LangSmithParams, LanguageModelInput
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field, PrivateAttr


class _Script:
    """The position in the script and what was asked, shared by all copies and bindings of one model."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.used = 0
        self.requests: list[list[BaseMessage]] = []
        self.options: list[dict[str, Any]] = []

    def record(self, messages: Sequence[BaseMessage], options: Mapping[str, Any]) -> None:
        request = [message.model_copy(deep=True) for message in messages]
        with self.lock:
            self.requests.append(request)
            self.options.append(dict(options))

    def next(self, replies: Sequence[Any], *, strict: bool) -> tuple[Any, bool]:
        """The reply of this call, and whether it is given for the first time."""
        with self.lock:
            number = self.used
            self.used += 1
        if number >= len(replies) and (strict or not replies):
            msg = f"the script has {len(replies)} replies, and reply {number + 1} was asked for"
            raise AssertionError(msg)
        return replies[min(number, len(replies) - 1)], number < len(replies)


class ScriptedChatModel(BaseChatModel):
    """A chat model that answers from a script: tools, usage, profile, errors, delay, overflow and streaming, sync and async.

    Each call gives a new message object. A scripted message's own `id` is used once: on repetition it is left to LangChain, so that
    `add_messages` appends the repeated answer instead of overwriting the first. All copies and bindings (`bind_tools`, `bind`,
    `with_config`) read the same script and record into the same lists. May be shared by threads.

    Example:
        >>> model = ScriptedChatModel(replies=["first", TimeoutError("slow"), lambda messages: f"{len(messages)} messages"])
        >>> model.invoke("hello").content
        'first'
    """

    replies: Sequence[Any] = Field(default_factory=list)
    """One entry a call, in order; the last repeats. An entry is a `str`, an `AIMessage`, an exception (class or instance, raised), or a
    callable that takes the request's messages and returns any of these."""
    strict: bool = False
    """Whether a call beyond the script is an `AssertionError` instead of the last reply again."""
    usage: Any = "estimate"
    """`"estimate"`, `"none"`, or a callable `(request, reply) -> usage mapping | None`. Usage in a scripted message is kept as it is."""
    delay_seconds: float = 0.0
    """Time a call takes, in seconds."""
    overflow_at_tokens: int | None = None
    """A request estimated above this many tokens raises `ContextOverflowError`. Such a call is recorded but uses up no reply."""
    overflow_at_characters: int | None = None
    """The same, in characters of text."""
    model_name: str = "scripted"
    """Model name for tracing, and in `response_metadata`."""
    provider: str = "scripted"
    """Provider name for tracing (`ls_provider`)."""
    _script: _Script = PrivateAttr(default_factory=_Script)

    @property
    def requests(self) -> list[list[BaseMessage]]:
        """The messages of each call so far, as copies made when it came in."""
        return self._script.requests

    @property
    def options(self) -> list[dict[str, Any]]:
        """The keyword arguments of each call so far: bound `tools`, `tool_choice`, `stop` and whatever else was bound or passed."""
        return self._script.options

    def assert_complete(self) -> None:
        """Raise `AssertionError` unless each reply of the script was asked for."""
        used, length = self._script.used, len(self.replies)
        if used < length:
            msg = f"{length - used} of {length} scripted replies were not asked for"
            raise AssertionError(msg)

    @property
    def _llm_type(self) -> str:
        return "scripted-chat-model"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": self.model_name, "provider": self.provider}

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        return LangSmithParams(**{**super()._get_ls_params(stop, **kwargs), "ls_provider": self.provider, "ls_model_name": self.model_name})

    def bind_tools(self, tools: Sequence[Any], *, tool_choice: str | None = None, **kwargs: Any) -> Runnable[LanguageModelInput, AIMessage]:
        """The model with tools bound, in the OpenAI form; it goes on with the same script."""
        options = kwargs if tool_choice is None else {"tool_choice": tool_choice, **kwargs}
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **options)

    def get_num_tokens(self, text: str) -> int:
        """Estimated tokens of a text: a quarter of its characters, rounded up."""
        return -(-len(text) // 4)

    def get_num_tokens_from_messages(self, messages: list[BaseMessage], tools: Sequence[Any] | None = None) -> int:
        """Estimated tokens of a request: text, call arguments and tools, and three for each message."""
        text = sum(self.get_num_tokens(wire_text(message)) + 3 for message in messages)
        return text + (self.get_num_tokens(json.dumps(list(tools), default=str)) if tools else 0)

    def _begin(self, messages: list[BaseMessage], options: Mapping[str, Any]) -> tuple[Any, bool]:
        self._script.record(messages, options)
        tokens = self.get_num_tokens_from_messages(messages, tools=options.get("tools"))
        if self.overflow_at_tokens is not None and tokens > self.overflow_at_tokens:
            msg = f"prompt is too long: {tokens} tokens > {self.overflow_at_tokens} maximum"
            raise ContextOverflowError(msg)
        characters = sum(len(wire_text(message)) for message in messages)
        if self.overflow_at_characters is not None and characters > self.overflow_at_characters:
            msg = f"prompt is too long: {characters} characters > {self.overflow_at_characters} maximum"
            raise ContextOverflowError(msg)
        return self._script.next(self.replies, strict=self.strict)

    def _finish(self, entry: Any, first: bool, messages: list[BaseMessage], options: Mapping[str, Any]) -> AIMessage:
        reply = _resolve(entry, messages).model_copy(deep=True)
        changes: dict[str, Any] = {} if first else {"id": None}
        changes["response_metadata"] = {"model_name": self.model_name, "model_provider": self.provider, **reply.response_metadata}
        if reply.usage_metadata is None:
            changes["usage_metadata"] = self._usage(messages, reply, options)
        return reply.model_copy(update=changes)

    def _usage(self, messages: list[BaseMessage], reply: AIMessage, options: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if callable(self.usage):
            given: Mapping[str, Any] | None = self.usage(messages, reply)
            return given
        if self.usage == "none":
            return None
        asked = self.get_num_tokens_from_messages(messages, tools=options.get("tools"))
        answered = self.get_num_tokens(wire_text(reply))
        return {"input_tokens": asked, "output_tokens": answered, "total_tokens": asked + answered}

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002 - LangChain's signature
        **kwargs: Any,
    ) -> ChatResult:
        options = _options(stop, kwargs)
        entry, first = self._begin(messages, options)
        time.sleep(self.delay_seconds)
        return ChatResult(generations=[ChatGeneration(message=self._finish(entry, first, messages, options))])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002 - LangChain's signature
        **kwargs: Any,
    ) -> ChatResult:
        options = _options(stop, kwargs)
        entry, first = self._begin(messages, options)
        await asyncio.sleep(self.delay_seconds)
        return ChatResult(generations=[ChatGeneration(message=self._finish(entry, first, messages, options))])

    def _stream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        result = self._generate(messages, stop, None, **kwargs)
        for chunk in _chunks(result.generations[0].message):
            if run_manager is not None:
                run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    async def _astream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: AsyncCallbackManagerForLLMRun | None = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        result = await self._agenerate(messages, stop, None, **kwargs)
        for chunk in _chunks(result.generations[0].message):
            if run_manager is not None:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk


def _options(stop: list[str] | None, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return dict(kwargs) if stop is None else {**kwargs, "stop": stop}


def _resolve(entry: Any, messages: list[BaseMessage]) -> AIMessage:
    if isinstance(entry, BaseException) or (isinstance(entry, type) and issubclass(entry, BaseException)):
        raise entry
    if isinstance(entry, AIMessage):
        return entry
    if isinstance(entry, str):
        return AIMessage(entry)
    if callable(entry):
        return _resolve(entry(messages), messages)
    msg = f"a scripted reply is a str, an AIMessage, an exception or a callable, not {type(entry).__name__}"
    raise TypeError(msg)


def wire_text(message: BaseMessage) -> str:
    """What of a message counts as text of a request."""
    content: Any = message.content
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, default=str)
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    return text + "".join(f"{call['name']}{json.dumps(call['args'], ensure_ascii=False, default=str)}" for call in calls)


def _chunks(message: BaseMessage) -> Iterator[ChatGenerationChunk]:
    """A finished message as a stream: words or blocks, then the calls in pieces, then usage and metadata on the last chunk."""
    content: Any = message.content
    pieces = re.findall(r"\S*\s*", content)[:-1] if isinstance(content, str) else [[block] for block in content]
    parts: list[dict[str, Any]] = [{"content": piece} for piece in pieces]
    empty: Any = "" if isinstance(content, str) else []
    calls = [*message.tool_calls, *message.invalid_tool_calls] if isinstance(message, AIMessage) else []
    for index, call in enumerate(calls):
        args: Any = call["args"]
        raw = args if isinstance(args, str) or args is None else json.dumps(args, ensure_ascii=False)
        # The name and id come first and the arguments in pieces, as providers send them; a single piece would prove nothing.
        half = len(raw or "") // 2
        starts = tool_call_chunk(name=call["name"], args=raw and raw[:half], id=call["id"], index=index)
        parts.append({"content": empty, "tool_call_chunks": [starts]})
        if raw:
            parts.append({"content": empty, "tool_call_chunks": [tool_call_chunk(args=raw[half:], index=index)]})
    last = {
        "content": empty,
        "chunk_position": "last",
        "response_metadata": message.response_metadata,
        "additional_kwargs": message.additional_kwargs,
    }
    parts.append({**last, "usage_metadata": getattr(message, "usage_metadata", None)})
    for part in parts:
        yield ChatGenerationChunk(message=AIMessageChunk(id=message.id, name=message.name, **part))
