"""`RoundCompactMiddleware` in agents of `create_agent` and deepagents: long runs, both ways of keeping state, overflow, and other middleware."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from builders import call
from deepagents import create_deep_agent
from doors import REQUEST, breaks, check_requests, look_up, said, shared, stream, working
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    HumanInTheLoopMiddleware,
    ModelFallbackMiddleware,
    ModelRequest,
    ModelRetryMiddleware,
    TodoListMiddleware,
    ToolCallLimitMiddleware,
)
from langchain.agents.structured_output import ToolStrategy
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command, interrupt
from procedures import BOTH, blocks, compactor, go, history, ids, summariser
from pydantic import BaseModel

from langgraph_roundcompact import RoundCompactMiddleware
from langgraph_roundcompact.testing import ScriptedChatModel, assert_valid_history

ASK: Any = {"messages": [HumanMessage(REQUEST, id="h")]}


def thread(name: str) -> Any:
    return {"configurable": {"thread_id": name}}


# --- sixty steps -----------------------------------------------------------------------------------------------------------------------


@BOTH
def test_sixty_steps_with_the_state_compacted(how: str) -> None:
    """61 requests: the request verbatim in each, no broken pair, a new prefix at most once a compaction, at least three compactions."""
    subject, notes = shared()
    model = working(60)
    agent = create_agent(model, [look_up], system_prompt="Be exact.", middleware=[RoundCompactMiddleware(subject)], checkpointer=InMemorySaver())
    after = go(how, agent, ASK, thread("sixty"))["messages"]
    assert len(model.requests) == 61
    assert len(notes.requests) >= 3
    check_requests(model.requests, summaries=len(notes.requests))
    assert all(request[0].content == "Be exact." for request in model.requests)
    assert max(map(subject.count_tokens, model.requests)) < 4000
    assert (blocks(after), after[-1].content) == ([1], "all done")
    assert_valid_history(after, pending_ok=False)


@BOTH
def test_sixty_steps_with_the_request_compacted_alone(how: str) -> None:
    """The state keeps every message for a UI; the model's requests are compacted as well, each extends the last, and no step pays again."""
    subject, notes = shared()
    model = working(60)
    agent = create_agent(model, [look_up], middleware=[RoundCompactMiddleware(subject, persist=False)], checkpointer=InMemorySaver())
    after = go(how, agent, ASK, thread("kept"))["messages"]
    assert len(after) == 122
    assert not blocks(after)
    assert len(model.requests) == 61
    assert 3 <= len(notes.requests) <= 15
    check_requests(model.requests, summaries=len(notes.requests))
    assert len(breaks(model.requests)) == len(notes.requests)


@BOTH
def test_both_ways_send_the_model_the_same(how: str) -> None:
    """Whether state is written or not makes no difference to the model, in this round and in those after it."""
    runs, paid = [], []
    for persist in (True, False):
        subject, notes = shared()
        saver, requests = InMemorySaver(), []
        for number, ask in enumerate(("by supplier", "by date", "by amount")):
            model = working(16)
            agent = create_agent(model, [look_up], middleware=[RoundCompactMiddleware(subject, persist=persist)], checkpointer=saver)
            go(how, agent, {"messages": [HumanMessage(f"Sort all invoices {ask}", id=f"h{number}")]}, thread("rounds"))
            requests += [[said(message) for message in request] for request in model.requests]
        runs.append(requests)
        paid.append(len(notes.requests))
    assert runs[0] == runs[1]
    assert paid[0] == paid[1] >= 3


@BOTH
def test_the_next_request_of_the_user_starts_a_new_round(how: str) -> None:
    """In one thread: what was compacted in the first round is prefix in the second, byte for byte."""
    subject, _ = shared()
    saver = InMemorySaver()
    first = go(how, create_agent(working(12), [look_up], middleware=[RoundCompactMiddleware(subject)], checkpointer=saver), ASK, thread("two"))
    model = working(12)
    second = create_agent(model, [look_up], middleware=[RoundCompactMiddleware(subject)], checkpointer=saver)
    after = go(how, second, {"messages": [HumanMessage("And now by date.", id="h2")]}, thread("two"))["messages"]
    held = first["messages"]
    assert [message.model_dump() for message in after[: len(held)]] == [message.model_dump() for message in held]
    for request in model.requests:
        assert [said(message) for message in request[: len(held)]] == [said(message) for message in held]
        assert request[len(held)].content == "And now by date."
        assert_valid_history(request, pending_ok=False)
    assert len(blocks(after)) == 2


