"""Runs every notebook from top to bottom and keeps what it prints: `python notebooks/run.py`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).parent
SECONDS = 120
"""The most one cell may take."""


def executed(path: Path) -> NotebookNode:
    """The notebook with the outputs of a fresh run. Warnings on stderr depend on the machine, so they are not kept.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell raised.
    """
    book = nbformat.read(path, as_version=4)
    NotebookClient(book, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}).execute()
    for cell in _code(book):
        cell.metadata.pop("execution", None)
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return book


def texts(book: NotebookNode) -> list[str]:
    """What the cells print, one entry a cell; pictures by their name."""
    return ["".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs) for cell in _code(book)]


def _code(book: NotebookNode) -> Iterator[NotebookNode]:
    return (cell for cell in book.cells if cell.cell_type == "code")


def main() -> None:
    for path in sorted(FOLDER.glob("*.ipynb")):
        print(path.name, file=sys.stderr)
        nbformat.write(executed(path), path)


if __name__ == "__main__":
    main()
