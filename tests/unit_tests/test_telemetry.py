"""Telemetry: spans and metrics of compactions, facts on the summariser's traces, and nothing of it ever in the run's way."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tracers.base import BaseTracer
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from procedures import BOTH, compact, compactor, history, snapshot, summariser

from langgraph_roundcompact import RoundCompactor
from langgraph_roundcompact.telemetry import Telemetry, model_name, watched_thread
from langgraph_roundcompact.testing import ScriptedChatModel

USAGE = {"input_tokens": 900, "output_tokens": 100, "total_tokens": 1000, "input_token_details": {"cache_read": 600}}


class Watch:
    """In-memory exporters, attached to a compactor."""

    def __init__(self, subject: RoundCompactor, *processors: SpanProcessor) -> None:
        self._spans, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider()
        for processor in (SimpleSpanProcessor(self._spans), *processors):
            self.tracers.add_span_processor(processor)
        meters = MeterProvider(metric_readers=[self._reader])
        subject._ports.telemetry = Telemetry(subject._ports.telemetry.model, tracer_provider=self.tracers, meter_provider=meters)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._spans.get_finished_spans())

    def attributes(self) -> dict[str, Any]:
        (span,) = self.spans
        return dict(span.attributes or {})

    @property
    def metrics(self) -> dict[str, list[Any]]:
        data = self._reader.get_metrics_data()
        found = [metric for part in (data.resource_metrics if data else ()) for scope in part.scope_metrics for metric in scope.metrics]
        return {metric.name: list(metric.data.data_points) for metric in found}


def answering(text: str = "NOTES") -> ScriptedChatModel:
    return ScriptedChatModel(replies=[AIMessage(snapshot(text), usage_metadata=USAGE)])


@BOTH
def test_a_compaction_is_one_span_with_the_conventions_names(how: str) -> None:
    subject = compactor(answering())
    watch = Watch(subject)
    result = compact(how, subject, history(1, 2), thread_id="t-1")
    (span,) = watch.spans
    assert span.name == "round_compaction"
    assert watch.attributes() == {
        "gen_ai.conversation.id": "t-1",
        "gen_ai.request.model": "scripted",
        "gen_ai.usage.input_tokens": 900,
        "gen_ai.usage.output_tokens": 100,
        "gen_ai.usage.cache_read.input_tokens": 600,
        "roundcompact.trigger": "reached_threshold",
        "roundcompact.outcome": "summarised",
        "roundcompact.reason": "reached_threshold",
        "roundcompact.compacted": True,
        "roundcompact.attempts": 1,
        "roundcompact.tokens.before": result.tokens_before,
        "roundcompact.tokens.after": result.tokens_after,
        "roundcompact.tokens.reclaimed": result.tokens_before - result.tokens_after,
        "roundcompact.tokens.capacity": 2000,
        "roundcompact.tokens.trigger": 1000,
        "roundcompact.tokens.target": 625,
    }
    assert span.status.status_code == StatusCode.UNSET


@BOTH
def test_the_metrics_count_compactions_tokens_and_time(how: str) -> None:
    subject = compactor(answering())
    watch = Watch(subject)
    result = compact(how, subject, history(1, 2))
    compact(how, subject, history(3, 4))
    named = {"roundcompact.outcome": "summarised", "roundcompact.reason": "reached_threshold"}
    (count,) = watch.metrics["roundcompact.compactions"]
    assert (count.value, dict(count.attributes)) == (2, named)
    (reclaimed,) = watch.metrics["roundcompact.tokens.reclaimed"]
    assert reclaimed.value >= result.tokens_before - result.tokens_after > 0
    assert {point.attributes["gen_ai.token.type"]: point.value for point in watch.metrics["roundcompact.summary.tokens"]} == {
        "input": 1800,
        "output": 200,
        "cached": 1200,
    }
    (duration,) = watch.metrics["roundcompact.duration"]
    assert (duration.count, duration.attributes["roundcompact.outcome"]) == (2, "summarised")
    assert 0 < duration.sum < 60


@BOTH
def test_a_check_with_room_leaves_no_trace(how: str) -> None:
    subject = compactor(summariser())
    watch = Watch(subject)
    compact(how, subject, history())
    assert (watch.spans, watch.metrics) == ([], {})


@BOTH
def test_a_failure_is_an_error_with_its_type(how: str) -> None:
    subject = compactor(ScriptedChatModel(replies=["", ""], strict=True))
    watch = Watch(subject)
    compact(how, subject, history(1, 2))
    (span,) = watch.spans
    assert span.status.status_code == StatusCode.ERROR
    attributes = watch.attributes()
    assert (attributes["error.type"], attributes["roundcompact.outcome"], attributes["roundcompact.attempts"]) == ("summary_rejected", "failed", 2)
    (count,) = watch.metrics["roundcompact.compactions"]
    assert count.attributes["roundcompact.outcome"] == "failed"


@BOTH
def test_a_check_that_ends_before_it_starts_is_counted_by_its_reason(how: str) -> None:
    subject = compactor(summariser(), min_target_context_ratio=0.999, window=4000)
    watch = Watch(subject)
    compact(how, subject, history(1, 2))
    assert watch.spans == []
    (count,) = watch.metrics["roundcompact.compactions"]
    assert dict(count.attributes) == {"roundcompact.outcome": "target_below_min", "roundcompact.reason": "target_below_min"}


@BOTH
def test_the_span_is_current_while_the_summariser_works_and_not_after(how: str) -> None:
    seen: list[Any] = []

    class Looking(ScriptedChatModel):
        def _generate(self, *args: Any, **kwargs: Any) -> Any:
            seen.append(trace.get_current_span().get_span_context().span_id)
            return super()._generate(*args, **kwargs)

        async def _agenerate(self, *args: Any, **kwargs: Any) -> Any:
            seen.append(trace.get_current_span().get_span_context().span_id)
            return await super()._agenerate(*args, **kwargs)

    subject = compactor(Looking(replies=[snapshot("NOTES")]))
    watch = Watch(subject)
    compact(how, subject, history(1, 2))
    (span,) = watch.spans
    assert seen == [span.context.span_id if span.context else None]
    assert not trace.get_current_span().get_span_context().is_valid


@BOTH
def test_the_span_stands_inside_the_users_own(how: str) -> None:
    subject = compactor(summariser())
    watch = Watch(subject)
    with watch.tracers.get_tracer("users").start_as_current_span("step") as step:
        compact(how, subject, history(1, 2))
    inner = watch.spans[0]
    assert inner.parent is not None
    assert inner.parent.span_id == step.get_span_context().span_id


def test_a_cancelled_run_ends_its_span() -> None:
    class Slow(ScriptedChatModel):
        async def _agenerate(self, *args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(60)

    subject = compactor(Slow(replies=["never"]))
    watch = Watch(subject)

    async def cancelled() -> None:
        task = asyncio.create_task(subject.acompact(history(1, 2)))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not trace.get_current_span().get_span_context().is_valid

    asyncio.run(cancelled())
    assert watch.attributes()["roundcompact.outcome"] == "interrupted"
    assert watched_thread() is None


def test_threads_that_share_a_compactor_have_each_their_own_span() -> None:
    subject = compactor(answering())
    watch = Watch(subject)
    threads = [threading.Thread(target=subject.compact, args=(history(i, i + 1),), kwargs={"thread_id": f"t{i}"}) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(str((span.attributes or {})["gen_ai.conversation.id"]) for span in watch.spans) == [f"t{i}" for i in range(8)]
    assert {(span.attributes or {})["roundcompact.outcome"] for span in watch.spans} == {"summarised"}


def test_tasks_that_share_a_compactor_have_each_their_own_span() -> None:
    subject = compactor(answering())
    watch = Watch(subject)

    async def together() -> None:
        await asyncio.gather(*(subject.acompact(history(i, i + 1), thread_id=f"t{i}") for i in range(8)))

    asyncio.run(together())
    assert sorted(str((span.attributes or {})["gen_ai.conversation.id"]) for span in watch.spans) == [f"t{i}" for i in range(8)]


class BrokenExporter(SpanExporter):
    def export(self, spans: Any) -> Any:
        raise ConnectionError


class BrokenProcessor(SpanProcessor):
    def on_start(self, span: Any, parent_context: Any = None) -> None:
        raise ConnectionError

    def on_end(self, span: Any) -> None:
        raise ConnectionError


class BrokenAtTheEnd(SpanProcessor):
    def on_end(self, span: Any) -> None:
        raise ConnectionError


@BOTH
@pytest.mark.parametrize("broken", [SimpleSpanProcessor(BrokenExporter()), BrokenProcessor(), BrokenAtTheEnd()])
def test_a_broken_exporter_never_reaches_the_run(how: str, broken: SpanProcessor, caplog: pytest.LogCaptureFixture) -> None:
    subject = compactor(answering())
    Watch(subject, broken)
    with caplog.at_level(logging.WARNING, "langgraph_roundcompact"):
        outcomes = [compact(how, subject, history(i, i + 1)).outcome for i in (1, 3)]
    assert outcomes == ["summarised", "summarised"]
    assert len([record for record in caplog.records if record.name == "langgraph_roundcompact" and "telemetry" in record.getMessage()]) <= 1
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_broken_meter_never_reaches_the_run() -> None:
    class Broken:
        def __getattr__(self, name: str) -> Any:
            raise ConnectionError

    subject = compactor(answering())
    subject._ports.telemetry = Telemetry("m", tracer_provider=TracerProvider(), meter_provider=Broken())
    assert subject.compact(history(1, 2)).outcome == "summarised"


# Another process: the providers of a process can be set once, and a package that was imported cannot be taken away.
_WITHOUT = """
import sys
sys.modules["opentelemetry"] = None
from langgraph_roundcompact import RoundCompactConfig, RoundCompactor
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
call = {"name": "look", "args": {}, "id": "c", "type": "tool_call"}
result = ToolMessage("y" * 40_000, tool_call_id="c", id="t")
given = [HumanMessage("Look", id="h"), AIMessage("", tool_calls=[call], id="a"), result, AIMessage("so", id="b")]
result = RoundCompactor(config=RoundCompactConfig(context_window_tokens=4000, keep_recent_messages=0), tiers=()).compact(given)
assert result.outcome == "digested", result.outcome
"""

_GLOBAL = (
    """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
