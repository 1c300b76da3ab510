"""Everything the README prints is what running it prints."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_code_blocks_run_in_order_and_print_what_stands_below_them() -> None:
    text = README.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```\n+(?:```text\n(.*?)```)?", text, re.DOTALL)
    assert len(blocks) >= 3
    space: dict[str, object] = {}
    for code, expected in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(README), "exec", dont_inherit=True), space)
        assert printed.getvalue() == expected
