"""The page itself: a template with autoescape, its styles and its one script inlined, and a policy that lets nothing else run or load."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from langgraph_roundcompact import __version__
from langgraph_roundcompact.report._chart import short
from langgraph_roundcompact.report._cost import Prices
from langgraph_roundcompact.report._messages import Row
from langgraph_roundcompact.report._view import money, page_of
from langgraph_roundcompact.report._words import TONES, outcome_words, plural, reason_words

_HERE = Path(__file__).parent


def render_report(records: Sequence[Mapping[str, Any]], *, prices: Prices | None = None, title: str = "Compaction report") -> str:
    """The report as one HTML page that loads nothing.

    Args:
        records: What `read_dumps` gives, or records held in memory, in the order of time.
        prices: What tokens cost; by default round figures that the page states.
        title: Heading and title of the page.

    Raises:
        ImportError: jinja2 is not installed; the `cli` extra has it.
    """
    from markupsafe import Markup  # noqa: PLC0415 - an extra

    page = page_of(records, prices or Prices(), title)
    style, script = _source("page.css"), _source("page.js")
    template = _environment().get_template("page.html.j2")
    source: str = template.render(
        page=page,
        version=__version__,
        # Files of this package, and JSON in which no markup can begin.
        style=Markup(style),  # noqa: S704
        script=Markup(script),  # noqa: S704
        texts=Markup(_inert(page.texts)),  # noqa: S704
        style_hash=_hash(style),
        script_hash=_hash(script),
    )
    return source


@cache
def _environment() -> Any:
    import jinja2  # noqa: PLC0415 - an extra

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, loader=jinja2.FileSystemLoader(_HERE))
    environment.filters |= {"number": _number, "price": _price, "money": money, "short": short, "count": _count}
    environment.filters |= {"outcome": outcome_words, "reason": reason_words, "tone": lambda outcome: TONES.get(outcome, "")}
    return environment


@cache
def _source(name: str) -> str:
    return (_HERE / name).read_text("utf-8").replace("\r\n", "\n")


def _hash(source: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()


def _inert(value: Any) -> str:
    """JSON that can stand inside a script element: no `<`, no `&`, no line separators."""
    text = json.dumps(value, ensure_ascii=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _price(value: float) -> str:
    return f"${value:,.2f}" if round(value, 2) == value else f"${value:g}"


def _count(rows: Sequence[Row]) -> str:
    messages = sum(row.gap or 1 for row in rows)
    return f"{plural(messages, 'message')}, {sum(row.tokens for row in rows):,} tokens" if rows else "no messages"
