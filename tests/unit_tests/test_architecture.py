"""Who may import whom, read from the sources: the rules that keep the core free of I/O and the doors apart.

A module that is not named here counts as one without I/O and is held to the strictest rule.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import langgraph_roundcompact

NAME = "langgraph_roundcompact"
PACKAGE = Path(langgraph_roundcompact.__file__).parent

VALUES = {"errors", "events", "config", "_error_text"}
"""`_error_text` is the part of `errors` that reads the words of an error."""

DOORS = {"node", "reducer", "middleware", "runnable"}

WORLD = {
    "_archive_access", "_drivers", "_encoding", "_memo", "_meter", "_ports", "_recall_tool", "_reviewers", "_summariser", "archive", "dump",
    "telemetry",
}  # fmt: skip
"""What waits, counts with tiktoken, builds clients, or reaches threads, clock, stores and files."""

HOST = {"_channels"}
"""What knows the host's own types, for the doors to it, and reaches nothing else."""

ASSEMBLY = {"", "compactor", "control", "_rules"}
"""What puts the parts together; `""` is the package's `__init__`, `control` is for people around a graph and not in its path."""

OUTSIDE = ("testing", "_scripted", "__main__", "cli", "_terminal", "replay", "_replay_view", "demo", "report", "loaders")
"""Tools around the package: they use it, and nothing of it uses them."""

NO_WORLD = {
    "asyncio", "concurrent", "ctypes", "datetime", "glob", "http", "importlib", "io", "multiprocessing", "os", "pathlib", "queue", "random",
    "sched", "secrets", "select", "selectors", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "sys", "tempfile", "threading",
    "time", "urllib.request", "zoneinfo",
}  # fmt: skip
"""Clock, chance, threads, files, network."""

PURE_NAMES = {"pathlib": {"PurePath", "PurePosixPath", "PureWindowsPath"}, "io": {"StringIO"}}
"""What does not reach anything although its module does."""

THIRD_PARTY = ("langchain_core.messages", "langchain_core.exceptions", "pydantic")
"""pydantic reaches nothing: a state, or a tool's result, may be an object of it."""
ALSO_THIRD_PARTY = {"errors": {"langchain_core"}, "redaction": {"detect_secrets.core.plugins.util", "detect_secrets.plugins.base"}}
"""`errors` asks for the exceptions that the installed langchain-core has; `redaction` is there for an extra, which it calls without I/O."""

LONG_MODULES: dict[str, str] = {}
"""Modules over 400 lines, and why."""

LONG_FUNCTIONS: dict[tuple[str, str], str] = {}
"""Functions over 40 lines (without their docstring), and why."""


def _modules() -> dict[str, ast.Module]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = ast.parse(path.read_text("utf-8"))
    return found


MODULES = _modules()


def is_outside(module: str) -> bool:
    return module.split(".")[0] in OUTSIDE


def is_pure(module: str) -> bool:
    return not is_outside(module) and module not in WORLD | HOST | ASSEMBLY | DOORS | VALUES


def imports(module: str) -> Iterator[tuple[str, str]]:
    """Everything a module imports, also inside functions, as (module, name); imports for type checkers alone are left out."""
    tree = MODULES.get(module, ast.Module([], []))
    typing_only = {id(inner) for node in ast.walk(tree) if _for_type_checkers(node) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} uses a relative import"
            yield from ((node.module or "", alias.name) for alias in node.names)


def _for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def inner(module: str) -> set[str]:
    """Modules of the package that a module imports."""
    found = set()
    for source, name in imports(module):
        if source == NAME or source.startswith(NAME + "."):
            path = source[len(NAME) :].lstrip(".")
            whole = f"{path}.{name}".lstrip(".")
            found.add(whole if whole in MODULES else path)
    return found


