"""Replayed conversations on a terminal: a line for each file, and for a few files what happened when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from langgraph_roundcompact._terminal import Bar, Glyphs, cell, glyphs_of, picture
from langgraph_roundcompact.replay import ReplayReport, ReplayStep

_NAME = 34


def show_report(report: ReplayReport, console: Console, *, capacity: int, trigger: int, details: bool) -> None:
    """One conversation: its line, and with `details` each decision and the picture."""
    glyphs = glyphs_of(console)
    console.print(_line(report.name, report.as_dict(), len(report.failures), glyphs))
    for failure in report.failures:
        console.print(Text(f"    {glyphs.failed} {failure}", "bold red"))
    if not details:
        return
    console.print()
    for step in report.steps:
        if step.outcome != "below_trigger":
            console.print(_decision(step, glyphs))
    if report.calls:
        bars = [Bar(step.tokens_after, step.tokens_before if step.changed else None) for step in report.calls]
        console.print(picture(bars, capacity=capacity, trigger=trigger, width=min(console.width, max(len(bars) + 10, 60)), height=8, glyphs=glyphs))
    console.print()


def show_header(console: Console) -> None:
    """Names of the columns."""
    columns = (cell("conversation", _NAME), *(cell(name, width, right=True) for name, width in zip(_COLUMNS, _WIDTHS, strict=True)))
    console.print(Text("  ".join(columns), "bold", no_wrap=True))


def show_totals(reports: Sequence[ReplayReport], console: Console) -> None:
    """All conversations together, and whether the invariants held."""
    glyphs, sums = glyphs_of(console), totals(reports)
    failures = sums["invariant_failures"]
    if len(reports) > 1:
        console.print(_line(f"all {len(reports)} conversations", sums, failures, glyphs), style="bold")
    checks = sum(len(report.steps) for report in reports)
    s, ss = "" if failures == 1 else "s", "" if len(reports) == 1 else "s"
    words = f"{failures} invariant failure{s} in {checks:,} checks of {len(reports)} conversation{ss}"
    console.print(Text(f"\n{glyphs.failed if failures else glyphs.passed} {words}", "bold red" if failures else "bold green"))


def totals(reports: Sequence[ReplayReport]) -> dict[str, Any]:
    """Sums over conversations; the largest windows are maxima."""
    each = [report.as_dict() for report in reports]
    sums = ("messages", "model_calls", "compactions", "folds_only", "input_tokens_without", "input_tokens_with", "summary_tokens")
    found: dict[str, Any] = {name: sum(one[name] for one in each) for name in sums}
    found |= {name: max((one[name] for one in each), default=0) for name in ("largest_window_without", "largest_window_with")}
    return {"conversations": len(each), **found, "invariant_failures": sum(len(one["invariant_failures"]) for one in each)}


_COLUMNS = ("messages", "compacted", "input without", "with", "", "widest", "with", "failures")
_WIDTHS = (8, 9, 13, 11, 5, 8, 7, 8)


def _line(name: str, figures: dict[str, Any], failures: int, glyphs: Glyphs) -> Text:
    without, with_ = figures["input_tokens_without"], figures["input_tokens_with"] + figures["summary_tokens"]
    change = f"{(with_ - without) / without:+.0%}" if without and with_ != without else glyphs.dot
    numbers = (
        f"{figures['messages']:,}",
        f"{figures['compactions']:,}",
        f"{without:,}",
        f"{with_:,}",
        change,
        f"{figures['largest_window_without']:,}",
        f"{figures['largest_window_with']:,}",
        f"{failures:,}",
    )
    cells = [cell(number, width, right=True) for number, width in zip(numbers, _WIDTHS, strict=True)]
    line = Text(cell(name, _NAME), no_wrap=True)
    for i, text in enumerate(cells):
        line.append("  " + text, "bold red" if i == len(cells) - 1 and failures else "green" if i == 4 and change.startswith("-") else "")
    return line


def _decision(step: ReplayStep, glyphs: Glyphs) -> Text:
    line = Text(f"    before message {step.position:>4}  ", no_wrap=True)
    if not step.changed:
        return line.append(f"{step.tokens_before:>7,} tokens, left alone: {step.outcome} ({step.reason})", "yellow")
    sizes = (
        f"{step.tokens_before:>7,} {glyphs.arrow} {step.tokens_after:,} tokens, {step.messages_before} {glyphs.arrow} {step.messages_after} messages"
    )
    return line.append(f"{sizes}  {step.outcome} ({step.reason})", "green")
