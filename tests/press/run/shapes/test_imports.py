"""The import hook checks every module of a package."""

import importlib
import inspect
import sys
from types import SimpleNamespace

import pytest
import torch

from press.run.shapes import install_import_hook
from shape_comments.comments import ShapeCommentError

Q = torch.randn(2, 3, 6)
RIGHT = """\
def f(x):
    '''Give it back.'''
    return x + 0  # (n, d)
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Make a package of two modules, of which the second is wrong, with the hook in place."""
    name = tmp_path.name  # of each test another
    folder = tmp_path / "src" / name
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(f"from {name}.right import f\n")
    (folder / "right.py").write_text(RIGHT)
    (folder / "wrong.py").write_text("def g(x):\n    return x + 0  # (n,)\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.syspath_prepend(folder.parent)
    checker = install_import_hook([name], tmp_path)
    yield SimpleNamespace(name=name, folder=folder, checker=checker)
    for module in [module for module in sys.modules if module.startswith(name)]:
        del sys.modules[module]


def test_hook_checks_every_module_and_leaves_no_bytecode(package):
    right = importlib.import_module(package.name)
    assert right.f(Q[0]).shape == (3, 6)
    wrong = importlib.import_module(f"{package.name}.wrong")
    with pytest.raises(
        ShapeCommentError, match=rf"src/{package.name}/wrong.py:2: the comment says"
    ):
        wrong.g(Q)
    assert list(package.folder.rglob("*.pyc")) == []
    assert inspect.getsource(right.f) == RIGHT
    assert right.f.__doc__ == "Give it back.", "or its examples would not be found"


def test_module_never_imported_counts_as_unreached(package):
    importlib.import_module(package.name)
    where = f"src/{package.name}"
    says = "no run reaches this shape comment: return x + 0"
    assert package.checker.unreached() == [
        f"{where}/right.py:3: {says}  # (n, d)",
        f"{where}/wrong.py:2: {says}  # (n,)",
    ]


def test_hook_after_the_import_is_refused(package):
    importlib.import_module(package.name)
    with pytest.raises(RuntimeError, match="was imported before"):
        install_import_hook([package.name], package.folder.parents[1])
