"""Cost of one step's check (nothing to do) and of one compaction with an instant summariser, beside other packages, in one run.

    python tests/benchmarks/bench_check.py            # 100, 1,000 and 5,000 tool pairs of 2 kB
    python tests/benchmarks/bench_check.py --quick    # 100 and 1,000

Each figure is the median of several runs, in milliseconds; machines differ, so read the ratios. All three are middleware and called directly.
"""

from __future__ import annotations

import argparse
import atexit
import math
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langgraph_roundcompact import RoundCompactConfig, RoundCompactMiddleware, RoundCompactor
from langgraph_roundcompact.testing import ScriptedChatModel

HUGE = 1_000_000_000
SUMMARY = "<state_snapshot>\n### 1. Active Task\nGo on with the crawl.\n</state_snapshot>"


def history(pairs: int, *, usage: bool) -> list[BaseMessage]:
    """A round of `pairs` calls, each with a 2 kB result; answers report usage if asked."""
    messages: list[BaseMessage] = [HumanMessage("Crawl the site and list every broken link.", id="h")]
    for n in range(pairs):
        total = 60 + 560 * n
        messages.append(
            AIMessage(
                "",
                id=f"a{n}",
                tool_calls=[{"name": "fetch", "args": {"url": f"https://example.org/page/{n}"}, "id": f"c{n}", "type": "tool_call"}],
                usage_metadata={"input_tokens": total, "output_tokens": 20, "total_tokens": total + 20} if usage else None,
            )
        )
        body = f"page {n}: status 200, {n * 7 % 13} links\n" + "lorem ipsum dolor sit amet, consectetur adipiscing elit " * 36
        messages.append(ToolMessage(body[:2000], id=f"t{n}", tool_call_id=f"c{n}", name="fetch"))
    return messages


def median_ms(work: Callable[[], Any], runs: int) -> float:
    work()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1000)
    return statistics.median(times)


def ours(trigger: int) -> Callable[[list[BaseMessage]], Any]:
    model = ScriptedChatModel(replies=[SUMMARY])
    config = RoundCompactConfig(trigger_token_threshold=trigger, context_window_tokens=max(trigger * 2, 100_000))
    if trigger == HUGE:
        return called(RoundCompactMiddleware(RoundCompactor(model, config=config)), model)

    # A fresh compactor each time, so that neither a known summary nor counts of the last run help.
    def fresh(messages: list[BaseMessage]) -> Any:
        return called(RoundCompactMiddleware(RoundCompactor(model, config=config)), model)(messages)

    return fresh


def called(middleware: Any, model: ScriptedChatModel) -> Callable[[list[BaseMessage]], Any]:
    """The middleware around a model call that costs nothing."""
    from langchain.agents.middleware import ModelRequest, ModelResponse
    from langgraph.runtime import Runtime

    def call(messages: list[BaseMessage]) -> Any:
        request = ModelRequest(model=model, messages=messages, state={"messages": messages}, runtime=Runtime(), tools=[])
        return middleware.wrap_model_call(request, lambda _: ModelResponse(result=[AIMessage("ok")]))

    return call


def langchains(trigger: int) -> Callable[[list[BaseMessage]], Any]:
    from langchain.agents.middleware import SummarizationMiddleware

    options: dict[str, Any] = {"trigger": ("tokens", trigger), "keep": ("messages", 2), "trim_tokens_to_summarize": None}
    middleware = SummarizationMiddleware(ScriptedChatModel(replies=[SUMMARY]), **options)
    return lambda messages: middleware.before_model({"messages": messages}, None)  # type: ignore[arg-type]


def deepagents(trigger: int) -> Callable[[list[BaseMessage]], Any]:
    from deepagents.backends import FilesystemBackend
    from deepagents.middleware.summarization import SummarizationMiddleware

    model = ScriptedChatModel(replies=[SUMMARY])
    folder = tempfile.mkdtemp(prefix="roundcompact-bench-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    options: dict[str, Any] = {"trigger": ("tokens", trigger), "keep": ("messages", 2), "trim_tokens_to_summarize": None}
    return called(SummarizationMiddleware(model, backend=FilesystemBackend(root_dir=folder, virtual_mode=True), **options), model)


PACKAGES: dict[str, Callable[[int], Callable[[list[BaseMessage]], Any]]] = {"ours": ours, "langchain": langchains, "deepagents": deepagents}


def table(title: str, sizes: list[int], trigger: int, *, usage: bool, runs: int) -> dict[str, list[float]]:
    print(f"\n{title}, milliseconds (median of {runs})")
    print(f"{'':12}" + "".join(f"{size:>12,}" for size in sizes))
    rows: dict[str, list[float]] = {}
    for name, make in PACKAGES.items():
        check = make(trigger)
        rows[name] = [median_ms(partial(check, history(size, usage=usage)), runs) for size in sizes]
        print(f"{name:12}" + "".join(f"{ms:12.2f}" for ms in rows[name]))
    return rows


def exponent(sizes: list[int], times: list[float]) -> float:
    """Slope of time over size on a log-log scale, between the two largest sizes."""
    return math.log(times[-1] / times[-2]) / math.log(sizes[-1] / sizes[-2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    sizes = [100, 1000] if parser.parse_args().quick else [100, 1000, 5000]
    warnings.simplefilter("ignore")
    with_usage = table("check, nothing to do, answers carry usage", sizes, HUGE, usage=True, runs=15)
    without = table("check, nothing to do, no usage", sizes, HUGE, usage=False, runs=15)
    compaction = table("one compaction, instant summariser", sizes, 1000, usage=True, runs=3)
    used, unused, compacted = with_usage["ours"], without["ours"], compaction["ours"]
    at = sizes.index(1000)
    print(f"\ncheck at {sizes[-1]:,} pairs / at {sizes[0]}: {used[-1] / used[0]:.2f} x (no usage: {unused[-1] / unused[0]:.2f} x)")
    others, others_unused = with_usage["langchain"][at] / used[at], without["langchain"][at] / unused[at]
    print(f"check at 1,000 pairs: langchain / ours = {others:.0f} x (no usage: {others_unused:.1f} x)")
    ratio = compacted[-1] / compaction["deepagents"][-1]
    print(f"compaction grows with exponent {exponent(sizes, compacted):.2f}; ours / deepagents at {sizes[-1]:,}: {ratio:.2f}")


if __name__ == "__main__":
    main()
