"""Redaction by detect-secrets on top of the default one."""

from __future__ import annotations

import time

import pytest
from procedures import BOTH, compact, compactor, history, summariser, texts

from langgraph_roundcompact import default_redact

pytest.importorskip("detect_secrets", reason='needs detect-secrets: pip install "langgraph-roundcompact[secrets]"')

from langgraph_roundcompact.redaction import redact_with_detect_secrets

TWILIO = "AC0123456789abcdef0123456789abcdef"
"""An account id, which the library takes for a secret and the default redaction does not."""


def test_the_library_finds_what_the_default_does_not_know() -> None:
    """And what the default knows is gone too."""
    text = f"bot = {TWILIO}\nDB_PASSWORD=hunter2\nplain words stay"
    assert TWILIO in default_redact(text)
    assert redact_with_detect_secrets()(text) == "bot = [REDACTED]\nDB_PASSWORD=[REDACTED]\nplain words stay"


def test_another_redaction_may_run_first() -> None:
    assert redact_with_detect_secrets(lambda text: text.replace("Bob", "[NAME]"))(f"Bob {TWILIO}") == "[NAME] [REDACTED]"


@pytest.mark.parametrize("text", [f"bot = {TWILIO}", "https://bob:hunter2abc@host/x", "-----BEGIN PRIVATE KEY-----", "", "a\nb\r\nc", "x" * 5000])
def test_doing_it_again_changes_nothing(text: str) -> None:
    once = redact_with_detect_secrets()(text)
    assert redact_with_detect_secrets()(once) == once


def test_a_token_amid_a_long_line_is_found() -> None:
    """Wherever the pieces end."""
    redact = redact_with_detect_secrets()
    for before in range(1_500, 2_100, 37):
        assert TWILIO not in redact(f"{'word ' * (before // 5)}{'w' * (before % 5)} {TWILIO} {'word ' * 500}")


@pytest.mark.parametrize("unit", ["://a:b", "a", "<", "=", "sk-", "AKIA", "line\n"])
def test_time_is_linear(unit: str) -> None:
    """A detector of the library alone would take minutes for some of these."""
    text = unit * (300_000 // len(unit))
    started = time.process_time()
    redact_with_detect_secrets()(text)
    assert time.process_time() - started < 10


@BOTH
def test_a_compactor_takes_it(how: str) -> None:
    """What is sent and what is kept has no token."""
    given = history(1, 2)
    given[2] = given[2].model_copy(update={"content": f"{TWILIO}\n{given[2].content}"})
    model = summariser(f"the bot's token is {TWILIO}")
    result = compact(how, compactor(model, redact=redact_with_detect_secrets()), given)
    assert result.outcome == "summarised"
    assert [text for text in (*texts(model.requests), str(result.messages[1].model_dump())) if TWILIO in text] == []
