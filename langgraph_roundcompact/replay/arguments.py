"""The arguments of `roundcompact replay`, and what they mean together. Nothing heavy is imported here: `--help` is quick."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from langgraph_roundcompact.config import RoundCompactConfig
from langgraph_roundcompact.errors import ConfigurationError

COMPARABLE = ("none", "tail", "langchain")
"""Other ways to keep a window in bounds."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `replay` alone; those it shares with other commands are theirs."""
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="recorded conversations, or - for standard input; see docs/replay.md for the formats"
    )
    source = parser.add_argument_group("where the conversations are")
    source.add_argument("--sqlite", metavar="FILE", help="a database of LangGraph's SqliteSaver")
    source.add_argument("--postgres", metavar="URL", help="a database of LangGraph's PostgresSaver")
    source.add_argument("--thread", action="append", metavar="ID", help="a thread of the database; may be given several times")
    source.add_argument("--messages-key", default="messages", metavar="KEY", help="the key of the state that holds the messages (default: messages)")
    source.add_argument("--format", metavar="NAME", help="the format of the files, where their shape does not tell it")
    play = parser.add_argument_group("what to try")
    play.add_argument("--window", type=_positive, default=32_000, metavar="TOKENS", help="context window to play with (default: 32000)")
    play.add_argument("--keep", type=_count, default=None, metavar="N", help="messages kept at the end (default: what the model has not read yet)")
    play.add_argument(
        "--set", action="append", default=[], metavar="FIELD=VALUE", help="a field of RoundCompactConfig, such as trigger_context_ratio=0.6"
    )
    play.add_argument("--summariser", choices=("digest", "null", "model"), help="rules (the default), a stand-in that says nothing, or --model")
    play.add_argument("--compare", type=_names, default=(), metavar="NAMES", help="other ways beside it: none,tail,langchain")
    play.add_argument(
        "--cached-price", type=_share, default=0.1, metavar="SHARE", help="price of a cached token, as a share of another one's (default: 0.1)"
    )
    play.add_argument("--probes", metavar="PATH", help="facts of your own to look for: a JSON file, or a folder of them")
    shown = parser.add_argument_group("what is shown")
    shown.add_argument("--steps", action="store_true", help="show each decision, however many conversations there are")
    shown.add_argument("--html", metavar="FILE", help="write the report as one page")


def check(args: argparse.Namespace) -> None:
    """Refuse what cannot be played.

    Raises:
        ConfigurationError: with what to give instead.
    """
    databases = [given for given in (args.sqlite, args.postgres) if given is not None]
    if not args.files and not databases:
        msg = "nothing to replay: give a FILE, - for standard input, --sqlite FILE or --postgres URL"
        raise ConfigurationError(msg)
    if args.thread and not databases:
        msg = "--thread names a thread of a database: give --sqlite FILE or --postgres URL too"
        raise ConfigurationError(msg)
    if args.files.count("-") > 1:
        msg = "standard input can be read once: give - once"
        raise ConfigurationError(msg)
    if args.html and (Path(args.html).is_dir() or not Path(args.html).absolute().parent.is_dir()):
        msg = f"--html {args.html}: there is no such folder to write a page to"
        raise ConfigurationError(msg)
    from langgraph_roundcompact.loaders import FORMATS  # noqa: PLC0415 - langchain is slow to import

    if args.format is not None and args.format not in FORMATS:
        msg = f"--format {args.format} is not known: choose from {', '.join(FORMATS)}"
        raise ConfigurationError(msg)


def config_of(args: argparse.Namespace) -> RoundCompactConfig:
    """The configuration to try: `--window`, `--keep` and each `--set`."""
    fields: dict[str, Any] = {"context_window_tokens": args.window, "keep_recent_messages": args.keep}
    for given in args.set:
        name, equals, text = given.partition("=")
        if not equals or not name:
            msg = f"--set {given}: give FIELD=VALUE, such as trigger_context_ratio=0.6"
            raise ConfigurationError(msg)
        try:
            fields[name] = json.loads(text)
        except (ValueError, RecursionError):
            fields[name] = text
    return RoundCompactConfig(**fields)


def summariser_of(args: argparse.Namespace) -> str:
    """Who makes the checkpoints: `digest`, `null` or `model`."""
    kind = str(args.summariser or ("model" if args.model else "digest"))
    if kind == "model" and not args.model:
        msg = "--summariser model needs --model PROVIDER:NAME"
        raise ConfigurationError(msg)
    if kind != "model" and args.model:
        msg = f"--model is not asked with --summariser {kind}: leave one of them out"
        raise ConfigurationError(msg)
    return kind


def _positive(text: str) -> int:
    return number(text, 1)


def _count(text: str) -> int:
    return number(text, 0)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names or set(names) - set(COMPARABLE):
        msg = f"{text!r}: choose from {','.join(COMPARABLE)}"
        raise argparse.ArgumentTypeError(msg)
    return names


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        msg = f"{text!r} is not a number from 0 to 1"
        raise argparse.ArgumentTypeError(msg)
    return share


def number(text: str, least: int) -> int:
    """A whole number from `least` on; `8_000` and `8,000` are 8000."""
    try:
        found = int(text.replace(",", "").replace("_", ""))
    except ValueError:
        found = least - 1
    if found < least:
        msg = f"{text!r} is not a whole number from {least} on"
        raise argparse.ArgumentTypeError(msg)
    return found
