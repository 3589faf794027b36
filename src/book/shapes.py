"""Check every shape comment against the value it stands beside.

A shape comment ends a statement and holds tuples: ``x = q @ k.mT  # (n, d) x (d, m) -> (n, m)``.

- Only the tuples after the last ``->`` count, or all of them where there is none: one for every
  value, or one each. The value is what the statement assigns, returns, yields or evaluates.
- An item is a letter, an integer, an expression in ``*``, ``+`` and ``-``, or ``...`` for any
  number of axes. ``(n,)`` is one axis, ``()`` a scalar. No other parentheses may stand beside them.
- A letter that is an integer variable in scope means its value. The others bind once per call,
  starting from the docstring's ``Args`` (``x: (n, d), one row per token.``), or once per ``##``
  section in a chapter. A product with one unknown binds it by division.
- An argument that does not fit its docstring is an error once the function accepts it; a function
  that refuses it with an exception of its own is right to do so.

Comments are found with ``tokenize``; the syntax tree gets a call beside each value, on the same
line. Modules are rewritten as they are imported (:func:`install_import_hook`), chapters as the
kernel runs them (:func:`install_in_kernel`). Under ``torch.compile`` the check runs while Dynamo
traces, and leaves nothing in the graph.
"""

import ast
import copy
import importlib.machinery
import importlib.util
import io
import re
import sys
import tokenize
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import torch

ROOT = Path(__file__).resolve().parents[2]
CHECK = "__check_shape__"  # the checker's function, in the globals of everything instrumented
NO_VALUE = "this shape comment stands where no value is"
CALL = "__shapes__"  # a local of every function with comments: what this call has bound


class ShapeCommentError(AssertionError):
    """A shape comment is false, malformed, or stands where it cannot be checked."""


# --- The grammar ----------------------------------------------------------------------------

_GROUP = re.compile(r"(?<![\w\])])\(([^()]*)\)")  # f(x) is a call, not a shape
_WORD = re.compile(r"[A-Za-z_]\w*")
_ITEM = re.compile(r"\w+(\s*[*+-]\s*\w+)*")
_LETTER = re.compile(r"[A-Za-z]\d?(_\w+)?|\.\.\.")  # d, d_v; a longer name is no letter by itself
_ARGUMENT = re.compile(r"\s*\*{0,2}(\w+): (\([^()]*\)(?:,? or \([^()]*\))*)")


@dataclass(frozen=True)
class Axis:
    """One item of a tuple; ``names`` repeats a letter that occurs twice."""

    text: str
    names: tuple[str, ...]
    code: CodeType | None

    def value(self, known: Mapping[str, int]) -> int:
        """Evaluate the item; every letter in it is known."""
        if self.code is None:
            return known[self.text]
        return int(eval(self.code, {"__builtins__": {}}, known))

    def solve(self, letter: str, known: Mapping[str, int], size: int) -> int | None:
        """Find the only unknown letter, in which the item is linear; None if nothing fits."""
        at_0, at_1 = (self.value({**known, letter: x}) for x in (0, 1))
        found, rest = divmod(size - at_0, at_1 - at_0) if at_1 != at_0 else (-1, 1)
        return found if found >= 0 and not rest else None


Shape = tuple[Axis, ...]
ANY = Axis("...", (), None)


def _axis(text: str) -> Axis | None:
    if text == "...":
        return ANY
    if not _ITEM.fullmatch(text):
        return None
    if text.isidentifier():
        return Axis(text, (text,), None)
    try:
        return Axis(text, tuple(_WORD.findall(text)), compile(text, "<shape>", "eval"))
    except SyntaxError:
        return None


def _shape(content: str) -> Shape | None:
    """Parse what stands between parentheses; None means that it is prose."""
    items = [item.strip() for item in content.split(",")]
    one = len(items) == 1 and items[0]
    if items[-1] == "":
        items.pop()
    axes = [axis for item in items if (axis := _axis(item))]
    if len(axes) < len(items):
        if any(_LETTER.fullmatch(item) for item in items):
            bad = next(item for item in items if not _axis(item))
            raise ValueError(f"({content}) is no shape: {bad or 'nothing'} is no axis")
        return None
    if axes and all(x.text.isidentifier() and not _LETTER.fullmatch(x.text) for x in axes):
        return None
    if one:
        if not axes[0].names:
            return None  # a number or dots in parentheses
        raise ValueError(f"write ({one},) for a shape with one axis")
    if axes.count(ANY) > 1:
        raise ValueError(f"({content}) has ... more than once")
    return tuple(axes)


