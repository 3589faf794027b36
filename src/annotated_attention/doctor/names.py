"""The roles of arguments, by the names that constructors and calls usually give them."""

import inspect
from collections.abc import Iterable
from typing import Any

KINDS = ("cross", "self", "causal")
MEANINGS = ("blocked", "allowed", "additive")
SHAPES = ("bnm", "b1nm", "bhnm", "nm", "bm", "b11m")
# What constructors and calls usually name their arguments.
NAMES = {
    role: names.split()
    for role, names in {
        "width": "embed_dim d_model n_embd n_embed hidden_size hidden_dim hidden dim d_in d_out "
        "dim_in dim_out embed_size emb emb_size emb_dim embedding_dim input_dim in_dim out_dim "
        "output_dim in_features out_features model_dim dim_model feature_dim query_dim "
        "key_dim value_dim kdim vdim context_dim d_embed size_embd num_hiddens channels width "
        "e d_e",
        "heads": "num_heads n_heads n_head nhead nheads heads num_head h head num_attention_heads "
        "n_attention_heads",
        "groups": "num_key_value_heads num_kv_heads n_kv_heads n_kv_head kv_heads n_groups "
        "num_query_groups num_kv_groups",
        "head width": "head_dim dim_head d_head head_size d_k d_v d_q d_key d_value "
        "attention_head_size",
        "length": "context_length block_size max_len max_length max_seq_len max_seq_length seq_len "
        "seq_length sequence_length context_size ctx_len n_ctx n_positions "
        "max_position_embeddings ctx_size",
        "none": "dropout p_dropout drop dropout_p dropout_rate attn_dropout attention_dropout "
        "attn_drop proj_drop resid_dropout residual_dropout attn_pdrop resid_pdrop drop_rate "
        "dropout_prob attention_probs_dropout_prob hidden_dropout_prob res_dropout",
        "bias": "bias qkv_bias use_bias",
        "causal": "causal is_causal masked mask_future",
        "config": "config cfg args conf params hparams opt",
        "query": "q query queries q_in x_q xq q_x query_states query_input input_q inputs_q",
        "key": "k key keys k_in x_k xk k_x key_states key_input input_k inputs_k",
        "value": "v value values v_in x_v xv v_x value_states value_input input_v inputs_v",
        "mask": "blocked mask attn_mask attention_mask src_mask key_padding_mask padding_mask",
    }.items()
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


def named_parameters(function: Any) -> dict[str, inspect.Parameter]:
    """Give the parameters that have a name of their own."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # a built-in function
        return {}
    various = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: x for name, x in parameters.items() if x.kind not in various}


def takes_any(function: Any) -> bool:
    """Tell whether a callable takes arbitrary keywords."""
    parameters = inspect.signature(function).parameters.values()
    return any(x.kind is inspect.Parameter.VAR_KEYWORD for x in parameters)


def refuse(step: str, given: Iterable[str], names: Iterable[str], who: str) -> None:
    """Refuse unknown arguments, and list the known ones."""
    if extra := [name for name in given if name not in names]:
        option = "--init" if step == "construction" else "--call"
        has = f"Leave it away, or name one of: {', '.join(names)}."
        remedy = has if names else "Leave it away."
        raise Unasked(step, f"{who} has no {', '.join(extra)} ({option})", remedy)
