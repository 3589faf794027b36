"""Heads that are split, merged and repeated; samples that are mixed; an einsum that sums apart."""

import re

from torch import nn

from attention_doctor.evidence import looks, order
from attention_doctor.evidence.evidence import Evidence
from attention_doctor.evidence.sight import Seen
from attention_doctor.evidence.steps import Operand
from attention_doctor.rules.questions import CONVENTION, OUTPUTS, WRONG
from attention_doctor.rules.rule import FOLLOW, Named, Rule, Sign, Test, inside, of_mistake, told

# The names in checkpoints of grouped heads, which all repeat each key for neighbouring heads.
_CHECKPOINT = r"(^|.*\.)([kv]_proj|w[kv]|in_proj)([._]weight)?"


def straight(*parts: str) -> Test:
    """Make the test of a split and a merge of heads that move no axis."""

    def test(seen: Seen) -> Sign | None:
        if tuple(x for x in ("split", "merge") if f"straight {x}" in seen.steps) != parts:
            return None
        symptom = f"the {' and the '.join(parts)} of heads: the axis of the tokens is not moved"
        return Sign(symptom, "an output row holds numbers of several tokens")

    return inside(test)


def by_chance(e: Evidence) -> Named | None:
    """Tell what it means that it runs at these sizes, and not at the usual ones."""
    code, said, place = e.patient.sizes.only
    symptom = "it fails with other sizes"
    return (code, Sign(symptom, said, place=place, alone=True)) if code else None


def summed_apart(seen: Seen) -> Sign | None:
    if "apart" not in seen.steps:
        return None
    said = f"a letter of `{seen.steps['apart'].option('equation', 0)}` is in one operand alone"
    return Sign("an einsum sums one operand on its own before it multiplies", said)


def alike(e: Evidence) -> Named | None:
    """Find heads that are all the same, or share a key and are no neighbours."""
    h, checkpoint = e.patient.num_heads, any(re.fullmatch(_CHECKPOINT, x) for x in e.patient.named)
    for seen in e.of(looks.free).found:
        groups = [_alike(side, h) for side in (seen.query, seen.key, seen.value)]
        if h > 1 and all(len(heads) == h for heads in groups):
            return "shared-heads", Sign("all heads have the same queries, keys and values")
        sides = zip(("repeat", "repeat values"), groups[1:], strict=True)
        some = [(step, heads) for step, heads in sides if len(heads) < h]
        for step, heads in some:
            if heads[-1] - heads[0] >= len(heads):
                said = f"heads {' and '.join(map(str, heads))} share the first, counted from 0"
                severity = WRONG if checkpoint or some[0][1] != some[-1][1] else CONVENTION
                symptom = "heads that share a key are not neighbours"
                return "groups-tiled", Sign(
                    symptom, said, severity=severity, place=seen.where(step)
                )
    return None


def one_module(e: Evidence) -> Sign | None:
    """Find one module that stands in a list once for each head."""
    h, parts = e.patient.num_heads, e.patient.module.modules()
    for heads in (x for x in parts if isinstance(x, nn.ModuleList)):
        if len({*heads}) == 1 < len(heads) == h and [*heads[0].parameters()]:
            return Sign("all heads are one module", f"`[head] * {h}` copies nothing")
    return None


def _alike(side: Operand, h: int) -> list[int]:
    """Name the heads that have the same numbers as the first; that one alone where none is told."""
    x = side.step.value
    axes = {*range(-x.dim(), 0)} - {side.summed, side.own}
    axis = next((axis for axis in sorted(axes) if x.size(axis) == h), None)
    if axis is None:
        return [0]
    heads = x.movedim(axis, 0).flatten(1)
    return [int(i) for i in (heads == heads[0]).all(1).nonzero().flatten()]