def parse_comment(text: str) -> tuple[Shape, ...] | None:
    """Return the shapes that a comment claims, or None if it is not a shape comment.

    Raises:
        ValueError: it looks like a shape comment and breaks the grammar.
    """
    if not any(_shape(content) is not None for content in _GROUP.findall(text)):
        return None
    others = [group for group in _GROUP.findall(text) if _shape(group) is None]
    if others or re.search(r"[()]", _GROUP.sub("", text)):
        raise ValueError("a shape comment holds no other parentheses")
    claimed = _GROUP.findall(text.rpartition("->")[2])
    if not claimed:
        raise ValueError("no shape stands after the last ->")
    return tuple(shape for content in claimed if (shape := _shape(content)) is not None)


# --- Comments, and what the letters mean ----------------------------------------------------


@dataclass(eq=False)
class Comment:
    """A shape comment, or the shape of an argument in a docstring (``argument`` is its name)."""

    path: str
    line: int
    source: str
    shapes: tuple[Shape, ...]
    section: object = None  # whose letters it shares when it stands outside every function
    argument: str = ""
    variables: frozenset[str] = frozenset()  # letters that may be variables here
    reached: bool = False

    @property
    def where(self) -> str:
        """The file and the line."""
        return f"{self.path}:{self.line}"

    def error(self, reason: str, *notes: str) -> ShapeCommentError:
        """Build the error that says where the comment stands and shows its line."""
        return ShapeCommentError("\n    ".join((f"{self.where}: {reason}", self.source, *notes)))

    def letters(self) -> set[str]:
        """Return the names in its shapes."""
        return {name for shape in self.shapes for axis in shape for name in axis.names}


Equation = tuple[Axis, int, int]  # the item, the size found, the line where


@dataclass
class Letters:
    """What the letters mean during one call or one section."""

    sizes: dict[str, int] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    open: list[Equation] = field(default_factory=list)  # more than one letter still unknown
    refused: ShapeCommentError | None = None  # an argument that does not fit its docstring

    def check(self, comment: Comment, found: "Found", variables: Mapping[str, int]) -> None:
        """Compare the shapes found with those claimed, and bind the letters that are new."""
        if not comment.argument:
            self.leave()
            self._bind(comment, comment.shapes, found, variables)
            return
        refused: ShapeCommentError | None = None
        for shape in comment.shapes:  # alternatives
            try:
                return self._bind(comment, [shape], found, variables)
            except ShapeCommentError as error:
                refused = refused or error
        self.refused = self.refused or refused

    def leave(self) -> None:
        """Raise what was found against an argument: the function has accepted it."""
        if self.refused:
            raise self.refused

    def _bind(
        self,
        comment: Comment,
        shapes: Sequence[Shape],
        found: "Found",
        variables: Mapping[str, int],
    ) -> None:
        for name in comment.letters() & variables.keys() & self.sizes.keys():
            if variables[name] != self.sizes[name]:
                old = f"{self.sizes[name]} since line {self.lines[name]}"
                new = f"{variables[name]}, the value of the variable {name}"
                raise comment.error(f"{name} is used with two values: {old}, and {new}")
        values = found if isinstance(found, list) else [found]
        if not values:
            raise comment.error("the value is empty, so there is nothing to compare")
        if len(shapes) not in (1, len(values)):
            got = "one value" if len(values) == 1 else f"{len(values)} values"
            raise comment.error(f"the comment has {len(shapes)} shapes for {got}")
        trial = Letters({**self.sizes, **variables}, dict(self.lines), list(self.open))
        for i, value in enumerate(values):
            shape = shapes[min(i, len(shapes) - 1)]
            which = f" of value {i + 1}" if len(values) > 1 else ""
            says = f"the {'docstring' if comment.argument else 'comment'} says {_show(shape)}"
            if isinstance(value, str):
                raise comment.error(f"{says}, but the value{which} has no shape, it is a {value}")
            reason = trial._match(shape, value, comment.line)
            if reason is not None:
                used = [n for axis in shape for n in axis.names if n in trial.sizes]
                meant = ", ".join(dict.fromkeys(f"{n} = {trial.sizes[n]}" for n in used))
                sources = (
                    f"{n} is bound in line {trial.lines[n]}" if n in trial.lines
                    else f"{n} is a variable" for n in used
                )  # fmt: skip
                raise comment.error(
                    f"{says}{' with ' * bool(meant)}{meant}, but the shape{which} is "
                    f"{_show(value)}{reason}",
                    *dict.fromkeys(sources),
                )
        self.sizes = {name: trial.sizes[name] for name in trial.lines}
        self.lines, self.open = trial.lines, trial.open

    def _match(self, shape: Shape, sizes: Sequence[int | None], line: int) -> str | None:
        """Bind the letters of one shape; return what there is to add where they do not fit."""
        axes, ends = list(shape), list(sizes)
        if ANY in axes:
            start, extra = axes.index(ANY), len(ends) - len(axes) + 1
            del axes[start], ends[start : start + max(extra, 0)]
        if len(axes) != len(ends):
            return ""
        todo = [(x, size, line) for x, size in zip(axes, ends, strict=True) if size is not None]
        todo, self.open = todo + self.open, []
        while todo:
            axis, size, since = todo.pop(0)
            unknown = [name for name in axis.names if name not in self.sizes]
            if len(unknown) > 1:
                self.open.append((axis, size, since))
            elif unknown:
                solved = axis.solve(unknown[0], self.sizes, size)
                if solved is None:
                    return f", and {axis.text} cannot be {size}"
                self.sizes[unknown[0]], self.lines[unknown[0]] = solved, line
                todo, self.open = todo + self.open, []
            elif axis.value(self.sizes) != size:
                return "" if since == line else f", and {axis.text} was {size} in line {since}"
        return None


