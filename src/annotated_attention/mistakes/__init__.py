"""Wrong versions that run: each a class named after its mistake.

Each differs from the right version by the mistake alone, keeps every shape, and says in its
docstring what it computes instead and why nobody notices. They are here to be run, seen to fail,
and caught. ``MISTAKES`` lists them by their code, the name in lower case with hyphens:

    >>> from annotated_attention.mistakes import MISTAKES
    >>> print(MISTAKES["no-scale"].title)
    The scores are not divided by the square root of d
"""

from typing import TYPE_CHECKING

from annotated_attention._lazy import import_lazily

if TYPE_CHECKING:
    from annotated_attention.mistakes._registry import Mistake
    from annotated_attention.mistakes._steps import StepByStep
    from annotated_attention.mistakes.calls import CallInsteadOfForward, InputChangedInPlace
    from annotated_attention.mistakes.catalogue import MISTAKES
    from annotated_attention.mistakes.masks import (
        CausalHidesItself,
        CausalOffByOne,
        CausalUnasked,
        FiniteFillInHalf,
        MaskAfterSoftmax,
        MaskIgnored,
        MaskInTheWrongOrder,
        MaskInverted,
        MaskMultiplied,
        MaskOnTheWrongAxis,
        MaskTransposed,
        NanRow,
        PaddingMaskOnQueries,
    )
    from annotated_attention.mistakes.projections import (
        ChunksInTheWrongOrder,
        HeadsInAPlainList,
        InterleavedPerHead,
        KeysAndValuesSwapped,
        OutputProjectionDoubled,
        OutputProjectionMissing,
        SharedHeads,
    )
    from annotated_attention.mistakes.reshapes import (
        BatchMixedIntoSequence,
        HeadsOfOtherSamples,
        MergeWithoutTranspose,
        SplitAndMergeWithoutTranspose,
        SplitWithoutTranspose,
    )
    from annotated_attention.mistakes.scores import (
        DropoutBeforeSoftmax,
        DropoutInEvaluation,
        NoScale,
        ScaleByLength,
        ScaleByModelWidth,
        ScaleTwice,
        SoftmaxOverHeads,
        SoftmaxOverQueries,
    )

__all__ = [
    "MISTAKES",
    "BatchMixedIntoSequence",
    "CallInsteadOfForward",
    "CausalHidesItself",
    "CausalOffByOne",
    "CausalUnasked",
    "ChunksInTheWrongOrder",
    "DropoutBeforeSoftmax",
    "DropoutInEvaluation",
    "FiniteFillInHalf",
    "HeadsInAPlainList",
    "HeadsOfOtherSamples",
    "InputChangedInPlace",
    "InterleavedPerHead",
    "KeysAndValuesSwapped",
    "MaskAfterSoftmax",
    "MaskIgnored",
    "MaskInTheWrongOrder",
    "MaskInverted",
    "MaskMultiplied",
    "MaskOnTheWrongAxis",
    "MaskTransposed",
    "MergeWithoutTranspose",
    "Mistake",
    "NanRow",
    "NoScale",
    "OutputProjectionDoubled",
    "OutputProjectionMissing",
    "PaddingMaskOnQueries",
    "ScaleByLength",
    "ScaleByModelWidth",
    "ScaleTwice",
    "SharedHeads",
    "SoftmaxOverHeads",
    "SoftmaxOverQueries",
    "SplitAndMergeWithoutTranspose",
    "SplitWithoutTranspose",
    "StepByStep",
]

import_lazily(__name__)