"""
    + _WITHOUT.replace('sys.modules["opentelemetry"] = None', "")
    + """
assert [span.name for span in spans.get_finished_spans()] == ["round_compaction"]
"""
)


@pytest.mark.parametrize("script", [_WITHOUT, _GLOBAL], ids=["without the package", "with the process's provider"])
def test_in_a_process_of_its_own(script: str) -> None:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


class Runs(BaseTracer):
    """Keeps what a tracing backend is sent at the start of each run."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[Any] = []

    def _start_trace(self, run: Any) -> None:
        super()._start_trace(run)
        self.started.append(run)

    def _persist_run(self, run: Any) -> None:
        pass


@BOTH
def test_a_trace_of_the_summary_says_what_it_is_for(how: str) -> None:
    tracer = Runs()
    model = summariser("NOTES", callbacks=[tracer])
    compact(how, compactor(model), history(1, 2), thread_id="t-1")
    (run,) = [run for run in tracer.started if run.run_type in ("llm", "chat_model")]
    metadata = run.extra["metadata"]
    assert run.name == "round_compaction_summary"
    assert {name: value for name, value in metadata.items() if name.startswith("roundcompact") or name in ("thread_id", "lc_source")} == {
        "thread_id": "t-1",
        "lc_source": "round_compaction",
        "roundcompact_tokens_before": 2058,
        "roundcompact_tokens_trigger": 1000,
        "roundcompact_tokens_target": 625,
        "roundcompact_tokens_capacity": 2000,
    }


def test_events_carry_the_usage_of_the_summary() -> None:
    events: list[Any] = []
    compactor(answering(), on_event=events.append).compact(history(1, 2))
    assert [(event.phase, event.details.get("usage")) for event in events] == [("started", None), ("finished", USAGE)]


def test_a_summariser_is_named_as_its_provider_knows_it() -> None:
    class Named:
        model_name = "gpt-x"

    class Prefixed:
        model = "models/gemini-x"

    assert [model_name(model) for model in (None, Named(), Prefixed(), object())] == ["", "gpt-x", "gemini-x", "object"]
