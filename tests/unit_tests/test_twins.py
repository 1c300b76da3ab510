"""Sync and async are one piece of code in two colours: without `await` and the names' colour, twins are equal.

This is compared on the syntax tree, for the pairs the design names and for any other pair in the package.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import langgraph_roundcompact

PACKAGE = Path(langgraph_roundcompact.__file__).parent

NAMED = {
    ("_drivers.py", "run"),
    ("_ports.py", "CompactorPorts.perform"),
    ("compactor.py", "RoundCompactor.compact"),
    ("middleware.py", "RoundCompactMiddleware.wrap_model_call"),
}
"""Pairs that must exist."""

DIFFERENT = {
    ("_drivers.py", "_advance"): "the async one moves heavy work into a thread; it calls the sync one",
    ("_ports.py", "CompactorPorts._measure"): "the async one moves a user's counter into a thread; it calls the sync one",
    ("_rules.py", "_RulesPorts.perform"): "rules never wait; the async one calls the sync one",
    ("_reviewers.py", "ask_reviewer"): "only the async one can wait for an answer; the sync one refuses what must be awaited",
    ("_archive_access.py", "run"): "a time limit is looked at between calls in one colour and cancels in the other; both drive one flow",
    ("testing.py", "check_archive"): "each asks for the methods of its colour by their names; both drive one flow",
    ("_ports.py", "CompactorPorts._call"): "a time limit is a thread to give up in one colour and a cancellation in the other",
}
"""Twins that cannot be equal, and why."""


class _Colourless(ast.NodeTransformer):
    """Takes the colour out: `await`, `async`, the `a` of names that have a twin, and what only moves work off the loop."""

    def __init__(self, twins: dict[str, str]) -> None:
        self.twins = twins

    def visit_Await(self, node: ast.Await) -> ast.AST:
        return self.visit(node.value)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self.visit(ast.FunctionDef(**{name: getattr(node, name) for name in node._fields}))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self.twins.get(node.name, node.name)
        node.returns = None
        for argument in ast.walk(node.args):
            if isinstance(argument, ast.arg):
                argument.annotation = None
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        return self.visit(ast.Assign(targets=[node.target], value=node.value)) if node.value else ast.Pass()

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:
        return self.visit(ast.With(items=node.items, body=node.body))

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        return self.visit(ast.For(target=node.target, iter=node.iter, body=node.body, orelse=node.orelse))

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(id=self.twins.get(node.id, node.id), ctx=node.ctx)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and (node.value.id, node.attr) == ("asyncio", "sleep"):
            return ast.Attribute(value=ast.Name(id="time", ctx=ast.Load()), attr="sleep", ctx=node.ctx)
        return ast.Attribute(value=self.visit(node.value), attr=self.twins.get(node.attr, node.attr), ctx=node.ctx)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to_thread":
            node = ast.Call(func=node.args[0], args=node.args[1:], keywords=node.keywords)
        return self.generic_visit(node)


def _functions(tree: ast.AST, scope: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield scope + node.name, node
            yield from _functions(node, f"{scope}{node.name}.")
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{scope}{node.name}.")


def _async_name(name: str) -> str:
    scope, dot, last = name.rpartition(".")
    bare = last.lstrip("_")
    return f"{scope}{dot}{last[: len(last) - len(bare)]}a{bare}"


def _pairs() -> dict[tuple[str, str], tuple[ast.AST, ast.AST]]:
    found: dict[tuple[str, str], tuple[ast.AST, ast.AST]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        functions = dict(_functions(ast.parse(path.read_text("utf-8"))))
        for name, node in functions.items():
            twin = functions.get(_async_name(name))
            if isinstance(node, ast.FunctionDef) and isinstance(twin, ast.AsyncFunctionDef):
                found[path.relative_to(PACKAGE).as_posix(), name] = (node, twin)
    return found


PAIRS = _pairs()
# Names that stand for the same thing in both colours: the package's own twins, and those of LangChain and LangGraph.
_LAST = {name.rpartition(".")[2] for _, name in PAIRS} | {"invoke", "get", "put", "search", "delete", "batch", "stream"}
TWINS = {_async_name(name): name for name in _LAST}


def colourless(node: ast.AST) -> str:
    fresh = ast.parse(ast.unparse(node)).body[0]
    return ast.unparse(ast.fix_missing_locations(_Colourless(TWINS).visit(fresh)))


def test_the_pairs_that_the_design_names_exist() -> None:
    assert NAMED - PAIRS.keys() == set()


@pytest.mark.parametrize("pair", sorted(PAIRS.keys() - DIFFERENT.keys()), ids=".".join)
def test_twins_differ_in_colour_only(pair: tuple[str, str]) -> None:
    sync, twin = PAIRS[pair]
    assert colourless(twin) == colourless(sync)


@pytest.mark.parametrize("pair", sorted(PAIRS), ids=".".join)
def test_twins_take_the_same_arguments_with_the_same_defaults(pair: tuple[str, str]) -> None:
    sync, twin = PAIRS[pair]
    assert isinstance(sync, ast.FunctionDef)
    assert isinstance(twin, ast.AsyncFunctionDef)
    # A type may have a colour too: `AsyncModelCall`, `AsyncCallbackManagerForLLMRun`.
    assert ast.unparse(twin.args).replace("Async", "") == ast.unparse(sync.args)


def test_no_exception_is_listed_that_is_not_needed() -> None:
    assert DIFFERENT.keys() - PAIRS.keys() == set()
    assert [pair for pair in DIFFERENT if colourless(PAIRS[pair][1]) == colourless(PAIRS[pair][0])] == []


def test_the_comparison_sees_a_forgotten_line() -> None:
    sync = ast.parse("def run(x):\n    a(x)\n    return b(x)").body[0]
    assert colourless(ast.parse("async def arun(x):\n    a(x)\n    return await b(x)").body[0]) == colourless(sync)
    assert colourless(ast.parse("async def arun(x):\n    return await b(x)").body[0]) != colourless(sync)