def _show(shape: Sequence[Axis | int | None]) -> str:
    items = [x.text if isinstance(x, Axis) else "?" if x is None else str(x) for x in shape]
    return f"({', '.join(items)}{',' * (len(items) == 1)})"


# --- What a value looks like ----------------------------------------------------------------

Sizes = tuple[int | None, ...]  # None: a size that is not known while tracing
Found = Sizes | str | list[Sizes | str]  # a string names the type of a value without shape


def _integer(value: object) -> int | None:
    """Return an integer's value; a symbolic one's comes from its example and adds no guard."""
    if isinstance(value, torch.SymInt):
        value = value.node.hint if value.node.has_hint() else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _found(value: object, inside: bool = False) -> Any:
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return tuple(_integer(size) for size in shape)
    if isinstance(value, tuple | list) and not inside:
        return [_found(item, inside=True) for item in value]
    return type(value).__name__


def _traced(variable: Any, tx: Any, inside: bool = False) -> Any:
    """Do the same for what Dynamo knows of a value while it traces."""
    from torch._dynamo.variables import TensorVariable

    variable = variable.realize()
    if isinstance(variable, TensorVariable):
        return _found(variable.as_proxy().node.meta["example_value"])
    if issubclass(variable.python_type(), tuple | list) and not inside:
        return [_traced(item, tx, inside=True) for item in variable.unpack_var_sequence(tx)]
    return variable.python_type().__name__


def _variables(comment: Comment, frame: FrameType) -> dict[str, int]:
    """Return the letters that are integer variables in the frame."""
    if not comment.variables:
        return {}
    near, far = frame.f_locals, frame.f_globals
    values = {name: _integer(near.get(name, far.get(name))) for name in comment.variables}
    return {name: value for name, value in values.items() if value is not None}


def _traced_variables(comment: Comment, ctx: Any, tx: Any) -> dict[str, int]:
    values: dict[str, object] = {}
    for name in comment.variables:
        if name not in tx.symbolic_locals:
            values[name] = tx.f_globals.get(name)
            continue
        local = ctx.get_local(name)
        known = local._i_will_not_complain_if_bc_breaks_VariableTracker().realize()
        if local.is_python_constant():
            values[name] = local.as_python_constant()
        else:
            values[name] = getattr(known, "sym_num", None)
    return {name: size for name, x in values.items() if (size := _integer(x)) is not None}


# --- Putting the checks into the syntax tree ------------------------------------------------

