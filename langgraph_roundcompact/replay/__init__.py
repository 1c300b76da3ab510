"""A recorded conversation played through the node: what would have been compacted when, what it saves, and whether the invariants hold.

Wherever a model call came in the recording (before each AI message) the node sees the state as compaction has left it so far; its update goes
through LangGraph's own reducer, and the recording goes on as it was. Nothing is asked of the recorded agent's model, so the saving shown is
of the input alone, for the same steps. Usage that was recorded is taken out: it tells the size of requests that this replay does not make.

`compare` plays the same conversation with other ways to keep a window in bounds and weighs the requests that each would have sent.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langgraph_roundcompact.replay._player import Replay, ReplayReport, ReplayStep, Request, report
    from langgraph_roundcompact.replay._recording import Recording
    from langgraph_roundcompact.replay._strategies import STRATEGIES, Limits, make_strategy
    from langgraph_roundcompact.replay._tally import Figures, Probe, ProbeError, Tally, read_probes

__all__ = [
    "STRATEGIES",
    "Figures",
    "Limits",
    "Probe",
    "ProbeError",
    "Recording",
    "Replay",
    "ReplayReport",
    "ReplayStep",
    "Request",
    "Tally",
    "make_strategy",
    "read_probes",
    "report",
]

# Loaded when they are asked for: the command's `--help` needs none of LangGraph.
_HOMES = {
    "_player": ("Replay", "ReplayReport", "ReplayStep", "Request", "report"),
    "_recording": ("Recording",),
    "_strategies": ("STRATEGIES", "Limits", "make_strategy"),
    "_tally": ("Figures", "Probe", "ProbeError", "Tally", "read_probes"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
