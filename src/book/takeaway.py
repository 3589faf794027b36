"""What readers take along of a chapter: its notebook and its script."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

from book import scripts

FORMATS = {".ipynb": "notebook", ".py": "script"}


def files(script: Path) -> dict[str, str]:
    """Give the text of each file that the site offers of a chapter, by its path there."""
    texts = {".ipynb": scripts.pair_text(script), ".py": script.read_text(encoding="utf-8")}
    return {_path(script.stem, suffix): texts[suffix] for suffix in FORMATS}


def links(page: Page, extra: Mapping[str, Any]) -> str:
    """Give the links to them, and to the source where the repository has an address.

    Args:
        page: that of the chapter, which has its name.
        extra: what ``mkdocs.yml`` says under that name.
    """
    name = Path(page.file.src_uri).stem
    made = [
        f'<a href="{get_relative_url(_path(name, suffix), page.url)}" download>{what}</a>'
        for suffix, what in FORMATS.items()
    ]
    if extra["repository"]:
        source = f"{extra['repository'].rstrip('/')}/blob/HEAD/notebooks/{name}.py"
        made.append(f'<a href="{source}">source</a>')
    return f"run it yourself: {' · '.join(made)}"


def _path(name: str, suffix: str) -> str:
    return f"downloads/{name}{suffix}"
