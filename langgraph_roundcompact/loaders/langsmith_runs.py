"""Runs as LangSmith exports them: one, a list, or one on each line; children nested in `child_runs` or named by `parent_run_id`.

A trace holds one conversation many times over: the graph's state before and after, and each request to the model. So of all runs of a trace the
lists of messages are taken, and a list that others hold whole is left out. What is left is the conversation, and one for each subagent. A system
prompt that only the requests to the model show is put in front.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage

from langgraph_roundcompact.loaders._conversation import Talk
from langgraph_roundcompact.loaders._records import messages_of, system_prompt

_MOST_RUNS = 100_000
"""Runs of one file that are read."""
_MOST_TALKS = 500
"""Conversations of one trace."""
_WRAPPERS = ("input", "output", "outputs", "inputs", "message", "update", "generations", "choices", "kwargs")
_DEEPEST = 6
"""Wrappers around messages."""


@dataclass(slots=True)
class _Found:
    """The messages of one run."""

    messages: list[BaseMessage]
    prints: list[str]
    """What each of them says, without the system's."""
    trace: str
    name: str
    root: bool
    order: str


def recognises(head: Sequence[Any]) -> bool:
    """Whether these are runs."""
    values = [one for value in head for one in (value if isinstance(value, list) else [value])]
    return any(_is_run(value) for value in values[:64])


def read(values: Iterator[Any], messages_key: str = "messages") -> list[Talk]:
    """The conversations of all traces, in order."""
    traces: dict[str, list[_Found]] = {}
    for found in _found(values, messages_key):
        traces.setdefault(found.trace, []).append(found)
    return [talk for members in traces.values() for talk in _talks(members)]


def _is_run(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    inner = value.get("runs")
    if isinstance(inner, list) and any(_is_run(one) for one in inner[:8]):
        return True
    marks = ("run_type", "trace_id", "dotted_order", "child_runs", "parent_run_id")
    return isinstance(value.get("inputs"), Mapping) and any(mark in value for mark in marks)


def _found(values: Iterable[Any], key: str) -> Iterator[_Found]:
    waiting = [(value, "") for value in reversed(list(values))]
    seen = 0
    while waiting and seen < _MOST_RUNS:
        value, trace = waiting.pop()
        if isinstance(value, list):
            waiting += [(one, trace) for one in reversed(value)]
        elif isinstance(value, Mapping) and isinstance(value.get("runs"), list):
            waiting += [(one, trace) for one in reversed(value["runs"])]
        elif _is_run(value):
            seen += 1
            trace = trace or _text(value.get("trace_id")) or _text(value.get("id")) or f"trace-{seen}"
            yield from _messages_of_run(value, trace, seen, key)
            children = value.get("child_runs")
            waiting += [(child, trace) for child in reversed(children)] if isinstance(children, list) else []


def _messages_of_run(run: Mapping[str, Any], trace: str, number: int, key: str) -> Iterator[_Found]:
    before, after = (_messages(run.get(side), key) for side in ("inputs", "outputs"))
    prompt = system_prompt(run["inputs"]) if isinstance(run.get("inputs"), Mapping) else []
    known = set(_prints(before))
    messages = [*prompt, *before, *(message for message in after if _print(message) not in known)]
    if messages:
        root = run.get("parent_run_id") is None and not str(run.get("dotted_order") or "").count(".")
        yield _Found(messages, _prints(messages), trace, _text(run.get("name")), root, _text(run.get("dotted_order")) or f"{number:09}")


def _messages(side: Any, key: str, depth: int = 0) -> list[BaseMessage]:
    """The messages in a run's inputs or outputs, wherever the caller's program keeps them."""
    if depth > _DEEPEST:
        return []
    if isinstance(side, list):
        found = messages_of(side)
        if found:
            return found
        # Requests to a model are a list of lists, answers a list of lists of generations.
        return _messages(side[0], key, depth + 1) if side else []
    if not isinstance(side, Mapping):
        return []
    for name in (key, "messages"):
        if isinstance(side.get(name), list | Mapping):
            found = _messages(side[name], key, depth + 1)
            if found:
                return found
    single = messages_of([side])
    return single or next((found for name in _WRAPPERS if name in side and (found := _messages(side[name], key, depth + 1))), [])


def _talks(members: Sequence[_Found]) -> list[Talk]:
    """The lists of a trace that no other holds, the root's or the longest first."""
    ranked = sorted(members, key=lambda one: (not one.root, -len(one.prints), one.order))
    kept: list[_Found] = []
    covered: set[str] = set()
    for one in ranked:
        if (
            len(kept) < _MOST_TALKS
            and one.prints
            and not covered.issuperset(one.prints)
            and (not kept or any(isinstance(message, AIMessage) for message in one.messages))
        ):
            kept.append(one)
            covered |= set(one.prints)
    held = [set(one.prints) for one in kept]
    kept[1:] = [one for i, one in enumerate(kept) if i and not any(i != j and held[i] <= other for j, other in enumerate(held))]
    name = next((one.trace for one in kept), "")
    prompted = [_with_prompt(one, members) for one in kept]
    return [
        Talk(messages=messages, name=name if i == 0 else f"{name}/{one.name or i}", side=i > 0)
        for i, (one, messages) in enumerate(zip(kept, prompted, strict=True))
    ]


def _with_prompt(found: _Found, members: Sequence[_Found]) -> list[BaseMessage]:
    """The messages, with the system prompt that a request to the model in this conversation had."""
    if isinstance(found.messages[0], SystemMessage):
        return found.messages
    for one in members:
        if one.prints[:1] == found.prints[:1] and isinstance(one.messages[0], SystemMessage):
            return [one.messages[0], *found.messages]
    return found.messages


def _prints(messages: Iterable[BaseMessage]) -> list[str]:
    return [_print(message) for message in messages if not isinstance(message, SystemMessage)]


def _print(message: BaseMessage) -> str:
    """What a message says: runs of one trace hold it under different ids, or none."""
    calls = [(call.get("id"), call["name"]) for call in getattr(message, "tool_calls", ())]
    said = repr((message.type, message.content, calls, getattr(message, "tool_call_id", None)))
    return hashlib.blake2b(said.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
