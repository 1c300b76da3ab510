"""Section `task_status`: background tasks and sub-agents that run beside the agent.

An agent that forgets it starts it again, or never fetches the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from langgraph_roundcompact._state import read_key
from langgraph_roundcompact.reinject._calls import argument, tool_keys, uses_of
from langgraph_roundcompact.reinject._context import ReinjectContext, lookup, one_line
from langgraph_roundcompact.reinject._items import raw_items

Phase = Literal["running", "finished", "stopped"]

_PHASES: dict[str, Phase] = {
    **dict.fromkeys(("running", "pending", "queued", "waiting", "in_progress", "started", "active", "submitted", "working"), "running"),
    **dict.fromkeys(("success", "succeeded", "completed", "complete", "done", "finished"), "finished"),
    **dict.fromkeys(("error", "failed", "failure", "timeout", "timed_out", "cancelled", "canceled", "interrupted", "killed"), "stopped"),
}
_HEADINGS: dict[Phase, str] = {
    "running": "Running: do not start these again; check on them by id.",
    "finished": "Finished: fetch the result if it is still needed.",
    "stopped": "Ended without success: look at the cause before starting again.",
}
_FIELDS = (
    ("agent", ("agent_name", "agent", "subagent_type")),
    ("thread", ("thread_id",)),
    ("run", ("run_id",)),
    ("result", ("result_path", "output_path", "output_file", "result_ref", "log_path", "result", "output")),
    ("error", ("error", "error_message")),
)


@dataclass(frozen=True, kw_only=True)
class TaskStatusBuilder:
    """Section `task_status`."""

    keys: tuple[str, ...] = ("async_tasks", "background_tasks", "tasks")
    """State keys with tasks by id, or lists of them; all that exist are read. What has neither id nor known status is no task."""
    planned_keys: tuple[str, ...] = ("tasks",)
    """Those of the keys in which a pending task is one that nobody has started."""
    tools: tuple[str, ...] = ("task",)
    """Tools that hand work to a sub-agent; their calls without a result are told."""

    def __call__(self, ctx: ReinjectContext, /) -> str | None:
        """What runs, what has finished, what ended badly; None without tasks."""
        told: dict[Phase, dict[str, str]] = {"running": {}, "finished": {}, "stopped": {}}
        for key in self.keys:
            for task_id, raw in _tasks(lookup(ctx, (key,))):
                status = _status(raw).lower().replace("-", "_").replace(" ", "_")
                phase = _PHASES.get(status)
                if phase is not None and not (status == "pending" and key in self.planned_keys):
                    told[phase].setdefault(task_id, _line(task_id, raw))
        parts = ["\n".join([_HEADINGS[phase], *lines.values()]) for phase, lines in told.items() if lines]
        lost = self._unanswered(ctx)
        if lost:
            parts.append("\n".join(["Handed to a sub-agent, no result recorded: check before handing it out again.", *lost]))
        return "\n\n".join(parts) or None

    def _unanswered(self, ctx: ReinjectContext) -> list[str]:
        wanted = tool_keys(self.tools)
        uses = (use for use in uses_of(ctx.target) if use.key in wanted and use.result is None)
        lines = (
            (one_line(argument(use.args, ("subagent_type", "agent"))), one_line(argument(use.args, ("description", "prompt", "task"))))
            for use in uses
        )
        return list(dict.fromkeys(f"- {': '.join(part for part in pair if part)}" for pair in lines if any(pair)))


def _tasks(value: Any) -> Iterator[tuple[str, Any]]:
    """`(id, record)` of every task in a mapping by id, a list, or one record."""
    if isinstance(value, Mapping) and not isinstance(value.get("status"), str):
        pairs: list[tuple[Any, Any]] = list(value.items())
    elif isinstance(value, str):
        return
    else:
        pairs = [(None, raw) for raw in raw_items([value] if isinstance(value, Mapping) else value)]
    for key, raw in pairs:
        own = next((found for name in ("task_id", "id", "thread_id") if (found := one_line(read_key(raw, name), 120))), "")
        task_id = own or one_line(key, 120) or one_line(read_key(raw, "name"), 120)
        if task_id:
            yield task_id, raw


def _status(raw: Any) -> str:
    if isinstance(raw, str):
        # A mapping of id to bare status.
        return one_line(raw, 40)
    value = next((found for key in ("status", "state") if (found := read_key(raw, key)) is not None), None)
    return one_line(value if isinstance(value, str) else read_key(value, "value"), 40)


def _line(task_id: str, raw: Any) -> str:
    what = next((text for key in ("description", "title", "prompt", "command", "name") if (text := one_line(read_key(raw, key), 200))), "")
    details = [
        f"{label} {text}"
        for label, keys in _FIELDS
        if (text := next((found for key in keys if (found := one_line(read_key(raw, key), 200))), "")) and text != task_id
    ]
    tail = f" ({'; '.join(details)})" if details else ""
    return f"- {task_id} [{_status(raw)}]{f' {what}' if what and what != task_id else ''}{tail}"
