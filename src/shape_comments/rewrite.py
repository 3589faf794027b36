"""Put a call beside each value that has a comment, and one for each variable with a shape.

Every call stands on the line of its value, so that tracebacks stay true. A function becomes::

    def f(x):
        __check_shape__(0, None, BEGIN)         # no letter is bound
        for y in x:
            __check_shape__(0, 2, AGAIN)        # those of comments 0 and 1 are free again
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


class Rewriter(ast.NodeTransformer):
    """Finds what each comment belongs to, and then, as it visits the tree, puts in the calls."""

    def __init__(self, tree: ast.Module, comments: list[Comment]) -> None:
        """Look at a tree; what is checked joins ``comments``: its place there is its number."""
        self.comments = comments
        self.scopes: dict[ast.AST, ast.AST] = {}
        self.names: dict[ast.AST, set[str]] = {}
        self.used = set[ast.AST]()  # functions that hold checks
        # By row: the statement that begins there, and the one that ends there.
        self.starts: dict[int, Any] = {}
        self.ends: dict[int, Any] = {}
        # The comments of an expression, and how its value is taken; those of a statement are about
        # variables, which are looked at after it.
        self.claims: dict[ast.AST, list[tuple[Comment, int]]] = {}
        self._look(tree, tree)

    def _look(self, node: Any, scope: ast.AST) -> None:
        """Note what stands in each row, and in which function."""
        self.scopes[node] = scope
        if isinstance(node, _SIMPLE):
            self.starts[node.lineno] = self.ends[node.end_lineno or 0] = node
        if isinstance(node, FUNCTION | ast.ClassDef):
            scope = node
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.expr):
                self._look(child, scope)

    def attach(self, comment: Comment, place: Place) -> str:
        """Find what a comment is about; return why there is nothing."""
        node = (self.starts if place.row > place.line else self.ends).get(place.row)
        if node is None or place.column not in (None, node.col_offset):
            return NO_VALUE
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        names = [getattr(x, "id", "") for x in targets]
        variable = comment.name in self._names(self.scopes[node]) and names != [comment.name]
        if variable and not isinstance(node, ast.Return):
            self.claims.setdefault(node, []).append((comment, PLAIN))
            return ""
        comment.name, value = "", node.value
        if value is None or isinstance(value, ast.Constant | ast.Yield):
            return NO_VALUE
        unpacks = isinstance(node, ast.Assign) and all(
            isinstance(x, ast.Tuple | ast.List) for x in targets
        )
        self.scopes[value] = self.scopes[node]
        self.claims.setdefault(value, []).append((comment, UNPACK if unpacks else PLAIN))
        return ""

    def visit(self, node: Any) -> Any:
        """Put in the calls of a node, and of all that is in it."""
        before, scope = len(self.comments), self.scopes.get(node)
        if not isinstance(node, ast.expr):
            self.generic_visit(node)
        if isinstance(node, FUNCTION):
            self.begin(node, [])
        elif isinstance(node, _LOOP) and len(self.comments) > before:
            end = ast.Constant(len(self.comments))
            node.body.insert(0, self.statement(before, end, AGAIN, node.body[0]))
        later = list[ast.stmt]()
        for comment, mode in self.claims.get(node, []):
            if isinstance(node, ast.expr):
                node = self.call(self._number(comment, scope), node, mode, node)
            else:
                later.append(self.ask(comment, node, scope))
        return [node, *later] if later else node

    def begin(self, node: Any, entry: list[ast.stmt]) -> None:
        """Give a function what it begins with."""
        if node in self.used:
            entry = [self.statement(0, ast.Constant(None), BEGIN, node.body[0]), *entry]
        at = 0 if ast.get_docstring(node) is None else 1
        node.body[at:at] = entry

    def _number(self, comment: Comment, scope: Any) -> int:
        self.used.add(scope)
        names = comment.letters()
        if isinstance(scope, FUNCTION):
            names &= self._names(scope)
        comment.variables = frozenset(names)
        self.comments.append(comment)
        return len(self.comments) - 1

    def ask(self, comment: Comment, at: ast.AST, scope: Any) -> ast.stmt:
        """Build the statement that checks a variable."""
        return self.statement(self._number(comment, scope), ast.Constant(None), PLAIN, at)

    def statement(self, number: int, value: ast.expr, mode: int, at: ast.AST) -> ast.stmt:
        """Build a call that stands for itself."""
        return ast.copy_location(ast.Expr(self.call(number, value, mode, at)), at)

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
