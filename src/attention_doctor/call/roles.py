"""What arguments are called: the sizes of a constructor, and the tensors and masks of a call."""

import inspect
import itertools
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

KINDS = ("cross", "self", "causal", "memory")
_DIM = "(dims?|size|width|features?|channels?|units|d)"
_OF = "(hid(den)?s?|emb(e?d(ding)?s?)?|model|feats?|features?|in|inputs?|out|outputs?|states?"
_OF += "|units|channels|inner|qkv|att(entio)?n?)"
_COUNT = "(no|num|number|n|nb)_?(of_)?"
SIZES = {  # by the pattern of a name; the first that fits
    "width": rf"({_OF}|query|q|token)_?{_DIM}|(d|dims?|n|num|size)_?{_OF}(_dim)?|dims?|d|e|emb|nx|"
    "width|channels|feats|dim_(query|q)|num_q_input_channels",
    "context width": "(context|cross(_attention)?|memory|mem|enc(oder)?|cond)_?(hidden_)?(dims?|"
    rf"size|channels|features|width)(?<!context_size)|(kv?|v|keys?|values?)_?{_DIM}|"
    "(dim|num)_(context|kv?|v|key|value)(_input_channels)?",
    "groups": rf"({_COUNT})?(kv|key_value)_?(heads?|groups?)|(n|num)_query_groups|n_local_heads",
    "heads": rf"({_COUNT})?((att(entio)?n?|query|q|self)_?)?heads?(_?(count|num|number))?|h",
    "head width": "(att(entio)?n?_)?heads?_?(dims?|size|width|features|channels)|"
    "(d|dims?|size|channels)_?(per_)?heads?|d_(kv?|v|q|keys?|values?)",
    "length": "(max_?|n_|num_)?(seq(uence)?|ctx|context|block|token|pos(ition)?)_?(len(gth)?|"
    "size)|max_?(len(gth)?|size|seq)|(max_|n_|num_)(ctx|tokens|pos(ition)?s?)(_embeddings)?",
    "layer": "layer_?(idx|id|index|number|num|i)",
    "layers": f"{_COUNT}(hidden_)?layers?",
    "causal": "(is_|use_)?(causal|masked)(_mask)?|autoregressive",
    "config": "((model|attn|attention)_)?(configs?|cfg|conf|args|hparams)",
    "device": "device",
    "dtype": "(torch_)?dtype",
    "epsilon": "(\\w+_)?(eps|epsilon)",
    "base": "(rope|rotary)_?(theta|base)",
    "samples": "(max_)?batch_size",
}
INPUTS = {  # by whole names; then by the first word that is one of these
    role: tuple(map(str.split, names))
    for role, names in {
        "query": ("xq", "q query queries latents"),
        "key": ("xk", "k key keys"),
        "value": ("xv", "v value values"),
        "context": (
            "key_value_states xa y c",
            "context ctx memory mem encoder enc encoded image img images visual vision audio cond "
            "conditioning kv source",
        ),
        "x": (
            "z input_tensor",
            "x input inputs src tgt hidden embeddings embeds embedding tokens seq sequence decoder "
            "dec target text txt features",
        ),
    }.items()
}
# A name with one of these words is no tensor of tokens.
_NO_TOKENS = "cache past pos position positions len lengths size ids bias head type index num n dim"
_NO_TOKENS += " scale output need return weights proj layer mask masks rate graph"
ROTATIONS = ("cos", "sin", "position_embeddings")
DOCUMENTS = ["documents", "document_ids", "doc_ids", "segment_ids", "seq_ids", "sequence_ids"]
# What a name of a mask says about True in it.
_SAYS = {
    "blocked": r"block|key_padding_mask|is_pad|look_ahead|future|^(key_)?pad(ding)?$",
    "allowed": r"allow|keep|valid|visible",
    "additive": r"bias|additive",
}


