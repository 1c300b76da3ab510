"""The door to `langchain.agents.create_agent` and deepagents: compaction around the model call, where the exact request is known.

The update goes to the state in place (ids of what it replaces), beside the model's answer, so nothing shows up in `stream_mode="messages"`
and a parallel write is not lost. With `persist=False` only the request changes, for chat UIs that show the whole history.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from operator import is_
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command

from langgraph_roundcompact._arguments import check_approve, check_names, check_yes_or_no
from langgraph_roundcompact._content import REASONING_TYPES, block_type
from langgraph_roundcompact._spans import IsRealUser, find_round, find_stale_before, is_real_user
from langgraph_roundcompact._window import bound_kwargs, unwrap
from langgraph_roundcompact.compactor import Door, RoundCompactor, checked_compactor
from langgraph_roundcompact.errors import classify
from langgraph_roundcompact.events import CompactionResult, CompactionReview

try:
    from langchain.agents.middleware import AgentMiddleware, ExtendedModelResponse, ModelRequest, ModelResponse
except ImportError as exc:
    msg = "RoundCompactMiddleware needs langchain: pip install 'langgraph-roundcompact[langchain]'"
    raise ImportError(msg) from exc

ModelCall = Callable[[ModelRequest[Any]], ModelResponse[Any]]
AsyncModelCall = Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]


class RoundCompactMiddleware(AgentMiddleware[Any, Any, Any]):
    """Compacts the current round before a model call, and once more when the model says that its window is full.

    Args:
        compactor: What compacts.
        persist: Write the compaction to the agent's state. `False`: the request only.
        name: Name of the middleware; `"SummarizationMiddleware"` takes the place of deepagents' own summarisation.
        approve: Show each checkpoint before it is applied. `True`: by `interrupt()`, and the run is resumed with the answer; a callable is given
            the `CompactionReview` and returns the answer. See `RoundCompactNode` for the answers.

    Order: after (inside of) middleware that retries the model call or turns its errors into answers, so that an overflow is seen here first; a
    summary is remembered, so a retry does not pay for it again. After middleware that chooses the model, whose window counts; with
    `enable_kv_cache_affinity` after all that changes the request, so that the request it continues is the one that is sent.
    """

    def __init__(
        self,
        compactor: RoundCompactor,
        *,
        persist: bool = True,
        name: str | None = None,
        approve: bool | Callable[[CompactionReview], Any] = False,
    ) -> None:
        super().__init__()
        check_approve(approve)
        check_yes_or_no(persist=persist)
        if name is not None:
            check_names(name=name)
        self._compactor = checked_compactor(compactor)
        self._persist = persist
        self._approve = approve
        self._name = name or type(self).__name__
        self.tools: Sequence[Any] = ()

    @property
    def name(self) -> str:
        """The name of this middleware; no other of the agent may have it."""
        return self._name

    def wrap_model_call(self, request: ModelRequest[Any], handler: ModelCall) -> ModelResponse[Any] | AIMessage | ExtendedModelResponse[Any]:
        """Compact, call the model, and on its context overflow compact and call once more."""
        if _is_foreign(request, self._is_real):
            return handler(request)
        result = self._compactor.compact(self._view(request), **self._given(request))
        try:
            response = handler(self._compacted(request, result))
        except GraphBubbleUp:
            raise
        except Exception as exc:
            if classify(exc) != "context_overflow":
                raise
            last, result = result, self._compactor.compact(self._view(request), **self._given(request, last_resort=True))
            if result.messages == last.messages:  # the same request would fail the same way
                raise
            response = handler(self._compacted(request, result))
        return self._answered(request, result, response)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: AsyncModelCall
    ) -> ModelResponse[Any] | AIMessage | ExtendedModelResponse[Any]:
        """Same as `wrap_model_call`, awaited."""
        if _is_foreign(request, self._is_real):
            return await handler(request)
        result = await self._compactor.acompact(self._view(request), **self._given(request))
        try:
            response = await handler(self._compacted(request, result))
        except GraphBubbleUp:
            raise
        except Exception as exc:
            if classify(exc) != "context_overflow":
                raise
            last, result = result, await self._compactor.acompact(self._view(request), **self._given(request, last_resort=True))
            if result.messages == last.messages:  # the same request would fail the same way
                raise
            response = await handler(self._compacted(request, result))
        return self._answered(request, result, response)

    def _is_real(self, message: BaseMessage) -> bool:
        """The rule in force, for questions of the door's own. What it raises is told by the compaction, which leaves the window as it is."""
        try:
            return self._compactor.is_real_user(message)
        except GraphBubbleUp:
            raise
        except Exception:  # noqa: BLE001 - somebody's callable; it must not stop the agent
            return is_real_user(message)

    def _view(self, request: ModelRequest[Any]) -> dict[str, Any]:
        """The agent's state with the messages that this request really holds.

        What other middleware put into the request alone goes without its id, which is none of the state's: then it stays where it is, and no
        checkpoint takes an id under which it could not be written.
        """
        messages: list[Any] = request.messages
        if self._persist and not _is_of_state(request):
            held = _held_ids(request)
            messages = [m if not m.id or m.id in held else m.model_copy(update={"id": None}) for m in messages]
        return {**_state(request), "messages": messages}

    def _given(self, request: ModelRequest[Any], *, last_resort: bool = False) -> dict[str, Any]:
        return {
            "system_message": request.system_message,
            "tools": request.tools,
            "agent_model": _model(request),
            "force": last_resort,
            "door": Door(
                writes_state=self._persist,
                strips_response_ids=True,
                last_resort=last_resort,
                shared_list=False,  # in a graph of its own, `create_agent` alone writes to it, and the check of a step costs the same at any length
                review=self._approve,
                tool_choice=request.tool_choice,
                free_answer=request.response_format is None,
                as_sent=lambda messages: _for_request(list(messages), _model(request), self._is_real) or messages,
            ),
        }

    def _compacted(self, request: ModelRequest[Any], result: CompactionResult) -> ModelRequest[Any]:
        messages = _for_request(result.messages, _model(request), self._is_real)
        seen: list[Any] = messages or result.messages
        return request if messages is None and not result.changed else request.override(messages=seen)

    def _answered(
        self, request: ModelRequest[Any], result: CompactionResult, response: ModelResponse[Any]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        update = _state_update(request, result) if self._persist and result.changed else None
        return response if update is None else ExtendedModelResponse(model_response=response, command=Command(update={"messages": update}))


def _state(request: ModelRequest[Any]) -> dict[str, Any]:
    state: Any = request.state
    return state if isinstance(state, dict) else {}


def _held_ids(request: ModelRequest[Any]) -> set[str]:
    """The ids of the messages in state now."""
    return {message.id for message in _state(request).get("messages") or [] if isinstance(message, BaseMessage) and message.id}


def _is_of_state(request: ModelRequest[Any]) -> bool:
    """Whether the request holds the state's own messages: the usual case, found at C speed, because this runs before every model call."""
    held = _state(request).get("messages") or []
    return request.messages is held or (len(request.messages) == len(held) and all(map(is_, request.messages, held)))


def _is_foreign(request: ModelRequest[Any], is_real: IsRealUser) -> bool:
    """Whether another summarisation already made this request from the state, so that indices and ids are no longer ours to judge."""
    state = _state(request)
    if state.get("_summarization_event") is not None:
        return True
    if _is_of_state(request):
        return False
    held = state.get("messages") or []
    start = find_round(held, is_real) if all(isinstance(message, BaseMessage) for message in held[-1:]) else 0
    asked = held[start - 1] if start and is_real(held[start - 1]) else None
    return asked is not None and not any(message is asked or (asked.id and message.id == asked.id) for message in reversed(request.messages))


def _model(request: ModelRequest[Any]) -> Any:
    """The request's model. What the request itself says, a limit of the answer for instance, counts as if it were bound to it."""
    return request.model.bind(**request.model_settings) if request.model_settings else request.model


def _for_request(messages: list[BaseMessage], model: Any, is_real: IsRealUser) -> list[Any] | None:
    """The list without what is bound to removed history: provider response ids, and signed reasoning of kept messages. None: nothing to do.

    Only the request is changed. A chained response id would bring the replaced work back on the provider's side; Claude may refuse a
    reasoning block whose conversation has changed. Where the reasoning has a fixed budget Claude wants it in the step that is being answered: there
    the last one stays.
    """
    inner, bound = unwrap(model), bound_kwargs(model)
    chained = bound.get("use_previous_response_id", getattr(inner, "use_previous_response_id", None)) is True
    signed = type(inner).__name__ == "ChatAnthropic"
    stop = find_stale_before(messages) if chained or signed else 0
    if not stop:
        return None
    thinking = bound.get("thinking", getattr(inner, "thinking", None))
    budgeted = isinstance(thinking, Mapping) and thinking.get("type") == "enabled"
    last = next((i for i in range(min(stop, len(messages)) - 1, -1, -1) if isinstance(messages[i], AIMessage)), -1) if budgeted else -1
    start = find_round(messages, is_real)
    return [
        _unbound(m, chained=chained, signed=signed and i != last) if start <= i < stop and isinstance(m, AIMessage) else m
        for i, m in enumerate(messages)
    ]


def _unbound(message: AIMessage, *, chained: bool, signed: bool) -> AIMessage:
    fields: dict[str, Any] = {}
    if chained and "id" in message.response_metadata:
        fields["response_metadata"] = {key: value for key, value in message.response_metadata.items() if key != "id"}
    if signed and isinstance(message.content, list):
        kept = [block for block in message.content if not (isinstance(block, dict) and block_type(block) in REASONING_TYPES)]
        if len(kept) < len(message.content):
            fields["content"] = kept
    return message.model_copy(update=fields) if fields else message


def _state_update(request: ModelRequest[Any], result: CompactionResult) -> list[BaseMessage] | None:
    """The update, if all it writes is in the state now: under another id it would append. Otherwise this step changes the request only."""
    held = _held_ids(request)
    update: list[BaseMessage] = result.update["messages"]
    if any(message.id not in held for message in update if not isinstance(message, RemoveMessage)):
        return None
    return [message for message in update if not isinstance(message, RemoveMessage) or message.id in held]
