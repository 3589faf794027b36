"""Latent attention whose absorbed form loses the positions; the plain form is right."""

from typing import Any

from torch import Tensor

from annotated_attention.mistakes._registry import mistake
from annotated_attention.mistakes._steps import RotatedLatents
from annotated_attention.modern.latent import LatentAttention


@mistake(
    wrong="scores = rotary(q, positions) @ k_up @ latent.mT",
    right="scores = q @ k_up @ latent.mT + rotary(q_short, positions) @ k_turned.mT",
    of=RotatedLatents,
)
class RotationAbsorbed(RotatedLatents):
    """The matrix of the keys is absorbed into the queries, though its keys are rotated afterwards.

    The rotation stands between the query and the matrix, so there is nothing to absorb. The query
    still turns, but no key is left to turn with it. At position 0 nothing turns, so the first token
    is right, and so is training, which makes the keys. Only the steps of generation are wrong.
    """

    attend_absorbed = LatentAttention.attend_absorbed


@mistake(
    wrong="scores = q @ latent.mT",
    right="scores = q @ latent.mT + q_turned @ k_turned.mT",
    of=LatentAttention,
)
class LatentPositionsMissing(LatentAttention):
    """The absorbed form leaves out the short queries and keys that carry the positions.

    The latents know no positions, so the order of the past makes no difference while a text is
    written. A single token hides the mistake, since its only weight is 1 whatever its score is. So
    a test that compares both forms on the first step of generation is green.
    """

    def attend_absorbed(
        self, q: Tensor, q_turned: Tensor, latent: Tensor, k_turned: Tensor, **masks: Any
    ) -> tuple[Tensor, Tensor | None]:
        return super().attend_absorbed(q, 0 * q_turned, latent, k_turned, **masks)
