"""The map at the top of each chapter: the whole computation, with one part of it lit up."""

from annotated_attention.display._html import Output
from annotated_attention.display.colours import colour_shapes

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


def chapter_map(*lit: str) -> Output:
    """Draw the strip of steps with those that the chapter builds or changes lit up.

    Raises:
        ValueError: a name that is no step.
    """
    for step in lit:
        if step not in STEPS:
            raise ValueError(f"step ({step!r}) must be one of {', '.join(STEPS)}")
    steps = []
    for step, (shape, what) in STEPS.items():
        mark = ' class="aa-lit" aria-current="step"' if step in lit else ""
        box = f'<span class="aa-step" title="{what}"><b>{step}</b> <code>{shape}</code></span>'
        steps.append(f"<li{mark}>{box}</li>")
    label = f"The steps of multi-head attention; this chapter: {', '.join(lit)}"
    html = colour_shapes(f'<ol class="aa-map" aria-label="{label}">{"".join(steps)}</ol>')
    text = " → ".join(f"[{step}]" if step in lit else step for step in STEPS)
    return Output(text, html)
