"""What a failed or a useless summary request may do: how long it waits, what it tells and where, what it leaves behind."""

from __future__ import annotations

import email.utils
import logging
import time
from typing import Any, get_args

import pytest
from builders import Http
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableLambda
from procedures import BOTH, compact, compactor, history, snapshot, summariser, texts

from langgraph_roundcompact._fault import told
from langgraph_roundcompact._memo import BoundedTable
from langgraph_roundcompact._ports import FAILURE_TABLE_SIZE
from langgraph_roundcompact._prompt import INSTRUCTIONS, REASK
from langgraph_roundcompact.errors import RejectionReason
from langgraph_roundcompact.events import CompactionEvent
from langgraph_roundcompact.testing import ScriptedChatModel

pytestmark = pytest.mark.usefixtures("waits")

OK = AIMessage(snapshot("NOTED"))
SECRET = "sk-FAKE1234567890abcdefFAKE"
WORDS = "the invoice of Mrs Example over 4711 euros"


# --- how long it waits, and whether ------------------------------------------------------------------------------------------------------


@BOTH
def test_a_date_is_waited_for(how: str, waits: list[float]) -> None:
    """By the provider's clock where the answer has a date of its own, else by ours; never longer than an attempt may take."""
    in_half_a_minute = email.utils.formatdate(time.time() + 30, usegmt=True)
    in_a_year = email.utils.formatdate(time.time() + 365 * 86_400, usegmt=True)
    past = email.utils.formatdate(time.time() - 30, usegmt=True)
    dated = Http(429, Retry_After="Wed, 21 Oct 2026 07:28:00 GMT", Date="Wed, 21 Oct 2026 07:27:53 GMT")
    for reply, least, most in (
        (Http(429, Retry_After=in_half_a_minute), 25, 38),
        (Http(429, Retry_After=in_a_year), 120, 150),
        (Http(429, Retry_After=past), 0.05, 0.07),
        (dated, 7, 9),
    ):
        waits.clear()
        assert compact(how, compactor(ScriptedChatModel(replies=[reply, OK])), history(1, 2)).compacted
        assert least <= waits[0] <= most


@BOTH
def test_without_a_limit_for_attempts_a_provider_may_still_not_ask_for_a_day(how: str, waits: list[float]) -> None:
    """Two minutes at most."""
    model = ScriptedChatModel(replies=[Http(429, Retry_After="86400"), OK])
    assert compact(how, compactor(model, timeout_seconds=0), history(1, 2)).compacted
    assert waits[0] <= 150


@BOTH
@pytest.mark.parametrize("status", [429, 500, 503, 529])
def test_where_the_server_forbids_a_retry_there_is_none(how: str, status: int) -> None:
    """`x-should-retry: false`, as OpenAI and Anthropic send it; the kind stays what it is."""
    model = ScriptedChatModel(replies=[Http(status, x_should_retry="false"), OK])
    result = compact(how, compactor(model), history(1, 2))
    assert (result.outcome, len(model.requests)) == ("failed", 1)
    assert result.reason == ("rate_limit" if status == 429 else "server_unstable")


# --- what it tells ------------------------------------------------------------------------------------------------------------------------

ANSWERS: dict[str, Any] = {
    "blank": AIMessage("  "),
    "reasoning_only": AIMessage([{"type": "thinking", "thinking": "hm", "signature": "s"}]),
    "tool_call": AIMessage("", tool_calls=[{"name": "ls", "args": {}, "id": "1", "type": "tool_call"}]),
    "cut_off": AIMessage("half a sen", response_metadata={"finish_reason": "length"}),
    "refusal": AIMessage("", additional_kwargs={"refusal": "I can't"}),
    "content_filter": AIMessage("", response_metadata={"finish_reason": "content_filter"}),
    "coverage_only": AIMessage("<coverage_check>\nall\n</coverage_check>"),
    "prompt_echo": AIMessage(INSTRUCTIONS),
    "no_snapshot": AIMessage("Let me look at the file first."),
}


def test_every_reason_of_a_rejection_has_an_example_and_a_second_question() -> None:
    """The words are a closed set."""
    assert ANSWERS.keys() == REASK.keys() == set(get_args(RejectionReason))


