"""Show source code with a remark in the margin of each line."""

from collections.abc import Mapping

from annotated_book.display._html import Output, code_block, highlight_lines
from annotated_book.display.code import source


def margin(obj: object, remarks: Mapping[str, str]) -> Output:
    """Show the source of a class or function, with a remark in the margin of each line.

    Docstrings are left out.

    Args:
        obj: a class or function, see ``source``.
        remarks: under the beginning of a line, what stands beside it; a line that begins with none
            of these has an empty margin.

    Raises:
        ValueError: no line begins so, or several do.

    Examples:
        >>> from annotated_attention import merge_heads
        >>> from annotated_book import display
        >>> display.margin(merge_heads, {"return": "4 5"})
             def merge_heads(x: Tensor) -> Tensor:
                 if x.dim() < 3:
                     raise ValueError(f"x must have shape (..., h, n, d), got {tuple(x.shape)}")
        4 5      return x.transpose(-3, -2).flatten(-2)  # (..., n, h, d) -> (..., n, h * d)
    """
    text = source(obj, docstrings=False).text
    lines = text.rstrip().split("\n")
    beside = [""] * len(lines)
    for start, remark in remarks.items():
        found = [i for i, line in enumerate(lines) if line.strip().startswith(start)]
        if len(found) != 1:
            raise ValueError(f"{start!r} must begin one line, begins {len(found)}")
        beside[found[0]] = remark
    width = max(map(len, beside)) + 2
    told = [f"{remark:{width}}{line}".rstrip() for remark, line in zip(beside, lines, strict=True)]
    shown = [
        f'<span class="aa-margin" style="--aa-margin: {width}ch">{remark}</span>{line}'
        for remark, line in zip(beside, highlight_lines("\n".join(lines)), strict=True)
    ]
    return Output("\n".join(told), code_block("\n".join(shown), ""))
