"""The demo on a terminal: the steps as they happen, then what it comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from langgraph_roundcompact._memory_block import is_own
from langgraph_roundcompact._terminal import Bar, Glyphs, cell, gauge, glyphs_of, picture
from langgraph_roundcompact.demo.agent import Demo, Step
from langgraph_roundcompact.demo.checks import Check

_HOW = {"digested": "by rules", "summarised": "by the model"}
_ROWS_BESIDES = 8
"""Rows of the terminal that the live table leaves to other things."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """Columns of the table, by the width there is."""

    glyphs: Glyphs
    calls: int
    gauge: int

    @classmethod
    def of(cls, console: Console) -> _Layout:
        wide = console.width >= 110
        gauge_width = 16 if wide else 8
        return cls(glyphs_of(console), min(max(console.width - gauge_width - 49, 16), 52), gauge_width)


def show(demo: Demo, console: Console) -> None:
    """Run the demo and show each step; on a terminal in place, otherwise line by line."""
    layout = _Layout.of(console)
    console.print(_opening(demo))
    console.print()
    if not console.is_terminal:
        console.print(_header(layout))
        for step in demo.run():
            console.print(_row(step, demo, layout))
        return
    with Live(console=console, refresh_per_second=15, transient=True) as live:
        for _ in demo.run():
            live.update(_table(demo, console.height, layout))
    # What stays on the screen is what the demo is about.
    console.print(_header(layout))
    for step in demo.steps:
        if step.event is not None:
            console.print(_row(step, demo, layout))


def conclude(demo: Demo, checks: list[Check], console: Console) -> None:
    """The picture of the window, the cost, and the claims."""
    glyphs = glyphs_of(console)
    bars = [Bar(step.tokens, step.event.tokens_before if step.compacted and step.event else None) for step in demo.steps]
    plan = demo.compactor.plan([])
    console.print()
    console.print("The window over time, in tokens", style="bold")
    console.print(picture(bars, capacity=plan.capacity_tokens, trigger=plan.trigger_tokens, width=min(console.width, 120), height=10, glyphs=glyphs))
    console.print()
    console.print(_cost(demo))
    console.print()
    for line in checks:
        mark = glyphs.passed if line.passed else glyphs.failed
        console.print(Text.assemble((f" {mark} ", "green" if line.passed else "bold red"), (line.text, "" if line.passed else "bold red")))


def show_checkpoint(demo: Demo, console: Console) -> None:
    """The last checkpoint and the recovered context behind it, as the model saw them."""
    last = next((step for step in reversed(demo.steps) if step.compacted), None)
    for message in last.request if last else ():
        if is_own(message):
            console.print()
            console.print(Text(message.text, "dim"), soft_wrap=True)


def facts(demo: Demo, checks: list[Check]) -> dict[str, Any]:
    """The same as plain data."""
    return {
        "window": demo.window,
        "passed": all(check.passed for check in checks),
        "checks": [{"passed": check.passed, "text": check.text} for check in checks],
        "compactions": sum(step.compacted for step in demo.steps),
        "input_tokens_with": sum(step.tokens for step in demo.steps),
        "input_tokens_without": sum(step.tokens_without for step in demo.steps),
        "report": demo.steps[-1].answer.text if demo.steps else "",
        "steps": [
            {
                "number": step.number,
                "calls": [{"name": call["name"], "args": call["args"]} for call in step.answer.tool_calls],
                "tokens": step.tokens,
                "tokens_without": step.tokens_without,
                "outcome": step.event.outcome if step.event else "below_trigger",
                "reason": step.event.reason if step.event else "below_threshold",
                "tokens_before": step.event.tokens_before if step.event else step.tokens,
            }
            for step in demo.steps
        ],
    }


def _opening(demo: Demo) -> Text:
    return Text.assemble(
        ("An agent reads ", ""),
        (str(demo.root), "bold"),
        (f" in a window of {demo.window:,} tokens.\n", ""),
        ("user: ", "bold"),
        (demo.task.request, "italic"),
    )


def _header(layout: _Layout) -> Text:
    columns = (cell("step", 4, right=True), cell("the agent calls", layout.calls), cell("window", layout.gauge + 8), "compaction before the call")
    return Text("  ".join(columns), "bold", no_wrap=True, overflow="ellipsis")


def _row(step: Step, demo: Demo, layout: _Layout) -> Text:
    row = Text(f"{step.number:>4}  {cell(_action(step), layout.calls)}  ", no_wrap=True, overflow="ellipsis")
    row.append_text(gauge(step.tokens, demo.window, demo.window * 4 // 5, layout.glyphs, layout.gauge))
    row.append(f" {step.tokens:>7,}  ")
    return row.append_text(_decision(step, layout.glyphs))


def _decision(step: Step, glyphs: Glyphs) -> Text:
    event = step.event
    if event is None:
        return Text("below the trigger", "bright_black")
    sizes = f"{event.tokens_before:,} {glyphs.arrow} {event.tokens_after:,}"
    if step.compacted:
        return Text(f"{sizes} {_HOW.get(event.outcome or '', '')}", "bold green")
    if event.outcome == "tiers_sufficed":
        return Text(f"{sizes} by folding", "green")
    return Text(f"none ({event.outcome}: {event.reason})", "yellow")


def _action(step: Step) -> str:
    calls = [_call(call["name"], call["args"]) for call in step.answer.tool_calls]
    return " + ".join(calls) or "reports"


def _call(name: str, args: dict[str, Any]) -> str:
    if name == "write_todos":
        done = sum(todo["status"] == "completed" for todo in args["todos"])
        return f"{name} {done}/{len(args['todos'])}"
    place = f":{args['start']}" if args.get("start", 1) > 1 else ""
    return f"{name} {args.get('path', '')}{place}" if name != "search" else name


def _table(demo: Demo, height: int, layout: _Layout) -> Group:
    """The last steps, as many as there is room for, and where the work stands."""
    last = demo.steps[-max(height - _ROWS_BESIDES, 5) :]
    done = sum(todo["status"] == "completed" for todo in demo.steps[-1].todos)
    compactions = sum(step.compacted for step in demo.steps)
    status = Text(f"      {done} of {demo.task.modules} modules {layout.glyphs.dot} {compactions} checkpoints", "bold")
    return Group(_header(layout), *(_row(step, demo, layout) for step in last), status)


def _cost(demo: Demo) -> Text:
    sent, without = sum(step.tokens for step in demo.steps), sum(step.tokens_without for step in demo.steps)
    largest = max(step.tokens_without for step in demo.steps)
    return Text.assemble(
        f"Input of {len(demo.steps)} model calls: ",
        (f"{sent:,} tokens", "bold green"),
        f". Without compaction: {without:,}, and a window of {largest:,}.",
    )
