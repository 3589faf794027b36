"""Call an attention again as a model has called it, with other hidden states."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attention_doctor.adapters import Adapted
from attention_doctor.patient import Failed, Inputs, NotAsked, Patient
from attention_doctor.recording import Call, samples_first, tensors
from attention_doctor.rotations import continued

_OTHER_SIZES = "it fails with another number of samples or tokens than the model gave it"
_HIDES = -1e4  # no learned bias, but a mask that has been added to it


class Unfit(NotAsked, Failed):
    """It works as the model called it, and not with fewer samples or tokens, or with more."""


class Replayed(Patient):
    """Asks at the sizes that the model used, and at others where they work."""

    def ask(self, inputs: Inputs, blocked: Tensor | None = None, gradient: bool = False) -> Tensor:
        """Call it again; what fails at other sizes than the model's is not asked."""
        try:
            return super().ask(inputs, blocked, gradient)
        except Failed as failure:
            if (*inputs.query.shape[:2], inputs.value.size(1)) == (self.b, self.n, self.m):
                raise
            raise Unfit(_OTHER_SIZES, failure.error) from failure

    def ask_for(self, call: Callable[..., Any], x: Tensor, *rest: Any) -> Tensor:
        """Ask for what it can do besides; where that fails, it is not asked."""
        try:
            return super().ask_for(call, x, *rest)
        except Failed as failure:
            raise Unfit(_OTHER_SIZES, failure.error) from failure


class Replay:
    """An attention, and what a model gave it besides its hidden states.

    Attributes:
        call: the call that is made again.
        kind: ``"self"``, ``"memory"`` or ``"cross"``, by how many hidden states differ.
        sizes: how many samples, queries and keys the model gave it.
        mask_name: the name of its mask; None if the model gave it none, or has added it to a bias,
            which then hides nothing.
    """

    def __init__(self, call: Call) -> None:
        """Keep a call."""
        self.call = call
        states = [call.arguments[name] for name in call.states]
        distinct = list({id(x): x for x in states}.values())
        self._places = [next(i for i, x in enumerate(distinct) if x is state) for state in states]
        self.kind = ("self", "memory", "cross")[len(distinct) - 1] if len(distinct) < 4 else ""
        self._samples_first = samples_first(call.module)
        query, key = self._turned(states[0]), self._turned(states[-1])
        self.sizes = query.size(0), query.size(1), key.size(1)
        over_keys = {name: x for name, x in call.arguments.items() if self._ends(x)}
        masks = [name for name, x in over_keys.items() if "mask" in name or x.dtype == torch.bool]
        biased = any("bias" in name and bool((x < _HIDES).any()) for name, x in over_keys.items())
        self.mask_name = masks[0] if masks and not biased else None

    @property
    def hiding(self) -> list[str]:
        """The arguments that may hide keys and stay as they are: whole numbers, truth values."""
        return [
            name
            for name, x in self.call.arguments.items()
            if isinstance(x, Tensor) and not x.is_floating_point() and not x.is_complex()
            and name != self.mask_name and "pos" not in name
        ]  # fmt: skip

    def _turned(self, x: Tensor) -> Tensor:
        """Bring (n, b, e) to (b, n, e), or back, where the module says that it takes the former."""
        return x if self._samples_first else x.transpose(0, 1)

    def _ends(self, value: Any) -> bool:
        """Tell whether an argument is a tensor whose last axis are the keys."""
        return isinstance(value, Tensor) and value.dim() > 1 and value.size(-1) == self.sizes[2]

    def attend(self, masked: bool) -> Adapted:
        """Make what the examination calls.

        Args:
            masked: whether it takes ``blocked``, in the form of the model's mask; if not, the mask
                blocks nothing.
        """
        count = 1 + max(self._places)

        def call(*inputs: Tensor | None, **turned: Any) -> Any:
            states = [x for x in inputs[:count] if x is not None]
            blocked = inputs[count] if len(inputs) > count else None
            sizes = states[0].size(0), states[0].size(1), states[-1].size(1)
            arguments = self.call.arguments.items()
            given = {name: self._fitted(name, x, sizes, states[0].dtype) for name, x in arguments}
            for name, place in zip(self.call.states, self._places, strict=True):
                given[name] = self._turned(states[place])
            given |= turned
            if self.mask_name is not None:
                if blocked is None:
                    blocked = torch.zeros(sizes, dtype=torch.bool)
                given[self.mask_name] = self._formed(blocked, states[0].dtype)
            return self._turned(next(tensors(self.call.module(**given))))

        masks = ("padding" if self._is_padding() else "any") if masked else "none"
        adapted = Adapted(call, self.call.module, masks, required=masked)
        turn = continued(self.call.arguments, self.sizes[1]) if self.kind == "self" else None
        if turn is not None:
            adapted.at_positions = lambda x, positions: call(x, **turn(positions, x.dtype))  # type: ignore[attr-defined]
        return adapted

    def _fitted(self, name: str, value: Any, sizes: tuple[int, ...], dtype: torch.dtype) -> Any:
        """Cut an argument to the samples and tokens that there are, and give it their dtype."""
        if isinstance(value, tuple | list):
            return type(value)([self._fitted(name, part, sizes, dtype) for part in value])
        if not isinstance(value, Tensor):
            return copy.deepcopy(value)  # a call changes its cache
        if value.is_floating_point():
            value = (torch.zeros_like(value) if name == "residual" else value).to(dtype)
            if "bias" in name:
                value = value.masked_fill(value < _HIDES, 0.0)
        elif value.is_complex() and dtype == torch.float64:
            value = value.to(torch.complex128)
        return self._cut(name, value, sizes)

    def _cut(self, name: str, value: Tensor, sizes: tuple[int, ...]) -> Tensor:
        """Keep the first samples and tokens, along the axes that seem to be theirs."""
        changes = dict(zip(self.sizes, sizes, strict=True))
        axes = {axis: size for axis, size in enumerate(value.shape) if size in self.sizes[1:]}
        if value.dim() > 1 and value.size(0) == self.sizes[0]:
            value = value[: sizes[0]]
            axes.pop(0, None)
        pairs = any(part in name for part in ("mask", "bias", "alibi"))
        for axis in [*axes][-2:] if pairs else [*axes][:1]:
            value = value.narrow(axis, 0, min(value.size(axis), changes[axes[axis]]))
        return value

    @property
    def _recorded(self) -> Tensor:
        return self.call.arguments[str(self.mask_name)]

    def _is_padding(self) -> bool:
        """Tell whether the mask is the same for all queries."""
        mask, (samples, tokens, _) = self._recorded, self.sizes
        if mask.dim() == 2:
            return mask.size(0) == samples != tokens or "padding" in str(self.mask_name)
        return mask.size(-2) == 1

    def blocked(self) -> Tensor | None:
        """Give what the model's own mask hides, (b or 1, n, n); None if it has no such mask."""
        if self.mask_name is None or self._is_padding():
            return None
        given = self._recorded.detach()
        given = given.flatten(0, -3) if given.dim() > 2 else given[None]
        if given.is_floating_point():
            return given < -1
        return given.bool() ^ _true_means_allowed(given)

    def _formed(self, blocked: Tensor, dtype: torch.dtype) -> Tensor:
        """Give a mask the form of the recorded one: its axes, its dtype and its meaning."""
        mask, heads = self._recorded, self.call.num_heads
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
