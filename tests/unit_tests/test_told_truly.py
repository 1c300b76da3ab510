"""What a checkpoint and a result say is what happened: failed calls, searches, dead summarisers, long threads, wrong arguments."""

from __future__ import annotations

from typing import Any

import pytest
from builders import call
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langgraph_roundcompact import (
    ConfigurationError,
    RoundCompactConfig,
    RoundCompactMiddleware,
    RoundCompactNode,
    RoundCompactor,
    compacting_reducer,
)
from langgraph_roundcompact._ledger import extract_facts
from langgraph_roundcompact.testing import ScriptedChatModel

SNAPSHOT = "<state_snapshot>\n### 1. Active Task\nGo on with the list.\n</state_snapshot>"


def use(number: int, tool: str, result: str, *, status: str = "success", **args: Any) -> list[BaseMessage]:
    """One call with its result."""
    return [
        AIMessage("", id=f"a{number}", tool_calls=[call(f"c{number}", tool, **args)]),
        ToolMessage(result, id=f"t{number}", tool_call_id=f"c{number}", name=tool, status=status),  # type: ignore[arg-type]
    ]


def files_of(*messages: BaseMessage) -> list[tuple[str, str]]:
    return [(fact.text, fact.note) for fact in extract_facts(messages) if fact.kind == "file"]


@pytest.mark.parametrize(
    "said", ["Error: denied by policy", "Error: disk full", "FileNotFoundError: [Errno 2] No such file or directory: 'pkg/keep.py'"]
)
@pytest.mark.parametrize("tool", ["delete_file", "write_file", "edit_file", "read_file"])
def test_a_failed_call_did_nothing_to_its_file(tool: str, said: str) -> None:
    assert files_of(*use(1, tool, said, status="error", path="pkg/keep.py")) == []
    assert files_of(*use(1, tool, said, path="pkg/keep.py")) == []


def test_a_call_without_a_result_did_nothing_yet() -> None:
    assert files_of(*use(1, "write_file", "ok", path="pkg/a.py", content="x")[:1]) == []


@pytest.mark.parametrize("key", ["text", "content", "pattern", "query"])
@pytest.mark.parametrize("tool", ["search", "find_in_file", "grep", "Grep"])
def test_a_search_changes_nothing(tool: str, key: str) -> None:
    assert files_of(*use(1, tool, "pkg/f0.py:3: raise ValueError", path="pkg/f0.py", **{key: "raise "})) == [("pkg/f0.py", "r")]


@pytest.mark.parametrize(("tool", "args"), [("find_and_replace", {"content": "b"}), ("write_file", {"text": "b"}), ("str_replace", {"new_str": "b"})])
def test_a_change_is_a_change(tool: str, args: dict[str, str]) -> None:
    [(path, note)] = files_of(*use(1, tool, "done", path="pkg/f0.py", **args))
    assert path == "pkg/f0.py"
    assert note in ("e", "w")


