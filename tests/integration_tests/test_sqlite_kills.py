"""An agent in SQLite files, killed at each point of a compaction. The properties: `kill_suite`."""

from __future__ import annotations

from pathlib import Path

import pytest
from durable import Place
from kill_suite import KillSuite


class TestSqlite(KillSuite):
    """The suite with SQLite files for checkpoints and archive."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        """A folder of its own for each test."""
        return Place("sqlite", str(tmp_path)).set_up()
