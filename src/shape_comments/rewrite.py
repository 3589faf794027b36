"""Put a call beside each value that has a comment, and one for each variable with a shape.

Every call stands on the line of its value, so that tracebacks stay true. A function becomes::

    def f(x):
        __shapes__ = {}                                   # what this call binds
        for y in x:
            __check_shape__(__shapes__, 0, 2, AGAIN)      # of comments 0 and 1: it is free again
            y = __check_shape__(__shapes__, 0, y.mT)      # (d, n)
            z, w = y.chunk(2)                             # z: (e, n)
            __check_shape__(__shapes__, 1, None)

"""

import ast
from collections.abc import Callable
from typing import Any

from shape_comments.comments import ABOVE, BELOW, Comment, Place

CHECK = "__check_shape__"  # the checker's function, in the globals of everything instrumented
CALL = "__shapes__"  # a local of every function with comments: what this call has bound
PLAIN, UNPACK, AGAIN = range(3)
NO_VALUE = "this shape comment stands where no value is"
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
_INLINE = ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_LOOP = ast.For | ast.AsyncFor | ast.While
_NO_VALUES = ast.Constant | ast.Starred | ast.JoinedStr
_SEVERAL = ast.Tuple | ast.List


class Rewriter(ast.NodeTransformer):
    """Finds what each comment belongs to, and then, as it visits the tree, puts in the calls."""

    def __init__(self, tree: ast.Module, number: Callable[[Comment], int]) -> None:
        """Look at a tree; ``number`` registers a comment."""
        self.number = number
        self.numbers = list[int]()  # of the comments put in so far
        self.scopes: dict[ast.AST, ast.AST] = {}
        self.names: dict[ast.AST, set[str]] = {}
        self.used = set[ast.AST]()  # functions that hold checks
        # By row: the statement that begins there, the one that ends there, the largest expression
        # that ends there, and the parameter.
        self.starts: dict[int, Any] = {}
        self.ends: dict[int, Any] = {}
        self.values: dict[int, Any] = {}
        self.parameters: dict[int, tuple[Any, str]] = {}
        # The comments of an expression, and how its value is taken; those that are looked at after
        # a statement, or as a function begins.
        self.wraps: dict[ast.AST, list[tuple[Comment, int]]] = {}
        self.later: dict[ast.AST, list[Comment]] = {}
        self.first: dict[ast.AST, list[Comment]] = {}
        self._look(tree, tree, False)

    def _look(self, node: Any, scope: ast.AST, inside: bool) -> None:
        """Note what stands in each row; ``inside`` a simple statement expressions count, too."""
        self.scopes[node] = scope
        if isinstance(node, ast.stmt) and not hasattr(node, "body") and not hasattr(node, "cases"):
            inside = True
            self.starts[node.lineno] = self.ends[node.end_lineno or 0] = node
        elif inside and isinstance(node, ast.expr):
            old = self.values.get(node.end_lineno or 0)
            if not old or _extent(old) < _extent(node):
                self.values[node.end_lineno or 0] = node
        if isinstance(node, FUNCTION):
            for arg in sorted(_parameters(node), key=lambda x: x.col_offset):
                self.parameters[arg.end_lineno or 0] = (node, arg.arg)
        if isinstance(node, FUNCTION | _INLINE | ast.ClassDef):
            scope = node
        for name, value in ast.iter_fields(node):
            if name not in {"annotation", "slice"} and not isinstance(node, ast.JoinedStr):
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        self._look(child, scope, inside)

    def attach(self, comment: Comment, place: Place) -> str:
        """Find what a comment is about; return why there is nothing."""
        if not place.code:
            node = {BELOW: self.starts, ABOVE: self.ends}.get(place.own_lines, {}).get(place.row)
            fits = node and node.col_offset == place.column
            return self._attach_to_statement(comment, node) if fits else NO_VALUE
        opens = place.code.endswith(("(", "[", "{"))
        node = self.ends.get(place.row) or (self.starts.get(place.row) if opens else None)
        if node:
            return self._attach_to_statement(comment, node)
        value = self.values.get(place.row)
        if place.row in self.parameters:
            function, name = self.parameters[place.row]
            if comment.name not in {x.arg for x in _parameters(function)}:
                if place.code.endswith(":"):  # it may be about what the function returns
                    return NO_VALUE
                comment.name = name
            self.first.setdefault(function, []).append(comment)
        elif opens or value is None or isinstance(value, _NO_VALUES):
            return NO_VALUE
        elif value.lineno < place.row and not isinstance(value, ast.Call | ast.Subscript):
            return "it may be about an operand, or about the result"
        else:
            comment.name = ""
            self.wraps.setdefault(value, []).append((comment, PLAIN))
        return ""

    def _attach_to_statement(self, comment: Comment, node: Any) -> str:
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        names = [getattr(x, "id", "") for x in targets]
        augmented = isinstance(node, ast.AugAssign) and names != [""]
        if not augmented and not isinstance(
            node, ast.Assign | ast.AnnAssign | ast.Return | ast.Expr
        ):
            return NO_VALUE
        variable = comment.name in self._names(self.scopes[node]) and names != [comment.name]
        if augmented or (variable and not isinstance(node, ast.Return)):
            comment.name = comment.name if variable else names[0]
            self.later.setdefault(node, []).append(comment)
            return ""
        comment.name, value = "", node.value
        if isinstance(value, ast.Yield) and isinstance(node, ast.Expr):
            value = value.value
        if value is None or isinstance(value, ast.Constant | ast.Yield | ast.YieldFrom):
            return NO_VALUE
        several = [x.elts for x in targets if isinstance(x, _SEVERAL)]
        for parts in several:
            if any(isinstance(x, ast.Starred | _SEVERAL) for x in parts):
                return "a nested or starred target cannot be checked"
            if len(comment.shapes) not in (1, len(parts)) and not comment.either:
                return f"the comment has {len(comment.shapes)} shapes for {len(parts)} targets"
        unpacks = isinstance(node, ast.Assign) and len(several) == len(targets)
        self.wraps.setdefault(value, []).append((comment, UNPACK if unpacks else PLAIN))
        return ""

    def visit(self, node: Any) -> Any:
        """Put in the calls of a node, and of all that is in it."""
        before, scope = len(self.numbers), self.scopes.get(node)
        self.generic_visit(node)
        if isinstance(node, FUNCTION):
            self.begin(node, [self.ask(x, node.body[0], node) for x in self.first.get(node, [])])
        elif isinstance(node, _LOOP) and (inside := self.numbers[before:]):
            end = ast.Constant(inside[-1] + 1)
            node.body.insert(0, ast.Expr(self.call(inside[0], end, AGAIN, node.body[0], scope)))
        later = [self.ask(comment, node, scope) for comment in self.later.get(node, [])]
        for comment, mode in self.wraps.get(node, []):
            node = self.call(self._number(comment, scope), node, mode, node, scope)
        return [node, *later] if later else node

    def begin(self, node: Any, entry: list[ast.stmt]) -> None:
        """Give a function what it begins with, and a place for its letters."""
        if node in self.used:
            entry = [ast.Assign([ast.Name(CALL, ast.Store())], ast.Dict([], [])), *entry]
        at = 0 if ast.get_docstring(node) is None else 1
        node.body[at:at] = [ast.copy_location(x, node.body[0]) for x in entry]

    def _number(self, comment: Comment, scope: Any) -> int:
        names = comment.letters()
        while isinstance(scope, _INLINE):
            scope = self.scopes[scope]
        if isinstance(scope, FUNCTION):
            names &= self._names(scope)
        comment.variables = frozenset(names)
        self.numbers.append(self.number(comment))
        return self.numbers[-1]

    def ask(self, comment: Comment, at: ast.AST, scope: Any) -> ast.stmt:
        """Build the statement that checks a variable."""
        number = self._number(comment, scope)
        return ast.Expr(self.call(number, ast.Constant(None), PLAIN, at, scope))

    def call(
        self, number: int | None, value: ast.expr, mode: int, at: ast.AST, scope: Any
    ) -> ast.Call:
        """Build the call that checks a value and returns it."""
        letters: ast.expr = ast.Constant(None)
        if isinstance(scope, FUNCTION) and not self.shows_locals(scope):
            letters = ast.Name(CALL, ast.Load())
            self.used.add(scope)
        elif isinstance(scope, FUNCTION | _INLINE):
            letters = ast.Dict([], [])  # each comment for itself
        arguments = [letters, ast.Constant(number), value, *[ast.Constant(mode)] * (mode != PLAIN)]
        return ast.copy_location(ast.Call(ast.Name(CHECK, ast.Load()), arguments, []), at)

    def _names(self, scope: ast.AST) -> set[str]:
        """Return the names that a function uses: a global that it leaves alone is no size to it."""
        if scope not in self.names:
            nodes = [*ast.walk(scope)]
            names = {node.id for node in nodes if isinstance(node, ast.Name)}
            self.names[scope] = names | {node.arg for node in nodes if isinstance(node, ast.arg)}
        return self.names[scope]

    def shows_locals(self, scope: ast.AST) -> bool:
        """Tell whether a function asks for all its locals, and would get ours."""
        if not self._names(scope) & {"locals", "vars"}:
            return False
        calls = (node for node in ast.walk(scope) if isinstance(node, ast.Call) and not node.args)
        return any(getattr(call.func, "id", "") in {"locals", "vars"} for call in calls)


def _parameters(node: Any) -> list[ast.arg]:
    return [x for x in ast.walk(node.args) if isinstance(x, ast.arg)]


def _extent(node: Any) -> tuple[int, int, int]:
    """Order expressions that end in one row: the largest that ends last comes last."""
    return node.end_col_offset, -node.lineno, -node.col_offset
