"""Exercises of "The Transformer": four hands, the whole model, and writing until the end."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import sinusoidal_code
from annotated_book.exercises._exercise import Either, Exercise, require_class
from annotated_book.exercises._values import furthest, numbers

check_angles = Exercise(
    name="angles",
    right=[20, 2, 0.2, 0.02],
    praise="right: the first clock has gone round three times, the last has hardly moved.",
    wrong={
        "that is position 0, where no clock has turned.": [0, 0, 0, 0],
        "that is how far each clock turns per position; here it has turned 20 times that.": [
            1,
            0.1,
            0.01,
            0.001,
        ],
        "the clocks get slower, not faster: divide by 10, do not multiply.": [20, 200, 2000, 20000],
        "these are sines; the angles themselves are asked for.": [0.9129, 0.9093, 0.1987, 0.02],
        "all clocks turn equally fast; each is to turn ten "
        "times more slowly than the one before.": [
            20,
            20,
            20,
            20,
        ],
        "these are degrees; radians are asked for, and no factor is needed.": [
            1145.9,
            114.59,
            11.459,
            1.1459,
        ],
        "you left out full turns; how far each clock has turned in all is asked for.": [
            1.1504,
            2,
            0.2,
            0.02,
        ],
    },
    run=numbers(4),
    why=lambda answer, found, right: (
        f"clock {(i := furthest(found, right)) + 1} has not turned by that. Divide 20 by {10**i}."
    ),
    close=0.005,
)


_PAD, _START, _END, _WORDS = 0, 1, 2, 11


class _Words(nn.Module):
    """The table at both ends, as in the chapter."""

    def __init__(self, e: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(_WORDS, e) / e**0.5)

    def forward(self, ids: Tensor) -> Tensor:
        e = self.table.size(1)
        return self.table[ids] * e**0.5 + sinusoidal_code(ids.size(1), e).to(self.table)

    def scores(self, x: Tensor) -> Tensor:
        return x @ self.table.T


class _Reads(nn.TransformerEncoderLayer):
    """PyTorch's encoder layer, called as the chapter calls its own."""

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:  # type: ignore[override]
        return super().forward(x, src_key_padding_mask=padding)


class _Writes(nn.TransformerDecoderLayer):
    """PyTorch's decoder layer, called as the chapter calls its own."""

    def forward(  # type: ignore[override]
        self, x: Tensor, memory: Tensor, padding: Tensor | None = None
    ) -> Tensor:
        future = nn.Transformer.generate_square_subsequent_mask(x.size(1), dtype=x.dtype)
        return super().forward(x, memory, tgt_mask=future, memory_key_padding_mask=padding)


class _Parts(nn.Module):
    """What the answers are to connect."""

    words: _Words
    encoder: nn.ModuleList
    decoder: nn.ModuleList

    def __init__(self, e: int, h: int, depth: int) -> None:
        super().__init__()
        self.words = _Words(e)
        kinds = {"encoder": _Reads, "decoder": _Writes}
        for name, kind in kinds.items():
            made = (kind(e, h, 7, dropout=0.0, batch_first=True) for _ in range(depth))
            self.add_module(name, nn.ModuleList(made))


class _Transformer(_Parts):
    """The right answer; others are made by changing a method."""

    def encode(self, src: Tensor) -> Tensor:
        x: Tensor = self.words(src)
        for layer in self.encoder:
            x = layer(x, self.hidden(src))
        return x

    def vectors(self, tgt: Tensor, memory: Tensor, padding: Tensor | None) -> Tensor:
        x: Tensor = self.words(tgt)
        for layer in self.decoder:
            x = layer(x, memory, padding)
        return x

    def decode(self, tgt: Tensor, memory: Tensor, padding: Tensor | None = None) -> Tensor:
        return self.words.scores(self.vectors(tgt, memory, padding))

    def hidden(self, src: Tensor) -> Tensor | None:
        return src == _PAD

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        return self.decode(tgt, self.encode(src), src == _PAD)


class _NoScores(_Transformer):
    def decode(self, tgt: Tensor, memory: Tensor, padding: Tensor | None = None) -> Tensor:
        return self.vectors(tgt, memory, padding)


class _ReadsPadding(_Transformer):
    def hidden(self, src: Tensor) -> Tensor | None:
        return None


class _LooksAtPadding(_Transformer):
    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        return self.decode(tgt, self.encode(src))


class _DropsThePadding(_Transformer):
    def decode(self, tgt: Tensor, memory: Tensor, padding: Tensor | None = None) -> Tensor:
        return super().decode(tgt, memory)


class _NoPadding(_ReadsPadding, _LooksAtPadding):
    pass


class _Inverted(_Transformer):
    def hidden(self, src: Tensor) -> Tensor | None:
        return src != _PAD

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        return self.decode(tgt, self.encode(src), src != _PAD)


class _NotRead(_Transformer):
    def encode(self, src: Tensor) -> Tensor:
        x: Tensor = self.words(src)
        return x


class _Restarts(_Transformer):
    def encode(self, src: Tensor) -> Tensor:
        x = src
        for layer in self.encoder:
            x = layer(self.words(src), self.hidden(src))
        return x

    def vectors(self, tgt: Tensor, memory: Tensor, padding: Tensor | None) -> Tensor:
        x = tgt
        for layer in self.decoder:
            x = layer(self.words(tgt), memory, padding)
        return x


class _FirstLayers(_Transformer):
    def encode(self, src: Tensor) -> Tensor:
        x: Tensor = self.encoder[0](self.words(src), self.hidden(src))
        return x

    def vectors(self, tgt: Tensor, memory: Tensor, padding: Tensor | None) -> Tensor:
        x: Tensor = self.decoder[0](self.words(tgt), memory, padding)
        return x


