"""The demo's agent: built as one builds an agent, with compaction in front of its model, and a record of what it was sent."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode

from langgraph_roundcompact._memory_block import is_own
from langgraph_roundcompact.compactor import RoundCompactor
from langgraph_roundcompact.config import RoundCompactConfig
from langgraph_roundcompact.demo.script import SYSTEM, Task, Todos, next_answer
from langgraph_roundcompact.demo.tools import make_tools
from langgraph_roundcompact.events import CompactionEvent
from langgraph_roundcompact.node import add_round_compaction
from langgraph_roundcompact.testing import ScriptedChatModel

STEP_LIMIT = 1000
"""Steps of the graph after which something must have gone round in circles."""

THREAD = "demo"


class AgentState(TypedDict, total=False):
    """What the agent remembers."""

    messages: Annotated[list[AnyMessage], add_messages]
    todos: Todos


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One model call, and the compaction that came before it."""

    number: int
    """From 1."""
    request: tuple[BaseMessage, ...]
    """What the model was sent, the system prompt included."""
    answer: AIMessage
    tokens: int
    """The request, in tokens."""
    tokens_without: int
    """What the request would have been without compaction, in tokens."""
    todos: Todos
    """The list of work in state when the call was made."""
    event: CompactionEvent | None
    """How the check before the call ended; None when there was nothing to decide."""

    @property
    def compacted(self) -> bool:
        """Whether a checkpoint was made before this call."""
        return self.event is not None and self.event.outcome in ("summarised", "digested")


@dataclass(slots=True, kw_only=True)
class Demo:
    """One run of the demo.

    Args:
        window: The agent's context window, in tokens.
        folder: Where the database and the checks go.
        root: The code tree.
        model: The summariser; `None`: rules only.
    """

    window: int
    folder: Path
    root: Path
    model: Any = None
    steps: list[Step] = field(default_factory=list)
    """What happened so far."""
    events: list[CompactionEvent] = field(default_factory=list)
    task: Task = field(init=False)
    compactor: RoundCompactor = field(init=False)
    state: dict[str, Any] = field(default_factory=dict)
    """The state at the end, read back from the database."""

    def __post_init__(self) -> None:
        # The bigger the window, the bigger the bites; the work always fills it several times.
        self.task = Task(lines=max(self.window // 80, 40))
        self.compactor = RoundCompactor(self.model, config=RoundCompactConfig(context_window_tokens=self.window), on_event=self.events.append)

    @property
    def question(self) -> HumanMessage:
        """The user's request, as it is sent."""
        return HumanMessage(self.task.request, id="request")

    @property
    def database(self) -> Path:
        """The checkpoint database."""
        return self.folder / "checkpoints.sqlite"

    def run(self) -> Iterator[Step]:
        """Let the agent work; one step for each of its model calls. At the end the state is read back from disk."""
        scratch = self.folder / "checks"
        scratch.mkdir(exist_ok=True)
        tools = make_tools(self.root, scratch)
        config: Any = {"configurable": {"thread_id": THREAD}, "recursion_limit": STEP_LIMIT}
        model = ScriptedChatModel(replies=[lambda messages: next_answer(messages, self.task)], usage=self._usage)
        with SqliteSaver.from_conn_string(str(self.database)) as saver:
            graph = build(model, tools, self.compactor, saver)
            yield from self._watch(model, graph.stream({"messages": [self.question], "todos": []}, config, stream_mode="updates"))
        with SqliteSaver.from_conn_string(str(self.database)) as saver:
            self.state = dict(build(model, tools, self.compactor, saver).get_state(config).values)

    def _watch(self, model: ScriptedChatModel, updates: Iterator[dict[str, Any]]) -> Iterator[Step]:
        """The stream of updates, as steps."""
        todos: Todos = []
        seen: dict[str, int] = {}
        for update in updates:
            for change in _changes(update.get("tools")):
                todos = change.get("todos", todos)
            for change in _changes(update.get("agent")):
                request = tuple(model.requests[-1])
                # As each message was first sent: a fold keeps the id.
                seen = {message.id or SYSTEM: self.compactor.count_tokens([message]) for message in request if not is_own(message)} | seen
                step = Step(
                    number=len(self.steps) + 1,
                    request=request,
                    answer=change["messages"][-1],
                    tokens=self.compactor.count_tokens(request),
                    tokens_without=sum(seen.values()),
                    todos=todos,
                    event=self.events[-1] if self.events else None,
                )
                self.events.clear()
                self.steps.append(step)
                yield step

    def _usage(self, request: Sequence[BaseMessage], answer: AIMessage) -> dict[str, int]:
        """What a provider would report."""
        asked, answered = self.compactor.count_tokens(request), self.compactor.count_tokens([answer])
        return {"input_tokens": asked, "output_tokens": answered, "total_tokens": asked + answered}


def build(model: ScriptedChatModel, tools: list[BaseTool], compactor: RoundCompactor, saver: BaseCheckpointSaver[Any]) -> CompiledStateGraph[Any]:
    """The agent's graph. The one line about compaction is the one that calls `add_round_compaction`."""
    bound = model.bind_tools(tools)

    def agent(state: AgentState) -> dict[str, Any]:
        return {"messages": [bound.invoke([SystemMessage(SYSTEM), *state["messages"]])]}

    def after_agent(state: AgentState) -> str:
        last = state["messages"][-1]
        return "tools" if isinstance(last, AIMessage) and last.tool_calls else END

    builder = StateGraph(AgentState)
    builder.add_node("agent", agent)
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", after_agent, ["tools", END])
    builder.add_edge("tools", "agent")
    add_round_compaction(builder, compactor, before="agent", system_message=SYSTEM, tools=tools)
    return builder.compile(checkpointer=saver)


def langgraph_sources() -> Path:
    """Folder of the installed `langgraph` package; the package itself is a namespace and has no file to ask."""
    spec = importlib.util.find_spec("langgraph.graph")
    assert spec is not None
    assert spec.origin is not None
    return Path(os.path.dirname(spec.origin)).parent


def _changes(update: Any) -> Iterator[dict[str, Any]]:
    """The updates a node wrote: none, one, or a list of them when commands were among the results."""
    for change in update if isinstance(update, list) else [update]:
        if isinstance(change, dict):
            yield change