def reach(module: str) -> set[str]:
    """Modules of the package that a module imports, directly or through others."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        for found in inner(waiting.pop()) - seen:
            seen.add(found)
            waiting.append(found)
    return seen


def outer(module: str) -> set[tuple[str, str]]:
    return {(source, name) for source, name in imports(module) if source.split(".")[0] != NAME}


def _reaches_the_world(source: str, name: str) -> bool:
    known = any(source == banned or source.startswith(banned + ".") for banned in NO_WORLD)
    return known and name not in PURE_NAMES.get(source, set())


PURE = sorted(filter(is_pure, MODULES))


def test_the_lists_name_modules_that_exist() -> None:
    assert MODULES.keys() >= VALUES | DOORS | WORLD | HOST | ASSEMBLY


@pytest.mark.parametrize("module", sorted(VALUES))
def test_values_import_nothing_of_the_package_but_each_other(module: str) -> None:
    assert inner(module) - VALUES == set()


@pytest.mark.parametrize("module", PURE)
def test_a_module_without_io_imports_values_and_modules_like_itself(module: str) -> None:
    assert [found for found in sorted(inner(module)) if not (is_pure(found) or found in VALUES)] == []


@pytest.mark.parametrize("module", sorted({*PURE, *VALUES}))
def test_a_module_without_io_knows_no_clock_chance_threads_files_or_network(module: str) -> None:
    assert [pair for pair in sorted(outer(module)) if _reaches_the_world(*pair)] == []


@pytest.mark.parametrize("module", sorted({*PURE, *VALUES}))
def test_a_module_without_io_makes_no_random_ids(module: str) -> None:
    used = {
        node.attr if isinstance(node, ast.Attribute) else node.id for node in ast.walk(MODULES[module]) if isinstance(node, ast.Attribute | ast.Name)
    }
    # A list of open tags may be called `open`; the built-in is a bare name.
    names = {node.id for node in ast.walk(MODULES[module]) if isinstance(node, ast.Name)}
    assert used & {"uuid1", "uuid4", "urandom"} | names & {"open"} == set()


@pytest.mark.parametrize("module", sorted({*PURE, *VALUES}))
def test_of_other_packages_a_module_without_io_imports_messages_and_exceptions(module: str) -> None:
    foreign = {source for source, _ in outer(module) if source.split(".")[0] not in sys.stdlib_module_names}
    allowed = ALSO_THIRD_PARTY.get(module, set())
    assert [source for source in sorted(foreign) if source not in allowed and not source.startswith(THIRD_PARTY)] == []


@pytest.mark.parametrize("module", sorted(DOORS))
def test_no_door_imports_another(module: str) -> None:
    assert inner(module) & DOORS == set()


@pytest.mark.parametrize("module", sorted(DOORS))
def test_doors_import_the_compactor_values_and_modules_without_io(module: str) -> None:
    allowed = HOST | {"compactor"} if module != "reducer" else {"_rules"}
    assert [found for found in sorted(inner(module)) if not (is_pure(found) or found in VALUES | allowed)] == []


@pytest.mark.parametrize("module", sorted(HOST))
def test_what_knows_the_host_imports_values_and_modules_without_io(module: str) -> None:
    assert [found for found in sorted(inner(module)) if not (is_pure(found) or found in VALUES)] == []
    assert [pair for pair in sorted(outer(module)) if _reaches_the_world(*pair)] == []


def test_the_reducer_never_reaches_the_compactor() -> None:
    assert "compactor" not in reach("reducer")
    assert "_ports" not in reach("reducer")


def test_only_the_compactor_and_the_rules_know_the_drivers() -> None:
    assert {module for module in MODULES if "_drivers" in inner(module)} == {"compactor", "_rules"}


@pytest.mark.parametrize("module", sorted(module for module in MODULES if not is_outside(module)))
def test_nothing_of_the_package_uses_the_tools_around_it(module: str) -> None:
    assert [found for found in sorted(inner(module)) if is_outside(found)] == []


def test_there_is_no_module_for_whatever_is_left_over() -> None:
    assert [module for module in MODULES if module.split(".")[-1].strip("_") in ("utils", "util", "helpers", "misc", "common")] == []


def test_the_map_in_the_documentation_names_every_module() -> None:
    page = PACKAGE.parent / "docs" / "how_it_works.md"
    if not page.is_file():
        pytest.skip("docs/ is not beside the package, as in an unpacked source distribution")
    text = page.read_text("utf-8")
    files = {module.split(".")[0] for module in MODULES} - {"", "__main__", "config", "events"}
    assert sorted(name for name in files if f"`{name}" not in text and not name.startswith("_secret_")) == []


def test_modules_have_at_most_400_lines() -> None:
    lengths = {module: len(ast.unparse(tree) and _source(module).splitlines()) for module, tree in MODULES.items()}
    assert {module: length for module, length in lengths.items() if length > 400 and module not in LONG_MODULES} == {}


def test_functions_have_at_most_40_lines() -> None:
    lengths = {
        (module, node.name): _lines(node)
        for module, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {key: length for key, length in lengths.items() if length > 40 and key not in LONG_FUNCTIONS} == {}


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its signature and docstring."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def _source(module: str) -> str:
    path = PACKAGE / Path(*module.split(".")) if module else PACKAGE
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text("utf-8")


@pytest.mark.parametrize("module", sorted(MODULES))
def test_every_module_says_what_it_is(module: str) -> None:
    assert ast.get_docstring(MODULES[module])
