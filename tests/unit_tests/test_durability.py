"""An agent in SQLite files: restarts, time travel, interrupts. The properties: `persistence_suite`."""

from __future__ import annotations

from pathlib import Path

import pytest
from durable import Place
from persistence_suite import PersistenceSuite


class TestSqlite(PersistenceSuite):
    """The suite with SQLite files for checkpoints and archive."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        """A folder of its own for each test."""
        return Place("sqlite", str(tmp_path)).set_up()
