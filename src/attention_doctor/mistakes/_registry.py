"""How a class becomes an entry in the list of mistakes: those of the files beside this one."""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from torch import nn

from annotated_attention.multihead import MultiheadAttention

Version = TypeVar("Version", bound=type[nn.Module])


@dataclass(frozen=True)
class Mistake:
    """A mistake: the wrong version that makes it, and the line to change.

    Attributes:
        code: stable name, such as ``merge-without-transpose``.
        version: class that makes the mistake.
        wrong: line as people write it.
        right: line to write instead.
        of: the right version, with which the wrong one is compared.

    Examples:
        Every version runs as its right version does, with the same weights:

        >>> from attention_doctor.mistakes import MISTAKES
        >>> entry = MISTAKES["no-scale"]
        >>> right, wrong = entry.of(24, 4), entry.version(24, 4)
        >>> wrong.load_state_dict(right.state_dict())
        <All keys matched successfully>
        >>> print(entry.remedy)
        Write `scores = q @ k.mT / math.sqrt(d)` in place of `scores = q @ k.mT`.
    """

    code: str
    version: type[nn.Module]
    wrong: str
    right: str
    of: type[nn.Module] = MultiheadAttention

    @property
    def title(self) -> str:
        """What is done wrongly, in one sentence."""
        return inspect.cleandoc(self.version.__doc__ or "").split("\n")[0].rstrip(".")

    @property
    def explanation(self) -> str:
        """What happens as a result and why nobody notices, in one paragraph."""
        return " ".join(inspect.cleandoc(self.version.__doc__ or "").split("\n")[2:])

    @property
    def remedy(self) -> str:
        """The change that corrects the mistake, in one sentence."""
        return f"Write `{self.right}` in place of `{self.wrong}`."


MISTAKES: dict[str, Mistake] = {}


def mistake(
    *, wrong: str, right: str, of: type[nn.Module] = MultiheadAttention
) -> Callable[[Version], Version]:
    """Enter a class in the list, under its own name in lower case with hyphens.

    Args:
        wrong: line as people write it.
        right: line to write instead.
        of: the right version; the final class, or one with a further part, such as a cache.
    """

    def enter(version: Version) -> Version:
        code = re.sub(r"(?<!^)(?=[A-Z])", "-", version.__name__).lower()
        MISTAKES[code] = Mistake(code, version, wrong, right, of)
        return version

    return enter