_COMPOUND = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.If, ast.For, ast.AsyncFor, ast.While,
    ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match,
)  # fmt: skip


class _Rewriter(ast.NodeTransformer):
    """Put a check beside each value that has a comment, and one for each argument with a shape."""

    def __init__(
        self,
        tree: ast.Module,
        comments: dict[int, Comment],
        arguments: dict[ast.AST, list[Comment]],
        number: Callable[[Comment], int],
    ) -> None:
        self.comments, self.arguments, self.number = comments, arguments, number
        self.scopes: list[ast.AST] = [tree]
        self.used: set[ast.AST] = set()  # functions that hold checks
        self.owners: dict[int, ast.stmt] = {}  # by line: the last simple statement there
        for node in ast.walk(tree):
            if isinstance(node, ast.stmt) and not isinstance(node, _COMPOUND):
                for line in (node.lineno, node.end_lineno or 0):
                    last = self.owners.setdefault(line, node)
                    if (node.lineno, node.col_offset) > (last.lineno, last.col_offset):
                        self.owners[line] = node

    def visit(self, node: ast.AST) -> Any:
        """Treat simple statements here; visit the parts of everything else."""
        if not isinstance(node, ast.stmt) or isinstance(node, _COMPOUND):
            return super().visit(node)
        lines = sorted({node.lineno, node.end_lineno or 0} & self.comments.keys())
        lines = [line for line in lines if self.owners[line] is node]
        added = [new for line in lines for new in self._attach(node, self.comments.pop(line))]
        if isinstance(node, ast.Return) and not lines and self.scopes[-1] in self.arguments:
            node.value = self._call(None, node.value or ast.Constant(None), node)
        return [node, *added]

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Visit a class; its docstring's shapes belong to no call."""
        for comment in self.arguments.pop(node, []):
            raise comment.error(NO_VALUE)
        self.scopes.append(node)
        self.generic_visit(node)
        self.scopes.pop()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        """Visit a function; give it a place for its letters, and check its arguments first."""
        self.scopes.append(node)
        self.generic_visit(node)
        new: list[ast.stmt] = [ast.Assign([ast.Name(CALL, ast.Store())], ast.Dict([], []))]
        parameters = {arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg)}
        for comment in self.arguments.get(node, []):
            if comment.argument not in parameters:
                raise comment.error(f"{node.name} has no argument {comment.argument}")
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

    visit_AsyncFunctionDef = visit_FunctionDef

    def _call(
        self, comment: Comment | None, value: ast.expr, at: ast.AST, unpack: bool = False
    ) -> ast.Call:
        """Build the call that checks a value and returns it; without a comment, it only leaves."""
        scope = self.scopes[-1]
        letters: ast.expr = ast.Constant(None)
        if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            letters = ast.Name(CALL, ast.Load())
            self.used.add(scope)
        elif isinstance(scope, ast.ClassDef):
            letters = ast.Dict([], [])
        if comment:
            names = comment.letters()
            if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
                inner = list(ast.walk(scope))
                names &= {node.id for node in inner if isinstance(node, ast.Name)} | {
                    node.arg for node in inner if isinstance(node, ast.arg)
                }
            comment.variables = frozenset(names)
        arguments = [letters, ast.Constant(self.number(comment) if comment else None), value]
        arguments += [ast.Constant(True)] * unpack
        return ast.copy_location(ast.Call(ast.Name(CHECK, ast.Load()), arguments, []), at)

    def _attach(self, node: ast.stmt, comment: Comment) -> list[ast.stmt]:
        """Wrap the statement's value in a check, or return a check to put behind it."""
        if isinstance(node, ast.AugAssign):
            if any(
                isinstance(x, ast.Call | ast.NamedExpr | ast.Await) for x in ast.walk(node.target)
            ):
                raise comment.error("the target would have to be evaluated twice; name it first")
            target = copy.deepcopy(node.target)
            target.ctx = ast.Load()
            check = ast.Expr(self._call(comment, target, node))
            # Inside a block, so that a notebook does not show the value.
            return [ast.copy_location(ast.If(ast.Constant(True), [check], []), node)]
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield):
            holder: Any = node.value
        else:
            holder = node
        value = getattr(holder, "value", None)
        known = isinstance(holder, ast.Assign | ast.AnnAssign | ast.Return | ast.Expr | ast.Yield)
        if not known or not isinstance(value, ast.expr) or isinstance(value, ast.Constant):
            raise comment.error(NO_VALUE)
        targets = node.targets if isinstance(node, ast.Assign) else []
        tuples = [x.elts for x in targets if isinstance(x, ast.Tuple | ast.List)]
        for parts in tuples:
            if any(isinstance(x, ast.Starred | ast.Tuple | ast.List) for x in parts):
                raise comment.error("a nested or starred target cannot be checked")
            if len(comment.shapes) not in (1, len(parts)):
                raise comment.error(
                    f"the comment has {len(comment.shapes)} shapes for {len(parts)} targets"
                )
        unpack = bool(tuples) and len(tuples) == len(targets)
        holder.value = self._call(comment, value, value, unpack)
        return []


