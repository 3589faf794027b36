"""The calculator: a table of what a Transformer costs, and the sliders that change its sizes."""

from dataclasses import asdict
from html import escape

from annotated_attention import counting
from annotated_book.display._html import Output, figure, scrolled, table
from annotated_book.display._live import live

_BATCH, _WIDTH = 1, 4  # to begin with: sequences, and bytes of one number


def calculator(preset: str, length: int) -> Output:
    """Show what published sizes cost, as a table; JavaScript adds sliders for the sizes.

    Args:
        preset: one of ``counting.PRESETS``.
        length: of source and target.
    """
    given = counting.PRESETS[preset], length, _BATCH, _WIDTH
    notes = counting.notes(*given)
    listed = "".join(f"<li>{escape(note, quote=False)}</li>" for note in notes)
    costs = scrolled(table(counting.rows(*given), "aa-table"), "costs by part")
    still = (
        f'<div class="aa-still"><p>{preset}, length {length:,}, batch {_BATCH}, {_WIDTH} bytes a '
        f'number</p>{costs}<ul class="aa-notes">{listed}</ul></div>'
    )
    caption = "Feed-forward networks are four times as wide as the model."
    static = figure("calculator", still, counting.table(*given), caption)
    return live(
        static,
        "calculator",
        {
            "presets": {name: asdict(sizes) for name, sizes in counting.PRESETS.items()},
            "preset": preset,
            "length": length,
            "batch": _BATCH,
            "bytes": _WIDTH,
        },
        room=(600, 830),
    )
