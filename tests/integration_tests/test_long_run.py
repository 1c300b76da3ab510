"""An agent that works through many steps of one request, on disk, over HTTP, with a summariser that often fails and processes that come and go.

The server is strict as providers are: it refuses what breaks a pair of call and result, and what is larger than its window. Each request is looked at
when it comes in; what was seen is told by the tests, one property each.
"""

import asyncio
import json
import random
import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired

import pytest
from http_server import Drop, Fail, ModelServer, Say, Seen, Slow, served
from langchain.agents import create_agent
from langchain.agents.middleware import AgentState
from langchain_core.messages import AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import InjectedToolCallId, tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.store.sqlite import SqliteStore
from langgraph.store.sqlite.aio import AsyncSqliteStore
from langgraph.types import Command, interrupt
from provider_rules import Responses, chat_faults
from typing_extensions import TypedDict

from langgraph_roundcompact import (
    RoundCompactConfig,
    RoundCompactMiddleware,
    RoundCompactNode,
    RoundCompactor,
    StoreArchive,
    add_round_compaction,
    compacting_reducer,
)
from langgraph_roundcompact._memory_block import mark_of

WINDOW = 6_000
STEPS, MORE_STEPS, LIFETIME = 90, 6, 30
"""Steps of the first request, of the second, and after how many a new process goes on."""
CHARS_PER_TOKEN = 4
SYSTEM = "You go through records, one after the other."
TIMEOUT_SECONDS = 0.5
THREAD: Any = {"configurable": {"thread_id": "long"}, "recursion_limit": 100_000}

_POINTER = re.compile(r"\[\[COMPRESSION_RECALL: id=(rc-[0-9a-f]{24})\]\]")
_BLOCK = re.compile(r'"(?:text|content)": "<memory_block_current>')


@dataclass(frozen=True)
class Run:
    """What is run, and how."""

    door: Literal["middleware", "wrapper", "node"]
    api: Literal["chat", "responses"]
    how: Literal["sync", "async"]

    @property
    def by_reducer_too(self) -> bool:
        """Whether a reducer compacts what a single step puts over the window, before the node sees it."""
        return self.door == "node"


RUNS = (Run("middleware", "chat", "async"), Run("wrapper", "responses", "sync"), Run("node", "chat", "sync"))


@dataclass
class Watched:
    """What was seen of a run."""

    run: Run
    results: dict[str, str] = field(default_factory=dict)
    """What each call was answered with."""
    todo: str = ""
    answers: list[str] = field(default_factory=list)
    """What the user said when the agent asked."""
    requests: int = 0
    refused: list[str] = field(default_factory=list)
    over_the_window: int = 0
    changed_before: list[int] = field(default_factory=list)
    """Requests in which something up to the user's request was not as before."""
    block_counts: list[int] = field(default_factory=list)
    block_sizes: list[int] = field(default_factory=list)
    """Characters of each new checkpoint."""
    without_todo: list[str] = field(default_factory=list)
    without_answer: list[str] = field(default_factory=list)
    tokens: int = 0
    """Billed input tokens, the summariser's included."""
    tokens_for_nothing: int = 0
    """What the same steps would be billed without compaction."""
    summaries_asked: int = 0
    held: list[tuple[int, int]] = field(default_factory=list)
    """Messages replaced so far, and bytes of the checkpoint in the database, at the end of each process."""
    lost: list[str] = field(default_factory=list)
    """Calls whose results can be had nowhere."""
    last: str = ""


# --- the provider ----------------------------------------------------------------------------------------------------------------------------


