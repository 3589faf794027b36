"""Modules that compute the right thing, and do not behave as a module should."""

from typing import Any

from torch import Tensor

from annotated_attention.mistakes._registry import mistake
from annotated_attention.multihead import MultiheadAttention


@mistake(
    wrong="value.masked_fill_(padding, 0)",
    right="value = value.masked_fill(padding, 0)",
)
class InputChangedInPlace(MultiheadAttention):
    """The rows of padding are set to zero in the tensor that belongs to the caller.

    Blocked values have no influence, so the output is right. But the caller's tensor is another
    one afterwards: a residual connection adds zeros, and a second layer that is to see the same
    input does not. One underscore makes the difference.
    """

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        *arguments: Any,
        **options: Any,
    ) -> Any:
        """Attend, with the padding of ``value`` emptied."""
        if key_padding_mask is not None:
            rows = key_padding_mask if self.batch_first else key_padding_mask.transpose(0, -1)
            value.masked_fill_(rows.bool().unsqueeze(-1), 0)
        return super().forward(query, key, value, key_padding_mask, *arguments, **options)


@mistake(
    wrong="def __call__(self, query, key, value):",
    right="def forward(self, query, key, value):",
)
class CallInsteadOfForward(MultiheadAttention):
    """The class defines `__call__`, and so takes the place of the one that runs hooks.

    Called like a function it computes the right thing. But what hangs on a module through hooks is
    never run: profilers, pruning, sharding, the recording of activations. None of them complains,
    they record nothing.
    """

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Compute, past the hooks."""
        return self.forward(*arguments, **options)
