"""Everything that the README and the pages of the documentation print is what running them prints."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks_of(page: Path) -> list[tuple[str, str]]:
    """The Python blocks of a page, each with the output that stands below it."""
    return re.findall(r"```python\n(.*?)```\n+(?:```text\n(.*?)```)?", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page)], ids=lambda page: page.stem)
def test_the_code_blocks_run_in_order_and_print_what_stands_below_them(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {}
    for code, expected in blocks_of(page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(page), "exec", dont_inherit=True), space)
        assert printed.getvalue() == expected


def test_the_readme_has_a_block_for_each_way_into_an_agent() -> None:
    assert len(blocks_of(ROOT / "README.md")) >= 3


def test_pages_link_to_pages_that_exist() -> None:
    missing = [
        f"{page.name}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert missing == []