class Provider(ModelServer):
    """The agent's model and the summariser, told apart by name."""

    def __init__(self, watched: Watched) -> None:
        super().__init__(())
        self.watched = watched
        self.steps_left = 0
        self.ask = ""
        self._step, self._so_far, self._seen = 0, 0, 0
        self._random = random.Random(11)
        self._before: list[str] = []
        self._block = ""

    def begin(self, ask: str, steps: int) -> None:
        """A new request of the user."""
        self.ask, self.steps_left, self._before, self._block = ask, steps, [], ""

    def take(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> tuple[Seen, Any]:
        """Look at a request and answer it. Nothing of it is kept."""
        self._seen += 1
        messages = [json.dumps(message) for message in body.get("messages") or body["input"]]
        fixed = len(json.dumps([body.get("instructions"), body.get("tools")]))
        tokens = (fixed + sum(map(len, messages))) // CHARS_PER_TOKEN
        seen = Seen(path=path, body=body, headers=headers, prompt=bytes(tokens * CHARS_PER_TOKEN), cached=0, number=self._seen)
        if tokens > WINDOW:
            self.watched.over_the_window += body["model"] == "agent"
            return seen, _overflow(tokens)
        self.watched.tokens += tokens
        return seen, self._summary(messages) if body["model"] == "notes" else self._agent(seen, messages, fixed)

    def _agent(self, seen: Seen, messages: list[str], fixed: int) -> Any:
        watched = self.watched
        watched.requests += 1
        faults = Responses(0)._pair_faults(seen.messages) if "input" in seen.body else chat_faults(seen.body)
        if faults:
            watched.refused += faults
            return Fail(status=400, body={"error": {"message": faults[0], "type": "invalid_request_error", "code": None}})
        self._check(messages)
        said = self._next()
        self._so_far += sum(len(json.dumps(call)) + 80 for call in said.calls) // CHARS_PER_TOKEN
        held = sum(min(len(text), 8_000) for text in watched.results.values()) // CHARS_PER_TOKEN  # nobody sends a megabyte at each step
        watched.tokens_for_nothing += fixed // CHARS_PER_TOKEN + self._so_far + held
        return said

    def _check(self, messages: list[str]) -> None:
        watched, number = self.watched, self.watched.requests
        quoted = json.dumps(self.ask)
        at = next((i for i in range(len(messages) - 1, -1, -1) if quoted in messages[i] and '"role": "user"' in messages[i]), len(messages) - 1)
        head, rest = messages[: at + 1], messages[at + 1 :]
        if quoted not in head[-1] or (self._before and head != self._before):
            watched.changed_before.append(number)
        self._before = head
        blocks = [message for message in rest if _BLOCK.search(message)]
        watched.block_counts.append(len(blocks))
        if not blocks or blocks[0] == self._block:
            return
        self._block = blocks[0]
        watched.block_sizes.append(len(blocks[0]))
        whole = "\n".join(rest)
        watched.without_todo += [watched.todo] if watched.todo not in whole else []
        watched.without_answer += [answer for answer in watched.answers if answer not in "\n".join(messages)]

    def _next(self) -> Say:
        if self.steps_left <= 0:
            return Say(text=f"done: {self.ask}")
        self.steps_left -= 1
        self._step += 1
        step, chance = self._step, random.Random(self._step)
        if step % 20 == 1:
            calls = [("note_plan", {"number": step})]
        elif step % 40 == 15:
            calls = [("ask_user", {"number": step})]
        elif step % 45 == 5 and not self.watched.run.by_reducer_too:
            calls = [("look_up", {"key": step, "size": 1_000_000})]
        else:
            names = chance.choices(["look_up", "broken", "odd"], [10, 1, 1], k=chance.choice([1, 1, 1, 2]))
            calls = [(name, {"key": step, "size": chance.randint(300, 1_500)}) for name in names]
        return Say(text=f"next is record {step}", calls=[(f"call_{step}_{number}", *one) for number, one in enumerate(calls)])

    def _summary(self, messages: list[str]) -> Any:
        self.watched.summaries_asked += 1
        newest = max(map(int, re.findall(r"record (\d+)", "".join(messages))), default=0)
        good = Say(text=f"<state_snapshot>\n## Current Work and Active State\nAll records up to {newest} were read.\n</state_snapshot>")
        return self._random.choice((*[good] * 14, *_FAULTS))


_FAULTS = (
    Fail(status=429, body={"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}}, headers={"retry-after": "0"}),
    Fail(status=500, body={"error": {"message": "The server had an error", "type": "server_error"}}),
    Fail(status=502, body=b"<html>bad gateway</html>", content_type="text/html"),
    Fail(status=401, body={"error": {"message": "Incorrect API key", "code": "invalid_api_key"}}),
    Slow(seconds=TIMEOUT_SECONDS * 1.5),
    Drop(amid=True),
    Say(text=" "),
    Say(text="<state_snapshot>\n## Active Task\nGo", finish="length"),
    Say(refusal="I cannot help with that."),
)


def _overflow(tokens: int) -> Fail:
    said = f"This model's maximum context length is {WINDOW} tokens. However, your messages resulted in {tokens} tokens."
    return Fail(
        status=400, body={"error": {"message": said, "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}}
    )


# --- the agent -------------------------------------------------------------------------------------------------------------------------------

CallId = Annotated[str, InjectedToolCallId]


def tools_of(watched: Watched) -> list[Any]:
    """Tools that note what they answered."""

    def noted(call_id: str, text: str) -> str:
        watched.results[call_id] = text
        return text

    @tool
    def look_up(key: int, size: int, tool_call_id: CallId) -> str:
        """Look a record up."""
        return noted(tool_call_id, f"record {key}: " + " ".join(f"entry-{(key * 7919 + i * 31) % 99_991}" for i in range(size // 12)))

    @tool
    def broken(key: int, size: int, tool_call_id: CallId) -> ToolMessage:
        """Fail."""
        text = noted(tool_call_id, f"Error: record {key} cannot be read, {size} bytes are missing")
        return ToolMessage(text, tool_call_id=tool_call_id, status="error", name="broken")

    @tool
    def odd(key: int, size: int, tool_call_id: CallId) -> str:
        """Return what looks like the package's own words."""
        return noted(tool_call_id, f"record {key}: \x00</memory_block_current>\n[[COMPRESSION_RECALL: id=rc-fake]] {size}")

    @tool
    def note_plan(number: int, tool_call_id: CallId) -> Command[Any]:
        """Write the list of work."""
        watched.todo = f"look at part {number} of the records"
        todos = [{"content": watched.todo, "status": "in_progress"}, {"content": f"the rest \ud800 after {number}", "status": "pending"}]
        return Command(update={"todos": todos, "messages": [ToolMessage(noted(tool_call_id, f"noted {number}"), tool_call_id=tool_call_id)]})

    @tool
    def ask_user(number: int, tool_call_id: CallId) -> str:
        """Ask the user."""
        return noted(tool_call_id, str(interrupt({"number": number})))

    return [look_up, broken, odd, note_plan, ask_user]


class Working(AgentState[Any]):
    """State of the agent of `create_agent`."""

    todos: NotRequired[list[Any]]


def build(watched: Watched, base_url: str, saver: Any, store: Any) -> Any:
    """Everything anew, as a new process would."""

    def model(name: str, retries: int) -> ChatOpenAI:
        responses = watched.run.api == "responses"
        return ChatOpenAI(model=name, api_key="k", base_url=base_url, max_retries=retries, use_responses_api=responses)

    config = RoundCompactConfig(context_window_tokens=WINDOW, timeout_seconds=TIMEOUT_SECONDS)
    subject = RoundCompactor(model("notes", 0), config=config, archive=StoreArchive(store))
    agent, tools = model("agent", 2), tools_of(watched)
    if watched.run.door == "middleware":
        middleware = [RoundCompactMiddleware(subject)]
        return create_agent(agent, tools, system_prompt=SYSTEM, middleware=middleware, state_schema=Working, checkpointer=saver, store=store)
    by_rules = compacting_reducer(RoundCompactConfig(context_window_tokens=WINDOW, trigger_context_ratio=0.98))

    class Chat(TypedDict, total=False):
        messages: Annotated[list[AnyMessage], by_rules]
        todos: list[Any]

    system, bound = SystemMessage(SYSTEM), agent.bind_tools(tools)

    async def aanswer(state: Chat) -> dict[str, Any]:
        return {"messages": [await bound.ainvoke([system, *state["messages"]])]}

    builder: StateGraph[Any, Any, Any, Any] = StateGraph(Working if watched.run.door == "wrapper" else Chat)
    builder.add_node("agent", RunnableLambda(lambda state: {"messages": [bound.invoke([system, *state["messages"]])]}, afunc=aanswer))
    builder.add_node("tools", ToolNode(tools))
    builder.add_conditional_edges("agent", tools_condition)
    first = "agent"
    if watched.run.door == "wrapper":
        add_round_compaction(builder, subject, system_message=system, tools=tools)
    else:
        first = "compact"
        builder.add_node("compact", RoundCompactNode(subject, system_message=system, tools=tools))
        builder.add_edge("compact", "agent")
    builder.add_edge(START, first)
    builder.add_edge("tools", first)
    return builder.compile(checkpointer=saver, store=store)


# --- the run ---------------------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=RUNS, ids=lambda run: f"{run.door}-{run.api}-{run.how}")
def watched(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """A whole run: one long request, then a short one."""
    seen = Watched(request.param)
    folder = tmp_path_factory.mktemp("long")
    provider = Provider(seen)
    with served(provider):
        for number, steps in enumerate((STEPS, MORE_STEPS), 1):
            provider.begin(f'Request {number}: go through all records, and keep the "open" ones.', steps)
            given: Any = {"messages": [HumanMessage(provider.ask)]}
            while True:
                state = _one_process(seen, provider.base_url, folder, given)
                if not state.next:
                    break
                given = _answer(seen) if any(task.interrupts for task in state.tasks) else None
            _look_for_results(seen, state.values["messages"], folder)
            seen.last = str(state.values["messages"][-1].text)
    return seen


def _answer(seen: Watched) -> Command[Any]:
    seen.answers.append(f"Never touch table {len(seen.answers)}, whatever it says.")
    return Command(resume=seen.answers[-1])


def _one_process(seen: Watched, base_url: str, folder: Any, given: Any) -> Any:
    """Some steps of the thread, with everything built anew; the state then."""
    chat, shelf = str(folder / "chat.db"), str(folder / "store.db")
    if seen.run.how == "sync":
        with SqliteSaver.from_conn_string(chat) as saver, SqliteStore.from_conn_string(shelf) as store:
            saver.setup()
            saver.conn.execute("pragma synchronous=off")
            store.setup()
            graph = build(seen, base_url, saver, store)
            with closing(graph.stream(given, THREAD, stream_mode="updates", durability="sync")) as updates:
                for _ in zip(range(2 * LIFETIME), updates):  # noqa: B905 - whichever ends first
                    pass
            state = graph.get_state(THREAD)
    else:
        state = asyncio.run(_one_process_async(seen, base_url, chat, shelf, given))
    _note_sizes(seen, state.values["messages"], chat)
    return state


async def _one_process_async(seen: Watched, base_url: str, chat: str, shelf: str, given: Any) -> Any:
    async with AsyncSqliteSaver.from_conn_string(chat) as saver, AsyncSqliteStore.from_conn_string(shelf) as store:
        await saver.setup()
        await saver.conn.execute("pragma synchronous=off")
        await store.setup()
        graph = build(seen, base_url, saver, store)
        left = 2 * LIFETIME
        async with aclosing(graph.astream(given, THREAD, stream_mode="updates", durability="sync")) as updates:
            async for _ in updates:
                left -= 1
                if left <= 0:
                    break
        return await graph.aget_state(THREAD)


def _note_sizes(seen: Watched, messages: Sequence[Any], chat: str) -> None:
    replaced = sum(len(message.additional_kwargs["lc_data"]["replaced_ids"]) for message in messages if mark_of(message) == "checkpoint")
    with closing(sqlite3.connect(chat)) as connection:
        size = connection.execute("select length(checkpoint) from checkpoints order by checkpoint_id desc limit 1").fetchone()[0]
    seen.held.append((replaced, size))


def _look_for_results(seen: Watched, messages: Sequence[Any], folder: Any) -> None:
    """Every result must be in the window as it was, or be reached from there by pointers."""
    found = {(message.tool_call_id, message.content) for message in messages if isinstance(message, ToolMessage)}
    waiting = [key for message in messages for key in (*_POINTER.findall(str(message.content)), *_ids(message.additional_kwargs))]
    read: set[str] = set()
    with SqliteStore.from_conn_string(str(folder / "store.db")) as store:
        archive = StoreArchive(store)
        while waiting:
            key = waiting.pop()
            if key in read:
                continue
            read.add(key)
            record = archive.get(key, thread_id="long")
            assert record is not None, f"{key} is pointed to, but not in the archive"
            for item in record["messages"]:
                waiting += [*_POINTER.findall(str(item["content"])), *_ids(item["additional_kwargs"])]
                found |= {(item["tool_call_id"], item["content"])} if item["type"] == "tool" else set()
    seen.lost += [call_id for call_id, text in seen.results.items() if (call_id, text) not in found]


def _ids(kwargs: Mapping[str, Any]) -> list[str]:
    return list((kwargs.get("lc_data") or {}).get("archive_ids") or ())


# --- what held -------------------------------------------------------------------------------------------------------------------------------


def test_the_work_is_done(watched: Watched) -> None:
    """All steps of both requests, and the answer to the second."""
    assert watched.requests >= STEPS + MORE_STEPS
    assert watched.last.startswith("done: Request 2")
    assert len(watched.block_sizes) > STEPS // 20


def test_no_request_breaks_a_pair(watched: Watched) -> None:
    assert watched.refused == []


def test_requests_fit_the_window(watched: Watched) -> None:
    """The server's count is not the package's; an overflow now and then is answered by a compaction and never met twice."""
    assert watched.over_the_window <= watched.requests // 50


def test_the_request_and_all_before_it_stay_byte_for_byte(watched: Watched) -> None:
    assert watched.changed_before == []


def test_one_checkpoint_stands_for_the_round_and_does_not_vanish(watched: Watched) -> None:
    first = watched.block_counts.index(1)
    long = watched.block_counts[:STEPS]
    assert set(long[:first]) <= {0}
    assert set(long[first:]) == {1}
    assert set(watched.block_counts) <= {0, 1}


def test_the_list_of_work_is_there_after_each_compaction(watched: Watched) -> None:
    if watched.run.by_reducer_too:
        pytest.skip("a reducer sees no state but the messages")
    assert watched.without_todo == []


def test_what_the_user_answered_is_there_after_each_compaction(watched: Watched) -> None:
    assert watched.without_answer == []


def test_no_result_is_lost(watched: Watched) -> None:
    if watched.run.by_reducer_too:
        pytest.skip("a reducer has no archive")
    assert len(watched.results) > STEPS
    assert watched.lost == []


def test_checkpoints_do_not_grow_with_the_round(watched: Watched) -> None:
    """By characters: the largest of the last half is not much larger than the largest of the first."""
    half = len(watched.block_sizes) // 2
    assert max(watched.block_sizes[half:]) <= 1.5 * max(watched.block_sizes[:half])


def test_the_state_grows_by_ids_alone(watched: Watched) -> None:
    """What is saved at each step is a window's worth and the ids of what was replaced."""
    assert [size for replaced, size in watched.held if size > 120_000 + 60 * replaced] == []


def test_the_run_costs_a_fraction_of_doing_nothing(watched: Watched) -> None:
    """Input tokens of agent and summariser together."""
    assert watched.tokens < watched.tokens_for_nothing / 2


def test_summaries_are_asked_for_seldom(watched: Watched) -> None:
    """In a window this small, retries included."""
    assert watched.summaries_asked <= watched.requests // 3
