"""The roles of arguments, by the names that constructors, configurations and calls give them."""

import argparse
import inspect
import re
from collections.abc import Iterable
from typing import Any

KINDS = ("cross", "self", "causal", "memory")
MEANINGS = ("blocked", "allowed", "additive")
SHAPES = ("bnm", "b1nm", "bhnm", "nm", "bm", "b11m", "nmb", "nm1", "b1m", "bm1")
# What they are usually called.
NAMES = {
    role: names.split()
    for role, names in {
        "width": "embed_dim d_model n_embd n_embed hidden_size hidden_dim hidden dim d_in d_out "
        "dim_in dim_out embed_size emb emb_size emb_dim embedding_dim input_dim in_dim out_dim "
        "output_dim in_features out_features model_dim dim_model feature_dim query_dim "
        "d_embed size_embd num_hiddens channels width e d_e num_channels in_channels out_channels "
        "input_size inner_dim attention_dim attn_dim dim_q q_dim units n_state n_feat n_embedding "
        "embedding_size emb_dims hidden_units embed_dims all_head_size qkv_dim d c n_dim nx "
        "cin cout in_ch out_ch n_hidden c_in c_out nf n_in n_out true_hidden_size",
        "context width": "key_dim value_dim kdim vdim context_dim cross_attention_dim dim_context "
        "encoder_dim kv_dim memory_dim cond_dim k_dim v_dim encoder_hidden_size dim_kv "
        "dim_cond dim_k dim_v c_k c_v d_context d_cross d_memory ctx_dim",
        "heads": "num_heads n_heads n_head nhead nheads heads num_head h head num_attention_heads "
        "n_attention_heads attention_heads encoder_attention_heads decoder_attention_heads nb_head",
        "groups": "num_key_value_heads num_kv_heads n_kv_heads n_kv_head kv_heads n_groups "
        "num_query_groups num_kv_groups n_kv n_query_groups num_groups nkv kv_head "
        "multi_query_groups n_local_heads",
        "head width": "head_dim dim_head d_k d_v d_q d_key d_value attention_head_size d_head "
        "head_size dim_per_head dim_heads d_kv size_per_head head_width dh channels_per_head",
        "rotated": "rotary_dim rot_dim rope_dim rotary_ndims rotary_embedding_dim rope_n_elem "
        "rotary_dims rope_dims n_rot",
        "length": "context_length block_size max_len max_length max_seq_len max_seq_length seq_len "
        "seq_length sequence_length context_size ctx_len n_ctx n_positions max_seqlen "
        "max_position_embeddings ctx_size max_seq context_len max_positions seqlen "
        "max_sequence_length "
        "num_patches num_tokens max_target_positions max_source_positions max_context n_tokens "
        "max_context_length max_pos max_t block_length n_seq",
        "none": "dropout p_dropout drop dropout_p dropout_rate attn_dropout attention_dropout "
        "attn_drop proj_drop resid_dropout residual_dropout attn_pdrop resid_pdrop drop_rate "
        "dropout_prob attention_probs_dropout_prob hidden_dropout_prob res_dropout dropout_ratio",
        "bias": "bias qkv_bias use_bias",
        "causal": "causal is_causal masked mask_future mask_flag use_mask autoregressive "
        "unidirectional is_decoder",
        "crossing": "is_cross_attention cross_attention is_cross cross is_cross_attn cross_attend "
        "encoder_decoder_attention",
        "within": "self_attention is_self_attention",
        "layer": "layer_idx layer_id layer_index layer_number layer_num block_idx depth_idx",
        "config": "config cfg args conf params hparams opt configuration model_args settings c_",
    }.items()
}
_GRID = r"feat_size|fmap|grid_size"  # height and width
GRID = rf"window_size|resolution$|{_GRID}"
# What they are called in a call.
INPUTS = {
    role: names.split()
    for role, names in {
        "query": "q query queries q_in x_q xq q_x query_states query_input input_q inputs_q "
        "query_tensor query_layer",
        "key": "k key keys k_in x_k xk k_x key_states key_input input_k inputs_k "
        "key_tensor key_layer",
        "value": "v value values v_in x_v xv v_x value_states value_input input_v inputs_v "
        "value_tensor value_layer",
        "memory": "context memory encoder_hidden_states encoder_output encoder_outputs enc_out "
        "enc_output key_value_states kv cond encoder_out cross_states ctx mem encoder_states x_kv "
        "kv_input key_value y inputs_kv source_states context_states kv_states key_value_input "
        "encoder_x enc x_context cross_input kv_x x_cross x2 memory_states",
        "x": "x input inputs src tgt embeddings tokens hidden_states hidden_state hidden "
        "input_tensor inp h_in states sequence features x_in target trg embedded seq embedding "
        "x1 z h data tensor input_embeddings",
        "mask": "blocked mask attn_mask attention_mask src_mask key_padding_mask padding_mask "
        "tgt_mask allowed pad_mask mask_pad attn_bias_mask masks self_attn_mask src_padding_mask "
        "src_key_padding_mask input_mask look_ahead_mask causal_mask future_mask valid_mask "
        "attention_masks key_mask is_pad additive_mask",
        "bias": "attn_bias attention_bias score_bias",
        "memory mask": "encoder_attention_mask context_mask memory_mask kv_mask encoder_mask "
        "memory_key_padding_mask cross_mask cross_attn_mask enc_mask encoder_padding_mask ctx_mask "
        "key_padding_mask key_mask",
    }.items()
}
# What else a name says, where it is none of those: the first that is found in it.
_SAYS = {
    r"context_window|max_.*window": "length",
    _GRID: "grid",
    r"drop": "none",
    r"(head|attn).*(dim|size|width|channels)$|^(dim|size|width).*head": "head width",
    r"(kv|key_value|group).*heads?$|^heads?_kv": "groups",
    r"heads?(_count|_num)?$": "heads",
    r"layer_?(idx|id|index|num)": "layer",
    r"bias$": "bias",
    r"causal": "causal",
    r"(context|memory|cond|encoder|cross)_?(dim|size|width|channels|features)$": "context width",
    r"(dim|dimension|size|width|channels|feat|features|hidden|units?|embd|embed)s?$|"
    r"^(d|dim|n)_(?!rank|layer)|^c_[a-z]$": "width",
    r"len$|length|positions?$|ctx|num_patches|"
    r"^max_.*(block|token|frame|step|pos|position|dist|distance|relative)": "length",
}


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


