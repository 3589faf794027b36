"""The short path: what it defines is whole, and its last box shows the class that was tested."""

import re

from annotated_attention import chapters, display
from book.run import scripts


def test_the_class_in_the_box_is_the_class():
    box = scripts.notebook(scripts.CHAPTERS / "short_path.py").cells[-1].source
    (code,) = re.findall(r"> ```python\n(.*?)> ```", box, re.DOTALL)
    shown = "\n".join(line.removeprefix(">").removeprefix(" ") for line in code.splitlines())
    assert shown == display.source(chapters.load("short_path").PlainAttention).text.strip()
