"""The notebooks run from top to bottom without key or network, and print what stands in them."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import nbformat
import pytest

FOLDER = Path(__file__).parents[2] / "notebooks"


@pytest.fixture(scope="module")
def run() -> ModuleType:
    spec = importlib.util.spec_from_file_location("notebook_run", FOLDER / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_says(path: Path, run: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FOLDER.parent), os.environ.get("PYTHONPATH", "")]))
    kept = nbformat.read(path, as_version=4)
    assert run.texts(run.executed(path)) == run.texts(kept)


def test_there_is_one_for_each_way_to_use_the_package() -> None:
    assert [path.stem for path in sorted(FOLDER.glob("*.ipynb"))] == [
        "01_quickstart",
        "02_create_agent_and_deep_agents",
        "03_chains",
        "04_trust",
        "05_tuning",
    ]