def _comments(source: str, path: str, line: int, section: object) -> dict[int, Comment]:
    """Find the shape comments of a source, by line; ``line`` is the number of its first line."""
    found = {}
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        row = token.start[0]
        text = lines[row - 1].strip()
        comment = Comment(path, row + line - 1, text, (), section)
        try:
            shapes = parse_comment(token.string)
        except ValueError as error:
            if text.startswith("#"):
                continue  # on a line of its own there is nothing to check
            raise comment.error(str(error)) from None
        if shapes is not None:
            comment.shapes = shapes
            found[row] = comment
    return found


def _arguments(tree: ast.Module, source: str, path: str, line: int) -> dict[ast.AST, list[Comment]]:
    """Find the shapes in the ``Args`` of docstrings, by the function they belong to."""
    found: dict[ast.AST, list[Comment]] = {}
    lines = source.splitlines()
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if ast.get_docstring(node) is None:
            continue
        doc = node.body[0]
        outer = inner = None  # the indentation of "Args:", and of its entries
        for row in range(doc.lineno, (doc.end_lineno or 0) + 1):
            text = lines[row - 1]
            indent = len(text) - len(text.lstrip())
            if text.strip() == "Args:":
                outer, inner = indent, None
            elif text.strip() and outer is not None:
                if indent <= outer:
                    break
                inner = inner or indent
                entry = _ARGUMENT.match(text)
                if entry and indent == inner:
                    comment = Comment(path, row + line - 1, text.strip(), (), None, entry[1])
                    try:
                        shapes = [_shape(x) for x in _GROUP.findall(entry[2])]
                    except ValueError as error:
                        raise comment.error(str(error)) from None
                    comment.shapes = tuple(x for x in shapes if x is not None)
                    if comment.shapes:
                        found.setdefault(node, []).append(comment)
    return found


