"""Rollouts of the Codex CLI (`~/.codex/sessions/…/rollout-*.jsonl`).

A line is `{"timestamp", "type", "payload"}`; what the model reads are the payloads of `response_item`, in OpenAI's Responses form. Older versions
wrote the items bare. `event_msg` repeats them for the screen and is left out, but for a rollback, which takes turns away. A `compacted` line
replaced the history; the items it replaced stand before it in the same file, so it is left out too, unless nothing stands before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from langgraph_roundcompact.loaders import openai_responses
from langgraph_roundcompact.loaders._conversation import Talk, machine_message

_SOURCE = "codex"
_ENVELOPES = ("session_meta", "response_item", "turn_context", "event_msg", "compacted")
_MACHINE_TEXTS = (
    "<environment_context>",
    "<user_instructions>",
    "<INSTRUCTIONS>",
    "# AGENTS.md instructions",
    "<turn_aborted>",
    "<skill>",
    "<permissions instructions>",
    "<collaboration_mode>",
    "<subagent_notification>",
    "<user_shell_command>",
    "Another language model started to solve this problem",
)


def recognises(head: Sequence[Any]) -> bool:
    """Whether these are lines of a rollout."""
    lines = [value for value in head if isinstance(value, Mapping)]
    if any(line.get("type") in _ENVELOPES and isinstance(line.get("payload"), Mapping) for line in lines):
        return True
    bare = bool(lines) and "type" not in lines[0] and "timestamp" in lines[0] and isinstance(lines[0].get("id"), str)
    return bare and any(openai_responses.recognises(line) or "record_type" in line for line in lines[1:])


def read(values: Iterator[Any]) -> list[Talk]:
    """The one conversation of a rollout."""
    talk = Talk()
    for value in values:
        if isinstance(value, Mapping):
            kind, payload = _unwrapped(value)
            _take(talk, kind, payload)
    talk.messages = [_marked(message) for message in openai_responses.finish(talk.messages)]
    return [talk] if any(not isinstance(message, SystemMessage) for message in talk.messages) else []


def _unwrapped(value: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    payload = value.get("payload")
    if value.get("type") in _ENVELOPES:
        return value["type"], payload if isinstance(payload, Mapping) else {}
    if "type" not in value and "timestamp" in value:
        return "session_meta", value
    return "response_item", value


def _take(talk: Talk, kind: str, payload: Mapping[str, Any]) -> None:
    if kind == "session_meta":
        _begin(talk, payload)
    elif kind == "response_item" and openai_responses.recognises(payload):
        talk.messages += openai_responses.to_messages(payload)
    elif kind == "event_msg" and payload.get("type") == "thread_rolled_back":
        turns = payload.get("num_turns")
        _roll_back(talk.messages, turns if isinstance(turns, int) else 1)
    elif kind == "compacted" and all(isinstance(message, SystemMessage) for message in talk.messages):
        talk.messages += _replacement(payload)


def _begin(talk: Talk, meta: Mapping[str, Any]) -> None:
    """The session's name and its instructions, from its first line; a session that was taken up again repeats it."""
    session, base = meta.get("id"), meta.get("base_instructions")
    talk.name = talk.name or (session if isinstance(session, str) else "")
    text = base.get("text") if isinstance(base, Mapping) else base or meta.get("instructions")
    if isinstance(text, str) and text and not talk.messages:
        talk.messages.append(SystemMessage(text))


def _roll_back(messages: list[BaseMessage], turns: int) -> None:
    """Take away the last turns, each from its request on."""
    for _ in range(min(max(turns, 0), len(messages))):
        start = next((i for i in range(len(messages) - 1, -1, -1) if _is_request(messages[i])), None)
        if start is None:
            return
        del messages[start:]


def _replacement(payload: Mapping[str, Any]) -> list[BaseMessage]:
    history = payload.get("replacement_history")
    items = [item for item in history if isinstance(item, Mapping) and openai_responses.recognises(item)] if isinstance(history, list) else []
    if items:
        return [message for item in items for message in openai_responses.to_messages(item)]
    text = payload.get("message")
    return [machine_message(text, _SOURCE)] if isinstance(text, str) and text else []


def _is_request(message: BaseMessage) -> bool:
    return isinstance(message, HumanMessage) and not str(message.text).lstrip().startswith(_MACHINE_TEXTS)


def _marked(message: BaseMessage) -> BaseMessage:
    """Context that Codex put in the user's place is no request."""
    return message if not isinstance(message, HumanMessage) or _is_request(message) else machine_message(message.content, _SOURCE, message.id)
