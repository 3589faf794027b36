"""Wrong versions of multi-head attention that run; each class is named after its mistake.

Each class differs from the right version by one mistake alone and keeps every shape. Its docstring
says what it computes instead and why nobody notices. The classes are here to be run, seen to fail,
and caught. ``MISTAKES`` lists them by their code: the class name in lower case with hyphens.

Examples:
    >>> from annotated_attention.mistakes import MISTAKES
    >>> mistake = MISTAKES["merge-without-transpose"]
    >>> mistake.version.__name__, mistake.right
    ('MergeWithoutTranspose', 'heads.transpose(1, 2).reshape(b, n, h * d)')
"""

from typing import TYPE_CHECKING

from annotated_attention._lazy import import_lazily

if TYPE_CHECKING:
    from annotated_attention.mistakes._registry import Mistake
    from annotated_attention.mistakes._steps import StepByStep
    from annotated_attention.mistakes.biases import AlibiSlopesByFormula
    from annotated_attention.mistakes.cache import (
        CachedKeysNotRescaled,
        CacheZerosAttended,
        CausalAtTheWrongCorner,
        DistancesRestart,
        KeysCachedUnrotated,
        PositionsRestart,
    )
    from annotated_attention.mistakes.calls import CallInsteadOfForward, InputChangedInPlace
    from annotated_attention.mistakes.catalogue import MISTAKES
    from annotated_attention.mistakes.groups import GroupsTiled
    from annotated_attention.mistakes.latent import LatentPositionsMissing, RotationAbsorbed
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
        KeysFromQueries,
        KeysOfOneHead,
        OutputProjectionDoubled,
        OutputProjectionMissing,
        SharedHeads,
        ValuesFromKeys,
    )
    from annotated_attention.mistakes.reshapes import (
        BatchMixedIntoSequence,
        HeadsAttendedOver,
        HeadsOfOtherSamples,
        MergeWithoutTranspose,
        SplitAndMergeWithoutTranspose,
        SplitWithoutTranspose,
    )
    from annotated_attention.mistakes.rotation import RotatesOneSide, RotationLayoutMixed
    from annotated_attention.mistakes.scores import (
        DropoutBeforeSoftmax,
        DropoutInEvaluation,
        NoScale,
        ScaleByLength,
        ScaleByModelWidth,
        ScaleInverted,
        ScaleTwice,
        SoftmaxOverHeads,
        SoftmaxOverQueries,
        WeightsAveragedOverHeads,
    )

__all__ = [
    "MISTAKES",
    "AlibiSlopesByFormula",
    "BatchMixedIntoSequence",
    "CacheZerosAttended",
    "CachedKeysNotRescaled",
    "CallInsteadOfForward",
    "CausalAtTheWrongCorner",
    "CausalHidesItself",
    "CausalOffByOne",
    "CausalUnasked",
    "ChunksInTheWrongOrder",
    "DistancesRestart",
    "DropoutBeforeSoftmax",
    "DropoutInEvaluation",
    "FiniteFillInHalf",
    "GroupsTiled",
    "HeadsAttendedOver",
    "HeadsInAPlainList",
    "HeadsOfOtherSamples",
    "InputChangedInPlace",
    "InterleavedPerHead",
    "KeysAndValuesSwapped",
    "KeysCachedUnrotated",
    "KeysFromQueries",
    "KeysOfOneHead",
    "LatentPositionsMissing",
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
    "PositionsRestart",
    "RotatesOneSide",
    "RotationAbsorbed",
    "RotationLayoutMixed",
    "ScaleByLength",
    "ScaleByModelWidth",
    "ScaleInverted",
    "ScaleTwice",
    "SharedHeads",
    "SoftmaxOverHeads",
    "SoftmaxOverQueries",
    "SplitAndMergeWithoutTranspose",
    "SplitWithoutTranspose",
    "StepByStep",
    "ValuesFromKeys",
    "WeightsAveragedOverHeads",
]

import_lazily(__name__)
