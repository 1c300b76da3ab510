"""The door to LangChain chains: messages or a prompt value in, messages out. It never writes state, so checkpoints stand in at each call."""

from __future__ import annotations

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

    def compact_messages(value: Any) -> list[BaseMessage]:
        return compactor.compact(_input(value), door=_DOOR).messages

    async def acompact_messages(value: Any) -> list[BaseMessage]:
        return (await compactor.acompact(_input(value), door=_DOOR)).messages

    return RunnableLambda(compact_messages, afunc=acompact_messages, name="round_compact")


def _input(value: Any) -> Any:
    if isinstance(value, PromptValue):
        return value.to_messages()
    if isinstance(value, str):
        return [HumanMessage(value)]
    return [value] if isinstance(value, BaseMessage) else value
