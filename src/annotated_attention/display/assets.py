"""The styles and scripts that a page holds once, and that each output of a notebook carries."""

from importlib import resources

from annotated_attention.display._html import code_block, highlight_lines
from annotated_attention.display._live import files

__all__ = ["highlighted", "scripts", "stylesheet"]


def highlighted(code: str) -> str:
    """Give the HTML of Python source as the outputs of this room show it."""
    return code_block("\n".join(highlight_lines(code)))


def stylesheet() -> str:
    """Give every style of this room, those that others build on first."""
    sheets = [file for file in resources.files(__package__).iterdir() if file.name.endswith(".css")]
    sheets.sort(key=lambda file: (file.name != "display.css", file.name))
    return "\n".join(file.read_text(encoding="utf-8") for file in sheets)


def scripts() -> dict[str, str]:
    """Give the scripts of the live figures that a page loads, their text under their path."""
    return {path: text for path, text in files().items() if path != "host/jupyter.js"}
