"""What a call takes besides tokens and a mask: rotations, positions, biases, caches, settings."""

import argparse
import inspect
import itertools
import re
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attention_doctor.expressions import at_positions, for_call
from attention_doctor.names import plain_name, role_of, usual
from attention_doctor.options import Expression
from attention_doctor.recording import tensors


@dataclass(frozen=True)
class Made:
    """An argument that is made for each call.

    Attributes:
        make: takes x, the context, and the positions of x, (n,), and returns the argument.
        says: what it is, for the report.
        turns: whether it says where the tokens stand.
    """

    make: Callable[[Tensor, Tensor, Tensor], Any]
    says: str
    turns: bool = False


class Unturned:
    """Stands for an object that rotates: whatever it is asked to do, it gives back what it got."""

    def __call__(self, *given: Any, **options: Any) -> Any:
        """Return the tensors unchanged, those of one call together."""
        tensors = [x for x in (*given, *options.values()) if isinstance(x, Tensor)]
        floats = [x for x in tensors if x.is_floating_point()]
        return floats[0] if len(floats) == 1 else tuple(floats)

    def __getattr__(self, name: str) -> Any:
        """Give a method of any name."""
        if name.startswith("__"):
            raise AttributeError(name)
        return self.__call__


def angles(positions: Tensor, width: int) -> Tensor:
    """Return the angle by which each pair of features is rotated, (n, width / 2)."""
    rates = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    return positions.double()[:, None] * rates


