"""Items of a todo list or a plan, whatever wrote it: dicts, dataclasses, pydantic objects, strings with or without check boxes, junk."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from langgraph_roundcompact._state import read_key
from langgraph_roundcompact.reinject._context import one_line

Phase = Literal["current", "open", "done", "dropped"]

_PHASES: dict[str, Phase] = {
    **dict.fromkeys(("in_progress", "inprogress", "active", "current", "doing", "running", "started", "working"), "current"),
    **dict.fromkeys(("completed", "complete", "done", "finished", "closed", "resolved", "success", "succeeded"), "done"),
    **dict.fromkeys(("cancelled", "canceled", "dropped", "skipped", "deleted", "obsolete"), "dropped"),
}
_KNOWN = _PHASES.keys() | {"pending", "open", "todo", "not_started", "planned", "blocked", "queued"}
_TITLE_KEYS = ("content", "title", "task", "step", "description", "text", "name", "subject", "goal")
_LIST_KEYS = ("todos", "items", "steps", "tasks", "plan", "list")
_BOX = re.compile(r"\s{0,20}(?:(?:[-*+]|\d{1,4}[.)])\s{1,4})?(?:\[([ xX~>\-/])\]\s{0,4})?")
_BOX_STATUS = {"x": "completed", "X": "completed", "~": "in_progress", ">": "in_progress", "/": "in_progress", "-": "cancelled"}


@dataclass(frozen=True, slots=True)
class Item:
    """One piece of work."""

    title: str
    status: str
    """As it was written."""

    @property
    def phase(self) -> Phase:
        """What the status means; unknown statuses are open work, which is the safe reading."""
        return _PHASES.get(_phase_key(self.status), "open")


def _phase_key(status: str) -> str:
    return status[:40].lower().replace("-", "_").replace(" ", "_")


def items_of(value: Any) -> list[Item]:
    """The items in a state value or call argument; what has no title is left out."""
    return [item for raw in raw_items(value) if (item := _item(raw)) is not None]


def raw_items(value: Any) -> Iterator[Any]:
    """The elements of a list, of the list inside a mapping or object, of a mapping by id, or the lines of a string."""
    if isinstance(value, str):
        yield from (line for line in value.splitlines() if line.strip())
    elif isinstance(value, Mapping):
        yield from _of_mapping(value)
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        yield from value
    else:
        inner = next((found for key in _LIST_KEYS if isinstance(found := read_key(value, key), list | tuple)), ())
        yield from inner


def has_list(value: Any) -> bool:
    """Whether a value is a list of items or a record that holds one."""
    return isinstance(value, list | tuple) or any(isinstance(read_key(value, key), list | tuple) for key in _LIST_KEYS)


def item_line(item: Item) -> str:
    """An item as one line that names its status verbatim."""
    return f"- [{item.status}] {item.title}"


def counts_line(items: Sequence[Item]) -> str:
    """How many items have which status, in order of appearance."""
    counts: dict[str, int] = {}
    for item in items:
        counts[item.status] = counts.get(item.status, 0) + 1
    return ", ".join(f"{number} {status}" for status, number in counts.items())


def _of_mapping(value: Mapping[Any, Any]) -> Iterator[Any]:
    for key in _LIST_KEYS:
        if isinstance(value.get(key), list | tuple):
            yield from value[key]
            return
    if any(isinstance(value.get(key), str) for key in _TITLE_KEYS):
        yield value
        return
    for key, inner in value.items():
        # A step or task by its name: the name is what it is, and what stands under it says how far it is.
        named = isinstance(key, str) and not key.isdigit() and (_is_status(inner) if isinstance(inner, str) else not _title(inner))
        yield (key, inner) if named else inner


def _item(raw: Any) -> Item | None:
    if isinstance(raw, str):
        return _of_line(raw)
    if isinstance(raw, tuple | list):
        return _of_pair(raw)
    title = _title(raw)
    return Item(title, _status(raw)) if title else None


def _title(raw: Any) -> str:
    return next((line for key in _TITLE_KEYS if (line := one_line(read_key(raw, key)))), "")


def _of_pair(pair: Sequence[Any]) -> Item | None:
    """A title with a status, or with a record that has one; whatever else stands beside a title says nothing of it."""
    title = one_line(pair[0]) if pair and isinstance(pair[0], str) else ""
    beside = pair[1] if len(pair) > 1 else None
    status = one_line(beside, 40) if _is_status(beside) else "pending" if isinstance(beside, str) else _status(beside)
    return Item(title, status) if title else None


def _is_status(value: object) -> bool:
    return isinstance(value, str) and _phase_key(value) in _KNOWN


def _of_line(line: str) -> Item | None:
    found = _BOX.match(line)
    box = found[1] if found else None
    title = one_line(line[found.end() :] if found else line)
    return Item(title, _BOX_STATUS.get(box or "", "pending")) if title else None


def _status(raw: Any) -> str:
    for key in ("status", "state"):
        value = read_key(raw, key)
        # Enum members say what they are by their value.
        status = one_line(value if isinstance(value, str) else read_key(value, "value"), 40)
        if status:
            return status
    return "completed" if any(read_key(raw, key) is True for key in ("done", "completed", "complete")) else "pending"
