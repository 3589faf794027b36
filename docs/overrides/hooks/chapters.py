"""Brings the executed chapters into the site: pages, navigation, downloads, the map of chapters.

The list of chapters, built or not, stands once, in mkdocs.yml under ``extra.chapters``.
"""

import html
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs_jupyter.config import settings

import annotated_attention.display
from annotated_attention.display import _live
from book import figures, scripts
from book.figures import EXECUTED

OVERRIDES = Path(__file__).parents[1]
SHEET = {"Cheat sheet": "notebooks/cheat_sheet.ipynb"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Use our own notebook template, and put the chapters into the navigation."""
    settings.templates_dir = str(OVERRIDES / "nbconvert")
    listed = {chapter["file"]: chapter for chapter in config.extra["chapters"]}
    for script in sorted(scripts.CHAPTERS.glob("[0-9][0-9]_*.py")):
        if script.stem not in listed:
            raise PluginError(f"mkdocs.yml: extra.chapters does not list {script.stem}")
    pages = [
        {f"{number} · {chapter['title']}": f"notebooks/{chapter['file']}.ipynb"}
        for number, chapter in enumerate(config.extra["chapters"], 1)
        if _built(chapter["file"])
    ]
    assert config.nav is not None
    nav = [{"Chapters": pages} if entry == "chapters" else entry for entry in config.nav]
    config.nav = [entry for entry in nav if entry != SHEET or _built("cheat_sheet")]
    return config


@event_priority(100)  # before the notebook plugin, which takes over what it finds here
def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what was executed as pages, and the scripts and notebooks as downloads."""
    for name in filter(_built, sorted(path.stem for path in scripts.CHAPTERS.glob("*.py"))):
        page = File(
            f"notebooks/{name}.ipynb",
            src_dir=str(EXECUTED.parent),
            dest_dir=config.site_dir,
            use_directory_urls=config.use_directory_urls,
        )
        files.append(page)
        source = scripts.CHAPTERS / f"{name}.py"
        for suffix, text in ((".py", source.read_text()), (".ipynb", scripts.pair_text(source))):
            files.append(File.generated(config, f"downloads/{name}{suffix}", content=text))
    for file in list(files):
        if file.src_uri.startswith("nbconvert/"):  # MkDocs takes it for a part of the theme
            files.remove(file)
    folder = Path(annotated_attention.display.__file__).parent
    sheets = sorted(folder.glob("*.css"), key=lambda sheet: (sheet.stem != "display", sheet.stem))
    css = "\n".join(sheet.read_text(encoding="utf-8") for sheet in sheets)
    files.append(File.generated(config, "assets/display.css", content=css))
    for path, script in _live.files().items():
        if path != "host/jupyter.js":
            files.append(File.generated(config, f"assets/live/{path}", content=script))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let pages link to chapters as they lie in the repository."""
    return markdown.replace("](../notebooks/", "](notebooks/")


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in the map of chapters, and figures that a chapter has drawn."""
    content = content.replace("<!-- chapters -->", _map_of_chapters(config))

    def borrow(found: re.Match[str]) -> str:
        try:
            return figures.from_chapter(found[1], found[2])
        except LookupError as error:
            raise PluginError(f"{page.file.src_uri}: {error}") from None

    return re.sub(r"<!-- figure (\w+) ([\w-]+) -->", borrow, content)


def _built(name: str) -> bool:
    return (scripts.CHAPTERS / f"{name}.py").exists() and (EXECUTED / f"{name}.ipynb").exists()


def _map_of_chapters(config: MkDocsConfig) -> str:
    rows = []
    for number, chapter in enumerate(config.extra["chapters"], 1):
        title, after = html.escape(chapter["title"]), html.escape(chapter["after"])
        if _built(chapter["file"]):
            title, state = f'<a href="notebooks/{chapter["file"]}/">{title}</a>', ""
        else:
            title, state = f"{title} <small>not written yet</small>", ' class="aa-later"'
        rows.append(f"<li{state}><b>{number}</b><div><h3>{title}</h3><p>{after}</p></div></li>")
    return f'<ol class="aa-chapters">{"".join(rows)}</ol>'
