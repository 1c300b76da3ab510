"""Whether what a checkpoint has replaced is found again: recorded work is compacted to 5 % with an archive, then asked about.

    python tests/benchmarks/score_recall.py                  # the three figures with their goals
    python tests/benchmarks/score_recall.py --chunk 500 --overlap 50 --lost

For each fact of the recorded transcripts: (a) a search for the fact's description shows one of its strings in one of the first three passages;
(b) the same with those strings taken out of the query; (c) the checkpoint together with what recall shows for the ids it points to. Ends with 1
where a goal is missed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import re
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from langgraph.store.memory import InMemoryStore

from langgraph_roundcompact import CompressionRecallConfig, RoundCompactConfig, RoundCompactor, StoreArchive, create_recall_tool
from langgraph_roundcompact._recall_text import ids_in, pointers_in

TRACES = Path(__file__).resolve().parents[2].parent / "shared" / "traces"

GOALS = {"described": 0.85, "without the strings": 0.70, "by id": 1.00}
BUDGET, CHUNK_TOKENS, OVERLAP_TOKENS, FIRST = 0.05, 1000, 100, 3
THREAD = {"configurable": {"thread_id": "recorded"}}
_NEXT = re.compile(r'More: recall_compressed_context\(archive_id="[^"]+", offset=(\d+)\)')


@dataclass
class Score:
    """How many facts were found, in each way."""

    facts: int = 0
    found: dict[str, int] = field(default_factory=lambda: dict.fromkeys(GOALS, 0))
    lost: list[str] = field(default_factory=list)
    largest_passage: int = 0
    """Tokens, counted as characters / 4, wide characters as one."""
    seconds: float = 0.0
    """In searches."""

    def share(self, way: str) -> float:
        """Found of all."""
        return self.found[way] / max(self.facts, 1)


@cache
def _shared(name: str) -> ModuleType:
    sys.path.insert(0, str(TRACES))
    spec = importlib.util.spec_from_file_location(f"traces_{name}", TRACES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def measure(chunk_tokens: int = CHUNK_TOKENS, overlap_tokens: int = OVERLAP_TOKENS) -> Score:
    """All recorded facts."""
    score = Score()
    for path in sorted((TRACES / "probes").glob("*.json")):
        spec = json.loads(path.read_text("utf-8"))
        history = _shared("load").load(TRACES / "transcripts" / f"{spec['id']}.jsonl").messages[: spec["mark_index"]]
        work = history[spec["last_user_index"] + 1 :]
        archive = StoreArchive(InMemoryStore())
        after = _compacted(history, max(int(_shared("score").tokens(work) * BUDGET), 1), archive, (chunk_tokens, overlap_tokens))
        shown = "\n".join([*map(_shared("score").visible, after[spec["last_user_index"] + 1 :]), *_recalled(archive, ids_in(after))])
        for fact in spec["probes"]:
            _count(score, spec["id"], fact, archive, shown)
    return score


def _compacted(history: list[Any], budget: int, archive: StoreArchive, sizes: tuple[int, int]) -> list[Any]:
    config = RoundCompactConfig(
        context_window_tokens=_shared("score").tokens(history),
        trigger_token_threshold=max(_shared("score").tokens(history) // 100, budget + 1),
        min_target_context_ratio=0.0,
        keep_recent_messages=0,
        round_budget_tokens=budget,
        compression_recall=CompressionRecallConfig(enabled=True, chunk_size_tokens=sizes[0], chunk_overlap_tokens=sizes[1]),
    )
    compactor = RoundCompactor(config=config, token_counter=_shared("score").tokens, archive=archive)
    return list(compactor.compact(history, thread_id="recorded").messages)


def _recalled(archive: StoreArchive, ids: list[str]) -> Iterator[str]:
    """What the tool shows for each id, page after page, and for the entries those point to."""
    recall = create_recall_tool(archive)
    for key in ids:  # grows while it runs
        ids += [one for one in pointers_in(json.dumps(archive.get(key, thread_id="recorded"))) if one not in ids]
        offset: int | None = 0
        while offset is not None:
            page = str(recall.invoke({"archive_id": key, "offset": offset}, THREAD))  # type: ignore[arg-type]
            yield page
            more = _NEXT.search(page.rsplit("</recalled_context>", 1)[-1])
            offset = int(more[1]) if more else None


def _count(score: Score, name: str, fact: Mapping[str, Any], archive: StoreArchive, shown: str) -> None:
    query = fact["fact"]
    hidden = query
    for text in fact["strings"]:
        hidden = re.sub(re.escape(text), " ", hidden, flags=re.IGNORECASE)
    score.facts += 1
    found = {"by id": _shared("score").kept(fact, shown)}
    for way, words in (("described", query), ("without the strings", hidden)):
        began = time.perf_counter()
        passages = archive.search(words, thread_id="recorded", limit=FIRST)
        score.seconds += time.perf_counter() - began
        score.largest_passage = max([score.largest_passage, *(_tokens(passage["text"]) for passage in passages)])
        found[way] = any(_shared("score").kept(fact, passage["text"]) for passage in passages)
    for way, hit in found.items():
        score.found[way] += hit
        if not hit:
            score.lost.append(f"{way}: {name}: {query} {fact['strings']}")


def _tokens(text: str) -> int:
    wide = sum(character > "\u2e7f" for character in text)
    return wide + (len(text) - wide) // 4


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Whether what a checkpoint has replaced is found again.")
    parser.add_argument("--chunk", type=int, default=CHUNK_TOKENS, help="tokens of a passage")
    parser.add_argument("--overlap", type=int, default=OVERLAP_TOKENS, help="tokens that neighbours share")
    parser.add_argument("--lost", action="store_true", help="list what was not found")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    score = measure(args.chunk, args.overlap)
    for way, goal in GOALS.items():
        state = "ok" if score.share(way) >= goal else "MISSED"
        print(f"{way:20} {score.found[way]:3}/{score.facts}  {score.share(way):6.1%}  goal {goal:.0%}  {state}")
    print(f"largest passage {score.largest_passage} tokens; {1000 * score.seconds / max(2 * score.facts, 1):.1f} ms a search, indexing included")
    if args.lost:
        print("\n".join(score.lost))
    return int(any(score.share(way) < goal for way, goal in GOALS.items()))


if __name__ == "__main__":
    raise SystemExit(main())
