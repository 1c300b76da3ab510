"""The door to LangChain chains: messages or a prompt value in, messages out. It never writes state, so checkpoints stand in at each call."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import Runnable, RunnableLambda

from langgraph_roundcompact.compactor import Door

if TYPE_CHECKING:
    from langgraph_roundcompact.compactor import RoundCompactor

_DOOR = Door(writes_state=False)


def as_runnable(compactor: RoundCompactor) -> Runnable[Any, list[BaseMessage]]:
    """See `RoundCompactor.as_runnable`."""
    # Partials of module functions, so that a chain can be sent to another process.
    return RunnableLambda(partial(_compact, compactor), afunc=partial(_acompact, compactor), name="round_compact")


def _compact(compactor: RoundCompactor, value: Any) -> list[BaseMessage]:
    return compactor.compact(_input(value), door=_DOOR).messages


async def _acompact(compactor: RoundCompactor, value: Any) -> list[BaseMessage]:
    return (await compactor.acompact(_input(value), door=_DOOR)).messages


def _input(value: Any) -> Any:
    if isinstance(value, PromptValue):
        return value.to_messages()
    if isinstance(value, str):
        return [HumanMessage(value)]
    return [value] if isinstance(value, BaseMessage) else value
