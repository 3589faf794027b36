"""The storyteller: a trained model to talk to, in the page."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from annotated_attention.pretrained import attention_weights
from annotated_book.display._html import Output
from annotated_book.display._live import live
from annotated_book.display.plots import COLOURS, finish, panels


def storyteller(
    models: Mapping[str, tuple[nn.Module, Tensor]],
    words: Sequence[str],
    texts: Mapping[str, str],
    *,
    longest: int,
    edge: str,
    temperatures: Sequence[float],
    name: str,
) -> Output:
    """Show where a model looks after a text, and what it would say next; alive, give it any text.

    Args:
        models: by name, what scores (b, n) ids, and (layers, h, d), what stands in for a head that
            is silenced. Alive, the first has the weights of ``data/storyteller-0.bin``, the
            second those of ``data/storyteller-4.bin``; the picture shows the first.
        words: its vocabulary, padding first.
        texts: names of texts to begin with, and the texts; the picture shows the first.
        longest: how many words a text has at most.
        edge: the word before and after each story.
        temperatures: to choose from, alive, when the next word is drawn; 0 takes the likeliest.
        name: the figure's name, see ``finish``.
    """
    model, means = next(iter(models.values()))
    text = [edge, *next(iter(texts.values())).split()]
    ids = torch.tensor([[words.index(word) for word in text]])  # (1, n)
    with attention_weights(model) as collected, torch.no_grad():
        shares = model(ids)[0, -1].softmax(-1)
    looks = torch.cat([weights[0, :, -1] for weights in collected])  # (layers * h, n)
    heads = [f"{i + 1}.{j + 1}" for i in range(means.size(0)) for j in range(means.size(1))]
    drawing, (table, bars) = panels(620, 330, columns=2)
    for j, row in enumerate(looks.T.tolist()):
        for i, weight in enumerate(row):
            table.text(i + 0.5, j + 0.65, f"{weight:.2f}", ha="center", fontsize=11)
            table.axvspan(i, i + 1, 1 - (j + 1) / len(text), 1 - j / len(text), lw=0)
            table.patches[-1].set(color=COLOURS["n"], alpha=0.5 * weight)
    table.set(xlim=(0, len(heads)), ylim=(len(text), 0))
    table.set_xticks([i + 0.5 for i in range(len(heads))], heads, color=COLOURS["h"])
    table.set_yticks([j + 0.6 for j in range(len(text))], text, fontsize=11)
    table.tick_params(length=0, labeltop=True, labelbottom=False)
    table.set_title(f"“{text[-1]}” looks at, by layer.head", fontsize=12)
    best = shares.topk(5)
    for place, (share, _) in enumerate(zip(*map(Tensor.tolist, best), strict=True)):
        bars.barh(place, share, height=0.6, color=COLOURS["h"], alpha=0.8)
        bars.text(share + 0.02, place, f"{share:.2f}", va="center")
    bars.set_yticks(range(5), [words[i] for i in best.indices])
    bars.set(xlim=(0, 1.2), xticks=[], ylim=(6, -1))
    bars.set_title("next word", fontsize=12)
    said = ", ".join(
        f"{heads[i]} at {text[row.argmax()]} ({row.max():.2f})" for i, row in enumerate(looks)
    )
    alt = f"After “{' '.join(text[1:])}” the heads of the last word look most: {said}. "
    alt += f"Next comes {words[best.indices[0]]} with a chance of {best.values[0]:.2f}."
    state = model.state_dict()
    data = {
        "words": list(words),
        "edge": edge,
        "longest": longest,
        "shapes": [
            [key, *x.shape] if x.dim() > 1 else [key, len(x), 0] for key, x in state.items()
        ],
        "heads": means.size(1),
        "layers": means.size(0),
        "models": [
            {
                "name": key,
                "means": [[[round(x, 5) for x in head] for head in layer] for layer in of],
            }
            for key, of in ((key, of.tolist()) for key, (_, of) in models.items())
        ],
        "temperatures": list(temperatures),
        "texts": [{"name": key, "text": value} for key, value in texts.items()],
    }
    static = finish(drawing, name=name, alt=alt)
    return live(static, "storyteller", data, room=(410, 655))
