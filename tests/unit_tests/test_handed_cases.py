"""The collected bug reports that a list comparison can check, each in both colours, by their own runner.

The reports that need a graph, a second step or another channel are in `test_procedures_*.py`, on inputs of our own.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from types import ModuleType

import pytest
from conftest import case_files

WITHOUT_CHECK = frozenset({"25", "29", "31", "32", "33", "34", "35", "36", "44", "45", "46", "56", "57", "62", "65"})
"""Procedures; see the tables in `test_procedures_*.py`."""


@pytest.mark.parametrize("case", case_files() or [None], ids=lambda case: case.stem if case else "absent")
def test_a_reported_fault_does_not_happen_here(case: Path | None, runner: ModuleType) -> None:
    assert case is not None
    number = case.name[:2]
    if number in runner.OWN:
        pytest.skip("needs a graph, another channel or a second step: a procedure of our own")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcome = runner.run(case)
    assert outcome == ("procedure" if number in WITHOUT_CHECK else "pass")
