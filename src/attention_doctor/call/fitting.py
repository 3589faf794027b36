"""Sizes at which a call runs that fails at the usual ones, and what that says."""

import itertools
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

from attention_doctor.adapters import module_of
from attention_doctor.call.places import Where
from attention_doctor.call.roles import Sizes, size_of

_MOST_TOKENS = 256
_USUAL = 5


def fitting(
    attend: Any,
    kind: str,
    sizes: Sizes,
    failed: tuple[str, Where | None],
    runs: Callable[[Sizes], bool],
) -> Sizes | None:
    """Give sizes at which it runs: as many queries as keys, or those that its error names."""
    h, d = sizes.num_heads, sizes.embed_dim // sizes.num_heads
    message, place = failed

    def of(tokens: int, code: str, words: str) -> Sizes:
        only, longer = (code, f"{words}; {message}", place), max(sizes.max_length, tokens)
        return sizes._replace(tokens=tokens, max_length=longer, only=only)

    if kind in ("cross", "memory"):
        same = of(_USUAL, "lengths-mixed", "it runs with as many queries as keys alone")
        if runs(same):
            return same
    for tokens, name in counts(attend, message, {h, d, *(i * sizes.embed_dim for i in range(5))}):
        fixed = of(tokens, "length-fixed" * bool(name), f"it takes {tokens} tokens, {name}")
        if runs(fixed):
            return fixed
    return None


def counts(attend: Any, message: str, widths: set[int]) -> Iterator[tuple[int, str]]:
    """Read how many tokens something takes that takes one number of them, as a window of an image.

    An error names a number that is an attribute's, too; two stand for a height and a width. Or it
    is the size of a buffer or a parameter, whose name is given; ``widths`` are none.
    """
    said = {int(x) for x in re.findall(r"(?<![\w.])\d+(?![\w.])", message)}
    for shape in re.findall(r"\[\d+((?:, \d+)+), \d+\]", message):  # but samples and width
        said.add(math.prod(map(int, shape.strip(", ").split(", "))))
    if (module := module_of(attend)) is None:
        return
    own: list[int] = []
    for name, x in vars(module).items():
        numbers = x if isinstance(x, tuple | list) else [x]
        if not size_of(name) and numbers and all(type(y) is int and y > 0 for y in numbers):
            own.append(math.prod(numbers))
    own += [x * y for x, y in itertools.combinations(own, 2)]
    yield from ((x, "") for x in dict.fromkeys(own) if x in said and 1 < x <= _MOST_TOKENS)
    for name, parameter in (*module.named_buffers(), *module.named_parameters()):
        shape = tuple(parameter.shape)
        for x in {*shape} & said - widths:
            if 1 < x <= _MOST_TOKENS:
                yield x, f"as `{name}` has them, {shape}"