@BOTH
@pytest.mark.parametrize("persist", [True, False])
def test_a_users_own_rule_for_requests_need_not_know_our_blocks(how: str, persist: bool) -> None:
    """A rule by name, which would take a block for a request: one block, and the request of the person stays the boundary."""
    subject, notes = shared(is_real_user=lambda message: message.name != "nudge")
    model = working(30)
    go(how, create_agent(model, [look_up], middleware=[RoundCompactMiddleware(subject, persist=persist)]), ASK)
    assert len(notes.requests) >= 3
    check_requests(model.requests, summaries=len(notes.requests))


# --- what is counted -------------------------------------------------------------------------------------------------------------------


def heavy_tools(count: int) -> list[Any]:
    parameters = {"type": "object", "properties": {"a": {"type": "string", "description": "how it is given " * 50}}}
    return [
        {"type": "function", "function": {"name": f"tool_{number}", "description": "what it does " * 60, "parameters": parameters}}
        for number in range(count)
    ]


@BOTH
@pytest.mark.parametrize("what", ["neither", "prompt", "tools"])
def test_prompt_and_tools_are_part_of_the_window(how: str, what: str) -> None:
    """Small messages, no usage reported: what is sent beside them decides."""
    subject = compactor(summariser("NOTES"), trigger=6000, window=8000)
    prompt = "be careful with dates " * 1200 if what == "prompt" else "short"
    agent = create_agent(
        ScriptedChatModel(replies=["done"], usage="none"),
        heavy_tools(20) if what == "tools" else [],
        system_prompt=prompt,
        middleware=[RoundCompactMiddleware(subject)],
    )
    after = go(how, agent, {"messages": history(*range(1, 6), characters=1600)})["messages"]
    assert bool(blocks(after)) is (what != "neither")


@BOTH
def test_a_floor_over_the_trigger_does_not_summarise_at_each_step(how: str) -> None:
    """Tools alone fill the window over the trigger: nothing can bring it down, so a block is made only when it is worth its price."""
    subject, notes = shared(trigger=3000, window=9000, min_target_context_ratio=0.1)
    model = working(30)
    agent = create_agent(model, [look_up, *heavy_tools(16)], middleware=[RoundCompactMiddleware(subject)])
    go(how, agent, ASK)
    assert len(model.requests) == 31
    assert len(notes.requests) <= 31 // 3
    check_requests(model.requests, summaries=len(notes.requests))


class Choosing(AgentMiddleware[Any, Any, Any]):
    """Another middleware that exchanges the model of a request."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[..., Any]) -> Any:
        return handler(request.override(model=self.model))

    async def awrap_model_call(self, request: ModelRequest[Any], handler: Callable[..., Any]) -> Any:
        return await handler(request.override(model=self.model))


@BOTH
@pytest.mark.parametrize(("window", "fires"), [(4000, True), (100_000, False)])
def test_the_window_is_that_of_the_model_that_is_asked(how: str, window: int, fires: bool) -> None:
    """Not of the agent's first model, nor of the summariser."""
    notes = summariser("NOTES", profile={"max_input_tokens": 50_000})
    subject = compactor(notes, trigger=None, window=None)
    asked = ScriptedChatModel(replies=["done"], profile={"max_input_tokens": window})
    first = ScriptedChatModel(replies=[AssertionError("never asked")], profile={"max_input_tokens": 104_000 - window})
    agent = create_agent(first, [], middleware=[Choosing(asked), RoundCompactMiddleware(subject)])
    assert bool(blocks(go(how, agent, {"messages": history(1, 2, 3, 4)})["messages"])) is fires


# --- the model's window is full --------------------------------------------------------------------------------------------------------


class OpenAIShaped(Exception):
    """As newer clients raise it: the words say nothing, the code does."""

    code = "context_length_exceeded"
    status_code = 400


OVERFLOWS: dict[str, Any] = {
    "langchain": ContextOverflowError("prompt is too long"),
    "code": OpenAIShaped("Error code: 400 - invalid request"),
}


