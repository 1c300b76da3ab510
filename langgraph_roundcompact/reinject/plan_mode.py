"""Section `plan_mode`: whether the agent is only planning.

Forgetting that is the worst thing a compaction can do: a planner that starts to write files. Where the graph keeps the mode in its state, that is
read; otherwise the newest call that entered or left the mode, together with what the user answered. Without a trace of planning there is no section.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from langgraph_roundcompact._state import read_key
from langgraph_roundcompact.reinject._calls import Use, scan, tool_keys
from langgraph_roundcompact.reinject._context import MISSING, ReinjectContext, lookup, one_line

_RULES = (
    "While planning: look and search only; change no file and start nothing that has effects.",
    "Finish the plan, then ask for approval; do the work only after the user has approved it.",
)
_REJECTED = re.compile(
    r"\b(?:reject(?:ed|s)?|declin(?:ed|es)|not approved|denied|disapproved|(?:does not|doesn't|did not|didn't) (?:want|approve))\b", re.IGNORECASE
)


@dataclass(frozen=True, kw_only=True)
class PlanModeBuilder:
    """Section `plan_mode`."""

    keys: tuple[str, ...] = ("plan_mode",)
    """State keys with a mode name, a bool, or a record with `mode` and the like."""
    planning: tuple[str, ...] = ("plan", "planning", "plan_mode")
    """Names of the mode in which nothing may be changed."""
    enter_tools: tuple[str, ...] = ("EnterPlanMode", "enter_plan_mode")
    """Tools that begin the mode."""
    exit_tools: tuple[str, ...] = ("ExitPlanMode", "exit_plan_mode")
    """Tools that ask to leave it; a rejection keeps the agent in it."""

    def __call__(self, ctx: ReinjectContext, /) -> str | None:
        """Mode, previous mode, and the rules while planning; None in plain normal mode."""
        value = lookup(ctx, self.keys)
        return self._from_state(value) if value is not MISSING else self._from_calls(ctx)

    def _from_state(self, value: Any) -> str | None:
        if isinstance(value, bool):
            return _planning("plan") if value else None
        mode, previous = _mode_of(value), _field(value, "previous_mode", "pre_plan_mode", "previous")
        if mode.lower() in self.planning:
            return _planning(mode, previous, _field(value, "plan_slug", "slug"), _field(value, "plan_path", "plan_file", "path"))
        if mode and previous.lower() in self.planning:
            return f"Mode: {mode}\nPrevious mode: {previous}"
        return None

    def _from_calls(self, ctx: ReinjectContext) -> str | None:
        enter, leave = tool_keys(self.enter_tools), tool_keys(self.exit_tools)
        events = [(use, kept) for use, kept in scan(ctx.target, ctx.kept) if use.key in leave or (use.key in enter and not use.failed)]
        # What is still visible speaks for itself.
        if not events or events[-1][1]:
            return None
        use = events[-1][0]
        return _planning("plan") if use.key in enter else _left(use)


def _mode_of(value: Any) -> str:
    """The mode's name: the value itself, an enum member's value, or a field of a record."""
    if isinstance(value, str):
        return one_line(value, 80)
    flags = [read_key(value, flag) for flag in ("active", "enabled", "is_active")]
    if True in flags:
        return _field(value, "mode", "name") or "plan"
    if False in flags:
        return ""  # switched off, whatever mode it would be
    return _field(value, "mode", "current_mode", "value")


def _field(value: Any, *keys: str) -> str:
    if isinstance(value, str):
        return ""
    return next((line for key in keys if (line := one_line(read_key(value, key), 200))), "")


def _planning(mode: str, previous: str = "", slug: str = "", path: str = "") -> str:
    named = (("Previous mode", previous), ("Plan", slug), ("Plan file", path))
    return "\n".join([f"Mode: {mode}", *(f"{label}: {text}" for label, text in named if text), *_RULES])


def _left(use: Use) -> str:
    if use.result is None:
        return _planning("plan") + "\nApproval of the plan was asked for and has not been answered."
    answer = one_line(use.text, 300)
    if use.failed or _REJECTED.search(answer):
        return _planning("plan") + f"\nThe plan was not approved. The answer was: {answer}"
    return (
        f"Mode: normal\nPrevious mode: plan\nPlanning is over. The answer to the plan was: {answer}"
        if answer
        else "Mode: normal\nPrevious mode: plan"
    )
