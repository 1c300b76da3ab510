"""Any bytes as texts from outside: they stay inside the block, inside the request, and are otherwise unchanged."""

from __future__ import annotations

import atheris
from _target import fuzz, text_from
from hostile import check_escape, check_frame, check_request


def one(data: atheris.FuzzedDataProvider) -> None:
    with_request = data.ConsumeIntInRange(0, 7) == 0
    summary, ledger, recovered = (text_from(data, 20) for _ in range(3))
    check_escape(summary)
    check_frame(summary, ledger, recovered)
    if with_request:
        check_request(summary, ledger, recovered, text_from(data, 6))


if __name__ == "__main__":
    fuzz(one)
