"""The example agents behind a real LangGraph server (`langgraph dev`), over HTTP with the SDK: compaction, a later run, consent, streams.

The server is started once for the file, on a free port of loopback, without any key and without network.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from langgraph_roundcompact import RoundCompactConfig, RoundCompactor, acompact_thread

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 120.0
HOW_TO_GET_IT = "the LangGraph server is not installed: pip install --group server (langgraph-cli[inmem])"
ASK = "Read pages 1 to 30 and tell me the last word."
ANSWER = "I have read up to page 30. The last word is grove."


def _program() -> Path | None:
    beside = Path(sys.executable).with_name("langgraph")
    found = str(beside) if beside.exists() else shutil.which("langgraph")
    return Path(found) if found else None


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the server answers; skips where it is not installed."""
    program = _program()
    if program is None:
        pytest.skip(HOW_TO_GET_IT)
    pytest.importorskip("langgraph_api", reason=HOW_TO_GET_IT)
    pytest.importorskip("langgraph_sdk", reason=HOW_TO_GET_IT)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("server")
    unset = ("LANGSMITH_API_KEY", "LANGCHAIN_API_KEY", "LANGGRAPH_CLOUD_LICENSE_KEY", "ROUNDCOMPACT_EXAMPLE_MODEL", "LANGSMITH_ENDPOINT")
    env = {name: value for name, value in os.environ.items() if name not in unset}
    env |= {"LANGSMITH_TRACING": "false", "LANGGRAPH_CLI_NO_ANALYTICS": "1", "PYTHONPATH": str(folder)}
    for name in ("langgraph.json", "examples", "langgraph_roundcompact"):
        (folder / name).symlink_to(ROOT / name)
    command = [str(program), "dev", "--no-browser", "--no-reload", "--host", "127.0.0.1", "--port", str(port)]
    log = folder / "log"
    with log.open("wb") as out:
        # What the development server keeps goes to its working folder, which shall not be the repository.
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=folder, env=env, start_new_session=True)
    try:
        _wait(f"http://127.0.0.1:{port}", process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    ends = time.monotonic() + START_SECONDS
    while True:
        assert process.poll() is None, f"the server ended: {log.read_text(errors='replace')[-3000:]}"
        try:
            with urllib.request.urlopen(f"{url}/ok", timeout=2):
                return
        except OSError:
            assert time.monotonic() < ends, f"the server does not answer: {log.read_text(errors='replace')[-3000:]}"
            time.sleep(0.3)


def client(url: str) -> Any:
    from langgraph_sdk import get_client

    return get_client(url=url, api_key=None)


def asking(text: str = ASK) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def blocks(messages: list[dict[str, Any]]) -> list[int]:
    """Indices of the checkpoints."""
    return [i for i, message in enumerate(messages) if "<memory_block_current>" in str(message["content"])]


async def test_a_run_compacts_and_the_state_shows_the_checkpoint(url: str) -> None:
    """The request verbatim, one block right after it, marked as machine made; the answer needs what was read long before."""
    sdk = client(url)
    thread = await sdk.threads.create()
    out = await sdk.runs.wait(thread["thread_id"], "agent", input=asking())
    messages = out["messages"]
    assert (messages[0]["content"], messages[-1]["content"]) == (ASK, ANSWER)
    assert blocks(messages) == [1]
    assert messages[1]["additional_kwargs"]["lc_source"] == "round_compaction"
    assert len(messages) < 20
    state = await sdk.threads.get_state(thread["thread_id"])
    assert state["next"] == []
    assert state["values"]["messages"] == messages


async def test_a_later_run_goes_on_from_the_compacted_state(url: str) -> None:
    """A second request on the same thread: the first round, checkpoint included, is its preserved prefix."""
    sdk = client(url)
    thread = await sdk.threads.create()
    first = (await sdk.runs.wait(thread["thread_id"], "agent", input=asking()))["messages"]
    second = (await sdk.runs.wait(thread["thread_id"], "agent", input=asking("Now read pages 31 to 60.")))["messages"]
    assert second[: len(first)] == first
    assert second[-1]["content"] == "I have read up to page 60. The last word is ember."
    assert len(blocks(second)) == 2


async def test_two_threads_at_once(url: str) -> None:
    """One compactor serves both; neither sees the other's work."""
    import asyncio

    sdk = client(url)

    async def one(text: str) -> list[dict[str, Any]]:
        thread = await sdk.threads.create()
        return list((await sdk.runs.wait(thread["thread_id"], "agent", input=asking(text)))["messages"])

    low, high = await asyncio.gather(one("Read pages 1 to 25."), one("Read pages 101 to 125."))
    assert "page 101" not in str(low)
    assert "page 1 " not in str(high)
    assert [blocks(low), blocks(high)] == [[1], [1]]


@pytest.mark.parametrize("answer", ["accept", "reject", "edit"])
async def test_a_checkpoint_waits_for_consent_over_http(url: str, answer: str) -> None:
    """The interrupt shows the text; the run goes on with the answer."""
    sdk = client(url)
    thread_id = (await sdk.threads.create())["thread_id"]
    await sdk.runs.wait(thread_id, "reviewed_agent", input=asking())
    state = await sdk.threads.get_state(thread_id)
    shown = state["tasks"][0]["interrupts"][0]["value"]
    assert (state["next"], shown["type"], blocks(state["values"]["messages"])) == (["compact"], "round_compaction_review", [])
    resume: Any = {"action": "edit", "summary": "Edited by hand."} if answer == "edit" else answer
    await sdk.runs.wait(thread_id, "reviewed_agent", command={"resume": resume})
    for _ in range(20):
        state = await sdk.threads.get_state(thread_id)
        if not state["next"]:
            break
        await sdk.runs.wait(thread_id, "reviewed_agent", command={"resume": "reject"})
    messages = state["values"]["messages"]
    assert messages[-1]["content"] == ANSWER
    assert blocks(messages) == ([] if answer == "reject" else [1])
    if answer == "edit":
        assert "Edited by hand." in messages[1]["content"]
    if answer == "accept":
        assert messages[1]["content"] == shown["checkpoint"]


async def test_a_paused_thread_is_refused_and_one_at_rest_is_compacted_from_outside(url: str) -> None:
    """By `acompact_thread` on a `RemoteGraph`: the server's state, and only by its HTTP interface."""
    from langgraph.pregel.remote import RemoteGraph

    sdk = client(url)
    compactor = RoundCompactor(None, config=RoundCompactConfig(context_window_tokens=100_000))
    paused, rest = (await sdk.threads.create())["thread_id"], (await sdk.threads.create())["thread_id"]
    await sdk.runs.wait(paused, "reviewed_agent", input=asking())
    result = await acompact_thread(RemoteGraph("reviewed_agent", url=url, client=sdk), {"configurable": {"thread_id": paused}}, compactor)
    assert (result.outcome, result.reason) == ("stood_down", "run_is_paused")
    await sdk.runs.wait(rest, "agent", input=asking("Read pages 1 to 8."))
    before = await sdk.threads.get_state(rest)
    assert not blocks(before["values"]["messages"])
    result = await acompact_thread(RemoteGraph("agent", url=url, client=sdk), {"configurable": {"thread_id": rest}}, compactor)
    assert result.compacted
    after = await sdk.threads.get_state(rest)
    assert (after["next"], blocks(after["values"]["messages"])) == ([], [1])
    assert [message["type"] for message in after["values"]["messages"]] == ["human", "human", "ai"]


async def test_the_streams_of_the_server(url: str) -> None:
    """`custom` tells of the compaction; `messages` holds the agent's own words and no block."""
    sdk = client(url)
    thread = await sdk.threads.create()
    told, said = [], []
    async for part in sdk.runs.stream(thread["thread_id"], "agent", input=asking(), stream_mode=["custom", "messages-tuple"]):
        if part.event == "custom":
            told.append(part.data)
        elif part.event == "messages":
            said.append(str(part.data[0]["content"]))
    assert [one["phase"] for one in told][:2] == ["started", "finished"]
    assert all(one["type"] == "round_compaction" for one in told)
    assert told[1]["tokens_after"] < told[1]["tokens_before"]
    assert not [text for text in said if "memory_block_current" in text]
    assert ANSWER in "".join(said)
