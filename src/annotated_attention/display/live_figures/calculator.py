"""The calculator: a table of what a Transformer costs, and the sliders that change its sizes."""

from dataclasses import asdict
from html import escape

from annotated_attention import counting
from annotated_attention.display._html import Output
from annotated_attention.display._live import Live, live


def calculator(preset: str, length: int, batch: int = 1, width: int = 4) -> Live:
    """Show the costs of published sizes in a table, interactive where scripts run.

    Args:
        preset: one of ``counting.PRESETS``.
        length: of source and target.
        batch: how many sequences.
        width: bytes of one number.

    Raises:
        ValueError: there is no such preset, or a size is below 1.

    Examples:
        >>> from annotated_attention import display
        >>> print(str(display.calculator("gpt2", length=1024)).splitlines()[0])
                            parameters  share     forward  share     kept  kept, fused
    """
    if preset not in counting.PRESETS:
        raise ValueError(f"preset ({preset!r}) must be one of {', '.join(counting.PRESETS)}")
    model = counting.PRESETS[preset]
    rows = counting.rows(model, length, batch, width)
    notes = counting.notes(model, length, batch, width)
    listed = "".join(f"<li>{escape(note, quote=False)}</li>" for note in notes)
    scroll = '<div class="aa-scroll" tabindex="0" role="region" aria-label="costs by part">'
    static = Output(
        counting.table(model, length, batch, width),
        f'<figure class="aa-figure" id="fig-calculator"><div class="aa-still">'
        f"<p>{preset}, length {length:,}, batch {batch:,}, {width} bytes a number</p>"
        f'{scroll}{_table(rows)}</div><ul class="aa-notes">{listed}</ul></div>'
        "<figcaption>Feed-forward networks are four times as wide as the model.</figcaption>"
        "</figure>",
    )
    return live(
        static,
        "calculator",
        {
            "presets": {name: asdict(sizes) for name, sizes in counting.PRESETS.items()},
            "preset": preset,
            "length": length,
            "batch": batch,
            "bytes": width,
        },
        room=(600, 830),
    )


def _table(rows: list[list[str]]) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in rows[0][1:])
    body = "".join(
        f'<tr><th scope="row">{part}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
        for part, *cells in rows[1:]
    )
    return (
        f'<table class="aa-table"><thead><tr><td></td>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )
