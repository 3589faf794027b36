"""Import what a chapter defines, without running what it demonstrates.

    chapter = chapters.load("01_one_head")
    head = chapter.OneHead(...)

The text on the page is the code that runs: nothing is copied into the package.
"""

import ast
import builtins
import importlib
import importlib.util
import re
import symtable
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

__all__ = ["ChapterError", "load", "names"]

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
_PREFIX = "chapter_"
_KEPT = "Only imports, classes, functions and UPPER_CASE constants are imported from a chapter"

_LEFT_OUT = re.compile(r"# %%.*\btags=\[.*\b(exercise|solution)\b")
_CONSTANT = re.compile(r"_*[A-Z][A-Z0-9_]*")
_LOAD = re.compile(r"chapters\.load\('\w+'\)(\.\w+)?")

# A kernel plants these two in `builtins`; everywhere else they are free.
_KERNEL_ONLY = {"display", "get_ipython"}


class ChapterError(ImportError):
    """A chapter does not exist, or its definitions do not stand on their own."""


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
        The module; the same one each time.

    Raises:
        ChapterError: there is no such chapter or no checkout, the chapter defines a name twice, or
            a definition uses a name that is not among the definitions.

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
    return importlib.import_module(_PREFIX + name)


class _Loader(SourceFileLoader):
    """Compiles a chapter's definitions; never reads or writes cached bytecode."""

    def get_code(self, fullname: str) -> CodeType:
        text = importlib.util.decode_source(self.get_data(self.path))
        return _compile(text, Path(self.path))


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
    kept = list(filter(_is_definition, ast.parse("\n".join(_counting(text)), str(path)).body))
    problems = _redefinitions(kept) or _free_names(kept)
    if problems:
        listed = "".join(f"\n  {problem}" for problem in problems)
        raise ChapterError(f"chapter {path.stem} cannot be imported:{listed}\n{_KEPT}.")
    return compile(ast.Module(kept, []), str(path), "exec", dont_inherit=True)


def _counting(text: str) -> Iterator[str]:
    """Yield every line, empty where it belongs to a cell that is left out."""
    counts = True
    for line in text.split("\n"):
        if line.startswith("# %%"):
            counts = not _LEFT_OUT.match(line)
        yield line if counts else ""


def _is_definition(statement: ast.stmt) -> bool:
    """Tell whether a statement defines something that a later chapter may use."""
    match statement:
        case ast.Assign([ast.Name()], value) if _LOAD.fullmatch(ast.unparse(value)):
            return True
        case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
            return all(map(_CONSTANT.fullmatch, _bound(statement)))
    return isinstance(statement, ast.Import | ast.ImportFrom | ast.ClassDef | ast.FunctionDef)


def _bound(statement: ast.stmt) -> dict[str, str]:
    """Give each name that a statement binds, and for an import what it stands for."""
    match statement:
        case ast.Import(aliases):
            pairs = [(x.asname or x.name.partition(".")[0], x) for x in aliases]
            return {name: alias.name if alias.asname else name for name, alias in pairs}
        case ast.ImportFrom(module, aliases):
            return {x.asname or x.name: f"{module}.{x.name}" for x in aliases}
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
            return {name: ""}
        case ast.Assign(targets):
            return _stored(*targets)
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            return _stored(target)
    return {}


def _stored(*targets: ast.expr) -> dict[str, str]:
    """Give the names that are assigned to; an attribute or an item counts as no name."""
    nodes = [node for target in targets for node in ast.walk(target)]
    parts = [x for x in nodes if isinstance(x, ast.Name | ast.Attribute | ast.Subscript)]
    return {getattr(x, "id", ""): "" for x in parts}


def _redefinitions(kept: list[ast.stmt]) -> list[str]:
    """Say which names two statements bind to different things, with both lines."""
    first: dict[str, tuple[ast.stmt, str]] = {}
    problems = []
    for statement in kept:
        for name, what in _bound(statement).items():
            other, before = first.setdefault(name, (statement, what))
            if other is not statement and not (what and what == before):
                lines = f"line {other.lineno} and on line {statement.lineno}"
                problems.append(f"{name} is defined on {lines}")
    return problems


def _free_names(kept: list[ast.stmt]) -> list[str]:
    """Say which definitions use a global name that is neither a definition nor a builtin."""
    defined = set(dir(builtins)) - _KERNEL_ONLY
    defined.update(name for statement in kept for name in _bound(statement))
    problems = []
    for statement in kept:
        owner = next(iter(_bound(statement)))
        table = symtable.symtable(ast.unparse(statement), "", "exec")
        reads = [x for x in ast.walk(statement) if isinstance(x, ast.Name)]
        lines = {x.id: x.lineno for x in reversed(reads) if isinstance(x.ctx, ast.Load)}
        for name in sorted(_global_reads(table) - defined):
            if not re.fullmatch("__.*__", name):
                line = lines.get(name, statement.lineno)
                problems.append(f"line {line}: {owner} uses {name}, which it does not define")
    return problems


def _global_reads(table: symtable.SymbolTable) -> set[str]:
    """Give the global names that a scope, or one inside it, reads."""
    own = {x.get_name() for x in table.get_symbols() if x.is_referenced() and x.is_global()}
    return own.union(*map(_global_reads, table.get_children()))
