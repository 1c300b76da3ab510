"""What the byte fuzzers share: the package instrumented, texts from bytes, the run.

    python tests/fuzz/fuzz_parser.py -max_total_time=600

Options are libFuzzer's; a crash is written to `crash-…` in the working directory, and running the target with that file as its only argument
repeats it. Needs the dependency group `fuzz`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import atheris

sys.path[:0] = [str(Path(__file__).parents[1] / "unit_tests"), str(Path(__file__).parents[2])]

with atheris.instrument_imports(include=["langgraph_roundcompact"]):
    import langgraph_roundcompact.compactor  # noqa: F401 - first, so that all of it is instrumented

from hostile import TOKENS  # noqa: E402


def text_from(data: atheris.FuzzedDataProvider, pieces: int = 40) -> str:
    """A text of known pieces and of any characters."""
    out = []
    for _ in range(data.ConsumeIntInRange(0, pieces)):
        number = data.ConsumeIntInRange(0, len(TOKENS) + 15)
        out.append(TOKENS[number] if number < len(TOKENS) else data.ConsumeUnicode(number - len(TOKENS) + 1))
        if data.remaining_bytes() == 0:
            break
    return "".join(out)


def fuzz(one: Callable[[atheris.FuzzedDataProvider], object]) -> None:
    """Run a target until libFuzzer ends it."""
    # Long inputs from the beginning: a text of a few pieces takes some dozen bytes.
    arguments = [*sys.argv, *(["-len_control=0"] if not any("-len_control" in given for given in sys.argv) else [])]
    atheris.Setup(arguments, lambda data: one(atheris.FuzzedDataProvider(data)))
    atheris.Fuzz()
