"""Section `todo`: what is open with its status, what is done in one line, and the counts.

The list in state is the truth; a `write_todos` call is only a view of it, soon an old one. So calls are read only where the state has no
such key at all. An empty list in state means an empty list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from langgraph_roundcompact._budget import most_that_fits
from langgraph_roundcompact.reinject._calls import Use, newest, scan, tool_keys, uses_of
from langgraph_roundcompact.reinject._context import MISSING, ReinjectContext, lookup
from langgraph_roundcompact.reinject._items import Item, counts_line, item_line, items_of


@dataclass(frozen=True, kw_only=True)
class TodoBuilder:
    """Section `todo`."""

    shortens: ClassVar[bool] = True
    """Leaves out what is least useful first: titles of what was done long ago, then what comes last in the list."""

    keys: tuple[str, ...] = ("todos",)
    """State keys; the first that exists counts."""
    tools: tuple[str, ...] = ("write_todos", "TodoWrite", "update_plan")
    """Tools whose newest call holds the list where the state has none."""
    arguments: tuple[str, ...] = ("todos", "plan", "items")
    """Arguments of such a call that hold the list."""

    def __call__(self, ctx: ReinjectContext, /) -> str | None:
        """The open items first, each with its status; None without a list, or while a kept result shows the same one."""
        value = lookup(ctx, self.keys)
        items = items_of(value) if value is not MISSING else self._from_calls(ctx)
        if not items or self._shown(ctx, items):
            return None
        return _fitted(items, ctx)

    def _from_calls(self, ctx: ReinjectContext) -> list[Item]:
        found = [(use, kept) for use, kept in scan(ctx.target, ctx.kept) if use.key in tool_keys(self.tools) and not use.failed]
        return [] if not found or found[-1][1] else self._listed(found[-1][0])

    def _listed(self, use: Use) -> list[Item]:
        return next((items for name in self.arguments if (items := items_of(use.args.get(name)))), [])

    def _shown(self, ctx: ReinjectContext, items: Sequence[Item]) -> bool:
        """Whether the newest kept call is about this very list and its result spells it out."""
        use = newest(uses_of(ctx.kept), tool_keys(self.tools))
        return use is not None and self._listed(use) == items and all(item.title in use.text and item.status in use.text for item in items)


def _fitted(items: Sequence[Item], ctx: ReinjectContext) -> str:
    """The list within the budget: first those that are open, in the order of the work, then those done last. The counts are of all."""
    # What is being worked on leads; otherwise the order of the list is kept.
    left = [item_line(item) for phase in ("current", "open") for item in items if item.phase == phase]
    done = [item.title for item in items if item.phase == "done"]
    counts = f"Counts: {counts_line(items)}"

    def text(most: int) -> str:
        more = [f"- … {len(left) - most} more, not listed"] if len(left) > most else []
        told = done[max(len(done) - max(most - len(left), 0), 0) :]
        earlier = [f"… {len(done) - len(told)} earlier"] if len(told) < len(done) else []
        completed = [f"Completed: {'; '.join([*earlier, *told])}"] if told else []
        return "\n".join([*left[:most], *more, *completed, counts])

    return most_that_fits(len(left) + len(done), text, ctx.budget_tokens, ctx.estimate)
