"""Call an attention again as a model has called it, with other hidden states."""

import copy
from typing import Any

import torch
from torch import Tensor

from annotated_attention.doctor.adapters import Adapted
from annotated_attention.doctor.patient import Failed, Inputs, NotAsked, Patient
from annotated_attention.doctor.recording import Call, tensors


class Unfit(NotAsked, Failed):
    """It works as the model called it, and not with fewer samples or tokens, or with more."""


class Replayed(Patient):
    """Asks at the sizes that the model used, and at others where they work."""

    def ask(self, inputs: Inputs, blocked: Tensor | None = None, gradient: bool = False) -> Tensor:
        """Call it again; what fails at other sizes than the model's is not asked."""
        try:
            return super().ask(inputs, blocked, gradient)
        except Failed as failure:
            if inputs.query.shape[:2] == (self.b, self.n):
                raise
            reason = "it fails with another number of samples or tokens than the model gave it"
            raise Unfit(reason, failure.error) from failure


class Replay:
    """A self-attention, and what a model gave it besides its hidden states.

    Attributes:
        call: the call that is made again.
        sizes: how many samples and tokens the model gave it.
        mask: the name of its mask; None if the model gave it none, or if a bias beside it may hold
            the mask already.
    """

    def __init__(self, call: Call) -> None:
        """Keep a call."""
        self.call = call
        b, n, _ = call.arguments[call.states[0]].shape
        self.sizes = b, n
        masks = [name for name, x in call.arguments.items() if "mask" in name and self._ends(x)]
        others = [x for name, x in call.arguments.items() if name not in (*masks, *call.states)]
        biased = any(self._ends(x) and x.dim() > 2 and x.size(-2) == n for x in others)
        self.mask = masks[0] if masks and not biased else None

    def _ends(self, value: Any) -> bool:
        """Tell whether an argument is a tensor whose last axis are the keys."""
        return isinstance(value, Tensor) and value.dim() > 1 and value.size(-1) == self.sizes[1]

    def attend(self, masked: bool) -> Adapted:
        """Make what the examination calls.

        Args:
            masked: whether it takes ``blocked``, in the form of the model's mask; if not, the mask
                blocks nothing.
        """

        def call(x: Tensor, blocked: Tensor | None = None) -> Any:
            arguments = self.call.arguments.items()
            given = {name: self._fitted(name, value, x) for name, value in arguments}
            given[self.call.states[0]] = x
            if self.mask is not None:
                if blocked is None:
                    blocked = x.new_zeros((*x.shape[:2], x.size(1)), dtype=torch.bool)
                given[self.mask] = self._formed(blocked, x.dtype)
            return next(tensors(self.call.module(**given)))

        masks = ("padding" if self._is_padding() else "any") if masked else "none"
        return Adapted(call, self.call.module, masks, required=masked)

    def _fitted(self, name: str, value: Any, x: Tensor) -> Any:
        """Cut an argument to the samples and tokens that there are, and give it their dtype."""
        if isinstance(value, tuple | list):
            return type(value)([self._fitted(name, part, x) for part in value])
        if not isinstance(value, Tensor):
            return copy.deepcopy(value)  # a call changes its cache
        if value.is_floating_point():
            value = torch.zeros_like(value) if name == "residual" else value
            value = value.to(x.dtype)
        elif value.is_complex() and x.dtype == torch.float64:
            value = value.to(torch.complex128)
        samples, tokens = self.sizes
        axes = [axis for axis, size in enumerate(value.shape) if size == tokens]
        if value.dim() > 1 and value.size(0) == samples:
            value, axes = value[: len(x)], [axis for axis in axes if axis]
        pairs = any(part in name for part in ("mask", "bias", "alibi"))
        for axis in axes[-2:] if pairs else axes[:1]:
            value = value.narrow(axis, 0, min(tokens, x.size(1)))
        return value

    def _recorded(self) -> Tensor:
        assert self.mask is not None
        mask: Tensor = self.call.arguments[self.mask]
        return mask

    def _is_padding(self) -> bool:
        """Tell whether the mask is the same for all queries."""
        mask, (samples, tokens) = self._recorded(), self.sizes
        if mask.dim() == 2:
            return mask.size(0) == samples != tokens or "padding" in str(self.mask)
        return mask.size(-2) == 1

    def blocked(self) -> Tensor | None:
        """Give what the model's own mask hides, (b or 1, n, n); None if it has no such mask."""
        if self.mask is None or self._is_padding():
            return None
        mask = self._recorded().detach()
        mask = mask.flatten(0, -3) if mask.dim() > 2 else mask[None]
        if mask.is_floating_point():
            return mask < -1
        return mask.bool() ^ _true_means_allowed(mask)

    def _formed(self, blocked: Tensor, dtype: torch.dtype) -> Tensor:
        """Give a mask the form of the recorded one: its axes, its dtype and its meaning."""
        mask, heads = self._recorded(), self.call.num_heads
        if self._is_padding():
            blocked = blocked[:, :1]
        if mask.dim() == 2:
            blocked = blocked[:, 0] if self._is_padding() else blocked[0]
        elif mask.dim() == 4:
            blocked = blocked[:, None].expand(-1, mask.size(1), -1, -1)
        elif mask.size(0) == self.sizes[0] * heads != self.sizes[0]:
            blocked = blocked.repeat_interleave(heads, 0)
        if not mask.is_floating_point():
            return (blocked ^ _true_means_allowed(mask)).to(mask.dtype)
        lowest = torch.finfo(dtype).min
        fill = float(mask.min()) if mask.min() < -1 else lowest
        fill = fill if fill == float("-inf") else max(fill, lowest)
        return torch.zeros(blocked.shape, dtype=dtype).masked_fill(blocked, fill)


def _true_means_allowed(mask: Tensor) -> bool:
    """Tell what True means in a mask: the past is seen, each token itself, and most keys."""
    if mask.size(-1) != mask.size(-2):
        return bool(mask.double().mean() > 0.5)
    past, future = mask.tril(-1).count_nonzero(), mask.triu(1).count_nonzero()
    if past != future:
        return bool(past > future)
    return bool(mask.diagonal(dim1=-2, dim2=-1).double().mean() > 0.5)
