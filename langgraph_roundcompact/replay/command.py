"""`roundcompact replay`: the run."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langgraph_roundcompact.errors import ConfigurationError
from langgraph_roundcompact.replay.arguments import check, config_of, summariser_of

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from langgraph_roundcompact._replay_view import Settings
    from langgraph_roundcompact.loaders import Conversation
    from langgraph_roundcompact.replay import Figures, Limits, Probe, Replay, ReplayReport, Tally

DETAILS_UP_TO = 3
"""Conversations whose decisions are shown without being asked for."""

NULL_SNAPSHOT = "<state_snapshot>\n### 1. Active Task\nSee the user's request.\n</state_snapshot>"
"""What `--summariser null` answers: nothing of use, so that what is left is what the rules keep."""

_SMALL_BYTES = 4 * 2**20
"""Files that are read so fast that nobody needs to see how far it is."""
_MATTERS = 0.6
"""Share of the trigger from which on it matters that a window is an estimate."""

ModelOf = Callable[[argparse.Namespace], Any]


def run(args: argparse.Namespace, model_of: ModelOf) -> int:
    """Play conversations message by message: what would be compacted when, what it saves, and whether the invariants hold."""
    from langgraph_roundcompact._terminal import make_console  # noqa: PLC0415 - needs the extra

    check(args)
    kind = summariser_of(args)
    session = _session(args, kind, model_of(args))
    console = make_console(plain=args.plain)
    played: list[_Played] = []
    with _progress(plain=args.plain) as progress:
        conversations = _load(args, session, progress)
        if conversations and not args.json:
            session.header(console)
        details = args.steps or len(conversations) <= DETAILS_UP_TO
        for one in _play(session, conversations, progress):
            played.append(one)
            if not args.json:
                session.show(one, console, details=details)
    args.estimate_matters = session.estimate_matters(played)
    if args.html and played:
        # Before anything long is printed: the reader of that may leave.
        _write_report(args.html, session.records)
    if args.json:
        print(json.dumps(_facts(args, session, played), indent=2))  # noqa: T201 - ASCII: it can be printed and read back however output is encoded
    elif played:
        session.conclude(played, console)
    return 1 if any(one.report.failures for one in played) else 2 if session.errors else 0


@dataclass(slots=True)
class _Played:
    """One conversation, played in all ways."""

    report: ReplayReport
    part_of: str | None
    compared: list[Figures]


@dataclass(slots=True)
class _Session:
    """Everything that one run of the command has in common."""

    replay: Replay
    settings: Settings
    limits: Limits
    names: Sequence[str]
    """Strategies to compare with."""
    probes: Sequence[Probe]
    weigh: bool
    """Whether requests are weighed at all."""
    records: list[dict[str, Any]]
    errors: list[str] = field(default_factory=list)

    def header(self, console: Any) -> None:
        from langgraph_roundcompact._replay_view import show_header  # noqa: PLC0415 - needs the extra

        show_header(console, self.settings)

    def show(self, one: _Played, console: Any, *, details: bool) -> None:
        from langgraph_roundcompact._replay_view import show_comparison, show_report  # noqa: PLC0415 - needs the extra

        show_report(one.report, console, settings=self.settings, details=details)
        if one.compared and details:
            show_comparison(one.report.name, one.compared, console)
            console.print()

    def conclude(self, played: Sequence[_Played], console: Any) -> None:
        from langgraph_roundcompact._replay_view import explain_comparison, show_comparison, show_totals  # noqa: PLC0415 - needs the extra

        show_totals([one.report for one in played], console, settings=self.settings)
        if self.weigh:
            if len(played) > 1:
                show_comparison(f"all {len(played)}", compared_totals(played), console)
            explain_comparison(console, settings=self.settings)

    def estimate_matters(self, played: Sequence[_Played]) -> bool:
        """Whether any decision could have come out otherwise with an exact count."""
        largest = max((step.tokens_before for one in played for step in one.report.steps), default=0)
        return largest >= _MATTERS * self.settings.trigger

    def tally(self, name: str, recording: Any) -> Tally:
        from langgraph_roundcompact.replay import Tally  # noqa: PLC0415 - langgraph is slow to import

        return Tally(
            name,
            recording,
            count=self.limits.count,
            capacity=self.settings.capacity,
            cached_price=self.settings.cached_price,
            probes=self.probes,
        )


def compared_totals(played: Sequence[_Played]) -> list[Figures]:
    """Each strategy over all conversations."""
    from langgraph_roundcompact.replay import Figures  # noqa: PLC0415 - langgraph is slow to import

    return [Figures.total(group) for group in zip(*(one.compared for one in played), strict=True)]


def _session(args: argparse.Namespace, kind: str, model: Any) -> _Session:
    from langgraph_roundcompact._replay_view import Settings  # noqa: PLC0415 - needs the extra
    from langgraph_roundcompact.dump import MemoryRecorder  # noqa: PLC0415 - slow to import
    from langgraph_roundcompact.replay import Limits, ProbeError, Replay, make_strategy, read_probes  # noqa: PLC0415 - langgraph is slow to import

    summariser = _stand_in() if kind == "null" else model
    config = config_of(args)
    recorder = MemoryRecorder() if args.html else None
    replay = Replay(config=config, model=summariser, recorder=recorder)
    plan = replay.compactor.plan([])
    limits = Limits(trigger=plan.trigger_tokens, target=plan.target_tokens, count=replay.compactor.count_tokens, model=model)
    for name in args.compare:
        make_strategy(name, limits)  # An unknown name, or a package that is missing, is told before anything is played.
    try:
        probes = read_probes(args.probes) if args.probes else []
    except ProbeError as exc:
        raise ConfigurationError(str(exc)) from None
    settings = Settings(
        capacity=plan.capacity_tokens,
        trigger=plan.trigger_tokens,
        target=plan.target_tokens,
        keep=config.keep_recent_messages,
        summariser=args.model or kind,
        cached_price=args.cached_price,
    )
    if recorder is not None:
        recorder.records.clear()  # The plan above left one.
    return _Session(replay, settings, limits, args.compare, probes, bool(args.compare or probes), recorder.records if recorder else [])


def _stand_in() -> Any:
    from langgraph_roundcompact.testing import ScriptedChatModel  # noqa: PLC0415 - only here

    return ScriptedChatModel(replies=[NULL_SNAPSHOT])


# --- reading --------------------------------------------------------------------------------------------------------------------------


def _load(args: argparse.Namespace, session: _Session, progress: Progress) -> list[Conversation]:
    """The conversations of all files and databases; what is none is told at once, and the others go on."""
    from langgraph_roundcompact.loaders import ConversationError, load_conversations  # noqa: PLC0415 - langchain is slow to import

    found: list[Conversation] = []

    def attempt(load: Callable[[], list[Conversation]]) -> None:
        try:
            found.extend(load())
        except ConversationError as exc:
            session.errors.append(str(exc))
            # A bar that is being drawn must not swallow the line.
            progress.stop()
            print(f"roundcompact replay: {exc}", file=sys.stderr)  # noqa: T201 - a command
            progress.start()

    for file in args.files:
        bar = _reading(progress, file)
        attempt(
            partial(
                load_conversations,
                file,
                format=args.format,
                messages_key=args.messages_key,
                progress=None if bar is None else partial(_read, progress, bar),
            )
        )
        if bar is not None:
            progress.remove_task(bar)
    for load in _databases(args):
        attempt(load)
    return found


def _read(progress: Progress, task: TaskID, done: int, total: int) -> None:
    progress.update(task, completed=done, total=total)


def _reading(progress: Progress, file: str) -> TaskID | None:
    """A bar for a file that takes a while."""
    from langgraph_roundcompact._terminal import cell  # noqa: PLC0415 - needs the extra

    path = Path(file)
    try:
        size = path.stat().st_size if path.is_file() else 0
    except (OSError, ValueError):
        size = 0
    return progress.add_task(cell(f"reading {path.name}", 34), total=size) if size > _SMALL_BYTES else None


def _databases(args: argparse.Namespace) -> Iterator[Callable[[], list[Conversation]]]:
    from langgraph_roundcompact.loaders import load_postgres, load_sqlite  # noqa: PLC0415 - langchain is slow to import

    places = ((load_sqlite, args.sqlite), (load_postgres, args.postgres))
    for load, place in ((load, place) for load, place in places if place is not None):
        for thread in args.thread or [None]:
            yield partial(_one, load, place, thread, args.messages_key)


def _one(load: Callable[..., Conversation], place: str, thread: str | None, messages_key: str) -> list[Conversation]:
    return [load(place, thread, messages_key=messages_key)]


# --- playing --------------------------------------------------------------------------------------------------------------------------


@contextmanager
def _progress(*, plain: bool) -> Iterator[Progress]:
    """A bar where somebody watches; where nobody does, nothing is drawn."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415 - needs the extra

    from langgraph_roundcompact._terminal import make_console  # noqa: PLC0415 - needs the extra

    console = make_console(plain=plain, stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield progress


def _play(session: _Session, conversations: Sequence[Conversation], progress: Progress) -> Iterator[_Played]:
    from langgraph_roundcompact._terminal import cell  # noqa: PLC0415 - needs the extra

    ways = 1 + len(session.names)
    task = progress.add_task("", total=ways * sum(len(one.messages) for one in conversations))
    done = 0
    for conversation in conversations:
        progress.update(task, description=cell(conversation.name, 34))
        yield _played(session, conversation, partial(_tell, progress, task, done))
        done += ways * len(conversation.messages)
    progress.remove_task(task)


def _tell(progress: Progress, task: TaskID, before: int, place: int) -> None:
    progress.update(task, completed=before + place)


def _played(session: _Session, conversation: Conversation, told: Callable[[int], None]) -> _Played:
    from langgraph_roundcompact.replay import Recording, make_strategy, report  # noqa: PLC0415 - langgraph is slow to import

    recording, steps, compared = Recording(conversation), [], []
    tally = session.tally("roundcompact", recording) if session.weigh else None
    for step in session.replay.steps(conversation, watch=tally.take if tally else None, recording=recording):
        steps.append(step)
        told(step.position)
    if tally is not None:
        compared.append(tally.figures())
    for number, name in enumerate(session.names, 1):
        tally = session.tally(name, recording)
        for request in make_strategy(name, session.limits).requests(recording):
            tally.take(request)
            told(number * len(recording.messages) + request.place)
        compared.append(tally.figures())
    return _Played(report(conversation, iter(steps)), conversation.part_of, compared)


# --- telling --------------------------------------------------------------------------------------------------------------------------


def _facts(args: argparse.Namespace, session: _Session, played: Sequence[_Played]) -> dict[str, Any]:
    """What `--json` prints; docs/replay.md tells each key."""
    from langgraph_roundcompact._replay_view import totals  # noqa: PLC0415 - needs the extra

    settings = session.settings
    facts: dict[str, Any] = {
        "window": args.window,
        "trigger": settings.trigger,
        "target": settings.target,
        "keep": settings.keep,
        "summariser": args.summariser or ("model" if args.model else "digest"),
        "counting": counting(),
        "totals": totals([one.report for one in played]),
        "conversations": [_told(one) for one in played],
        "not_read": session.errors,
    }
    if session.weigh:
        facts["cached_price"] = settings.cached_price
        facts["compared"] = [figures.as_dict() for figures in compared_totals(played)] if played else []
    return facts


def _told(one: _Played) -> dict[str, Any]:
    told = one.report.as_dict() | {"part_of": one.part_of}
    return told | {"compared": [figures.as_dict() for figures in one.compared]} if one.compared else told


def counting() -> str:
    """How tokens were counted: `o200k_base`, or `estimate` where tiktoken's encoding is not at hand."""
    from langgraph_roundcompact._encoding import ENCODING  # noqa: PLC0415 - only here
    from langgraph_roundcompact._meter import _TEXT_COUNTER  # noqa: PLC0415 - the one of this process, which has no public name

    return ENCODING if _TEXT_COUNTER.prepare() else "estimate"


def _write_report(file: str, records: Sequence[dict[str, Any]]) -> None:
    try:
        from langgraph_roundcompact.report import render_report  # noqa: PLC0415 - needs the extra
    except ImportError as exc:
        if (exc.name or "").startswith("langgraph_roundcompact"):
            msg = "--html: this installation has no report"
            raise ConfigurationError(msg) from None
        raise
    page = render_report(records)
    try:
        Path(file).write_text(page, "utf-8", errors="replace")
    except OSError as exc:
        msg = f"--html {file}: cannot be written ({exc.strerror or exc})"
        raise ConfigurationError(msg) from None
    print(f"report: {file}", file=sys.stderr)  # noqa: T201 - a command
