"""The package as it is installed: whole, typed, and with nothing but PyTorch behind its core."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator

from book.run import scripts

CORE = """
import sys
from annotated_attention import *
extra = {"IPython", "matplotlib", "pygments", "jupytext", "mkdocs", "attention_doctor"}
rooms = ("display", "exercises", "chapters", "pretrained", "mistakes", "published")
print(*(extra | {f"annotated_attention.{room}" for room in rooms}) & set(sys.modules))
import annotated_attention.pretrained.bert  # what reads checkpoints is imported to read one
print(*{"safetensors", "tokenizers", "transformers", "huggingface_hub"} & set(sys.modules))
"""


def test_core_needs_nothing_but_torch():
    run = subprocess.run([sys.executable, "-c", CORE], capture_output=True, text=True, check=True)
    assert run.stdout == "\n\n"


def test_wheel_holds_the_package_and_not_the_workshop(tmp_path):
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(scripts.ROOT / name, tmp_path)
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(scripts.ROOT / "src", tmp_path / "src", ignore=ignore)
    pip = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--quiet"]
    subprocess.run([*pip, "-w", tmp_path / "wheel", tmp_path], check=True, capture_output=True)
    (wheel,) = (tmp_path / "wheel").iterdir()
    names = zipfile.ZipFile(wheel).namelist()
    source = scripts.ROOT / "src"
    wanted = {
        path.relative_to(source).as_posix()
        for package in ("annotated_attention", "attention_doctor")
        for path in (source / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert wanted <= set(names)
    typed = {"annotated_attention/py.typed", "attention_doctor/py.typed"}
    assert {*typed, "annotated_attention/display/display.css"} <= wanted
    assert not [name for name in names if name.startswith(("book/", "tests/", "notebooks/"))]
    assert any(name.endswith("licenses/LICENSE") for name in names)


def imported(node: ast.AST) -> Iterator[str]:
    """Yield what code imports whatever is there; what it only tries to is its own affair."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield node.module or ""
    elif not isinstance(node, ast.Try):
        for child in ast.iter_child_nodes(node):
            yield from imported(child)


def test_readme_names_the_extras_that_the_notebooks_need():
    project = tomllib.loads((scripts.ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    readme = (scripts.ROOT / "README.md").read_text("utf-8")
    (named,) = re.findall(r"pip install -e '\.\[([a-z,]+)\]'", readme)
    asked = [x for extra in named.split(",") for x in project["optional-dependencies"][extra]]
    there = {re.split(r"[<>=]", line)[0] for line in (*asked, *project["dependencies"])}
    for script in scripts.ROOT.glob("notebooks/*.py"):
        roots = {name.partition(".")[0] for name in imported(ast.parse(script.read_text("utf-8")))}
        needed = roots - sys.stdlib_module_names - {"annotated_attention", "attention_doctor"}
        assert {name.lower() for name in needed} <= there, script.name
