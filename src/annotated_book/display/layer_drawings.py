"""Draw Transformer layers: a stream from top to bottom, and what each sublayer adds to it."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyBboxPatch

from annotated_book.display._html import Output
from annotated_book.display.plots import COLOURS, FAINT, finish, panels

_WIDTH, _HIGH = 340, 88  # of a panel, and of a sublayer with its norm, in CSS pixels
_TOP, _OUT = 104, 26  # from the words to the first layer; from the last layer to the memory
_SHADES = {"norm": "h", "feed-forward": "d"}  # all others are attentions
_LEGEND = {
    "b": "sentences in the batch",
    "m": "words that are read",
    "n": "words that are written",
    "e": "numbers of a word; 512 in the paper",
    "v": "words in the vocabulary",
    "h": "heads of each attention; 8 in the paper",
    "N": "layers on each side; 6 in the paper",
}
_TEXT: dict[str, Any] = {"va": "center", "fontsize": 12.5}


class _Side(NamedTuple):
    """Where an encoder or a decoder is drawn, and in which colour."""

    letter: str
    stream: float
    branch: float

    @property
    def ink(self) -> str:
        return COLOURS[self.letter]


_ENCODER, _DECODER = _Side("m", 62, 190), _Side("n", 280, 158)  # the memory comes from the left


def layers(parts: Mapping[str, Sequence[str]], *, name: str) -> Output:
    """Draw layers side by side, each with the parts that ran in it.

    Args:
        parts: under each layer's title its parts in the order in which they ran: "norm" before each
            sublayer (pre-LN) or behind it (post-LN). A memory enters "cross-attention".
        name: the figure's name, see ``finish``.

    Examples:
        >>> from annotated_book import display
        >>> display.layers({"post-LN": ["attention", "norm"]}, name="one-sublayer")
        Figure: post-LN: attention, add, norm.
    """
    most = max(len(ran) for ran in parts.values()) // 2
    drawing, axes = panels(_WIDTH * len(parts), _HIGH * most + 64, columns=len(parts))
    for ax, (title, ran) in zip(axes, parts.items(), strict=True):
        side = _DECODER if "cross-attention" in ran else _ENCODER
        _note(ax, side, 10, "residual stream", near=10, color=side.ink)
        _line(ax, [side.stream] * 2, [0, 24], side.ink, 4)
        end = _draw_layer(ax, side, 24, ran, {})
        _arrow(ax, (side.stream, end), (side.stream, end + 14), side.ink, 3)
        _room(ax, _HIGH * most + 42, title)
    said = " ".join(f"{title}: {_said(ran)}." for title, ran in parts.items())
    return finish(drawing, name=name, alt=said)


def whole_transformer(
    encoder: Sequence[str], decoder: Sequence[str], sentences: Sequence[str], *, name: str
) -> Output:
    """Draw the whole model: the encoder on the left, its memory, the decoder on the right.

    Args:
        encoder: the parts of a layer in the order in which they ran, see ``layers``.
        decoder: those of a decoder layer.
        sentences: what is read, what is written so far, and the word after each word of this.
        name: the figure's name, see ``finish``.
    """
    drop = _HIGH + _OUT - 28  # the memory leads straight into the first cross-attention
    low = drop + _TOP + 3 * _HIGH + 119
    drawing, (left, right) = panels(2 * _WIDTH, low + 16, columns=2)
    end = _draw_stack(left, _ENCODER, 0, sentences[0], encoder, {"self-attention": "padding mask"})
    _line(left, [_ENCODER.stream] * 2, [end, end + _OUT], _ENCODER.ink, 4)
    _line(left, [_ENCODER.stream - 2, _WIDTH - 6], [end + _OUT] * 2, _ENCODER.ink, 3)
    _arrow(left, (_WIDTH - 8, end + _OUT), (_WIDTH, end + _OUT), _ENCODER.ink, 3)
    left.text(200, end + 38, "memory (b, m, e)", color=_ENCODER.ink, **_TEXT)
    _draw_legend(left, end + 92)
    masks = {"self-attention": "causal mask", "cross-attention": "padding mask"}
    end = _draw_stack(right, _DECODER, drop, sentences[1], decoder, masks)
    _draw_scores(right, end, sentences[2])
    for ax in (left, right):
        _room(ax, low)
    letters = "; ".join(f"{letter}: {meaning}" for letter, meaning in _LEGEND.items())
    alt = (
        f"Encoder: the ids of “{sentences[0]}” become rows of the table times √e, plus clocks, and "
        f"go through N layers: {_said(encoder)}. What comes out, the memory, enters each "
        f"cross-attention of the decoder. Decoder: “{sentences[1]}” goes the same way through N "
        f"layers: {_said(decoder)}. The table, transposed, scores the next words, and a softmax "
        f"makes probabilities of the scores: “{sentences[2]}”. {letters}."
    )
    return finish(drawing, name=name, alt=alt)


def _draw_scores(ax: Axes, top: float, words: str) -> None:
    """Draw how the rows of the decoder become words."""
    x = _DECODER.stream
    _line(ax, [x, x], [top, top + 20], _DECODER.ink, 4)
    _box(ax, x, top + 32, "tableᵀ", "", "b")
    _note(ax, _DECODER, top + 32, "scores (b, n, v)")
    _line(ax, [x, x], [top + 43, top + 55], _DECODER.ink, 4)
    _box(ax, x, top + 67, "softmax", "", "b")
    _note(ax, _DECODER, top + 67, "probabilities")
    _arrow(ax, (x, top + 79), (x, top + 97), _DECODER.ink, 3)
    ax.text(_WIDTH - 6, top + 107, words, ha="right", fontweight="bold", **_TEXT)


def _draw_legend(ax: Axes, top: float) -> None:
    for i, (letter, meaning) in enumerate(_LEGEND.items()):
        y, colour = top + 20 * i, COLOURS.get(letter, "black")
        ax.text(20, y, letter, color=colour, fontweight="bold", **_TEXT)
        ax.text(42, y, meaning, **_TEXT)


def _draw_stack(
    ax: Axes, side: _Side, top: float, words: str, ran: Sequence[str], masks: Mapping[str, str]
) -> float:
    """Draw an encoder or a decoder from its words to the end of its layers."""
    stream, left = side.stream, side is _ENCODER
    x, align = (6, "left") if left else (_WIDTH - 6, "right")
    ax.text(x, top + 8, words, ha=align, fontweight="bold", **_TEXT)
    _arrow(ax, (stream, top + 16), (stream, top + 30), FAINT, 1.5)
    _box(ax, stream, top + 42, "table · √e", "", "b")
    _note(ax, side, top + 42, f"ids (b, {side.letter})")
    _line(ax, [stream] * 2, [top + 54, top + 66], side.ink, 4)
    _plus(ax, stream, top + 74)
    inward = 1 if left else -1
    _arrow(ax, (stream + 50 * inward, top + 74), (stream + 9 * inward, top + 74), FAINT, 1.5)
    _note(ax, side, top + 74, f"clocks ({side.letter}, e)")
    _line(ax, [stream] * 2, [top + 82, top + _TOP], side.ink, 4)
    end = _draw_layer(ax, side, top + _TOP, ran, masks)
    style = "round,pad=0,rounding_size=6"
    frame = ((14, top + 92), _WIDTH - 28, end - top - 86)
    ax.add_patch(FancyBboxPatch(*frame, style, ec=FAINT, fc="none", lw=1, ls="--"))
    x, align = (_WIDTH - 20, "right") if left else (20, "left")
    ax.text(x, end - 8, f"{'encoder' if left else 'decoder'}: N layers", ha=align, **_TEXT)
    return end


def _draw_layer(
    ax: Axes, side: _Side, top: float, ran: Sequence[str], masks: Mapping[str, str]
) -> float:
    """Draw the sublayers of a layer one below the other, and give the height at which they end."""
    for i, pair in enumerate(zip(ran[::2], ran[1::2], strict=True)):
        first = pair[0] == "norm"
        _draw_sublayer(ax, side, top + _HIGH * i, pair[first], first, masks.get(pair[first], ""))
    return top + _HIGH * (len(ran) // 2)


def _draw_sublayer(ax: Axes, side: _Side, y: float, part: str, norm_first: bool, mask: str) -> None:
    """Draw the branch that leaves the stream and is added to it, and the norm."""
    stream, branch, ink = side.stream, side.branch, side.ink
    boxes = [("norm", y + 20), (part, y + 51)] if norm_first else [(part, y + 28)]
    join = y + (76 if norm_first else 54)
    _line(ax, [stream] * 2, [y, join - 8], ink, 4)
    _line(ax, [stream, branch], [y + 2, y + 2], FAINT, 1.5)
    start = y + 2
    for text, middle in boxes:
        half = _box(ax, branch, middle, text, mask if text == part else "")
        _line(ax, [branch] * 2, [start, middle - half], FAINT, 1.5)
        start = middle + half
    _line(ax, [branch] * 2, [start, join], FAINT, 1.5)
    inward = 9 if branch > stream else -9
    _arrow(ax, (branch, join), (stream + inward, join), FAINT, 1.5)
    _plus(ax, stream, join)
    if part == "cross-attention":
        _arrow(ax, (0, boxes[-1][1]), (branch - 60, boxes[-1][1]), _ENCODER.ink, 3)
        ax.text(18, boxes[-1][1] - 12, "memory", color=_ENCODER.ink, **_TEXT)
        ax.text(18, boxes[-1][1] + 13, "keys, values", color=_ENCODER.ink, **_TEXT)
        _note(ax, side, y + 12, "queries", near=12, color=ink)
    if norm_first:
        _line(ax, [stream] * 2, [join + 8, y + _HIGH], ink, 4)
    else:
        half = _box(ax, stream, y + 75, "norm")
        _line(ax, [stream] * 2, [y + 75 + half, y + _HIGH], ink, 4)


def _said(ran: Sequence[str]) -> str:
    """Say in which order the parts run, and where their result is added."""
    return ", ".join(part if part == "norm" else f"{part}, add" for part in ran)


def _line(ax: Axes, x: Sequence[float], y: Sequence[float], ink: str, wide: float) -> None:
    ax.plot(x, y, color=ink, linewidth=wide, solid_capstyle="butt", clip_on=False)


def _arrow(
    ax: Axes, start: tuple[float, float], end: tuple[float, float], ink: str, wide: float
) -> None:
    look = {"arrowstyle": "->", "color": ink, "lw": wide, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", end, start, arrowprops=look)


def _plus(ax: Axes, x: float, y: float) -> None:
    ax.add_patch(Circle((x, y), 8, ec="black", fc="none", lw=1.3))
    ax.text(x, y, "+", ha="center", va="center", fontsize=14)


def _box(ax: Axes, x: float, y: float, text: str, below: str = "", letter: str = "n") -> float:
    """Draw a box, with a second line if one is given, and return half its height."""
    wide, half = 7.4 * len(text) + 10, 18 if below else 11
    corner, style = (x - wide / 2, y - half), "round,pad=0,rounding_size=4"
    colour = COLOURS[_SHADES.get(text, letter)]
    ax.add_patch(FancyBboxPatch(corner, wide, 2 * half, style, ec=colour, fc="none", lw=1.5))
    for line, middle in zip((text, below), (y - half + 11, y + 8), strict=True):
        ax.text(x, middle, line, ha="center", **_TEXT)
    return half


def _note(
    ax: Axes, side: _Side, y: float, text: str, near: float = 54, color: str = "black"
) -> None:
    """Write beside the stream, on the side of its branches."""
    right = side.branch > side.stream
    x, align = (side.stream + near, "left") if right else (side.stream - near, "right")
    ax.text(x, y, text, ha=align, color=color, **_TEXT)


def _room(ax: Axes, low: float, title: str = "") -> None:
    ax.set(xlim=(0, _WIDTH), ylim=(low, 0), title=title)
    ax.axis("off")
