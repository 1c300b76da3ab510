"""For tests of applications and extensions: a scripted chat model, a strict check of a history, suites for tiers and archives of your own.

No test framework is imported. The checks here are written on their own, apart from the code they are used on: `pairing_faults` does not look
at how the package forms groups, so that one can prove the other.

    model = ScriptedChatModel(replies=["<state_snapshot>...</state_snapshot>"])
    compactor = RoundCompactor(model, config=config)
    assert_valid_history(compactor.compact(messages).messages)
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    messages_from_dict,
    messages_to_dict,
)

from langgraph_roundcompact._archive_items import Ask
from langgraph_roundcompact._message_tokens import message_tokens
from langgraph_roundcompact._ports import Archive
from langgraph_roundcompact._scripted import ScriptedChatModel, wire_text
from langgraph_roundcompact.compactor import RoundCompactor
from langgraph_roundcompact.config import RoundCompactConfig
from langgraph_roundcompact.tiers import Tier, TierContext

__all__ = ["ScriptedChatModel", "acheck_archive", "assert_valid_history", "check_archive", "check_tier", "pairing_faults"]


def pairing_faults(messages: Sequence[BaseMessage], *, pending_ok: bool = True) -> list[str]:
    """Everything in a history that a strict provider would answer with an error, one sentence a fault; empty for a valid history.

    Results must stand directly after the message that made the calls, each call answered once. Calls without id pair with results
    without id, by number. Calls with arguments that did not parse need a result too, because integrations send them.

    Args:
        messages: The whole history.
        pending_ok: Whether calls of the last AI message may still be open, with nothing after it but results it has already got.
    """
    faults = _id_faults(messages)
    owner, waiting, answered = -1, Counter[str](), Counter[str]()
    for i, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            call = message.tool_call_id or ""
            if waiting[call] > 0:
                waiting[call] -= 1
                answered[call] += 1
            else:
                faults.append(f"second result for call {call!r} at {i}" if answered[call] else f"result for {call!r} at {i} does not follow its call")
            continue
        faults += _unanswered(owner, waiting)
        owner, waiting, answered = i, Counter(_wanted(message)), Counter()
        if i < len(messages) - 1:
            faults += [f"server-side call {call!r} of message {i} has no result in it" for call in _open_server_calls(message)]
    return faults if pending_ok else faults + _unanswered(owner, waiting)


def assert_valid_history(messages: Sequence[BaseMessage], *, pending_ok: bool = True) -> None:
    """Raise `AssertionError` that lists every fault of `pairing_faults`; return silently for a valid history."""
    faults = pairing_faults(messages, pending_ok=pending_ok)
    if faults:
        raise AssertionError("; ".join(faults))


def _id_faults(messages: Sequence[BaseMessage]) -> list[str]:
    seen = Counter(message.id for message in messages if message.id is not None)
    faults = [f"message id {key!r} stands {count} times" for key, count in seen.items() if count > 1]
    return faults + [f"a RemoveMessage is left at {i}" for i, message in enumerate(messages) if isinstance(message, RemoveMessage)]


def _unanswered(owner: int, waiting: Counter[str]) -> list[str]:
    return [f"call {call!r} of message {owner} has no result" for call in waiting.elements()]


def _wanted(message: BaseMessage) -> list[str]:
    """The ids of the calls for which results must follow. Blocks and raw calls repeat those of `tool_calls`, so they add unknown ids only."""
    if not isinstance(message, AIMessage):
        return []
    wanted = [call.get("id") or "" for call in (*message.tool_calls, *message.invalid_tool_calls)]
    blocks = [block for block in _dicts(message.content) if block.get("type") in ("tool_use", "function_call", "tool_call", "custom_tool_call")]
    further = [str(block.get("call_id") or block.get("id") or "") for block in blocks]
    further += [str(raw.get("id") or "") for raw in _dicts(message.additional_kwargs.get("tool_calls"))]
    for call in further:
        if call and call not in wanted:
            wanted.append(call)
    return wanted


def _open_server_calls(message: BaseMessage) -> list[str]:
    if not isinstance(message, AIMessage):
        return []
    blocks = _dicts(message.content)
    done = {str(block.get("tool_use_id") or block.get("tool_call_id")) for block in blocks if str(block.get("type")).endswith("tool_result")}
    uses = [block for block in blocks if block.get("type") in ("server_tool_use", "server_tool_call", "mcp_tool_use")]
    return [str(block.get("id")) for block in uses if str(block.get("id")) not in done]


def _dicts(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


# --- The suite for tiers ---------------------------------------------------------------------------------------------------------------


def check_tier(tier: Tier, *, context_factory: Callable[[Sequence[BaseMessage]], TierContext] | None = None, examples: int = 50) -> None:
    """Run a tier over generated targets and raise `AssertionError`, with the example's number, at the first rule it breaks.

    The rules: calls and results stay whole, ids stay in their order and no new one appears, the result is never larger, the same input
    gives the same output, also after the messages were written as JSON and read again, a second run changes nothing, the given messages are not
    mutated, and in a whole history nothing but the target changes. Example n is the same on every machine.

    Args:
        tier: The tier under test.
        context_factory: Makes the tier's context for a target. Called anew for each run, with the messages of that run; for the second run over a
            result, a `TierContext` is that of the first run with the window as the first run left it. By default the window is twice the target
            span, has to come down to half of it, the provider's cache is cold, and every gain counts.
        examples: How many targets to try.
    """
    make = _pressing_context if context_factory is None else context_factory
    for number in range(examples):
        target = _target(random.Random(number))
        before = [message.model_dump() for message in target]
        context = make(target)
        first = list(tier(target, context))
        _require([message.model_dump() for message in target] == before, number, "the given messages were mutated")
        again = list(tier(target, make(target)))
        _require(first == again, number, "the same target gave another result the second time")
        _require(first == list(tier(_reloaded(target), make(target))), number, "the target, stored and read again, gave another result")
        later = _measured_again(context, target, first) if isinstance(context, TierContext) else make(first)
        _require(first == list(tier(first, later)), number, "a second run over the result changed it")
        _require(first == list(tier(_reloaded(first), later)), number, "a second run over the result, stored and read again, changed it")
        _require(not pairing_faults(first), number, "; ".join(pairing_faults(first)))
        left = iter([message.id for message in target])
        _require(all(message.id in left for message in first), number, "ids are new, doubled or out of order")
        _require(_size(first) <= _size(target), number, f"the result is larger: {_size(first)} characters after, {_size(target)} before")
        if first != target and number % _HISTORY_EVERY == 0:
            _check_in_history(tier, target, number)


def _check_in_history(tier: Tier, target: Sequence[BaseMessage], number: int) -> None:
    """Play the tier where it belongs: between a request and work that is still open."""
    head = [SystemMessage("You are a careful engineer.", id="s"), HumanMessage("Fix the failing test.", id="h")]
    tail = [AIMessage("Now I read it.", tool_calls=[{"name": "read_file", "args": {}, "id": "open"}], id="live")]
    window = [*head, *target, *tail]
    before = [message.model_dump() for message in window]
    compactor = RoundCompactor(config=RoundCompactConfig(context_window_tokens=_tokens(window), min_target_context_ratio=0.0), tiers=(tier,))
    after = compactor.compact(window, idle_seconds=_COLD_SECONDS).messages
    _require([message.model_dump() for message in window] == before, number, "the given messages were mutated inside a history")
    _require(after[:2] == head and after[-1:] == tail, number, "what precedes or follows the target has changed")
    _require(not pairing_faults(after), number, "; ".join(pairing_faults(after)))


def _pressing_context(target: Sequence[BaseMessage]) -> TierContext:
    tokens = _tokens(target) + 1
    return TierContext(
        target_tokens=tokens,
        window_tokens=2 * tokens,
        round_budget_tokens=tokens,
        reclaim_at_least_tokens=0,
        request="Fix the failing test.",
        estimate=_quarter,
        idle_seconds=_COLD_SECONDS,
    )


def _measured_again(context: TierContext, target: Sequence[BaseMessage], after: Sequence[BaseMessage]) -> TierContext:
    gained = sum(message_tokens(message, context.estimate) for message in target) - sum(
        message_tokens(message, context.estimate) for message in after
    )
    return replace(context, window_tokens=context.window_tokens - int(gained * context.scale))


def _reloaded(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The messages as another process reads them."""
    return messages_from_dict(json.loads(json.dumps(messages_to_dict(messages))))