@BOTH
@pytest.mark.parametrize("reason", ANSWERS)
def test_a_rejection_is_told_in_result_event_and_log(how: str, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    """By the same word, once for each answer; the second question says what was wrong with the first."""
    events: list[CompactionEvent] = []
    model = ScriptedChatModel(replies=[ANSWERS[reason]])
    with caplog.at_level(logging.WARNING, logger="langgraph_roundcompact"):
        result = compact(how, compactor(model, on_event=events.append), given := history(1, 2))
    assert (result.outcome, result.reason, result.messages) == ("failed", "summary_rejected", given)
    assert [(attempt.kind, attempt.detail) for attempt in result.attempts] == [("rejected", reason)] * 2
    assert (events[-1].phase, events[-1].reason, events[-1].details["failures"]) == ("failed", "summary_rejected", [f"rejected: {reason}"] * 2)
    assert f"no summary could be had (summary_rejected, 2 requests, last: {reason})" in caplog.text
    assert REASK[reason] in texts(model.requests)[1]


@BOTH
def test_failures_on_the_way_to_a_summary_are_told_with_the_event(how: str) -> None:
    """In order, by kind; what worked in the end is not among them."""
    events: list[CompactionEvent] = []
    model = ScriptedChatModel(replies=[Http(429), AIMessage(""), Http(503), OK])
    assert compact(how, compactor(model, on_event=events.append), history(1, 2)).compacted
    assert events[-1].as_dict()["failures"] == ["rate_limit", "rejected: blank", "server_unstable"]


@BOTH
def test_what_an_error_quotes_of_the_request_is_told_nowhere(how: str, caplog: pytest.LogCaptureFixture) -> None:
    """Validation errors and some servers repeat the input; type and cause are told without it."""

    def refuses(messages: list[BaseMessage]) -> AIMessage:
        raise Http(400, f"1 validation error for Message: content [input_value='{WORDS}', key {SECRET}]: value is not allowed")

    with caplog.at_level(logging.DEBUG, logger="langgraph_roundcompact"):
        result = compact(how, compactor(RunnableLambda(refuses)), history(1, 2, ask=f"Find {WORDS} please"))
    (attempt,) = result.attempts
    assert attempt.detail.startswith("Http: Error code: 400 1 validation error for Message: content")
    for place in (attempt.detail, caplog.text):
        assert WORDS not in place
        assert SECRET not in place


@BOTH
def test_what_an_error_says_can_be_stored(how: str) -> None:
    """Without NUL and lone surrogates, and no longer than a line."""
    result = compact(how, compactor(ScriptedChatModel(replies=[Http(400, "\ud800\x00" * 5 + "x" * 1_000_000)])), history(1, 2))
    result.attempts[0].detail.encode()
    assert "\x00" not in result.attempts[0].detail
    assert len(result.attempts[0].detail) <= 320


def fails(*args: Any, **more: Any) -> Any:
    raise ValueError(f"{SECRET}: {WORDS}") from KeyError(WORDS)


FAULTS = {
    "tier": {"tiers": (fails,)},
    "observer": {"on_event": fails},
    "is_real_user": {"is_real_user": fails},
    "is_pending": {"is_pending": fails},
    "token_counter": {"token_counter": fails},
    "redact": {"redact": fails},
    "session_memory": {"session_memory": fails},
    "builder": {"reinjectors": dict.fromkeys(("plan_mode", "plan", "task_status", "todo", "skills", "read_file"), fails)},
}


@BOTH
@pytest.mark.parametrize("name", FAULTS)
def test_no_fault_of_the_users_code_brings_its_text_into_the_log(how: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """What an exception says may quote a message or hold a secret: the log has its type and its place."""
    with caplog.at_level(logging.DEBUG):
        compact(how, compactor(summariser("NOTES"), **FAULTS[name]), history(1, 2))
    ours = [record for record in caplog.records if record.name.startswith("langgraph_roundcompact")]
    assert ours
    for record in ours:
        assert record.exc_info is None
        assert SECRET not in record.getMessage()
        assert WORDS not in record.getMessage()


def test_a_fault_is_told_by_type_place_and_cause() -> None:
    """Enough to find the line, and nothing of what it said."""
    with pytest.raises(ValueError, match="sk-FAKE") as caught:
        fails()
    assert told(caught.value).startswith("ValueError at test_summary_failures.py:")
    assert told(caught.value).endswith(", from KeyError")
    assert " in fails < test_summary_failures.py:" in told(caught.value)
    assert told(RuntimeError(SECRET)) == "RuntimeError"


# --- what it leaves behind ----------------------------------------------------------------------------------------------------------------


def test_the_table_of_failures_stays_small_over_any_number_of_threads() -> None:
    """The newest stay; one that was forgotten costs one attempt."""
    table = BoundedTable(FAILURE_TABLE_SIZE)
    for number in range(10_000):
        table.put(f"thread {number}", number)
    assert len(table) == FAILURE_TABLE_SIZE
    assert (table.get("thread 9999"), table.get("thread 0")) == (9999, None)


@BOTH
def test_a_thread_that_failed_is_remembered_while_others_come_and_go(how: str) -> None:
    """Each key for itself; a look keeps it among the newest."""
    model = ScriptedChatModel(replies=[Http(401)])
    subject = compactor(model)
    for number in range(60):
        assert compact(how, subject, history(1, 2), thread_id=str(number)).outcome == "failed"
        assert compact(how, subject, history(1, 2), thread_id="0").outcome == "cooling_down"
    assert len(model.requests) == 60
