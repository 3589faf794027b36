"""The map of the whole computation: large on the first page, a strip at the top of each chapter.

What it draws is computed when it is drawn, by the package's own functions, on the sentence that the
first chapter takes apart.
"""

import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from annotated_attention.attention import masked_softmax, mix, scaled_scores
from annotated_attention.heads import merge_heads, split_heads
from annotated_attention.masks import block_padding
from annotated_book.display._html import Output
from annotated_book.display.colours import colour_shapes

# The words and features of the chapter "One head", and two places of padding. They are not loaded
# from it: every chapter draws the map, and would run again whenever that one changes.
WORDS = ["the", "cat", "drank", "milk", "because", "it", "was", "thirsty", "·", "·"]
_DIGITS = ["0000", "3000", "0020", "0300", "0000", "1101", "0010", "2002", "0000", "0000"]
_IT, _THIRSTY = WORDS.index("it"), WORDS.index("thirsty")
LENGTH, HEADS = 8, 2

# Each step, the shape it leaves behind, and what it does, with numbers from `computation`.
STEPS = {
    "project in": (
        "(n, h * d)",
        "Three matrices turn each word into a query, which asks (left), a key, which is compared "
        "with the queries (middle), and a value, which is handed over (right).",
    ),
    "split": (
        "(h, n, d)",
        "Each head takes its own columns of all three. Both have the same queries here, and other "
        "keys: the upper one finds what is an animal, the lower one what is a food.",
    ),
    "score": (
        "(h, n, m)",
        "Each head compares every query with every key: a row for each query, a column for each "
        "key, and the stronger the colour, the better the two fit.",
    ),
    "mask": (
        "(h, n, m)",
        "What is blocked is crossed out: the columns of the two dots, so that no word sees them, "
        "and here their rows as well, so that the dots see nothing.",
    ),
    "softmax": (
        "(h, n, m)",
        "The scores of each row become weights that add up to 1: in the upper head, “it” gives "
        "{share:.2f} of its attention to “cat” and as much to “thirsty”. The row of a dot is fully "
        "masked: 0/0 is NaN, drawn as a stroke.",
    ),
    "mask again": (
        "(h, n, m)",
        "What was crossed out gets weight 0. That only changes the dots' rows: NaN becomes 0.",
    ),
    "mix": (
        "(h, n, d)",
        "Each word collects the values of all words in proportion to its weights: in the upper "
        "head, “it” collects {animal:.2f} of quality, most of it from “thirsty”.",
    ),
    "merge": (
        "(n, h * d)",
        "The heads are put back side by side, so that each word has one row again.",
    ),
    "project out": (
        "(n, e)",
        "A last matrix writes what each head has collected into its place: “it” gets "
        "{animal:.2f} under animal and {food:.2f} under food, so what is said is about the cat.",
    ),
}
CAPTION = (
    "Point at a step, tap it, or choose it with the arrow keys, to read what it does. In every map "
    "a row is a word, and the two dots are padding; the row of <i>it</i> is framed. Below each map "
    "stand some of its numbers, and under all of them those of the chosen step. The stronger the "
    "colour, the larger the number, compared with the others of the map."
)

UNDER = (
    "In each map a row is a word: the eight of “the cat drank milk because it was thirsty”, and "
    "two places of padding."
)

X = torch.tensor([[float(digit) for digit in word] for word in _DIGITS])  # (n, e)
# The pair of heads of "The short path", made by hand. Quality asks with 2 and 1; a word is found
# by its animal (in the lower head its food) and its quality, and hands over quality and animal.
# W_O writes the quality that the upper head collects under animal, that of the lower under food.
_ANIMAL, _FOOD, _, _QUALITY = range(4)
W_Q, W_K, W_V, W_O = torch.zeros(4, 4, 4)
W_Q[_QUALITY] = torch.tensor([2.0, 1, 2, 1])
W_K[[_ANIMAL, _QUALITY, _FOOD, _QUALITY], range(4)] = 1
W_V[_QUALITY, [0, 2]] = 1
W_O[[0, 2], [_ANIMAL, _FOOD]] = 1

# The letter whose colour each thing has that is drawn.
_INKS = {
    "queries": "n",
    "keys": "m",
    "values": "m",
    "scores": "h",
    "weights": "h",
    "collected": "n",
    "output": "n",
}
_LEVELS = 8  # of each colour


