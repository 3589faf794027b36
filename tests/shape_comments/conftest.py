"""Run sources with checks."""

import textwrap

import numpy as np
import pytest

from shape_comments.checker import Checker
from shape_comments.rewrite import CHECK


class Code:
    """A source run with checks, as the file code.py."""

    def __init__(self, root, source, own_lines=""):
        self.checker = Checker(root, own_lines)
        path = root / "code.py"
        path.write_text(textwrap.dedent(source))
        self.names = {
            "__name__": "code",
            CHECK: self.checker.function,
            "np": np,
            "ones": lambda *x: np.ones(x),
        }
        tree = self.checker.read(path) or path.read_text()
        exec(compile(tree, str(path), "exec"), self.names)

    def __getitem__(self, name):
        return self.names[name]

    @property
    def said(self):
        """Give of each line with a comment the levels of what was false, or what became of it."""
        lines = self.checker.seen().values()
        return {x.line: {*x.failed} or x.unclear or x.compared for x in lines}


@pytest.fixture
def code(tmp_path):
    """Run a source with checks."""
    return lambda source, **settings: Code(tmp_path, source, **settings)
