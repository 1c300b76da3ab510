"""The audit says where each key fact went: into the summary, into the ledger, or out."""

from __future__ import annotations

from langchain_core.messages import AIMessage, ToolMessage

from langgraph_roundcompact._audit import audit
from langgraph_roundcompact._compose import checkpoint_texts
from langgraph_roundcompact._ledger import Fact, render_ledger
from langgraph_roundcompact.events import Audit


def tokens(text: str) -> int:
    return len(text) // 4


def test_each_fact_is_listed_once_where_it_went() -> None:
    facts = [
        Fact("name", "in_summary"),
        Fact("error", "cannot open the file", 5, 0, 1, 5),
        Fact("number", "4096", 0),
        Fact("said", "A long remark. " * 9, 1, 0, 1, 1),
    ]
    summary = "We fixed in_summary."
    ledger = render_ledger(facts, budget_tokens=11, estimate=tokens, present=summary)
    assert audit(facts, summary, ledger) == Audit(kept=("in_summary",), added=("cannot open the file", "4096"), dropped=("A long remark. " * 9,))


def test_nothing_to_audit_gives_empty_lists() -> None:
    assert audit((), "any summary", render_ledger((), budget_tokens=100, estimate=tokens)) == Audit()


def test_the_same_text_of_two_kinds_is_one_line() -> None:
    facts = [Fact("said", "the cache is stale"), Fact("result", "the cache is stale")]
    assert audit(facts, "the cache is stale", render_ledger((), budget_tokens=1, estimate=tokens)).kept == ("the cache is stale",)


def test_a_model_summary_is_audited_against_the_work() -> None:
    work = [
        AIMessage("The parser drops the last row.", tool_calls=[{"id": "1", "name": "bash", "args": {"command": "pytest -q"}}]),
        ToolMessage("Exit code 1\nsrc/parse.py:12: error: cannot read rows", tool_call_id="1"),
    ]
    texts = checkpoint_texts(work, request="Fix it.", summary="The parser drops the last row.", budget_tokens=200, estimate=tokens)
    assert "The parser drops the last row." in texts.audit.kept
    assert {"pytest -q", "src/parse.py:12: error: cannot read rows"} <= set(texts.audit.added)
    assert texts.audit.dropped == ()


def test_the_ledger_keeps_to_its_own_limit() -> None:
    work = [AIMessage(f"Module_{n} was changed because it failed.") for n in range(40)]
    texts = checkpoint_texts(work, request="Fix it.", summary="Continue.", budget_tokens=1000, ledger_max_tokens=40, estimate=tokens)
    assert 0 < tokens(texts.ledger) <= 40
    assert set(texts.audit.added) | set(texts.audit.dropped) >= {f"Module_{n} was changed because it failed." for n in range(40)}


def test_a_summary_over_the_budget_stays_whole_without_a_ledger() -> None:
    texts = checkpoint_texts([AIMessage("Module_1 was changed.")], request="Fix it.", summary="word " * 100, budget_tokens=20, estimate=tokens)
    assert (texts.summary, texts.ledger) == ("word " * 100, "")
    assert "Module_1 was changed." in texts.audit.dropped
