"""Calls and their outcomes as text: lines of a result stand under the call or file they come from, so that none is read without its source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from langgraph_roundcompact._facts import COMMAND_LABEL, FIXED, Fact

_FILE_STATES = ("deleted", "changed after last read", "changed", "changed, then read", "read")
_HEADER = 48
"""Characters of a label that heads lines; a longer one is cut in its middle."""
_HEADER_START, _HEADER_END = 26, 18


@dataclass(frozen=True, slots=True)
class WorkLog:
    """The parts of a text about calls, each `""` where there is nothing to say."""

    calls: str
    """Calls in order, with result lines under them."""
    files: str
    """Files by what became of them, then lines of them."""
    errors: str
    """Errors that nothing says are fixed."""
    fixed: str
    """Errors of calls that are not shown, fixed since."""
    rest: str
    """Lines whose call is not shown."""


def work_log(facts: Iterable[Fact]) -> WorkLog:
    """Commands, files, errors and result lines as text; other kinds are left out."""
    kinds: dict[str, list[Fact]] = {}
    for fact in sorted(facts, key=lambda fact: (fact.order, fact.text)):
        kinds.setdefault(_kind(fact), []).append(fact)
    commands = kinds.get("command", [])
    shown = {fact.text[:COMMAND_LABEL] for fact in commands}
    named = {fact.text for fact in kinds.get("file", ())}
    under: dict[str, list[str]] = {}
    fixed: list[str] = []
    for fact in sorted((*kinds.get("result", ()), *kinds.get("fixed", ())), key=lambda fact: (fact.order, fact.text)):
        label = fact.note.removeprefix(FIXED)
        if fact.kind == "error" and label not in shown:
            fixed.append(fact.text)
        else:
            under.setdefault(label, []).append(f"(fixed) {fact.text}" if fact.kind == "error" else fact.text)
    own = {label: lines for label, lines in under.items() if label not in shown}
    of_files = {label: lines for label, lines in own.items() if label in named or _is_path(label)}
    rest = {label: lines for label, lines in own.items() if label not in of_files}
    return WorkLog(
        calls="\n".join(part for fact in commands for part in (_call(fact), *_indented(under.get(fact.text[:COMMAND_LABEL], ())))),
        files="\n".join([*_states(kinds.get("file", ())), *_headed(of_files)]),
        errors=under_labels(kinds.get("error", ())),
        fixed="\n".join(fixed),
        rest="\n".join(_headed(rest)),
    )


def under_labels(facts: Iterable[Fact]) -> str:
    """Lines under the calls that they come from."""
    return "\n".join(_headed(_labelled(facts)))


def file_state(operations: str) -> str:
    """What became of a file, from its operations in order (`r`, `w`, `e`, `d`)."""
    if operations.endswith("d"):
        return "deleted"
    changed = max(operations.rfind("w"), operations.rfind("e"))
    read = operations.rfind("r")
    if changed < 0:
        return "read"
    if read > changed:
        return "changed, then read"
    return "changed after last read" if read >= 0 else "changed"


def _kind(fact: Fact) -> str:
    return "fixed" if fact.kind == "error" and fact.note.startswith(FIXED) else fact.kind


def _is_path(label: str) -> bool:
    return " " not in label and ("/" in label or "." in label)


def _call(fact: Fact) -> str:
    # What ended well and never otherwise needs no mark.
    return f"{fact.text} → {fact.note}" if fact.note not in ("", "0", "ok") else fact.text


def _states(files: Sequence[Fact]) -> Iterable[str]:
    """Files by what became of them, one line a state."""
    states: dict[str, list[str]] = {}
    for fact in files:
        states.setdefault(file_state(fact.note), []).append(fact.text)
    return [f"{state}: {' '.join(states[state])}" for state in _FILE_STATES if state in states]


def _labelled(facts: Iterable[Fact]) -> Mapping[str, Sequence[str]]:
    groups: dict[str, list[str]] = {}
    for fact in facts:
        groups.setdefault(fact.note, []).append(fact.text)
    return groups


def _headed(groups: Mapping[str, Sequence[str]]) -> Iterable[str]:
    """Lines under their labels; those without one first."""
    yield from groups.get("", ())
    for label, lines in groups.items():
        if label:
            yield f"{_header(label)}:"
            yield from _indented(lines)


def _header(label: str) -> str:
    """A label, of a long command its beginning and its end: what is run, and on what."""
    if len(label) <= _HEADER or " " not in label:
        return label
    return f"{label[:_HEADER_START].rstrip()} … {label[-_HEADER_END:].lstrip()}"


def _indented(lines: Iterable[str]) -> Iterable[str]:
    return (f"  {line}" for line in lines)
