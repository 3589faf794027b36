"""The shortest version, for writing from memory: no masks, no biases, no options."""

import math

import torch
from torch import Tensor, nn

from annotated_attention.checks import check_settings
from annotated_attention.multihead import MultiheadAttention
from annotated_attention.published._parts import check_batches, projections


class Shortest(nn.Module):
    """Multi-head attention in four matrices and eight lines, sequence-first.

    Examples:
        >>> import torch
        >>> from annotated_attention.published import Shortest
        >>> query, memory = torch.randn(3, 2, 24), torch.randn(5, 2, 24)
        >>> output, weights = Shortest(24, 4)(query, memory, memory)
        >>> output.shape, weights.shape
        (torch.Size([3, 2, 24]), torch.Size([2, 4, 3, 5]))

    Source: the chapters "Published code" and "From memory", and Vaswani et al. (2017),
    section 3.2.2.
    """

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        """Create the matrices and initialise them; ``torch.empty`` alone leaves arbitrary numbers.

        Args:
            embed_dim: e, the width of all inputs and of the output.
            num_heads: h; must divide ``embed_dim``. Each head is d = e / h wide.

        Raises:
            TypeError: a size is not an integer.
            ValueError: a size is below 1, or ``embed_dim`` is not divisible by ``num_heads``.
        """
        super().__init__()
        check_settings({"embed_dim": embed_dim, "num_heads": num_heads}, 0.0, None)
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.w_q = nn.Parameter(torch.empty(embed_dim, embed_dim))
        self.w_k = nn.Parameter(torch.empty(embed_dim, embed_dim))
        self.w_v = nn.Parameter(torch.empty(embed_dim, embed_dim))
        self.w_o = nn.Parameter(torch.empty(embed_dim, embed_dim))
        for matrix in self.parameters():
            nn.init.xavier_uniform_(matrix)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Attend with all heads at once.

        Args:
            query: (n, b, e), one row per query.
            key: (m, b, e), one row per key.
            value: (m, b, e), one row per key.

        Returns:
            The output, (n, b, e), and the weights of every head, (b, h, n, m).

        Raises:
            TypeError: a dtype that does not fit.
            ValueError: shapes that do not fit.
        """
        check_batches(query, key, value, self.embed_dim, self.w_o, batch_first=False)
        n, b, e = query.shape
        r, d = b * self.num_heads, e // self.num_heads
        q = (query @ self.w_q).reshape(n, r, d).transpose(0, 1)   # (r, n, d)
        k = (key @ self.w_k).reshape(-1, r, d).transpose(0, 1)    # (r, m, d)
        v = (value @ self.w_v).reshape(-1, r, d).transpose(0, 1)  # (r, m, d)
        weights = (q @ k.mT / math.sqrt(d)).softmax(-1)           # (r, n, m)
        mixed = (weights @ v).transpose(0, 1).reshape(n, b, e)    # (n, b, e)
        return mixed @ self.w_o, weights.unflatten(0, (b, -1))    # (n, b, e), (b, h, n, m)

    def load_from(self, reference: MultiheadAttention) -> None:
        """Copy the weights of ``reference``, so that both modules give the same results.

        Args:
            reference: a module with the same ``embed_dim`` and ``num_heads``, without biases.

        Raises:
            TypeError: ``reference`` is not a multi-head attention.
            ValueError: the settings of ``reference`` do not fit, or it has biases.
        """
        own = (self.w_q, self.w_k, self.w_v, self.w_o)
        theirs = projections(reference, self.embed_dim, self.num_heads, bias=False)
        with torch.no_grad():
            for matrix, (weight, _) in zip(own, theirs, strict=True):
                matrix.copy_(weight.mT)  # x W here, x W^T in a linear layer
