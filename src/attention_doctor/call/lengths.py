"""How many tokens something takes that takes one number of them, as a window of an image does."""

import itertools
import math
import re
from typing import Any

from attention_doctor.adapters import module_of
from attention_doctor.call.roles import size_of

_LONGEST = 256


def counts(attend: Any, message: str) -> list[int]:
    """Read how many tokens are expected: an error names a number that is an attribute's, too.

    The attribute is no size that its name tells; two stand for a height and a width.
    """
    module = module_of(attend)
    own: list[int] = []
    for name, x in ({} if module is None else vars(module)).items():
        numbers = x if isinstance(x, tuple | list) else [x]
        if not size_of(name) and numbers and all(type(y) is int and y > 0 for y in numbers):
            own.append(math.prod(numbers))
    own += [x * y for x, y in itertools.combinations(own, 2)]
    said = {int(x) for x in re.findall(r"(?<![\w.])\d+(?![\w.])", message)}
    for shape in re.findall(r"\[\d+((?:, \d+)+), \d+\]", message):  # but samples and width
        said.add(math.prod(map(int, shape.strip(", ").split(", "))))
    return [x for x in dict.fromkeys(own) if x in said and 1 < x <= _LONGEST]
