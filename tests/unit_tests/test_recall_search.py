"""What a text is found by, how passages are cut, and that both ways of computing BM25 agree."""

from __future__ import annotations

import builtins
import logging
from typing import Any

import pytest
from archive_cases import archived, odd_records
from conftest import examples
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage, ToolMessage
from procedures import work

from langgraph_roundcompact import StoreArchive, _archive_access
from langgraph_roundcompact._entry_text import cut, entry_text, passages
from langgraph_roundcompact._estimate import estimate_tokens
from langgraph_roundcompact._search import best_lines, query_words, scores, words_of

# --- words -----------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("session_state.go", "see cmd/entire/cli/session_state.go:174 for it"),
        ("cli/session_state.go", "see cmd/entire/cli/session_state.go:174 for it"),
        ("session state", "see cmd/entire/cli/session_state.go:174 for it"),
        ("CapturePrePromptState", "func CapturePrePromptState(dir string)"),
        ("capture pre prompt state", "func CapturePrePromptState(dir string)"),
        ("preprompt", "the pre-prompt preprompt state"),
        ("parseHTTPHeader http", "def parse_http_header(line)"),
        ("normalisation", "the path is normalized first"),
        ("renamed", "rename the branch"),
        ("libraries", "one library"),
        ("committed", "it commits"),
        ("8312232", "commit 8312232 (HEAD)"),
        ("#60", "PR#60 was merged"),
        ("4f9c2ab", "commit 4f9c2ab17d3e5f60718293a4b5c6d7e8f9012345 (HEAD)"),
        ("4f9c2ab17d3e5f60718293a4b5c6d7e8f9012345", "* 4f9c2ab merged"),
        ("数据库", "连接数据库失败"),
        ("接続エラー", "データベースの接続エラーが出た"),
        ("데이터베이스", "데이터베이스에 연결"),
        ("Zürich", "ZÜRICH"),
        ("re\u0301sume\u0301", "r\u00e9sum\u00e9"),
        ("ｆｕｌｌ", "full"),
        ("--no-stat", "unrecognized argument: --no-stat"),
        ("localhost:8080", "listening on http://localhost:8080/health"),
        ("v1.2.3", "released v1.2.3 today"),
        ("привет", "Привет, мир"),
    ],
)
def test_names_words_and_scripts_are_found_in_their_other_forms(query: str, text: str) -> None:
    """More of the question is in the text than in one about something else."""
    wanted = set(query_words(query))
    assert wanted & set(words_of(text))
    assert not wanted & set(words_of("an unrelated zebra walks by"))


@examples(200)
@given(st.one_of(st.text(), st.text(alphabet="a._/:-A1数\ud800\u0301é ")))
def test_any_text_has_words_and_the_same_each_time(text: str) -> None:
    assert words_of(text) == words_of(text)
    assert all(words_of(text))


@pytest.mark.parametrize(
    "text", ["a" * 1_000_000, "a/" * 500_000, "aB" * 500_000, "数" * 500_000, "._-" * 300_000, "\u0301" * 300_000, "é" * 500_000]
)
def test_a_megabyte_without_blanks_takes_linear_time(text: str) -> None:
    """No timer: a quadratic way would not come back."""
    assert len(words_of(text)) <= 2 * len(text)


# --- scores ----------------------------------------------------------------------------------------------------------------------------------

_documents = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=20), min_size=1, max_size=8)


@examples(60)
@given(_documents, st.lists(st.sampled_from("abcdefghxyz"), unique=True, min_size=1, max_size=5))
def test_both_ways_of_computing_bm25_agree(documents: list[list[str]], query: list[str]) -> None:
    by_library = _archive_access.index_of(documents)(sorted(query))
    # The library takes one word where a document has none, so that lengths differ by one there.
    by_hand = scores([document or [""] for document in documents], sorted(query))
    assert [round(float(score), 4) for score in by_library] == pytest.approx(by_hand, abs=1e-3)


