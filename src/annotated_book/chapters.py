"""Import what a chapter defines, without running what it demonstrates.

    chapter = chapters.load("01_one_head")
    head = chapter.OneHead(...)

The text on the page is the code that runs: nothing is copied into the package.
"""

import ast
import importlib
import importlib.util
import re
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

__all__ = ["ChapterError", "load", "names"]

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
_PREFIX = "chapter_"

_LEFT_OUT = re.compile(r"# %%.*\btags=\[.*\b(exercise|solution)\b")
_CONSTANT = re.compile(r"_*[A-Z][A-Z0-9_]*")
_LOAD = re.compile(r"chapters\.load\('\w+'\)(\.\w+)?")


class ChapterError(ImportError):
    """There is no such chapter, or no checkout to read it from."""


def names() -> list[str]:
    """List the chapters in reading order, such as ``"01_one_head"``; the short path comes last.

    Raises:
        ChapterError: the package is not running from a checkout.

    Examples:
        >>> from annotated_book import chapters
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
    cells tagged ``exercise`` or ``solution``; so no definition may use a name of theirs.

    Args:
        name: the file's name without its ending, such as ``"01_one_head"``. The module's own name
            is ``"chapter_" + name``: its classes pickle, and another process needs nothing but
            ``import annotated_book.chapters`` to unpickle them.

    Returns:
        The module; the same one each time.

    Raises:
        ChapterError: there is no such chapter, or no checkout.

    Examples:
        >>> from annotated_book import chapters
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
        return compile(_definitions(text, self.path), self.path, "exec", dont_inherit=True)


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


def _definitions(text: str, path: str) -> ast.Module:
    """Give what a chapter's text defines, each statement on its line."""
    cells = re.split(r"^(?=# %%)", text, flags=re.MULTILINE)
    kept = ("\n" * cell.count("\n") if _LEFT_OUT.match(cell) else cell for cell in cells)
    return ast.Module(list(filter(_is_definition, ast.parse("".join(kept), path).body)), [])


def _is_definition(statement: ast.stmt) -> bool:
    """Tell whether a statement defines something that a later chapter may use."""
    match statement:
        case ast.Assign([ast.Name()], value) if _LOAD.fullmatch(ast.unparse(value)):
            return True
        case ast.Assign(targets):
            return all(map(_is_constant, targets))
        case ast.AnnAssign(target) | ast.AugAssign(target):
            return _is_constant(target)
    return isinstance(statement, ast.Import | ast.ImportFrom | ast.ClassDef | ast.FunctionDef)


def _is_constant(target: ast.expr) -> bool:
    """Tell whether an assignment's target is an UPPER_CASE name, or a tuple of such."""
    names = re.split(r"[(), *]+", ast.unparse(target).strip("(), *"))
    return all(map(_CONSTANT.fullmatch, names))
