"""Import what a chapter defines, without running what it demonstrates.

    chapter = chapters.load("01_one_head")
    head = chapter.OneHead(...)

The text on the page is the code that runs: nothing is copied into the package.
"""

import ast
import builtins
import contextlib
import copy
import dis
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

__all__ = ["ChapterError", "load", "names"]

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
_PREFIX = "chapter_"
_LEFT_OUT = {"exercise", "solution"}
_KEPT = "Only imports, classes, functions and UPPER_CASE constants are imported from a chapter"

_MARKER = re.compile(r"# ?%%+(?:\s(?P<options>.*))?$")
_TAGS = re.compile(r"\btags=\[(?P<tags>[^\]]*)\]")
_MAGIC = re.compile(r"(\s*)(?:(?:[\w, ]+=\s*)?[%!?]|[\w.]+\?+\s*$)")
_CONSTANT = re.compile(r"_*[A-Z][A-Z0-9_]*")

# A kernel plants these two in `builtins`; everywhere else they are free.
_KERNEL_ONLY = {"display", "get_ipython"}
_READS_GLOBAL = {"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"}


class ChapterError(ImportError):
    """A chapter does not exist, or its definitions do not stand on their own.

    Examples:
        >>> from annotated_attention import chapters
        >>> try:
        ...     chapters.load("one head")
        ... except chapters.ChapterError as error:
        ...     print(str(error).partition(";")[0])
        there is no chapter 'one head'
    """


def names() -> list[str]:
    """List the chapters in reading order, such as ``"01_one_head"``; the short path comes last.

    Raises:
        ChapterError: the package is not running from a checkout.

    Examples:
        >>> from annotated_attention import chapters
        >>> chapters.names()[:2]
        ['01_one_head', '02_two_heads']
    """
    if not NOTEBOOKS.is_dir():
        raise ChapterError(
            f"chapters are read from the notebooks of a checkout, and {NOTEBOOKS} does not exist: "
            "clone the repository and install it in place (pip install -e .)"
        )
    numbered = sorted(path.stem for path in NOTEBOOKS.glob("[0-9][0-9]_*.py"))
    return numbered + [path.stem for path in NOTEBOOKS.glob("short_path.py")]


def load(name: str) -> ModuleType:
    """Import the definitions of a chapter.

    Definitions are imports, classes, functions, assignments to UPPER_CASE names, and assignments
    from ``chapters.load(...)``, in the order of the page. Demonstrations are left out, and so are
    cells tagged ``exercise`` or ``solution``.

    Args:
        name: the file's name without its ending, such as ``"01_one_head"``. The module's own name
            is ``"chapter_" + name``: its classes pickle, and another process needs nothing but
            ``import annotated_attention.chapters`` to unpickle them.

    Returns:
        The module; the same one again until the file changes.

    Raises:
        ChapterError: there is no such chapter or no checkout, the chapter does not parse, defines
            a name twice, or a definition uses a name that is not among the definitions.

    Examples:
        >>> from annotated_attention import chapters
        >>> chapter = chapters.load("01_one_head")
        >>> chapter.WORDS
        ['the', 'cat', 'drank', 'milk', 'because', 'it', 'was', 'thirsty']
        >>> chapter.embed(["cat", "milk"]).shape
        torch.Size([2, 4])
    """
    known = names()
    if name not in known:
        raise ChapterError(f"there is no chapter {name!r}; there are: {', '.join(known)}")
    loaded = sys.modules.get(_PREFIX + name)
    if loaded is not None and not _is_current(loaded):
        del sys.modules[_PREFIX + name]
    return importlib.import_module(_PREFIX + name)


def _is_current(module: ModuleType) -> bool:
    """Tell whether ``module`` was made from what its file holds now."""
    loader = module.__loader__
    return isinstance(loader, _Loader) and loader.data == loader.get_data(loader.path)


class _Loader(SourceFileLoader):
    """Compiles a chapter's definitions; never reads or writes cached bytecode."""

    data = b""

    def get_code(self, fullname: str) -> CodeType:
        self.data = self.get_data(self.path)
        return _compile(importlib.util.decode_source(self.data), Path(self.path))


class _Finder(MetaPathFinder):
    """Finds ``chapter_…`` modules, so that pickles of their classes load in another process."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = NOTEBOOKS / f"{fullname.removeprefix(_PREFIX)}.py"
        if not fullname.startswith(_PREFIX) or not file.is_file():
            return None
        loader = _Loader(fullname, str(file))
        return importlib.util.spec_from_file_location(fullname, file, loader=loader)


sys.meta_path.append(_Finder())


def _compile(text: str, path: Path) -> CodeType:
    """Compile the definitions in ``text``, after checking that they stand on their own."""
    kept = [statement for statement in _parse(text, path) if _is_definition(statement)]
    problems = _redefinitions(kept) or _free_names(kept)
    if problems:
        listed = "".join(f"\n  {problem}" for problem in problems)
        raise ChapterError(f"chapter {path.stem} cannot be imported:{listed}\n{_KEPT}.")
    return compile(ast.Module(kept, []), str(path), "exec", dont_inherit=True)


def _parse(text: str, path: Path) -> list[ast.stmt]:
    """Parse the cells that count, every statement on the line it has in the file."""
    lines = list(_lines_that_count(text))
    while True:
        try:
            return ast.parse("\n".join(lines), str(path)).body
        except SyntaxError as error:
            at = (error.lineno or 1) - 1
            magic = _MAGIC.match(lines[at]) if at < len(lines) else None
            if magic is None:
                raise ChapterError(f"{path}, line {error.lineno}: {error.msg}") from error
            # Not an empty line: the magic may be all that an indented block holds.
            lines[at] = magic[1] + "pass"


def _lines_that_count(text: str) -> Iterator[str]:
    """Yield every line, empty where it belongs to a cell that is not the chapter's own Python."""
    counts, at_top = True, False
    for line in text.split("\n"):
        if marker := _MARKER.match(line):
            tags = _TAGS.search(marker["options"] or "")
            counts = not (tags and _LEFT_OUT & set(re.findall(r"[\w-]+", tags["tags"])))
            at_top = True
        elif at_top and line.strip():
            # What follows a cell magic is its argument, in whatever language it takes.
            counts = counts and not line.startswith("%%")
            at_top = False
        yield line if counts else ""


