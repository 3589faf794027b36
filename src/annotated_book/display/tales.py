"""What a model tells with parts of its code changed, beside what it told before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import zip_longest

from annotated_book.display._html import Output, figure, scrolled
from annotated_book.display.tables import in_columns


@dataclass(frozen=True)
class Told:
    """What a model answered and told.

    Attributes:
        facts: what is known of it, such as its answers; a text for each column.
        words: of its story.
        before: the line of code that was changed, or nothing.
        after: the line as it is now.
        text: what the story goes on with, or nothing.
    """

    facts: Sequence[str]
    words: Sequence[str]
    before: str = ""
    after: str = ""
    text: str = ""


def tale(words: Sequence[str], first: Sequence[str]) -> tuple[str, str]:
    """Write a story as HTML and as text, its words marked where the first story has others."""
    pairs = zip_longest(words, first[: len(words)])
    marked = [(word, word != was) for word, was in pairs]
    html = " ".join(f"<mark>{escape(x)}</mark>" if new else escape(x) for x, new in marked)
    return html, " ".join(f"[{x}]" if new else x for x, new in marked)


def stories(told: Mapping[str, Told], columns: Sequence[str], *, name: str) -> Output:
    """Show what models answered and told, and mark where a story leaves that of the first.

    Args:
        told: under the name of each model.
        columns: a word over each fact.
        name: the figure's name, see ``finish``.

    Examples:
        >>> from annotated_book.display.tales import Told, stories
        >>> whole = Told(["cat"], ["it", "ran"])
        >>> cut = Told(["cat"], ["it", "hid"], "y = x.T", "y = x")
        >>> stories({"whole": whole, "cut": cut}, ["asked"], name="try")
        Figure: What is told.
               asked
        whole    cat
        cut      cat
        whole: it ran
        cut: it [hid]
    """
    first, *_ = told.values()
    text = in_columns([["", *columns], *([key, *each.facts] for key, each in told.items())])
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    bodies, across = "", len(columns) + 1
    for key, each in told.items():
        facts = "".join(f"<td>{escape(fact)}</td>" for fact in each.facts)
        rows = [f'<th scope="row">{escape(key)}</th>{facts}']
        if each.before:
            changed = f"<del>{escape(each.before)}</del> <ins>{escape(each.after)}</ins>"
            rows.append(f'<td colspan="{across}"><code>{changed}</code></td>')
        written, marked = tale(each.words, first.words)
        begin = f'<span class="aa-begin">{escape(each.text)}</span> ' if each.text else ""
        rows.append(f'<td colspan="{across}" class="aa-tale">{begin}{written}</td>')
        bodies += "<tbody>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</tbody>"
        text += f"\n{key}: {each.text}{' ' * bool(each.text)}{marked}"
    table = f'<table class="aa-stories"><thead><tr><td></td>{head}</tr></thead>{bodies}</table>'
    return figure(name, scrolled(table, "what is told"), f"What is told.\n{text}")