@BOTH
@pytest.mark.parametrize("kind", list(OVERFLOWS))
@pytest.mark.parametrize("persist", [True, False])
@pytest.mark.parametrize("summary", ["given", "refused", "no model"])
def test_an_overflow_of_the_agents_model_is_compacted_and_tried_once_more(how: str, kind: str, persist: bool, summary: str) -> None:
    """Far below the trigger: the model knows better. Without a summary, rules make the block; the second request is smaller and valid."""
    notes = {"given": summariser("NOTES"), "refused": ScriptedChatModel(replies=[ValueError("down")]), "no model": None}[summary]
    subject = compactor(notes, trigger=90_000, window=100_000, max_retries=0)
    model = ScriptedChatModel(replies=[OVERFLOWS[kind], "done"], strict=True)
    given = history(1, 2)
    after = go(how, create_agent(model, [], middleware=[RoundCompactMiddleware(subject, persist=persist)]), {"messages": given})["messages"]
    assert len(model.requests) == 2
    assert model.requests[0] == given
    assert (model.requests[1][0], blocks(model.requests[1])) == (given[0], [1])
    assert_valid_history(model.requests[1])
    assert after[-1].content == "done"
    assert blocks(after) == ([1] if persist else [])
    assert len(after) == (3 if persist else 6)


@BOTH
def test_a_second_overflow_reaches_the_caller(how: str) -> None:
    """One try more, not a loop; and the state is as it was."""
    model = ScriptedChatModel(replies=[ContextOverflowError("too long"), ContextOverflowError("still too long")], strict=True)
    subject = compactor(summariser("NOTES"), trigger=90_000, window=100_000)
    agent = create_agent(model, [], middleware=[RoundCompactMiddleware(subject)], checkpointer=InMemorySaver())
    with pytest.raises(ContextOverflowError, match="still too long"):
        go(how, agent, {"messages": history(1, 2)}, thread("full"))
    assert len(model.requests) == 2
    assert not blocks(agent.get_state(thread("full")).values["messages"])


@BOTH
def test_an_overflow_with_nothing_to_compact_reaches_the_caller_at_once(how: str) -> None:
    """The same request is never sent twice."""
    model = ScriptedChatModel(replies=[ContextOverflowError("too long")], strict=True)
    agent = create_agent(model, [], middleware=[RoundCompactMiddleware(compactor(summariser("NOTES")))])
    with pytest.raises(ContextOverflowError, match="too long"):
        go(how, agent, {"messages": [HumanMessage("x" * 9000, id="h")]})
    assert len(model.requests) == 1


@BOTH
def test_a_pause_inside_the_model_call_is_no_overflow(how: str) -> None:
    """Whatever words it asks with: the run pauses, and goes on after the answer."""

    def reply(messages: list[BaseMessage]) -> str:
        return f"was told {interrupt('The prompt is too long: context length exceeded. Send it?')}"

    notes = summariser("NOTES")
    agent = create_agent(
        ScriptedChatModel(replies=[reply]),
        [],
        middleware=[RoundCompactMiddleware(compactor(notes, trigger=90_000, window=100_000))],
        checkpointer=InMemorySaver(),
    )
    assert "__interrupt__" in go(how, agent, {"messages": history(1, 2)}, thread("asks"))
    after = go(how, agent, Command(resume="yes"), thread("asks"))["messages"]
    assert (after[-1].content, notes.requests) == ("was told yes", [])


@BOTH
@pytest.mark.parametrize("error", [ValueError("bad schema"), ConnectionError("reset"), KeyboardInterrupt()])
def test_any_other_error_passes_untouched(how: str, error: BaseException) -> None:
    """The very object, after one call and without a summary."""
    notes = summariser("NOTES")
    model = ScriptedChatModel(replies=[error], strict=True)
    agent = create_agent(model, [], middleware=[RoundCompactMiddleware(compactor(notes, trigger=90_000, window=100_000))])
    with pytest.raises(type(error)) as caught:
        go(how, agent, {"messages": history(1, 2)})
    assert caught.value is error
    assert (len(model.requests), notes.requests) == (1, [])


# --- beside other middleware -----------------------------------------------------------------------------------------------------------


def todo_call(number: int) -> AIMessage:
    todos = [{"content": f"open item {number}", "status": "in_progress"}, {"content": "write the report", "status": "pending"}]
    return AIMessage("", tool_calls=[call(f"w{number}", "write_todos", todos=todos)])


