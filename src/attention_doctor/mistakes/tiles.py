"""A mistake in attention whose keys come in tiles."""

from torch import Tensor

from attention_doctor.mistakes._registry import mistake
from attention_doctor.mistakes._steps import InTiles


@mistake(
    wrong="mixed = mixed + powers @ values",
    right="mixed = correction * mixed + powers @ values",
    of=InTiles,
)
class CorrectionForgotten(InTiles):
    """The sum of the values keeps the unit of earlier tiles when a larger score comes.

    The sum of the exponentials is corrected, the sum of the values beside it is not, so the values
    of earlier tiles count too much. Where a row's largest score stands in its first tile, no
    correction is needed, and the output is right. So it is wherever all keys fit into one tile, as
    in a test with few tokens.
    """

    def convert(self, mixed: Tensor, correction: Tensor) -> Tensor:
        """Leave the sum of the values in the unit of the earlier tiles."""
        return mixed
