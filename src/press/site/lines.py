"""Source on a page of the package, every line of it, with its notes beside the code.

A comment names a class, a function or a module; in its place stands what `annotated` shows of it.
"""

import re
from pkgutil import resolve_name

PLACE = re.compile(r"<!-- every line of ([\w.]+) -->")


def fill(content: str) -> str:
    """Put the source in the place of each comment that names one."""
    return PLACE.sub(lambda found: _annotated(found[1]), content)


def _annotated(name: str) -> str:
    from annotated_book.display import annotated  # with torch, so not for every page

    shown = annotated(resolve_name(name)).html
    return f"<div data-search-exclude>{shown}</div>"
