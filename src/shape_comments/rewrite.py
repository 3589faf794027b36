"""Put a call beside each value that has a comment, and one for each argument with a shape.

Every call stands on the line of its value, so that tracebacks stay true. A function becomes::

    def f(x):
        __shapes__ = {}                                # what this call binds
        __check_shape__(__shapes__, 0, x)              # the docstring's shape of x
        y = __check_shape__(__shapes__, 1, x.mT)       # (d, n)
        return __check_shape__(__shapes__, None, y)    # no comment; x is accepted
"""

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from shape_comments.comments import Comment

CHECK = "__check_shape__"  # the checker's function, in the globals of everything instrumented
CALL = "__shapes__"  # a local of every function with comments: what this call has bound
_NO_VALUE = "this shape comment stands where no value is"


def rewrite(
    tree: ast.Module,
    comments: dict[int, Comment],
    arguments: dict[ast.AST, list[Comment]],
    number: Callable[[Comment], int],
) -> ast.Module:
    """Change a tree in place; ``number`` registers a comment.

    Raises:
        ShapeCommentError: a comment stands where it cannot be checked.
    """
    if not comments and not arguments:
        return tree
    simple: list[Any] = [node for node in ast.walk(tree) if _is_simple(node)]
    owners = {line: node for node in simple for line in (node.lineno, node.end_lineno)}
    _Rewriter(comments, arguments, number, owners, [tree]).visit(tree)
    for comment in comments.values():
        raise comment.error(_NO_VALUE)
    return ast.fix_missing_locations(tree)


def _is_simple(node: ast.AST) -> bool:
    """Tell whether it is a statement that holds no others."""
    return isinstance(node, ast.stmt) and not (hasattr(node, "body") or hasattr(node, "cases"))


def _is_left_to_others(node: ast.FunctionDef) -> bool:
    """Tell whether a function with a docstring does nothing, or only raises."""
    return all(isinstance(statement, ast.Raise | ast.Pass) for statement in node.body[1:])


@dataclass
class _Rewriter(ast.NodeTransformer):
    """Takes each comment out of ``comments`` as it finds the statement it belongs to."""

    comments: dict[int, Comment]
    arguments: dict[ast.AST, list[Comment]]
    number: Callable[[Comment], int]
    owners: dict[int, ast.AST]  # of each line the last statement: its comment belongs to that
    scopes: list[ast.AST]
    used: set[ast.AST] = field(default_factory=set)  # functions that hold checks

    def visit(self, node: Any) -> Any:
        """Treat simple statements here; visit the parts of everything else."""
        if not _is_simple(node):
            return super().visit(node)
        for line in sorted({node.lineno, node.end_lineno} & self.comments.keys()):
            if self.owners[line] is node:
                self._attach(node, self.comments.pop(line))
        if isinstance(node, ast.Return) and self.scopes[-1] in self.arguments:
            node.value = self._call(None, node.value or ast.Constant(None), node)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Visit a class; its docstring's shapes belong to no call."""
        for comment in self.arguments.pop(node, []):
            raise comment.error(_NO_VALUE)
        self.scopes.append(node)
        self.generic_visit(node)
        self.scopes.pop()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Visit a function; give it a place for its letters, and check its arguments first."""
        self.scopes.append(node)
        self.generic_visit(node)
        new: list[ast.stmt] = [ast.Assign([ast.Name(CALL, ast.Store())], ast.Dict([], []))]
        parameters = {arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg)}
        for comment in self.arguments.get(node, []):
            if comment.argument not in parameters:
                raise comment.error(f"{node.name} has no argument {comment.argument}")
            if _is_left_to_others(node):
                continue  # there is no call to reach it
            value = ast.Name(comment.argument, ast.Load())
            new.append(ast.Expr(self._call(comment, value, node.body[0])))
        if node in self.arguments:
            last = node.body[-1]
            leave = ast.Expr(self._call(None, ast.Constant(None), last))
            node.body.append(ast.copy_location(leave, last))
        if node in self.used:
            at = 0 if ast.get_docstring(node) is None else 1
            node.body[at:at] = [ast.copy_location(stmt, node.body[0]) for stmt in new]
        self.scopes.pop()
        return node

    def _attach(self, node: Any, comment: Comment) -> None:
        """Wrap the statement's value in a check."""
        known = isinstance(node, ast.Assign | ast.AnnAssign | ast.Return | ast.Expr)
        value = node.value if known else None
        if value is None or isinstance(value, ast.Constant):
            raise comment.error(_NO_VALUE)
        unpack = isinstance(node, ast.Assign) and _unpacks(node, comment)
        node.value = self._call(comment, value, value, unpack)

    def _call(
        self, comment: Comment | None, value: ast.expr, at: ast.AST, unpack: bool = False
    ) -> ast.Call:
        """Build the call that checks a value and returns it; without a comment, it only leaves."""
        scope = self.scopes[-1]
        letters: ast.expr = ast.Constant(None)
        if isinstance(scope, ast.FunctionDef):
            letters = ast.Name(CALL, ast.Load())
            self.used.add(scope)
        number = None
        if comment:
            names = comment.letters()
            comment.variables = frozenset(
                names & _names(scope) if isinstance(scope, ast.FunctionDef) else names
            )
            number = self.number(comment)
        arguments = [letters, ast.Constant(number), value, *[ast.Constant(True)] * unpack]
        return ast.copy_location(ast.Call(ast.Name(CHECK, ast.Load()), arguments, []), at)


def _names(scope: ast.AST) -> set[str]:
    """Return the names that a function uses: a global that it leaves alone is no size to it."""
    names = {node.id for node in ast.walk(scope) if isinstance(node, ast.Name)}
    return names | {node.arg for node in ast.walk(scope) if isinstance(node, ast.arg)}


def _unpacks(node: ast.Assign, comment: Comment) -> bool:
    """Tell whether every target takes the value apart, so that a tuple of it does as well."""
    tuples = [x.elts for x in node.targets if isinstance(x, ast.Tuple | ast.List)]
    for parts in tuples:
        if any(isinstance(x, ast.Starred | ast.Tuple | ast.List) for x in parts):
            raise comment.error("a nested or starred target cannot be checked")
        if len(comment.shapes) not in (1, len(parts)):
            got = f"{len(comment.shapes)} shapes for {len(parts)} targets"
            raise comment.error(f"the comment has {got}")
    return len(tuples) == len(node.targets)