def _is_definition(statement: ast.stmt) -> bool:
    """Tell whether a statement defines something that a later chapter may use."""
    match statement:
        case ast.AnnAssign(value=None):
            return False
        case ast.Assign([ast.Name()], value) if _is_load(value):
            return True
        case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
            return all(_CONSTANT.fullmatch(name) for name, _ in _bound(statement))
    kinds = ast.Import | ast.ImportFrom | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return isinstance(statement, kinds)


def _is_load(value: ast.expr) -> bool:
    """Tell whether a chapter imports from another one: ``chapters.load("01_one_head").OneHead``."""
    match value:
        case ast.Attribute(ast.Call() as call) | (ast.Call() as call):
            called = ast.unparse(call)
            return re.fullmatch(r"(chapters\.)?load\('(\d\d_\w+|short_path)'\)", called) is not None
    return False


def _bound(statement: ast.stmt) -> Iterator[tuple[str, str]]:
    """Yield each name that a statement binds, and for an import what it stands for."""
    match statement:
        case ast.Import(aliases):
            for alias in aliases:
                package = alias.name.partition(".")[0]
                yield alias.asname or package, alias.name if alias.asname else package
        case ast.ImportFrom(module, aliases):
            for alias in aliases:
                yield alias.asname or alias.name, f"{module}.{alias.name}"
        case ast.Assign([ast.Name(name)], value) if _is_load(value):
            yield name, ast.unparse(value)
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name, ""
        case ast.Assign(targets):
            for target in targets:
                yield from ((name, "") for name in _target_names(target))
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            yield from ((name, "") for name in _target_names(target))


def _target_names(target: ast.expr) -> list[str]:
    """List the names in an assignment's target; an attribute or an item counts as no name."""
    match target:
        case ast.Name(name):
            return [name]
        case ast.Tuple(items) | ast.List(items):
            return [name for item in items for name in _target_names(item)]
        case ast.Starred(value):
            return _target_names(value)
    return [""]


def _redefinitions(kept: list[ast.stmt]) -> list[str]:
    """Say which names two statements bind to different things, with both lines."""
    first: dict[str, tuple[ast.stmt, str]] = {}
    problems = []
    for statement in kept:
        for name, what in _bound(statement):
            if name == "*":
                problems.append(f"line {statement.lineno}: import * hides which names it defines")
                continue
            other, before = first.setdefault(name, (statement, what))
            if other is not statement and not (what and what == before):
                lines = f"line {other.lineno} and on line {statement.lineno}"
                problems.append(f"{name} is defined on {lines}")
    return problems


def _free_names(kept: list[ast.stmt]) -> list[str]:
    """Say which definitions use a global name that is neither a definition nor a builtin."""
    defined = set(dir(builtins)) - _KERNEL_ONLY
    defined |= {name for statement in kept for name, _ in _bound(statement)}
    problems: dict[str, int] = {}
    for statement in kept:
        whole = next((name for name, _ in _bound(statement)), "")
        # Compiled alone, so that `from __future__ import annotations` hides no annotation.
        readable = ast.fix_missing_locations(_Unquoted().visit(copy.deepcopy(statement)))
        code = compile(ast.Module([readable], []), "", "exec", dont_inherit=True)
        for owner, name, line in _global_reads(code):
            if name not in defined and not re.fullmatch("__.*__", name):
                owner = whole if owner.startswith("<") else owner.partition(".<")[0]
                problems.setdefault(f"{owner} uses {name}, which it does not define", line)
    return [f"line {line}: {problem}" for problem, line in problems.items()]


def _global_reads(code: CodeType) -> Iterator[tuple[str, str, int]]:
    """Yield (function, name, line) for each global name read by ``code`` or by code inside it."""
    instructions = list(dis.get_instructions(code))
    # A class body stores its names where it also looks them up first.
    own = {step.argval for step in instructions if step.opname == "STORE_NAME"}
    for step in instructions:
        if step.opname in _READS_GLOBAL and step.argval not in own:
            line = step.positions.lineno if step.positions else None
            yield code.co_qualname, step.argval, line or code.co_firstlineno
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_reads(constant)


class _Unquoted(ast.NodeTransformer):
    """Turns annotations written as strings into the expressions that they stand for."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field in ("annotation", "returns"):
            match getattr(node, field, None):
                case ast.Constant(str(text)) as quoted:
                    with contextlib.suppress(SyntaxError):
                        expression = ast.parse(text, mode="eval").body
                        for part in ast.walk(expression):
                            ast.copy_location(part, quoted)
                        setattr(node, field, expression)
        return super().generic_visit(node)
