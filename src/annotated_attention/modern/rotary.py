"""Rotary positions: queries and keys turn with their position, so scores depend on distances."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from annotated_attention.checks import check_nothing_appended
from annotated_attention.modern.frequencies import read_scaling, rotary_frequencies
from annotated_attention.multihead import MultiheadAttention

LAYOUTS = ("half", "interleaved")
Rotary = Callable[[Tensor, Tensor], Tensor]  # such as a RotaryEmbedding: x, positions -> x


def rotate(x: Tensor, cos: Tensor, sin: Tensor, layout: str = "half") -> Tensor:
    """Turn each pair of features by its own angle.

    Args:
        x: (..., n, d), queries or keys; d is even.
        cos: (..., n, r), the cosines of the angles, with a column for each of the r = d / 2
            pairs; broadcastable from the left.
        sin: (..., n, r), the sines.
        layout: ``"half"`` pairs feature i with feature i + d / 2, as Llama in
            transformers does; ``"interleaved"`` pairs feature 2i with feature 2i + 1, as the paper
            and Llama's original code do.

    Returns:
        (..., n, d): (a, b) becomes (a cos - b sin, b cos + a sin).

    Examples:
        A quarter turn takes (1, 0) to (0, 1):

        >>> import torch
        >>> from annotated_attention.modern import rotate
        >>> x = torch.tensor([[1.0, 2.0, 0.0, 0.0]])
        >>> rotate(x, cos=torch.zeros(1, 2), sin=torch.ones(1, 2))
        tensor([[0., 0., 1., 2.]])

    Source: Su et al. (2021), section 3.4.2, equation 34.
    """
    if layout not in LAYOUTS:
        raise ValueError(f'layout ({layout!r}) must be "half" or "interleaved"')
    _check_angles(x, cos, sin)
    if layout == "half":
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)  # (..., n, d)
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)  # (..., n, d)


class RotaryEmbedding(nn.Module):
    """Turn queries and keys with their positions, so that their scores depend on the distance.

    Pair i of a head turns by position · base^(-2i / d). It has no parameters and no buffers: the
    angles are computed from the settings, at least in float32, whatever dtype the model is in.
    In bfloat16, positions from 256 on would be rounded together.

    Examples:
        The score of one query and one key, both moved by 100 positions, stays:

        >>> import torch
        >>> from annotated_attention.modern import RotaryEmbedding
        >>> rotary = RotaryEmbedding(head_dim=6)
        >>> q, k = torch.randn(1, 6), torch.randn(1, 6)
        >>> near = rotary(q, torch.tensor([3])) @ rotary(k, torch.tensor([1])).mT
        >>> far = rotary(q, torch.tensor([103])) @ rotary(k, torch.tensor([101])).mT
        >>> torch.allclose(near, far, atol=1e-4)
        True

    Source: Su et al. (2021), section 3.2.2.
    """

    def __init__(
        self,
        head_dim: int,
        *,
        base: float | None = None,
        layout: str = "half",
        scaling: Mapping[str, Any] | None = None,
        max_length: int | None = None,
    ) -> None:
        """Keep the settings.

        Args:
            head_dim: d, the width of one head; even.
            base: as in ``rotary_frequencies``; so are ``scaling`` and ``max_length``.
            layout: which features form a pair, see ``rotate``.
        """
        super().__init__()
        self.base, self.scaling = read_scaling(head_dim, base, scaling, max_length)
        self.head_dim, self.layout, self.max_length = head_dim, layout, max_length

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Turn each row by its position.

        Args:
            x: queries or keys, (..., n, d).
            positions: (n,) or (b, n), counted from 0; with b, each sample of (b, h, n, d) has its
                own.

        Returns:
            (..., n, d), in the dtype of ``x``.
        """
        self._check(x, positions)
        return rotate(x, *self.angles(positions, x.dtype), self.layout)  # (..., n, d)

    def angles(
        self, positions: Tensor, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, Tensor]:
        """Give the cosine and the sine of every angle, as ``rotate`` takes them.

        Args:
            positions: (n,) or (b, n), counted from 0.
            dtype: Dtype of the result; the angles themselves are in float32 at least.

        Returns:
            Cosines and sines, (n, r) or, for all heads of a sample, (b, 1, n, r) each, with a
            column for each of the r = d / 2 pairs; times YaRN's factor if ``scaling`` is of that
            type.
        """
        exact = torch.promote_types(dtype, torch.float32)
        dynamic = self.scaling["rope_type"] == "dynamic"
        frequencies, factor = rotary_frequencies(
            self.head_dim,
            base=self.base,
            scaling=self.scaling,
            max_length=self.max_length,
            length=positions.max() + 1 if dynamic else None,
            dtype=exact,
            device=positions.device,
        )
        angle = positions[..., None].to(exact) * frequencies           # (..., n, r)
        angle = angle.unsqueeze(1) if positions.dim() == 2 else angle  # (..., n, r)
        return (angle.cos() * factor).to(dtype), (angle.sin() * factor).to(dtype)

    def _check(self, x: Tensor, positions: Tensor) -> None:
        """Refuse what does not fit."""
        if not x.is_floating_point():
            raise TypeError(f"x must be floating point, got {x.dtype}")
        if x.dim() < 2 or x.size(-1) != self.head_dim:
            raise ValueError(f"x must have shape (..., n, {self.head_dim}), got {tuple(x.shape)}")
        n, given = x.size(-2), tuple(positions.shape)
        if given != (n,) and (x.dim() != 4 or given != (x.size(0), n)):
            raise ValueError(
                f"positions {given} must have shape (n,) = ({n},), or (b, n) for x of shape "
                f"(b, h, n, d), got x of shape {tuple(x.shape)}"
            )


