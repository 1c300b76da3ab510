"""`as_runnable`: in a chain, in any form of input and any way of calling, and a growing history pays once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from doors import REQUEST, breaks, check_requests, look_up, said, shared, working
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.prompt_values import ChatPromptValue, StringPromptValue
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.runnables.history import RunnableWithMessageHistory
from langgraph.func import entrypoint, task
from procedures import BOTH, blocks, compactor, go, history, ids, summariser, texts, work

from langgraph_roundcompact import ConfigurationError
from langgraph_roundcompact.testing import ScriptedChatModel, assert_valid_history

PROMPT = ChatPromptTemplate.from_messages([("system", "Be exact about {what}."), MessagesPlaceholder("history")])


@BOTH
def test_between_prompt_and_model(how: str) -> None:
    """The model sees system prompt, request and block; the given history is untouched."""
    model = ScriptedChatModel(replies=["done"])
    chain = PROMPT | compactor(summariser("NOTES")).as_runnable() | model
    given = history(1, 2)
    assert go(how, chain, {"what": "dates", "history": given}).content == "done"
    (request,) = model.requests
    assert [message.type for message in request] == ["system", "human", "human"]
    assert (request[0].content, request[1], blocks(request)) == ("Be exact about dates.", given[0], [2])
    assert ids(given) == ["h", "a1", "t1", "a2", "t2"]


@BOTH
@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ([HumanMessage("hi")], ["hi"]),
        ((HumanMessage("hi"), AIMessage("hello")), ["hi", "hello"]),
        (ChatPromptValue(messages=[HumanMessage("hi")]), ["hi"]),
        (StringPromptValue(text="hi"), ["hi"]),
        ("hi", ["hi"]),
        (HumanMessage("hi"), ["hi"]),
        ([("user", "hi"), {"role": "assistant", "content": "hello"}, "and"], ["hi", "hello", "and"]),
        ({"messages": [HumanMessage("hi")], "more": 1}, ["hi"]),
        ([], []),
    ],
    ids=["list", "tuple", "chat prompt", "string prompt", "string", "message", "forms", "state", "empty"],
)
def test_whatever_a_model_takes_it_takes(how: str, value: Any, wanted: list[str]) -> None:
    """Messages come out, whatever went in."""
    out = go(how, compactor(summariser("NOTES")).as_runnable(), value)
    assert all(isinstance(message, BaseMessage) for message in out)
    assert [message.content for message in out] == wanted


@BOTH
def test_what_is_no_input_is_one_clear_error(how: str) -> None:
    """The error says which key was looked for."""
    with pytest.raises(ConfigurationError, match="no key 'messages'"):
        go(how, compactor().as_runnable(), {"question": "hi"})


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "batch", "abatch", "stream", "astream"])
def test_each_way_of_calling_gives_the_same(way: str) -> None:
    """Alone and in a chain that streams."""
    runnable = compactor(summariser("NOTES")).as_runnable()
    given = history(1, 2)
    wanted = [said(message) for message in runnable.invoke(given)]

    async def awaited() -> list[Any]:
        if way == "ainvoke":
            return [await runnable.ainvoke(given)]
        return await runnable.abatch([given, given]) if way == "abatch" else [part async for part in runnable.astream(given)]

    if way.startswith("a"):
        outs = asyncio.run(awaited())
    else:
        outs = {
            "invoke": lambda: [runnable.invoke(given)],
            "batch": lambda: runnable.batch([given, given]),
            "stream": lambda: [*runnable.stream(given)],
        }[way]()
    assert len(outs) == (2 if "batch" in way else 1)
    assert all([said(message) for message in out] == wanted for out in outs)


@BOTH
def test_the_models_words_stream_through_the_chain(how: str) -> None:
    """The chain streams the answer word by word, and nothing of the summary."""
    chain = PROMPT | compactor(summariser("WHISPERED")).as_runnable() | ScriptedChatModel(replies=["one two three"])
    value = {"what": "dates", "history": history(1, 2)}

    async def collected() -> list[Any]:
        return [part async for part in chain.astream(value)]

    parts = list(chain.stream(value)) if how == "sync" else asyncio.run(collected())
    assert [part.content for part in parts if part.content] == ["one ", "two ", "three"]


@BOTH
def test_a_growing_history_pays_once_a_compaction(how: str) -> None:
    """Forty steps by hand, the whole history handed over each time: between compactions each request extends the last."""
    subject, notes = shared()
    model = working(40)
    chain = subject.as_runnable() | model.bind_tools([look_up])
    messages: list[BaseMessage] = [HumanMessage(REQUEST)]
    while True:
        reply = go(how, chain, messages)
        messages.append(reply)
        if not reply.tool_calls:
            break
        messages += [ToolMessage(look_up.invoke(one["args"]), tool_call_id=one["id"], name=one["name"]) for one in reply.tool_calls]
    assert (len(messages), len(model.requests)) == (82, 41)
    assert not blocks(messages)
    assert 3 <= len(notes.requests) <= 12
    check_requests(model.requests, summaries=len(notes.requests))
    assert len(breaks(model.requests)) == len(notes.requests)


@BOTH
def test_a_finished_round_stays_compacted_in_the_next(how: str) -> None:
    """Its block stands in for it while the user goes on; equal work under another request is not served by it."""
    notes = summariser("FIRST", "SECOND")
    runnable = compactor(notes).as_runnable()
    first = history(1, 2, ask="one")
    out = go(how, runnable, first)
    second = [*first, AIMessage("done", id="answer"), HumanMessage("two", id="h2"), *work(3, 100)]
    after = go(how, runnable, second)
    assert after == [*out, *second[len(first) :]]
    third = [*second, *work(4), *work(5)]
    final = go(how, runnable, third)
    assert final[:4] == [*out, *second[5:7]]
    assert (blocks(final), len(final)) == ([1, 4], 5)
    assert ["FIRST" in text or "SECOND" in text for text in texts([[final[1]], [final[4]]])] == [True, True]
    assert go(how, runnable, third) == final
    assert len(notes.requests) == 2


@BOTH
def test_a_forgotten_stand_in_is_made_again(how: str) -> None:
    """Another process with the same history pays once and goes on; the window is measured by what the list holds, not by older usage."""
    given = history(*range(1, 5))
    usage = {"input_tokens": 300, "output_tokens": 10, "total_tokens": 310}
    given[-2] = given[-2].model_copy(update={"usage_metadata": usage})  # of a request that was compacted
    notes = summariser("NOTES")
    out = go(how, compactor(notes).as_runnable(), given)
    assert (blocks(out), len(notes.requests)) == ([1], 1)
    assert_valid_history(out)


@BOTH
def test_two_conversations_do_not_mix(how: str) -> None:
    """Equal work under different requests: each gets the block of its own."""
    notes = summariser("FOR ONE", "FOR TWO")
    runnable = compactor(notes).as_runnable()
    one, two = history(1, 2, ask="one"), history(1, 2, ask="two")
    for given, text in ((one, "FOR ONE"), (two, "FOR TWO"), ([*one, *work(3, 100)], "FOR ONE"), ([*two, *work(3, 100)], "FOR TWO")):
        out = go(how, runnable, given)
        assert text in "".join(texts([out]))
    assert len(notes.requests) == 2


@BOTH
def test_an_edited_history_is_not_served_by_an_old_block(how: str) -> None:
    """What a block covers is found by content: when the past changes, its block is no longer there."""
    notes = summariser("OLD", "NEW")
    runnable = compactor(notes).as_runnable()
    given = history(1, 2)
    assert "OLD" in "".join(texts([go(how, runnable, given)]))
    edited = [given[0], given[1], given[2].model_copy(update={"content": "corrected " * 800}), *given[3:]]
    out = go(how, runnable, edited)
    assert "NEW" in "".join(texts([out]))
    assert "OLD" not in "".join(texts([out]))


@BOTH
@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
def test_with_message_history(how: str) -> None:
    """LangChain's own history keeps every message; the model sees the compacted list."""
    kept = InMemoryChatMessageHistory(messages=history(1, 2))
    model = ScriptedChatModel(replies=["done"])
    chain = RunnableWithMessageHistory(compactor(summariser("NOTES")).as_runnable() | model, lambda session_id: kept)
    go(how, chain, [AIMessage("one more thought", id="thought")], {"configurable": {"session_id": "s"}})
    assert [message.type for message in model.requests[0]][:2] == ["human", "human"]
    assert blocks(model.requests[0]) == [1]
    assert not blocks(kept.messages)


