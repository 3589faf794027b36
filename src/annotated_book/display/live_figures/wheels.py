"""A listing whose parts can be taken out; what calls say, and a model tells, without them."""

import re
from collections.abc import Mapping, Sequence
from html import escape

from annotated_book.display._html import Output, figure, told
from annotated_book.display._live import live
from annotated_book.display.tales import Told, tale


def wheels(
    lines: Sequence[str],
    parts: Mapping[str, str],
    verdicts: Mapping[str, Sequence[str]],
    out: Sequence[str],
    *,
    tales: Sequence[Told] = (),
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
        tales: what a model answers and tells with the code, for each set of parts; or nothing.
        name: the figure's name, see ``finish``.

    Raises:
        ValueError: there is not one verdict, or not one tale, for each set of parts.

    Examples:
        >>> from annotated_book.display.live_figures.wheels import wheels
        >>> said = {"sum": ["unnoticed", "stops"], "mean": ["unnoticed", "unnoticed"]}
        >>> wheels(["y = x.T + 1"], {"turn": ".T"}, said, ["turn"], name="try")
        Figure: Without turn: sum, stops; mean, unnoticed.
    """
    names = list(parts)
    each_set = [*verdicts.values(), *[tales] * bool(tales)]
    if any(len(row) != 2 ** len(names) for row in each_set):
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
    still += _said(heard if gone else dict.fromkeys(verdicts, "right"))
    if tales:
        written, marked = tale(tales[place].words, tales[0].words)
        facts = ", ".join(tales[place].facts)
        still += f'<p class="aa-tally">{escape(facts)}</p><p class="aa-tells">{written}</p>'
        text += f" {facts}. {marked}"
    still = f"<div>{still}</div>"
    data = {
        "lines": pieces,
        "parts": names,
        "calls": list(verdicts),
        "verdicts": [list(row) for row in zip(*verdicts.values(), strict=True)],
        "out": gone,
        "tales": [[", ".join(each.facts), " ".join(each.words)] for each in tales],
    }
    room = (500, 940) if tales else (400, 720)
    return live(figure(name, told(still, escape(text)), text), "wheels", data, room=room)


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
