"""What the procedure tests share: a compactor with a plain counter, steps of a known size, and one call in either colour."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from builders import call, ids
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langgraph_roundcompact import RoundCompactConfig, RoundCompactor
from langgraph_roundcompact.testing import ScriptedChatModel

BOTH = pytest.mark.parametrize("how", ["sync", "async"])
"""Runs a test once in each colour."""


def plain_counter(messages: Sequence[BaseMessage]) -> int:
    """A quarter of the characters, and ten tokens a message: sizes in these tests are meant literally."""
    return sum(len(str(message.content)) // 4 + 10 for message in messages)


def snapshot(text: str) -> str:
    """An answer of the summariser that follows its prompt."""
    return f"<state_snapshot>\n### 1. Active Task\n{text}\n</state_snapshot>"


def summariser(*replies: Any, **more: Any) -> ScriptedChatModel:
    """A scripted summariser; a plain text is wrapped as a snapshot."""
    wrapped = [snapshot(reply) if isinstance(reply, str) else reply for reply in replies]
    return ScriptedChatModel(replies=wrapped or [snapshot("NOTES")], **more)


def compactor(model: Any = None, *, trigger: int | None = 1000, window: int | None = 2000, **more: Any) -> RoundCompactor:
    """A compactor that replaces the whole round; configuration fields may be given among the arguments."""
    fields = {name: more.pop(name) for name in list(more) if name in RoundCompactConfig.model_fields}
    given = {"trigger_token_threshold": trigger, "context_window_tokens": window, "min_target_context_ratio": 0.0, "keep_recent_messages": 0}
    config = RoundCompactConfig(**{**given, **fields})
    return RoundCompactor(model, config=config, **{"token_counter": plain_counter, "tiers": (), **more})


def work(number: int, characters: int = 4000) -> list[BaseMessage]:
    """One finished step of about `characters / 4` tokens: `a7` with call `c7`, and its result `t7`, which begins with `result 7`."""
    return [
        AIMessage("", tool_calls=[call(f"c{number}", "look_up", key=f"k{number}")], id=f"a{number}"),
        ToolMessage(f"result {number} " + "y" * characters, tool_call_id=f"c{number}", name="look_up", id=f"t{number}"),
    ]


def history(*numbers: int, characters: int = 4000, ask: str = "Sort the invoices") -> list[BaseMessage]:
    """A request `h` and finished steps."""
    return [HumanMessage(ask, id="h"), *(message for number in numbers for message in work(number, characters))]


def without_ids(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The same messages as states without `add_messages` hold them."""
    return [message.model_copy(update={"id": None}) for message in messages]


def blocks(messages: Sequence[BaseMessage]) -> list[int]:
    """Indices of the checkpoints."""
    return [i for i, message in enumerate(messages) if "<memory_block_current>" in str(message.content)]


def texts(requests: Sequence[Sequence[BaseMessage]]) -> list[str]:
    """What each request to a scripted model said."""
    return ["\n".join(str(message.content) for message in request) for request in requests]


def go(how: str, runnable: Any, value: Any, config: Any = None) -> Any:
    """Invoke in one colour."""
    return runnable.invoke(value, config) if how == "sync" else asyncio.run(runnable.ainvoke(value, config))


def compact(how: str, subject: RoundCompactor, value: Any, **more: Any) -> Any:
    """`compact` or `acompact`."""
    return subject.compact(value, **more) if how == "sync" else asyncio.run(subject.acompact(value, **more))


async def widest_gap(of: Callable[[], Coroutine[Any, Any, Any]], seconds: float = 0.01) -> tuple[Any, float]:
    """The coroutine's result, and the longest time in seconds for which it kept the event loop from a ticker."""
    loop, widest, done = asyncio.get_running_loop(), 0.0, False

    async def tick() -> None:
        nonlocal widest
        last = loop.time()
        while not done:
            await asyncio.sleep(seconds)
            now = loop.time()
            widest, last = max(widest, now - last - seconds), now

    ticker = asyncio.create_task(tick())
    await asyncio.sleep(2 * seconds)
    try:
        result = await of()
    finally:
        done = True
        await ticker
    return result, widest


__all__ = [
    "BOTH",
    "blocks",
    "compact",
    "compactor",
    "go",
    "history",
    "ids",
    "plain_counter",
    "snapshot",
    "summariser",
    "texts",
    "widest_gap",
    "without_ids",
    "work",
]
