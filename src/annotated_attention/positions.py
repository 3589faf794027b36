"""Positions: attention ignores the order of its keys, so each embedding carries its position."""

import torch
from torch import Tensor, nn

from annotated_attention.checks import check_sizes


def sinusoidal_code(n: int, e: int) -> Tensor:
    """Write each position as the sines and cosines of e / 2 clocks of different speed.

    Args:
        n: how many positions.
        e: how many numbers for each; an odd one leaves the last sine without its cosine.

    Returns:
        (n, e), float64: column 2i is sin(position / 10000^(2i / e)), column 2i + 1 the cosine.

    Examples:
        >>> from annotated_attention import sinusoidal_code
        >>> sinusoidal_code(3, 4).round(decimals=2)
        tensor([[ 0.0000,  1.0000,  0.0000,  1.0000],
                [ 0.8400,  0.5400,  0.0100,  1.0000],
                [ 0.9100, -0.4200,  0.0200,  1.0000]], dtype=torch.float64)

    Source: Vaswani et al. (2017), section 3.5.
    """
    position = torch.arange(n, dtype=torch.float64)       # (n,)
    feature = torch.arange(0, e, 2, dtype=torch.float64)  # (...,)
    angle = position[:, None] / 10000 ** (feature / e)    # (n, ...)
    pairs = torch.stack([angle.sin(), angle.cos()], -1)   # (n, ..., 2)
    return pairs.flatten(1)[:, :e]                        # (n, e)


class _Positions(nn.Module):
    """Add row i of ``table`` to token i."""

    table: Tensor  # max_len x e

    def __init__(
        self,
        d_model: int,
        dropout: float = 0.1,
        max_len: int = 5000,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Make the table.

        Args:
            d_model: e, the width of the embeddings, even or odd.
            dropout: probability of zeroing a number of the sum in training.
            max_len: the length of the longest sequence.
            batch_first: input and output are (b, n, e) instead of (n, b, e).
            device: Device of the table.
            dtype: Dtype of the table; None means torch's default.

        Raises:
            TypeError: a size that is not an integer.
            ValueError: a size below 1, or ``dropout`` outside [0, 1].
        """
        super().__init__()
        check_sizes({"d_model": d_model, "max_len": max_len})
        self.d_model, self.max_len, self.batch_first = d_model, max_len, batch_first
        self.dropout = nn.Dropout(dropout)
        self._make_table(torch.empty(max_len, d_model, device=device, dtype=dtype))

    def _make_table(self, empty: Tensor) -> None:
        """Keep ``empty`` as the table, filled."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Add the positions.

        Args:
            x: embeddings: (n, b, e); with ``batch_first`` (b, n, e); without a batch (n, e).

        Returns:
            The embeddings plus their positions, in the shape of ``x``, after dropout.

        Raises:
            ValueError: ``x`` has another width or number of axes, or is longer than ``max_len``.
        """
        if x.dim() not in (2, 3) or x.size(-1) != self.d_model:
            raise ValueError(
                f"x must have three axes, or two without a batch, the last of them "
                f"{self.d_model} wide, got shape {tuple(x.shape)}"
            )
        n = x.size(-2 if self.batch_first or x.dim() == 2 else 0)
        if n > self.max_len:
            raise ValueError(f"x is {n} tokens long; there are max_len ({self.max_len}) positions")
        table = self.table[:n]  # (n, e)
        if x.dim() == 3 and not self.batch_first:
            table = table.unsqueeze(1)  # (n, 1, e)
        return self.dropout(x + table)


class PositionalEncoding(_Positions):
    """Add sines and cosines of the position; nothing is learned.

    ``table`` is a buffer: it moves with the module and gets no gradient. It is not part of the
    ``state_dict``, because a formula gives its numbers, so a checkpoint fits any ``max_len``.

    Examples:
        >>> import torch
        >>> from annotated_attention import PositionalEncoding
        >>> encoding = PositionalEncoding(d_model=4, dropout=0.0, batch_first=True)
        >>> encoding(torch.zeros(1, 2, 4))
        tensor([[[0.0000, 1.0000, 0.0000, 1.0000],
                 [0.8415, 0.5403, 0.0100, 0.9999]]])

    Source: Vaswani et al. (2017), section 3.5.
    """

    def _make_table(self, empty: Tensor) -> None:
        """Compute the sines and cosines in float64, and round them once."""
        code = sinusoidal_code(self.max_len, self.d_model)
        self.register_buffer("table", code.to(empty.device, empty.dtype), persistent=False)


class LearnedPositionalEncoding(_Positions):
    """Add a vector to each position that is learned like the rest of the model.

    ``table`` is a parameter, and its numbers start about as large as sines and cosines. A position
    that never occurs in training keeps its random initial numbers.

    Examples:
        >>> import torch
        >>> from annotated_attention import LearnedPositionalEncoding
        >>> encoding = LearnedPositionalEncoding(d_model=24, max_len=11, batch_first=True)
        >>> encoding(torch.randn(2, 5, 24)).shape, encoding.table.requires_grad
        (torch.Size([2, 5, 24]), True)

    Source: Vaswani et al. (2017), section 3.5, which finds both kinds nearly equal.
    """

    def _make_table(self, empty: Tensor) -> None:
        """Draw numbers whose mean square is that of a sine."""
        self.table = nn.Parameter(nn.init.normal_(empty, std=0.5**0.5))
