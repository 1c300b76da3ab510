"""Whole steps: each of the oldest finished steps is reduced to a line.

Call and result stay, with their ids, and only their texts shrink: to a provider the history is the same sequence of turns. Merging a step
into one message would need a message of a kind that some providers refuse in that place, and would leave ids without their message. Arguments of
calls stay too: a model that finds its own calls abridged starts to write abridged calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from langchain_core.messages import AIMessage, BaseMessage

from langgraph_roundcompact._folded import folded, is_folded, is_pinned
from langgraph_roundcompact._message_tokens import message_tokens
from langgraph_roundcompact.tiers._context import TierContext
from langgraph_roundcompact.tiers._results import LEAST_GAIN, Result, Work, enough, read_work, reference, replaced

KEEP_STEPS = 3
"""Newest steps of the target that stay."""
_WORDS_CHARACTERS = 160
"""Of what the assistant said in a folded step, what is left."""


def whole_segment(target: Sequence[BaseMessage], context: TierContext, /) -> Sequence[BaseMessage]:
    """Fold the oldest steps whole, step by step, until the window is at its target."""
    if not context.excess:
        return target
    work = read_work(target, context)
    folds: dict[int, BaseMessage] = {}
    gained = 0
    for new in _oldest_first(work):
        if gained >= context.excess:
            break
        for at, message in new.items():
            gained += message_tokens(target[at], context.estimate) - message_tokens(message, context.estimate)
        folds |= new
    return replaced(target, folds) if folds and enough(gained, context) else target


def _oldest_first(work: Work) -> Iterator[dict[int, BaseMessage]]:
    """The folds of each step."""
    results: dict[int, list[Result]] = {}
    for result in work.results:
        results.setdefault(result.step, []).append(result)
    places = [at for at, message in enumerate(work.target) if isinstance(message, AIMessage)]
    for step, at in enumerate(places[: max(len(places) - KEEP_STEPS, 0)]):
        message = work.target[at]
        new: dict[int, BaseMessage] = {}
        words = _shorter(message)
        if words:
            new[at] = folded(message, words, "whole_segment")
        for result in results.get(step, ()):
            new[result.at] = folded(result.message, reference(result, "finished", work.context), "whole_segment")
        yield {place: fold for place, fold in new.items() if _gain(work, place, fold) >= LEAST_GAIN}


def _gain(work: Work, at: int, fold: BaseMessage) -> int:
    return message_tokens(work.target[at], work.context.estimate) - message_tokens(fold, work.context.estimate)


def _shorter(message: BaseMessage) -> str:
    """The head of what the assistant said; `""` where it must stay as it is.

    Content in blocks may hold reasoning with a signature over it, and some providers check reasoning that stands beside the text.
    """
    text = message.content
    if not isinstance(text, str) or len(text) <= _WORDS_CHARACTERS * 2 or is_folded(message) or is_pinned(message):
        return ""
    if message.additional_kwargs.get("lc_source") or "reasoning_content" in message.additional_kwargs:
        return ""
    head = text[:_WORDS_CHARACTERS]
    border = max(head.rfind("\n"), head.rfind(". ") + 1, head.rfind("。") + 1)
    return f"{head[: border if border > _WORDS_CHARACTERS // 2 else None].rstrip()} [… {len(text):,} characters in all]"
