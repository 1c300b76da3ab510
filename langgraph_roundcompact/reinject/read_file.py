"""Section `read_file`, the files in use: which were read, which have changed since, and what they say now.

The list comes from the calls, not from a summary, so it is right even where the summary forgets it. Contents come from the `files` state
where the graph has one; otherwise from the last read, but only while nothing has touched the file since: an old text shown as the file is worse
than none. A file is shown whole or only listed. It is never cut, so half a file is never taken for the file.
"""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from langgraph_roundcompact.reinject._calls import uses_of
from langgraph_roundcompact.reinject._context import ReinjectContext, clean, lookup, one_line, visible
from langgraph_roundcompact.reinject._files import file_text, find_file, looks_binary, path_key
from langgraph_roundcompact.reinject._reads import FileChange, FileRead, FileTools, file_events, same_file

_CHANGED = "modified after the last read"
_UNCERTAIN = "may have changed since the last read"
_HEAD = "Files read, the one used last at the end:"


@dataclass(slots=True)
class _Known:
    """What the calls tell about one file."""

    path: str
    read: FileRead
    last_use: int
    changed: str = ""
    """What became of it after the read; `""` for nothing."""
    read_again: bool = False
    """A kept message shows it."""


class _Table:
    """The files in hand, by key; found by base name, so that a thousand changes of a thousand files stay cheap."""

    def __init__(self) -> None:
        self.files: dict[str, _Known] = {}
        self._by_name: dict[str, set[str]] = defaultdict(set)

    def read(self, event: FileRead, position: int, *, kept: bool) -> None:
        """A file was shown; one that only kept messages read is not in hand here, they show it."""
        key = path_key(event.path)
        if not kept:
            # Put at the end: files of one command keep its order.
            self.files.pop(key, None)
            self.files[key] = _Known(event.path, event, position)
            self._by_name[posixpath.basename(key)].add(key)
        elif key in self.files:
            one = self.files[key]
            one.last_use, one.changed, one.read_again = position, "", True

    def change(self, event: FileChange, position: int) -> None:
        """Files were changed, or may have been."""
        for key in self._named(map(posixpath.basename, event.keys)):
            if any(same_file(key, changed) for changed in event.keys):
                self.files[key].changed, self.files[key].last_use = _CHANGED, position
        uncertain = self.files if event.everything else self._named(event.names)
        for key in uncertain:
            self.files[key].changed = self.files[key].changed or _UNCERTAIN

    def _named(self, names: Iterable[str]) -> list[str]:
        return [key for name in names for key in self._by_name.get(name, ())]


@dataclass(frozen=True, kw_only=True)
class ReadFileBuilder:
    """Section `read_file`."""

    elastic: ClassVar[bool] = True
    """Fits itself to the budget."""

    tools: FileTools = field(default_factory=FileTools)
    """Names of the tools and arguments."""
    files_keys: tuple[str, ...] = ("files",)
    """State keys with files by path, in any of the shapes of deepagents."""
    max_files: int = 5
    """How many files may be shown with content: those used last."""
    max_listed: int = 200
    """How many paths are listed: those used last."""

    def __call__(self, ctx: ReinjectContext, /) -> str | None:
        """Paths once each in order of last use, then contents within the budget; None where nothing was read."""
        known = self._known(ctx)
        if not known:
            return None
        files = lookup(ctx, self.files_keys)
        contents = {one.path: text for one in known[-self.max_files :] if self.max_files > 0 and (text := self._content(ctx, one, files)) is not None}
        return _fitted(known[-self.max_listed :], len(known), contents, files, ctx)

    def _known(self, ctx: ReinjectContext) -> list[_Known]:
        """The files read by the messages that go, in order of last use."""
        table = _Table()
        target, kept = uses_of(ctx.target), uses_of(ctx.kept)
        for position, use in enumerate([*target, *kept]):
            for event in file_events(use, self.tools):
                if isinstance(event, FileChange):
                    table.change(event, position)
                else:
                    table.read(event, position, kept=position >= len(target))
        return sorted(table.files.values(), key=lambda one: one.last_use)

    def _content(self, ctx: ReinjectContext, one: _Known, files: Any) -> str | None:
        """The file as it is now, as far as that can be known; None where it cannot or must not be shown."""
        in_state, value = find_file(files, one.path)
        text = file_text(value) if in_state else None if one.changed else one.read.text
        hidden = one.read_again or _is_skill(one.path)
        if hidden or text is None or not text.strip() or looks_binary(text, one.path) or visible(ctx, text):
            return None
        # Longer than any budget in tokens could hold: do not even count it.
        return clean(ctx, text) if len(text) <= max(ctx.budget_tokens, 0) * 32 else None


def _is_skill(path: str) -> bool:
    """Skill texts are put back by the builder `skills`."""
    return posixpath.basename(path).lower() == "skill.md"


def _fitted(listed: Sequence[_Known], total: int, contents: Mapping[str, str], files: Any, ctx: ReinjectContext) -> str:
    """The section within the budget: contents go first, the largest first, then the paths used longest ago."""
    shown = dict(contents)
    sizes = {path: ctx.estimate(text) for path, text in contents.items()}
    text = _text(listed, total, shown, files)
    while shown and ctx.estimate(text) > ctx.budget_tokens:
        del shown[max(shown, key=lambda path: sizes[path])]
        text = _text(listed, total, shown, files)
    while len(listed) > 1 and ctx.estimate(text) > ctx.budget_tokens:
        listed = listed[(len(listed) + 7) // 8 :]
        text = _text(listed, total, shown, files)
    return text


def _text(listed: Sequence[_Known], total: int, shown: Mapping[str, str], files: Any) -> str:
    older = [f"- … {total - len(listed)} files used earlier are not listed"] if total > len(listed) else []
    lines = [_HEAD, *older, *(f"- {one_line(one.path)}{_marks(one, files)}" for one in listed)]
    for one in listed:
        if one.path in shown:
            part = _shown_part(one, files)
            lines += ["", f"--- {one_line(one.path)}{f' (only {part})' if part else ''}", shown[one.path]]
    return "\n".join(lines)


def _shown_part(one: _Known, files: Any) -> str:
    return "" if find_file(files, one.path)[0] else one.read.part


def _marks(one: _Known, files: Any) -> str:
    in_state, value = find_file(files, one.path)
    if in_state and value is None:
        return " (deleted since)"
    marks = [f"read in part: {one.read.part}"] if one.read.part else []
    if one.changed:
        marks.append(one.changed)
    if one.read_again:
        marks.append("read again below")
    return f" ({'; '.join(marks)})" if marks else ""