def _placed(form: str, width: int, *functions: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    """Give each number that belongs to a pair of features and a token the axes that are asked."""

    def made(x: Tensor, context: Tensor, positions: Tensor) -> Any:
        angle = angles(positions, width)
        if "d" in form.split():
            angle = torch.cat([angle, angle], -1)
        if "dd" in form.split():
            angle = angle.repeat_interleave(2, -1)
        before, _, behind = form.partition("n")
        for axis in before.split():
            angle = angle.expand(x.size(0) if axis == "b" else 1, *angle.shape)
        if "1" in behind.split():
            angle = angle.unsqueeze(-2)
        found = tuple(function(angle).to(x.dtype) for function in functions)
        return found if len(found) > 1 else found[0]

    return made


_UNIT = 1e-3  # how far cosines and sines of an angle may be from a point on the unit circle
_COMBINATIONS = 300  # that are tried
_FORMS = (
    "b n d",
    "n d",
    "n d/2",
    "1 n d",
    "1 1 n d",
    "1 1 n d/2",
    "n dd",
    "1 n d/2",
    "b n dd",
    "1 n 1 d/2",
    "1 n 1 d",
    "n 1 d/2",
    "n 1 d",
)


def _turning(width: int, says: str, *functions: Callable[[Tensor], Tensor]) -> list[Made]:
    """Make functions of the angles, one or a tuple of them, in each form."""
    return [
        Made(_placed(form, width, *functions), f"{says} ({form.replace(' ', ', ')})", True)
        for form in _FORMS
        if width > 2 or not form.endswith("d/2")  # else it fits by chance, since it is broadcast
    ]


def _pairs(width: int) -> list[Made]:
    return _turning(width, "(cos, sin), each", torch.cos, torch.sin)


def _angles(width: int) -> list[Made]:
    return _turning(width, "angles", lambda angle: angle)


def _complex(width: int) -> list[Made]:
    def turn(x: Tensor, context: Tensor, positions: Tensor) -> Tensor:
        angle = angles(positions, width)
        return torch.polar(torch.ones_like(angle), angle).to(
            torch.complex128 if x.dtype == torch.float64 else torch.complex64
        )

    def matrices(x: Tensor, context: Tensor, positions: Tensor) -> Tensor:
        by = turn(x, context, positions)
        rows = torch.stack([by.real, -by.imag, by.imag, by.real], -1)
        return rows.unflatten(-1, (2, 2))[None, None].to(x.dtype)

    return [
        Made(turn, "complex (n, d / 2)", True),
        Made(lambda x, y, at: turn(x, y, at).expand(x.size(0), -1, -1), "complex (b, n, d / 2)",
             True),
        Made(lambda x, y, at: torch.view_as_real(turn(x, y, at)).to(x.dtype), "(n, d / 2, 2)",
             True),
        Made(matrices, "matrices (1, 1, n, d / 2, 2, 2)", True),
    ]  # fmt: skip


def given(further: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Make what is given as expressions; what rotates can then be computed for any positions."""
    made = {x: said(y, options) if type(y) is Expression else y for x, y in further.items()}
    texts = {name: x for name, x in further.items() if type(x) is Expression}
    for count in (1, 2):  # a tuple or complex numbers, or cosines and sines
        for names in itertools.combinations(texts, count):
            if _rotate([texts[name] for name in names], options):
                made |= {name: _rotation(texts[name], options) for name in names}
    return made


def _rotation(text: Expression, options: argparse.Namespace) -> Made:
    e, h = options.embed_dim, options.num_heads

    def make(x: Tensor, context: Tensor, positions: Tensor) -> Any:
        return at_positions(text, {"b": x.size(0), "e": e, "h": h, "d": e // h}, positions, x.dtype)

    return Made(make, text, True)


def _rotate(texts: list[Expression], options: argparse.Namespace) -> bool:
    """Tell whether these are rotations by angles that differ between positions."""
    x, places = torch.zeros(2, 2, options.embed_dim), torch.arange(3 * options.max_length + 7)
    try:
        made = [_rotation(text, options).make(x, x, places) for text in texts]
        still = [_rotation(text, options).make(x, x, 0 * places) for text in texts]
    except Exception:  # it has no row for each position
        return False
    found = [*tensors(made)]
    if all(map(torch.equal, found, tensors(still))):
        return False
    if len(found) == 1 and not found[0].is_complex():
        found = [*found[0].unbind(-1)] if found[0].size(-1) == 2 else []
    if not found or len(found) > 2 or len({y.shape for y in found}) > 1:
        return False
    length = sum(y.abs() ** 2 for y in found)
    return bool((torch.as_tensor(length) - 1).abs().max() < _UNIT)


def said(text: Any, options: argparse.Namespace) -> Made:
    """Make an argument of an expression, for the sizes of each call."""
    text = Expression(text) if type(text) is str else text
    e, h = options.embed_dim, options.num_heads

    def make(x: Tensor, context: Tensor, positions: Tensor) -> Any:
        b, n, m = x.size(0), x.size(1), context.size(1)
        sizes = {"b": b, "n": n, "m": m, "e": e, "h": h, "d": e // h}
        return for_call(text, sizes, max(options.max_length, n, m), x.dtype)

    return Made(make, text)


def _each(*texts: str) -> Callable[[argparse.Namespace], list[Any]]:
    """Make candidates of expressions."""
    return lambda options: [said(text, options) for text in texts]


# What is tried for an argument that nothing is known about: alike for all tokens.
_tried = _each(
    "torch.randn(e).expand(b, n, e)",
    "torch.randn(h, d)",
    "torch.zeros(b, n, m)",
    "torch.randn(e).expand(b, n, m, e)",
    "torch.randn(e).expand(n, m, b, e)",
    "torch.zeros(1)",
    "torch.zeros(b, n, dtype=torch.long)",
)
# A vector for each position, or for each distance: zeros would hide what is made from them.
_embeddings = _each(
    "torch.randn(b, n, e)",
    "torch.randn(1, n, e)",
    "torch.randn(n, e)",
    "torch.randn(1, 2 * n - 1, e)",
    "torch.randn(b, 2 * n - 1, e)",
    "torch.randn(2 * n - 1, 1, e)",
)
_biases = _each(
    "torch.zeros(1, h, n, m)",
    "torch.zeros(b * h, 1, m)",
    "torch.zeros(h, n, m)",
    "torch.zeros(n, m)",
    "torch.zeros(b, h, n, m)",
)


def tried(options: argparse.Namespace) -> list[Any]:
    """Return what is tried for an argument that nothing is known about."""
    return [None, *_tried(options)]


def candidates(
    name: str, parameter: inspect.Parameter, options: argparse.Namespace, names: Iterable[str]
) -> list[Any]:
    """Return what an argument of a call may be, the likeliest first; nothing if no one knows.

    Rotations are those of the position 0, for all tokens alike, which turn nothing: attention with
    rotations can then be compared with one that has none.

    Args:
        name: the argument.
        parameter: as in the signature.
        options: the sizes.
        names: all arguments of the call.
    """
    plain = plain_name(name)
    for rows, columns in _SIDES:
        if {rows, columns} <= {*map(plain_name, names)} and plain in (rows, columns):
            return [1 if plain == columns else said("n", options)]
    hint, flags = parameter.annotation, ("is_", "use_", "output_", "return_", "need_")
    text = str(hint)
    if hint is bool or text == "bool" or plain.startswith(flags):
        return [False]
    if make := known(plain):
        return make(options)
    if re.fullmatch(_MATRICES, plain):
        which = 1 + sum(map(ord, plain)) % 97  # each gets another
        return [said(f"torch.randn({which}, e, e)[-1] / e**0.5", options)]
    if (value := usual(role_of(name), options)) is not None:
        return [value]
    if type(None) in typing.get_args(hint) or "None" in text or "Optional" in text:
        return [None]
    return []


def known(plain: str) -> Callable[[argparse.Namespace], list[Any]] | None:
    """Return what makes the candidates for a name; None if it is not known."""
    return next((make for pattern, make in _KNOWN.items() if re.fullmatch(pattern, plain)), None)


def turning(name: str) -> bool:
    """Tell whether an argument takes rotations, and not just positions."""
    return bool(re.fullmatch(_ROTATIONS, plain_name(name)))


def rotating(name: str) -> bool:
    """Tell whether an argument may say where the tokens stand, though it has a default."""
    return turning(name) or bool(re.fullmatch(_POSITIONS, plain_name(name)))


_MATRICES = r"w_?[qkvo]|(w|weight)_?(q|k|v|o|query|key|value|out|output)"
_ROTATIONS = (
    r"position_embeddings?|(rotary_)?pos(itional)?_(embs?|embeds?|embeddings?)|rotary_pos_emb|rotary|"
    r"(freqs?_)?(cos|sin)|freqs(_cis)?|freq_cis|rope_(cache|freqs|emb)|rotary_freq(s|uencies)|cos_sin|image_rotary_emb"
)
_SIDES = (("h", "w"), ("height", "width"))  # of an image, whose tokens stand in rows
_POSITIONS = (
    r"position_ids?|positions?|pos(_ids?)?|pos_idx|token_positions|position_indices|offsets"
)
_KNOWN: dict[str, Callable[[argparse.Namespace], list[Any]]] = {
    r"position_embeddings?|cos_sin|rotary_pos_emb|(rotary_)?pos(itional)?_(embs?|embeds?|embeddings?)|"
    r"(pos(itional)?_)?(encodings?|enc)|pe|rotary|image_rotary_emb|rotary_embs?|rope|"
    r"rope_(cache|freqs|emb)|rotary_freq(s|uencies)": lambda o: [
        *_pairs(o.rotated), Unturned(), *_angles(o.rotated), *_complex(o.rotated), None,
        *_embeddings(o),
    ],
    r"(freqs?_)?cos": lambda o: _turning(o.rotated, "cosines", torch.cos),
    r"(freqs?_)?sin": lambda o: _turning(o.rotated, "sines", torch.sin),
    r"freqs?(_cis)?|freqs_complex|freqs_cos_sin": lambda o: [
        *_complex(o.rotated), *_pairs(o.rotated), *_angles(o.rotated),
    ],
    _POSITIONS: lambda o: [
        Made(lambda x, y, at: at, "zeros (n), so that no token is turned", True),
        Made(lambda x, y, at: at.expand(x.size(0), -1), "zeros (b n), so that no token is turned",
             True),
    ],
    r"start_pos(ition)?|offset|past_length|past_len|kv_seq_len|position_offset": lambda o: [0],
    r"input_pos|cache_position": lambda o: [
        said("torch.arange(n)", o), None
    ],
    r".*(past|cache|layer_past|memory_states|prev_state|incremental_state).*": lambda o: [
        None, False
    ],
    r".*(bias|alibi).*|rel_pos.*|relative_pos.*|attention_bias": lambda o: [
        None, *_biases(o)
    ],
    r"residual|res": _each("torch.zeros(b, n, e)"),
    r"ww|num_cols|x_size_w": lambda o: [1],
    r"h_w|hw|feat_size|shape|hw_shape|x_size|input_resolution|patch_resolution|spatial_shape":
        _each("(n, 1)"),
    r"n|t|l|n_tokens|(tgt|q|query|seq|src)_?(len|length)|seq_?len|length|max_seqlen.*|num_tokens|"
    r"height|hh|num_rows|x_size_h":
        _each("n"),
    r"(m|s|k|kv|key)_?(len|length)": _each("m"),
    r"(valid|key|src|seq|kv)_?(lens|lengths|len)|lengths": lambda o: [None],
    r"b|bs|bsz|batch(_size)?": _each("b"),
    r"temperature": lambda o: [(o.embed_dim // o.num_heads) ** 0.5],
    r"scale|scaling|softmax_scale|sm_scale": lambda o: [(o.embed_dim // o.num_heads) ** -0.5],
    r"layer_head_mask|head_mask|training|deterministic|train|need_weights|.*_weights|verbose|debug|"
    r"output_attentions|return_.*|inference|need_.*": lambda o: [
        False, None
    ],
}  # fmt: skip


def combinations(found: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """Give every choice of one candidate for each argument; cosines and sines go together."""
    together = [name for name in found if plain_name(name).endswith(("cos", "sin"))]
    names = [[name] for name in found if name not in together]
    names += [together] if together else []
    choices = (zip(*(found[name] for name in group), strict=True) for group in names)
    for choice in itertools.islice(itertools.product(*choices), _COMBINATIONS):
        flat = itertools.chain.from_iterable(choice)
        yield dict(zip(itertools.chain.from_iterable(names), flat, strict=True))
