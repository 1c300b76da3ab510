"""Recorded work, compacted to 5 %: what was replaced is found again by its description, without its strings, and by id."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from score_recall import CHUNK_TOKENS, GOALS, TRACES, Score, measure

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason="the recorded transcripts are not beside this repository: put them at ../shared/traces")


@pytest.fixture(scope="module")
def score() -> Score:
    return measure()


@pytest.mark.parametrize(("way", "goal"), GOALS.items())
def test_facts_are_found_again(score: Score, way: str, goal: float) -> None:
    assert score.facts > 100
    assert score.share(way) >= goal, "\n".join(score.lost)


def test_no_passage_is_larger_than_configured(score: Score) -> None:
    assert score.largest_passage <= CHUNK_TOKENS
