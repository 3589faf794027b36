"""The package as it is installed: whole, typed, and with nothing but PyTorch behind its core."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from importlib.metadata import distribution

import pytest
import yaml

import annotated_attention
from press.run import scripts

PROJECT = tomllib.loads((scripts.ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PACKAGES = ("annotated_attention", "attention_doctor", "annotated_book", "shape_comments")
EXTRA = "pip install 'annotated-attention[{}]'".format
BUILD = "import sys; from setuptools import build_meta; build_meta.build_{}(sys.argv[1])".format


def run(*command, cwd):
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the source distribution, and from what it holds the wheel; give both."""
    root = tmp_path_factory.mktemp("checkout")
    of_the_package = ("CHANGELOG.md", "CITATION.cff", "LICENSE", "MANIFEST.in", "README.md")
    for name in ("pyproject.toml", *of_the_package):
        shutil.copy2(scripts.ROOT / name, root)
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(scripts.ROOT / "src", root / "src", ignore=ignore)
    (root / "tests").mkdir()
    (root / "tests" / "test_it.py").touch()
    run(sys.executable, "-c", BUILD("sdist"), root / "sdist", cwd=root)
    (sdist,) = (root / "sdist").iterdir()
    with tarfile.open(sdist) as archive:
        archive.extractall(root / "unpacked", filter="data")
    (unpacked,) = (root / "unpacked").iterdir()
    run(sys.executable, "-c", BUILD("wheel"), root / "wheel", cwd=unpacked)
    (wheel,) = (root / "wheel").glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def alone(built, tmp_path_factory):
    """Install the wheel where nothing but PyTorch, and what that needs, can be imported."""
    root = tmp_path_factory.mktemp("alone")
    venv.create(root, with_pip=False)
    python, seen = root / "bin" / "python", root / "seen"
    seen.mkdir()
    for name in required("torch"):
        installed = distribution(name)
        tops = {file.parts[0] for file in installed.files} - {"..", "__pycache__"}
        for top in tops:
            (seen / top).symlink_to(installed.locate_file(top))
    (packages,) = root.glob("lib/python3*/site-packages")
    (packages / "seen.pth").write_text(f"{seen}\n")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index"]
    run(*pip, built[1], cwd=root)
    return python


def required(name):
    """List a distribution and what it requires, its extras apart."""
    lines = [line for line in distribution(name).requires or [] if "extra ==" not in line]
    further = [re.split(r"[^\w.-]", line)[0] for line in lines if "; " not in line]
    return {name}.union(*map(required, further))


def test_wheel_and_source_hold_the_package_and_not_the_workshop(built):
    sdist, wheel = built
    with tarfile.open(sdist) as archive:
        source = {name.partition("/")[2].removeprefix("src/") for name in archive.getnames()}
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        path.relative_to(scripts.ROOT / "src").as_posix()
        for package in PACKAGES
        for path in (scripts.ROOT / "src" / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    typed = {f"{package}/py.typed" for package in PACKAGES}
    assert {*typed, "annotated_book/display/display.css"} <= wanted
    assert wanted <= names
    assert {*wanted, "CHANGELOG.md", "CITATION.cff", "LICENSE", "pyproject.toml"} <= source
    workshop = ("press/", "tests/", "notebooks/")
    assert not [name for name in names | source if name.startswith(workshop)]
    assert any(name.endswith("licenses/LICENSE") for name in names)


ALONE = """
import runpy
import sys
from pathlib import Path

import torch

from annotated_attention import *
import annotated_attention.pretrained.bert  # what reads checkpoints is imported to read one

print({"attention_doctor", "annotated_book"} & set(sys.modules))

from annotated_attention import counting
from annotated_book import chapters, display, exercises
from annotated_book import measured, published
from attention_doctor import mistakes
from annotated_attention.modern import GroupedQueryAttention
from annotated_attention.pretrained.checkpoint import read_tokenizer

x = torch.randn(2, 5, 24)
final = MultiheadAttention(24, 4, batch_first=True)
print(final(x, x, x, is_causal=True)[0].shape)
grouped = GroupedQueryAttention(24, 4, num_kv_heads=2, batch_first=True)
print(grouped(x, x, x, is_causal=True)[0].shape)
print([bool(dir(room)) for room in (counting, measured, mistakes, published)])

Path("tokenizer.json").touch()
for use in (
    lambda: display.whole_map,
    lambda: exercises.multihead_attention.check_alibi.folded(None),
    lambda: read_tokenizer(Path(), 1),
    chapters.names,
):
    try:
        use()
    except Exception as error:
        print(error)

Path("layer.py").write_text("from annotated_attention import MultiheadAttention")
doctor = str(Path(sys.executable).with_name("attention-doctor"))
sizes = ["--embed-dim", "24", "--num-heads", "4"]
sys.argv = [doctor, "layer.py:MultiheadAttention", *sizes]
runpy.run_path(doctor, run_name="__main__")
"""


def test_with_pytorch_alone_it_works_and_says_what_brings_the_rest(alone, tmp_path):
    said = run(alone, "-c", ALONE, cwd=tmp_path).splitlines()
    shape = "torch.Size([2, 5, 24])"
    assert said[:4] == ["set()", shape, shape, str([True] * 4)]
    remedies = [EXTRA("book"), EXTRA("book"), EXTRA("trained"), "(pip install -e .)"]
    assert [line.endswith(end) for line, end in zip(said[4:8], remedies, strict=True)] == [True] * 4
    assert said[8][1:].startswith(" MultiheadAttention: nothing wrong")
    assert set(PROJECT["optional-dependencies"]) == {"book", "trained"}


def test_the_version_and_what_it_changes_stand_where_people_look():
    changes = (scripts.ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.findall("^## (.+)$", changes, re.MULTILINE)[0] == annotated_attention.__version__
    page = (scripts.ROOT / "docs" / "package" / "index.md").read_text("utf-8")
    assert f"Python {PROJECT['requires-python'].removeprefix('>=')} or later" in page
    (torch,) = PROJECT["dependencies"]
    assert f"PyTorch {torch.removeprefix('torch>=')} or later" in page


def test_the_citation_is_that_of_the_first_page():
    cited = yaml.safe_load((scripts.ROOT / "CITATION.cff").read_text("utf-8"))
    (author,) = cited["authors"]
    start = (scripts.ROOT / "docs" / "index.md").read_text("utf-8")
    assert " ".join(start.split()).count(f"*{cited['title']}*") == 1
    assert author["name"] in start
    assert cited["license"] == PROJECT["license"]


def test_readme_names_the_extras_that_the_notebooks_need():
    readme = (scripts.ROOT / "README.md").read_text("utf-8")
    (named,) = re.findall(r"pip install -e '\.\[([a-z,]+)\]'", readme)
    asked = [x for extra in named.split(",") for x in PROJECT["optional-dependencies"][extra]]
    there = {re.split(r"[<>=]", line)[0] for line in (*asked, *PROJECT["dependencies"])}
    for script in scripts.ROOT.glob("notebooks/*.py"):
        # What is imported further in is only tried.
        roots = {*re.findall(r"^(?:import|from) (\w+)", script.read_text("utf-8"), re.MULTILINE)}
        needed = roots - sys.stdlib_module_names - {*PACKAGES}
        assert {name.lower() for name in needed} <= there, script.name
