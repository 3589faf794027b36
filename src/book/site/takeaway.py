"""What readers take along of a chapter: its notebook and its script."""

from pathlib import Path

import nbformat

from book.run import scripts
from book.site.contents import address

FORMATS = {".ipynb": "notebook", ".py": "script"}
NEEDS = "This notebook needs its book: in a clone of {where}, `pip install -e '.[book,trained]'`."


def files(script: Path, repository: str) -> dict[str, str]:
    """Give the text of each file that the site offers of a chapter, by its path there.

    The notebook begins with a line that says what it needs: beside its script, it needs none.

    Args:
        script: the chapter.
        repository: the address of the repository, or empty.
    """
    notebook = scripts.notebook(script)
    needs = NEEDS.format(where=f"<{repository}>" if repository else "its repository")
    notebook.cells.insert(0, nbformat.v4.new_markdown_cell(needs, id="needs"))
    texts = {".ipynb": scripts.write(notebook), ".py": script.read_text(encoding="utf-8")}
    return {_path(script.stem, suffix): texts[suffix] for suffix in FORMATS}


def links(name: str, root: str, repository: str) -> str:
    """Give the links to them, and to the source where the repository has an address.

    Args:
        name: that of the chapter.
        root: the way from its page to the first page.
        repository: the address of the repository, or empty.
    """
    made = [
        f'<a href="{root}{_path(name, suffix)}" download="{name}{suffix}">{what}</a>'
        for suffix, what in FORMATS.items()
    ]
    if repository:
        source = f"{repository.rstrip('/')}/blob/HEAD/notebooks/{name}.py"
        made.append(f'<a href="{source}">source</a>')
    return f"run it yourself: {' · '.join(made)}"


def _path(name: str, suffix: str) -> str:
    return f"downloads/{Path(address(name)).name}{suffix}"
