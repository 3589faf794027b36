"""Wrong versions of multi-head attention that run; each class is named after its mistake.

Each class differs from the right version by one mistake alone and keeps every shape. Its docstring
says what it computes instead and why nobody notices. The classes are here to be run, seen to fail,
and caught. ``MISTAKES`` lists them by their code: the class name in lower case with hyphens. They
stand in modules by what they are about, such as ``mistakes.masks``.

Examples:
    >>> from attention_doctor.mistakes import MISTAKES as MISTAKES
    >>> mistake = MISTAKES["merge-without-transpose"]
    >>> mistake.version.__name__, mistake.right
    ('MergeWithoutTranspose', 'heads.transpose(1, 2).reshape(b, n, h * d)')
"""

from attention_doctor.mistakes._registry import MISTAKES as MISTAKES
from attention_doctor.mistakes._registry import Mistake as Mistake
from attention_doctor.mistakes._steps import StepByStep as StepByStep

# Importing a module enters its mistakes, so this is the order of the list.
# isort: off
from attention_doctor.mistakes import calls as calls
from attention_doctor.mistakes import masks as masks
from attention_doctor.mistakes import projections as projections
from attention_doctor.mistakes import reshapes as reshapes
from attention_doctor.mistakes import scores as scores
from attention_doctor.mistakes import rotation as rotation
from attention_doctor.mistakes import cache as cache
from attention_doctor.mistakes import groups as groups
from attention_doctor.mistakes import windows as windows
