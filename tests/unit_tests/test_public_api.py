"""The public names, pinned: adding or taking one away is a decision, not an accident."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import langgraph_roundcompact as package

NAMES = [
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

PARAMETERS = {
    "RoundCompactor": "model config token_counter tiers reinjectors archive session_memory is_real_user is_pending redact on_event",
    "RoundCompactor.plan": "input system_message tools agent_model force thread_id",
    "RoundCompactor.compact": "input system_message tools agent_model focus force thread_id idle_seconds door",
    "RoundCompactor.acompact": "input system_message tools agent_model focus force thread_id idle_seconds door",
    "RoundCompactor.as_runnable": "",
    "RoundCompactor.rebind_model": "model",
    "RoundCompactor.count_tokens": "messages",
    "RoundCompactNode": "compactor messages_key output_messages_key channel system_message tools agent_model approve",
    "RoundCompactMiddleware": "compactor persist name approve",
    "add_round_compaction": "builder compactor before messages_key system_message tools agent_model approve",
    "round_compact_messages": "left right",
    "round_compact_messages_delta": "state writes",
    "compacting_reducer": "config base",
    "create_recall_tool": "archive",
    "create_compact_tool": "compactor messages_key",
    "run_is_paused": "snapshot messages_key",
    "compact_thread": "graph config compactor force focus messages_key channel as_node system_message tools agent_model",
    "acompact_thread": "graph config compactor force focus messages_key channel as_node system_message tools agent_model",
}


def run(code: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120).stdout.strip()


def find(path: str) -> Any:
    found: Any = package
    for name in path.split("."):
        found = getattr(found, name)
    return found


def test_the_public_names_are_these() -> None:
    assert package.__all__ == NAMES
    assert dir(package) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(package, name) is not None


def test_what_is_loaded_late_is_declared_for_type_checkers_and_public() -> None:
    assert package._LAZY.keys() <= set(NAMES)


def test_an_unknown_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="'RoundCompacter'"):
        package.RoundCompacter  # noqa: B018


@pytest.mark.parametrize("path", PARAMETERS)
def test_the_parameters_of_public_callables_are_these(path: str) -> None:
    names = [name for name in inspect.signature(find(path)).parameters if name != "self"]
    assert names == PARAMETERS[path].split()


@pytest.mark.parametrize("path", ["RoundCompactor", "RoundCompactNode", "RoundCompactMiddleware", "add_round_compaction", "RoundCompactor.compact"])
def test_options_are_keywords(path: str) -> None:
    parameters = [p for p in inspect.signature(find(path)).parameters.values() if p.name not in ("self", "model", "compactor", "builder", "input")]
    assert {p.kind for p in parameters} == {inspect.Parameter.KEYWORD_ONLY}


def _documented() -> Iterator[tuple[str, Any]]:
    """Public callables of ours, and the public methods and properties of public classes."""
    for name in NAMES:
        thing = getattr(package, name)
        if not (inspect.isclass(thing) or inspect.isfunction(thing)):
            continue
        yield name, thing
        for member, value in vars(thing).items() if inspect.isclass(thing) else ():
            ours = inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)
            if ours and not member.startswith("_"):
                yield f"{name}.{member}", value


def test_every_public_callable_has_a_docstring() -> None:
    assert [name for name, thing in _documented() if not (getattr(thing, "__doc__", None) or "").strip()] == []


def test_importing_the_package_loads_neither_the_compactor_nor_any_host() -> None:
    code = (
        "import sys, langgraph_roundcompact as p\n"
        "heavy = ['langchain', 'langgraph', 'langchain_openai', 'tiktoken', 'openai']\n"
        "ours = ['compactor', 'node', 'reducer', 'middleware', '_ports', '_engine']\n"
        "print([m for m in [*heavy, *(p.__name__ + '.' + o for o in ours)] if m in sys.modules])"
    )
    assert run(code) == "[]"


def test_a_reducer_alone_loads_no_compactor() -> None:
    code = (
        "import sys\nfrom langgraph_roundcompact import round_compact_messages\n"
        "print([m for m in ('compactor', '_ports', 'middleware', 'node') if 'langgraph_roundcompact.' + m in sys.modules])"
    )
    assert run(code) == "[]"


def test_a_compactor_loads_no_langchain() -> None:
    """`langchain` is an extra, for the middleware alone."""
    code = "import sys\nfrom langgraph_roundcompact import RoundCompactor, RoundCompactNode\nprint('langchain' in sys.modules)"
    assert run(code) == "False"


def test_the_type_marker_is_there() -> None:
    assert (Path(package.__file__).parent / "py.typed").is_file()
