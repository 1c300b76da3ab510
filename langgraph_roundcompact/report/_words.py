"""What outcomes, reasons and kinds are called on the page."""

from __future__ import annotations

OUTCOMES = {
    "below_trigger": "left alone",
    "nothing_to_compact": "nothing to compact",
    "target_below_min": "too little new work",
    "tiers_sufficed": "folded",
    "summarised": "summarised",
    "digested": "digest by rules",
    "no_benefit": "no benefit",
    "cooling_down": "cooling down",
    "stood_down": "stood down",
    "failed": "failed",
}

REASONS = {
    "": "",
    "below_threshold": "the window had room",
    "reached_threshold": "the window reached its trigger",
    "forced": "it was asked for",
    "no_compressible_span": "no finished work stands after the request",
    "pending_only": "all work is still waiting for results",
    "prefix_over_trigger": "what may not be compacted is over the trigger by itself",
    "no_new_work": "nothing new since the last checkpoint",
    "target_below_min": "the new work is smaller than the least worth compacting",
    "foreign_compaction": "something else compacts this history",
    "native_compaction": "the model compacts by itself",
    "run_is_paused": "the run waits for a person",
    "no_ids": "messages without ids cannot be replaced one by one",
    "unreadable_messages": "something in the list is not a message",
    "summary_rejected": "the answers were no summaries",
    "not_smaller": "the result would not have been smaller",
    "cooldown": "a compaction failed a few steps before",
    "breaker_open": "the summariser failed several times in a row, so rules made the checkpoint",
    "no_model": "no summariser was given, so rules made the checkpoint",
    "digest_chosen": "the configuration asks for rules",
    "session_memory": "notes of the application were used",
    "redact_refused": "redact refused the text",
    "archive_failed": "the originals could not be archived",
    "invalid_result": "the result failed the last check",
    "thread_changed": "the thread changed while it was being compacted",
    "rejected": "the reviewer did not want it",
    "internal_error": "a fault of this package; the log has the trace",
    "context_overflow": "the request was too long for the summariser",
    "rate_limit": "the summariser's rate limit",
    "authentication": "the summariser refused the key",
    "timeout": "the summariser took too long",
    "server_unstable": "the summariser's server failed",
    "api_request_error": "the summariser refused the request",
    "unknown": "the summariser failed in an unknown way",
}

ADVICE = {
    "prefix_over_trigger": "Use a model with a larger window, or send less: request, system prompt and tools alone fill it.",
    "pending_only": "Nothing to do: it goes on when the results are there.",
    "target_below_min": "Lower min_target_context_ratio if this comes often.",
    "no_compressible_span": "Lower keep_recent_messages, if it is set.",
    "not_smaller": "Give the checkpoint less room (round_budget_tokens), or trigger later.",
    "no_ids": "Give messages ids; add_messages does.",
    "cooldown": "See why the compaction before it failed.",
    "summary_rejected": 'Look at what the summariser answers; try another one, or on_summary_failure="digest".',
    "context_overflow": "Use a summariser with a larger window.",
    "rate_limit": 'It is tried again after a few steps; set on_summary_failure="digest" not to wait.',
    "server_unstable": 'It is tried again after a few steps; set on_summary_failure="digest" not to wait.',
    "api_request_error": "The log has the provider's answer.",
    "unknown": "The log has the error.",
    "internal_error": "Please report it.",
    "invalid_result": "Please report it.",
    "redact_refused": "See why redact raises.",
    "authentication": "Check the summariser's key.",
    "timeout": "Raise timeout_seconds, or use a faster summariser.",
    "archive_failed": "Check the store, or leave archive_required off.",
}

TONES = {"summarised": "good", "digested": "good", "tiers_sufficed": "good", "failed": "bad", "no_benefit": "warn", "cooling_down": "warn"}
"""How an outcome is coloured; the others are plain."""


def outcome_words(outcome: str) -> str:
    """An outcome for people."""
    return OUTCOMES.get(outcome, outcome.replace("_", " "))


def reason_words(reason: str) -> str:
    """A reason for people."""
    return REASONS.get(reason, reason.replace("_", " "))


def plural(number: int, one: str, many: str = "") -> str:
    """A number with its noun."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
