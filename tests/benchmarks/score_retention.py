"""How many of the facts that an agent still needs survive compaction: the whole table, with the goals beside it.

    python tests/benchmarks/score_retention.py                       # budgets, passes, summarisers, windows: 48 rows
    python tests/benchmarks/score_retention.py --window default      # one window only
    python tests/benchmarks/score_retention.py --probes DIR --lost   # other facts; which were lost

The recorded transcripts, their facts and the way to count are those of `../shared/traces/score.py`. Ends with 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

from langchain_core.messages import BaseMessage
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

TRACES = Path(__file__).resolve().parents[2].parent / "shared" / "traces"

GOALS = {0.15: (0.95, 0.92), 0.10: (0.90, 0.87), 0.05: (0.75, 0.70)}
"""For each share of the round that may stay: what must survive of the needed facts, and of all."""
MOST_LOST_BY_PASSES = 0.03
"""How much less may survive several compactions than one."""
PASSES = (1, 5)
SUMMARISERS = ("none", "null")
WINDOWS = ("default", "8000", "16000", "32000")


@dataclass(frozen=True, order=True)
class Setting:
    """One row of the table."""

    window: str
    """Capacity in tokens; `default`: the size of the history."""
    summariser: str
    """`none`: rules only; `null`: a model whose summary says nothing."""
    budget: float
    passes: int


@dataclass
class Row:
    """What survived in one setting, over all transcripts."""

    needed: int = 0
    needed_kept: int = 0
    all: int = 0
    all_kept: int = 0
    shares: list[float] = field(default_factory=list)
    prefix_same: bool = True
    lost: list[str] = field(default_factory=list)

    @property
    def needed_share(self) -> float:
        return self.needed_kept / max(self.needed, 1)

    @property
    def all_share(self) -> float:
        return self.all_kept / max(self.all, 1)

    @property
    def mean_share(self) -> float:
        return sum(self.shares) / max(len(self.shares), 1)

    def add(self, other: Row) -> None:
        self.needed += other.needed
        self.needed_kept += other.needed_kept
        self.all += other.all
        self.all_kept += other.all_kept
        self.shares += other.shares
        self.prefix_same = self.prefix_same and other.prefix_same
        self.lost += other.lost


@cache
def kit() -> ModuleType:
    """The scorer, imported by its path."""
    spec = importlib.util.spec_from_file_location("shared_score", TRACES / "score.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(TRACES / "score.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def transcript(path: Path) -> list[BaseMessage]:
    messages: list[BaseMessage] = kit().load(path).messages
    return messages


def measure(job: tuple[Path, Setting]) -> tuple[Setting, Row]:
    """One transcript in one setting."""
    logging.disable(logging.CRITICAL)
    path, setting = job
    probes: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    score, last = kit(), probes["last_user_index"]
    history = transcript(TRACES / "transcripts" / f"{probes['id']}.jsonl")[: probes["mark_index"]]
    work = score.tokens(history[last + 1 :])
    after = compacted(history, last, setting, max(int(work * setting.budget), 1))
    text = "\n".join(score.visible(message) for message in after[last + 1 :])
    row = Row(shares=[score.tokens(after[last + 1 :]) / work])
    row.prefix_same = [message.model_dump() for message in after[: last + 1]] == [message.model_dump() for message in history[: last + 1]]
    for probe in probes["probes"]:
        kept = score.kept(probe, text)
        row.all, row.all_kept = row.all + 1, row.all_kept + kept
        if probe["needed_later"]:
            row.needed, row.needed_kept = row.needed + 1, row.needed_kept + kept
        if not kept:
            row.lost.append(f"{probes['id']}: {probe['strings'][0]}{' (needed)' if probe['needed_later'] else ''}")
    return setting, row


def compacted(history: Sequence[BaseMessage], last: int, setting: Setting, budget: int) -> list[BaseMessage]:
    """The history after as many compactions as asked for, spread over the round."""
    score = kit()
    model = score.NullSummariser() if setting.summariser == "null" else None
    window = score.tokens(history) if setting.window == "default" else int(setting.window)
    borders = [i for i in range(last + 2, len(history)) if history[i].type == "ai"]
    cuts = [borders[len(borders) * k // setting.passes] for k in range(1, setting.passes)] + [len(history)]
    after, start = list(history[: last + 1]), last + 1
    for stop in cuts:
        after = score.by_package([*after, *history[start:stop]], window, budget, model)
        start = stop
    return after


def misses(setting: Setting, rows: dict[Setting, Row]) -> Iterator[str]:
    """Why a setting misses its goals; nothing where it reaches them."""
    row, goal = rows[setting], GOALS[setting.budget]
    once = rows.get(Setting(setting.window, setting.summariser, setting.budget, 1))
    if setting.passes > 1 and once is not None:
        goal = (once.needed_share - MOST_LOST_BY_PASSES, once.all_share - MOST_LOST_BY_PASSES)
    if row.needed_share < goal[0]:
        yield f"needed under {goal[0]:.0%}"
    if row.all_share < goal[1]:
        yield f"all under {goal[1]:.0%}"
    if row.mean_share > setting.budget:
        yield "over the budget"
    if not row.prefix_same:
        yield "a prefix changed"


def table(rows: dict[Setting, Row]) -> Table:
    out = Table(title="Facts that survive", caption=f"Goals are for one pass; {PASSES[-1]} passes may lose {MOST_LOST_BY_PASSES:.0%} more.")
    for name in ("window", "summariser", "budget", "passes", "needed", "goal", "all", "goal", "kept of the round", ""):
        out.add_column(name, justify="left" if name in ("summariser", "") else "right")
    before = ""
    for setting in sorted(rows, key=lambda setting: (WINDOWS.index(setting.window), setting.summariser, -setting.budget, setting.passes)):
        row, goal = rows[setting], GOALS[setting.budget]
        wrong = ", ".join(misses(setting, rows))
        if before not in ("", setting.window):
            out.add_section()
        before = setting.window
        out.add_row(
            setting.window,
            setting.summariser,
            f"{setting.budget:.0%}",
            str(setting.passes),
            f"{row.needed_kept}/{row.needed} = {row.needed_share:.1%}",
            f"{goal[0]:.0%}",
            f"{row.all_kept}/{row.all} = {row.all_share:.1%}",
            f"{goal[1]:.0%}",
            f"{row.mean_share:.1%}",
            f"[red]{wrong}[/red]" if wrong else "[green]ok[/green]",
        )
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probes", type=Path, default=TRACES / "probes", help="folder with the facts to look for")
    parser.add_argument("--window", choices=WINDOWS, action="append", help="only this capacity; may be given more than once")
    parser.add_argument("--lost", action="store_true", help="list what was lost in one pass with rules only")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 130)
    paths = sorted(options.probes.glob("*.json"))
    if not (TRACES / "score.py").is_file() or not paths:
        console.print(
            f"[red]No transcripts to score:[/red] {TRACES}/score.py and facts in {options.probes} are needed.",
            "They are not part of this repository.",
        )
        return 2
    settings = [Setting(*values) for values in product(options.window or WINDOWS, SUMMARISERS, GOALS, PASSES)]
    rows: dict[Setting, Row] = {setting: Row() for setting in settings}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress, ProcessPoolExecutor(options.workers) as pool:
        jobs = list(product(paths, settings))
        task = progress.add_task("compacting", total=len(jobs))
        for setting, row in pool.map(measure, jobs, chunksize=4):
            rows[setting].add(row)
            progress.advance(task)
    console.print(table(rows))
    if options.lost:
        for budget in GOALS:
            lost = rows[Setting(settings[0].window, "none", budget, 1)].lost
            console.print(f"Lost at {budget:.0%}:", *(f"  {entry}" for entry in lost), sep="\n", markup=False)
    missed = sum(any(misses(setting, rows)) for setting in settings)
    console.print(f"[red]{missed} of {len(settings)} settings miss a goal.[/red]" if missed else "[green]Every goal is reached.[/green]")
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
