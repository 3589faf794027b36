"""Brings the executed chapters into the site: pages, navigation, downloads, the map of chapters.

Says of each page what it is about, too, for those who find it in a search or share it.

The list of chapters, built or not, stands once, in mkdocs.yml under ``extra.chapters``.
"""

import html
import re
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import jinja2
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs_jupyter.config import settings

import annotated_attention.display
from annotated_attention.display import _live
from book import card, figures, scripts, takeaway, ways
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
    try:
        ways.everything_before(config.extra["chapters"])
    except ValueError as error:
        raise PluginError(f"mkdocs.yml: {error}") from None
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
        for path, text in takeaway.files(scripts.CHAPTERS / f"{name}.py").items():
            files.append(File.generated(config, path, content=text))
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
    if config.site_url:
        picture = card.draw(figures.README_FIGURE.read_text(encoding="utf-8"))
        files.append(File.generated(config, "assets/card.png", content=picture))
        if urlsplit(config.site_url).path == "/":  # elsewhere nobody asks for it
            robots = f"Sitemap: {urljoin(config.site_url, 'sitemap.xml')}\n"
            files.append(File.generated(config, "robots.txt", content=robots))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let pages link to chapters as they lie in the repository; say what a chapter is about."""
    for chapter in config.extra["chapters"]:
        if page.file.src_uri == f"notebooks/{chapter['file']}.ipynb":
            page.meta["description"] = f"{_question(chapter['file'])} {chapter['after']}"
            page.meta["status"] = "chapter"  # room for a tick in the navigation
    return markdown.replace("](../notebooks/", "](notebooks/")


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in the map and the list of chapters, and figures that a chapter has drawn."""
    content = content.replace("<!-- map -->", _map(config, ""))
    content = content.replace("<!-- chapters -->", _list(config, ""))

    def borrow(found: re.Match[str]) -> str:
        try:
            return figures.from_chapter(found[1], found[2])
        except LookupError as error:
            raise PluginError(f"{page.file.src_uri}: {error}") from None

    return re.sub(r"<!-- figure (\w+) ([\w-]+) -->", borrow, content)


def on_env(env: jinja2.Environment, config: MkDocsConfig, files: Files) -> jinja2.Environment:
    """Let templates show the map, for the page that says that there is no such page."""
    env.globals["map_of_chapters"] = lambda base: _map(config, base.rstrip("/") + "/")
    return env


def _built(name: str) -> bool:
    return (scripts.CHAPTERS / f"{name}.py").exists() and (EXECUTED / f"{name}.ipynb").exists()


def _question(name: str) -> str:
    opening = scripts.notebook(scripts.CHAPTERS / f"{name}.py").cells[0].source
    found = re.search(r"^\*(.+?)\*$", opening, re.MULTILINE)
    return found[1] if found else ""


def _map(config: MkDocsConfig, base: str) -> str:
    """Draw which chapter leads to which: links, and lines behind them, for wide and for narrow."""
    chapters = config.extra["chapters"]
    wide, tall = (ways.places(chapters, tall=tall) for tall in (False, True))
    steps = 1 + max(place.step for place in wide.values())
    lanes, tall_lanes = (1 + max(p.lane for p in ps.values()) for ps in (wide, tall))
    lines = "".join(
        f'<svg class="aa-{name}" viewBox="-0.5 -0.5 {width} {height}" preserveAspectRatio="none">'
        f'<path d="{ways.rails(chapters, tall=name == "tall")}"/></svg>'
        for name, width, height in (("wide", steps, lanes), ("tall", tall_lanes, len(chapters)))
    )
    stops = []
    for number, chapter in enumerate(chapters, 1):
        name = chapter["file"]
        label = f"<b>{number}</b> <span>{html.escape(chapter['title'])}</span>"
        if _built(name):
            label = f'<a href="{base}notebooks/{name}/">{label}<i class="aa-tick"></i></a>'
        place = f"--step: {wide[name].step}; --lane: {wide[name].lane}; --tall: {tall[name].lane}"
        stops.append(f'<li style="{place}">{label}</li>')
    size = f"--steps: {steps}; --lanes: {lanes}; --tall-lanes: {tall_lanes}; --rows: {len(stops)}"
    return (
        f'<nav class="aa-ways" style="{size}" aria-label="Map of the chapters">'
        f'<div aria-hidden="true">{lines}</div><ol>{"".join(stops)}</ol></nav>'
    )


def _list(config: MkDocsConfig, base: str) -> str:
    chapters = config.extra["chapters"]
    numbers = {chapter["file"]: number for number, chapter in enumerate(chapters, 1)}
    rows = []
    for number, chapter in enumerate(chapters, 1):
        title, after = html.escape(chapter["title"]), html.escape(chapter["after"])
        needs = " and ".join(str(numbers[name]) for name in chapter["prerequisites"])
        facts = f"{chapter['minutes']} minutes" + (f" · builds on {needs}" if needs else "")
        if _built(chapter["file"]):
            href = f"{base}notebooks/{chapter['file']}/"
            title, state = f'<a href="{href}">{title}<i class="aa-tick"></i></a>', ""
        else:
            title, state = f"{title} <small>not written yet</small>", ' class="aa-later"'
        rows.append(
            f"<li{state}><b>{number}</b>"
            f"<div><h3>{title}</h3><p>{after}</p><small>{facts}</small></div></li>"
        )
    return f'<ol class="aa-chapters">{"".join(rows)}</ol>'