@BOTH
def test_the_todo_list_is_visible_after_each_compaction(how: str) -> None:
    """As it is in the state at that moment, not as it was written in the work that is gone."""
    subject, notes = shared()
    replies: list[Any] = []
    for number in range(1, 31):
        replies += [todo_call(number)] if number % 10 == 1 else []
        replies.append(AIMessage("", tool_calls=[call(f"c{number}", "look_up", key=number)]))
    model = ScriptedChatModel(replies=[*replies, "all done"], strict=True)
    agent = create_agent(model, [look_up], middleware=[TodoListMiddleware(), RoundCompactMiddleware(subject)])
    go(how, agent, ASK)
    assert len(notes.requests) >= 3
    newest = ""
    for request, reply in zip(model.requests, [*replies, None], strict=True):
        text = "\n".join(str(message.content) for message in request)
        if blocks(request):
            assert newest in text
            assert "write the report" in text
        if reply is not None and reply.tool_calls[0]["name"] == "write_todos":
            newest = reply.tool_calls[0]["args"]["todos"][0]["content"]
    check_requests(model.requests, summaries=len(notes.requests))


@BOTH
@pytest.mark.parametrize("decision", ["approve", "edit", "reject"])
def test_a_human_in_the_loop_decides_in_a_compacted_thread(how: str, decision: str) -> None:
    """Each paid call pauses; whatever is decided, the run goes on from the block with valid requests, and no pause costs a summary."""
    subject, notes = shared()
    model = working(16)
    hitl = HumanInTheLoopMiddleware(interrupt_on={"look_up": {"allowed_decisions": ["approve", "edit", "reject"]}})
    agent = create_agent(model, [look_up], middleware=[hitl, RoundCompactMiddleware(subject)], checkpointer=InMemorySaver())
    result = go(how, agent, ASK, thread(decision))
    pauses = 0
    while "__interrupt__" in result:
        pauses += 1
        assert pauses < 20
        choice: dict[str, Any] = {"type": "approve"}
        if pauses % 4 == 0 and decision == "edit":
            choice = {"type": "edit", "edited_action": {"name": "look_up", "args": {"key": 100 + pauses}}}
        if pauses % 4 == 0 and decision == "reject":
            choice = {"type": "reject", "message": "not that one"}
        result = go(how, agent, Command(resume={"decisions": [choice]}), thread(decision))
    assert (pauses, len(model.requests)) == (16, 17)
    assert len(notes.requests) >= 1
    check_requests(model.requests, summaries=len(notes.requests))
    assert_valid_history(result["messages"], pending_ok=False)


def test_a_paused_approval_is_resumed_by_another_process(tmp_path: Any) -> None:
    """Compaction is in the checkpoint beside the call that waits: the new process asks for no summary."""
    path = str(tmp_path / "paused.sqlite")
    hitl = HumanInTheLoopMiddleware(interrupt_on={"look_up": True})
    with SqliteSaver.from_conn_string(path) as saver:
        subject = compactor(summariser("NOTES"))
        agent = create_agent(working(1), [look_up], middleware=[hitl, RoundCompactMiddleware(subject)], checkpointer=saver)
        assert "__interrupt__" in agent.invoke({"messages": history(1, 2)}, thread("p"))
    with SqliteSaver.from_conn_string(path) as saver:
        notes = summariser("NEVER")
        model = ScriptedChatModel(replies=["done"])
        agent = create_agent(model, [look_up], middleware=[hitl, RoundCompactMiddleware(compactor(notes))], checkpointer=saver)
        after = agent.invoke(Command(resume={"decisions": [{"type": "approve"}]}), thread("p"))["messages"]
    assert (notes.requests, blocks(after), after[-1].content) == ([], [1], "done")
    assert [message.type for message in after] == ["human", "human", "ai", "tool", "ai"]


@BOTH
@pytest.mark.parametrize("order", ["retry outside", "retry inside"])
def test_a_retried_model_call_pays_once_for_its_summary(how: str, order: str) -> None:
    """Two passing failures of the model: three requests, all compacted, one summary."""
    notes = summariser("NOTES", strict=True)
    model = ScriptedChatModel(replies=[ConnectionError("a"), ConnectionError("b"), "done"], strict=True)
    both: list[Any] = [ModelRetryMiddleware(max_retries=2, initial_delay=0.0, jitter=False), RoundCompactMiddleware(compactor(notes))]
    agent = create_agent(model, [], middleware=both if order == "retry outside" else both[::-1])
    after = go(how, agent, {"messages": history(1, 2)})["messages"]
    assert [blocks(request) for request in model.requests] == [[1]] * 3
    assert len(notes.requests) == 1
    assert (ids(after)[:2], after[-1].content, len(after)) == (["h", "a1"], "done", 3)


