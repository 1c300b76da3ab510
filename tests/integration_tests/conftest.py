"""What the tests with services share: a PostgreSQL server, an empty database for each test, and the helpers of the unit tests.

The server is the one that `ROUNDCOMPACT_POSTGRES_URL` names, or a private one in a temporary folder, reached by a Unix socket and gone at the end.
With pytest-xdist each worker has its own.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit_tests"))

URL_VARIABLE = "ROUNDCOMPACT_POSTGRES_URL"
HOW_TO_GET_IT = f"install it (Debian: apt-get install postgresql), or name a server in {URL_VARIABLE}=postgresql://user@host/database"
START_SECONDS = 60.0

# The tests kill clients, never the server: what a power cut would lose does not matter here, and a commit takes no disk flush.
SERVER_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
}


def _programs() -> Path | None:
    """Folder with `initdb` and `postgres`, the newest if there are several; None if there is none."""
    in_path = shutil.which("initdb")
    folders = [Path(in_path).resolve().parent] if in_path else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: (len(folder.parent.name), folder.parent.name), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists() and (folder / "postgres").exists()), None)


def _unprivileged() -> str | None:
    """The user to run the server as: PostgreSQL refuses root. None: the user of the tests."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in names), None)


class _Server:
    """A private cluster in a temporary folder. The folder's name is short: a socket's path may have 107 characters."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._folder = Path(tempfile.mkdtemp(prefix="roundcompact-pg-", dir="/tmp"))
        self._log = self._folder / "log"
        user = _unprivileged()
        entry = pwd.getpwnam(user) if user else None
        if entry:
            os.chown(self._folder, entry.pw_uid, entry.pw_gid)
        as_user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []} if entry else {}
        self._options = {**as_user, "cwd": self._folder, "env": {**os.environ, "LC_ALL": "C", "HOME": str(self._folder)}}

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={quote(str(self._folder), safe='')}"

    def start(self) -> None:
        data = str(self._folder / "data")
        initdb = [str(self._programs / "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        made = subprocess.run(initdb, capture_output=True, text=True, check=False, **self._options)
        assert made.returncode == 0, f"initdb failed: {made.stdout}{made.stderr}"
        settings = [part for name, value in SERVER_SETTINGS.items() for part in ("-c", f"{name}={value}")]
        command = [str(self._programs / "postgres"), "-D", data, "-k", str(self._folder), *settings]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, **self._options)
        self._wait()

    def _wait(self) -> None:
        import psycopg

        ends = time.monotonic() + START_SECONDS
        while True:
            assert self._process.poll() is None, f"PostgreSQL ended: {self._log.read_text(errors='replace')}"
            try:
                psycopg.connect(self.url, connect_timeout=5).close()
            except psycopg.OperationalError:
                assert time.monotonic() < ends, f"PostgreSQL takes no connection: {self._log.read_text(errors='replace')}"
                time.sleep(0.1)
            else:
                return

    def stop(self) -> None:
        process = getattr(self, "_process", None)
        if process is not None and process.poll() is None:
            # SIGTERM would wait for the clients to leave; SIGINT is PostgreSQL's "fast" shutdown, which ends them.
            process.send_signal(signal.SIGINT)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of a server on which databases may be made; skips where there is none and none can be started."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'psycopg[binary,pool]'")
    if given := os.environ.get(URL_VARIABLE):
        yield given
        return
    programs = _programs()
    if programs is None:
        pytest.skip(f"there is no PostgreSQL: {HOW_TO_GET_IT}")
    if os.geteuid() == 0 and _unprivileged() is None:
        pytest.skip("PostgreSQL does not run as root, and there is no user `postgres` or `nobody`: run the tests as another user")
    server = _Server(programs)
    try:
        server.start()
        yield server.url
    finally:
        server.stop()


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """libpq URL of a fresh, empty database, dropped after the test."""
    import psycopg

    name = f"roundcompact_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    try:
        yield urlunsplit(urlsplit(postgres_server)._replace(path=f"/{name}"))
    finally:
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


@pytest.fixture
def figures(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Notes what a test has measured; it is shown at the end of the run, whether the test passes or not."""

    def note(**measured: object) -> None:
        record_property("figures", ", ".join(f"{name}: {value}" for name, value in measured.items()))

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what was measured."""
    reports = [report for reports in terminalreporter.stats.values() for report in reports if getattr(report, "when", "") == "call"]
    for report in reports:
        for name, value in report.user_properties:
            if name == "figures":
                terminalreporter.write_line(f"{report.nodeid}: {value}")
