"""What readers take along: a chapter's notebook, its script, and an archive with all they need."""

import io
import zipfile
from functools import cache
from pathlib import Path

import nbformat

from annotated_attention import __version__
from press.run import scripts
from press.site.chapter_list import address

FORMATS = {".ipynb": "notebook", ".py": "script"}
INSTALL = "pip install -e '.[book,trained]'"
NEEDS = (
    "This notebook needs its book: unpack the archive that its page offers, or clone the "
    f"repository; in that folder, `{INSTALL}`."
)
# Runs first where a hosted service opens the notebook; beside an installed book it does nothing.
BRING = """\
# Brings the book to where it is not yet, such as a hosted notebook service: about two minutes.
import importlib.util
import subprocess
import sys
from pathlib import Path

if importlib.util.find_spec("annotated_book") is None:
    subprocess.run(["git", "clone", "--quiet", "--depth=1", "{repository}", "book"], check=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "-e", "book[book,trained]"]
    subprocess.run(pip, check=True)
    sys.path.insert(0, str(Path("book", "src").resolve()))"""
HOSTED = "https://colab.research.google.com/github/{project}/blob/hosted/{file}"
GITHUB = "https://github.com/"
ARCHIVE = "downloads/annotated-attention.zip"
FOLDER = f"annotated-attention-{__version__}"
ALONE = ("pyproject.toml", "README.md", "LICENSE", "requirements-trained.txt")
TREES = ("notebooks", "src/annotated_attention", "src/attention_doctor", "src/annotated_book")
READ_FIRST = f"""\
The chapters of Annotated Attention {__version__} as notebooks, and the packages that they import.
In this folder, with Python 3.11.5 or later:

    {INSTALL} jupyterlab
    jupyter lab notebooks
"""


def files(script: Path, repository: str) -> dict[str, str]:
    """Give the text of each file that the site offers of a chapter, by its path there.

    The notebook begins with what it needs: beside its script, it needs nothing.

    Args:
        script: the chapter.
        repository: the address of the repository, or empty.
    """
    notebook = scripts.notebook(script)
    if repository:
        needs = nbformat.v4.new_code_cell(BRING.format(repository=repository), id="needs")
    else:
        needs = nbformat.v4.new_markdown_cell(NEEDS, id="needs")
    notebook.cells.insert(0, needs)
    texts = {".ipynb": scripts.write(notebook), ".py": script.read_text(encoding="utf-8")}
    return {_path(script.stem, suffix): texts[suffix] for suffix in FORMATS}


@cache
def archive() -> bytes:
    """Pack the chapters and what they import, so that they run in a folder of their own.

    The bytes depend on nothing but the files: not on their times, or the order of folders.
    """
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        _pack(file, "READ-ME-FIRST.txt", READ_FIRST.encode())
        there = [scripts.ROOT / name for name in ALONE]
        for tree in TREES:
            there += sorted(path for path in (scripts.ROOT / tree).rglob("*") if path.is_file())
        for path in filter(Path.exists, there):
            name = path.relative_to(scripts.ROOT)
            if not any(part.startswith((".", "__pycache__")) for part in name.parts):
                _pack(file, name.as_posix(), path.read_bytes())
    return packed.getvalue()


def _pack(file: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(f"{FOLDER}/{name}")  # its date is the first that an archive can say
    entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
    file.writestr(entry, content)


def links(name: str, root: str, repository: str) -> str:
    """Give the links to them, and to what the repository has where it has an address.

    Args:
        name: that of the chapter.
        root: the way from its page to the first page.
        repository: the address of the repository, or empty.
    """
    made = [
        f'<a href="{root}{_path(name, suffix)}" download="{name}{suffix}">{what}</a>'
        for suffix, what in FORMATS.items()
    ]
    made.append(f'<a href="{root}{ARCHIVE}" download="{FOLDER}.zip">with all it needs</a>')
    if repository.startswith(GITHUB):
        project = repository.removeprefix(GITHUB).strip("/")
        hosted = HOSTED.format(project=project, file=Path(_path(name, ".ipynb")).name)
        made.append(f'<a href="{hosted}">open in Colab</a>')
    if repository:
        source = f"{repository.rstrip('/')}/blob/HEAD/notebooks/{name}.py"
        made.append(f'<a href="{source}">source</a>')
    return f"run it yourself: {' · '.join(made)}"


def _path(name: str, suffix: str) -> str:
    return f"downloads/{Path(address(name)).name}{suffix}"
