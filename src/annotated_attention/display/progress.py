"""A bar and a table that a running cell keeps up to date."""

from html import escape

from IPython.display import display

from annotated_attention.display._html import Output

_UPDATES = 50  # redraw the bar so many times at most


class Bar(Output):
    """The bar at one moment."""

    stylesheets = ("display.css", "progress.css")


class Progress:
    """Shows how far a run is, with a row for each measurement made on the way.

    In a notebook the output grows while the cell runs; a page shows its final state.

    Examples:
        >>> from annotated_attention import display
        >>> progress = display.Progress(20, "loss")
        0 of 20 steps
        step  loss
        >>> progress.to(10)
        >>> progress.measured(0.25)
    """

    def __init__(self, total: int, *columns: str) -> None:
        """Show an empty bar of ``total`` steps, over a table with these columns."""
        self.total, self.columns, self.done = total, ("step", *columns), 0
        self.rows: list[tuple[str, ...]] = []
        self._handle = display(self._output(), display_id=True)

    def to(self, done: int) -> None:
        """Move the bar.

        Examples:
            >>> from annotated_attention import display
            >>> progress = display.Progress(20, "loss")
            0 of 20 steps
            step  loss
            >>> progress.to(10)
            >>> progress.done
            10
        """
        grain = max(1, self.total // _UPDATES)
        moved, self.done = done // grain > self.done // grain, done
        if moved or done == self.total:
            self._show()

    def measured(self, *numbers: float) -> None:
        """Add a row for the step that the bar stands at, with three decimals.

        Examples:
            >>> from annotated_attention import display
            >>> progress = display.Progress(20, "loss")
            0 of 20 steps
            step  loss
            >>> progress.measured(0.25)
            >>> progress.rows
            [('0', '0.250')]
        """
        self.rows.append((str(self.done), *(f"{number:.3f}" for number in numbers)))
        self._show()

    def _show(self) -> None:
        if self._handle is not None:  # outside of IPython nothing can be updated
            self._handle.update(self._output())

    def _output(self) -> Output:
        where = f"{self.done} of {self.total} steps"
        lines = [self.columns, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
            for line in lines
        ]
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in self.columns)
        body = "".join(f"<tr>{''.join(f'<td>{x}</td>' for x in row)}</tr>" for row in self.rows)
        html = (
            f'<div class="aa-progress"><label>{where} '
            f'<progress max="{self.total}" value="{self.done}"></progress></label>'
            f'<table class="aa-rows"><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )
        return Bar("\n".join([where, *text]), html)
