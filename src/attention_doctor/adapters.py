"""Adapt attention with another layout and other masks to the call that the doctor makes.

The doctor calls ``attend(query, key, value, blocked)``, or with fewer tensors, by the kind. What
takes other arguments is put into a function or a lambda with these.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from annotated_attention.masks import block_future
from attention_doctor.call.forms import Layout, MaskForm, output_of
from attention_doctor.call.inputs import Failed

__all__ = ["Adapted", "adapt", "torch_like"]
# What a callable may be able to do besides.
ABILITIES = ("packed", "start", "step")


class Adapted:
    """A callable that knows its module and which masks it takes.

    Attributes:
        module: holds the parameters, hooks and modes; None if there is no module.
        masks: ``"any"``, a mask for every sample and query; ``"shared"``, the same for all samples;
            ``"padding"``, the same for all queries; ``"apart"``, masks of the last two kinds, and
            none that differs between both; ``"none"``; "" where nobody says.
        mask_error: what every call with a mask raises; None where a mask can be given, or none is
            taken.
        masked: makes the same with a form of mask, for a number of heads; None where it is said.
    """

    def __init__(self, attend: Callable[..., Any], inner: object, masks: str = "") -> None:
        """Take a function, and the module or function that it is built around."""
        self.attend, self.module, self.name = attend, module_of(inner), name_of(inner)
        self.masks = masks
        self.mask_error: Failed | None = None
        self.window = 0  # which it is said to have
        self.rotation: tuple[str, ...] = ()  # its arguments that turn queries and keys
        self.said = ""  # of the form of its mask
        self.masked: Callable[[str, int], Adapted] | None = None

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Call the adapted function."""
        return self.attend(*inputs, **options)


def module_of(attend: object) -> nn.Module | None:
    """Return the module behind a callable, or None."""
    module = attend if isinstance(attend, nn.Module) else getattr(attend, "module", None)
    module = getattr(attend, "__self__", None) if module is None else module  # a bound method
    return module if isinstance(module, nn.Module) else None


def name_of(attend: object) -> str:
    """Return the name of a callable for the report."""
    for name in (getattr(attend, "name", None), getattr(attend, "__name__", None)):
        if isinstance(name, str):
            return name
    return type(attend).__name__


def adapt(
    attend: Callable[..., Any],
    layout: str = "bne",
    mask: str = "",
    *,
    module: nn.Module | None = None,
    num_heads: int | None = None,
    window: int = 0,
    **abilities: Any,
) -> Adapted:
    """Adapt a module or a function that takes its tensors in order, and the mask last.

    Args:
        attend: what to call; for other arguments, a function or a lambda around it.
        layout: the axes of its tensors and of its result: b samples, n tokens, e width, or h and d
            in its place where heads are split; ``"nbe"``, ``"bhnd"``, ``"ben"``.
        mask: its axes, such as ``"bnm"``, ``"b1nm"``, ``"nm"``, ``"bm"`` or ``"(bh)nm"``, and what
            it says: ``blocked`` or ``allowed`` for what True means, or ``additive``, 0 and −∞; with
            ``int`` or ``float`` True is 1 (``additive int`` is 0 and −10000); with ``always`` a
            mask must be given. ``"none"``: it takes no mask. What is not said is ``bnm blocked``,
            and where that fails or ``"inferred"`` is said, the command and ``assert_attention``
            infer it.
        module: holds the parameters; None means ``attend``, or the module whose method it is.
        num_heads: h, where the layout or the mask has it.
        window: how many tokens each sees under a causal mask, itself among them; 0 means all, or
            that nobody says.
        **abilities: what it can do besides: ``packed``, ``start`` and ``step``.

    Returns:
        What ``examine`` can call.

    Raises:
        ValueError: the layout or the mask cannot be read.
        TypeError: there is no such ability.

    Examples:
        >>> import torch
        >>> from attention_doctor import adapt, examine
        >>> def attend(query, key, value, allowed):
        ...     q, k, v = (x.unflatten(-1, (4, 6)).transpose(1, 2) for x in (query, key, value))
        ...     output = torch.nn.functional.scaled_dot_product_attention(q, k, v, allowed)
        ...     return output.transpose(1, 2).flatten(2)
        >>> examine(adapt(attend, mask="b1nm allowed"), embed_dim=24, num_heads=4).ok
        True
        >>> examine(adapt(attend, mask="b1nm blocked"), embed_dim=24, num_heads=4).codes
        ('mask-inverted',)
    """
    if unknown := [name for name in abilities if name not in ABILITIES]:
        raise TypeError(f"there is no {', '.join(unknown)}; abilities: {', '.join(ABILITIES)}")
    form = MaskForm.read(mask.replace("inferred", "")) if mask != "none" else None
    axes = Layout.read(layout, num_heads)

    def call(*inputs: Any) -> Any:
        masked = len(inputs) > 1 and (inputs[-1] is None or inputs[-1].dtype == torch.bool)
        tokens = inputs[:-1] if masked else inputs
        turned = {id(x): axes.into(x) for x in tokens}  # what is one tensor stays one
        given: list[Tensor | None] = [turned[id(x)] for x in tokens]
        if masked and form is not None:
            blocked = inputs[-1]
            if blocked is None and form.required:
                shape = (*tokens[0].shape[:2], tokens[-1].size(1))
                blocked = torch.zeros(shape, dtype=torch.bool, device=tokens[0].device)
            made = None if blocked is None else form.make(blocked, num_heads, tokens[0].dtype)
            given.append(made)
        output, rest = output_of(attend(*given), axes.into(tokens[0]).shape)
        return (axes.back(output), *rest)

    as_it_is = layout == "bne" and form == MaskForm()
    masks = "none" if form is None else form.masks
    adapted = Adapted(attend if as_it_is else call, module or attend, masks)
    adapted.window = window
    if not mask or "inferred" in mask:
        options = {"module": adapted.module, "window": window, **abilities}
        adapted.said = mask
        adapted.masked = lambda said, h: adapt(attend, layout, said, num_heads=h, **options)
    for name, ability in abilities.items():
        setattr(adapted, name, ability)
    return adapted