class Sizes(NamedTuple):
    """The sizes that a module is built and called with."""

    embed_dim: int
    num_heads: int
    context_dim: int
    max_length: int = 16
    tokens: int = 0  # where it takes no other number of them
    only: tuple[str, str, Any] = ("", "", None)  # the code of such sizes; what fails else, where

    def of(self, role: str, kind: str) -> Any:
        """Give the value of a role; None if it has none."""
        e, h = self.embed_dim, self.num_heads
        shared = h // 2 if h % 2 == 0 else h  # so that groups of heads show
        return {
            "width": e,
            "context width": self.context_dim,
            "heads": h,
            "groups": shared,
            "head width": e // h,
            "length": self.max_length,
            "layer": 0,
            "layers": 2,
            "device": "cpu",
            "epsilon": 1e-5,
            "base": 10000.0,
            "samples": 8,
            "dropout": 0.0,
            "causal": kind == "causal",
            "bias": True,
        }.get(role)


class Unasked(Exception):
    """The implementation cannot be called.

    Attributes:
        step: the step that failed: ``"import"``, ``"construction"`` or ``"call"``.
        remedy: what to do.
    """

    def __init__(self, step: str, text: str, remedy: str) -> None:
        """Keep the failed step, the message and the remedy."""
        super().__init__(text)
        self.step, self.remedy = step, remedy


def size_of(name: str) -> str:
    """Say which size an argument of a constructor is; "" if its name does not say."""
    plain = plain_name(name)
    if "drop" in plain:
        return "dropout"
    if plain.endswith("bias"):
        return "bias"
    return next((role for role, names in SIZES.items() if re.fullmatch(names, plain)), "")


def input_of(name: str) -> str:
    """Say which input an argument of a call is: "mask", or a key of ``INPUTS``; "" for none."""
    plain = plain_name(name)
    masks = "mask|^(blocked|allowed|attn_bias|(is_|key_)?pad(ding)?"
    masks += "|((key|pad|padding|token)_)?(keep|valid)|(keep|valid)_(keys|tokens))$"
    if re.search(masks, plain) and "head" not in plain:
        return "mask"
    words = {*plain.split("_")}
    words = set() if words & {*_NO_TOKENS.split()} else words
    whole = (role for role, (names, _) in INPUTS.items() if plain in names)
    parts = (role for role, (_, names) in INPUTS.items() if words & {*names})
    return next(itertools.chain(whole, parts), "")


def meaning_of(name: str) -> str:
    """Say what True means in a mask of this name; "" if the name does not say."""
    plain = plain_name(name)
    return next((meaning for meaning, said in _SAYS.items() if re.search(said, plain)), "")


def documented(function: Any, name: str) -> str:
    """Say what True means in this mask by the docstring of a call; "" if it does not say."""
    said = re.search(rf"\b{name}\b.*\bTrue\b(.*)", str(getattr(function, "__doc__", None)))
    if not name or said is None or re.search("float|additive|added", said[0]):
        return ""
    hides = re.search(r"\b(not|never|pad|block|mask|ignor|hid)", said[1])
    shows = re.search(r"\b(attend|allow|keep|kept|valid|visible|real)", said[1])
    if hides and shows:  # what comes first: "not attended", but "real, not padding"
        return "blocked" if hides.start() < shows.start() else "allowed"
    return "blocked" if hides else "allowed" if shows else ""


def plain_name(name: str) -> str:
    """Write a name in small letters with underscores, without those around it."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_")


def named_parameters(function: Any) -> dict[str, inspect.Parameter]:
    """Return the parameters that have a name of their own."""
    various = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: x for name, x in signature(function).items() if x.kind not in various}


def signature(function: Any) -> dict[str, inspect.Parameter]:
    """Return all parameters; none where a built-in function does not tell them."""
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return {}


def required(parameters: dict[str, inspect.Parameter]) -> list[str]:
    """Name the parameters without a default."""
    return [name for name, x in parameters.items() if x.default is x.empty]


def taken(function: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Give what a function takes of what is given by name."""
    parameters = signature(function)
    takes_any = any(x.kind is x.VAR_KEYWORD for x in parameters.values())
    return {x: y for x, y in given.items() if takes_any or x in named_parameters(function)}
