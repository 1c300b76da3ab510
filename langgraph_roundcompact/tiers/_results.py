"""What the built-in tiers share: which tool results may be folded, into what, and that a tier folds in one batch or not at all.

What a message is folded into depends on the message and its call alone, never on the window, the moment or the tier: whoever folds it first,
at whichever step, in whichever process, the bytes are the same, and the provider's prefix cache holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langgraph_roundcompact._calls import answered_by_person, read_call
from langgraph_roundcompact._content import text_of
from langgraph_roundcompact._folded import folded, is_folded, is_pinned
from langgraph_roundcompact._groups import Call, results_of
from langgraph_roundcompact._message_tokens import message_tokens
from langgraph_roundcompact._visible import compact, visible_parts, without_payloads
from langgraph_roundcompact.reinject._calls import Use, argument, tool_keys, uses_of
from langgraph_roundcompact.reinject.skills import SkillsBuilder
from langgraph_roundcompact.tiers._context import TierContext
from langgraph_roundcompact.tiers.previews import preview

PROTECTED_RESULTS = 3
"""The newest results of the target that no tier folds: what the model works with now is often just before the tail."""
PROTECTED_SHARE = 0.15
"""Of the target in tokens: the most that the protected results take together, so that one huge result is not protected."""

PREVIEW_LEAST, PREVIEW_MOST, PREVIEW_SHARE = 32, 320, 6
"""A preview takes a sixth of what it stands for, in tokens, between these bounds."""

LEAST_GAIN = 24
"""Tokens that one fold must save: below that the line that says so is all that would be left."""

_SKILLS = SkillsBuilder()
_NAME_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Result:
    """A result that a tier may fold."""

    at: int
    """Its place in the target."""
    message: ToolMessage
    use: Use
    """The call it answers."""
    step: int
    """The number of the step it belongs to, from 0."""
    tokens: int
    """What the message takes, in tokens of the estimate."""

    @property
    def characters(self) -> int:
        """Length of what is shown, in characters."""
        return len(text_of(self.message))


@dataclass(frozen=True, slots=True)
class Work:
    """A target as tiers read it."""

    target: tuple[BaseMessage, ...]
    context: TierContext
    results: tuple[Result, ...]
    """Results that may be folded, oldest first."""
    steps: int
    """Steps there are in all."""


def read_work(target: Sequence[BaseMessage], context: TierContext, *, keep: int = PROTECTED_RESULTS) -> Work:
    """Read a target once.

    Left out are results that are folded, pinned or edited by somebody else, errors, what a person answered, loaded skills (they are put back
    verbatim by the recovered context), and the newest `keep` ones as far as they are small.
    """
    uses = {id(use.result): use for use in uses_of(target) if use.result is not None}
    owners = results_of(target)
    numbers = _step_numbers(target)
    found = [
        Result(at, message, use, numbers[owners[at][0]], message_tokens(message, context.estimate))
        for at, message in enumerate(target)
        if isinstance(message, ToolMessage) and at in owners and (use := uses.get(id(message))) is not None
    ]
    newest = _newest(found, context, keep)
    free = (result for result in found if result.at not in newest and _may_fold(result))
    return Work(tuple(target), context, tuple(free), len(numbers))


def fold_results(work: Work, picked: Iterable[Result], tier: str, text: Callable[[Result], str] | None = None) -> Sequence[BaseMessage]:
    """The target with some results folded: all of them in one batch, or none when that gains too little.

    Args:
        work: The target.
        picked: The results to fold. One that would not get smaller stays.
        tier: The tier's name, for the mark.
        text: What a result is folded into; None: its preview.
    """
    write = text or (lambda result: preview_of(result, work.context))
    return _batch(work, ((result, write(result)) for result in picked), tier)


def fold_until_fits(work: Work, ordered: Iterable[Result], tier: str, excess: int) -> Sequence[BaseMessage]:
    """Same as `fold_results`, ending as soon as `excess` tokens of the estimate are gone."""
    return _batch(work, ((result, preview_of(result, work.context)) for result in ordered), tier, excess)


def preview_of(result: Result, context: TierContext) -> str:
    """What stands for a result: the same for the same message and call."""
    return preview(
        shown_text(result.message),
        limit_tokens=preview_limit(result.tokens),
        estimate=context.estimate,
        tool=result.use.tool,
        arguments=result.use.args,
        where=context.where(result.message),
    ).text


def preview_limit(tokens: int) -> int:
    """The most that the preview of a message of so many tokens takes, in tokens."""
    return min(max(tokens // PREVIEW_SHARE, PREVIEW_LEAST), PREVIEW_MOST)


def reference(result: Result, said: str, context: TierContext) -> str:
    """One line in place of a result."""
    name = " ".join(result.use.tool.split())[:_NAME_CHARACTERS] or "tool"
    return " ".join(filter(None, (f"[{name}: {said}; {result.characters:,} characters left out]", context.where(result.message))))


def shown_text(message: BaseMessage) -> str:
    """Everything of a message that can be said in text: media as references, data as JSON, no base64."""
    if isinstance(message.content, str):
        return without_payloads(message.content)
    parts = visible_parts(message)
    return "\n".join(without_payloads(value) if isinstance(value, str) else compact(value[1]) for kind, value in parts if kind in ("text", "data"))


def replaced(target: Sequence[BaseMessage], folds: dict[int, BaseMessage]) -> list[BaseMessage]:
    """The target with folds in their places."""
    return [folds.get(at, message) for at, message in enumerate(target)]


def _batch(work: Work, texts: Iterator[tuple[Result, str]], tier: str, excess: int | None = None) -> Sequence[BaseMessage]:
    folds: dict[int, BaseMessage] = {}
    gained = 0
    for result, text in texts:
        new = folded(result.message, text, tier)
        gain = result.tokens - message_tokens(new, work.context.estimate)
        if gain < LEAST_GAIN:
            continue
        folds[result.at] = new
        gained += gain
        if excess is not None and gained >= excess:
            break
    return replaced(work.target, folds) if folds and enough(gained, work.context) else work.target


def enough(gained: int, context: TierContext) -> bool:
    """Whether a gain in tokens of the estimate is worth a break of the prefix cache."""
    return gained * context.scale >= context.reclaim_at_least_tokens


def _step_numbers(target: Sequence[BaseMessage]) -> dict[int, int]:
    places = [at for at, message in enumerate(target) if isinstance(message, AIMessage)]
    return {at: number for number, at in enumerate(places)}


def _newest(found: Sequence[Result], context: TierContext, keep: int) -> frozenset[int]:
    """Places of the newest results, as long as they are few and small."""
    left = int(context.target_tokens * PROTECTED_SHARE / context.scale)
    places = set()
    for result in reversed(found[max(len(found) - keep, 0) :]):
        left -= result.tokens
        if left < 0:
            break
        places.add(result.at)
    return frozenset(places)


def _may_fold(result: Result) -> bool:
    message, use = result.message, result.use
    if is_folded(message) or is_pinned(message) or message.additional_kwargs.get("lc_source") or message.response_metadata.get("context_editing"):
        return False
    if result.tokens < LEAST_GAIN or use.failed or _loads_skill(use):
        return False
    return not answered_by_person(read_call(Call("", use.tool, use.args, "tool"), str), use.text, failed=use.failed)


def _loads_skill(use: Use) -> bool:
    if use.key in tool_keys(_SKILLS.load_tools):
        return True
    return argument(use.args, _SKILLS.tools.path_arguments).lower().endswith("skill.md")