class _Softmax(_Transformer):
    def decode(self, tgt: Tensor, memory: Tensor, padding: Tensor | None = None) -> Tensor:
        return super().decode(tgt, memory, padding).softmax(-1)


def _draw_parts(e: int, h: int, depth: int, m: int, n: int) -> dict[str, Any]:
    """Draw the parts of a model, two sentences of which one ends in padding, and two answers."""
    src, tgt = (torch.randint(_END + 1, _WORDS, (2, length)) for length in (m, n))
    src[1, -2:] = _PAD
    return {"parts": _Parts(e, h, depth).double(), "src": src, "tgt": tgt}


def _connected(answer: Any, parts: _Parts, src: Tensor, tgt: Tensor) -> Any:
    """Give the scores of an answer that has these parts: by ``forward``, and as in writing."""
    require_class(answer)
    model = answer.__new__(answer)
    nn.Module.__init__(model)
    for name, part in parts.named_children():
        model.add_module(name, part)
    whole = model(src, tgt)
    if not isinstance(whole, Tensor):
        return whole
    steps = model.decode(tgt, model.encode(src), src == _PAD)
    return torch.stack([whole, steps]) if isinstance(steps, Tensor) else steps


check_transformer = Exercise(
    name="Transformer",
    right=_Transformer,
    praise="right: its scores, and the gradients of all its parts. You have written the "
    "Transformer.",
    wrong={
        "decode returns vectors, not scores. The table, transposed, scores them: "
        "self.words.scores(x).": _NoScores,
        "no layer is told of the padding. Where src == PAD, there is no word to look at, in "
        "either half.": _NoPadding,
        "the encoder looks at padding: its layers take src == PAD, too.": _ReadsPadding,
        "the cross-attention looks at padding. forward has to hand src == PAD to decode, and "
        "decode to each layer.": Either([_LooksAtPadding, _DropsThePadding]),
        "the mask is the wrong way round: padding is True where src == PAD.": _Inverted,
        "the source goes through no layer. The memory is what the encoder's last layer gives, not "
        "the words themselves.": _NotRead,
        "each layer begins again with the words. It should take what the layer before it "
        "gave: x = layer(x, ...).": _Restarts,
        "only the first layer of each half is used.": _FirstLayers,
        "those are probabilities. Return the scores; the loss makes probabilities of "
        "them itself.": _Softmax,
    },
    run=_connected,
    sizes=[
        {"e": 12, "h": 3, "depth": 2, "m": 6, "n": 4},
        {"e": 8, "h": 2, "depth": 3, "m": 5, "n": 7},
    ],
    draw=_draw_parts,
)


class _Scripted(nn.Module):
    """A model that writes given sentences; without the padding mask, other ones."""

    def __init__(self, script: Tensor) -> None:
        super().__init__()
        self.script = script  # b sentences of equal length

    def encode(self, src: Tensor) -> Tensor:
        return F.one_hot(src, _WORDS).double()

    def decode(self, tgt: Tensor, memory: Tensor, padding: Tensor | None = None) -> Tensor:
        words = self.script[:, : tgt.size(1)]
        given = padding is not None and torch.equal(padding, memory.argmax(-1) == _PAD)
        return F.one_hot(words if given else words % 8 + 3, _WORDS).double()


def _draw_scripted(max_new: int, ends: list[int]) -> dict[str, Any]:
    """Draw a model whose sentences end at these places, and go on behind their ends."""
    script = torch.randint(3, _WORDS, (len(ends), max_new + 1))
    for sentence, end in zip(script, ends, strict=True):
        sentence[end] = _END
    src = torch.randint(3, _WORDS, (len(ends), 5))
    src[1, 3:] = _PAD
    return {"model": _Scripted(script), "src": src, "max_new": max_new}


def _greedy(
    model: Any,
    src: Tensor,
    max_new: int,
    behind: int | None = _PAD,
    until: Any = torch.all,
    hidden: bool = True,
    kept: bool = True,
) -> Tensor:
    """Write until ``until`` says that enough sentences have ended."""
    memory = model.encode(src)
    written = torch.full((len(src), 1), _START)
    ended = torch.zeros(len(src), dtype=torch.bool)
    for _ in range(max_new):
        scores = model.decode(written, memory, src == _PAD if hidden else None)[:, -1]
        following = scores.argmax(-1)
        now = ended | (following == _END)
        if behind is not None:
            following = following.masked_fill(ended if kept else now, behind)
        written, ended = torch.cat([written, following[:, None]], 1), now
        if until(ended):
            break
    return written


check_greedy_until_end = Exercise(
    name="greedy_until_end",
    right=_greedy,
    praise="right: every sentence ends, and no call is made that nobody needs.",
    wrong={
        "it writes on behind end. From there on, a sentence gets only padding.": Either(
            [
                partial(_greedy, behind=None, until=lambda ended: False),
                partial(_greedy, behind=None),
            ]
        ),
        "behind end you write end again; only padding belongs there.": partial(
            _greedy, behind=_END
        ),
        "it stops when the first sentence has ended; the others have not yet.": partial(
            _greedy, until=torch.any
        ),
        "it goes on until max_new, although all sentences have ended before.": partial(
            _greedy, until=lambda ended: False
        ),
        "padding stands in the place of end: hide what follows it, not end itself.": partial(
            _greedy, kept=False
        ),
        "decode gets no padding mask, so it reads padding: src == PAD.": partial(
            _greedy, hidden=False
        ),
        "start is missing in front of what is written.": lambda *given: _greedy(*given)[:, 1:],
    },
    sizes=[{"max_new": 6, "ends": [1, 3, 2]}, {"max_new": 4, "ends": [2, 4]}],
    draw=_draw_scripted,
    shape="(b, n)",
)
