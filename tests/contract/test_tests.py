"""A test fails if it has nothing to check, and CI fails if a test needs its retry twice in a row."""

from __future__ import annotations

import ast
import functools
import operator
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
WITH_TESTS = ("contract", "e2e", "gpu", "unit", "vm")
CHECKS = ("raises", "warns", "fail", "deprecated_call")
"""Members of pytest that check, also as `with` blocks."""
HELPERS = ("assert_", "check_", "refuse", "_check", "_refuse")
"""Beginnings of names: these helpers check, wherever they are defined."""
PASSED_ON = frozenset(
    {"chain", "cycle", "enumerate", "fromkeys", "items", "keys", "list", "permutations", "product"}
    | {"reversed", "set", "sorted", "split", "splitlines", "tuple", "values", "zip"}
)
"""Functions and methods that return items if all that they are given has items."""

ARITHMETIC: dict[type[ast.operator], Callable[..., int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Names = dict[str, list[ast.expr]]
"""Every value that is assigned to a name."""


def name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def has_items(node: ast.expr, names: Names) -> bool:
    """Return whether the text alone shows that a loop over `node` runs at least once."""
    match node:
        case ast.List(items) | ast.Tuple(items) | ast.Set(items):
            return any(not isinstance(item, ast.Starred) or has_items(item.value, names) for item in items)
        case ast.Dict():
            return any(node.keys)
        case ast.Constant(str() | bytes() as value):
            return bool(value)
        case ast.IfExp(_, one, other):
            return has_items(one, names) and has_items(other, names)
        case ast.Name(name):
            without = {key: values for key, values in names.items() if key != name}
            return name in names and all(has_items(value, without) for value in names[name])
        case ast.BinOp(left, ast.Add() | ast.Mult() | ast.BitOr(), right):
            return has_items(left, names) or has_items(right, names)
        case ast.ListComp(_, generators) | ast.SetComp(_, generators) | ast.GeneratorExp(_, generators):
            return all(not part.ifs and has_items(part.iter, names) for part in generators)
        case ast.DictComp(generators=generators):
            return all(not part.ifs and has_items(part.iter, names) for part in generators)
        case ast.Call() if name_of(node) == "range":
            return runs(node.args, names)
        case ast.Call() if name_of(node) == "count":
            return True
        case ast.Call() if name_of(node) in PASSED_ON:
            inner = [*node.args]
            if isinstance(node.func, ast.Attribute) and not node.args:
                inner = [node.func.value]
            return bool(inner) and all(has_items(item, names) for item in inner)
    return False


def runs(arguments: list[ast.expr], names: Names) -> bool:
    """Return whether `range` of these has items, as far as its arguments are numbers."""
    numbers = [number(argument, names) for argument in arguments]
    known = [value for value in numbers if value is not None]
    return len(known) == len(numbers) and bool(range(*known))


def number(node: ast.expr, names: Names) -> int | None:
    match node:
        case ast.Constant(int() as value):
            return value
        case ast.UnaryOp(ast.USub(), operand):
            value = number(operand, names)
            return None if value is None else -value
        case ast.BinOp(left, sign, right) if type(sign) in ARITHMETIC:
            values = number(left, names), number(right, names)
            return None if None in values else ARITHMETIC[type(sign)](*values)
        case ast.IfExp(_, one, other):
            return min((number(one, names), number(other, names)), key=lambda value: value or 0)
        case ast.Name(name) if len(names.get(name, ())) == 1:
            return number(names[name][0], {})
    return None


def single(target: ast.expr, value: ast.expr) -> list[tuple[str, ast.expr]]:
    """Return the names of an assignment with their values; those of a tuple that is unpacked one by one."""
    if isinstance(target, ast.Name):
        return [(target.id, value)]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return [pair for each in zip(target.elts, value.elts, strict=True) for pair in single(*each)]
    return []


def assigned(body: list[ast.stmt]) -> Names:
    names: Names = {}
    for node in body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for name, value in single(target, node.value):
                    names.setdefault(name, []).append(value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            names.setdefault(node.target.id, []).append(node.value)
    return names


class Checks(ast.NodeVisitor):
    """Counts the checks of one function, inside and outside of loops that may have nothing to loop over."""

    def __init__(self, names: Names, helpers: frozenset[str]) -> None:
        self.names = names
        self.helpers = helpers
        self.depth = 0
        self.inside = 0
        self.outside = 0

    def found(self) -> None:
        if self.depth:
            self.inside += 1
        else:
            self.outside += 1

    def visit_Assert(self, node: ast.Assert) -> None:
        self.found()
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        if "AssertionError" in ast.dump(node):
            self.found()

    def visit_Call(self, node: ast.Call) -> None:
        name = name_of(node)
        if name in self.helpers or name.startswith(HELPERS) or name in CHECKS:
            self.found()
        self.generic_visit(node)

    def visit_loop(self, node: ast.For | ast.AsyncFor | ast.While) -> None:
        if isinstance(node, ast.While):
            certain = isinstance(node.test, ast.Constant)
            self.visit(node.test)
        else:
            certain = has_items(node.iter, self.names)
            self.visit(node.iter)
        self.depth += not certain
        for line in node.body:
            self.visit(line)
        self.depth -= not certain
        for line in node.orelse:
            self.visit(line)

    visit_For = visit_AsyncFor = visit_While = visit_loop  # noqa: N815 (names of `ast`)

    def visit_FunctionDef(self, node: Function) -> None:
        """Skip it: what a function defined here checks counts where it is called."""

    visit_AsyncFunctionDef = visit_Lambda = visit_ClassDef = visit_FunctionDef  # noqa: N815


def functions(body: list[ast.stmt]) -> list[Function]:
    found: list[Function] = []
    for node in body:
        if isinstance(node, Function):
            found.append(node)
        elif isinstance(node, ast.ClassDef):
            found += functions(node.body)
    return found


def counted(function: Function, names: Names, helpers: frozenset[str]) -> Checks:
    here = [node for node in ast.walk(function) if isinstance(node, Function) and node is not function]
    own: Names = {**names, **assigned([node for node in ast.walk(function) if isinstance(node, ast.stmt)])}
    inner = checking(here, own, helpers)
    checks = Checks(own, inner)
    for line in function.body:
        checks.visit(line)
    return checks


def checking(found: list[Function], names: Names, known: frozenset[str]) -> frozenset[str]:
    """Add to the names of helpers that check those of `found` that do, by an assert or by another helper."""
    helpers = known
    while True:
        more = helpers | {
            function.name
            for function in found
            if not function.name.startswith("test_") and counted(function, names, helpers).outside
        }
        if more == helpers:
            return helpers
        helpers = more


@functools.cache
def shared_helpers() -> frozenset[str]:
    helpers: frozenset[str] = frozenset()
    for path in sorted((TESTS / "support").glob("*.py")):
        tree = ast.parse(path.read_text())
        helpers = checking(functions(tree.body), assigned(tree.body), helpers)
    return helpers


def vacuous(source: str) -> list[str]:
    """Return the tests of a file that can pass without one check, in order."""
    tree = ast.parse(source)
    names = assigned(tree.body)
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests.support")
        for alias in node.names
    }
    found = functions(tree.body)
    helpers = checking(found, names, shared_helpers() & imported)
    wrong = []
    for function in found:
        if function.name.startswith("test_"):
            checks = counted(function, names, helpers)
            if checks.inside and not checks.outside:
                wrong.append(f"{function.name} (line {function.lineno})")
    return wrong


def files() -> list[Path]:
    return [path for part in WITH_TESTS for path in sorted((TESTS / part).rglob("test_*.py"))]


def test_there_are_tests_to_read() -> None:
    assert len(files()) > 200


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(TESTS)))
def test_no_test_passes_without_a_check(path: Path) -> None:
    assert vacuous(path.read_text()) == [], "assert before the loop that it has items: `assert rows`"


