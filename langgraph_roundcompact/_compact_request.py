"""A compaction that the agent itself asks for by a tool: a mark on the tool's result, read before the next model call.

The call is still open while its tool runs, so nothing can be replaced then. The mark stands in the result's artifact, which no provider is sent and
which survives a checkpoint. It is in force until the model answers: the same state always gives the same answer, a retried step compacts again, a
later step does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage

REQUEST_TYPE = "round_compaction_request"
FOCUS_CHARS = 2000
"""Of what an agent says about the focus, what is passed on to the summariser, in characters."""


def request_mark(focus: str) -> dict[str, str]:
    """The artifact of a tool result that asks for a compaction."""
    return {"type": REQUEST_TYPE, "focus": " ".join(focus.split())[:FOCUS_CHARS]}


def requested_focus(messages: Sequence[Any]) -> str | None:
    """What the agent asked the next compaction to look at; empty: it asked without saying; None: it did not ask.

    Args:
        messages: The window. Read from its end, back to the last answer of the model. Calls made side by side are read in their order.
    """
    found: list[str] = []
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            break
        mark = message.artifact if isinstance(message, ToolMessage) else None
        if isinstance(mark, Mapping) and mark.get("type") == REQUEST_TYPE:
            focus = mark.get("focus")
            found.append(focus[:FOCUS_CHARS] if isinstance(focus, str) else "")
    if not found:
        return None
    return "; ".join(dict.fromkeys(focus for focus in reversed(found) if focus))
