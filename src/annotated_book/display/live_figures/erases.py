"""What states say of a key as facts are written into them, each by a rule of its own."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from annotated_book.display._html import Output
from annotated_book.display._live import live
from annotated_book.display.plots import COLOURS, finish, panels


def erases(
    keys: Mapping[str, Sequence[float]],
    places: Sequence[str],
    facts: Sequence[tuple[str, str]],
    rules: Mapping[str, tuple[float, bool]],
    *,
    name: str,
    asked: str,
) -> Output:
    """Show a state for each rule, and what it says of a key; alive, the reader tells and asks.

    Args:
        keys: what can be asked for; of each its d features, of length 1.
        places: the values, one for each feature of a value.
        facts: what is told, a key and a place each; the still picture has been told all of them.
        rules: of each its gate α, and whether it corrects (the delta rule) or only adds.
        name: the figure's name, see ``finish``.
        asked: the key that is asked for.
    """
    drawing, axes = panels(640, 300, columns=len(rules))
    said = []
    for ax, (rule, way) in zip(axes, rules.items(), strict=True):
        state = _state(keys, places, facts, *way)
        answer = torch.tensor(keys[asked]) @ state
        pairs = zip(places, answer.tolist(), strict=True)
        said.append(f"{rule}: " + ", ".join(f"{place} {x:.2f}" for place, x in pairs))
        for row, numbers in enumerate(state.tolist()):
            for column, number in enumerate(numbers):
                alpha = min(abs(number), 1) * 0.6
                look = {"color": COLOURS["n" if number < 0 else "h"], "alpha": alpha, "lw": 0}
                ax.barh(row, 0.94, 0.94, column - 0.47, **look)
                says = f"{number:.2f}".replace("-", "−")
                ax.text(column, row, says, ha="center", va="center", fontsize=12)
        for column, (place, x) in enumerate(zip(places, answer.tolist(), strict=True)):
            ax.bar(column, -x, 0.7, len(state) + 1.6, color=COLOURS["m"], alpha=0.6)
            ax.text(column, len(state) + 2.2, place, ha="center", va="center", fontsize=12)
        ax.set(xlim=(-0.6, 2.6), ylim=(5.8, -0.6), xticks=[], yticks=[], title=rule)
    alt = f"Told: {'; '.join(map(' '.join, facts))}. Asked for {asked}, {'; '.join(said)}."
    data = {
        "keys": {who: list(key) for who, key in keys.items()},
        "places": list(places),
        "facts": [list(fact) for fact in facts],
        "rules": [[rule, *way] for rule, way in rules.items()],
        "asked": asked,
    }
    return live(finish(drawing, name=name, alt=alt), "erases", data, room=(420, 520))


def _state(
    keys: Mapping[str, Sequence[float]],
    places: Sequence[str],
    facts: Sequence[tuple[str, str]],
    gate: float,
    corrects: bool,
) -> Tensor:
    """Give the state, (d, places), after all facts."""
    state = torch.zeros(len(next(iter(keys.values()))), len(places))
    for who, where in facts:
        key, value = torch.tensor(keys[who]), torch.zeros(len(places))
        value[places.index(where)] = 1
        state = gate * state
        state = state + key[:, None] * (value - key @ state if corrects else value)
    return state
