"""The report: one self-contained HTML page that shows what compaction did, why, and what it cost.

    records = read_dumps("compression_dumps")      # files that `enable_compression_dump` wrote
    page = render_report(records)                  # or records held in memory: `langgraph_roundcompact.dump.MemoryRecorder`

Records are plain JSON data, two sorts in one list, in the order of time. Each has `kind`, `thread_id` and `checkpoint_ns`; what else is missing
counts as unknown, and nothing odd in a record raises.

`kind: "compaction"`
    One finished checkpoint, as `langgraph_roundcompact._dump_record.dump_record` makes it: `outcome`, `reason`, `model`,
    `tokens` (`before`, `after`, `budget`, `checkpoint`, `prefix`, all in tokens), `limits` (`capacity`, `trigger`, `target`),
    `spans` (`prefix`, `replaced`, `kept`: lists of messages as plain data), `checkpoint` (the new messages), `recovered_context`,
    `request` (`messages`, `tokens`; None: nothing was asked), `response` (`content`, ...), `attempts`, `usage`,
    `audit` (`kept`, `added`, `dropped`), `tiers` (what each tier gained), `archive_id`.
any other `kind`
    One decision, as a line of `decisions.jsonl`: `threshold_check`, `span_built`, `tier`, `compression_retry`, `audit`, `gate`, `archive`, `done`.
"""

from __future__ import annotations

from langgraph_roundcompact.report._cost import Prices
from langgraph_roundcompact.report._load import DumpError, read_dumps
from langgraph_roundcompact.report._page import render_report

__all__ = ["DumpError", "Prices", "read_dumps", "render_report"]
