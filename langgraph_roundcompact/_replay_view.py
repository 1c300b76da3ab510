"""Replayed conversations on a terminal: a line for each file, and for a few files what happened when."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.text import Text

from langgraph_roundcompact._terminal import Bar, Glyphs, cell, glyphs_of, picture
from langgraph_roundcompact.replay import ReplayReport, ReplayStep

_COLUMNS = (("messages", 8), ("compacted", 9), ("tokens without", 14), ("with", 11), ("", 5), ("largest", 8), ("with", 7))
"""Headings and widths; "with" and "without" are about compaction, the last two columns about the largest request."""

_NARROW = 100
"""Columns of a terminal below which the first figure is left out."""


def show_header(console: Console) -> None:
    """Names of the columns."""
    console.print(_cells("conversation", [(name, "") for name, _ in _COLUMNS], console), style="bold")


def show_report(report: ReplayReport, console: Console, *, capacity: int, trigger: int, details: bool) -> None:
    """One conversation: its line, and with `details` each decision and the picture."""
    glyphs = glyphs_of(console)
    console.print(_line(report.name, report.as_dict(), console, capacity))
    for failure in report.failures:
        console.print(Text(f"    {glyphs.failed} {failure}", "bold red"))
    if not details:
        return
    console.print()
    decisions = [step for step in report.steps if step.outcome != "below_trigger"]
    for _, run in groupby(decisions, key=lambda step: step.position if step.changed else -1):
        console.print(_decision(list(run), glyphs))
    if report.calls and decisions:
        bars = [Bar(step.tokens_after, step.tokens_before if step.changed else None) for step in report.calls]
        console.print(picture(bars, capacity=capacity, trigger=trigger, width=min(console.width, 120), height=8, glyphs=glyphs))
        console.print()


def show_totals(reports: Sequence[ReplayReport], console: Console, *, capacity: int) -> None:
    """All conversations together, and whether the invariants held."""
    glyphs, sums = glyphs_of(console), totals(reports)
    failures, checks = sums["invariant_failures"], sum(len(report.steps) for report in reports)
    if len(reports) > 1:
        console.print(_line(f"all {len(reports)}", sums, console, capacity), style="bold")
        console.print()
    words = f"{_many(failures, 'invariant failure')} in {_many(checks, 'check')} of {_many(len(reports), 'conversation')}"
    console.print(Text(f"{glyphs.failed if failures else glyphs.passed} {words}", "bold red" if failures else "bold green"))


def totals(reports: Sequence[ReplayReport]) -> dict[str, Any]:
    """Sums over conversations; the largest windows are maxima."""
    each = [report.as_dict() for report in reports]
    sums = ("messages", "model_calls", "compactions", "folds_only", "input_tokens_without", "input_tokens_with", "summary_tokens")
    found: dict[str, Any] = {name: sum(one[name] for one in each) for name in sums}
    found |= {name: max((one[name] for one in each), default=0) for name in ("largest_window_without", "largest_window_with")}
    return {"conversations": len(each), **found, "invariant_failures": sum(len(one["invariant_failures"]) for one in each)}


def _line(name: str, figures: dict[str, Any], console: Console, capacity: int) -> Text:
    without, with_ = figures["input_tokens_without"], figures["input_tokens_with"] + figures["summary_tokens"]
    largest = figures["largest_window_with"]
    change = f"{(with_ - without) / without:+.0%}" if without and with_ != without else ""
    numbers = (
        (f"{figures['messages']:,}", ""),
        (f"{figures['compactions']:,}", ""),
        (f"{without:,}", ""),
        (f"{with_:,}", ""),
        (change, "green" if change.startswith("-") else "yellow"),
        (f"{figures['largest_window_without']:,}", ""),
        (f"{largest:,}", "yellow" if largest > capacity else ""),
    )
    return _cells(name, numbers, console)


def _cells(name: str, texts: Sequence[tuple[str, str]], console: Console) -> Text:
    """A line of the table: texts with their styles, in columns that fit the terminal."""
    first = 1 if console.width < _NARROW else 0
    shown = list(zip(texts, _COLUMNS, strict=True))[first:]
    width = min(max(console.width - sum(2 + width for _, (_, width) in shown), 12), 40)
    line = Text(cell(name, width), no_wrap=True, overflow="ellipsis")
    for (text, style), (_, column) in shown:
        line.append("  " + cell(text, column, right=True), style)
    return line


def _many(number: int, name: str) -> str:
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def _decision(steps: Sequence[ReplayStep], glyphs: Glyphs) -> Text:
    """A compaction, or checks in a row that left the window alone."""
    step = steps[0]
    line = Text(f"    before message {step.position:>4}  {step.tokens_before:>7,} ", no_wrap=True, overflow="ellipsis")
    if not step.changed:
        why = ", ".join(dict.fromkeys(f"{one.outcome} ({one.reason})" for one in steps))
        times = f"left alone, {len(steps)} times" if len(steps) > 1 else "left alone"
        return line.append(f"tokens, {times}: {why}", "yellow")
    sizes = f"{glyphs.arrow} {step.tokens_after:,} tokens, {step.messages_before} {glyphs.arrow} {step.messages_after} messages"
    return line.append(f"{sizes}  {step.outcome} ({step.reason})", "green")
