"""Section `skills`: instructions that were loaded.

A paraphrase of a skill is no skill: its exact formats drift while the agent believes that it follows them. So each is put back verbatim and once, or
the agent is told that it was loaded and must be loaded again.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from langgraph_roundcompact._state import read_key
from langgraph_roundcompact.reinject._calls import Use, argument, json_mapping, tool_keys, uses_of
from langgraph_roundcompact.reinject._context import ReinjectContext, clean, lookup, one_line, visible
from langgraph_roundcompact.reinject._files import file_text, find_file, looks_binary, path_key
from langgraph_roundcompact.reinject._items import raw_items
from langgraph_roundcompact.reinject._reads import FileRead, FileTools, file_events, may_read, shown_text

_NOTICE = re.compile(r"\s{0,9}(?:launching|loading|loaded|activating|activated|using)\b[^\n]{0,120}\s{0,9}", re.IGNORECASE)
"""A result that says that a skill was loaded, where its text comes in another message."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A skill that was loaded."""

    name: str
    path: str
    text: str | None
    """What loading showed, where that was the whole text."""


@dataclass(frozen=True, kw_only=True)
class SkillsBuilder:
    """Section `skills`."""

    elastic: ClassVar[bool] = True
    """Fits itself to the budget."""

    load_tools: tuple[str, ...] = ("load_skill", "skill", "use_skill", "skill_tool", "read_skill", "activate_skill")
    """Tools that load a skill by name."""
    name_arguments: tuple[str, ...] = ("name", "skill", "skill_name", "skill_id", "command")
    """Arguments that name it."""
    tools: FileTools = field(default_factory=FileTools)
    """Tools that read files: reading a `SKILL.md` is loading, too."""
    metadata_keys: tuple[str, ...] = ("skills_metadata",)
    """State keys with `name` and `path` of the skills there are."""
    files_keys: tuple[str, ...] = ("files",)
    """State keys with files by path; a skill in there is shown as it is now."""
    max_skills: int = 3
    """How many are put back: those used last."""

    def __call__(self, ctx: ReinjectContext, /) -> str | None:
        """The newest skills, the last used at the end; None where none was loaded, or kept messages show them."""
        paths = self._paths(ctx)
        kept = {key for key, skill in self._loaded(ctx.kept, paths).items() if skill.text is not None}
        used = [skill for key, skill in self._loaded(ctx.target, paths).items() if key not in kept]
        if not used or self.max_skills < 1:
            return None
        bodies = {skill.name: body for skill in used[-self.max_skills :] if (body := self._body(ctx, skill)) is not None}
        fresh = [skill for skill in used if not (bodies.get(skill.name) and visible(ctx, bodies[skill.name]))]
        return _fitted(fresh, self.max_skills, {name: clean(ctx, body) for name, body in bodies.items()}, ctx) if fresh else None

    def _paths(self, ctx: ReinjectContext) -> dict[str, str]:
        """Path of each skill by name, as the graph knows them."""
        entries = [entry for key in self.metadata_keys for entry in raw_items(lookup(ctx, (key,))) if not isinstance(entry, str)]
        named = ((one_line(read_key(entry, "name"), 120), read_key(entry, "path")) for entry in entries)
        return {name: path for name, path in named if name and isinstance(path, str) and path.strip()}

    def _loaded(self, messages: Sequence[Any], paths: Mapping[str, str]) -> dict[str, _Loaded]:
        """Skills by lower-case name, in order of last use."""
        names = {path_key(path): name for name, path in paths.items()}
        found: dict[str, _Loaded] = {}
        for use in uses_of(messages):
            for skill in self._of_use(use, paths, names):
                key = skill.name.lower()
                found.pop(key, None)
                found[key] = skill
        return found

    def _of_use(self, use: Use, paths: Mapping[str, str], names: Mapping[str, str]) -> list[_Loaded]:
        if use.result is None or use.failed:
            return []
        if use.key in tool_keys(self.load_tools):
            data = json_mapping(use.text)
            name = one_line(argument(use.args, self.name_arguments), 120).lstrip("/") or one_line(argument(data, self.name_arguments), 120)
            path = paths.get(name, "") or argument(data, ("path", "file_path", "skill_path", "skill_directory"))
            return [_Loaded(name, path, shown_text(use))] if name else []
        if not may_read(use, self.tools, "skill.md"):
            return []
        reads = [
            event for event in file_events(use, self.tools) if isinstance(event, FileRead) and posixpath.basename(event.path).lower() == "skill.md"
        ]
        return [_Loaded(_name_of(read.path, names), read.path, None if read.part else read.text) for read in reads]

    def _body(self, ctx: ReinjectContext, skill: _Loaded) -> str | None:
        in_state, value = find_file(lookup(ctx, self.files_keys), skill.path) if skill.path else (False, None)
        text = file_text(value) if in_state else skill.text
        if not in_state and text is not None and _NOTICE.fullmatch(text):
            return None
        if text is None or not text.strip() or looks_binary(text) or len(text) > max(ctx.budget_tokens, 0) * 32:
            return None
        return text.strip("\n")


def _name_of(path: str, names: Mapping[str, str]) -> str:
    key = path_key(path)
    return names.get(key) or one_line(posixpath.basename(posixpath.dirname(key)), 120) or "SKILL.md"


def _fitted(skills: Sequence[_Loaded], most: int, bodies: Mapping[str, str], ctx: ReinjectContext) -> str:
    """The section within the budget: a text that does not fit is left out whole, that of the skill used longest ago first."""
    shown = dict(bodies)
    text = _text(skills, most, shown)
    for skill in skills:
        if ctx.estimate(text) <= ctx.budget_tokens:
            break
        shown.pop(skill.name, None)
        text = _text(skills, most, shown)
    return text


def _text(skills: Sequence[_Loaded], most: int, shown: Mapping[str, str]) -> str:
    parts = []
    older = skills[:-most]
    if older:
        parts.append(f"Loaded earlier, load again before following: {', '.join(skill.name for skill in older)}")
    for skill in skills[-most:]:
        lines = [f"Skill: {skill.name}", *([f"Path: {one_line(skill.path)}"] if skill.path else [])]
        body = shown.get(skill.name)
        lines.append(f"Text:\n{body}" if body else "It was loaded, but its text is not here: load it again before following it.")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)
