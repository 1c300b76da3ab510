"""The doubles and proofs of `langgraph_roundcompact.testing`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import HealthCheck, given, settings
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph.message import add_messages
from strategies import histories, valid_histories

from langgraph_roundcompact.testing import ScriptedChatModel, assert_valid_history, check_tier, pairing_faults


def call(id: str | None, name: str = "search") -> dict:
    return {"name": name, "args": {"q": "cats and dogs"}, "id": id, "type": "tool_call"}


@tool
def search(q: str) -> str:
    """Find something."""
    return q


class TestScript:
    def test_replies_come_in_order_and_the_last_repeats(self):
        model = ScriptedChatModel(replies=["one", AIMessage("two")])
        assert [model.invoke("x").content for _ in range(4)] == ["one", "two", "two", "two"]

    def test_strict_refuses_a_call_beyond_the_script(self):
        model = ScriptedChatModel(replies=["one"], strict=True)
        model.invoke("x")
        with pytest.raises(AssertionError, match="1 replies, and reply 2"):
            model.invoke("x")

    def test_an_empty_script_answers_nothing(self):
        with pytest.raises(AssertionError, match="0 replies"):
            ScriptedChatModel().invoke("x")

    def test_exceptions_are_raised_as_class_and_as_instance_and_the_script_goes_on(self):
        model = ScriptedChatModel(replies=[TimeoutError, ValueError("broken"), "fine"])
        with pytest.raises(TimeoutError):
            model.invoke("x")
        with pytest.raises(ValueError, match="broken"):
            model.invoke("x")
        assert model.invoke("x").content == "fine"

    def test_a_callable_sees_the_request_and_may_give_any_entry(self):
        model = ScriptedChatModel(replies=[lambda ms: f"{len(ms)}", lambda ms: KeyError("k"), lambda ms: AIMessage("m")])
        assert model.invoke([HumanMessage("a"), HumanMessage("b")]).content == "2"
        with pytest.raises(KeyError):
            model.invoke("x")
        assert model.invoke("x").content == "m"

    def test_something_else_in_the_script_is_a_type_error(self):
        with pytest.raises(TypeError, match="not int"):
            ScriptedChatModel(replies=[7]).invoke("x")

    def test_assert_complete_tells_what_was_not_asked_for(self):
        model = ScriptedChatModel(replies=["one", "two"])
        model.invoke("x")
        with pytest.raises(AssertionError, match="1 of 2"):
            model.assert_complete()
        model.invoke("x")
        model.assert_complete()

    def test_two_models_do_not_share_a_script(self):
        one, two = ScriptedChatModel(replies=["a", "b"]), ScriptedChatModel(replies=["a", "b"])
        one.invoke("x")
        assert (len(one.requests), len(two.requests)) == (1, 0)


class TestRequests:
    def test_requests_are_copies_made_when_the_call_came_in(self):
        model = ScriptedChatModel(replies=["ok"])
        sent = HumanMessage([{"type": "text", "text": "before"}])
        model.invoke([sent])
        sent.content[0]["text"] = "after"
        assert model.requests[0][0].content == [{"type": "text", "text": "before"}]

    def test_bound_models_record_on_the_same_script(self):
        model = ScriptedChatModel(replies=["one", "two", "three"])
        bound = model.bind_tools([search], tool_choice="auto")
        assert [bound.invoke("x").content, model.invoke("y").content, model.model_copy().invoke("z").content] == ["one", "two", "three"]
        assert [request[0].content for request in model.requests] == ["x", "y", "z"]
        assert model.options[0]["tools"][0]["function"]["name"] == "search"
        assert model.options[0]["tool_choice"] == "auto"
        assert model.options[1] == {}

    def test_a_call_is_never_answered_with_the_same_object_or_id(self):
        reply = AIMessage("same", id="fixed")
        model = ScriptedChatModel(replies=[reply])
        answers = [model.invoke("x") for _ in range(3)]
        assert answers[0].id == "fixed"
        assert len({a.id for a in answers}) == 3
        assert len({id(a) for a in [*answers, reply]}) == 4
        assert len(add_messages([], list(answers))) == 3
        assert reply == AIMessage("same", id="fixed")

    def test_threads_get_each_reply_once(self):
        model = ScriptedChatModel(replies=[str(n) for n in range(40)], strict=True)
        got: list[str] = []
        threads = [threading.Thread(target=lambda: got.extend(model.invoke("x").content for _ in range(5))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(got, key=int) == [str(n) for n in range(40)]


class TestUsage:
    def test_estimate_grows_with_the_request_and_the_tools(self):
        model = ScriptedChatModel(replies=["abcd" * 10])
        small, large = model.invoke("x" * 400).usage_metadata, model.invoke("x" * 4000).usage_metadata
        assert small == {"input_tokens": 103, "output_tokens": 10, "total_tokens": 113}
        assert large["input_tokens"] == 1003
        assert model.bind_tools([search]).invoke("x" * 400).usage_metadata["input_tokens"] > 120

    def test_none_given_and_computed_usage(self):
        usage = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
        assert ScriptedChatModel(replies=["x"], usage="none").invoke("x").usage_metadata is None
        assert ScriptedChatModel(replies=[AIMessage("x", usage_metadata=usage)], usage="none").invoke("x").usage_metadata == usage
        assert ScriptedChatModel(replies=["x"], usage=lambda request, reply: usage).invoke("x").usage_metadata == usage

    def test_profile_is_the_models_profile(self):
        model = ScriptedChatModel(replies=["x"], profile={"max_input_tokens": 8000, "max_output_tokens": 500})
        assert model.profile == {"max_input_tokens": 8000, "max_output_tokens": 500}

    def test_overflow_is_recorded_and_uses_no_reply(self):
        model = ScriptedChatModel(replies=["ok"], overflow_at_tokens=100, strict=True)
        with pytest.raises(ContextOverflowError, match="1003 tokens > 100"):
            model.invoke("x" * 4000)
        assert model.invoke("x").content == "ok"
        assert len(model.requests) == 2

    def test_overflow_in_characters(self):
        with pytest.raises(ContextOverflowError, match="11 characters > 10"):
            ScriptedChatModel(replies=["ok"], overflow_at_characters=10).invoke("x" * 11)

    def test_counting_needs_no_tokenizer(self):
        assert ScriptedChatModel().get_num_tokens("x" * 9) == 3

    def test_tracing_is_given_provider_and_model_name(self):
        params = ScriptedChatModel(provider="openai", model_name="m")._get_ls_params()
        assert (params["ls_provider"], params["ls_model_name"]) == ("openai", "m")


class TestStreaming:
    REPLY = AIMessage(
        "Looking  at\nboth files ",
        tool_calls=[call("c1"), call("c2", "read")],
        invalid_tool_calls=[{"name": "bad", "args": '{"q": cats}', "id": "c3", "error": None, "type": "invalid_tool_call"}],
        additional_kwargs={"k": "v"},
        id="r1",
    )

    def test_the_sum_of_the_chunks_is_the_message(self):
        model = ScriptedChatModel(replies=[self.REPLY])
        whole, chunks = model.invoke("x"), list(model.stream("x"))
        total = chunks[0]
        for chunk in chunks[1:]:
            total += chunk
        assert total.content == whole.content == "Looking  at\nboth files "
        assert total.tool_calls == whole.tool_calls
        assert [c["id"] for c in total.invalid_tool_calls] == ["c3"]
        assert total.usage_metadata == whole.usage_metadata
        assert total.additional_kwargs == whole.additional_kwargs
        assert total.response_metadata == whole.response_metadata

    def test_usage_stands_on_the_last_chunk_alone(self):
        chunks = list(ScriptedChatModel(replies=[self.REPLY]).stream("x"))
        assert [bool(chunk.usage_metadata) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]

    def test_call_arguments_come_in_pieces(self):
        chunks = list(ScriptedChatModel(replies=[self.REPLY]).stream("x"))
        pieces = [piece for chunk in chunks for piece in chunk.tool_call_chunks if piece["index"] == 0]
        assert len(pieces) == 2
        assert "".join(piece["args"] for piece in pieces) == '{"q": "cats and dogs"}'

    def test_block_content_survives_streaming(self):
        blocks = [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "done"}]
        total = None
        for chunk in ScriptedChatModel(replies=[AIMessage(blocks)]).stream("x"):
            total = chunk if total is None else total + chunk
        assert total.content == blocks

    def test_async_is_the_same(self):
        async def run() -> tuple[str, str]:
            model = ScriptedChatModel(replies=["one two", "three four"])
            first = (await model.ainvoke("x")).content
            return first, "".join([chunk.content async for chunk in model.astream("x")])

        assert asyncio.run(run()) == ("one two", "three four")

    def test_delay_lets_the_event_loop_run_and_can_be_cancelled(self):
        async def run() -> float:
            model, start = ScriptedChatModel(replies=["x"], delay_seconds=5), time.perf_counter()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(model.ainvoke("x"), 0.05)
            assert len(model.requests) == 1
            return time.perf_counter() - start

        assert asyncio.run(run()) < 2


def ai(*ids: str | None, **more) -> AIMessage:
    return AIMessage("", tool_calls=[call(i) for i in ids], **more)


def res(id: str, **more) -> ToolMessage:
    return ToolMessage("r", tool_call_id=id, **more)


USE = {"type": "server_tool_use", "id": "s1", "name": "web", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
BAD_CALL = {"name": "x", "args": "{", "id": "c1", "error": None, "type": "invalid_tool_call"}


class TestPairing:
    @pytest.mark.parametrize(
        "messages",
        [
            [],
            [HumanMessage("x"), ai("c1"), res("c1"), AIMessage("done")],
            [ai("c1", "c2"), res("c2"), res("c1")],
            [ai("c1"), res("c1"), ai("c1"), res("c1")],
            [ai("", ""), res(""), res("")],
            [ai(None), res("")],
            [HumanMessage("x"), ai("c1", "c2"), res("c1")],
            [AIMessage([USE, FOUND]), HumanMessage("x")],
            [HumanMessage("x"), AIMessage([USE])],
            [AIMessage([{"type": "tool_use", "id": "c1", "name": "x", "input": {}}]), res("c1")],
            [AIMessage([{"type": "function_call", "id": "fc", "call_id": "c1", "name": "x", "arguments": "{}"}]), res("c1")],
            [AIMessage("", invalid_tool_calls=[BAD_CALL]), res("c1")],
            [SystemMessage("s"), HumanMessage("x"), SystemMessage("mid")],
        ],
    )
    def test_valid(self, messages: list[BaseMessage]):
        assert pairing_faults(messages) == []
        assert_valid_history(messages)

    @pytest.mark.parametrize(
        ("messages", "fault"),
        [
            ([res("c1")], "result for 'c1' at 0 does not follow its call"),
            ([ai("c1"), res("c1"), res("c1")], "second result for call 'c1' at 2"),
            ([ai("c1"), AIMessage("x")], "call 'c1' of message 0 has no result"),
            ([ai("c1"), HumanMessage("x")], "call 'c1' of message 0 has no result"),
            ([ai("c1", "c2"), res("c1"), HumanMessage("x")], "call 'c2' of message 0 has no result"),
            ([ai("", ""), res(""), HumanMessage("x")], "call '' of message 0 has no result"),
            ([AIMessage([USE]), HumanMessage("x")], "server-side call 's1' of message 0 has no result in it"),
            ([HumanMessage("x", id="m"), AIMessage("y", id="m")], "message id 'm' stands 2 times"),
            ([RemoveMessage(id="m")], "a RemoveMessage is left at 0"),
            ([AIMessage("", invalid_tool_calls=[BAD_CALL]), HumanMessage("x")], "call 'c1' of message 0 has no result"),
            ([AIMessage([{"type": "tool_use", "id": "c1", "name": "x", "input": {}}]), HumanMessage("x")], "call 'c1' of message 0 has no result"),
        ],
    )
    def test_each_fault_is_named(self, messages: list[BaseMessage], fault: str):
        assert pairing_faults(messages) == [fault]
        with pytest.raises(AssertionError):
            assert_valid_history(messages)

    def test_a_foreign_message_between_results_breaks_the_pair_twice(self):
        messages = [ai("c1", "c2"), res("c1"), HumanMessage("steer"), res("c2")]
        assert pairing_faults(messages) == ["call 'c2' of message 0 has no result", "result for 'c2' at 3 does not follow its call"]

    def test_pending_calls_can_be_forbidden(self):
        assert pairing_faults([HumanMessage("x"), ai("c1")], pending_ok=False) == ["call 'c1' of message 1 has no result"]

    @settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(valid_histories())
    def test_valid_histories_are_valid(self, messages: list[BaseMessage]):
        assert pairing_faults(messages) == []

    @settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(histories())
    def test_any_history_is_read_without_an_exception(self, messages: list[BaseMessage]):
        assert all(isinstance(fault, str) for fault in pairing_faults(messages))


class TestTierSuite:
    def test_a_tier_that_does_nothing_passes(self):
        check_tier(lambda target, context: list(target), context_factory=len)

    def test_a_tier_that_clips_results_passes(self):
        def clip(target, context):
            return [m.model_copy(update={"content": m.content[:200]}) if isinstance(m.content, str) else m for m in target]

        check_tier(clip)

    def test_a_tier_that_leaves_out_whole_groups_passes(self):
        check_tier(lambda target, context: [])

    def test_the_context_is_pressing_unless_given(self):
        seen = []
        check_tier(lambda target, context: seen.append(context) or target, examples=1)
        assert seen[0].window_tokens > seen[0].target_tokens > 0
        assert seen[0].estimate("12345") == 2

    @pytest.mark.parametrize(
        ("tier", "fault"),
        [
            (lambda ms, c: [m for m in ms if not isinstance(m, ToolMessage)], "has no result"),
            (lambda ms, c: [m.model_copy(update={"content": "longer " * 9999}) for m in ms], "larger"),
            (lambda ms, c: [m.model_copy(update={"id": f"new{i}"}) for i, m in enumerate(ms)], "ids are new"),
            (lambda ms, c: [m.model_copy(update={"content": m.content[1:]}) for m in ms], "second run"),
            (lambda ms, c: [m.model_copy(update={"content": str(time.perf_counter())}) for m in ms], "another result"),
            (lambda ms, c: [setattr(m, "content", "") or m for m in ms], "mutated"),
        ],
    )
    def test_each_broken_rule_is_told(self, tier, fault: str):
        with pytest.raises(AssertionError, match=fault):
            check_tier(tier, context_factory=lambda target: None)


def test_no_test_framework_is_imported():
    code = "import sys, langgraph_roundcompact.testing; print([m for m in ('pytest', 'hypothesis', 'unittest') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