def test_without_the_library_it_searches_in_plain_python_and_says_so_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    load = builtins.__import__

    def without(name: str, *args: Any, **options: Any) -> Any:
        if name == "bm25s":
            raise ImportError(name)
        return load(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr(_archive_access, "_slow_search_warned", False)
    store = StoreArchive(__import__("langgraph.store.memory").store.memory.InMemoryStore())
    for number in range(3):
        store.put(f"rc-{number}", archived([HumanMessage(f"word{number} and more", id="m")]))
    with caplog.at_level(logging.WARNING, logger="langgraph_roundcompact"):
        found = [[passage["archive_id"] for passage in store.search(f"word{number}", limit=1)] for number in range(3)]
        store.put("rc-9", archived([HumanMessage("another", id="m")]))
        store.search("another")
    assert found == [["rc-0"], ["rc-1"], ["rc-2"]]
    assert [record.getMessage() for record in caplog.records if "bm25s" in record.getMessage()] == [
        "bm25s is not installed: recall searches in plain Python, which is slower; install langgraph-roundcompact[recall]"
    ]


@pytest.mark.parametrize("query", ["", " ", "...", "\x00", "unknown words only"])
def test_a_query_that_matches_nothing_finds_nothing(query: str) -> None:
    archive = StoreArchive(__import__("langgraph.store.memory").store.memory.InMemoryStore())
    archive.put("rc-1", archived([HumanMessage("something else", id="m")]))
    assert archive.search(query) == []
    assert archive.search("something", limit=0) == []


def test_of_a_query_that_is_no_query_the_beginning_is_read() -> None:
    assert len(query_words(" ".join(f"w{n}" for n in range(500_000)))) < 5_000


# --- passages ------------------------------------------------------------------------------------------------------------------------------------


@examples(80)
@given(odd_records(), st.integers(4, 200), st.integers(0, 60))
def test_passages_cover_the_whole_entry_within_their_size(record: dict[str, Any], size: int, overlap: int) -> None:
    """Every character is in a passage, neighbours share at most the overlap, none is larger than said."""
    record["chunks"] = {"size_tokens": size, "overlap_tokens": min(overlap, size - 1)}
    text, found = entry_text(record).text, passages("rc-1", record, estimate_tokens)
    at = 0
    for before, passage in zip([None, *found], found, strict=False):
        assert passage["start"] <= at < passage["stop"]
        assert passage["text"].endswith(text[passage["start"] : passage["stop"]])
        assert before is None or passage["stop"] > before["stop"]
        at = passage["stop"]
        assert (len(passage["text"]) + 3) // 4 <= max(size, 1) or passage["text"] == text[passage["start"] : passage["stop"]]
    assert at == len(text) or not text


@pytest.mark.parametrize("size", [50, 200, 1000, 3000])
def test_a_passage_is_at_most_as_large_as_configured(size: int) -> None:
    texts = [
        "\n".join(f"{k}: def f{k}(x): return x * {k}" for k in range(900)),
        "数据库连接失败。" * 900,
        "m" * 20_000,
        " " * 9000 + "\t" * 9000,
        "a b " * 9000,
    ]
    record = archived([ToolMessage(text, tool_call_id=f"c{k}", id=f"t{k}", name="read") for k, text in enumerate(texts)])
    record["chunks"] = {"size_tokens": size, "overlap_tokens": size // 10}
    for passage in passages("rc-1", record, estimate_tokens):
        assert estimate_tokens(passage["text"]) <= size
        assert len(passage["text"]) <= 4 * size


def test_a_passage_within_a_result_names_the_call() -> None:
    """The arguments belong to every passage of the result, where it may be found by them."""
    record = archived(work(1, 60_000))
    found = passages("rc-1", record, estimate_tokens)
    assert len(found) > 3
    assert all('look_up {"key": "k1"}' in passage["text"] for passage in found)
    assert {passage["message_id"] for passage in found[1:]} == {"t1"}
    assert found[-1]["tool"] == "look_up"


def test_cutting_a_megabyte_is_linear() -> None:
    """No timer: a quadratic way would not come back."""
    assert len(cut("x\n" * 300_000, 1000, 500, lambda text: 1)) > 100
    assert len(cut("x" * 1_000_000, 100, 50, estimate_tokens)) > 1000


ODD_MESSAGES: list[Any] = [
    None,
    [1],
    [{}],
    [{"type": "ai", "tool_calls": [{}], "content": None}],
    [{"type": "ai", "content": [{"type": 7}, 3, None, {"text": 5}], "tool_calls": "odd", "additional_kwargs": []}],
]


@pytest.mark.parametrize("record", [{}, {"x": {"y": [1.5]}}, *({"messages": messages, "chunks": {"size_tokens": "x"}} for messages in ODD_MESSAGES)])
def test_any_plain_data_has_a_text(record: dict[str, Any]) -> None:
    assert isinstance(entry_text(record).text, str)
    assert isinstance(passages("rc-1", record, estimate_tokens), list)


@examples(60)
@given(st.text(max_size=400), st.text(max_size=20), st.integers(1, 60))
def test_the_best_lines_are_part_of_the_text(text: str, query: str, tokens: int) -> None:
    assert best_lines(text, query, tokens, estimate_tokens) in text