VACUOUS = {
    "foreign rows": "def test_it(rows):\n    for row in rows:\n        assert row",
    "an assert in a condition": "def test_it(rows):\n    for row in rows:\n        if row:\n            assert row > 1",
    "raises": "def test_it(rows):\n    for row in rows:\n        with pytest.raises(ValueError):\n            row()",
    "a helper": "def same(a):\n    assert a\ndef test_it(rows):\n    for row in rows:\n        same(row)",
    "a range of what was found": "def test_it(rows):\n    for i in range(len(rows)):\n        assert i",
    "an empty list": "ROWS = []\ndef test_it():\n    for row in ROWS:\n        assert row",
    "a deadline": "def test_it():\n    while now() < until:\n        assert read()",
    "a method": "class TestIt:\n    def test_it(self, rows):\n        for row in rows:\n            assert row",
    "a coroutine": "async def test_it(rows):\n    async for row in rows:\n        assert row",
}
SOUND = {
    "something to loop over": "def test_it(rows):\n    assert rows\n    for row in rows:\n        assert row",
    "a literal": "def test_it():\n    for row in (1, 2):\n        assert row",
    "a table": "ROWS = {'a': 1}\ndef test_it():\n    for name, row in ROWS.items():\n        assert row",
    "a range": "N = 3\ndef test_it():\n    for row in range(2 * N):\n        assert row",
    "after the wait": "def test_it():\n    while now() < until:\n        assert read()\n    assert seen",
    "found or failed": "def test_it(rows):\n    for row in rows:\n        assert row\n    else:\n        pytest.fail('none')",
    "a helper after the loop": "def check(a):\n    assert a\ndef test_it(rows):\n    for row in rows:\n        assert row\n    check(rows)",
}


@pytest.mark.parametrize("source", VACUOUS.values(), ids=VACUOUS)
def test_asserts_that_may_never_run_are_found(source: str) -> None:
    assert len(vacuous(source)) == 1


@pytest.mark.parametrize("source", SOUND.values(), ids=SOUND)
def test_asserts_that_run_are_let_through(source: str) -> None:
    assert vacuous(source) == []


def retried(place: Path, *names: str) -> tuple[int, str]:
    """Run what `tests/run.sh` runs at its end, with the tests that it has retried."""
    done = subprocess.run(
        ["sh", str(TESTS / "retried.sh"), str(place)], input="\n".join(names), capture_output=True, text=True
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


ONE, OTHER = "tests/e2e/test_a.py::test_it[a b]", "tests/e2e/test_a.py::test_it[a b]c"


def test_a_test_that_is_retried_in_two_runs_in_a_row_fails_the_second(tmp_path: Path) -> None:
    place = tmp_path / "made by the first run" / "retried"
    assert retried(place, ONE) == (0, "")
    assert retried(place, OTHER, ONE) == (1, f"retried in two runs in a row, fix this test: {ONE}\n")
    assert retried(place, OTHER)[0] == 1, "a run that fails has retried its tests as well"


def test_a_run_without_retries_clears_what_the_one_before_has_kept(tmp_path: Path) -> None:
    assert retried(tmp_path / "retried", ONE) == (0, "")
    assert retried(tmp_path / "retried") == (0, "")
    assert retried(tmp_path / "retried", ONE) == (0, "")


def test_another_test_may_be_retried_in_the_next_run(tmp_path: Path) -> None:
    assert retried(tmp_path / "retried", ONE) == (0, "")
    assert retried(tmp_path / "retried", OTHER) == (0, "")
    assert retried(tmp_path / "retried", ONE) == (0, "")