@BOTH
@pytest.mark.parametrize("kind", list(OVERFLOWS))
def test_inside_of_a_retry_an_overflow_is_answered_by_compaction(how: str, kind: str) -> None:
    """A retry middleware turns an error it gives up on into an answer, so compaction stands inside of it to see the overflow first."""
    model = ScriptedChatModel(replies=[OVERFLOWS[kind], "done"], strict=True)
    retry = ModelRetryMiddleware(max_retries=2, initial_delay=0.0, jitter=False)
    subject = compactor(summariser("NOTES"), trigger=90_000, window=100_000)
    after = go(how, create_agent(model, [], middleware=[retry, RoundCompactMiddleware(subject)]), {"messages": history(1, 2)})["messages"]
    assert [blocks(request) for request in model.requests] == [[], [1]]
    assert after[-1].content == "done"


@BOTH
@pytest.mark.parametrize("order", ["fallback outside", "fallback inside"])
def test_a_fallback_model_gets_the_compacted_request(how: str, order: str) -> None:
    """The first model is down; the second is asked the same, and the summary is paid once."""
    notes = summariser("NOTES", strict=True)
    first, second = ScriptedChatModel(replies=[ConnectionError("down")]), ScriptedChatModel(replies=["from the second"])
    both: list[Any] = [ModelFallbackMiddleware(second), RoundCompactMiddleware(compactor(notes))]
    agent = create_agent(first, [], middleware=both if order == "fallback outside" else both[::-1])
    after = go(how, agent, {"messages": history(1, 2)})["messages"]
    assert (blocks(first.requests[0]), blocks(second.requests[0])) == ([1], [1])
    assert (len(notes.requests), ids(after)[:2], after[-1].content) == (1, ["h", "a1"], "from the second")


@BOTH
@pytest.mark.parametrize("order", ["editing outside", "editing inside"])
def test_context_editing_and_compaction_agree(how: str, order: str) -> None:
    """Editing clears old results in the request alone; compaction's update still fits the state, and every request is valid."""
    subject, notes = shared()
    model = working(30)
    editing = ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=2000, keep=2)])
    both: list[Any] = [editing, RoundCompactMiddleware(subject)]
    agent = create_agent(model, [look_up], middleware=both if order == "editing outside" else both[::-1])
    after = go(how, agent, ASK)["messages"]
    assert len(model.requests) == 31
    for request in model.requests:
        assert [message.content for message in request if message.content == REQUEST] == [REQUEST]
        assert_valid_history(request, pending_ok=False)
    assert_valid_history(after, pending_ok=False)
    kept = [message for message in after if isinstance(message, ToolMessage)]
    assert all(message.content != "[cleared]" for message in kept)
    assert len(notes.requests) <= 10


@BOTH
def test_a_limit_of_tool_calls_still_counts_what_is_compacted(how: str) -> None:
    """The limit's own counters are in the state, not in the messages."""
    subject, _ = shared()
    limit = ToolCallLimitMiddleware(run_limit=20, exit_behavior="end")
    model = working(30)
    after = go(how, create_agent(model, [look_up], middleware=[limit, RoundCompactMiddleware(subject)]), ASK)["messages"]
    assert len(model.requests) == 21
    assert "limit" in str(after[-1].content)
    assert_valid_history(after, pending_ok=False)


class Reminding(AgentMiddleware[Any, Any, Any]):
    """Puts a message with an id of its own into each request, not into the state."""

    def __init__(self, place: int) -> None:
        super().__init__()
        self.place = place

    def _override(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        reminder = HumanMessage("<system-reminder>mind the dates</system-reminder>", id="reminder")
        place = self.place if self.place >= 0 else len(request.messages)
        return request.override(messages=[*request.messages[:place], reminder, *request.messages[place:]])

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[..., Any]) -> Any:
        return handler(self._override(request))

    async def awrap_model_call(self, request: ModelRequest[Any], handler: Callable[..., Any]) -> Any:
        return await handler(self._override(request))


