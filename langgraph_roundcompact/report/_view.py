"""What the page shows, as plain values: everything is computed here, so that the template only places it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langgraph_roundcompact.report._chart import Chart, chart_of
from langgraph_roundcompact.report._cost import Cost, Prices, cost_of, sum_of
from langgraph_roundcompact.report._messages import Pool, Row, row_of, rows_of, tools_of
from langgraph_roundcompact.report._runs import Check, Run, runs_of
from langgraph_roundcompact.report._text import content_text, items_at, number_at, one_line, text_at, visible
from langgraph_roundcompact.report._words import ADVICE, outcome_words, plural, reason_words

MOST_QUIET = 40
"""Reasons for which a check left the window alone, the most frequent ones."""

MOST_FACTS = 400
"""Of one list of the audit that are shown."""


@dataclass(slots=True)
class Segment:
    """A part of a window, as a share of a bar."""

    kind: str
    name: str
    tokens: int
    start: float = 0.0
    width: float = 0.0


@dataclass(slots=True)
class TierGain:
    """What one tier did."""

    name: str
    tried: int = 0
    applied: int = 0
    tokens: int = 0
    given_up: int = 0
    """Tokens it gained that were given up again, because a checkpoint was made from the originals."""


@dataclass(slots=True)
class Facts:
    """One list of the audit."""

    kind: str
    title: str
    meaning: str
    texts: list[str]
    more: int


@dataclass(slots=True)
class Card:
    """One checkpoint."""

    key: str
    number: int
    check: int
    at: str
    outcome: str
    reason: str
    before: int
    after: int
    model: str
    file: str
    bars: tuple[list[Segment], list[Segment]]
    prefix: list[Row]
    replaced: list[Row]
    kept: list[Row]
    new: list[Row]
    block: str
    recovered: str
    request: list[Row]
    request_tokens: int
    response: Row | None
    facts: list[Facts]
    attempts: list[dict[str, Any]]
    tiers: list[TierGain]
    usage: dict[str, int]
    archive_id: str

    @property
    def percent(self) -> str:
        """Change of the window."""
        return f"{(self.after - self.before) / self.before:+.0%}".replace("-", "−") if self.before else ""


@dataclass(slots=True)
class FoldStep:
    """A step at which folds were enough."""

    key: str
    check: int
    before: int
    after: int
    folds: list[dict[str, Any]]


@dataclass(slots=True)
class Section:
    """One run on the page."""

    key: str
    title: str
    subtitle: str
    run: Run
    charts: tuple[Chart, Chart] | None
    cards: list[Card]
    folds: list[FoldStep]
    quiet: list[tuple[str, str, str, int]]
    """Outcome, reason, advice and how often, where a check left the window alone."""
    cost: Cost
    facts: tuple[set[str], set[str]]
    """Facts of the round that the last checkpoint holds, and those that it or an earlier one dropped."""


@dataclass(slots=True)
class Page:
    """The whole report."""

    title: str
    headline: str
    subline: str
    tiles: list[tuple[str, str, str, str]]
    """Name, figure, what it means, tone."""
    sections: list[Section]
    tiers: list[TierGain]
    cost: Cost
    prices: Prices
    unreadable: list[str]
    texts: list[str] = field(default_factory=list)


def page_of(records: Sequence[Mapping[str, Any]], prices: Prices, title: str) -> Page:
    """The page of some records."""
    pool, runs = Pool(), runs_of(records)
    sections, first = [], 1
    for i, run in enumerate(runs, 1):
        section = _section(run, i, first, pool)
        first += len(section.cards)
        sections.append(section)
    cost = sum_of(section.cost for section in sections)
    unreadable = [text_at(record, "text") for record in records if record.get("kind") == "unreadable"]
    headline, subline = _headline(sections)
    tiers = _gains(check for run in runs for check in run.checks)
    return Page(visible(title), headline, subline, _tiles(sections, cost, prices), sections, tiers, cost, prices, unreadable[:50], pool.texts)


def _section(run: Run, number: int, first: int, pool: Pool) -> Section:
    cards: list[Card] = []
    folds: list[FoldStep] = []
    names: dict[int, str] = {}
    for check in run.checks:
        if check.compactions:
            names[check.number] = f"c{first + len(cards)}"
            cards += [_card(record, check, first + len(cards) + i, pool) for i, record in enumerate(check.compactions)]
        elif check.reclaimed:
            names[check.number] = f"s{number}-f{check.number}"
            folds.append(FoldStep(names[check.number], check.number, check.before, check.after, _folds(check)))
    charts = None
    if run.checks:
        charts = (chart_of(run, names, width=1040, height=320), chart_of(run, names, width=400, height=260))
    about = [f"graph {run.checkpoint_ns}"] if run.checkpoint_ns else []
    about.append(plural(len(run.checks), "model call" if run.complete else "compaction"))
    if run.capacity:
        about.append(f"window of {run.capacity:,} tokens, trigger at {run.trigger:,}")
    quiet = [
        (outcome_words(outcome), ": ".join(filter(None, (reason_words(reason), one_line(detail, 300)))), ADVICE.get(reason, ""), count)
        for (outcome, reason, detail), count in run.nothing_happened.most_common(MOST_QUIET)
    ]
    title = f"Thread {one_line(run.thread_id, 80)}" if run.thread_id else "Without a thread id"
    return Section(f"s{number}", title, " · ".join(about), run, charts, cards, folds, quiet, cost_of(run), _held(run))


def _card(record: Mapping[str, Any], check: Check, number: int, pool: Pool) -> Card:
    new = [row_of(message, "checkpoint", pool) for message in items_at(record, "checkpoint")]
    spans = {name: items_at(record, "spans", name) for name in ("prefix", "replaced", "kept")}
    tools = tools_of(message for span in spans.values() for message in span)
    response = record.get("response")
    usage = {
        "input": number_at(record, "usage", "input_tokens"),
        "cached": number_at(record, "usage", "input_token_details", "cache_read"),
        "output": number_at(record, "usage", "output_tokens"),
    }
    return Card(
        key=f"c{number}",
        number=number,
        check=check.number,
        at=text_at(record, "at").replace("T", " ")[:19],
        outcome=text_at(record, "outcome"),
        reason=text_at(record, "reason"),
        before=number_at(record, "tokens", "before"),
        after=number_at(record, "tokens", "after"),
        model=one_line(text_at(record, "model"), 80),
        file=text_at(record, "file"),
        bars=_bars(record, spans),
        prefix=rows_of(spans["prefix"], "stayed", pool, tools),
        replaced=rows_of(spans["replaced"], "replaced", pool, tools),
        kept=rows_of(spans["kept"], "stayed", pool, tools),
        new=new,
        block="\n\n".join(content_text(message.get("content")) for message in items_at(record, "checkpoint") if isinstance(message, Mapping)),
        recovered=text_at(record, "recovered_context"),
        request=[row_of(message, "stayed", pool) for message in items_at(record, "request", "messages")],
        request_tokens=number_at(record, "request", "tokens"),
        response=row_of(response, "stayed", pool) if isinstance(response, Mapping) else None,
        facts=_facts(record),
        attempts=[_attempt(attempt) for attempt in items_at(record, "attempts")],
        tiers=_gains([check]),
        usage=usage,
        archive_id=text_at(record, "archive_id"),
    )


def _attempt(attempt: Any) -> dict[str, Any]:
    texts = {name: text_at(attempt, name) for name in ("number", "kind", "detail")}
    return {**texts, "request_tokens": number_at(attempt, "request_tokens")}


def _held(run: Run) -> tuple[set[str], set[str]]:
    held: set[str] = set()
    known: set[str] = set()
    for record in (record for check in run.compactions for record in check.compactions):
        held = {str(text) for kind in ("kept", "added") for text in items_at(record, "audit", kind)}
        known |= held | {str(text) for text in items_at(record, "audit", "dropped")}
    return held, known - held


def _facts(record: Mapping[str, Any]) -> list[Facts]:
    kinds = (
        ("kept", "In the summary", "the summary says them verbatim"),
        ("added", "Added by the ledger", "the summary left them out; they stand beside it, verbatim"),
        ("dropped", "Dropped for room", "least useful first; they are in the originals only"),
    )
    found = []
    for kind, title, meaning in kinds:
        texts = [content_text(text) for text in items_at(record, "audit", kind)]
        found.append(Facts(kind, title, meaning, texts[:MOST_FACTS], max(len(texts) - MOST_FACTS, 0)))
    return found


def _bars(record: Mapping[str, Any], spans: Mapping[str, Sequence[Any]]) -> tuple[list[Segment], list[Segment]]:
    """Both windows by what they are made of. What no message accounts for is system prompt, tools and the like."""
    tokens = {name: sum(number_at(message, "tokens") for message in span) for name, span in spans.items()}
    before, after = number_at(record, "tokens", "before"), number_at(record, "tokens", "after")
    new = sum(number_at(message, "tokens") for message in items_at(record, "checkpoint"))
    other = max(before - sum(tokens.values()), 0)
    fixed = [Segment("other", "system prompt, tools", other), Segment("stayed", "preserved before", tokens["prefix"])]
    tail = Segment("stayed", "kept at the end", tokens["kept"])
    old = [*fixed, Segment("replaced", "replaced", tokens["replaced"]), tail]
    now = [
        *(Segment(part.kind, part.name, part.tokens) for part in fixed),
        Segment("checkpoint", "checkpoint", new),
        Segment("stayed", tail.name, tail.tokens),
    ]
    scale = max(sum(part.tokens for part in old), sum(part.tokens for part in now), before, after, 1)
    return _placed(old, scale), _placed(now, scale)


def _placed(parts: list[Segment], scale: int) -> list[Segment]:
    start = 0.0
    for part in parts:
        part.start, part.width = round(start, 2), round(part.tokens / scale * 100, 2)
        start += part.width
    return [part for part in parts if part.tokens]


def _folds(check: Check) -> list[dict[str, Any]]:
    lines = [line for line in check.lines if line.get("kind") == "tier" and line.get("applied")]
    return [
        {
            "tier": text_at(line, "tier"),
            "name": text_at(fold, "name") or text_at(fold, "id"),
            "before": number_at(fold, "characters_before"),
            "after": number_at(fold, "characters_after"),
            "head": text_at(fold, "head"),
        }
        for line in lines
        for fold in items_at(line, "messages")
    ]


def _gains(checks: Iterable[Check]) -> list[TierGain]:
    """What each tier did, by the decisions where they were noted, else by the records of the compactions."""
    found: dict[str, TierGain] = {}
    for check in checks:
        noted = [line for line in check.lines if line.get("kind") == "tier"]
        for line in noted or [tier for record in check.compactions for tier in items_at(record, "tiers")]:
            name = text_at(line, "tier")
            gain = found.setdefault(name, TierGain(name))
            gain.tried += 1
            if isinstance(line, Mapping) and line.get("applied"):
                gain.applied += 1
                tokens = max(number_at(line, "tokens_before") - number_at(line, "tokens_after"), 0)
                gain.tokens += 0 if check.compactions else tokens
                gain.given_up += tokens if check.compactions else 0
    return list(found.values())


def _headline(sections: Sequence[Section]) -> tuple[str, str]:
    cards = [card for section in sections for card in section.cards]
    folds = [fold for section in sections for fold in section.folds]
    checks = sum(len(section.run.checks) for section in sections)
    gone = sum(check.reclaimed for section in sections for check in section.run.checks)
    if not cards and not folds:
        most = Counter(reason for section in sections for _, reason, _, count in section.quiet for _ in range(count)).most_common(1)
        why = f": {most[0][0]}" if most else ""
        return "Nothing was compacted.", f"{plural(checks, 'check')}{why}."
    did = [plural(len(cards), "checkpoint")] if cards else []
    did += [plural(len(folds), "step") + " of folding"] if folds else []
    windows = sorted({section.run.capacity for section in sections if section.run.capacity})
    window = f" a {windows[0]:,}-token window" if len(windows) == 1 else " the window"
    dropped = sum(len(section.facts[1]) for section in sections)
    lost = "No fact was dropped." if not dropped else f"{plural(dropped, 'fact')} did not fit and {'is' if dropped == 1 else 'are'} listed."
    return (
        f"{gone:,} tokens of finished work were taken out of{window}.",
        f"{' and '.join(did)} in {plural(checks, 'check')}. {lost if cards else ''}".strip(),
    )


def _tiles(sections: Sequence[Section], cost: Cost, prices: Prices) -> list[tuple[str, str, str, str]]:
    checks = [check for section in sections for check in section.run.checks]
    cards = [card for section in sections for card in section.cards]
    held, dropped = (sum(len(section.facts[i]) for section in sections) for i in (0, 1))
    largest = max((check.after for check in checks), default=0)
    capacity = max((section.run.capacity for section in sections), default=0)
    folds = sum(len(section.folds) for section in sections)
    tiles = [
        (
            "Checkpoints",
            f"{len(cards):,}",
            f"and {plural(folds, 'step')} where folding was enough" if folds else "work replaced by one message each",
            "",
        ),
        (
            "Largest window sent",
            f"{largest:,}",
            f"of {capacity:,} tokens" if capacity else "tokens",
            "bad" if capacity and largest > capacity else "",
        ),
        (
            "Facts held at the end",
            f"{held:,} of {held + dropped:,}" if held + dropped else "–",
            f"{dropped:,} dropped for room",
            "warn" if dropped else "",
        ),
    ]
    with_, without = cost.with_.total(prices), cost.without.total(prices)
    if cost.complete and without:
        change = f"{(with_ - without) / without:+.0%}".replace("-", "−")
        tone = "good" if with_ < without else "warn" if with_ > without else ""
        tiles.append(("Input cost", change if tone else "the same", f"{money(with_)} instead of {money(without)}", tone))
    else:
        tiles.append(("Summaries cost", money(cost.with_.summaries(prices)), "the calls themselves are not recorded here", ""))
    return tiles


def money(amount: float) -> str:
    """An amount in the currency of the prices."""
    return f"${amount:,.2f}" if amount >= 1 or amount == 0 else f"${amount:.4f}"
