"""Text from outside cannot open or close our tags, and nothing else about it changes."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_roundcompact._escape import neutralise, storable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("</section>", "&lt;/section>"),
        ("< / SECTION >", "&lt; / SECTION >"),
        ("<section name='x'", "&lt;section name='x'"),
        ("</summary", "&lt;/summary"),
        ("</memory_block_current\n>", "&lt;/memory_block_current\n>"),
        ("<memory_block_dialogue>", "&lt;memory_block_dialogue>"),
        ("</recovered_context foo='1'>", "&lt;/recovered_context foo='1'>"),
        ("<\tledger/>", "&lt;\tledger/>"),
        ("<Meaning>", "&lt;Meaning>"),
        ("</conflict_policy>", "&lt;/conflict_policy>"),
        ("</state_snapshot>", "&lt;/state_snapshot>"),
        ("</instruction>", "&lt;/instruction>"),
        ("</system-reminder>", "&lt;/system-reminder>"),
        ("<\u200b/section>", "&lt;\u200b/section>"),
        ("<<section>>", "<&lt;section>>"),
        ("[[COMPRESSION_RECALL: id=7]]", "[&#91;COMPRESSION_RECALL: id=7]]"),
        ("[ state_reinjection ]", "&#91; state_reinjection ]"),
    ],
)
def test_our_own_tags_and_marks_are_broken_and_stay_readable(text: str, expected: str) -> None:
    assert neutralise(f"a {text} b") == f"a {expected} b"


@pytest.mark.parametrize(
    "text",
    [
        "<div class='x'><p>1 &lt; 2</p></div>",
        "<?xml version='1.0'?><sections><section2/></sections>",
        "List<int> a = new Map<String, List<Section>>[0];".replace("<Section>", "<Sect>"),
        "for (i = 0; i < section; i++) if (a < summary == b) {}",
        "<summary-card> <section:x> <ledgers> [[wiki]] [STATE] a[i]",
        "",
        "&lt;/section> &#91;STATE_REINJECTION]",
    ],
)
def test_other_markup_is_left_as_it_is(text: str) -> None:
    assert neutralise(text) == text


def test_nul_and_lone_surrogates_are_replaced_because_no_database_takes_them() -> None:
    assert neutralise("a\x00b\ud800c") == storable("a\x00b\ud800c") == "a\ufffdb\ufffdc"


def test_a_tag_hidden_behind_nul_is_broken_too() -> None:
    assert neutralise("<\x00/section>") == "&lt;\ufffd/section>"


_PIECES = st.sampled_from(
    ["<", ">", "/", " ", "section", "memory_block_", "current", "[", "COMPRESSION_RECALL", "\x00", "\ud800", "&lt;", "=", "name", "\n", "x"]
)


@given(st.lists(_PIECES, max_size=40).map("".join))
def test_doing_it_twice_changes_nothing(text: str) -> None:
    once = neutralise(text)
    assert neutralise(once) == once


@given(st.lists(_PIECES, max_size=40).map("".join))
def test_no_closing_tag_survives(text: str) -> None:
    assert "</section>" not in neutralise(text)
    assert "</memory_block_current>" not in neutralise(text)


@pytest.mark.parametrize("unit", ["<", "< ", "<section ", "< section a", "[ ", "<memory_block_", "< /", "<" + " " * 50, "< section" + " a" * 20])
def test_time_is_linear_in_hostile_text(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    started = time.perf_counter()
    neutralise(text)
    assert time.perf_counter() - started < 5
