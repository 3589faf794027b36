"""The map at the top of each chapter: the whole computation, with one part of it lit up."""

from annotated_attention.display._html import with_style
from annotated_attention.display.shapes import colour_shapes

# Each step, the shape it leaves behind, and what it does in a few words.
STEPS = {
    "project in": ("(n, h * d)", "queries, keys and values from the input"),
    "split": ("(h, n, d)", "one slice per head"),
    "score": ("(h, n, m)", "how well each query fits each key"),
    "mask": ("(h, n, m)", "hide what must not be seen"),
    "softmax": ("(h, n, m)", "scores become weights"),
    "mix": ("(h, n, d)", "weighted sum of the values"),
    "merge": ("(n, h * d)", "heads side by side again"),
    "project out": ("(n, h * d)", "mix the heads"),
}


class Map:
    """The strip of steps, shown by Jupyter and on the site."""

    def __init__(self, lit: tuple[str, ...]) -> None:
        """Keep the names of the steps to light up."""
        self.lit = lit

    def html(self) -> str:
        """Give the strip as it stands in a page, without its stylesheet."""
        steps = []
        for step, (shape, what) in STEPS.items():
            mark = ' class="aa-lit" aria-current="step"' if step in self.lit else ""
            steps.append(f'<li{mark} title="{what}"><b>{step}</b> <code>{shape}</code></li>')
        label = f"The steps of multi-head attention; this chapter: {', '.join(self.lit)}"
        return colour_shapes(f'<ol class="aa-map" aria-label="{label}">{"".join(steps)}</ol>')

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        text = " → ".join(f"[{step}]" if step in self.lit else step for step in STEPS)
        return {"text/html": with_style(self.html()), "text/plain": text}


def chapter_map(*lit: str) -> Map:
    """Draw the strip of steps with those that the chapter builds or changes lit up.

    Raises:
        ValueError: a name that is no step.
    """
    for step in lit:
        if step not in STEPS:
            raise ValueError(f"step ({step!r}) must be one of {', '.join(STEPS)}")
    return Map(lit)