@functools.cache
def computation() -> dict[str, dict[str, Tensor]]:
    """Compute every step on the sentence: what each step leaves behind, by its name."""
    projected = (X @ W_Q, X @ W_K, X @ W_V)
    q, k, v = (split_heads(x, HEADS) for x in projected)         # (h, n, d)
    scores = scaled_scores(q, k)                                 # (h, n, m)
    padding = block_padding(torch.tensor([LENGTH]), len(WORDS))  # (b, m)
    blocked = padding | padding.mT                               # (n, m)
    masked = scores.masked_fill(blocked, -math.inf)              # (h, n, m)
    weights = masked_softmax(scores, blocked)                    # (h, n, m)
    mixed, _ = mix(weights, v)                                   # (h, n, d), (h, n, m)
    merged = merge_heads(mixed)                                  # (n, h * d)
    return {
        "project in": dict(zip(("queries", "keys", "values"), projected, strict=True)),
        "split": {"queries": q, "keys": k, "values": v},
        "score": {"scores": scores},
        "mask": {"scores": masked},
        "softmax": {"weights": masked.softmax(-1)},
        "mask again": {"weights": weights},
        "mix": {"collected": mixed},
        "merge": {"collected": merged},
        "project out": {"output": merged @ W_O},
    }


def chapter_map(*lit: str) -> Output:
    """Draw the strip of steps with those that the chapter builds or changes lit up.

    Raises:
        ValueError: a name that is no step.

    Examples:
        >>> from annotated_book import display
        >>> display.chapter_map("split", "merge")
        project in → [split] → score → mask → softmax → mask again → mix → [merge] → project out
    """
    for step in lit:
        if step not in STEPS:
            raise ValueError(f"step ({step!r}) must be one of {', '.join(STEPS)}")
    steps = []
    for step, (shape, _) in STEPS.items():
        mark = ' class="aa-lit" aria-current="step"' if step in lit else ""
        drawing = f'<span aria-hidden="true">{_drawing(step)}</span>'
        box = f"{drawing}<b>{step}</b> <code>{shape}</code>"
        steps.append(f'<li{mark}><span class="aa-step">{box}</span></li>')
    label = f"The steps of multi-head attention; this chapter: {', '.join(lit)}"
    html = colour_shapes(f'<ol class="aa-map" aria-label="{label}">{"".join(steps)}</ol>')
    html += f'<p class="aa-under">{UNDER}</p>'
    text = " → ".join(f"[{step}]" if step in lit else step for step in STEPS)
    return Output(text, html)


def whole_map() -> Output:
    """Draw the large map: each step with some numbers of “it”; the chosen one is explained.

    At rest the first one is chosen.
    """
    made = computation()
    animal, food = made["project out"]["output"][_IT, :2].tolist()
    share = made["softmax"]["weights"][0, _IT, _THIRSTY].item()
    facts = {"share": share, "animal": animal, "food": food}
    says, steps = {step: line.format(**facts) for step, (_, line) in STEPS.items()}, []
    for i, (step, (shape, _)) in enumerate(STEPS.items()):
        names = f'aria-labelledby="aa-step-{i}" aria-describedby="aa-says-{i}"'
        checked = " checked" if not i else ""
        steps.append(
            f'<li><label class="aa-step"><input type="radio" name="aa-step" autocomplete="off" '
            f'{names}{checked}>{_drawing(step)}<b id="aa-step-{i}">{step}</b> '
            f"<code>{shape}</code>{_few(step)}</label>"
            f'<p id="aa-says-{i}">{says[step]}</p>{_table(step)}</li>'
        )
    words = " ".join(f"<b>{word}</b>" if word == "it" else word for word in WORDS)
    html = colour_shapes(
        f'<figure class="aa-large" id="fig-whole-map"><p class="aa-words">{words}</p>'
        f'<ol class="aa-map" aria-label="The steps of multi-head attention">{"".join(steps)}</ol>'
        f"<figcaption>{CAPTION}</figcaption></figure>"
    )
    return Output("\n".join(f"{step}: {line}" for step, line in says.items()), html)


def _few(step: str) -> str:
    """Write a few numbers that a step leaves behind, those of “it” on the way to the answer."""
    (name, x), *_ = computation()[step].items()
    its = x[..., _IT, :]
    if step == "project out":
        said, rows = "animal, food", its[:2, None]
    elif step == "mask again":
        said, rows = "of padding", x[:, -1, _THIRSTY, None]
    elif x.size(-1) == len(WORDS):
        key = len(WORDS) - 1 if step == "mask" else _THIRSTY
        said = "for padding" if step == "mask" else f"for {WORDS[key]}"
        rows = its[:, key, None]
    else:
        said, rows = _ONE_OF.get(name, name), its.view(-1, its.size(-1))
    lines = (" ".join(map(_short, row)) for row in rows.tolist())
    return f'<span class="aa-few">{said}{"".join(f"<span>{line}</span>" for line in lines)}</span>'


