"""The page of symptoms: what people see, and which of the doctor's codes may be behind it.

Codes, and what each means, are the doctor's own; here stands what each of them looks like from
outside, and which section of the book is about it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from annotated_attention.doctor.codes import CODES
from book.site.contents import Chapter

PLACE = "<!-- signs -->"
COMMAND = "attention-doctor file.py:Name"
SIZES = "--embed-dim 24 --num-heads 4"


@dataclass(frozen=True)
class Sign:
    """What somebody sees, before there is a name for it.

    Attributes:
        seen: a heading.
        about: what makes it look so, in a few sentences.
        options: those to run the doctor with.
        causes: codes, by the section of a chapter that is about them.
    """

    seen: str
    about: str
    options: str
    causes: dict[str, str]

    @property
    def codes(self) -> list[str]:
        """All codes, the likeliest section's first."""
        return [code for codes in self.causes.values() for code in codes.split()]


SECTIONS = {
    "one head": "01_one_head.ipynb#four-learned-matrices",
    "scale": "01_one_head.ipynb#the-mistake-people-make-here",
    "list of heads": "02_two_heads.ipynb",
    "reshapes": "04_reshape_trick.ipynb#two-mistakes-that-keep-every-shape",
    "batches": "05_batches.ipynb#what-equal-sizes-hide",
    "padding": "06_masks.ipynb#padding",
    "causal mask": "06_masks.ipynb#the-causal-mask",
    "masked rows": "06_masks.ipynb#fully-masked-rows",
    "mask mistakes": "06_masks.ipynb#two-mistakes",
    "dropout": "07_multihead_attention.ipynb#dropout",
    "parameters": "07_multihead_attention.ipynb#parameters-layouts-and-pytorchs-names",
    "layers": "08_transformer_layers.ipynb",
    "teacher forcing": "10_training.ipynb#what-teacher-forcing-does-not-see",
    "true": "14_masks_in_the_wild.ipynb#which-way-round-is-true",
    "mask shape": "14_masks_in_the_wild.ipynb#the-shape-to-pass",
    "folded heads": "14_masks_in_the_wild.ipynb#heads-folded-into-the-batch",
    "half precision": "14_masks_in_the_wild.ipynb#fills-in-half-precision",
    "empty row": "14_masks_in_the_wild.ipynb#what-a-fully-masked-row-gets",
    "packed": "15_published_code.ipynb#packed-projection",
    "parity": "16_testing_attention.ipynb#parity-the-same-parameters-the-same-result",
    "leakage": "16_testing_attention.ipynb#leakage-what-does-it-react-to",
    "prefix": "16_testing_attention.ipynb#prefix-the-past-does-not-change",
    "order": "16_testing_attention.ipynb#permutation-the-order-says-nothing",
    "sums": "16_testing_attention.ipynb#convexity-the-weights-sum-to-one",
    "doctor": "16_testing_attention.ipynb#the-doctor",
    "positions": "18_positions.ipynb#two-numbers-that-turn",
    "layouts": "18_positions.ipynb#two-layouts-one-permutation",
    "slopes": "18_positions.ipynb#alibi-nothing-is-learned",
    "scaling": "18_positions.ipynb#turning-more-slowly",
    "cache": "19_cache.ipynb#four-mistakes",
    "groups": "20_fewer_keys.ipynb#which-heads-share",
    "latents": "20_fewer_keys.ipynb#why-positions-stand-apart",
    "windows": "16_testing_attention.ipynb#the-doctor",
}
SIGNS = (
    Sign(
        "NaN in the output, the loss or the gradients",
        "One query whose keys are all blocked is enough: its softmax divides zero by zero, and the "
        "backward pass carries the NaN to every parameter.",
        f"--kind self {SIZES}",
        {
            "masked rows": "nan-spreads nan-row gradient-not-finite",
            "causal mask": "causal-hides-itself",
            "half precision": "finite-fill-in-half half-differs",
            "doctor": "output-not-finite",
        },
    ),
    Sign(
        "Right in float32, wrong or refused in half precision",
        "Float16 ends at 65 504, so a large fill becomes infinity, or two of them added up do.",
        f"--kind self {SIZES}",
        {
            "half precision": "finite-fill-in-half half-differs computed-in-low-precision",
            "doctor": "fails-in-half",
        },
    ),
    Sign(
        "Weights that do not sum to one",
        "The weights of a query are shares of one whole. Where their sum is another, something was "
        "multiplied after the softmax, or the softmax ran along another axis.",
        SIZES,
        {
            "sums": "weights-do-not-sum-to-one softmax-over-queries softmax-over-heads "
            "softmax-over-samples",
            "mask mistakes": "mask-after-softmax mask-multiplied fill-does-not-block",
            "one head": "mixed-over-queries summed-apart",
            "scale": "scaled-after-softmax",
            "dropout": "weights-after-dropout",
            "doctor": "weights-are-no-weights keys-appended table-mixed heads-mixed",
        },
    ),
    Sign(
        "The loss is almost perfect at once",
        "A model that sees the token it has to predict copies it. Look for the future before you "
        "believe such a loss.",
        f"--kind causal {SIZES}",
        {
            "causal mask": "future-leaks causal-off-by-one mask-missing-in-training",
            "true": "mask-inverted mask-ignored",
            "mask mistakes": "mask-transposed fill-does-not-block",
            "windows": "documents-see-each-other",
        },
    ),
    Sign(
        "A low loss, and garbage when it writes",
        "With teacher forcing every position has the right past beside it, also where attention "
        "takes it from the wrong place. While it writes, there is no future to borrow from.",
        f"--kind causal {SIZES}",
        {
            "teacher forcing": "future-leaks causal-off-by-one mask-missing-in-training",
            "prefix": "prefix-changes scale-by-length",
            "sums": "softmax-over-queries",
            "cache": "positions-restart cache-differs",
            "reshapes": "merge-without-transpose split-without-transpose "
            "split-and-merge-without-transpose",
        },
    ),
    Sign(
        "The first results change as the sequence goes on",
        "Under a causal mask nothing that comes later may change what stands already. So text that "
        "is written token by token has to give the results of the whole.",
        f"--kind causal {SIZES}",
        {
            "prefix": "prefix-changes scale-by-length softmax-over-queries",
            "causal mask": "future-leaks causal-off-by-one",
            "reshapes": "merge-without-transpose",
        },
    ),
    Sign(
        "Generation with a cache differs from the whole sequence at once",
        "A cache saves work and changes no number. Give the doctor an adapter with `start` and "
        "`step`, and it takes the same tokens one by one, in chunks, and all at once. Mistakes of "
        "long texts show if the module is built for a short one, say of 8 tokens.",
        f"--kind causal {SIZES}",
        {
            "cache": "positions-restart keys-cached-unrotated cache-zeros-attended "
            "causal-at-the-wrong-corner future-leaks-in-a-chunk cache-ignored cache-loses-tokens "
            "cached-values-misplaced cache-not-empty cache-differs distances-restart",
            "scaling": "cached-keys-not-rescaled",
            "latents": "rotation-absorbed latent-positions-missing",
            "prefix": "prefix-changes",
        },
    ),
    Sign(
        "It fails at lengths that it was not trained on, or does not know the order",
        "Rotated queries and keys meet in scores that depend on their distance alone. Give the "
        "doctor an adapter with `at_positions`, and it moves all positions by the same number.",
        f"--kind causal {SIZES}",
        {
            "positions": "positions-ignored positions-not-relative rotates-one-side "
            "values-rotated order-matters",
            "scaling": "cached-keys-not-rescaled",
            "windows": "window-off-by-one window-of-another-width sliding-window",
            "scale": "scale-by-length",
        },
    ),
    Sign(
        "Documents packed into one row differ from documents alone",
        "Packing saves padding. Each document still sees itself alone, and counts its positions "
        "from its own beginning.",
        f"--kind causal {SIZES}",
        {"windows": "documents-see-each-other packed-differs"},
    ),
    Sign(
        "A padded batch differs from single sentences",
        "Padding that is blocked changes nothing. If it does, the mask is not applied, or stands "
        "on another axis than that of the keys.",
        f"--kind self {SIZES}",
        {
            "padding": "padding-matters mask-ignored blocked-has-influence fill-does-not-block",
            "true": "mask-inverted",
            "mask mistakes": "padding-mask-on-queries mask-on-the-wrong-axis mask-after-softmax",
            "folded heads": "mask-in-the-wrong-order",
            "empty row": "finite-fill",
            "scale": "scale-by-length",
        },
    ),
    Sign(
        "An output changes with the rest of the batch",
        "Samples of a batch do not see each other. A reshape that counts them among tokens or "
        "heads mixes them, and with one sample all is well.",
        SIZES,
        {
            "batches": "samples-mixed batch-mixed-into-sequence heads-of-other-samples",
            "folded heads": "mask-in-the-wrong-order",
        },
    ),
    Sign(
        "Tokens react to what they must not see, or not to what they may",
        "Change one token and look which results move: that is the mask as it is, whatever it was "
        "meant to be.",
        f"--kind self {SIZES}",
        {
            "leakage": "blocked-has-influence visible-unseen not-alone past-unseen",
            "true": "mask-inverted mask-ignored",
            "mask mistakes": "mask-transposed mask-on-the-wrong-axis padding-mask-on-queries",
            "causal mask": "causal-hides-itself causal-unasked mask-taken-for-causal",
            "windows": "sliding-window",
        },
    ),
    Sign(
        "Tokens in another order give more than the same results in that order",
        "Without positions attention does not know the order. If results do not move with their "
        "tokens, features of different tokens have been mixed, or positions are inside.",
        SIZES,
        {
            "order": "query-order-matters key-order-matters queries-mixed order-matters "
            "queries-are-keys tokens-convolved positions-added",
            "batches": "heads-attended-over",
            "reshapes": "merge-without-transpose split-without-transpose "
            "split-and-merge-without-transpose",
        },
    ),
    Sign(
        "It learns, and less than it should",
        "These run, keep every shape and can be learned around. Only a comparison with the same "
        "weights shows them.",
        f"--reference torch.nn.MultiheadAttention {SIZES}",
        {
            "scale": "no-scale scale-by-model-width scale-twice scale-inverted scale-by-length "
            "scale-by-convention",
            "one head": "keys-and-values-swapped keys-from-queries values-from-keys "
            "output-projection-missing output-projection-doubled summed-apart",
            "list of heads": "shared-heads keys-of-one-head weights-averaged-over-heads "
            "heads-not-split",
            "layers": "residual-inside",
            "groups": "groups-tiled",
            "reshapes": "heads-attended-over",
            "doctor": "no-attention queries-ignored keys-ignored values-ignored training-differs "
            "window-of-one norm-over-tokens",
            "dropout": "dropout-before-softmax dropout-without-effect",
        },
    ),
    Sign(
        "Loaded weights give nonsense, or another library's class other outputs",
        "The same numbers mean something else where they are read in another order. The module "
        "alone does not show it: with weights of its own it is a valid attention.",
        f"--reference other_file.py:Name {SIZES}",
        {
            "packed": "chunks-in-the-wrong-order interleaved-per-head",
            "layouts": "rotation-layout-mixed",
            "groups": "groups-tiled",
            "slopes": "alibi-slopes-by-formula",
            "parity": "differs-from-reference gradients-differ-from-reference "
            "keys-and-values-swapped",
            "parameters": "parameters-differ parameters-named-otherwise",
        },
    ),
    Sign(
        "Some parameters never change",
        "An optimiser moves what is registered and has a gradient.",
        SIZES,
        {
            "list of heads": "heads-in-a-plain-list",
            "doctor": "parameters-without-gradient rows-without-gradient no-gradient",
            "one head": "output-projection-missing queries-ignored keys-ignored values-ignored",
        },
    ),
    Sign(
        "The same input gives another output each time, or in evaluation another one",
        "In evaluation mode nothing is random, and recording gradients changes no number.",
        SIZES,
        {
            "dropout": "dropout-in-evaluation",
            "doctor": "gradient-mode-matters training-differs input-changed-in-place",
        },
    ),
    Sign(
        "It raises an error, or returns something of another shape",
        "Masks are the usual reason: their axes do not broadcast to those of the scores.",
        f"--kind self {SIZES}",
        {
            "mask shape": "mask-fails mask-on-the-wrong-axis mask-transposed",
            "doctor": "fails wrong-result",
        },
    ),
    Sign(
        "What other code relies on does not work",
        "Hooks, and tensors that are used again after the call.",
        SIZES,
        {"doctor": "call-instead-of-forward input-changed-in-place"},
    ),
)


def write(chapters: Mapping[str, Chapter]) -> str:
    """Write the page's sections, in Markdown."""
    return "\n".join(line for sign in SIGNS for line in _section(sign, chapters))


def _section(sign: Sign, chapters: Mapping[str, Chapter]) -> Iterator[str]:
    yield from ("", f"## {sign.seen}", "", sign.about, "")
    yield from ("```sh", f"{COMMAND} {sign.options}", "```", "")
    yield from ("| likely cause | code | chapter |", "|---|---|---|")
    for section, codes in sign.causes.items():
        place = SECTIONS[section]
        title = chapters[place.partition(".")[0]].title
        for code in codes.split():
            yield f"| {_cause(code)} | `{code}` | [{title}](../notebooks/{place}) |"


def _cause(code: str) -> str:
    text = CODES[code]
    return f"{text[0].upper()}{text[1:]}"