def _quarter(text: str) -> int:
    return -(-len(text) // 4)


def _tokens(messages: Sequence[BaseMessage]) -> int:
    return sum(message_tokens(message, _quarter) for message in messages)


def _require(holds: bool, number: int, fault: str) -> None:
    if not holds:
        msg = f"example {number}: {fault}"
        raise AssertionError(msg)


def _size(messages: Sequence[BaseMessage]) -> int:
    return sum(len(wire_text(message)) for message in messages)


_HISTORY_EVERY = 5
"""Examples between those that are played in a whole history, which takes most of the time."""
_COLD_SECONDS = 7200.0
"""Longer than any provider keeps an unused prefix."""
_LONG_RUN = 60
"""Steps of a target that is a very long run of small ones: each tenth."""
_TOOLS = ("read_file", "run_command", "search", "write_todos")
_PIECES = (
    "ok\n",
    "Error: no such file: src/app.py\n",
    '{"rows": [1, 2, 3]}\n',
    "文件已读取。\n",
    "+ added line\n- removed line\n",
    "\x00\ud800 <b>odd</b>\n",
)


def _target(rng: random.Random) -> list[BaseMessage]:
    """A well-formed stretch of work: complete groups, some with a steering message or a system note between them."""
    messages: list[BaseMessage] = []
    for group in range(_LONG_RUN if rng.random() < 0.1 else rng.randint(1, 7)):
        calls = [
            {"name": rng.choice(_TOOLS), "args": {"path": f"src/f{rng.randint(0, 2)}.py", "body": _text(rng)}, "id": f"c{group}_{k}"}
            for k in range(rng.randint(0, 3))
        ]
        messages.append(AIMessage(_text(rng)[:80], tool_calls=calls, id=f"a{group}"))
        for k, call in enumerate(calls):
            content: Any = rng.choice(
                [_text(rng), [{"type": "text", "text": _text(rng)}, {"type": "image", "base64": "iVBORw0KGgo=" * 40, "mime_type": "image/png"}]]
            )
            status: Any = rng.choice(["success", "error"])
            messages.append(ToolMessage(content, tool_call_id=str(call["id"]), name=str(call["name"]), id=f"t{group}_{k}", status=status))
        if rng.random() < 0.2:
            messages.append(HumanMessage("<system-reminder>mind the time</system-reminder>", id=f"h{group}"))
    return messages


def _text(rng: random.Random) -> str:
    # Some texts come twice, most do not.
    return f"part {rng.randint(0, 40)}\n" * rng.randint(0, 1) + rng.choice(_PIECES) * rng.choice((0, 1, 3, 40, 400))


# --- The suite for archives ------------------------------------------------------------------------------------------------------------


def check_archive(archive: Archive) -> None:
    """Try an archive and raise `AssertionError`, with what was tried, at the first rule it breaks.

    The rules: an entry reads back as it was written, whatever text and size; written twice it is there once; what was read may be changed by
    the reader; a thread's keys are listed; a search finds a passage of the right entry, keeps to the entries and the number asked for, and
    finds nothing where nothing matches; no spelling of a thread id reaches another thread's entries; deleting a thread deletes all of it and
    nothing else.

    Args:
        archive: The archive under test, empty; it is empty again afterwards.
    """
    flow = _archive_rules()
    answer: Any = None
    while True:
        try:
            ask = flow.send(answer)
        except StopIteration:
            return
        answer = getattr(archive, ask.method)(*ask.args, **ask.options)


async def acheck_archive(archive: Archive) -> None:
    """Same as `check_archive`, by the methods that are awaited."""
    flow = _archive_rules()
    answer: Any = None
    while True:
        try:
            ask = flow.send(answer)
        except StopIteration:
            return
        answer = await getattr(archive, "a" + ask.method)(*ask.args, **ask.options)


_THREADS: tuple[str | None, ...] = (
    "a", "A", " a", "a.b", "a/b", "../a", "..", "", None, "None", "a\x00", "\u00e9", "e\u0301", "\ud83d\ude00",
    "\U0001f600", "*", "a%", "a_", "x" * 3000, "x" * 3001,
)  # fmt: skip
"""Ids that a careless archive takes for one another."""

_Rules = Generator[Ask, Any, None]


def _archive_rules() -> _Rules:
    yield from _rules_of_entries()
    yield from _rules_of_search()
    yield from _rules_of_threads()


def _rules_of_entries() -> _Rules:
    records = {f"rc-{number}": record for number, record in enumerate(_records())}
    for key, record in records.items():
        _expect((yield _ask("get", key, "a")), None, f"get of {key} before it was written")
        yield _ask("put", key, "a", record)
        yield _ask("put", key, "a", record)
        _expect((yield _ask("get", key, "a")), record, f"get of {key}")
    read = yield _ask("get", "rc-0", "a")
    read["messages"].append("changed by the reader")
    _expect((yield _ask("get", "rc-0", "a")), _records()[0], "get after the reader changed what it had read")
    _expect(sorted((yield Ask("keys", (), {"thread_id": "a"}))), sorted(records), "keys")
    yield Ask("delete", (), {"thread_id": "a"})
    _expect((yield Ask("keys", (), {"thread_id": "a"})), [], "keys after delete")
    _expect((yield _ask("get", "rc-0", "a")), None, "get after delete")


def _rules_of_search() -> _Rules:
    yield _ask("put", "rc-1", "a", _entry("the parser stumbles over quetzalcoatl.py", "nothing else"))
    yield _ask("put", "rc-2", "a", _entry("the deploy to heliopolis went well", "quetzalcoatl.py is mentioned here too"))
    found = yield _search("quetzalcoatl.py parser")
    _expect([passage["archive_id"] for passage in found][:1], ["rc-1"], "the best passage for words of one entry")
    _expect("quetzalcoatl.py" in found[0]["text"], True, "the passage's text holds what was looked for")
    _expect({passage["archive_id"] for passage in (yield _search("quetzalcoatl.py", archive_ids=["rc-2"]))}, {"rc-2"}, "search in one entry")
    _expect(len((yield _search("quetzalcoatl.py", limit=1))), 1, "search for one passage")
    _expect((yield _search("")), [], "search for nothing")
    yield Ask("delete", (), {"thread_id": "a"})
    _expect((yield _search("quetzalcoatl.py")), [], "search after delete")


def _rules_of_threads() -> _Rules:
    for number, thread in enumerate(_THREADS):
        yield _ask("put", "rc-same", thread, _entry(f"the word of thread {number}"))
        yield _ask("put", f"rc-{number}", thread, _entry("a second entry"))
    for number, thread in enumerate(_THREADS):
        _expect((yield _ask("get", "rc-same", thread)), _entry(f"the word of thread {number}"), f"get in thread {thread!r:.40}")
        _expect(sorted((yield Ask("keys", (), {"thread_id": thread}))), sorted(["rc-same", f"rc-{number}"]), f"keys of thread {thread!r:.40}")
        others = yield _ask("get", f"rc-{(number + 1) % len(_THREADS)}", thread)
        _expect(others, None, f"get of another thread's entry in thread {thread!r:.40}")
    for number, thread in enumerate(_THREADS):
        yield Ask("delete", (), {"thread_id": thread})
        for other in _THREADS[number + 1 :][:3]:
            _expect(len((yield Ask("keys", (), {"thread_id": other}))), 2, f"entries of thread {other!r:.40} after deleting {thread!r:.40}")


def _ask(method: str, key: str, thread_id: str | None, *more: Any) -> Ask:
    return Ask(method, (key, *more), {"thread_id": thread_id})


def _search(query: str, **options: Any) -> Ask:
    return Ask("search", (query,), {"thread_id": "a", **options})


def _entry(*texts: str) -> dict[str, Any]:
    return {"version": 1, "request": "go", "messages": [{"type": "human", "content": text, "id": f"m{k}"} for k, text in enumerate(texts)]}


def _records() -> list[dict[str, Any]]:
    odd: dict[str, Any] = {"none": None, "yes": True, "float": -0.25, "large": 1e300, "int": 2**70, "empty": {}, "list": [[], [1, "two"]], "": ""}
    return [
        _entry("plain"),
        _entry(*_PIECES, 'NUL \x00, quote ", backslash \\, \u2028, \U0001f600, <b>&amp;</b>', "\ud800 alone"),
        {**_entry("with data"), "artifact": odd},
        _entry("long\n" * 60_000, "\u957f" * 60_000),
        {"version": 1, "request": "", "messages": []},
    ]


def _expect(found: Any, wanted: Any, what: str) -> None:
    if found != wanted:
        msg = f"{what}: {found!r:.200} instead of {wanted!r:.200}"
        raise AssertionError(msg)
