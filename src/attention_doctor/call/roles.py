"""What arguments are called: the sizes of a constructor, and the tensors and masks of a call."""

import inspect
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

KINDS = ("cross", "self", "causal", "memory")
SIZES = {
    role: names.split()
    for role, names in {
        "width": "embed_dim d_model n_embd hidden_size hidden_dim dim d_in d_out embed_size "
        "emb_dim input_dim model_dim embedding_dim query_dim n_embed num_hiddens in_features "
        "out_features channels width n_state nx e emb feats n_feat q_dim dim_q out_channels "
        "num_q_input_channels state_size",
        "context width": "context_dim cross_attention_dim kdim vdim dim_context kv_dim dim_k "
        "num_kv_input_channels",
        "heads": "num_heads n_heads n_head nhead heads num_attention_heads head_count h head "
        "head_num query_heads",
        "groups": "num_key_value_heads num_kv_heads n_kv_heads n_kv_head kv_heads num_kv_groups "
        "n_query_groups n_local_heads",
        "head width": "head_dim dim_head d_k d_v d_head head_size",
        "length": "context_length block_size max_len max_seq_len seq_len max_length "
        "max_position_embeddings n_positions context_size n_ctx",
        "layer": "layer_idx layer_id",
        "causal": "causal is_causal",
        "config": "config configs cfg args",
    }.items()
}
INPUTS = {
    role: names.split()
    for role, names in {
        "query": "q query queries xq x_q inputs_q q_src query_states",
        "key": "k key keys xk x_k k_src key_states",
        "value": "v value values xv x_v v_src value_states",
        "context": "context memory encoder_hidden_states encoder_output enc_out kv cond "
        "key_value_states x_context x_kv inputs_kv xa y c",
        "x": "x input inputs input_tensor src tgt hidden_states hidden embeddings tokens seq z",
    }.items()
}
ROTATIONS = ("cos", "sin", "position_embeddings")
DOCUMENTS = ["documents", "document_ids", "doc_ids", "segment_ids", "seq_ids", "sequence_ids"]
# What a name of a mask says about True in it.
_SAYS = {
    "blocked": r"block|key_padding_mask|is_pad|look_ahead|future",
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
    return next((role for role, names in SIZES.items() if plain in names), "")


def input_of(name: str) -> str:
    """Say which input an argument of a call is: "mask", or a key of ``INPUTS``; "" for none."""
    plain = plain_name(name)
    role = next((role for role, names in INPUTS.items() if plain in names), "")
    masks = re.search("mask|^(blocked|allowed|keep|attn_bias)$", plain) and "head" not in plain
    return role or ("mask" if masks else "")


def meaning_of(name: str) -> str:
    """Say what True means in a mask of this name; "" if the name does not say."""
    plain = plain_name(name)
    return next((meaning for meaning, said in _SAYS.items() if re.search(said, plain)), "")


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
