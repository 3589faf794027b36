"""Masks that people hand to PyTorch, and what becomes of each behind five of its doors, measured.

Every text is eight one-hot words and no module projects anything, so that an output is weights.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from annotated_attention import split_heads
from annotated_book.display.behind_doors import Fate, Handed

WEIGHTS, FUSED, FAST = "class, weights", "class, no weights", "class, evaluated"
LAYER, FUNCTION = "encoder layer, evaluated", "the function"
DOORS = (WEIGHTS, FUSED, FAST, LAYER, FUNCTION)
B = H = 2
M = 8
ONE_HOT = torch.eye(M).repeat(1, H).expand(B, M, H * M).contiguous()  # (b, m, h * d)
_RENAMED = {"attn_mask": "src_mask", "key_padding_mask": "src_key_padding_mask"}
_FAST_ONES = {"_native_multi_head_attention", "_transformer_encoder_layer_fwd"}

_short = ("the", "milk", "was", "sweet")
_long = ("the", "cat", "drank", "milk", "because", "it", "was", "thirsty")
_padding = torch.arange(M) >= torch.tensor([[M], [4]])  # (b, m), True for padding
_future = torch.ones(M, M).bool().triu(1)               # (n, m)
_document = torch.arange(M) // 4                        # (m,)
_eye = torch.eye(M).bool()                              # (n, m)
_steps = (torch.arange(M)[:, None] - torch.arange(M)).abs().float()
# What the lines that are shown may use.
NAMES: dict[str, Any] = {
    "inf": torch.inf,
    "torch": torch,
    **{"b": B, "h": H, "m": M},
    "padding": _padding,
    "words": ~_padding,
    "ones": (~_padding).long(),
    "per_sample": _padding[:, None].expand(B, M, M),
    "left": _padding.flip(1),
    "future": _future,
    "blocked": _future | (_document[:, None] != _document),
    "steps": -_steps,
    "eye": _eye,
}


class Text(NamedTuple):
    """The second of two samples, the place of the word that asks, and what is blocked.

    Attributes:
        words: of the sample.
        asks: the place of the word.
        blocked: for every query and key, in one sample or in both.
    """

    words: Sequence[str]
    asks: int
    blocked: Tensor


class Case(NamedTuple):
    """A mask: what it is an example of, and the arguments of the class and of the function."""

    group: str
    text: Text
    of_class: str
    of_function: str
    class_mended: str = ""
    function_mended: str = ""


_PADDED = Text((*_short, *["pad"] * 4), 3, NAMES["per_sample"])
_LEFT = Text((*["pad"] * 4, *_short), 0, _future | NAMES["left"][:, None])
_CAUSAL, _NEWEST = Text(_long, -1, _future), Text(_long, -1, _future[-3:])
_FAR = Text(_long, -1, torch.zeros(M, M).bool())
TWO_TEXTS = Text((*_short, *_long[:4]), -1, NAMES["blocked"])
_TURN, _WHOSE, _ADD = (
    "Which way round is True?",
    "Whose mask does a head get?",
    "Booleans or floats?",
)
_EMPTY, _FLAG = "A row with nothing left", "The flag"
_KEYS, _SEEN = "key_padding_mask=", "attn_mask="
_low = "torch.zeros(b, m).masked_fill(padding, -inf)"
_each = ("attn_mask=per_sample.repeat_interleave(h, 0)", "attn_mask=~per_sample[:, None]")
_own = "future | left[:, None] & ~eye"


def _both(mask: str) -> tuple[str, str]:
    """Hand one padding mask to the class and to the function."""
    return f"{_KEYS}{mask}", f"{_SEEN}{mask}[:, None, None]"


CASES: Mapping[str, Case] = {
    "True is padding": Case(
        _TURN, _PADDED, *_both("padding"), "", "attn_mask=~padding[:, None, None]"
    ),
    "True is a word": Case(_TURN, _PADDED, *_both("words"), "key_padding_mask=~words"),
    "1 is a word, 0 is padding": Case(
        _TURN,
        _PADDED,
        *_both("ones"),
        "key_padding_mask=~ones.bool()",
        "attn_mask=ones.bool()[:, None, None]",
    ),
    "(b, n, m), where b = h": Case(
        _WHOSE, _PADDED, "attn_mask=per_sample", "attn_mask=~per_sample", *_each
    ),
    "(b, n, m), repeated h times": Case(
        _WHOSE,
        _PADDED,
        "attn_mask=per_sample.repeat(h, 1, 1)",
        "attn_mask=~per_sample.repeat(h, 1, 1)",
        *_each,
    ),
    "padding.float()": Case(_ADD, _PADDED, *_both("padding.float()"), *_both(_low)),
    "padding * -inf": Case(_ADD, _PADDED, *_both("(padding * -inf)"), *_both(_low)),
    "zeros, −∞ for padding": Case(_ADD, _PADDED, *_both(_low)),
    "−1 for each step apart": Case(_ADD, _FAR, "attn_mask=steps", "attn_mask=steps"),
    "padding on the left, causal": Case(
        _EMPTY,
        _LEFT,
        "attn_mask=future, key_padding_mask=left",
        "attn_mask=~(future | left[:, None])[:, None]",
        f"attn_mask=({_own}).repeat_interleave(h, 0)",
        f"attn_mask=~({_own})[:, None]",
    ),
    "two texts, with the flag": Case(
        _FLAG,
        TWO_TEXTS,
        "attn_mask=blocked, is_causal=True",
        "attn_mask=~blocked, is_causal=True",
        "attn_mask=blocked",
    ),
    "the flag alone": Case(
        _FLAG, _CAUSAL, "is_causal=True", "is_causal=True", "attn_mask=future, is_causal=True"
    ),
    "3 newest words, the flag alone": Case(
        _FLAG,
        _NEWEST,
        "is_causal=True",
        "is_causal=True",
        "attn_mask=future[-3:]",
        "attn_mask=~future[-3:]",
    ),
    "3 newest words, with the flag": Case(
        _FLAG,
        _NEWEST,
        "attn_mask=future[-3:], is_causal=True",
        "attn_mask=~future[-3:], is_causal=True",
        "attn_mask=future[-3:]",
        "attn_mask=~future[-3:]",
    ),
}


def handed() -> dict[str, Handed]:
    """Hand every mask over at every door."""
    found = {}
    for title, case in CASES.items():
        fates = [fate(door, arguments(door, case), case.text) for door in DOORS]
        mend = {"the class": case.class_mended, "the function": case.function_mended}
        if "hides" in [x.verdict for x in fates[:4]] and not case.class_mended:
            mend["the layer"] = "torch.backends.mha.set_fastpath_enabled(False)"
        found[title] = Handed(
            case.group,
            fates,
            case.text.words,
            (~case.text.blocked.expand(B, -1, M)[1, case.text.asks]).tolist(),
            {"the class": case.of_class, "the function": case.of_function},
            {kind: line for kind, line in mend.items() if line},
            case.text.asks,
        )
    return found


def arguments(door: str, case: Case, mended: bool = False) -> str:
    """Give the line that a door gets."""
    if door == FUNCTION:
        return case.function_mended if mended and case.function_mended else case.of_function
    return case.class_mended if mended and case.class_mended else case.of_class


def fate(door: str, line: str, text: Text) -> Fate:
    """Hand a mask over at a door, and say what becomes of it.

    Args:
        door: one of DOORS.
        line: the arguments of the call, as code.
        text: who asks, and what the mask means.
    """
    given, recorder = eval(f"dict({line})", NAMES), _Recorder()
    n = text.blocked.size(-2)
    if door == LAYER and n < M:
        return Fate("")
    try:
        with recorder:
            weights = weights_at(door, n, given).detach()  # (b, h, n, m)
    except (AssertionError, RuntimeError) as error:
        return Fate("error", note=str(error).partition(". ")[0])
    fast = not _FAST_ONES.isdisjoint(recorder.ran)
    lost = weights.isnan().any(-1).any(1)  # (b, n)
    if lost.any():
        note = f"NaN in {lost.sum()} of {lost.numel()} rows"
        if lost[0].all() and not lost[1].any():
            note += ", all of the other text: it has no padding, so all its keys are hidden"
        return Fate("NaN", note=note, fast=fast)
    sees = weights > 1e-5                             # (b, h, n, m)
    may = ~text.blocked.expand(B, n, M).unsqueeze(1)  # (b, 1, n, m)
    verdict = "leaks" if (sees & ~may).any() else "hides" if (may & ~sees).any() else "right"
    if verdict == "right" and not sees.any(-1).all():
        verdict = "zeros"
    return Fate(verdict, sees[1, :, text.asks].any(0).tolist(), fast=fast)


def weights_at(door: str, n: int, given: Mapping[str, Any]) -> Tensor:
    """Give the weights of the newest n queries at one door.

    Args:
        door: one of DOORS.
        n: how many of the words ask.
        given: the arguments that say what is masked.

    Returns:
        weights: (b, h, n, m).
    """
    query = ONE_HOT if n == M else ONE_HOT[:, -n:]
    if door == FUNCTION:
        q, k = split_heads(query, H), split_heads(ONE_HOT, H)
        return F.scaled_dot_product_attention(q, k, k, **given)
    with torch.set_grad_enabled(door in (WEIGHTS, FUSED)):
        if door == LAYER:
            given = {_RENAMED.get(name, name): mask for name, mask in given.items()}
            return split_heads(_layer()(ONE_HOT, **given) - ONE_HOT, H)
        module = see_through(nn.MultiheadAttention(H * M, H, batch_first=True))
        module.train(door != FAST)
        output = module(query, ONE_HOT, ONE_HOT, need_weights=door == WEIGHTS, **given)[0]
        return split_heads(output, H)


def see_through(attention: nn.MultiheadAttention) -> nn.MultiheadAttention:
    """Let a class project nothing: of one-hot words, its output then is its weights."""
    own = torch.eye(attention.embed_dim)
    with torch.no_grad():
        attention.in_proj_weight.copy_(own.repeat(3, 1))
        attention.out_proj.weight.copy_(own)
    return attention


def _layer() -> nn.TransformerEncoderLayer:
    """Make an encoder layer that adds to one-hot words the weights of its class."""
    layer = nn.TransformerEncoderLayer(H * M, H, 4, 0.0, batch_first=True, norm_first=True)
    see_through(layer.self_attn)
    with torch.no_grad():
        normed = layer.norm1(ONE_HOT[0, 0])
        wide = normed.max() - normed.min()
        layer.norm1.bias.copy_((-normed.min() / wide).expand(H * M))
        layer.norm1.weight.copy_((1 / wide).expand(H * M))
        layer.linear2.weight.zero_()
        layer.linear2.bias.zero_()
    return layer.eval()


class _Recorder(TorchDispatchMode):
    """Write down which operations run."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.ran.add(str(func).removeprefix("aten.").partition(".")[0])
        return func(*args, **(kwargs or {}))
