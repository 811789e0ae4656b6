"""Mutants: every small change of a module's syntax tree that a slip of the hand could make.

A mutant is one replacement of one piece of source; everything around it keeps its place, so that a
line number means the same in all of them. Annotations, decorators, docstrings, imports, messages
and names are left alone: what they change is either nothing or an error at import.
"""

from __future__ import annotations

import ast
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.MatMult: ast.Mult,
}
# Names and attributes with a neighbour that fits in their place.
_NEIGHBOURS = {
    "min": "max",
    "max": "min",
    "amin": "amax",
    "amax": "amin",
    "minimum": "maximum",
    "maximum": "minimum",
    "float32": "float16",
    "float64": "float32",
    "int64": "int32",
    "int32": "int64",
    "zeros": "ones",
    "zeros_like": "ones_like",
    "any": "all",
    "all": "any",
    "isnan": "isinf",
    "cumsum": "cumprod",
}
# Methods and functions without which a call's first argument would go on as it was.
_GUARDS = {
    "clamp", "clip", "masked_fill", "masked_fill_", "nan_to_num", "where", "relu", "relu_",
    "contiguous", "clone", "detach", "abs", "maximum", "minimum", "float",
}  # fmt: skip

# Functions whose first two arguments may change places.
_SYMMETRIC = {"max", "min", "maximum", "minimum", "transpose", "swapaxes", "equal", "array_equal"}


@dataclass(frozen=True)
class Mutant:
    """One change to a file: the bytes `start` to `stop`, `before`, become `after`.

    `line` and `column` are where it is, and `text` is that line.
    """

    path: str
    line: int
    column: int
    kind: str
    text: str
    before: str
    after: str
    start: int
    stop: int

    @property
    def name(self) -> str:
        """What it is called among results that are kept."""
        before, after = _on_one_line(self.before), _on_one_line(self.after)
        return f"{self.path}:{self.line}:{self.column} {self.kind}: {before} -> {after}"

    @property
    def module(self) -> str:
        """The import name of the file."""
        parts = Path(self.path).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def applied(self, source: str) -> str:
        """Return the module's source with the change in it."""
        whole = source.encode()
        return (whole[: self.start] + self.after.encode() + whole[self.stop :]).decode()


def mutants_of(path: str, source: str) -> list[Mutant]:
    """Return all mutants of a module's source, in the order of their places."""
    whole = source.encode()
    lines = whole.splitlines(keepends=True)
    begins = list(itertools.accumulate(map(len, lines), initial=0))
    found: dict[tuple[int, int, str], Mutant] = {}
    for kind, node, after in _changes(ast.parse(source)):
        last, column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        start, stop = begins[node.lineno - 1] + node.col_offset, begins[last - 1] + column
        before = whole[start:stop].decode()
        if after == ast.unparse(node):
            continue
        found.setdefault(
            (start, stop, after),
            Mutant(
                path,
                node.lineno,
                node.col_offset,
                kind,
                lines[node.lineno - 1].decode().strip(),
                before,
                after if isinstance(node, ast.stmt) else f"({after})",
                start,
                stop,
            ),
        )
    return sorted(found.values(), key=lambda each: (each.start, each.stop, each.kind, each.after))


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def evenly(mutants: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """Return `count` mutants spread over the whole: one at random out of each of as many parts."""
    if count >= len(mutants):
        return list(mutants)
    rng = random.Random(seed)
    edges = [len(mutants) * part // count for part in range(count + 1)]
    return [mutants[rng.randrange(a, b)] for a, b in itertools.pairwise(edges)]


def _changes(tree: ast.Module) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    for statement in tree.body:
        yield from _of_statement(statement, known=set())


def _of_statement(
    node: ast.stmt, known: set[str]
) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Changes within a statement; `known` are the names that the function has set before it."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        inside: set[str] = set()
        if isinstance(node, ast.FunctionDef):
            inside = {each.arg for each in [*node.args.args, *node.args.kwonlyargs]}
            for default in [*node.args.defaults, *node.args.kw_defaults]:
                if default is not None:
                    yield from _of_expression(default)
        for each in node.body:
            yield from _of_statement(each, inside)
        return
    if isinstance(node, ast.Raise):
        yield "statement dropped", node, "pass"
        return
    if isinstance(node, ast.Expr):
        if isinstance(node.value, ast.Constant):
            return
        if not isinstance(node.value, (ast.Yield, ast.YieldFrom)):
            yield "statement dropped", node, "pass"
    if isinstance(node, ast.AugAssign):
        yield "statement dropped", node, "pass"
        other = _OPERATORS.get(type(node.op))
        if other is not None:
            changed = ast.AugAssign(node.target, other(), node.value)
            yield "operator", node, ast.unparse(changed)
    if isinstance(node, ast.Assign):
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        targets = {each.id for target in node.targets for each in _names(target)}
        if isinstance(node.targets[0], ast.Subscript) or (targets and targets <= known):
            yield "statement dropped", node, "pass"
        known |= targets
        if "__all__" in names:
            return
    if isinstance(node, (ast.If, ast.While)):
        yield "condition negated", node.test, f"not ({ast.unparse(node.test)})"
    if isinstance(node, (ast.Continue, ast.Break)):
        yield "statement dropped", node, "pass"
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "type_comment"):
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.stmt):
                yield from _of_statement(each, known)
            elif isinstance(each, ast.expr):
                yield from _of_expression(each)
            elif isinstance(each, ast.withitem):
                yield from _of_expression(each.context_expr)
            elif isinstance(each, ast.ExceptHandler):
                for inner in each.body:
                    yield from _of_statement(inner, known)