class Checker:
    """Rewrites sources, checks what they compute, and knows which comments were reached."""

    def __init__(self, root: Path = ROOT) -> None:
        """Start without comments; ``root`` is where the paths in messages begin."""
        self.root = root
        self.comments: list[Comment] = []
        self.mismatches: list[str] = []  # every one raised, also where the caller swallowed it
        self.reached: set[str] = set()  # by other processes
        self.files: set[Path] = set()  # read so far
        self.packages: list[Path] = []  # folders whose files all count
        self.sections: dict[object, Letters] = {}
        self.traces: WeakKeyDictionary[Any, Letters] = WeakKeyDictionary()
        self.function = self._make_function()

    def instrument(
        self, source: str, path: Path, *, line: int = 1, section: object = None
    ) -> ast.Module:
        """Parse a source and put the checks in.

        Args:
            source: the text.
            path: the file that it comes from.
            line: the number, in that file, of the first line of ``source``.
            section: what stands outside functions shares its letters with the same section.

        Raises:
            ShapeCommentError: a comment is malformed, or stands where it cannot be checked.
        """
        path = path.resolve()
        name = path.relative_to(self.root) if path.is_relative_to(self.root) else path
        tree = ast.parse(source)
        comments = _comments(source, name.as_posix(), line, (path, section))
        arguments = _arguments(tree, source, name.as_posix(), line)
        rewriter = _Rewriter(tree, comments, arguments, self._number)
        rewriter.visit(tree)
        for comment in rewriter.comments.values():
            raise comment.error(NO_VALUE)
        return ast.fix_missing_locations(tree)

    def unreached(self) -> list[str]:
        """Say of each comment that nothing has reached where it stands."""
        for path in (path for package in self.packages for path in sorted(package.rglob("*.py"))):
            if path.resolve() not in self.files:
                self.read(path)
        reached = self.reached | {x.where for x in self.comments if x.reached}
        ordered = sorted(self.comments, key=lambda x: (x.path, x.line))
        missed = {x.where: x.source for x in ordered if x.where not in reached}
        return [f"{where}: no run reaches this shape comment: {x}" for where, x in missed.items()]

    def read(self, path: Path) -> ast.Module:
        """Instrument a file."""
        self.files.add(path.resolve())
        return self.instrument(importlib.util.decode_source(path.read_bytes()), path)

    def _number(self, comment: Comment) -> int:
        self.comments.append(comment)
        return len(self.comments) - 1

    def _make_function(self) -> Callable[..., Any]:
        """Make the function that rewritten code calls. Dynamo traces it, so it holds little."""

        def trace(ctx: Any) -> None:
            self._check_traced(ctx)

        def check(
            held: dict[str, Letters] | None, number: int | None, value: Any, unpack: bool = False
        ) -> Any:
            if unpack and not isinstance(value, tuple | list):
                value = tuple(value)
            if torch.compiler.is_dynamo_compiling():
                from torch._dynamo.comptime import comptime

                comptime(trace)
            else:
                self._check_now(held, number, value, sys._getframe(1))
            return value

        return check

    def _check_now(
        self, held: dict[str, Letters] | None, number: int | None, value: object, frame: FrameType
    ) -> None:
        comment = None if number is None else self.comments[number]
        if held is None:
            letters = self.sections.setdefault(comment and comment.section, Letters())
        else:
            letters = held.get("") or held.setdefault("", Letters())
        if comment is None:
            self._compare(letters)
        else:
            self._compare(letters, comment, _found(value), _variables(comment, frame))

    def _check_traced(self, ctx: Any) -> None:
        caller = ctx.parent()
        tx = caller._i_will_not_complain_if_bc_breaks_InstructionTranslator()
        if tx is None:  # Dynamo compiles the check alone, after a graph break: nothing is known
            return
        letters = self.traces.setdefault(tx, Letters())
        number = ctx.get_local("number").as_python_constant()
        if number is None:
            self._compare(letters)
            return
        comment = self.comments[number]
        value = ctx.get_local("value")._i_will_not_complain_if_bc_breaks_VariableTracker()
        variables = _traced_variables(comment, caller, tx)
        self._compare(letters, comment, _traced(value, tx), variables)

    def _compare(
        self,
        letters: Letters,
        comment: Comment | None = None,
        found: Found = "",
        variables: Mapping[str, int] | None = None,
    ) -> None:
        if comment is not None and comment.argument and found == "NoneType":
            return
        try:
            if comment is None:
                letters.leave()
            else:
                comment.reached = True
                letters.check(comment, found, variables or {})
        except ShapeCommentError as error:
            self.mismatches.append(str(error))
            raise


