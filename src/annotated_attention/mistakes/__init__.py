"""Wrong versions of multi-head attention that run; each class is named after its mistake.

Each class differs from the right version by one mistake alone and keeps every shape. Its docstring
says what it computes instead and why nobody notices. The classes are here to be run, seen to fail,
and caught. ``MISTAKES`` lists them by their code: the class name in lower case with hyphens. They
stand in modules by what they are about, such as ``mistakes.masks``.

Examples:
    >>> from annotated_attention.mistakes import MISTAKES as MISTAKES
    >>> mistake = MISTAKES["merge-without-transpose"]
    >>> mistake.version.__name__, mistake.right
    ('MergeWithoutTranspose', 'heads.transpose(1, 2).reshape(b, n, h * d)')
"""

from typing import TYPE_CHECKING

from annotated_attention._lazy import import_lazily

if TYPE_CHECKING:
    from annotated_attention.mistakes._registry import Mistake as Mistake
    from annotated_attention.mistakes._steps import StepByStep as StepByStep
    from annotated_attention.mistakes.catalogue import MISTAKES as MISTAKES

import_lazily(__name__)