@BOTH
def test_as_a_step_among_other_runnables(how: str) -> None:
    """In a parallel step, and behind a lambda."""
    runnable = compactor(summariser("NOTES")).as_runnable()
    chain = RunnablePassthrough.assign(short=RunnableLambda(lambda value: value["messages"]) | runnable)
    out = go(how, chain, {"messages": history(1, 2)})
    assert (len(out["messages"]), ids(out["short"])) == (5, ["h", "a1"])


@BOTH
def test_in_the_functional_api(how: str) -> None:
    """Inside `@entrypoint` and `@task`, where there is no state to write."""
    notes = summariser("NOTES")
    runnable = compactor(notes).as_runnable()

    @task
    def shorten(messages: list[BaseMessage]) -> list[BaseMessage]:
        return runnable.invoke(messages)

    @entrypoint()
    def flow(messages: list[BaseMessage]) -> list[BaseMessage]:
        return shorten(messages).result()

    @task
    async def ashorten(messages: list[BaseMessage]) -> list[BaseMessage]:
        return await runnable.ainvoke(messages)

    @entrypoint()
    async def aflow(messages: list[BaseMessage]) -> list[BaseMessage]:
        return await ashorten(messages)

    out = go(how, flow if how == "sync" else aflow, history(1, 2))
    assert ids(out) == ["h", "a1"]
