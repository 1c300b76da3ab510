"""The one picture the notebooks share: the window over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

COLOURS = ("#0f766e", "#b45309", "#7c3aed", "#475569")


def window_over_time(runs: Mapping[str, Sequence[int]], *, capacity: int, trigger: int | None = None, title: str = "") -> Axes:
    """Tokens of each request, one line a run, under the line that a provider refuses.

    Args:
        runs: Name of a run, and the tokens of its requests in order.
        capacity: Window of the model, in tokens.
        trigger: Where compaction begins, in tokens.
        title: Stands above.
    """
    figure, axes = plt.subplots(figsize=(8.5, 3.4), layout="constrained")
    for colour, (name, tokens) in zip(COLOURS, runs.items(), strict=False):
        axes.plot(range(1, len(tokens) + 1), tokens, color=colour, linewidth=1.8, label=name)
        if tokens and tokens[-1] > capacity:
            axes.plot(len(tokens), tokens[-1], "x", color=colour, markersize=9, markeredgewidth=2.5)
    axes.axhline(capacity, color="#b91c1c", linewidth=1.2, label="the model's window")
    if trigger is not None:
        axes.axhline(trigger, color="#94a3b8", linewidth=1.0, linestyle="--", label="trigger")
    axes.set(xlabel="model call", ylabel="tokens sent", title=title, ylim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    figure.canvas.header_visible = False
    return axes