@BOTH
@pytest.mark.parametrize("place", [0, 1, -1], ids=["first", "after the request", "last"])
def test_a_message_of_the_request_alone_stays_there_and_never_reaches_the_state(how: str, place: int) -> None:
    """Nobody can write under its id: it is not replaced, the work around it is, in the state too, and no step pays twice."""
    subject, notes = shared()
    model = working(30)
    after = go(how, create_agent(model, [look_up], middleware=[Reminding(place), RoundCompactMiddleware(subject)]), ASK)["messages"]
    assert len(notes.requests) >= 3
    for request in model.requests:
        assert len([message for message in request if "mind the dates" in str(message.content)]) == 1
    check_requests(model.requests, summaries=31)
    assert len(blocks(after)) == 1
    assert "reminder" not in ids(after)
    assert len(notes.requests) <= 10


class Invoice(BaseModel):
    """The answer's shape."""

    total: float


@BOTH
def test_structured_output_by_tool_ends_a_compacted_round(how: str) -> None:
    """The last call is an ordinary pair; the answer is parsed, the state valid, and the next round goes on from it."""
    subject, notes = shared()
    calls = [AIMessage("", tool_calls=[call(f"c{key}", "look_up", key=key)]) for key in range(1, 15)]
    bad = AIMessage("", tool_calls=[call("bad", "Invoice", total="not a number")])
    good = AIMessage("", tool_calls=[call("good", "Invoice", total=12.5)])
    model = ScriptedChatModel(replies=[*calls, bad, good], strict=True)
    agent = create_agent(model, [look_up], response_format=ToolStrategy(Invoice), middleware=[RoundCompactMiddleware(subject)])
    result = go(how, agent, ASK)
    assert result["structured_response"] == Invoice(total=12.5)
    assert len(notes.requests) >= 1
    check_requests(model.requests, summaries=len(notes.requests))
    assert_valid_history(result["messages"], pending_ok=False)


@BOTH
def test_a_call_that_could_not_be_parsed_is_repaired_beside_a_compaction(how: str) -> None:
    """LangChain writes the history anew with a result for the call, in the step of the compaction: both writes fit together."""
    broken = {"name": "look_up", "args": '{"key": ', "id": "broken", "error": "no JSON", "type": "invalid_tool_call"}
    given = [*history(1, 2), AIMessage("", invalid_tool_calls=[broken], id="a3")]
    notes = summariser("NOTES")
    model = ScriptedChatModel(replies=["done"])
    agent = create_agent(model, [look_up], middleware=[RoundCompactMiddleware(compactor(notes))], checkpointer=InMemorySaver())
    after = go(how, agent, {"messages": given}, thread("broken"))["messages"]
    assert_valid_history(model.requests[0])
    assert_valid_history(after, pending_ok=False)
    assert (after[0].id, blocks(after), after[-1].content) == ("h", [1], "done")
    assert [message.type for message in after] == ["human", "human", "ai", "tool", "ai"]
    assert agent.get_state(thread("broken")).values["messages"] == after


@BOTH
def test_two_agents_share_one_middleware(how: str) -> None:
    """Interleaved threads of two agents with models of two sizes: each as if it were alone."""
    subject, _ = shared(trigger=None, window=None)  # type: ignore[arg-type]
    middleware = RoundCompactMiddleware(subject)
    together, alone = [], []
    for window in (4000, 8000, 4000):
        model = working(20, profile={"max_input_tokens": window})
        go(how, create_agent(model, [look_up], middleware=[middleware], name=f"agent{window}"), ASK, thread(f"t{len(together)}"))
        together.append([[message.type for message in request] for request in model.requests])
        own, _ = shared(trigger=None, window=None)  # type: ignore[arg-type]
        model = working(20, profile={"max_input_tokens": window})
        go(how, create_agent(model, [look_up], middleware=[RoundCompactMiddleware(own)]), ASK)
        alone.append([[message.type for message in request] for request in model.requests])
    assert together == alone


# --- deepagents ------------------------------------------------------------------------------------------------------------------------


