"""`roundcompact report`: the arguments, and the run."""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path

DEFAULT_OUT = "report.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("dump", type=Path, metavar="DUMP_DIR|FILE", help="a folder that enable_compression_dump wrote, or one file of it")
    parser.add_argument(
        "-o", "--out", default=DEFAULT_OUT, metavar="FILE", help=f"where the page goes; - for standard output (default: {DEFAULT_OUT})"
    )
    parser.add_argument("--title", default="Compaction report", help="title of the page")
    for name, what in (("in", "input"), ("cached", "input from the prefix cache"), ("out", "output")):
        parser.add_argument(f"--price-{name}", type=_price, metavar="PRICE", help=f"price of a million tokens of {what}")


def run(args: argparse.Namespace) -> int:
    """Write one self-contained HTML page about the compactions that were dumped."""
    from langgraph_roundcompact.report import DumpError, Prices, read_dumps, render_report  # noqa: PLC0415 - only here

    given = {"input": args.price_in, "cached": args.price_cached, "output": args.price_out}
    prices = Prices(**{name: price for name, price in given.items() if price is not None})
    try:
        records = read_dumps(args.dump)
    except DumpError as exc:
        return _refuse(str(exc))
    page = render_report(records, prices=prices, title=args.title).encode("utf-8", "replace")
    if args.out == "-":
        sys.stdout.buffer.write(page)
        return 0
    try:
        _write(Path(args.out), page)
    except OSError as exc:
        return _refuse(f"{args.out}: {exc.strerror or type(exc).__name__}")
    made = sum(record.get("kind") == "compaction" for record in records)
    print(f"{args.out}: {made:,} checkpoint{'' if made == 1 else 's'}, {len(page):,} bytes")  # noqa: T201 - what the command says
    return 0


def _write(path: Path, page: bytes) -> None:
    """Whole or not at all: a report that was there stays until the new one is."""
    if path.exists() and not path.is_file():
        path.write_bytes(page)  # a device or a pipe; a folder is refused here
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        temporary.write_bytes(page)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _refuse(why: str) -> int:
    print(f"roundcompact report: {why}", file=sys.stderr)  # noqa: T201 - what the command says
    return 2


def _price(text: str) -> float:
    try:
        price = float(text.lstrip("$").replace(",", ""))
    except ValueError:
        price = -1.0
    if not 0 <= price < math.inf:
        msg = f"{text!r} is not a price"
        raise argparse.ArgumentTypeError(msg)
    return price