def torch_like(
    module: nn.Module,
    kind: str = "cross",
    *,
    batch_first: bool | None = None,
    masks: str = "",
    **options: Any,
) -> Adapted:
    """Adapt a module with the arguments of ``torch.nn.MultiheadAttention``, in either layout.

    A mask that is the same for all queries goes in as ``key_padding_mask``, any other as
    ``attn_mask``, so that both are examined. Kind ``"causal"`` passes ``is_causal=True`` alone,
    or the mask alone to PyTorch's own class and to a ``forward`` without ``is_causal``.

    Args:
        module: the module; it has ``num_heads`` and may have ``batch_first``.
        kind: as in ``examine``.
        batch_first: whether it takes (b, n, e) and not (n, b, e); None means what its
            ``batch_first`` says, and True where it has none.
        masks: as in ``Adapted``; "" means any.
        **options: passed on, such as ``need_weights=False``.

    Examples:
        >>> import torch
        >>> from attention_doctor import adapters, examine
        >>> module = torch.nn.MultiheadAttention(24, 4)  # (n, b, e)
        >>> report = examine(adapters.torch_like(module), embed_dim=24, num_heads=4)
        >>> report.ok, report.codes
        (True, ('nan-row',))
    """
    if batch_first is None:
        batch_first = getattr(module, "batch_first", True)
    flag = kind == "causal" and "is_causal" in inspect.signature(module.forward).parameters
    flag = flag and not isinstance(module, nn.MultiheadAttention)
    given = {"is_causal": True, **options} if flag else options

    axes = Layout("bne" if batch_first else "nbe")

    def call(*inputs: Any) -> Any:
        *tokens, blocked = inputs if kind != "causal" else (*inputs, None)
        if kind == "causal" and not flag:
            b, n, _ = inputs[0].shape
            blocked = block_future(n, device=inputs[0].device).expand(b, -1, -1)
        turned = [axes.into(x) for x in tokens]
        query, key, value = (turned[0], turned[-1 if len(tokens) < 3 else 1], turned[-1])
        result = module(query, key, value, **_torch_masks(module, blocked), **given)
        output, *rest = result if isinstance(result, tuple) else (result,)
        return axes.back(output), *rest

    return Adapted(call, module, "none" if kind == "causal" else masks)


def _torch_masks(module: Any, blocked: Tensor | None) -> dict[str, Tensor]:
    if blocked is None:
        return {}
    if bool((blocked == blocked[:, :1]).all()):
        return {"key_padding_mask": blocked[:, 0]}
    if bool((blocked == blocked[:1]).all()):
        return {"attn_mask": blocked[0]}
    return {"attn_mask": blocked.repeat_interleave(module.num_heads, 0)}
