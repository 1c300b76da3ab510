"""A small conversation builder: one finished step of work, a call, and the checks that several test files share."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage


class Http(Exception):
    """An error of some provider's client: a status, and in keywords the headers of the answer (`Retry_After="7"`)."""

    def __init__(self, status: int, text: str = "", *, retry_after: float | None = None, **headers: str) -> None:
        super().__init__(f"Error code: {status} {text}")
        self.status_code = status
        if headers:
            self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if retry_after is not None:
            self.retry_after = retry_after


def call(id: str, name: str = "search", /, **args: Any) -> dict[str, Any]:
    """A tool call as `AIMessage(tool_calls=[...])` takes it."""
    return {"name": name, "args": args, "id": id, "type": "tool_call"}


def step(number: int, text: str = "found it", name: str = "search") -> list[BaseMessage]:
    """One finished step: an AI message `a1` with call `c1`, and its result `t1`."""
    return [
        AIMessage("", tool_calls=[call(f"c{number}", name, q=f"q{number}")], id=f"a{number}"),
        ToolMessage(f"r{number} {text}", tool_call_id=f"c{number}", name=name, id=f"t{number}"),
    ]


def steps(count: int, text: str = "found it") -> list[BaseMessage]:
    """A request `h1` and `count` finished steps."""
    return [HumanMessage("Find the fault", id="h1"), *(message for number in range(1, count + 1) for message in step(number, text))]


def ids(messages: list[BaseMessage], indices: Any = None) -> list[str | None]:
    """The ids of all messages, or of those at `indices`."""
    return [message.id for message in messages] if indices is None else [messages[i].id for i in indices]


def dump(messages: Any) -> list[dict[str, Any]]:
    """Every field of every message, to compare before and after."""
    return [message.model_dump() for message in messages]