# --- src, while the tests run ---------------------------------------------------------------


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module with checks, past the bytecode cache: it neither reads nor writes any."""

    checker: Checker

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.checker.read(Path(self.path)), self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)[CHECK] = self.checker.function
        super().exec_module(module)


class _Finder:
    def __init__(self, package: str, checker: Checker) -> None:
        self.package, self.checker = package, checker

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.package and not name.startswith(self.package + "."):
            return None
        specs = (x.find_spec(name, path, target) for x in sys.meta_path if x is not self)
        spec = next((spec for spec in specs if spec), None)
        if spec and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(name, spec.loader.path)
            spec.loader.checker = self.checker
        return spec


def install_import_hook(package: str = "annotated_attention", root: Path = ROOT) -> Checker:
    """Check the comments of a package from now on; modules never imported count as unreached.

    Raises:
        RuntimeError: the package is already imported, and would run unchecked.
    """
    if package in sys.modules:
        raise RuntimeError(f"{package} was imported before its shape comments could be checked")
    checker = Checker(root)
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"there is no package {package}", name=package)
    checker.packages = [Path(folder) for folder in spec.submodule_search_locations]
    sys.meta_path.insert(0, _Finder(package, checker))
    return checker


class PytestPlugin:
    """Fails a session over a swallowed mismatch and, where everything ran, an unreached comment."""

    def __init__(self, checker: Checker) -> None:
        """Judge by what ``checker`` has seen."""
        self.checker = checker
        self.deselected = False
        self.problems: list[str] = []

    def pytest_deselected(self) -> None:
        """Note that this is no full run."""
        self.deselected = True

    def pytest_sessionfinish(self, session: Any, exitstatus: int) -> None:
        """Judge the session."""
        checker, config = self.checker, session.config
        if hasattr(config, "workeroutput"):  # one of pytest-xdist's workers: its controller judges
            reached = [comment.where for comment in checker.comments if comment.reached]
            config.workeroutput["shapes"] = (reached, checker.mismatches, self.deselected)
            return
        self.problems = list(dict.fromkeys(checker.mismatches))
        if exitstatus == 0 and not self.deselected and _is_full(config):
            self.problems += checker.unreached()
        if exitstatus == 0 and self.problems:
            session.exitstatus = 1

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print what was found."""
        if self.problems:
            terminalreporter.section("shape comments", red=True)
        for problem in self.problems:
            terminalreporter.write_line(problem)

    def merge(self, output: Mapping[str, Any]) -> None:
        """Take over what one of pytest-xdist's workers has seen."""
        reached, mismatches, deselected = output.get("shapes", ((), (), True))
        self.checker.reached.update(reached)
        self.checker.mismatches.extend(mismatches)
        self.deselected |= deselected


def _is_full(config: Any) -> bool:
    """Tell whether the command line leaves nothing out."""
    options = ("collectonly", "keyword", "markexpr", "lf", "ignore", "ignore_glob", "deselect")
    if any(getattr(config.option, name, None) for name in options):
        return False
    given = [(config.invocation_params.dir / arg).resolve() for arg in config.args]
    tests = [(config.rootpath / path).resolve() for path in config.getini("testpaths")]
    return all(any(test.is_relative_to(path) for path in given) for test in tests)


# --- Chapters, in the kernel ----------------------------------------------------------------


class _Kernel:
    """Swaps the syntax tree of each cell for the one with checks, in the order of the chapter."""

    def __init__(self, cells: Iterable[tuple[str, ast.Module | None]]) -> None:
        self.cells = deque(cells)
        self.now: ast.Module | None = None

    def pre_run_cell(self, info: Any) -> None:
        """Take the next cell if this is the one; another is none of the chapter's."""
        self.now = None
        if self.cells and info.raw_cell.strip() == self.cells[0][0]:
            self.now = self.cells.popleft()[1]

    def visit(self, tree: ast.Module) -> ast.Module:
        """Stand in for the tree that IPython has parsed."""
        tree, self.now = self.now or tree, None
        return tree


_chapter = Checker()


def install_in_kernel(
    shell: Any, cells: Sequence[Mapping[str, Any]], path: str | Path, root: Path = ROOT
) -> Checker:
    """Check a chapter's comments while this kernel runs it.

    Each cell gives its ``source``, the ``line`` of the chapter's file at which it starts, the
    ``section`` (cells with the same one share their letters), and ``exempt``: True for a stub.

    Raises:
        ShapeCommentError: a comment is malformed, or stands where it cannot be checked.
    """
    global _chapter
    _chapter = Checker(root)
    trees: list[tuple[str, ast.Module | None]] = []
    for cell in cells:
        source = cell["source"]
        # IPython turns magics into Python, line by line, and drops blank lines at the start.
        first = cell["line"] + source[: len(source) - len(source.lstrip())].count("\n")
        tree = None
        if not cell["exempt"]:
            python = shell.transform_cell(source)
            tree = _chapter.instrument(python, root / path, line=first, section=cell["section"])
        if source.strip():
            trees.append((source.strip(), tree))
    shell.user_ns[CHECK] = shell.user_ns_hidden[CHECK] = _chapter.function
    kernel = _Kernel(trees)
    shell.events.register("pre_run_cell", kernel.pre_run_cell)
    shell.ast_transformers.append(kernel)
    return _chapter


def unreached_report() -> list[str]:
    """Say which shape comments of this kernel's chapter nothing has reached."""
    return _chapter.unreached()
