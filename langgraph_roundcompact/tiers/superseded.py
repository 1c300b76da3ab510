"""Results that a newer one makes useless: the same text again, another poll of the same thing, a file that was read again or written anew.

The newest stays; the older becomes one line. That line does not say which newer one it was, so it is the same at every later step.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections import defaultdict
from collections.abc import Iterator, Sequence

from langchain_core.messages import BaseMessage

from langgraph_roundcompact._calls import read_call
from langgraph_roundcompact._groups import Call
from langgraph_roundcompact._lines import template
from langgraph_roundcompact._visible import plain
from langgraph_roundcompact.reinject._calls import Use, uses_of
from langgraph_roundcompact.reinject._files import path_key
from langgraph_roundcompact.reinject._reads import FileRead, FileTools, file_events, same_file
from langgraph_roundcompact.tiers._context import TierContext
from langgraph_roundcompact.tiers._results import fold_results, read_work, reference

_TOOLS = FileTools()
POLL_LIKENESS = 0.5
"""Share of lines, numbers and paths masked, from which two answers to equal calls are polls of one thing. A pager answers something else."""
_POLL_LINES = 200


def superseded(target: Sequence[BaseMessage], context: TierContext, /) -> Sequence[BaseMessage]:
    """Fold results that a newer result or a newer write of the same file replaces, all of them in one batch."""
    if not context.excess:
        return target
    work = read_work(target, context)
    reasons = _reasons(uses_of(target))
    picked = [result for result in work.results if id(result.message) in reasons]
    return fold_results(work, picked, "superseded", lambda result: reference(result, reasons[id(result.message)], context))


def _reasons(uses: Sequence[Use]) -> dict[int, str]:
    """Why a result is superseded, by the identity of its message. One pass from the newest call to the oldest."""
    found: dict[int, str] = {}
    later = _Later()
    for use in reversed(uses):
        reason = later.reason(use)
        if reason and use.result is not None:
            found[id(use.result)] = reason
        later.note(use)
    return found


class _Later:
    """What the calls after the present one did."""

    def __init__(self) -> None:
        self._texts: set[tuple[str, bytes]] = set()
        self._answers: dict[tuple[str, bytes], frozenset[str]] = {}
        self._files: defaultdict[str, dict[tuple[str, str], str]] = defaultdict(dict)
        """By base name: path and part of what was read or written later, and which."""

    def reason(self, use: Use) -> str:
        """Why this result is of no more use; `""` where it is."""
        if use.result is None or use.failed:
            return ""
        if _text_key(use) in self._texts:
            return "the same result came again later"
        forms = self._answers.get(_call_key(use))
        if forms is not None and _alike(forms, _forms(use.text)):
            return "a later call with the same arguments has the newer answer"
        reads = list(_reads(use))
        told = [self._replaced(read) for read in reads]
        return told[0] if told and all(told) else ""

    def _replaced(self, read: FileRead) -> str:
        """How all that this read shows was shown or made again."""
        key = path_key(read.path)
        for (other, part), what in self._files.get(posixpath.basename(key), {}).items():
            if same_file(key, other) and (part in ("", read.part)):
                return f"{posixpath.basename(key)[:80]} was {what} later"
        return ""

    def note(self, use: Use) -> None:
        """This call is a later one for those before it."""
        if use.result is None or use.failed:
            return
        self._texts.add(_text_key(use))
        self._answers.setdefault(_call_key(use), _forms(use.text))
        for read in _reads(use):
            self._file(read.path, read.part, "read again")
        for operation, path in read_call(Call("", use.tool, use.args, "tool"), str).files:
            if operation in ("w", "d"):
                self._file(path, "", "written anew" if operation == "w" else "deleted")

    def _file(self, path: str, part: str, what: str) -> None:
        key = path_key(path)
        self._files[posixpath.basename(key)].setdefault((key, part), what)


def _reads(use: Use) -> Iterator[FileRead]:
    """Reads whose text is the file and nothing else: of a listing that also shows a file, the rest is still of use."""
    return (event for event in file_events(use, _TOOLS) if isinstance(event, FileRead) and event.text is not None)


def _text_key(use: Use) -> tuple[str, bytes]:
    return use.key, _digest(use.text)


def _call_key(use: Use) -> tuple[str, bytes]:
    return use.key, _digest(json.dumps(plain(dict(use.args)), sort_keys=True, ensure_ascii=True))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


def _forms(text: str) -> frozenset[str]:
    """The lines of a text with numbers and paths masked."""
    return frozenset(template(line.strip()) for line in text[:40_000].splitlines()[:_POLL_LINES] if line.strip())


def _alike(one: frozenset[str], other: frozenset[str]) -> bool:
    return len(one & other) >= POLL_LIKENESS * max(len(one | other), 1)
