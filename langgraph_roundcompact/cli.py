"""`roundcompact`: see it work (`demo`), and try it on conversations of your own (`replay`)."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langgraph_roundcompact import __version__
from langgraph_roundcompact.config import ModelClientConfig, RoundCompactConfig
from langgraph_roundcompact.errors import ConfigurationError

if TYPE_CHECKING:
    from langgraph_roundcompact.loaders import Conversation
    from langgraph_roundcompact.replay import Replay, ReplayReport

DEMO_WINDOWS = (6_000, 32_000)
"""Windows the demo's task fills at least four times and still fits into, in tokens."""

DETAILS_UP_TO = 3
"""Conversations whose decisions are shown without being asked for."""

EXTRA = "pip install 'langgraph-roundcompact[cli]'"

NULL_SNAPSHOT = "<state_snapshot>\n### 1. Active Task\nSee the user's request.\n</state_snapshot>"
"""What `--summariser null` answers: nothing of use, so that what is left is what the rules keep."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: The arguments; by default those of the process.

    Returns:
        0: done, and everything held. 1: something did not hold. 2: wrong arguments or input. 130: interrupted.
    """
    args = _parser().parse_args(argv)
    try:
        with _notes() as notes:
            status = int(args.command(args))
        for note in notes:
            print(f"note: {note}", file=sys.stderr)
        return status
    except ImportError as exc:
        print(f"roundcompact {args.name}: {exc.name or exc} is not installed; {EXTRA}", file=sys.stderr)
        return 2
    except ConfigurationError as exc:
        print(f"roundcompact {args.name}: {exc}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader has left (`| head`); Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


@contextmanager
def _notes() -> Iterator[list[str]]:
    """Warnings of the package, each once, to be told at the end instead of in the middle of a table."""
    notes: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = record.getMessage()
            if text not in notes:
                notes.append(text)

    log, handler = logging.getLogger("langgraph_roundcompact"), Keep(logging.WARNING)
    log.addHandler(handler)
    try:
        yield notes
    finally:
        log.removeHandler(handler)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="roundcompact", description="Keeps a tool-using agent alive through very long tasks.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, dest="name")
    demo = commands.add_parser("demo", help="watch an agent work far beyond its window", description=_demo.__doc__)
    low, high = DEMO_WINDOWS
    demo.add_argument("--window", type=_window, default=8_000, metavar="TOKENS", help=f"the agent's context window, {low} to {high} (default: 8000)")
    demo.add_argument("--checkpoint", action="store_true", help="print the last checkpoint at the end, as the model saw it")
    demo.set_defaults(command=_demo)
    replay = commands.add_parser("replay", help="play recorded conversations through compaction", description=_replay.__doc__)
    replay.add_argument("files", nargs="+", type=Path, metavar="FILE", help="OpenAI chat JSON or JSONL, or LangChain messages as JSON")
    replay.add_argument("--window", type=_positive, default=32_000, metavar="TOKENS", help="context window to play with (default: 32000)")
    replay.add_argument("--keep", type=_count, default=None, metavar="N", help="messages kept at the end (default: what the model has not read yet)")
    replay.add_argument("--summariser", choices=("digest", "null", "model"), help="rules (the default), a stand-in that says nothing, or --model")
    replay.add_argument("--steps", action="store_true", help="show each decision, however many conversations there are")
    replay.set_defaults(command=_replay)
    for command in (demo, replay):
        command.add_argument("--model", metavar="PROVIDER:NAME", help="a real model for the summaries, such as openai:gpt-5-mini")
        command.add_argument("--base-url", metavar="URL", help="where --model is reached, for servers that speak OpenAI's protocol")
        command.add_argument("--plain", "--no-color", action="store_true", help="plain lines: no colour, nothing redrawn")
        command.add_argument("--json", action="store_true", help="the facts as JSON, for programs")
    return parser


def _demo(args: argparse.Namespace) -> int:
    """A LangGraph agent reviews the installed LangGraph sources in a window far too small for it. No key, no network."""
    from langgraph_roundcompact._terminal import make_console  # noqa: PLC0415 - needs the extra
    from langgraph_roundcompact.demo.agent import Demo, langgraph_sources  # noqa: PLC0415 - needs the extra
    from langgraph_roundcompact.demo.checks import check  # noqa: PLC0415 - needs the extra
    from langgraph_roundcompact.demo.view import conclude, facts, show, show_checkpoint  # noqa: PLC0415 - needs the extra

    with tempfile.TemporaryDirectory(prefix="roundcompact-") as folder:
        demo = Demo(window=args.window, folder=Path(folder), root=langgraph_sources(), model=_model(args))
        if args.json:
            steps = list(demo.run())
            checks = check(demo)
            assert steps
            _print_json(facts(demo, checks))
        else:
            console = make_console(plain=args.plain)
            show(demo, console)
            checks = check(demo)
            if args.checkpoint:
                show_checkpoint(demo, console)
            conclude(demo, checks, console)
    return 0 if all(claim.passed for claim in checks) else 1


def _replay(args: argparse.Namespace) -> int:
    """Play conversations message by message: what would be compacted when, what it saves, and whether the invariants hold."""
    from langgraph_roundcompact._replay_view import show_header, show_report, show_totals, totals  # noqa: PLC0415 - needs the extra
    from langgraph_roundcompact._terminal import make_console  # noqa: PLC0415 - needs the extra
    from langgraph_roundcompact.replay import Replay  # noqa: PLC0415 - langgraph is slow to import

    config = RoundCompactConfig(context_window_tokens=args.window, keep_recent_messages=args.keep)
    replay = Replay(config=config, model=_summariser(args))
    errors: list[str] = []
    conversations = list(_load(args.files, errors))
    plan = replay.compactor.plan([])
    console = make_console(plain=args.plain)
    details = args.steps or len(conversations) <= DETAILS_UP_TO
    reports = []
    if conversations and not args.json:
        show_header(console)
    for report in _played(replay, conversations, plain=args.plain):
        reports.append(report)
        if not args.json:
            show_report(report, console, capacity=plan.capacity_tokens, trigger=plan.trigger_tokens, details=details)
    if args.json:
        settings = {"window": args.window, "keep": args.keep, "summariser": args.summariser or ("model" if args.model else "digest")}
        _print_json({**settings, "totals": totals(reports), "conversations": [report.as_dict() for report in reports], "not_read": errors})
    elif reports:
        show_totals(reports, console, capacity=plan.capacity_tokens)
    failed = any(report.failures for report in reports)
    return 1 if failed else 2 if errors else 0


def _load(files: Sequence[Path], errors: list[str]) -> Iterator[Conversation]:
    """The conversations of all files; what is none is told at once, and the others go on."""
    from langgraph_roundcompact.loaders import ConversationError, load_conversations  # noqa: PLC0415 - langchain is slow to import

    for file in files:
        try:
            yield from load_conversations(file)
        except ConversationError as exc:
            errors.append(str(exc))
            print(f"roundcompact replay: {exc}", file=sys.stderr)


def _played(replay: Replay, conversations: Sequence[Conversation], *, plain: bool) -> Iterator[ReplayReport]:
    """The reports one by one, with a progress bar where somebody watches."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415 - needs the extra

    from langgraph_roundcompact._terminal import cell, make_console  # noqa: PLC0415 - needs the extra
    from langgraph_roundcompact.replay import report  # noqa: PLC0415 - langgraph is slow to import

    console = make_console(plain=plain, stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TextColumn("messages"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=sum(len(conversation.messages) for conversation in conversations))
        done = 0
        for conversation in conversations:
            progress.update(task, description=cell(conversation.name, 34))
            steps = []
            for step in replay.steps(conversation):
                steps.append(step)
                progress.update(task, completed=done + step.position)
            done += len(conversation.messages)
            yield report(conversation, iter(steps))


def _summariser(args: argparse.Namespace) -> Any:
    kind = args.summariser or ("model" if args.model else "digest")
    if kind == "model" and not args.model:
        msg = "--summariser model needs --model PROVIDER:NAME"
        raise ConfigurationError(msg)
    if kind != "model" and args.model:
        msg = f"--model is not asked with --summariser {kind}: leave one of them out"
        raise ConfigurationError(msg)
    model = _model(args)
    if kind == "null":
        from langgraph_roundcompact.testing import ScriptedChatModel  # noqa: PLC0415 - only here

        return ScriptedChatModel(replies=[NULL_SNAPSHOT])
    return model


def _model(args: argparse.Namespace) -> Any:
    """The model of `--model`: through langchain-openai, or for other providers through `langchain` where that is installed."""
    from langgraph_roundcompact._summariser import OPENAI_PROVIDERS, resolve_model  # noqa: PLC0415 - only here

    if args.model is None:
        if args.base_url is not None:
            msg = "--base-url says where --model is reached: give --model too"
            raise ConfigurationError(msg)
        return None
    provider, colon, _ = args.model.partition(":")
    if colon and args.base_url is None and provider.lower() not in OPENAI_PROVIDERS:
        return _other_provider(args.model)
    return resolve_model(args.model, RoundCompactConfig(model=args.model, model_client=ModelClientConfig(api_base=args.base_url)))


def _other_provider(name: str) -> Any:
    try:
        from langchain.chat_models import init_chat_model  # noqa: PLC0415 - an extra

        return init_chat_model(name)
    except Exception as exc:
        msg = f"--model {name}: {str(exc).splitlines()[0] if str(exc) else type(exc).__name__}"
        raise ConfigurationError(msg) from exc


def _print_json(facts: dict[str, Any]) -> None:
    # ASCII: whatever a file was named, and however the output is encoded, it can be printed and read back.
    print(json.dumps(facts, indent=2))


def _positive(text: str) -> int:
    return _number(text, 1)


def _count(text: str) -> int:
    return _number(text, 0)


def _window(text: str) -> int:
    low, high = DEMO_WINDOWS
    tokens = _number(text, 1)
    if not low <= tokens <= high:
        msg = f"the demo's task is made for windows of {low:,} to {high:,} tokens, not {tokens:,}"
        raise argparse.ArgumentTypeError(msg)
    return tokens


def _number(text: str, least: int) -> int:
    try:
        number = int(text.replace(",", "").replace("_", ""))
    except ValueError:
        number = least - 1
    if number < least:
        msg = f"{text!r} is not a whole number from {least} on"
        raise argparse.ArgumentTypeError(msg)
    return number


if __name__ == "__main__":
    sys.exit(main())
