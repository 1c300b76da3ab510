"""Any bytes around a secret: it is gone, and redacting again changes nothing."""

from __future__ import annotations

import atheris
from _target import fuzz, text_from
from hostile import PLANTED, check_redaction


def one(data: atheris.FuzzedDataProvider) -> None:
    place = data.ConsumeIntInRange(0, len(PLANTED) - 1)
    check_redaction(text_from(data, 12), place, text_from(data, 12))


if __name__ == "__main__":
    fuzz(one)
