"""Give the dimension letters of shape comments their colours."""

import re

_FACTOR = r"(?:[A-Za-z_]\w*|\d+|\.\.\.|…)"
_ITEM = rf"{_FACTOR}(?:\s*[*·]\s*{_FACTOR})*"
# The comma tells a shape from an aside, and a name before the parenthesis makes it a call.
_SHAPE = re.compile(rf"(?<![\w)\]])\(\s*{_ITEM}\s*,(?:\s*{_ITEM}\s*,)*(?:\s*{_ITEM})?\s*\)")
_LETTER = re.compile(r"\b[bnmhd]\b")
# In plain words a shape has one of the letters at least: (see there, …) is none.
SHAPE_IN_PROSE = rf"(?=\([^()]*{_LETTER.pattern}){_SHAPE.pattern}"
# Text without markup only: what has been coloured no longer matches, and a block of code is no
# inline code.
_MAY_HOLD_SHAPES = re.compile(
    r'<span class="(?:c1|sd)">[^<]*</span>|(?<!<pre>)(?<!<span></span>)<code>[^<]*</code>'
)


def colour_shapes(html: str) -> str:
    """Mark the letters b, n, m, h, d of every shape such as (b, n, h * d) with their class.

    Args:
        html: highlighted by Pygments, or prose with inline code.

    Returns:
        The same HTML, in which each of the five letters inside a shape is a
        ``<b class="dim dim-n">n</b>``. Shapes are looked for in comments, in docstrings and in
        inline code, nowhere else. Colouring twice changes nothing.

    Examples:
        >>> from annotated_book.display.colours import colour_shapes
        >>> colour_shapes("<code>(n, e)</code>")
        '<code>(<b class="dim dim-n">n</b>, e)</code>'
    """
    mark = r'<b class="dim dim-\g<0>">\g<0></b>'
    return _MAY_HOLD_SHAPES.sub(
        lambda found: _SHAPE.sub(lambda shape: _LETTER.sub(mark, shape[0]), found[0]), html
    )
