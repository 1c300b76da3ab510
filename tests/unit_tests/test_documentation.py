"""Every name that a user can write or meet is documented once, with what the code says about it."""

from __future__ import annotations

import argparse
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import langgraph_roundcompact
from langgraph_roundcompact import CompressionRecallConfig, ModelClientConfig, RoundCompactConfig, RoundCompactor, cli
from langgraph_roundcompact.errors import ErrorKind
from langgraph_roundcompact.events import CompactionEvent, CompactionResult, Outcome, Phase, PlainReason

DOCS = Path(__file__).parents[2] / "docs"


def text_of(page: str) -> str:
    return (DOCS / f"{page}.md").read_text(encoding="utf-8")


def rows(page: str) -> list[list[str]]:
    """Cells of the table rows of a page."""
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text_of(page).splitlines() if line.startswith("| ")]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def section(page: str, first: str) -> list[list[str]]:
    """The table of a page that has a row for this name in its first column."""
    table: list[list[str]] = []
    for line in [*text_of(page).splitlines(), ""]:
        if line.startswith("|"):
            table.append([cell.strip() for cell in line.strip("|").split(" | ")])
        elif any(first in names(row[0]) for row in table):
            return table[2:]
        else:
            table = []
    return []


@pytest.mark.parametrize(
    ("config", "firsts"),
    [
        (RoundCompactConfig, ["context_window_tokens", "keep_recent_messages", "model", "compression_recall"]),
        (ModelClientConfig, ["provider"]),
        (CompressionRecallConfig, ["enabled"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_field_of_a_configuration_has_one_row_with_its_default(config: type, firsts: list[str]) -> None:
    told = [(names(row[0])[0], names(row[1])[0]) for first in firsts for row in section("configuration", first)]
    fields = [(name, _written(field.default)) for name, field in config.model_fields.items()]  # type: ignore[attr-defined]
    assert sorted(told) == sorted(fields)


def _written(default: object) -> str:
    if isinstance(default, CompressionRecallConfig):
        return "CompressionRecallConfig()"
    return repr(default).replace("'", '"')


def test_each_field_counted_in_tokens_seconds_or_messages_says_so() -> None:
    units = {names(row[0])[0]: row[2] for row in rows("configuration") if len(row) == 4 and names(row[0])}
    for name, unit in units.items():
        for word in ("tokens", "seconds", "messages", "ratio"):
            assert word in unit or not name.endswith(word), name


def test_each_argument_of_the_compactor_has_one_row() -> None:
    told = [names(row[0])[0] for row in section("configuration", "token_counter")]
    assert sorted(told) == sorted(set(inspect.signature(RoundCompactor).parameters))


def test_each_outcome_and_reason_stands_in_one_of_the_two_tables() -> None:
    """Those that leave the window alone with what to do about it, those that change it with what was done."""
    found: Counter[str] = Counter()
    for page, first in (("troubleshooting", "below_trigger"), ("results", "summarised")):
        for row in section(page, first):
            found.update(names(row[0]) + names(row[1]))
    words = {*get_args(Outcome), *get_args(PlainReason), *get_args(ErrorKind)} - {""}
    assert words - set(found) == set()
    assert set(found) - words == set()
    # Both an outcome and a reason, and the usual reason of several outcomes.
    assert {word for word, times in found.items() if times > 1} == {"target_below_min", "reached_threshold"}


def test_each_phase_and_field_of_an_event_and_field_of_a_result_is_told() -> None:
    assert [names(row[0])[0] for row in section("results", "started")] == list(get_args(Phase))
    told = [name for row in section("results", "details") for name in names(row[0])]
    assert sorted([*told, "phase"]) == sorted(CompactionEvent.__dataclass_fields__)
    told = [name for row in section("results", "memory_message") for name in names(row[0])]
    assert sorted(told) == sorted(CompactionResult.__dataclass_fields__)


def options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Command and long option, of all commands; several spellings of one option are one."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from ((name, option) for _, option in options(inner))
        elif action.option_strings and not isinstance(action, argparse._HelpAction):
            yield "", action.option_strings[-1] if action.option_strings[-1].startswith("--") else action.option_strings[0]


def test_each_option_of_the_command_line_is_told_on_its_page() -> None:
    pages = {"": "cli", "demo": "cli", "replay": "replay", "report": "report"}
    missing = [
        (command, option)
        for command, option in options(cli._parser())
        if not any(re.search(rf"`[^`]*{option}\b", text_of(page)) for page in {pages[command], "cli"})
    ]
    assert missing == []


def test_each_public_name_is_on_the_page_of_the_api() -> None:
    page = text_of("api")
    missing = [name for name in langgraph_roundcompact.__all__ if not re.search(rf"\.{name}$", page, re.MULTILINE)]
    assert missing == []


def test_the_first_screen_says_what_it_is_when_not_to_use_it_and_shows_a_block_with_its_output() -> None:
    lines = (DOCS.parent / "README.md").read_text(encoding="utf-8").splitlines()[:55]
    places = [
        next((i for i, line in enumerate(lines) if line.startswith(start)), -1)
        for start in ("# langgraph-roundcompact", "**Not for**", "make demo", "make test", "```python", "```text")
    ]
    assert -1 not in places
    assert places == sorted(places)
