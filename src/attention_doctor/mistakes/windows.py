"""Mistakes in what a token need not look at: windows, packed documents and sinks."""

from torch import Tensor

from annotated_attention.masks import block_future
from annotated_attention.modern.cache import block_by_position
from annotated_attention.modern.windows import WindowAttention
from attention_doctor.mistakes._registry import mistake
from attention_doctor.mistakes._steps import PackedAttention, SinkAttention, StepByStep


@mistake(
    wrong="blocked = (keys > queries) | (keys < queries - window)",
    right="blocked = (keys > queries) | (keys <= queries - window)",
    of=WindowAttention,
)
class WindowOffByOne(WindowAttention):
    """The window counts the keys before the query, and the query besides.

    Libraries mean different things by a window of w: the query and w - 1 keys before it, or w keys
    before it. The model that was trained with the one is called with the other, and each query sees
    one key too many. Texts up to the length of the window do not show it. In longer ones a single
    key of w + 1 is wrong, so the text stays fluent. The ``window_size`` of flash-attn counts the
    keys before the query and behind it: for a window of w pass (w - 1, 0).
    """

    def block(self, positions: Tensor, m: int) -> Tensor:
        return block_by_position(positions, m, self.window + 1, sinks=self.sinks)


@mistake(
    wrong="blocked = later",
    right="blocked = later | (documents[:, None, :, None] != documents[:, None, None])",
    of=PackedAttention,
)
class DocumentsLeak(PackedAttention):
    """Positions start anew with each document of a row, and no mask keeps the documents apart.

    A position says how far a key is away, not whether it may be seen. Each document attends to all
    that stand before it in its row, and takes some of their tokens for near neighbours. The first
    document of a row is right, and so is a row with a single one.
    """

    def block(self, documents: Tensor) -> Tensor:
        return block_future(documents.size(1), documents.size(1), documents.device)


@mistake(
    wrong="weights = (scores + sinks[:, None, None]).softmax(-1)",
    right="weights = torch.cat([scores, column], -1).softmax(-1)[..., :-1]",
    of=SinkAttention,
)
class SinkAddedToScores(SinkAttention):
    """The learned number of each head is added to all scores instead of becoming one more key.

    A softmax does not change when the same number is added to all its scores. So the weights still
    sum to 1, the head must give all of it to tokens, and the parameter gets no gradient (but for
    rounding). Nothing fails: a sink that does nothing is attention as usual.
    """

    def weigh(self, scores: Tensor, blocked: Tensor | None) -> Tensor:
        """Compute the weights of the keys alone, each score larger by the same number."""
        return StepByStep.weigh(self, scores + self.sinks[:, None, None], blocked)
