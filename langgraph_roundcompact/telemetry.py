"""OpenTelemetry spans and metrics of compactions, where `opentelemetry-api` is installed, and facts for the traces of summary calls.

One span a compaction (`round_compaction`), open while it runs, so that the summariser's own spans stand inside it. Nothing at all for a check
that finds room: that is every step of an agent. Attributes follow the GenAI semantic conventions where those have a name.

Whatever an exporter, a span processor or a reader raises ends here and is told in the log once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from langgraph_roundcompact._window import Limits, unwrap
from langgraph_roundcompact.events import CompactionEvent

log = logging.getLogger("langgraph_roundcompact")

SCOPE = "langgraph_roundcompact"
SPAN = "round_compaction"


class _Run:
    """One check, while it runs. It stands around every step of an agent, so it is made by hand to cost a microsecond."""

    __slots__ = ("attached", "began", "limits", "span", "telemetry", "thread_id", "token", "tokens_before")

    def __init__(self, telemetry: Telemetry, thread_id: str | None, limits: Limits) -> None:
        self.telemetry, self.thread_id, self.limits = telemetry, thread_id, limits
        self.tokens_before: int | None = None
        self.began = 0.0
        self.span: Any = None
        self.attached: Any = None

    def __enter__(self) -> None:
        self.token = _RUN.set(self)

    def __exit__(self, *failure: object) -> None:
        try:  # noqa: SIM105 - suppress() takes as long as the rest of this together
            _RUN.reset(self.token)
        except ValueError:  # a coroutine may be closed from another context
            pass
        if self.span is not None:
            self.telemetry.interrupted(self)


_RUN: ContextVar[_Run | None] = ContextVar("langgraph_roundcompact_run", default=None)


@dataclass(slots=True)
class _Instruments:
    """What the api gives us to write with."""

    tracer: Any
    meter: Any
    named: dict[str, Any] = field(default_factory=dict)


class Telemetry:
    """Spans and metrics of one compactor's runs, any number of them at once.

    Args:
        model: Name of the summariser, for the attributes; empty: unknown, or rules alone.
        tracer_provider: Where spans go; `None`: the process's provider.
        meter_provider: Where figures go; `None`: the process's provider.
    """

    def __init__(self, model: str = "", *, tracer_provider: Any = None, meter_provider: Any = None) -> None:
        self.model = model
        self._providers = (tracer_provider, meter_provider)
        self._instruments: _Instruments | None = None
        self._missing = False
        self._failure_logged = False

    def watching(self, thread_id: str | None, limits: Limits) -> AbstractContextManager[None]:
        """Around one check: what happens inside belongs to it, and a span it leaves open (a cancelled run) is ended."""
        return _Run(self, thread_id, limits)

    def interrupted(self, run: _Run) -> None:
        """End the span of a run that was interrupted before its last event."""
        self._safely(lambda: self._end(run, {"roundcompact.outcome": "interrupted"}))

    def observe(self, event: CompactionEvent) -> None:
        """Take one event of the check around us."""
        run = _RUN.get()
        if run is None or self._missing:
            return
        if event.phase == "started":
            run.tokens_before, run.began = event.tokens_before, time.perf_counter()
        self._safely(lambda: self._begin(run, event) if event.phase == "started" else self._finish(run, event))

    def _safely(self, work: Callable[[], None]) -> None:
        try:
            work()
        except ImportError:
            self._missing = True
        except Exception as exc:  # noqa: BLE001 - an exporter must never reach the run
            if not self._failure_logged:
                self._failure_logged = True
                log.warning("telemetry failed (%s); the run goes on, and this is said once", type(exc).__name__)

    def _ready(self) -> _Instruments:
        if self._instruments is None:
            from opentelemetry import metrics, trace  # noqa: PLC0415 - an extra, and slow to import

            tracer_provider, meter_provider = self._providers
            self._instruments = _Instruments(
                trace.get_tracer(SCOPE, tracer_provider=tracer_provider), metrics.get_meter(SCOPE, meter_provider=meter_provider)
            )
        return self._instruments

    def _begin(self, run: _Run, event: CompactionEvent) -> None:
        from opentelemetry import context, trace  # noqa: PLC0415 - an extra

        attributes = {
            "gen_ai.conversation.id": run.thread_id,
            "gen_ai.request.model": self.model,
            "roundcompact.trigger": event.reason,
            "roundcompact.tokens.before": event.tokens_before,
            "roundcompact.tokens.capacity": run.limits.capacity,
            "roundcompact.tokens.trigger": run.limits.trigger,
            "roundcompact.tokens.target": run.limits.target,
        }
        run.span = self._ready().tracer.start_span(SPAN, attributes=_known(attributes))
        run.attached = context.attach(trace.set_span_in_context(run.span))

    def _finish(self, run: _Run, event: CompactionEvent) -> None:
        outcome, usage = str(event.outcome), _usage(event)
        reclaimed = max(event.tokens_before - event.tokens_after, 0)
        if run.span is not None:
            figures = {
                "roundcompact.outcome": outcome,
                "roundcompact.reason": event.reason,
                "roundcompact.compacted": bool(event.details.get("compacted")),
                "roundcompact.tokens.after": event.tokens_after,
                "roundcompact.tokens.reclaimed": reclaimed,
                "roundcompact.attempts": event.details.get("attempts"),
                "roundcompact.archive.id": event.details.get("archive_id"),
                "gen_ai.usage.input_tokens": usage.get("input"),
                "gen_ai.usage.output_tokens": usage.get("output"),
                "gen_ai.usage.cache_read.input_tokens": usage.get("cached"),
                "error.type": event.reason if event.phase == "failed" else None,
            }
            self._end(run, figures, failed=event.phase == "failed")
        named = {"roundcompact.outcome": outcome, "roundcompact.reason": event.reason}
        self._count("compactions", 1, named, "{compaction}", "Checks that went past the trigger, by how they ended")
        self._count("tokens.reclaimed", reclaimed, named, "{token}", "Tokens taken out of windows")
        for kind in ("input", "output", "cached"):
            about = {"gen_ai.token.type": kind, "gen_ai.request.model": self.model}
            self._count(
                "summary.tokens", usage.get(kind, 0), _known(about), "{token}", "Tokens the summariser reported; cached ones count as input too"
            )
        if run.began:
            self._duration(time.perf_counter() - run.began, named)
            run.began = 0.0

    def _end(self, run: _Run, attributes: Mapping[str, Any], *, failed: bool = False) -> None:
        from opentelemetry import context, trace  # noqa: PLC0415 - an extra

        span, attached, run.span, run.attached = run.span, run.attached, None, None
        try:
            span.set_attributes(_known(attributes))
            if failed:
                span.set_status(trace.Status(trace.StatusCode.ERROR, str(attributes.get("error.type") or "")))
        finally:
            context.detach(attached)
            span.end()

    def _count(self, name: str, amount: int, attributes: Mapping[str, Any], unit: str, description: str) -> None:
        made = self._ready()
        if name not in made.named:
            made.named[name] = made.meter.create_counter(f"roundcompact.{name}", unit=unit, description=description)
        if amount:
            made.named[name].add(amount, dict(attributes))

    def _duration(self, seconds: float, attributes: Mapping[str, Any]) -> None:
        made = self._ready()
        if "duration" not in made.named:
            made.named["duration"] = made.meter.create_histogram("roundcompact.duration", unit="s", description="Time of one compaction")
        made.named["duration"].record(seconds, dict(attributes))


def call_facts() -> dict[str, Any]:
    """What a trace of the summary call should say about the compaction it belongs to, known before its outcome is."""
    run = _RUN.get()
    if run is None or run.tokens_before is None:
        return {}
    facts = {
        "thread_id": run.thread_id,
        "roundcompact_tokens_before": run.tokens_before,
        "roundcompact_tokens_trigger": run.limits.trigger,
        "roundcompact_tokens_target": run.limits.target,
        "roundcompact_tokens_capacity": run.limits.capacity,
    }
    return _known(facts)


def watched_thread() -> str | None:
    """The conversation that the check around us belongs to."""
    run = _RUN.get()
    return None if run is None else run.thread_id


def model_name(model: object | None) -> str:
    """The summariser's name as its provider knows it; of a runnable without one, its type; empty without a summariser."""
    if model is None:
        return ""
    inner = unwrap(model) or model
    for name in ("model_name", "model", "model_id", "azure_deployment", "deployment_name"):
        value = getattr(inner, name, None)
        if isinstance(value, str) and value:
            return value.removeprefix("models/")
    return type(inner).__name__


def _usage(event: CompactionEvent) -> dict[str, int]:
    """Tokens by sort, of what the summariser reported."""
    usage = event.details.get("usage")
    if not isinstance(usage, Mapping):
        return {}
    details = usage.get("input_token_details")
    cached = details.get("cache_read") if isinstance(details, Mapping) else None
    found = {"input": usage.get("input_tokens"), "output": usage.get("output_tokens"), "cached": cached}
    return {name: value for name, value in found.items() if isinstance(value, int)}


def _known(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None and value != ""}
