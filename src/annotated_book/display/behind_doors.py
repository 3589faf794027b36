"""One mask behind several doors: what becomes of it at each, and which words are looked at."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from annotated_book.display._html import Output, figure
from annotated_book.display.tables import in_columns

FAST = "»"  # stands before a fate on the fast path
LOUD, FINE = "error", ("right", "zeros")  # whatever else happens happens without a word


class Fate(NamedTuple):
    """What becomes of a mask at one door.

    Attributes:
        verdict: one word, such as ``right``, ``leaks`` or ``error``; nothing where nobody asked.
        seen: whether the word that asks looks at each of the words.
        note: what is said in place of the words.
        fast: whether the door was the fast path.
    """

    verdict: str
    seen: Sequence[bool] = ()
    note: str = ""
    fast: bool = False


class Handed(NamedTuple):
    """A mask that somebody hands over.

    Attributes:
        group: what it is an example of; a heading, in HTML.
        fates: what becomes of it, a fate for each door.
        words: the words that the last one, or ``asks``, may look at.
        allowed: whether it may look at each.
        code: what is handed over, a line for each kind of door.
        mend: the line that mends it, for each kind of door; nothing where it is right.
        asks: the place of the word that asks.
    """

    group: str
    fates: Sequence[Fate]
    words: Sequence[str]
    allowed: Sequence[bool]
    code: Mapping[str, str]
    mend: Mapping[str, str]
    asks: int = -1


def doors(handed: Mapping[str, Handed], names: Sequence[str], *, name: str) -> Output:
    """Show what becomes of each mask at each door; press a mask to see whom it lets in.

    Args:
        handed: the masks under what they are called.
        names: of the doors.
        name: the figure's name, see ``finish``.
    """
    head = "".join(f"<span>{escape(door)}</span>" for door in names)
    body, group = f'<div class="aa-door-row" aria-hidden="true"><span></span>{head}</div>', ""
    for title, each in handed.items():
        if each.group != group:
            group = each.group
            body += f'<p class="aa-door-group">{group}</p>'
        said = "; ".join(f"{x}: {_said(y)}" for x, y in zip(names, each.fates, strict=True))
        cells = "".join(
            f'<span class="aa-fate {_kind(fate.verdict)}">{_shown(fate)}</span>'
            for fate in each.fates
        )
        lines = {
            door: _looks(each, fate) if not fate.note else escape(fate.note)
            for door, fate in zip(names, each.fates, strict=True)
            if fate.verdict
        }
        told = f"<p>{_codes('Handed over', each.code)}</p>"
        told += f"<p><strong>What <em>{escape(each.words[each.asks])}</em> looks at</strong></p>"
        told += f"<dl>{_pairs(lines)}</dl>"
        if each.mend:
            told += f'<p class="aa-mend">{_codes("Mended", each.mend)}</p>'
        body += (
            f'<details name="{name}"><summary class="aa-door-row" '
            f'aria-label="{escape(f"{title}. {said}.")}"><span>{escape(title)}</span>{cells}'
            f"</summary>{told}</details>"
        )
    rows = [["", *names]]
    rows += [[title, *map(_said, each.fates)] for title, each in handed.items()]
    content = f'<div class="aa-doors">{body}</div>'
    caption = (
        "Filled: wrong, and nothing says so. <em>leaks</em>: a word sees a blocked key; "
        "<em>hides</em>: it misses an allowed one. Framed: an error, which is the friendly kind. "
        f"<em>zeros</em>: a row with nothing left stays empty. {FAST}: on the fast path. –: not "
        "asked, since the layer has as many queries as keys. Press a row for the code, for what "
        "one word then looks at, and for the line that mends it."
    )
    return figure(name, content, f"Whom each door lets in.\n{in_columns(rows)}", caption)


def let_in(fates: Mapping[str, Fate], handed: Handed, *, name: str, caption: str = "") -> Output:
    """Show which words one word looks at, in a few calls.

    Args:
        fates: under the name of each call.
        handed: the mask, of which words and ``allowed`` count.
        name: the figure's name, see ``finish``.
        caption: HTML under the figure.

    Examples:
        >>> from annotated_book.display.behind_doors import Fate, Handed, let_in
        >>> mask = Handed("", [], ["a", "cat"], [False, True], {}, {})
        >>> let_in({"one": Fate("leaks", [True, True])}, mask, name="try")
        Figure: What cat looks at. one: a (blocked), cat.
    """
    lines = {call: _looks(handed, fate) for call, fate in fates.items()}
    told = "; ".join(f"{call}: {_named(handed, fate)}" for call, fate in fates.items())
    text = f"What {handed.words[handed.asks]} looks at. {told}."
    return figure(name, f'<div class="aa-doors"><dl>{_pairs(lines)}</dl></div>', text, caption)


def _said(fate: Fate) -> str:
    return f"{fate.verdict or '–'}{', fast path' if fate.fast else ''}"


def _shown(fate: Fate) -> str:
    shown = "✓" if fate.verdict == "right" else fate.verdict or "–"
    return f"{FAST} {shown}" if fate.fast else shown


def _kind(verdict: str) -> str:
    if not verdict or verdict in FINE:
        return "aa-fine"
    return "aa-loud" if verdict == LOUD else "aa-silent"


def _named(handed: Handed, fate: Fate) -> str:
    """Name the words that are looked at, and say which of them are blocked."""
    triples = zip(handed.words, fate.seen, handed.allowed, strict=True)
    return ", ".join(word + " (blocked)" * (not may) for word, sees, may in triples if sees)


def _looks(handed: Handed, fate: Fate) -> str:
    """Write the words: pale where they are not looked at, marked where that is wrong."""
    written = []
    for word, sees, may in zip(handed.words, fate.seen, handed.allowed, strict=True):
        inside = escape(word) if sees else f"<s>{escape(word)}</s>"
        written.append(inside if sees == may else f"<mark>{inside}</mark>")
    return f'<span class="aa-let-in">{" ".join(written)}</span>'


def _pairs(lines: Mapping[str, str]) -> str:
    return "".join(f"<dt>{escape(door)}</dt><dd>{line}</dd>" for door, line in lines.items())


def _codes(title: str, lines: Mapping[str, str]) -> str:
    """Write lines of code, each with the kind of door that it is for."""
    each = (
        f"{escape(kind)}{', ' * bool(kind)}<code>{escape(line)}</code>"
        for kind, line in lines.items()
    )
    return f"<strong>{title}</strong><br>{'<br>'.join(each)}"
