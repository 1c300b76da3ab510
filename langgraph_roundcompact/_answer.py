"""Reading an answer of any class: its text, why the model stopped, and what else is in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from langgraph_roundcompact._content import CALL_TYPES, REASONING_TYPES, block_text, block_type


def _set_of(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Why a model stopped, in the words of OpenAI, Anthropic, Gemini, Bedrock, Mistral, Cohere, DeepSeek, GLM, Ollama, vLLM, TGI, watsonx.
CUT_OFF: Final = _set_of(
    """length max_tokens max_output_tokens max_len incomplete model_length model_context_window_exceeded token_limit time_limit timeout abort aborted
    cancelled canceled error error_limit failed network_error insufficient_system_resource malformed_response pause_turn other"""
)
FILTERED: Final = _set_of(
    """content_filter content_filtered safety image_safety recitation blocklist prohibited_content spii language sensitive error_toxic
    guardrail_intervened intervened content_policy_violation data_inspection_failed"""
)
REFUSED: Final = frozenset({"refusal"})
CALLED: Final = _set_of("malformed_function_call malformed_tool_call unexpected_tool_call too_many_tool_calls")


@dataclass(slots=True)
class Reading:
    """What an answer says about itself, whatever its class."""

    text: str = ""
    reasoned: bool = False
    calls: bool = False
    refused: bool = False
    finish: frozenset[str] = frozenset()

    @classmethod
    def of(cls, answer: object) -> Reading:
        """Read a message or chunk, a string, a mapping, or any object with `content` or `text`."""
        if isinstance(answer, str):
            return cls(text=answer)
        if isinstance(answer, list | tuple) and answer and not isinstance(answer[-1], str | Mapping):
            answer = answer[-1]  # a chain that ends in a list of messages: the last is the answer
        reading = cls()
        reading.text = "".join(reading._texts(_field(answer, "content") or _field(answer, "text")))
        extra = _mapping(_field(answer, "additional_kwargs"))
        reading.reasoned |= any(extra.get(name) for name in ("reasoning_content", "reasoning", "thinking"))
        reading.refused |= isinstance(extra.get("refusal"), str) and bool(extra["refusal"].strip())
        reading.calls |= any(_field(answer, name) for name in ("tool_calls", "invalid_tool_calls", "tool_call_chunks"))
        reading.calls |= any(extra.get(name) for name in ("tool_calls", "function_call"))
        reading.finish = frozenset(_finish_words(answer))
        return reading

    def _texts(self, content: Any) -> Iterator[str]:
        """Text of the content, whatever its shape; notes what else is in it."""
        for item in content if isinstance(content, list | tuple) else (content,):
            if isinstance(item, str):
                yield item
            elif isinstance(item, Mapping):
                # What LangChain does not know, a refusal for instance, it wraps.
                inner = item.get("value") if block_type(item) == "non_standard" else None
                block = inner if isinstance(inner, Mapping) else item
                kind = block_type(block)
                self.reasoned |= kind in REASONING_TYPES
                self.refused |= kind == "refusal"
                self.calls |= kind in CALL_TYPES or kind in ("server_tool_use", "server_tool_call") or kind.endswith("_call")
                yield block_text(block)


def _field(owner: object, name: str) -> Any:
    """A field of a message, of any other object or of a mapping."""
    return owner.get(name) if isinstance(owner, Mapping) else getattr(owner, name, None)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _finish_words(answer: object) -> Iterator[str]:
    """Why the model stopped, in lower case, from all the places where providers say so."""
    metadata, extra = (_mapping(_field(answer, name)) for name in ("response_metadata", "additional_kwargs"))
    values = [metadata.get(name) for name in ("finish_reason", "stop_reason", "done_reason", "stopReason", "status")]
    values += [extra.get("finish_reason"), metadata.get("amazon-bedrock-guardrailAction")]
    values += [_mapping(metadata.get("incomplete_details")).get("reason"), _mapping(metadata.get("finish_details")).get("type")]
    choices = metadata.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        values.append(_mapping(choice).get("finish_reason"))
    for value in values:
        first = value[0] if isinstance(value, list | tuple) and value else value
        named = getattr(first, "name", first)
        if isinstance(named, str) and named:
            word = named.rpartition(".")[2].strip().lower()
            # Chunks that each say it are merged into "stopstop".
            yield word[: (word + word).find(word, 1)]
    blocked = _mapping(metadata.get("prompt_feedback")).get("block_reason")
    if blocked and "unspecified" not in str(blocked).lower():
        yield "content_filter"
