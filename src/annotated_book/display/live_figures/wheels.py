"""A listing whose parts can be taken out, and what each of several calls says without them."""

import re
from collections.abc import Mapping, Sequence
from html import escape

from annotated_book.display._html import Output, figure, told
from annotated_book.display._live import live


def wheels(
    lines: Sequence[str],
    parts: Mapping[str, str],
    verdicts: Mapping[str, Sequence[str]],
    out: Sequence[str],
    *,
    name: str,
) -> Output:
    """Show lines of code with some of their parts taken out; alive, any parts.

    Args:
        lines: of the code.
        parts: under the name of each part its text, as it stands in the lines.
        verdicts: under the name of each call what it says, for each set of parts: bit j of a
            verdict's place says whether part j is out. A call that does not see that they are out
            says "unnoticed".
        out: the names of the parts that are out to begin with.
        name: the figure's name, see ``finish``.

    Raises:
        ValueError: there is not one verdict for each set of parts.

    Examples:
        >>> from annotated_book.display.live_figures.wheels import wheels
        >>> said = {"sum": ["unnoticed", "stops"], "mean": ["unnoticed", "unnoticed"]}
        >>> wheels(["y = x.T + 1"], {"turn": ".T"}, said, ["turn"], name="try")
        Figure: Without turn: sum, stops; mean, unnoticed.
    """
    names = list(parts)
    if any(len(row) != 2 ** len(names) for row in verdicts.values()):
        raise ValueError(f"{len(names)} parts make {2 ** len(names)} sets, each with a verdict")
    cut = re.compile("(" + "|".join(map(re.escape, parts.values())) + ")")
    numbers = {text: i for i, text in enumerate(parts.values())}
    pieces = [[(x, numbers.get(x, -1)) for x in cut.split(line) if x] for line in lines]
    gone = sorted(map(names.index, out))
    place = sum(2**part for part in gone)
    heard = {call: row[place] for call, row in verdicts.items()}
    text = "; ".join(f"{call}, {said}" for call, said in heard.items())
    told_out = f"Without {', '.join(names[part] for part in gone)}: {text}."
    text = told_out if gone else "Nothing is missing."
    still = f'<pre class="aa-wheels no-copy"><code>{_listing(pieces, gone)}</code></pre>'
    still = f"<div>{still}{_said(heard if gone else dict.fromkeys(verdicts, 'right'))}</div>"
    data = {
        "lines": pieces,
        "parts": names,
        "calls": list(verdicts),
        "verdicts": [list(row) for row in zip(*verdicts.values(), strict=True)],
        "out": gone,
    }
    return live(figure(name, told(still, escape(text)), text), "wheels", data, room=(400, 720))


def _said(heard: Mapping[str, str]) -> str:
    missed = {"unnoticed": ' class="aa-unnoticed"'}
    rows = (
        f"<div><dt>{escape(call)}</dt><dd{missed.get(said, '')}>{escape(said)}</dd></div>"
        for call, said in heard.items()
    )
    return f'<dl class="aa-verdicts">{"".join(rows)}</dl>'


def _listing(lines: Sequence[Sequence[tuple[str, int]]], out: Sequence[int]) -> str:
    element = {True: '<del class="aa-wheel">{}</del>', False: '<span class="aa-wheel">{}</span>'}
    written = []
    for line in lines:
        code = "".join(text for text, _ in line)
        inside = "".join(
            escape(text) if part < 0 else element[part in out].format(escape(text))
            for text, part in line
        )
        far_in = len(code) - len(code.lstrip())
        written.append(f'<span class="aa-hung" style="--in: {far_in}">{inside}\n</span>')
    return "".join(written)
