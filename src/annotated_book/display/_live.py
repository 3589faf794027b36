"""Live figures: a static figure, complete in itself, and the module that can bring it to life.

The site finds the figure's element and starts the module on it (``live_figures/host/site.js``).
In a notebook the output carries a script that does the same (``live_figures/host/jupyter.js``): it
needs neither a kernel nor a widget's state, so a saved notebook is alive wherever it is trusted.
Everywhere else, and wherever a script does not run, the static figure stands.
"""

import base64
import html
import json
import posixpath
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from annotated_book.display._html import Output

_FOLDER = Path(__file__).with_name("live_figures")
_IMPORT = re.compile(r'(?<=from )"(\.[^"]+)"')
# What a module fetches, when it starts: it lies beside the modules.
_FETCHED = re.compile(r'new URL\("\./([^"]+)", import\.meta\.url\)')


def live(
    static: Output, module: str, data: Mapping[str, Any], room: tuple[int, int] = (0, 0)
) -> Output:
    """Let ``module`` bring a static figure to life.

    Args:
        static: the figure as ``finish`` gives it, complete without the module.
        module: a script in ``display/live_figures``, without its ending.
        data: what the module draws: numbers, text, lists and dictionaries of them, which it reads
            with ``model.get("data")``.
        room: the height to keep free for the figure without its caption, so that nothing moves
            when it starts: on a wide page and on a phone, in pixels at a text size of 16.

    Raises:
        KeyError: there is no such module.
        TypeError: ``data`` holds something that JSON does not; a ValueError if it is no number.

    Examples:
        >>> from annotated_book import display
        >>> drawing, _ = display.panels(360, 120)
        >>> static = display.finish(drawing, name="static", alt="What stands without scripts.")
        >>> display.live(static, "calculator", {"preset": "gpt2"})
        Figure: What stands without scripts.
    """
    state = json.dumps(dict(data), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    kept = html.escape(state, quote=False).replace("'", "&#39;")
    wide, narrow = (f"{pixels / 16:g}em" for pixels in room)
    frame = (
        f'<div class="aa-live" data-live="{module}" style="--aa-wide: {wide}; '
        f"--aa-narrow: {narrow}\" data-state='{kept}'>{static.html}</div>"
    )
    return Output(static.text, frame, bundle(module))


@cache
def modules() -> dict[str, str]:
    """Give the modules that a page with live figures loads, their text under their path."""
    found = {path.relative_to(_FOLDER).as_posix(): path for path in sorted(_FOLDER.rglob("*.js"))}
    del found["host/jupyter.js"]
    return {name: path.read_text(encoding="utf-8") for name, path in found.items()}


@cache
def fetched() -> dict[str, bytes]:
    """Give what the modules fetch, under its name."""
    names = {name for text in modules().values() for name in _FETCHED.findall(text)}
    data = _FOLDER.parents[1] / "data"
    return {name: (data / name).read_bytes() for name in sorted(names)}


def bundle(module: str) -> str:
    """Give the script of an output in a notebook, with all that it imports inside."""
    starter = (_FOLDER / "host/jupyter.js").read_text(encoding="utf-8")
    return _inline("host/jupyter.js", starter.replace("MODULE", module))


def _inline(path: str, text: str) -> str:
    """Replace what ``text`` imports and fetches by addresses that hold it themselves."""

    def address(kind: str, content: bytes) -> str:
        return f'"data:{kind};base64,{base64.b64encode(content).decode()}"'

    def script(found: re.Match[str]) -> str:
        other = posixpath.normpath(posixpath.join(posixpath.dirname(path), found[1]))
        return address("text/javascript", _inline(other, modules()[other]).encode())

    text = _FETCHED.sub(lambda x: address("application/octet-stream", fetched()[x[1]]), text)
    return _IMPORT.sub(script, text)
