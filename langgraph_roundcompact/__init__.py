"""Keeps a tool-using agent alive through very long tasks: the work of the current round becomes one resumable checkpoint.

`RoundCompactor` does it on a list of messages. LangGraph graphs use it as a node (`RoundCompactNode`, `add_round_compaction`) or in a reducer
(`compacting_reducer`), `create_agent` as middleware (`RoundCompactMiddleware`), chains by `RoundCompactor.as_runnable`.

For readers of the code: `_engine.py` is the pipeline from top to bottom, and `docs/how_it_works.md` lists every module by the stage it belongs to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langgraph_roundcompact.config import CompressionRecallConfig, ModelClientConfig, RoundCompactConfig
from langgraph_roundcompact.errors import ArchiveError, ConfigurationError, RoundCompactError, SummaryRejected
from langgraph_roundcompact.events import Attempt, Audit, CompactionEvent, CompactionPlan, CompactionResult, CompactionReview

if TYPE_CHECKING:
    from langgraph_roundcompact._ports import Archive
    from langgraph_roundcompact._redact import default_redact
    from langgraph_roundcompact.archive import StoreArchive, create_recall_tool
    from langgraph_roundcompact.compactor import Door, RoundCompactor
    from langgraph_roundcompact.control import acompact_thread, compact_thread, create_compact_tool, run_is_paused
    from langgraph_roundcompact.middleware import RoundCompactMiddleware
    from langgraph_roundcompact.node import RoundCompactNode, add_round_compaction
    from langgraph_roundcompact.reducer import compacting_reducer, round_compact_messages, round_compact_messages_delta
    from langgraph_roundcompact.reinject import DEFAULT_REINJECTORS, ReinjectBuilder, ReinjectContext
    from langgraph_roundcompact.tiers import DEFAULT_TIERS, Tier, TierContext

__version__ = "0.1.0"

# Hosts' doors load when they are asked for: `langchain` is an extra, and a reducer alone should not import the compactor.
_LAZY = {
    "Archive": "_ports",
    "DEFAULT_REINJECTORS": "reinject",
    "DEFAULT_TIERS": "tiers",
    "Door": "compactor",
    "ReinjectBuilder": "reinject",
    "ReinjectContext": "reinject",
    "RoundCompactMiddleware": "middleware",
    "RoundCompactNode": "node",
    "RoundCompactor": "compactor",
    "StoreArchive": "archive",
    "Tier": "tiers",
    "TierContext": "tiers",
    "acompact_thread": "control",
    "add_round_compaction": "node",
    "compact_thread": "control",
    "compacting_reducer": "reducer",
    "create_compact_tool": "control",
    "create_recall_tool": "archive",
    "default_redact": "_redact",
    "round_compact_messages": "reducer",
    "round_compact_messages_delta": "reducer",
    "run_is_paused": "control",
}

__all__ = [
    "DEFAULT_REINJECTORS",
    "DEFAULT_TIERS",
    "Archive",
    "ArchiveError",
    "Attempt",
    "Audit",
    "CompactionEvent",
    "CompactionPlan",
    "CompactionResult",
    "CompactionReview",
    "CompressionRecallConfig",
    "ConfigurationError",
    "Door",
    "ModelClientConfig",
    "ReinjectBuilder",
    "ReinjectContext",
    "RoundCompactConfig",
    "RoundCompactError",
    "RoundCompactMiddleware",
    "RoundCompactNode",
    "RoundCompactor",
    "StoreArchive",
    "SummaryRejected",
    "Tier",
    "TierContext",
    "acompact_thread",
    "add_round_compaction",
    "compact_thread",
    "compacting_reducer",
    "create_compact_tool",
    "create_recall_tool",
    "default_redact",
    "round_compact_messages",
    "round_compact_messages_delta",
    "run_is_paused",
]


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from importlib import import_module  # noqa: PLC0415 - only when a door is asked for

    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