RULES = (
    Rule(
        "lengths-mixed",
        "keys or values are given the queries' number of tokens, or the result that of the keys",
        "Read the number of keys from the keys: `k.view(b, m, h, d)`. If it is meant for one "
        "sequence alone, ask so: `--kind self`.",
        signs={"answers": by_chance},
        explanation="With as many queries as keys it runs, and so in self-attention. A decoder "
        "that reads another text fails, or mixes samples where the numbers happen to fit.",
        wrong="k = W_k(key).view(b, n, h, d)  # n queries",
        right="k = W_k(key).view(b, m, h, d)",
        ignore="it only ever gets one sequence",
    ),
    Rule(
        "length-fixed",
        "a buffer or a parameter has a fixed number of tokens",
        "Make it for the longest text, and cut it to the text that is given: `mask[:n, :n]`.",
        severity=CONVENTION,
        signs={"answers": by_chance},
        explanation="Other numbers of tokens raise an error.",
        wrong="scores = scores.masked_fill(self.mask, -math.inf)",
        right="scores = scores.masked_fill(self.mask[:n, :n], -math.inf)",
        ignore="no other number of tokens is given",
    ),
    Rule(
        "summed-apart",
        "an einsum that sums one operand on its own before it multiplies",
        signs={"numbers": inside(summed_apart)},
        steps=("apart",),
        explains=OUTPUTS,
        remedy="Write the same letter for what both operands share.",
        explanation="A letter that stands in one operand alone, and not in the result, is "
        "summed over before anything is multiplied. Every shape is right.",
        wrong='torch.einsum("bqhd,bkhe->bhqk", q, k)',
        right='torch.einsum("bqhd,bkhd->bhqk", q, k)',
    ),
    *(
        of_mistake(
            f"{'-and-'.join(parts)}-without-transpose",
            signs={"numbers": straight(*parts)},
            steps=(f"straight {parts[0]}", parts[0]),
            explains=OUTPUTS,
            neighbours=("sliding-window",),
        )
        for parts in (("split", "merge"), ("split",), ("merge",))
    ),
    of_mistake("batch-mixed-into-sequence", steps=("split",)),
    of_mistake("heads-of-other-samples", steps=("merge", "mix")),
    of_mistake(
        "shared-heads",
        signs={"numbers": alike, "registration": one_module},
        steps=("split",),
        explains=OUTPUTS,
    ),
    of_mistake(
        "groups-tiled",
        signs={"numbers": alike},
        steps=("repeat", "split"),
        ignore="the weights are trained with it, and are of no other model",
    ),
    Rule(
        "samples-attended-over",
        "`batch_first=True` is missing, or axes are turned: samples stand where tokens should",
        "Build it with `batch_first=True`, or turn tokens to the front. If it takes (n, b, e), say "
        "so: `--layout nbe`.",
        signs={
            "attention": told(
                order.samples_for_tokens,
                "queries attend over the samples of the batch, and not over the tokens",
            )
        },
        explains=OUTPUTS,
        neighbours=("softmax-over-samples", "no-attention"),
        explanation="PyTorch's own classes take tokens in front of samples unless they are told "
        "otherwise, and every shape is right.",
        wrong="nn.MultiheadAttention(e, h)",
        right="nn.MultiheadAttention(e, h, batch_first=True)",
    ),
    Rule(
        "samples-mixed",
        "a reshape or a mask that mixes the batch with tokens or heads",
        "Keep the batch axis in front; fold and unfold (b, h) in the same order.",
        signs={
            "samples apart": told(
                order.samples_apart, "samples of a batch influence each other", "text"
            )
        },
        explanation="A sample alone gets other results than in a batch. With one sample all is "
        "well.",
        ignore="samples are meant to see each other",
    ),
    Rule(
        "query-order-matters",
        "a straight reshape, or a softmax or mask along the wrong axis",
        FOLLOW,
        signs={
            "order": told(
                order.moved,
                "results do not move with their queries, or change when keys and values are moved",
                "text",
            )
        },
        hides=True,
        neighbours=("order-matters",),
        explanation="Move tokens, and their results do not move with them: features of "
        "different tokens have been mixed.",
    ),
)
