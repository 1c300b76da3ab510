"""Two agents for a LangGraph server that read far more than their window holds.

    pip install "langgraph-roundcompact[langchain]" "langgraph-cli[inmem]"
    langgraph dev

`agent` compacts by itself before a model call, and has a tool to ask for it. `reviewed_agent` stops before each checkpoint and waits for
`"accept"`, `"reject"` or `{"action": "edit", "summary": "..."}`. Both work without a key: the model then follows a fixed rule, and rules make
the checkpoints. `ROUNDCOMPACT_EXAMPLE_MODEL=openai:gpt-5-mini` (any name that `init_chat_model` knows) puts a real model in both places.

Ask for example: "Read pages 1 to 30 and tell me the last word."
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from langgraph_roundcompact import RoundCompactConfig, RoundCompactMiddleware, RoundCompactNode, RoundCompactor, create_compact_tool
from langgraph_roundcompact.testing import ScriptedChatModel

WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath")
WINDOW_TOKENS = 6_000
"""Small on purpose: some dozen pages fill it."""


@tool
def read_page(number: int) -> str:
    """Read one page of the book.

    Args:
        number: Which page, from 1.
    """
    word = WORDS[number % len(WORDS)]
    lines = "\n".join(f"On line {line} of page {number} stands {WORDS[(number + line) % len(WORDS)]}." for line in range(1, 31))
    return f"page {number}\n{lines}\nThe last word of page {number} is {word}."


def next_step(messages: Sequence[BaseMessage]) -> AIMessage:
    """The rule of the model without a key: the next page after the highest one that can be seen, up to the last one that was asked for."""
    asked = [message for message in messages if isinstance(message, HumanMessage) and message.name is None][-1]
    pages = [int(number) for number in re.findall(r"\d+", asked.text)] or [1]
    done = messages[messages.index(asked) + 1 :]
    seen = max((int(number) for message in done for number in re.findall(r"page (\d+)", message.text)), default=min(pages) - 1)
    if seen >= max(pages):
        return AIMessage(f"I have read up to page {seen}. The last word is {WORDS[seen % len(WORDS)]}.")
    call = {"name": "read_page", "args": {"number": seen + 1}, "id": f"page_{seen + 1}_{len(messages)}", "type": "tool_call"}
    return AIMessage(f"Next is number {seen + 1}.", tool_calls=[call])


def example_model() -> BaseChatModel:
    """The model that the environment names, or the one that follows the rule."""
    name = os.environ.get("ROUNDCOMPACT_EXAMPLE_MODEL")
    model: BaseChatModel = init_chat_model(name) if name else ScriptedChatModel(replies=[next_step])
    return model


def example_compactor(model: BaseChatModel) -> RoundCompactor:
    """Summaries by a real model, checkpoints by rules without one."""
    config = RoundCompactConfig(context_window_tokens=WINDOW_TOKENS, trigger_context_ratio=0.7)
    return RoundCompactor(None if isinstance(model, ScriptedChatModel) else model, config=config, tiers=())


def make_agent() -> Any:
    """An agent of `create_agent` with the middleware and the tool."""
    model = example_model()
    compactor = example_compactor(model)
    return create_agent(model, [read_page, create_compact_tool(compactor)], middleware=[RoundCompactMiddleware(compactor)], name="agent")


def make_reviewed_agent() -> Any:
    """A graph of one's own with a node that asks before it replaces anything."""
    model = example_model()
    bound = model.bind_tools([read_page])

    async def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("compact", RoundCompactNode(example_compactor(model), approve=True, tools=[read_page], agent_model=model))
    builder.add_node("think", think)
    builder.add_node("tools", ToolNode([read_page]))
    builder.add_edge(START, "compact")
    builder.add_edge("compact", "think")
    builder.add_conditional_edges("think", tools_condition, {"tools": "tools", END: END})
    builder.add_edge("tools", "compact")
    return builder.compile(name="reviewed_agent")


agent = make_agent()
reviewed_agent = make_reviewed_agent()
