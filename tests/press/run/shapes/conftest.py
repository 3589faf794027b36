"""Run sources with checks."""

import textwrap

import pytest
import torch
from torch import nn

from press.run.shapes import StrictChecker
from shape_comments.rewrite import CHECK


class Code:
    """A source run with checks, as the file code.py."""

    def __init__(self, tmp_path, source):
        self.checker = StrictChecker(tmp_path)
        self.path = tmp_path / "code.py"
        self.path.write_text(textwrap.dedent(source))
        self.names = {CHECK: self.checker.function, "torch": torch, "nn": nn}
        exec(compile(self.checker.read(self.path), str(self.path), "exec"), self.names)

    def said(self):
        """Give what was raised, also where the caller swallowed it."""
        return [text for comment in self.checker.comments for text in comment.failed.values()]

    def __getitem__(self, name):
        return self.names[name]


@pytest.fixture
def code(tmp_path):
    """Run a source with checks."""
    return lambda source: Code(tmp_path, source)
