"""Two endings: a sentence whose last word can be exchanged, and what each word then collects."""

from collections.abc import Sequence

from torch import Tensor

from annotated_attention.display._live import Live, live
from annotated_attention.display.plots import attention_lines


def two_endings(
    x: Tensor,
    weights: Tensor,
    words: Sequence[str],
    endings: Sequence[str],
    features: Sequence[str],
    query: int,
    *,
    name: str,
    caption: str = "",
) -> Live:
    """Show a sentence that looks at itself; let the reader exchange its last word, or ask another.

    Args:
        x: (b, n, e), the values that are collected, one sentence for each ending.
        weights: (b, n, n), the attention weights of each sentence.
        words: n words, the last of which stands in the first sentence.
        endings: b words, the last one of each sentence.
        features: e names, of what is collected.
        query: the index of the word that asks first.
        name: the figure's name, see ``finish``.
        caption: HTML under the figure.

    Raises:
        ValueError: the words, endings or features do not fit ``x`` and ``weights``.

    Examples:
        >>> import torch
        >>> from annotated_attention import display
        >>> x = torch.tensor([[[3.0], [2.0]], [[3.0], [0.0]]])
        >>> weights = torch.tensor([[[1.0, 0.0], [0.5, 0.5]]]).repeat(2, 1, 1)
        >>> sentence = (["cat", "thirsty"], ["thirsty", "sweet"], ["animal"])
        >>> display.two_endings(x, weights, *sentence, query=1, name="endings").data["collected"]
        [[[300], [250]], [[300], [150]]]
    """
    given = (len(endings), len(words), len(features))
    if x.shape != given or weights.shape != (given[0], given[1], given[1]):
        raise ValueError(
            f"x {tuple(x.shape)} and weights {tuple(weights.shape)} do not fit "
            f"{given[0]} endings, {given[1]} words and {given[2]} features"
        )
    static = attention_lines(weights[0], words, query, name=name, caption=caption)
    collected = weights.detach() @ x.detach()  # (b, n, n) x (b, n, e) -> (b, n, e)
    data = {
        "words": list(words),
        "endings": list(endings),
        "features": list(features),
        "weights": (100 * weights.detach()).round().int().tolist(),
        "collected": (100 * collected).round().int().tolist(),
        "query": query,
    }
    return live(static, "two_endings", data, room=(285, 442))
