"""Any bytes as an answer of the summariser: a clean summary inside its block, or a rejection."""

from __future__ import annotations

import atheris
from _target import fuzz, text_from
from hostile import check_found, check_parser

FINISHES = ("stop", "length", "content_filter", "", "STOPSTOP", "tool_calls", "error")


def one(data: atheris.FuzzedDataProvider) -> None:
    finish, require = data.PickValueInList(list(FINISHES)), data.ConsumeBool()
    body = text_from(data, 6)
    answer = text_from(data)
    check_parser(answer, finish, require_snapshot=require)
    check_found(answer, body)


if __name__ == "__main__":
    fuzz(one)
