"""Every code that a finding may have, with its cause in a few words."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from attention_doctor.mistakes import MISTAKES
from attention_doctor.report import CONVENTION, UNASKED, WRONG, Finding, ModelReport, Report

# Those of the doctor itself; those that are entries of the mistakes have their titles.
_OWN = {
    "blocked-has-influence": "a mask on the wrong axis, applied too late, or too weak to block",
    "cache-differs": "positions, a mask or a scale that differ from step to step",
    "cache-ignored": "keys and values are kept in a cache and never read",
    "cache-loses-tokens": "keys in the cache are written over, or a mask hides some of them",
    "cache-not-empty": "a cache that still holds another sequence",
    "computed-in-low-precision": "the softmax, or another step, runs in half precision",
    "differs-from-reference": "outputs are not those of the reference that was given",
    "fails": "the call raises an error",
    "fill-does-not-block": "blocked scores are filled with a number that does not block, such as 0",
    "future-leaks": "a causal mask that is missing or too small, or a straight reshape",
    "future-leaks-in-a-chunk": "no causal mask within a chunk that is added to a cache",
    "gradient-not-finite": "gradients through a fully masked row, or through a number too large",
    "half-differs": "a number that half precision does not hold, such as a large fill",
    "heads-mixed": "the weights of all heads are mixed with each other, as talking heads do",
    "keys-appended": "a learned key or score (an attention sink) takes a part of the weight",
    "keys-selected": "each query chooses keys, such as the k with the highest scores",
    "keys-ignored": "weights that are made from the queries alone, or without a softmax",
    "mask-fails": "a mask whose axes do not broadcast to those of the scores",
    "mask-taken-for-causal": "any mask that is given hides the future, whatever is in it",
    "mask-makes-nan": "a mask or a fill of the wrong sign, or one that is multiplied in",
    "mask-missing-in-evaluation": "a mask that is applied in training mode only",
    "mask-missing-in-training": "a mask that is applied in evaluation mode only",
    "mixed-over-queries": "weights that are summed over the queries when values are mixed",
    "nan-spreads": "the NaN of a fully masked row reaches other rows",
    "no-attention": "heads attended over, weights that are never used, or no attention at all",
    "no-gradient": "`no_grad`, `detach`, `.data`, `item` or numpy on the way",
    "order-matters": "positions inside the attention: rotary, relative, or a learned bias",
    "output-not-finite": "parameters that are never filled, or a mask that hides everything",
    "parameters-differ": "other parameters than those of the reference that was given",
    "parameters-without-gradient": "parameters on which the output does not depend",
    "past-unseen": "a mask that blocks too much, or is inverted",
    "positions-added": "positions are added to the tokens inside, and so to the values, too",
    "positions-ignored": "a rotation that is not used, has no angles, or runs along another axis",
    "positions-not-relative": "queries and keys are turned in opposite senses, or by other angles",
    "queries-are-keys": "the queries' own tokens are keys beside the context",
    "queries-ignored": "weights that are averaged over the queries, or made from the keys alone",
    "one-side-normed": "queries are normalised, and keys are not, or the other way round",
    "other-weights-returned": "the weights that are returned are not those that mix the values",
    "query-order-matters": "a straight reshape, or a softmax or mask along the wrong axis",
    "samples-mixed": "a reshape or a mask that mixes the batch with tokens or heads",
    "scale-by-convention": "another scale than usual, as some families of models have",
    "scaled-after-softmax": "the scale is applied to the weights, and not to the scores",
    "sliding-window": "a sliding window, or local attention",
    "softmax-over-samples": "the softmax runs over the samples of the batch",
    "summed-apart": "an einsum that sums one operand on its own before it multiplies",
    "table-mixed": "a table of fixed vectors is mixed in beside the values",
    "tokens-convolved": "a convolution over neighbouring tokens stands beside the attention",
    "tokens-projected": "keys and values are projected along the tokens' axis (low rank)",
    "values-bent": "an activation stands between the projection of the values and the mix",
    "values-rotated": "values are rotated together with queries and keys",
    "visible-unseen": "a straight reshape, a mask that is always there, or scores cut off",
    "weights-after-dropout": "the weights that are returned are those after dropout",
    "weights-are-no-weights": "scores, or weights of another step, are returned as weights",
    "weights-do-not-sum-to-one": "a mask after the softmax, or a softmax over another axis",
    "window-of-one": "each token attends to itself alone, in a window of one",
    "wrong-result": "what it returns is no output of (b, n, e)",
}
CODES = {**_OWN, **{code: entry.title for code, entry in MISTAKES.items()}}


def check(codes: Iterable[str]) -> None:
    """Refuse codes that do not exist, with a ValueError."""
    if unknown := [code for code in codes if code not in CODES]:
        raise ValueError(
            f"there is no code {', '.join(unknown)}; codes: {', '.join(sorted(CODES))}"
        )


def chosen(
    report: Report | ModelReport,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    wrong: Sequence[str] = (),
) -> Report | ModelReport:
    """Leave findings out of a report; what could not be asked stays.

    Codes in ``select`` count, none means all; those in ``ignore`` do not. Conventions in ``wrong``
    are wrong.
    """
    check([*select, *ignore, *wrong])
    if isinstance(report, ModelReport):
        once: dict[int, Any] = {id(x): chosen(x, select, ignore, wrong) for x in report.examined}
        reports = {path: once[id(x)] for path, x in report.items()}
        return ModelReport(report.name, reports, report.not_examined)
    kept: list[Finding] = []
    left: dict[str, None] = {}  # each once, in their order
    for finding in report.findings:
        worse = finding.severity == CONVENTION and finding.code in wrong
        counts = finding.code in (select or [finding.code]) and finding.code not in ignore
        if counts or finding.severity == UNASKED:
            kept.append(replace(finding, severity=WRONG) if worse else finding)
        else:
            left[finding.code] = None
    kept.sort(key=lambda x: x.severity != WRONG)
    said = [f"left out as asked for: {', '.join(left)}"] if left else []
    return replace(report, findings=tuple(kept), not_examined=(*report.not_examined, *said))
