"""`roundcompact`: see it work (`demo`), try it on conversations of your own (`replay`), look at what it did (`report`)."""

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
from typing import Any

from langgraph_roundcompact import __version__
from langgraph_roundcompact.config import ModelClientConfig, RoundCompactConfig
from langgraph_roundcompact.errors import ConfigurationError
from langgraph_roundcompact.replay.arguments import add_arguments as add_replay_arguments
from langgraph_roundcompact.replay.arguments import number as _number
from langgraph_roundcompact.report.command import add_arguments as add_report_arguments

DEMO_WINDOWS = (6_000, 32_000)
"""Windows the demo's task fills at least four times and still fits into, in tokens."""

EXTRA = "pip install 'langgraph-roundcompact[cli]'"

_ESTIMATED = "tiktoken's o200k_base encoding is not on this machine"
_ESTIMATED_SHORT = "tokens are estimated, within about 25 %: tiktoken's encoding is not on this machine"


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
            if not note.startswith(_ESTIMATED):
                print(f"note: {note}", file=sys.stderr)
            elif getattr(args, "estimate_matters", True):
                print(f"note: {_ESTIMATED_SHORT}", file=sys.stderr)
        # Here, and not when the interpreter ends: a reader that has left is no failure.
        sys.stdout.flush()
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
    """Warnings of the package, each once, to be printed at the end instead of in the middle of a table."""
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
    commands = parser.add_subparsers(title="commands", required=True, dest="name", metavar="{demo,replay,report}")
    demo = commands.add_parser("demo", help="watch an agent work far beyond its window", description=_demo.__doc__)
    low, high = DEMO_WINDOWS
    demo.add_argument("--window", type=_window, default=8_000, metavar="TOKENS", help=f"the agent's context window, {low} to {high} (default: 8000)")
    demo.add_argument("--checkpoint", action="store_true", help="print the last checkpoint at the end, as the model saw it")
    demo.set_defaults(command=_demo)
    replay = commands.add_parser("replay", help="play recorded conversations through compaction", description=_replay.__doc__)
    add_replay_arguments(replay)
    replay.set_defaults(command=_replay)
    report = commands.add_parser("report", help="a page about compactions that were dumped", description=_report.__doc__)
    add_report_arguments(report)
    report.set_defaults(command=_report)
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
    """Play recorded conversations message by message: what would be compacted when, what it saves, and whether the invariants hold."""
    from langgraph_roundcompact.replay.command import run  # noqa: PLC0415 - langgraph is slow to import

    return run(args, _model)


def _report(args: argparse.Namespace) -> int:
    """Write one self-contained HTML page about compactions that were dumped: what stayed, what was replaced by what, why, and what it cost."""
    from langgraph_roundcompact.report.command import run  # noqa: PLC0415 - as the other commands

    return run(args)


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
    try:
        return resolve_model(args.model, RoundCompactConfig(model=args.model, model_client=ModelClientConfig(api_base=args.base_url)))
    except ConfigurationError as exc:
        msg = f"--model {args.model} cannot be reached: set OPENAI_API_KEY, or give --base-url URL of a server that speaks OpenAI's protocol"
        raise ConfigurationError(msg) from exc


def _other_provider(name: str) -> Any:
    try:
        from langchain.chat_models import init_chat_model  # noqa: PLC0415 - an extra

        return init_chat_model(name)
    except Exception as exc:
        why = str(exc).splitlines()[0] if str(exc) else type(exc).__name__
        msg = (
            f"--model {name} cannot be had ({why}): give PROVIDER:NAME with a provider that langchain knows and whose package is installed, "
            "such as openai:gpt-5-mini, or --base-url URL of a server that speaks OpenAI's protocol"
        )
        raise ConfigurationError(msg) from exc


def _print_json(facts: dict[str, Any]) -> None:
    # ASCII: whatever a file was named, and however the output is encoded, it can be printed and read back.
    print(json.dumps(facts, indent=2))


def _window(text: str) -> int:
    low, high = DEMO_WINDOWS
    tokens = _number(text, 1)
    if not low <= tokens <= high:
        msg = f"the demo's task is made for windows of {low:,} to {high:,} tokens, not {tokens:,}"
        raise argparse.ArgumentTypeError(msg)
    return tokens


if __name__ == "__main__":
    sys.exit(main())
