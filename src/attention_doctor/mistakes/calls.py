"""Modules that compute the right result, but do not behave as a module should."""

from typing import Any

from torch import Tensor

from annotated_attention.multihead import MultiheadAttention
from attention_doctor.mistakes._registry import mistake


@mistake(
    wrong="value.masked_fill_(padding, 0)",
    right="value = value.masked_fill(padding, 0)",
)
class InputChangedInPlace(MultiheadAttention):
    """The rows of padding are set to zero in the tensor that belongs to the caller.

    Blocked values have no influence, so the outputs of real tokens are right. But the caller's
    tensor has changed: a residual connection adds zeros, and a second layer that should see the
    same input sees another one. `masked_fill_` and `masked_fill` differ by one underscore.
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
        if key_padding_mask is not None:
            rows = key_padding_mask if self.batch_first else key_padding_mask.transpose(0, -1)
            value.masked_fill_(rows.bool().unsqueeze(-1), 0)
        return super().forward(query, key, value, key_padding_mask, *arguments, **options)


@mistake(
    wrong="def __call__(self, query, key, value):",
    right="def forward(self, query, key, value):",
)
class CallInsteadOfForward(MultiheadAttention):
    """The class defines `__call__`, and so replaces PyTorch's own, which runs the hooks.

    Calling the module still gives the right result. But nothing that relies on hooks ever runs:
    profilers, pruning, sharding, the recording of activations. None of these tools raises an error;
    they have no effect.
    """

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.forward(*arguments, **options)
