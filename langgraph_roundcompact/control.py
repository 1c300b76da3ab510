"""Compaction by hand: a tool that the agent may call itself, and compaction of a thread that is not running.

Both go the way of every other compaction: the same spans, checks and words::

    agent = create_agent(model, [*tools, create_compact_tool(compactor)], middleware=[RoundCompactMiddleware(compactor)])
    compact_thread(graph, {"configurable": {"thread_id": "7"}}, compactor, focus="the open invoices")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Protocol, cast

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.errors import InvalidUpdateError
from langgraph.graph import END
from langgraph.prebuilt import InjectedState
from langgraph.types import StateSnapshot

from langgraph_roundcompact._arguments import check_channel
from langgraph_roundcompact._channels import channel_kind
from langgraph_roundcompact._compact_request import request_mark
from langgraph_roundcompact._content import as_messages
from langgraph_roundcompact._groups import declared_calls, results_of
from langgraph_roundcompact._splice import Channel
from langgraph_roundcompact._state import read_key, read_messages
from langgraph_roundcompact._trigger import BLOCK_FLOOR_TOKENS
from langgraph_roundcompact.compactor import Door, RoundCompactor, checked_compactor
from langgraph_roundcompact.events import CompactionPlan, CompactionResult, Reason

TOOL_NAME = "compact_conversation"

_DESCRIPTION = (
    "Replace your finished work on the current request (tool calls and their results) by one checkpoint that you go on from. Worth it after a "
    "stretch of work whose details you no longer need, before a new one begins. The user's messages stay as they are. It happens before your "
    "next step."
)
_FOCUS = "What the checkpoint should keep in most detail; leave it empty if everything matters alike."

_TRIES = 2
"""How often a thread is read, compacted and found changed before it is left alone."""


class _Graph(Protocol):
    """What is needed of a compiled graph."""

    def get_state(self, config: RunnableConfig) -> StateSnapshot: ...
    async def aget_state(self, config: RunnableConfig) -> StateSnapshot: ...
    def update_state(self, config: RunnableConfig, values: Any, as_node: str | None = None) -> RunnableConfig: ...
    async def aupdate_state(self, config: RunnableConfig, values: Any, as_node: str | None = None) -> RunnableConfig: ...


# --- the agent asks ---------------------------------------------------------------------------------------------------------------------


def create_compact_tool(compactor: RoundCompactor, *, messages_key: str = "messages") -> BaseTool:
    """A tool `compact_conversation(focus="")` by which the agent asks for a compaction of its own.

    The tool replaces nothing: its call is still open while it runs. Its result carries the request, and whichever door the same graph has
    (`RoundCompactNode`, `add_round_compaction`, `RoundCompactMiddleware`) compacts before the next model call as with `force=True`. Where
    nothing can be replaced the result says so, and nothing is asked for.

    Args:
        compactor: The compactor of the graph's door.
        messages_key: The state's key for messages.

    Raises:
        ConfigurationError: `compactor` is no compactor.
    """
    compactor = checked_compactor(compactor)

    def compact_conversation(focus: Annotated[str, _FOCUS] = "", state: Annotated[Any, InjectedState] = None) -> tuple[str, dict[str, str] | None]:
        plan = _plan_for_tool(compactor, state, messages_key)
        if plan is not None and not _is_worth_it(plan):
            return _refusal(plan), None
        return _promise(plan, focus), request_mark(focus)

    return StructuredTool.from_function(compact_conversation, name=TOOL_NAME, description=_DESCRIPTION, response_format="content_and_artifact")


def _plan_for_tool(compactor: RoundCompactor, state: object, key: str) -> CompactionPlan | None:
    """What would be replaced; None when the tool was not given the state."""
    if state is None or not (isinstance(state, list) or read_key(state, key) is not None):
        return None
    return compactor.plan(state if key == "messages" or isinstance(state, list) else read_messages(state, key), force=True)


def _is_worth_it(plan: CompactionPlan) -> bool:
    return plan.would_compact and plan.new_work_tokens >= BLOCK_FLOOR_TOKENS


def _promise(plan: CompactionPlan | None, focus: str) -> str:
    """Words that stay true whatever the compaction comes to: a result is written once."""
    what = f"{plan.target_messages} messages of finished work" if plan is not None else "your finished work on this request"
    kept = f", with attention to: {' '.join(focus.split())[:200]}" if focus.strip() else ""
    return (
        f"Asked for. Before your next step, {what} will be replaced by one checkpoint{kept}. Go on from what it says. If the earlier messages are "
        "still there, they could not be made shorter: go on with them, and do not ask again before there is more work."
    )


_WHY_NOT: Mapping[str, str] = {
    "native_compaction": "the model's provider compacts this conversation by itself",
    "foreign_compaction": "another summarisation already looks after this conversation",
    "no_ids": "the messages have no ids by which they could be replaced",
    "unreadable_messages": "something in the conversation cannot be read as a message",
}


def _refusal(plan: CompactionPlan) -> str:
    least = "there is too little finished work since the latest request or checkpoint to make anything shorter"
    return f"Nothing was compacted: {_WHY_NOT.get(plan.reason, least)}. Everything stays as it is; go on with the task."


# --- a thread at rest -------------------------------------------------------------------------------------------------------------------


def run_is_paused(snapshot: StateSnapshot, *, messages_key: str = "messages") -> bool:
    """Whether a run of the thread is still to go on: interrupted, stopped at a breakpoint, failed half-way, or with calls without results.

    Messages that such a run has read, or is about to answer, may not be replaced from outside: LangGraph would drop the interrupt, and
    the run would end without an answer.

    Args:
        snapshot: What `graph.get_state(config)` returned.
        messages_key: The state's key for messages.
    """
    # Not by `next` alone: tasks of an unfinished step whose writes are saved are not named there, as after a kill between the two.
    if snapshot.next or snapshot.tasks or snapshot.interrupts:
        return True
    return _has_open_calls(_messages_of(snapshot.values, messages_key))


def compact_thread(
    graph: _Graph,
    config: RunnableConfig,
    compactor: RoundCompactor,
    *,
    force: bool = True,
    focus: str | None = None,
    messages_key: str = "messages",
    channel: Channel | None = None,
    as_node: str | None = None,
    system_message: BaseMessage | str | None = None,
    tools: Sequence[Any] | None = None,
    agent_model: Any = None,
) -> CompactionResult:
    """Compact a thread from outside of any run, and write it with `update_state`.

    Nothing is written while a run of the thread is paused (`stood_down`, `run_is_paused`), or when the thread got a new checkpoint in the
    meantime (`stood_down`, `thread_changed`). No checkpointer can compare and write in one step: what is written between our last look and our
    write is kept where the channel works by id, and is lost on the other kinds. Afterwards the thread is as it was: nothing waits to be run.

    Args:
        graph: A compiled graph with a checkpointer.
        config: Which thread; with a `checkpoint_id`, a fork from there.
        compactor: What compacts.
        force: Skip trigger, minimum and cool-down.
        focus: What the summary should pay attention to.
        messages_key: The state's key for messages.
        channel: Kind of the channel; `None`: the graph is asked.
        as_node: The node the update is written as; `None`: the one that ran last.
        system_message: The agent's system prompt, if it is not among the messages.
        tools: The agent's tools.
        agent_model: Tells the capacity when the agent's model is not the summariser.

    Raises:
        ConfigurationError: the graph has no such key, or a channel of an unknown kind.
    """
    door = _door(graph, messages_key, channel)
    given = {"system_message": system_message, "tools": tools, "agent_model": agent_model, "force": force, "focus": focus, "door": door}
    compactor, thread = checked_compactor(compactor), _thread_id(config)
    for _ in range(_TRIES):
        seen = graph.get_state(config)
        if run_is_paused(seen, messages_key=messages_key):
            return _stood_down(compactor, seen, messages_key, "run_is_paused")
        result = compactor.compact(_with_key(seen.values, messages_key), thread_id=thread, **given)
        if not result.changed:
            return result
        if _checkpoint_id(graph.get_state(config)) == _checkpoint_id(seen):
            written = _write(graph, config, result, as_node)
            if graph.get_state(written).next:  # the node's edges lead on: nothing is to be run
                graph.update_state(written, None, as_node=END)
            return result
    return _stood_down(compactor, seen, messages_key, "thread_changed")


async def acompact_thread(
    graph: _Graph,
    config: RunnableConfig,
    compactor: RoundCompactor,
    *,
    force: bool = True,
    focus: str | None = None,
    messages_key: str = "messages",
    channel: Channel | None = None,
    as_node: str | None = None,
    system_message: BaseMessage | str | None = None,
    tools: Sequence[Any] | None = None,
    agent_model: Any = None,
) -> CompactionResult:
    """Same as `compact_thread`, awaited."""
    door = _door(graph, messages_key, channel)
    given = {"system_message": system_message, "tools": tools, "agent_model": agent_model, "force": force, "focus": focus, "door": door}
    compactor, thread = checked_compactor(compactor), _thread_id(config)
    for _ in range(_TRIES):
        seen = await graph.aget_state(config)
        if run_is_paused(seen, messages_key=messages_key):
            return _stood_down(compactor, seen, messages_key, "run_is_paused")
        result = await compactor.acompact(_with_key(seen.values, messages_key), thread_id=thread, **given)
        if not result.changed:
            return result
        if _checkpoint_id(await graph.aget_state(config)) == _checkpoint_id(seen):
            written = await _awrite(graph, config, result, as_node)
            if (await graph.aget_state(written)).next:  # the node's edges lead on: nothing is to be run
                await graph.aupdate_state(written, None, as_node=END)
            return result
    return _stood_down(compactor, seen, messages_key, "thread_changed")


def _write(graph: _Graph, config: RunnableConfig, result: CompactionResult, as_node: str | None) -> RunnableConfig:
    """Write the update as the node that ran last; where LangGraph cannot tell which, or its edges refuse, as the first that it can be written as."""
    refused: Exception | None = None
    for node in _writers(graph, as_node):
        try:
            return graph.update_state(config, result.update, as_node=node)
        except (InvalidUpdateError, KeyError) as exc:
            refused = refused or exc
    assert refused is not None
    raise refused


async def _awrite(graph: _Graph, config: RunnableConfig, result: CompactionResult, as_node: str | None) -> RunnableConfig:
    refused: Exception | None = None
    for node in _writers(graph, as_node):
        try:
            return await graph.aupdate_state(config, result.update, as_node=node)
        except (InvalidUpdateError, KeyError) as exc:
            refused = refused or exc
    assert refused is not None
    raise refused


def _writers(graph: object, as_node: str | None) -> list[str | None]:
    if as_node is not None:
        return [as_node]
    return [None, *(name for name in getattr(graph, "nodes", ()) if not name.startswith("__"))]


def _door(graph: object, messages_key: str, channel: Channel | None) -> Door:
    if channel is None:
        channel = channel_kind(cast("Any", graph), messages_key) if hasattr(graph, "channels") else "add_messages"
    check_channel(channel)
    return Door(messages_key=messages_key, channel=channel)


def _with_key(values: Any, key: str) -> Any:
    """The state; with an empty list where nothing was written to the key yet."""
    return {**values, key: []} if isinstance(values, Mapping) and key not in values else values


def _messages_of(values: object, key: str) -> Sequence[BaseMessage]:
    try:
        return as_messages(read_messages(_with_key(values, key), key))
    except Exception:  # noqa: BLE001 - what cannot be read as messages has no calls, and will not be compacted
        return ()


def _has_open_calls(messages: Sequence[BaseMessage]) -> bool:
    """Whether the last step waits for results: calls that a tool is to answer, with nothing after them but results."""
    last = next((i for i in range(len(messages) - 1, -1, -1) if not isinstance(messages[i], ToolMessage)), None)
    if last is None or not isinstance(messages[last], AIMessage):
        return False
    answered = {number for owner, number in results_of(messages, last).values() if owner == last}
    return any(call.kind == "tool" and number not in answered for number, call in enumerate(declared_calls(messages[last])))


def _checkpoint_id(snapshot: StateSnapshot) -> object:
    return (snapshot.config.get("configurable") or {}).get("checkpoint_id")


def _thread_id(config: RunnableConfig) -> str | None:
    thread_id = (config.get("configurable") or {}).get("thread_id")
    return None if thread_id is None else str(thread_id)


def _stood_down(compactor: RoundCompactor, seen: StateSnapshot, key: str, reason: Reason) -> CompactionResult:
    messages = list(_messages_of(seen.values, key))
    tokens = compactor.count_tokens(messages)
    return CompactionResult(
        messages=messages, update={}, changed=False, compacted=False, outcome="stood_down", reason=reason, tokens_before=tokens, tokens_after=tokens
    )