def _table(step: str) -> str:
    """Write the numbers of “it” that a step leaves behind: what they are, and a row per head.

    Where a mask counts, a row of padding follows, which has the same numbers in both heads.
    """
    made = computation()[step]
    rows: list[list[str]] = [[] for _ in range(max(x.dim() == 3 for x in made.values()) + 1)]
    tops: list[tuple[str, int]] = []  # each name, and over how many numbers it stands
    for name, x in made.items():
        for row, part in zip(rows, x if x.dim() == 3 else x[None], strict=True):
            row += [_short(number) for number in part[_IT].tolist()]
        if x.size(-1) == len(WORDS):
            tops += [(word, 1) for word in WORDS]
        elif step in ("merge", "project out"):
            tops += _ENDS[step]
        else:
            tops.append((_ONE_OF.get(name, name), x.size(-1)))
    head = "".join(f'<th scope="colgroup" colspan="{wide}">{top}</th>' for top, wide in tops)
    names = [f"head {i + 1}" for i in range(len(rows))] if len(rows) > 1 else ["it"]
    if step in ("mask", "softmax", "mask again"):
        names = [f"it, {name}" for name in names] + ["a dot"]
        rows.append([_short(number) for number in made[name][0, -1].tolist()])
    body = "".join(
        f'<tr><th scope="row">{name}</th>{_cells(row, tops)}</tr>'
        for name, row in zip(names, rows, strict=True)
    )
    table = f'<table class="aa-numbers"><tr><td></td>{head}</tr>{body}</table>'
    return f'<div class="aa-its aa-scroll">{table}</div>'


def _cells(row: Sequence[str], tops: Sequence[tuple[str, int]]) -> str:
    """Write a row, with a gap before the first number below each name that has several."""
    firsts = {sum(wide for _, wide in tops[:i]) for i, (_, wide) in enumerate(tops) if wide > 1}
    gap = ' class="aa-next"'
    return "".join(f"<td{gap if i and i in firsts else ''}>{x}</td>" for i, x in enumerate(row))


_ONE_OF = {"queries": "query", "keys": "key", "values": "value"}
_ENDS = {
    "merge": [("from head 1", 2), ("from head 2", 2)],
    "project out": [("animal", 1), ("food", 1), ("action", 1), ("quality", 1)],
}


def _short(number: float) -> str:
    """Write at most two decimals."""
    if math.isnan(number):
        return "NaN"
    return "−∞" if number == -math.inf else f"{number:.2f}".rstrip("0").rstrip(".")


@functools.cache
def _drawing(step: str) -> str:
    """Draw what a step leaves behind: a square for each number, heads one above the other.

    Every drawing is as high as two heads, so that a square is as large in all of them.
    """
    high, left = len(WORDS) + 1, 0
    shapes, said = "", []
    for name, x in computation()[step].items():
        letter = _INKS[name]
        slices = x if x.dim() == 3 else x[None]
        width = slices.size(-1)
        for i, part in enumerate(slices):
            top = high * i if len(slices) > 1 else high * (HEADS - 1) / 2
            peak = (part if letter == "h" else slices).nan_to_num().max().item()
            frame = f"M{left} {top:g}h{width}v{len(part)}h-{width}z"
            shapes += _squares(part, left, top, peak, letter, frame)
            if letter != "m":  # "it" asks, so queries and what is made for them have its row
                shapes += f'<path class="aa-row" d="M{left} {top + _IT:g}h{width}v1h-{width}z"/>'
            head = f" of head {i + 1}" if len(slices) > 1 else ""
            numbers = (f"{number:.2g}".replace("inf", "∞") for number in part[_IT].tolist())
            said.append(f"{name}{head}: {' '.join(numbers)}")
        left += width + 1
    alt = f"The numbers of “it”. {'; '.join(said)}"
    box = f'viewBox="-.5 -.5 {left} {HEADS * high}" style="--aa-wide: {left / HEADS / high:.3f}"'
    return f'<svg role="img" {box} aria-label="{alt}">{shapes}</svg>'


def _squares(part: Tensor, left: int, top: float, peak: float, letter: str, frame: str) -> str:
    """Fill a frame with a square for each number, by size; cross out -inf, stroke NaN."""
    levels: dict[int, str] = {}
    for i, row in enumerate(part.tolist()):
        for j, number in enumerate(row):
            at = f"M{left + j} {top + i:g}"
            if number == -math.inf:
                frame += f"{at}l1 1m-1 0l1-1"
            elif math.isnan(number):
                frame += f"M{left + j} {top + i + 1:g}l1-1"
            elif level := round(_LEVELS * number / peak):
                levels[level] = levels.get(level, "") + f"{at}h1v1h-1z"
    squares = "".join(
        f'<path opacity="{level / _LEVELS:g}" d="{path}"/>' for level, path in levels.items()
    )
    colour = f'class="dim-{letter}" fill="currentColor"'
    return f'<g {colour}>{squares}</g><path class="aa-line" d="{frame}"/>'