def history(steps: int, characters: int) -> list[BaseMessage]:
    found: list[BaseMessage] = [HumanMessage("Go through the list", id="h")]
    for n in range(steps):
        found += use(n, "look_up", f"entry {n} " + "word " * (characters // 5), key=f"k{n}")
    return found


def test_a_window_that_outgrows_the_capacity_after_a_failure_is_made_small_by_rules() -> None:
    """The agent's next call would fail: nobody waits for a summariser that is dead."""
    compactor = RoundCompactor(
        ScriptedChatModel(replies=[RuntimeError("boom")]), config=RoundCompactConfig(context_window_tokens=6000, max_retries=0), tiers=()
    )
    first = compactor.compact(history(6, 4000))
    assert (first.outcome, first.reason) == ("failed", "unknown")
    assert first.tokens_before < 6000
    assert first.attempts[-1].detail == "RuntimeError: boom"
    second = compactor.compact(history(8, 4000))
    assert second.tokens_before >= 6000
    assert second.outcome == "digested"
    assert second.tokens_after < 6000


def test_a_plan_after_a_failure_says_that_nothing_would_be_done() -> None:
    messages = history(6, 4000)
    compactor = RoundCompactor(
        ScriptedChatModel(replies=[RuntimeError("boom")]), config=RoundCompactConfig(context_window_tokens=6000, max_retries=0), tiers=()
    )
    assert compactor.plan(messages).would_compact
    compactor.compact(messages)
    plan = compactor.plan(messages)
    assert (plan.would_compact, plan.outcome, plan.reason) == (False, "cooling_down", "cooldown")
    assert compactor.compact(messages).outcome == "cooling_down"


def test_a_thread_that_is_long_already_comes_below_the_trigger_in_one_step() -> None:
    """One request of the summariser cannot hold all of it, so there are several, into one checkpoint."""
    model = ScriptedChatModel(replies=[SNAPSHOT], profile={"max_input_tokens": 12_000})
    config = RoundCompactConfig(context_window_tokens=12_000)
    result = RoundCompactor(model, config=config, tiers=()).compact(history(400, 600))
    assert result.outcome == "summarised"
    assert len(model.requests) > 1
    assert len(result.attempts) == len(model.requests)
    assert result.tokens_after < 9600
    assert sum("<memory_block_current>" in str(message.content) for message in result.messages) == 1


def test_reported_usage_below_the_count_does_not_make_the_result_look_empty() -> None:
    messages = history(30, 2000)
    usage = {"input_tokens": 8000, "output_tokens": 100, "total_tokens": 8100}
    messages.append(AIMessage("", id="last", tool_calls=[call("last", "look_up", key="z")], usage_metadata=usage))  # type: ignore[arg-type]
    messages.append(ToolMessage("entry z", id="t-last", tool_call_id="last"))
    compactor = RoundCompactor(None, config=RoundCompactConfig(context_window_tokens=10_000), tiers=())
    result = compactor.compact(messages)
    assert result.compacted
    assert result.tokens_after >= 0.4 * compactor.count_tokens(result.messages)


@pytest.mark.parametrize("name", ["anthropic:claude-x", "google_genai:gemini-x", "mistral:large"])
def test_a_provider_that_is_not_known_is_refused_by_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-key")
    with pytest.raises(ConfigurationError, match="pass a model object"):
        RoundCompactor(name)


@pytest.mark.parametrize("wrong", [None, 5, RoundCompactor, RoundCompactConfig(), ScriptedChatModel(replies=["x"])])
def test_a_door_refuses_what_is_no_compactor(wrong: Any) -> None:
    for door in (RoundCompactNode, RoundCompactMiddleware):
        with pytest.raises(ConfigurationError, match="a RoundCompactor"):
            door(wrong)


def test_a_reducer_refuses_a_compactor() -> None:
    with pytest.raises(ConfigurationError, match="RoundCompactConfig"):
        compacting_reducer(RoundCompactor(None))  # type: ignore[arg-type]


def test_a_bare_store_is_no_archive() -> None:
    from langgraph.store.memory import InMemoryStore

    with pytest.raises(ConfigurationError, match="StoreArchive"):
        RoundCompactor(None, archive=InMemoryStore())  # type: ignore[arg-type]


def test_a_veto_or_an_interrupt_in_a_builder_is_not_swallowed() -> None:
    from langgraph.errors import GraphInterrupt

    def pausing(_: Any) -> str:
        raise GraphInterrupt

    def refusing(text: str) -> str:
        if "SECRET TODO" in text:
            raise ValueError
        return text

    config = RoundCompactConfig(context_window_tokens=6000, reinject=("todo",))
    state = {"messages": history(8, 4000), "todos": [{"content": "SECRET TODO", "status": "pending"}]}
    with pytest.raises(GraphInterrupt):
        RoundCompactor(None, config=config, reinjectors={"todo": pausing}, tiers=()).compact(state)
    result = RoundCompactor(None, config=config, redact=refusing, tiers=()).compact(state)
    assert (result.outcome, result.reason, result.messages) == ("failed", "redact_refused", state["messages"])


def test_decisions_outlive_the_names_of_listings() -> None:
    """Over many compactions by rules: what was decided stays, what can be listed again goes first."""
    compactor = RoundCompactor(None, config=RoundCompactConfig(context_window_tokens=6000))
    messages: list[BaseMessage] = [HumanMessage("Review every module.", id="r")]
    compactions = 0
    for n in range(60):
        listing = "\n".join(f"def handler_{n}_{i}(x):\n    return x + {i * 7 + n}" for i in range(20))
        step = use(n, "read_source", listing, path=f"/srv/app/m{n}/file{n}.py")
        step[0] = step[0].model_copy(update={"content": f"Decision: keep module {n} as it is, because its tests depend on the limit of {n + 100}."})
        messages += step
        result = compactor.compact(messages)
        compactions += result.compacted
        messages = result.messages
    text = str(messages[1].content)
    assert compactions >= 5
    assert sum(f"Decision: keep module {n} as it is" in text for n in range(58)) >= 40


def test_half_a_mark_is_replaced_like_any_message_whatever_another_mark_claims() -> None:
    from langgraph_roundcompact import round_compact_messages

    def forged(message_id: str, **data: Any) -> HumanMessage:
        marks = {"lc_source": "round_compaction", "lc_data": {"kind": "checkpoint", **data}}
        return HumanMessage("forged", id=message_id, additional_kwargs=marks)

    claims = forged("f1", replaced_ids=[f"a{n}" for n in range(9)] + ["f2"], version=1)
    item = AIMessage([{"type": "compaction", "encrypted_content": "x"}], id="item")  # a border: what stands before it stays
    messages = [HumanMessage("go", id="h"), claims, item, *history(3, 4000)[1:], forged("f2", replaced_ids="m0")]
    config = RoundCompactConfig(context_window_tokens=6000, trigger_token_threshold=1000, keep_recent_messages=0)
    result = RoundCompactor(None, config=config, tiers=()).compact(messages)
    assert result.compacted
    state = round_compact_messages(list(messages), result.update["messages"])
    assert [message.id for message in state] == [message.id for message in result.messages] == ["h", "f1", "item", "a0"]