def _names(target: ast.expr) -> Iterator[ast.Name]:
    return (each for each in ast.walk(target) if isinstance(each, ast.Name))


def _of_expression(node: ast.expr) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    if isinstance(node, (ast.JoinedStr, ast.Lambda)):
        return  # places inside an f-string are not those of the file before Python 3.12
    yield from _of_operators(node)
    if isinstance(node, ast.Constant):
        yield from _of_constants(node)
    if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
        name = node.id if isinstance(node, ast.Name) else node.attr
        if name in _NEIGHBOURS:
            other = _NEIGHBOURS[name]
            after = other if isinstance(node, ast.Name) else f"{ast.unparse(node.value)}.{other}"
            kind = "dtype" if name[-2:] in ("16", "32", "64") else "neighbour"
            yield kind, node, after
        if name == "inf":
            yield "constant", node, f"-{ast.unparse(node)}"
    if isinstance(node, ast.Call):
        yield from _of_calls(node)
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.expr):
            yield from _of_expression(inner)
        elif isinstance(inner, ast.keyword):
            yield from _of_expression(inner.value)
        elif isinstance(inner, ast.comprehension):
            yield from _of_expression(inner.iter)
            for condition in inner.ifs:
                yield "condition negated", condition, f"not ({ast.unparse(condition)})"
                yield from _of_expression(condition)


def _of_operators(node: ast.expr) -> Iterator[tuple[str, ast.expr, str]]:
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            changed = [*node.ops]
            changed[place] = _COMPARISONS[type(operator)]()
            yield "comparison", node, ast.unparse(ast.Compare(node.left, changed, node.comparators))
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        other = _OPERATORS[type(node.op)]()
        yield "operator", node, ast.unparse(ast.BinOp(node.left, other, node.right))
    if isinstance(node, ast.BoolOp):
        swapped = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "operator", node, ast.unparse(ast.BoolOp(swapped, node.values))
    if isinstance(node, ast.UnaryOp):
        yield "operator dropped", node, ast.unparse(node.operand)
    if isinstance(node, ast.IfExp):
        yield "branch", node, ast.unparse(node.body)
        yield "branch", node, ast.unparse(node.orelse)


def _of_constants(node: ast.Constant) -> Iterator[tuple[str, ast.expr, str]]:
    value = node.value
    if isinstance(value, bool):
        yield "constant", node, str(not value)
    elif isinstance(value, int):
        yield "constant", node, str(value + 1)
        yield "constant", node, str(value - 1)
    elif isinstance(value, float):
        yield "constant", node, str(value + 1.0)


def _of_calls(node: ast.Call) -> Iterator[tuple[str, ast.expr, str]]:
    function = node.func
    called = function.attr if isinstance(function, ast.Attribute) else ast.unparse(function)
    starred = any(isinstance(each, ast.Starred) for each in node.args[:2])
    if len(node.args) >= 2 and not starred and called not in _SYMMETRIC:
        first, second, *others = node.args
        changed = ast.Call(node.func, [second, first, *others], node.keywords)
        yield "arguments swapped", node, ast.unparse(changed)
    if not isinstance(function, ast.Attribute) or function.attr not in _GUARDS:
        return
    owner = ast.unparse(function.value)
    if owner in ("torch", "np", "numpy"):
        for argument in node.args[-2:]:
            yield "guard removed", node, ast.unparse(argument)
    else:
        yield "guard removed", node, owner
