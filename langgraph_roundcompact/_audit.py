"""What a checkpoint holds of the key facts, as lines a person can read."""

from __future__ import annotations

from collections.abc import Sequence

from langgraph_roundcompact._facts import Fact
from langgraph_roundcompact._ledger import Ledger
from langgraph_roundcompact.events import Audit


def audit(facts: Sequence[Fact], summary: str, ledger: Ledger) -> Audit:
    """Which facts the summary holds verbatim, which the ledger added, which did not fit.

    Args:
        facts: All facts of the replaced work.
        summary: The summary, or the digest.
        ledger: The ledger that stands beside it.
    """
    return Audit(
        kept=_texts([fact for fact in facts if fact.text in summary]),
        added=_texts(ledger.kept),
        dropped=_texts(ledger.dropped),
    )


def _texts(facts: Sequence[Fact]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(fact.text for fact in facts))