class RotaryAttention(MultiheadAttention):
    """The final class, with queries and keys that turn with their positions.

    Positions are counted from 0 on both sides; an appended key, which has none, is refused. Values
    do not turn. The parameters are those of the final class: a rotation has none.

    Examples:
        >>> import torch
        >>> from annotated_attention.modern import RotaryAttention
        >>> attention = RotaryAttention(24, 4, batch_first=True)
        >>> x = torch.randn(2, 5, 24)
        >>> attention(x, x, x, is_causal=True)[1].shape
        torch.Size([2, 5, 5])

    Source: Su et al. (2021), section 3.2.2, equation 16.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *args: Any,
        rotary: RotaryEmbedding | None = None,
        **options: Any,
    ) -> None:
        """Create the parameters of the final class, which takes all other arguments.

        Args:
            rotary: turns queries and keys by their positions; None means a ``RotaryEmbedding``,
                for which the width of a head must be even.
        """
        super().__init__(embed_dim, num_heads, *args, **options)
        check_nothing_appended(self.bias_k is not None, self.add_zero_attn)
        self.rotary = RotaryEmbedding(self.head_dim) if rotary is None else rotary

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, **options: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Turn queries, (b, h, n, d), and keys, (b, h, m, d), then attend as the final class."""
        k = self.rotary(k, torch.arange(k.size(-2), device=k.device))  # (b, h, m, d)
        q = self.rotary(q, torch.arange(q.size(-2), device=q.device))  # (b, h, n, d)
        return super().attend(q, k, v, **options)


def interleaved_to_half(weight: Tensor, num_heads: int) -> Tensor:
    """Reorder the rows of W_Q or W_K from pairs side by side to pairs half a head apart.

    Args:
        weight: W_Q or W_K as ``torch.nn.Linear`` keeps it, one row per feature of the queries, or
            its bias; the first axis is h * d long. W_V and W_O stay as they are.
        num_heads: h; for keys that several heads share, the number of heads of the keys.

    Returns:
        The same rows in another order: within each head first the even ones, then the odd ones.

    Examples:
        One head of width 6:

        >>> import torch
        >>> from annotated_attention.modern import interleaved_to_half
        >>> interleaved_to_half(torch.arange(6), num_heads=1)
        tensor([0, 2, 4, 1, 3, 5])
    """
    return weight.unflatten(0, (num_heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def half_to_interleaved(weight: Tensor, num_heads: int) -> Tensor:
    """Reorder the rows the other way: the inverse of ``interleaved_to_half``, and called like it.

    Returns:
        The same rows in another order: rows i and i + d / 2 of each head now follow each other.

    Examples:
        >>> import torch
        >>> from annotated_attention.modern import half_to_interleaved
        >>> half_to_interleaved(torch.arange(6), num_heads=1)
        tensor([0, 3, 1, 4, 2, 5])
    """
    return weight.unflatten(0, (num_heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def _check_angles(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Refuse cosines and sines that do not fit the pairs of x; a single pair would broadcast."""
    if x.dim() < 2 or x.size(-1) % 2:
        raise ValueError(f"x {tuple(x.shape)} must have shape (..., n, d), with d even")
    n, r = x.size(-2), x.size(-1) // 2
    for name, angles in (("cos", cos), ("sin", sin)):
        if angles.dim() < 2 or angles.size(-2) not in (1, n) or angles.size(-1) != r:
            raise ValueError(
                f"{name} {tuple(angles.shape)} must have shape (..., n, r) = (..., {n}, {r})"
            )
