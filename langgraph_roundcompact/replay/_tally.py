"""The cost of a conversation's requests, and how many facts they still hold.

The prefix cache is that of a provider at its best: of a request it has what the request before began with, message by message, and nothing else.
A price of cached tokens is given as a share of the price of others. What models write is left out: it is the same in each case.

Retention is asked where it matters, at the last model call of each round: of the exact texts that the package's ledger would take from the
round's work (paths, commands, errors, ids, numbers, …), the share that still stands verbatim in the request, by whatever means. Probes are the
same question with facts of one's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from langgraph_roundcompact.errors import RoundCompactError
from langgraph_roundcompact.replay._player import Request
from langgraph_roundcompact.replay._recording import FaultCount, Recording, common_prefix, stands_in, visible

CACHED_PRICE = 0.1
"""Price of a token that the provider's cache had, as a share of one that it had not: what most providers ask."""

_MOST_PROBE_BYTES = 32 * 1024 * 1024


class ProbeError(RoundCompactError, ValueError):
    """A file that holds no probes; the message says what is wrong in one line."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Facts of one's own to look for in one conversation."""

    conversation: str
    """Its name."""
    place: int
    """Recorded messages that have come when it is asked for."""
    facts: tuple[tuple[str, ...], ...]
    """For each fact the strings of which one must stand in the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """A conversation as one strategy would have sent it. Tokens are input tokens."""

    strategy: str
    requests: int
    tokens_sent: int
    """Of all requests, without the summariser's."""
    tokens_cached: int
    """Of those, what the prefix cache had."""
    tokens_uncached: int
    """Of those, what had to be read again."""
    summary_tokens: int
    """Read and written by the summariser."""
    bill: int
    """All in the price of uncached tokens: uncached + summaries + cached x the price of a cached one."""
    compactions: int
    """How often messages were summarised, or cut away."""
    largest_request: int
    requests_over_window: int
    requests_broken: int
    """Empty, or with more broken pairs of calls and results than the recording has at this place: a strict provider refuses them."""
    requests_without_request: int
    """In which the user's latest message no longer stands as it was written."""
    facts: int
    """Asked for, over all rounds."""
    facts_kept: int
    probes: int
    """Facts of one's own that were asked for."""
    probes_kept: int

    @property
    def request_kept(self) -> bool:
        """Whether the user's latest message stood in every request as it was written."""
        return self.requests_without_request == 0

    @property
    def retention(self) -> float | None:
        """Share of the facts that were kept; None: there were none."""
        return self.facts_kept / self.facts if self.facts else None

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        retention = self.retention
        return {**asdict(self), "request_kept": self.request_kept, "retention": None if retention is None else round(retention, 4)}

    @classmethod
    def total(cls, figures: Sequence[Figures]) -> Figures:
        """Several conversations under one strategy as one."""
        names = [name for name in cls.__dataclass_fields__ if name not in ("strategy", "largest_request")]
        sums = {name: sum(getattr(one, name) for one in figures) for name in names}
        return cls(strategy=figures[0].strategy, largest_request=max(one.largest_request for one in figures), **sums)


