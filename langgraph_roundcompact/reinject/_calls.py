"""Calls in the messages, each with its result: the second source of a builder, after state."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage

from langgraph_roundcompact._content import block_type, blocks_of, text_of
from langgraph_roundcompact._groups import Call, declared_calls, results_of
from langgraph_roundcompact._memory_block import is_own

_LARGEST_JSON = 1_000_000
"""Characters of arguments or result that are parsed as JSON; longer ones are taken as plain text."""
_LARGEST_ERROR = 600
"""Characters of a plain-text error. Longer text that begins like one is content, such as a log file."""
_ERROR = re.compile(
    r"\s{0,200}(?:<(?:tool_use_)?error>|\[?(?:\w{1,40}Error|error|errno|exception|failed|failure|fatal|enoent|eacces|eisdir)\b"
    r"|traceback \(most recent call last\)|(?:file|path|directory) (?:was )?(?:not found|does not exist)|no such file|permission denied"
    r"|access denied|(?:cannot|can't|could not|unable to) (?:read|open|find|access|load|view)|user rejected)",
    re.IGNORECASE,
)
_SHELL_ERROR = re.compile(
    r"no such file or directory|permission denied|is a directory|command not found|cannot access|(?:does not|doesn't) exist", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Use:
    """One call and what came of it."""

    tool: str
    """The name as the model wrote it."""
    args: Mapping[str, Any]
    result: ToolMessage | None
    """None while it is unanswered."""

    @property
    def key(self) -> str:
        """The name by which configured names are compared."""
        return tool_key(self.tool)

    @property
    def text(self) -> str:
        """The result's visible text."""
        return text_of(self.result) if self.result is not None else ""

    @property
    def failed(self) -> bool:
        """Whether the result is an error, by status or by what it says."""
        return self.result is not None and (self.result.status == "error" or looks_failed(self.text))

    @property
    def intact(self) -> bool:
        """Whether the result is still the text the tool gave: no other middleware cleared it, no medium stands in it."""
        if self.result is None or any(block_type(block) not in ("text", "") for block in blocks_of(self.result)):
            return False
        edited = self.result.response_metadata.get("context_editing") or self.result.additional_kwargs.get("lc_source")
        return not edited and self.text.strip() not in ("[cleared]", "")


class Span(tuple[BaseMessage, ...]):
    """Messages whose calls are read once, however many builders ask for them."""

    uses: list[Use] | None = None


def uses_of(messages: Sequence[BaseMessage]) -> list[Use]:
    """All calls with their results, in the order they were made. Blocks of ours are no source."""
    if not isinstance(messages, Span):
        return _read_uses(messages)
    if messages.uses is None:
        messages.uses = _read_uses(messages)
    return messages.uses


def _read_uses(messages: Sequence[BaseMessage]) -> list[Use]:
    foreign = [message for message in messages if not is_own(message)]
    answers = {position: foreign[index] for index, position in results_of(foreign).items()}
    found: list[Use] = []
    for owner, message in enumerate(foreign):
        for number, call in enumerate(declared_calls(message)):
            result = answers.get((owner, number))
            found.append(Use(call.name, _arguments(call), result if isinstance(result, ToolMessage) else None))
    return found


@lru_cache(maxsize=1024)
def tool_key(name: str) -> str:
    """Spellings of one tool made equal: `Read_File`, `read-file`, `ReadFile`, and `mcp__files__read_file`."""
    last = name.rsplit("__", 1)[-1] or name
    return last.lower().replace("_", "").replace("-", "")


@lru_cache(maxsize=256)
def tool_keys(names: tuple[str, ...]) -> frozenset[str]:
    """`tool_key` of each."""
    return frozenset(map(tool_key, names))


def newest(uses: Sequence[Use], keys: Collection[str]) -> Use | None:
    """The last call of one of these tools that did not fail."""
    return next((use for use in reversed(uses) if use.key in keys and not use.failed), None)


def argument(args: Mapping[str, Any], keys: Iterable[str]) -> str:
    """The first of the arguments that is a string with something in it; `""` where none is."""
    return next((value for key in keys if isinstance(value := args.get(key), str) and value.strip()), "")


def json_mapping(text: str) -> Mapping[str, Any]:
    """A JSON object in text; empty for everything else."""
    if len(text) > _LARGEST_JSON or text.lstrip()[:1] != "{":
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def looks_failed(text: str) -> bool:
    """Whether a tool's text is an error message rather than content."""
    if len(text) <= _LARGEST_ERROR and (_ERROR.match(text) or _shell_failed(text)):
        return True
    data = json_mapping(text)
    return bool(data.get("error")) or data.get("is_error") is True or data.get("success") is False or data.get("ok") is False


def _shell_failed(text: str) -> bool:
    """`cat: x: No such file or directory`: a word and a colon first, the complaint on the same line."""
    first = text.strip().split("\n", 1)[0]
    return bool(re.match(r"[\w./-]{1,60}: ", first) and _SHELL_ERROR.search(first))


def _arguments(call: Call) -> Mapping[str, Any]:
    if isinstance(call.args, Mapping):
        return call.args
    return json_mapping(call.args) if isinstance(call.args, str) else {}


def scan(target: Sequence[BaseMessage], kept: Sequence[BaseMessage]) -> Iterator[tuple[Use, bool]]:
    """The calls of both spans in order, each with whether it stays visible."""
    yield from ((use, False) for use in uses_of(target))
    yield from ((use, True) for use in uses_of(kept))
