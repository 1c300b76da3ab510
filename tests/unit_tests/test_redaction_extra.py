"""Redaction by `detect-secrets`: only when asked for, on top of the default, linear."""

from __future__ import annotations

import builtins
import time
from typing import Any

import pytest

from langgraph_roundcompact import redaction
from langgraph_roundcompact._redact import default_redact
from langgraph_roundcompact.redaction import redact_with_detect_secrets

pytest.importorskip("detect_secrets", reason='pip install "langgraph-roundcompact[secrets]"')

SENDGRID = "SG." + "a1B2" * 5 + "xy" + "." + "c3D4" * 10 + "xyz"
TELEGRAM = "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw_"[:46]


@pytest.fixture
def redact() -> Any:
    return redact_with_detect_secrets()


@pytest.mark.parametrize(
    "token",
    ["AKIAIOSFODNN7EXAMPL2", "0123456789abcdef0123456789abcdef-us7", "AC" + "0123456789abcdef" * 2, SENDGRID, TELEGRAM],
)
def test_tokens_with_a_form_of_their_own_are_hidden(redact: Any, token: str) -> None:
    assert token not in redact(f"the value is {token} here")


@pytest.mark.parametrize(
    "text",
    [
        "commit 9bdbcaa1f0c3d2e4b5a697887766554433221100 in main",
        "id 123e4567-e89b-12d3-a456-426614174000",
        "listening on 10.0.0.7:8081, upstream 203.0.113.9",
        'password_field = "user.password"',
        "",
        "\n\n",
    ],
)
def test_what_the_work_needs_stays(redact: Any, text: str) -> None:
    assert redact(text) == text


def test_the_default_runs_first(redact: Any) -> None:
    assert redact("DB_PASSWORD=s3cr3tV4lue9") == default_redact("DB_PASSWORD=s3cr3tV4lue9")


def test_twice_changes_nothing_more(redact: Any) -> None:
    once = redact(f"{SENDGRID} and AKIAIOSFODNN7EXAMPL2")
    assert redact(once) == once


def test_a_token_across_the_border_of_two_windows_is_hidden(redact: Any) -> None:
    for before in (1530, 1540, 2030, 2040, 2050):
        assert "AKIAIOSFODNN7EXAMPL2" not in redact("- " * (before // 2) + "AKIAIOSFODNN7EXAMPL2" + " -" * 2000)


@pytest.mark.parametrize("piece", ["a", "AKIA", "xoxb-", "eyJ", "SG.", "= ", "://a:"])
def test_time_grows_with_the_text(redact: Any, piece: str) -> None:
    """One line of 200,000 characters: CPU seconds with room for a slow machine."""
    start = time.process_time()
    redact((piece * 200_000)[:200_000])
    assert time.process_time() - start < 6


def test_without_the_extra_it_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any, **more: Any) -> Any:
        if name.startswith("detect_secrets"):
            raise ImportError(name)
        return real(name, *args, **more)

    redaction._detectors.cache_clear()
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ImportError, match=r"langgraph-roundcompact\[secrets\]"):
        redact_with_detect_secrets()
    redaction._detectors.cache_clear()