def role_of(name: str) -> str:
    """Return the role that a name usually has; "" if it is not known."""
    plain = plain_name(name)
    return next((role for role, names in NAMES.items() if plain in names), "")


def said_by(name: str) -> str:
    """Return the role that a part of a name suggests; "" if none does."""
    plain = plain_name(name)
    return next((role for pattern, role in _SAYS.items() if re.search(pattern, plain)), "")


def plain_name(name: str) -> str:
    """Write a name in small letters with underscores, without those around it."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_")


def usual(role: str, options: argparse.Namespace) -> Any:
    """Return the value that a role has, given the sizes; None if it has none."""
    e, h = options.embed_dim, options.num_heads
    values = {
        "width": e, "heads": h, "groups": getattr(options, "groups", h),
        "head width": getattr(options, "head_dim", e // h), "grid": (2, 2),
        "rotated": e // h // 2 * 2,
        "length": options.max_length, "none": 0.0, "bias": True,
        "causal": options.kind == "causal", "crossing": options.kind == "memory", "layer": 0,
        "within": options.kind in ("self", "causal"),
        "context width": options.context_dim if options.kind == "memory" else e,
    }  # fmt: skip
    return values.get(role)


def named_parameters(function: Any) -> dict[str, inspect.Parameter]:
    """Return the parameters that have a name of their own."""
    various = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: x for name, x in _parameters(function).items() if x.kind not in various}


def takes_any(function: Any) -> bool:
    """Tell whether a callable takes arbitrary keywords."""
    return any(x.kind is x.VAR_KEYWORD for x in _parameters(function).values())


def _parameters(function: Any) -> dict[str, inspect.Parameter]:
    schema = getattr(function, "schema", None)
    if schema is not None and hasattr(schema, "arguments"):  # a scripted method
        kind, empty = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
        return {
            x.name: inspect.Parameter(
                x.name, kind, default=x.default_value if x.has_default_value() else empty
            )
            for x in schema.arguments
            if x.name != "self"
        }
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a built-in function
        return {}


def refuse(step: str, given: Iterable[str], names: Iterable[str], who: str) -> None:
    """Refuse unknown arguments, and list the known ones."""
    if extra := [name for name in given if name not in names]:
        option = "--init" if step == "construction" else "--call"
        has = f"Leave it away, or name one of: {', '.join(names)}."
        remedy = has if names else "Leave it away."
        raise Unasked(step, f"{who} has no {', '.join(extra)} ({option})", remedy)
