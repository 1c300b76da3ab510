"""Section `plan`: steps done, current and open, or its text where it has no steps.

Three places know it, asked in this order: the state key (also the `plan` and `past_steps` pair of plan-and-execute graphs), plan files in a
deepagents `files` state, and the newest `update_plan` call among the messages that go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, ClassVar

from langgraph_roundcompact._budget import most_that_fits
from langgraph_roundcompact._state import read_key
from langgraph_roundcompact.reinject._calls import scan, tool_keys
from langgraph_roundcompact.reinject._context import MISSING, ReinjectContext, lookup, one_line, visible
from langgraph_roundcompact.reinject._files import file_text, looks_binary
from langgraph_roundcompact.reinject._items import Item, has_list, item_line, items_of, raw_items


@dataclass(frozen=True, kw_only=True)
class PlanBuilder:
    """Section `plan`."""

    shortens: ClassVar[bool] = True
    """Of a plan of steps, leaves out what is least useful first: what was done long ago, then what comes last."""

    keys: tuple[str, ...] = ("plan",)
    """State keys with a text, a list of steps, or a record that holds either."""
    past_keys: tuple[str, ...] = ("past_steps",)
    """State keys with steps done, as `(step, result)` pairs, records or strings."""
    files_keys: tuple[str, ...] = ("files",)
    """State keys with files by path."""
    file_names: tuple[str, ...] = ("plan.md", "plan.txt")
    """Base names of plan files."""
    folders: tuple[str, ...] = ("plans", ".plans")
    """Folders whose Markdown files are plans; only the last by path is shown."""
    tools: tuple[str, ...] = ("update_plan",)
    """Tools whose newest call holds the plan where nothing else does."""

    def __call__(self, ctx: ReinjectContext, /) -> str | None:
        """The plan as it is now; None where no source has one."""
        value = lookup(ctx, self.keys)
        if value is not MISSING:
            past = lookup(ctx, self.past_keys)
            said = _of_value(value, _past(past if past is not MISSING else None), ctx)
            if said is not None:
                return said
        return self._from_files(ctx) or (self._from_calls(ctx) if value is MISSING else None)

    def _from_files(self, ctx: ReinjectContext) -> str | None:
        files = lookup(ctx, self.files_keys)
        if not isinstance(files, Mapping):
            return None
        for path in sorted((path for path in files if isinstance(path, str) and self._is_plan(path)), reverse=True):
            text = file_text(files[path])
            if text and text.strip() and not looks_binary(text, path):
                return None if visible(ctx, text) else f"Plan file: {one_line(path)}\n{text}"
        return None

    def _is_plan(self, path: str) -> bool:
        parts = PurePosixPath(path.lower())
        return parts.name in self.file_names or (parts.suffix == ".md" and parts.parent.name in self.folders)

    def _from_calls(self, ctx: ReinjectContext) -> str | None:
        found = [(use, kept) for use, kept in scan(ctx.target, ctx.kept) if use.key in tool_keys(self.tools) and not use.failed]
        if not found or found[-1][1]:
            return None
        return _of_value(found[-1][0].args, [], ctx)


def _of_value(value: Any, past: Sequence[Item], ctx: ReinjectContext) -> str | None:
    """A plan's text from any shape; None where it holds nothing."""
    if isinstance(value, str):
        return "\n".join([*map(item_line, past), value.strip()]) if value.strip() else None
    if not has_list(value):
        nested = (read_key(value, key) for key in ("plan", "text", "content", "markdown"))
        text = next((text for text in nested if isinstance(text, str) and text.strip()), None)
        if text:
            return _of_value(text, past, ctx)
    steps = items_of(value)
    if not steps and not past:
        return None
    done = [*past, *(item for item in steps if item.phase == "done")]
    rest = [item for item in steps if item.phase != "done"]
    reason = one_line(read_key(value, "explanation"))
    head = [*([f"Why: {reason}"] if reason else []), f"Steps: {len(done)} of {len(done) + len(rest)} done"]
    return most_that_fits(len(done) + len(rest), lambda most: "\n".join([*head, *_told(done, rest, most)]), ctx.budget_tokens, ctx.estimate)


def _told(done: Sequence[Item], rest: Sequence[Item], most: int) -> list[str]:
    """Lines for at most so many steps: those to come in their order, then those done last."""
    told = done[max(len(done) - max(most - len(rest), 0), 0) :]
    earlier = [f"- … {len(done) - len(told)} done earlier, not listed"] if len(told) < len(done) else []
    later = [f"- … {len(rest) - most} more, not listed"] if len(rest) > most else []
    return [*earlier, *map(item_line, [*told, *rest[:most]]), *later]


def _past(value: Any) -> list[Item]:
    """Steps done; a pair is a step and its result."""
    found: list[Item] = []
    for raw in raw_items(value):
        pair = raw[:2] if isinstance(raw, tuple | list) else [raw]
        step = items_of([pair[0]]) if pair else []
        result = one_line(pair[1], 200) if len(pair) > 1 else ""
        found += [Item(f"{item.title}: {result}" if result else item.title, "completed") for item in step]
    return found