class Tally:
    """Weighs the requests of one strategy as they come; `take` is a `watch` of `Replay.steps`.

    Args:
        strategy: Its name.
        recording: The conversation that is played.
        count: Tokens of a list of messages.
        capacity: The window, in tokens.
        cached_price: Price of a cached token, as a share of one that is not.
        probes: Facts of one's own, for any conversations.
    """

    def __init__(
        self,
        strategy: str,
        recording: Recording,
        *,
        count: Callable[[Sequence[BaseMessage]], int],
        capacity: int,
        cached_price: float = CACHED_PRICE,
        probes: Iterable[Probe] = (),
    ) -> None:
        self._strategy, self._recording, self._count = strategy, recording, count
        self._capacity, self._price = capacity, cached_price
        calls = [place for place in recording.places if recording.is_model_call(place)]
        self._probes: dict[int, list[Probe]] = {}
        for probe in probes:
            if probe.conversation == recording.name and calls:
                self._probes.setdefault(next((place for place in calls if place >= probe.place), calls[-1]), []).append(probe)
        self._sums = dict.fromkeys(_SUMS, 0)
        self._largest = 0
        self._before: Sequence[BaseMessage] = ()
        self._tokens_before = 0
        self._faults = FaultCount()
        self._request: int | None = None
        self._request_stands = True
        self._empty = False
        self._first_said = 1 + next((i for i, message in enumerate(recording.messages) if not isinstance(message, SystemMessage)), 0)

    def take(self, request: Request) -> None:
        """The next request."""
        cached = self._cached(request)
        self._look(request)
        found = {
            "requests": 1,
            "tokens_sent": request.tokens,
            "tokens_cached": cached,
            "tokens_uncached": request.tokens - cached,
            "summary_tokens": request.summary_tokens,
            "compactions": int(request.compacted),
            "requests_over_window": int(request.tokens > self._capacity),
            "requests_broken": int(self._is_broken(request.place)),
            "requests_without_request": int(not self._request_stands),
            **self._kept(request),
        }
        for name, value in found.items():
            self._sums[name] += value
        self._largest = max(self._largest, request.tokens)
        self._before, self._tokens_before = request.messages, request.tokens

    def figures(self) -> Figures:
        """The sums so far."""
        sums = self._sums
        bill = sums["tokens_uncached"] + sums["summary_tokens"] + self._price * sums["tokens_cached"]
        return Figures(strategy=self._strategy, bill=round(bill), largest_request=self._largest, **sums)

    def _cached(self, request: Request) -> int:
        if request.extends:
            return self._tokens_before
        same = common_prefix(self._before, request.messages)
        return min(self._count(request.messages[:same]), request.tokens) if same else 0

    def _look(self, request: Request) -> None:
        """Whether pairs are whole and the user's message is there; read again only where something changed."""
        if request.extends:
            self._faults.extend(request.arrived)
            self._empty = self._empty and _says_nothing(request.arrived)
        else:
            self._faults = FaultCount(request.messages)
            self._empty = _says_nothing(request.messages)
        asked = self._recording.requests[request.place]
        if asked is not None and (asked != self._request or not request.extends):
            wanted = self._recording.messages[asked].content
            self._request_stands = any(isinstance(message, HumanMessage) and message.content == wanted for message in reversed(request.messages))
        self._request = asked

    def _is_broken(self, place: int) -> bool:
        if self._empty and place >= self._first_said:
            return True
        return self._faults.total > self._recording.faults[place]

    def _kept(self, request: Request) -> dict[str, int]:
        facts = self._recording.facts.get(request.place, ()) if request.place in self._recording.round_ends else ()
        probes = [fact for probe in self._probes.get(request.place, ()) for fact in probe.facts]
        if not facts and not probes:
            return {}
        text = "\n".join(visible(message) for message in request.messages)
        return {
            "facts": len(facts),
            "facts_kept": sum(stands_in(fact, text) for fact in facts),
            "probes": len(probes),
            "probes_kept": sum(any(stands_in(string, text) for string in strings) for strings in probes),
        }


def _says_nothing(messages: Iterable[BaseMessage]) -> bool:
    return all(isinstance(message, SystemMessage) for message in messages)


_SUMS = (
    "requests",
    "tokens_sent",
    "tokens_cached",
    "tokens_uncached",
    "summary_tokens",
    "compactions",
    "requests_over_window",
    "requests_broken",
    "requests_without_request",
    "facts",
    "facts_kept",
    "probes",
    "probes_kept",
)


def read_probes(path: str | Path) -> list[Probe]:
    """Probes from a JSON file, or from all JSON files of a folder.

    A file is `{"id": <name of the conversation>, "mark_index": <messages before the question>, "probes": [{"strings": [...]}, ...]}`; a fact counts
    as kept when one of its strings stands verbatim in the request.

    Raises:
        ProbeError: a file cannot be read or is none.
    """
    place = Path(path)
    files = sorted(place.glob("*.json")) if place.is_dir() else [place]
    if not files:
        msg = f"{place}: no .json files in this folder"
        raise ProbeError(msg)
    return [_probe(file) for file in files]


def _probe(file: Path) -> Probe:
    try:
        if file.stat().st_size > _MOST_PROBE_BYTES:
            msg = f"{file}: too large for a file of probes"
            raise ProbeError(msg)
        data = json.loads(file.read_text("utf-8"))
    except OSError as exc:
        msg = f"{file}: cannot be read ({exc.strerror or exc})"
        raise ProbeError(msg) from None
    except (ValueError, RecursionError) as exc:
        if isinstance(exc, ProbeError):
            raise
        msg = f"{file}: not JSON"
        raise ProbeError(msg) from None
    facts = _facts_in(data)
    if facts is None:
        msg = f'{file}: no probes; needed: {{"id": "…", "mark_index": 12, "probes": [{{"strings": ["…"]}}]}}'
        raise ProbeError(msg)
    return Probe(str(data["id"]), data["mark_index"], facts)


def _facts_in(data: Any) -> tuple[tuple[str, ...], ...] | None:
    if not isinstance(data, Mapping) or not isinstance(data.get("id"), str) or not isinstance(data.get("mark_index"), int):
        return None
    probes = data.get("probes")
    if not isinstance(probes, list):
        return None
    found = []
    for probe in probes:
        strings = probe.get("strings") if isinstance(probe, Mapping) else None
        if not isinstance(strings, list) or not all(isinstance(string, str) and string for string in strings):
            return None
        found.append(tuple(strings))
    return tuple(found)
