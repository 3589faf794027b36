"""Put a call beside each value that has a comment, and one for each variable with a shape.

Every call stands on the line of its value, so that tracebacks stay true. A function becomes::

    def f(x):
        __check_shape__(0, None, BEGIN)         # no letter is bound
        for y in x:
            __check_shape__(0, (4, 5), AGAIN)   # what these lines bound is free again
            y = __check_shape__(0, y.mT)        # (d, n)
            z, w = y.chunk(2)                   # z: (e, n)
            __check_shape__(1, None)

"""

import ast
from typing import Any

from shape_comments.comments import Comment, Place

CHECK = "__check_shape__"  # the checker's function, in the globals of everything instrumented
PLAIN, UNPACK, AGAIN, BEGIN = range(4)
NO_VALUE = "this shape comment stands where no value is"
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
_LOOP = ast.For | ast.AsyncFor | ast.While
_SIMPLE = ast.Assign | ast.AnnAssign | ast.Return | ast.Expr
_BLOCKS = ("body", "handlers", "cases", "orelse", "finalbody")
# A statement, the block that holds it, and what this is in, up to its function, class or module.
Spot = tuple[Any, list[Any], tuple[Any, ...]]


class Rewriter:
    """Puts in the call of one comment after the other, and then what these calls need."""

    def __init__(self, tree: ast.Module, comments: list[Comment]) -> None:
        """Look at a tree; what is checked joins ``comments``: its place there is its number."""
        self.comments = comments
        # By row: the statement that begins there, and the one that ends there.
        self.starts: dict[int, Spot] = {}
        self.ends: dict[int, Spot] = {}
        self.names: dict[ast.AST, set[str]] = {}
        self.numbers: dict[Any, list[int]] = {}  # of the comments in a function or a loop
        self.after = list[tuple[Spot, ast.stmt]]()  # variables are looked at after a statement
        self._look(tree.body, (tree,))

    def _look(self, block: list[Any], outer: tuple[Any, ...]) -> None:
        """Note what stands in each row."""
        for node in block:
            if isinstance(node, _SIMPLE):
                self.starts[node.lineno] = self.ends[node.end_lineno or 0] = node, block, outer
            inside = (node,) if isinstance(node, FUNCTION | ast.ClassDef) else (node, *outer)
            for name in _BLOCKS:
                self._look(getattr(node, name, []), inside)

    def attach(self, comment: Comment, place: Place) -> str:
        """Put in the call of a comment; return why there is nothing that it is about."""
        spot = (self.starts if place.row > place.line else self.ends).get(place.row)
        if spot is None or place.column not in (None, spot[0].col_offset):
            return NO_VALUE
        node, _, outer = spot
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        names = [getattr(x, "id", "") for x in targets]
        name = comment.claim.name
        variable = name in self._names(outer[-1]) and names != [name]
        if variable and not isinstance(node, ast.Return):
            comment.name = name
            self.after.append((spot, self.ask(comment, node, outer)))
            return ""
        value = node.value
        if value is None or isinstance(value, ast.Constant | ast.Yield):
            return NO_VALUE
        unpacks = isinstance(node, ast.Assign) and all(
            isinstance(x, ast.Tuple | ast.List) for x in targets
        )
        mode = UNPACK if unpacks else PLAIN
        node.value = self.call(self._number(comment, outer), value, mode, value)
        return ""

    def finish(self) -> None:
        """Put in the calls that are no values."""
        for (node, block, _), call in reversed(self.after):
            block.insert(block.index(node) + 1, call)
        for node, numbers in self.numbers.items():
            if isinstance(node, FUNCTION):
                at = 0 if ast.get_docstring(node) is None else 1
                node.body.insert(at, self.statement(0, None, BEGIN, node.body[0]))
            elif isinstance(node, _LOOP):
                lines = tuple({self.comments[number].line for number in numbers})
                node.body.insert(0, self.statement(numbers[0], lines, AGAIN, node.body[0]))

    def _number(self, comment: Comment, outer: tuple[Any, ...]) -> int:
        names = {name for shape in comment.claim.shapes for axis in shape for name in axis.names}
        if isinstance(outer[-1], FUNCTION):
            names &= self._names(outer[-1])
        comment.variables = frozenset(names)
        self.comments.append(comment)
        number = len(self.comments) - 1
        for node in outer:
            self.numbers.setdefault(node, []).append(number)
        return number

    def ask(self, comment: Comment, at: ast.AST, outer: tuple[Any, ...]) -> ast.stmt:
        """Build the statement that checks a variable."""
        return self.statement(self._number(comment, outer), None, PLAIN, at)

    def statement(self, number: int, value: Any, mode: int, at: ast.AST) -> ast.stmt:
        """Build a call that stands for itself."""
        return ast.copy_location(ast.Expr(self.call(number, ast.Constant(value), mode, at)), at)

    def call(self, number: int, value: ast.expr, mode: int, at: ast.AST) -> ast.Call:
        """Build the call that checks a value and returns it."""
        arguments = [ast.Constant(number), value, *[ast.Constant(mode)] * (mode != PLAIN)]
        call = ast.Call(ast.Name(CHECK, ast.Load()), arguments, [])
        return ast.fix_missing_locations(ast.copy_location(call, at))

    def _names(self, scope: ast.AST) -> set[str]:
        """Return the names that a function uses: a global that it leaves alone is no size to it."""
        if scope not in self.names:
            nodes = [*ast.walk(scope)]
            names = {node.id for node in nodes if isinstance(node, ast.Name)}
            self.names[scope] = names | {node.arg for node in nodes if isinstance(node, ast.arg)}
        return self.names[scope]