def deep_agent(model: Any, *middleware: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return create_deep_agent(model, [look_up], middleware=list(middleware), checkpointer=InMemorySaver())


def both_at_once(steps: int, window: int) -> ScriptedChatModel:
    """One model works and summarises for deepagents; its profile makes deepagents' own summarisation due."""
    counter = iter(range(1, steps + 1))

    def reply(messages: list[BaseMessage]) -> Any:
        if "<messages>" in str(messages[-1].content) or "<messages>" in str(messages[0].content):
            return "THEIRS: what was done"
        key = next(counter, None)
        return "all done" if key is None else AIMessage("", tool_calls=[call(f"c{key}", "look_up", key=key)])

    return ScriptedChatModel(replies=[reply], profile={"max_input_tokens": window})


def agent_requests(model: ScriptedChatModel) -> list[list[BaseMessage]]:
    return [request for request, options in zip(model.requests, model.options, strict=True) if options.get("tools")]


@BOTH
def test_in_a_deep_agent_ours_stands_in_for_theirs(how: str) -> None:
    """Under their name: each compaction is one call of our summariser and none of theirs, and the state never holds their event."""
    model = both_at_once(30, 14_000)
    notes = summariser(*(f"SUMMARY {number}" for number in range(1, 30)), strict=True)
    subject = compactor(notes, trigger=None, window=None, keep_recent_messages=None, trigger_context_ratio=0.55)
    agent = deep_agent(model, RoundCompactMiddleware(subject, name="SummarizationMiddleware"))
    after = go(how, agent, ASK, thread("deep"))
    assert len(model.requests) == len(agent_requests(model)) == 31
    assert len(notes.requests) >= 2
    check_requests(agent_requests(model), summaries=len(notes.requests))
    assert "_summarization_event" not in agent.get_state(thread("deep")).values
    assert len(blocks(after["messages"])) == 1
    assert_valid_history(after["messages"], pending_ok=False)


@BOTH
def test_beside_their_summarisation_ours_stands_down(how: str) -> None:
    """Theirs keeps an index into the list: once it has summarised, the list is theirs, and ours changes nothing any more."""
    model = both_at_once(30, 14_000)
    notes = summariser("OURS")
    # Ours would be due at each step from the middle of the run on; theirs is due before that.
    subject = compactor(notes, trigger=None, window=None, keep_recent_messages=None, trigger_context_ratio=0.97)
    agent = deep_agent(model, RoundCompactMiddleware(subject, name="ours"))
    after = go(how, agent, ASK, thread("theirs"))
    assert agent.get_state(thread("theirs")).values["_summarization_event"] is not None
    assert notes.requests == []
    assert not blocks(after["messages"])
    assert len(after["messages"]) == 62


@BOTH
def test_ours_first_leaves_theirs_nothing_to_do(how: str) -> None:
    """With the lower trigger ours keeps the window below theirs: never both."""
    model = both_at_once(30, 14_000)
    notes = summariser(*(f"SUMMARY {number}" for number in range(1, 30)), strict=True)
    subject = compactor(notes, trigger=None, window=None, keep_recent_messages=None, trigger_context_ratio=0.55)
    agent = deep_agent(model, RoundCompactMiddleware(subject, name="ours"))
    go(how, agent, ASK, thread("ours"))
    assert len(model.requests) == 31
    assert len(notes.requests) >= 2
    check_requests(agent_requests(model), summaries=len(notes.requests))
    assert "_summarization_event" not in agent.get_state(thread("ours")).values


@BOTH
def test_a_state_with_their_event_is_left_alone(how: str) -> None:
    """Whatever its size, in the request and in the state."""
    notes = summariser("OURS")
    middleware = RoundCompactMiddleware(compactor(notes))
    model = ScriptedChatModel(replies=["done"])
    given = history(1, 2)
    request = ModelRequest(
        model=model,
        messages=given,
        state={"messages": given, "_summarization_event": {"cutoff_index": 1}},
        tools=[],
        runtime=None,  # type: ignore[arg-type]
    )
    seen: list[Any] = []
    if how == "sync":
        assert middleware.wrap_model_call(request, lambda request: seen.append(request) or "response") == "response"  # type: ignore[arg-type,func-returns-value]
    else:
        import asyncio

        async def handler(request: Any) -> Any:
            seen.append(request)
            return "response"

        assert asyncio.run(middleware.awrap_model_call(request, handler)) == "response"
    assert seen == [request]
    assert notes.requests == []


# --- what it tells ---------------------------------------------------------------------------------------------------------------------


@BOTH
def test_an_overflow_tells_a_stream_what_happened(how: str) -> None:
    """The forced compaction is told like any other."""
    model = ScriptedChatModel(replies=[ContextOverflowError("too long"), "done"], strict=True)
    agent = create_agent(model, [], middleware=[RoundCompactMiddleware(compactor(summariser("NOTES"), trigger=90_000, window=100_000))])
    parts = stream(how, agent, {"messages": history(1, 2)}, stream_mode="custom")
    assert [(part["phase"], part["reason"]) for part in parts] == [("started", "forced"), ("finished", "reached_threshold")]
