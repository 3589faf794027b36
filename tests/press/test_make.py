"""The front door, on a small book of its own: what is rebuilt when, and how it fails."""

import os
import re
import shutil
import socket
import subprocess
import urllib.request
from contextlib import contextmanager

import pytest

from press.run import scripts

ONE = """\
# %% [markdown]
# # One
#
# *1 minutes. Afterwards you can.*
#
# ## First part
#
# A formula $x^2$ and a [link](02_two_heads.ipynb#second-part).

# %%
LIMIT = 3


def double(x):
    return 2 * x


print(double(LIMIT))
"""
TWO = """\
# %% [markdown]
# # Two
#
# *1 minutes. Afterwards you can.*
#
# ## Second part

# %%
from annotated_book import chapters
from annotated_attention.counting import formulas

one = chapters.load("01_one_head")
print(one.double(one.LIMIT), formulas.__name__)
print(open("../data.txt").read())
"""
SCRIPTS = {"01_one_head": ONE, "02_two_heads": TWO}
PARTS = "".join(f"\n        - {{ file: {name}, prerequisites: [] }}" for name in SCRIPTS)


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """Give a checkout with two short chapters, built once; tests put back what they change."""
    root = tmp_path_factory.mktemp("checkout")
    for name in ("Makefile", "mkdocs.yml", "pyproject.toml", "requirements.lock"):
        shutil.copy2(scripts.ROOT / name, root / name)
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", "package")
    for name in ("src", "docs"):
        shutil.copytree(scripts.ROOT / name, root / name, ignore=ignore)
    (root / ".venv").symlink_to(scripts.ROOT / ".venv")
    # A lock that looks newer than .venv would have this checkout installed there, in place of ours.
    os.utime(root / "requirements.lock", (0, 0))
    (root / "docs" / "index.md").write_text("# Start\n\n<!-- chapters -->\n")
    pages = (
        "notation references glossary symptoms messages questions contributing codes "
        "shape-comments loaded-model reasons"
    )
    for name in pages.split():
        (root / "docs" / f"{name}.md").write_text(f"# {name}\n\nText.\n")
    (root / "notebooks").mkdir()
    shutil.copy2(scripts.CHAPTERS / "jupytext.toml", root / "notebooks")
    for name, text in SCRIPTS.items():
        (root / "notebooks" / f"{name}.py").write_text(text)
    config = (root / "mkdocs.yml").read_text().partition("  parts:\n")[0]
    config = re.sub(r" +- (Cheat sheet: .*|Package:|.*: package/.*)\n", "", config)
    (root / "mkdocs.yml").write_text(
        f"{config}  parts:\n    - title: Part\n      chapters:{PARTS}\n"
    )
    (root / "data.txt").write_text("data")
    built = make(root, "site")
    assert built.returncode == 0, built.stdout
    assert executed(built) == set(SCRIPTS)
    return root


def make(root, *goals, **variables):
    # What Python writes is no news to make.
    drop = ("MAKE", "MFLAGS", "TRAINED", "PYTHONDONTWRITEBYTECODE")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
    return subprocess.run(
        ["make", *goals],
        cwd=root,
        env=environment | {"PYTHONPATH": str(root / "src")} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def executed(run):
    # Two that begin at once may print on one line.
    return set(re.findall(r"(\d\d_[a-z_]+): executing", run.stdout))


def would_execute(said):
    """Give the chapters that make would have run, all of them by one process."""
    commands = re.findall(r"press\.run\.execute (.*)", said)
    assert len(commands) <= 1
    return set(re.findall(r"notebooks/(\w+)\.py", "".join(commands)))


@contextmanager
def changed(path, *replacements):
    """Change a file for the time of a block, which is news to make; its time is put back, too."""
    text, times = path.read_text(), path.stat()
    altered = text
    for old, new in replacements:
        assert old in altered
        altered = altered.replace(old, new)
    path.write_text(altered)
    try:
        yield
    finally:
        path.write_text(text)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def fingerprint(root):
    return {path: path.stat().st_mtime_ns for path in (root / "site").rglob("*")}


def test_nothing_changed_means_nothing_done(book):
    before = fingerprint(book)
    again = make(book, "site")
    assert (again.returncode, executed(again)) == (0, set())
    assert "building" not in again.stdout
    assert fingerprint(book) == before


def test_serves_and_says_where(book):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    pipe = {"stdout": subprocess.PIPE, "text": True, "start_new_session": True}
    environment = os.environ | {"PYTHONPATH": str(book / "src")}
    command = ["make", "serve", f"PORT={port}"]
    server = subprocess.Popen(command, cwd=book, env=environment, **pipe)
    try:
        assert any(f"http://127.0.0.1:{port}/" in line for line in server.stdout)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/chapters/one-head/") as page:
            assert b"First part" in page.read()
        for other, reason in (
            (port, "Address already in use"),
            ("http", "invalid literal for int"),
        ):
            refused = make(book, "serve", f"PORT={other}")
            assert refused.returncode != 0
            assert f"port {other} cannot be used" in refused.stdout
            assert reason in refused.stdout
            assert "Traceback" not in refused.stdout
    finally:
        os.killpg(server.pid, 15)
        server.communicate()


def test_another_address_makes_another_site(book):
    elsewhere = make(book, "-n", "site", "SITE_URL=https://a.example/").stdout
    assert "press.site.build build" in elsewhere


@pytest.mark.parametrize("goal", ["", "help", "-n site"])
def test_what_only_says_something_changes_nothing(book, goal):
    before = {path: path.stat().st_mtime_ns for path in book.rglob("*")}
    other = ("SITE_URL=https://a.example/", "TRAINED=some/folder")
    assert make(book, *goal.split(), *other).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in book.rglob("*")} == before


@pytest.mark.parametrize(
    ("cores", "gigabytes", "jobs"), [(1, 9, 1), (4, 9, 4), (4, 2, 2), (4, 0, 1)]
)
def test_chapters_run_side_by_side_as_cores_and_memory_allow(
    book, tmp_path, cores, gigabytes, jobs
):
    for name, said in (("nproc", cores), ("awk", gigabytes)):  # awk reads how much memory is free
        (tmp_path / name).write_text(f"#!/bin/sh\necho {said}\n")
        (tmp_path / name).chmod(0o755)
    said = make(book, "-pn", "help", PATH=f"{tmp_path}:{os.environ['PATH']}").stdout
    assert f"-j{jobs} " in re.search("^MAKEFLAGS = .*", said, re.MULTILINE)[0] + " "


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("notebooks/02_two_heads.py", {"02_two_heads"}),
        ("notebooks/01_one_head.py", {"01_one_head", "02_two_heads"}),
        ("data.txt", {"02_two_heads"}),
        ("src/annotated_attention/counting/formulas.py", {"02_two_heads"}),
        ("src/annotated_attention/modern/cache.py", set()),
        ("src/press/run/execute.py", set(SCRIPTS)),
        ("src/press/site/pages.py", set()),
        ("docs/assets/book.css", set()),
    ],
)
def test_what_is_executed_again(book, path, expected):
    with changed(book / path):
        would = make(book, "-n", "site").stdout
    assert would_execute(would) == expected
    assert "press.site.build build" in would


def test_broken_pages_are_named_and_keep_the_last_site(book):
    before = fingerprint(book)
    with (
        changed(  # what was executed: to execute it again takes long
            book / "build" / "notebooks" / "01_one_head.ipynb",
            ("02_two_heads.ipynb#second-part", "03_none.ipynb) [x](02_two_heads.ipynb#third-part"),
            ("$x^2$", r"$\\frac{1$"),
        ),
        changed(book / "docs" / "notation.md", ("Text.", "[text](nowhere.md) $\\undefined$")),
    ):
        run = make(book, "site")
    assert run.returncode != 0
    for words in (
        "the site was not built, the last one stays",
        "01_one_head.ipynb: the link '03_none.ipynb' leads nowhere",
        "01_one_head.ipynb' contains a link '02_two_heads.ipynb#third-part'",
        "01_one_head.ipynb: ParseError: KaTeX parse error",
        "'notation.md' contains a link 'nowhere.md'",
        "notation.md: ParseError: KaTeX parse error",
    ):
        assert words in run.stdout
    assert "Traceback" not in run.stdout
    assert fingerprint(book) == before


def test_what_was_executed_before_another_chapter_failed_is_not_executed_again(book):
    one = book / "notebooks" / "01_one_head.py"  # shorter, so second, and the other loads it
    with changed(one, ("print(double(LIMIT))", "print(none)")):
        run = make(book, "-j1", "site")
        assert run.returncode != 0
        assert "01_one_head.py:18: chapter 01_one_head, code cell 1 of 1 failed" in run.stdout
        assert executed(run) == set(SCRIPTS)
        assert would_execute(make(book, "-n", "site").stdout) == {"01_one_head"}
    would = make(book, "-n", "site").stdout
    assert "press.site.build build" in would, "of what was executed nothing is shown yet"


def test_missing_python_is_named(book):
    run = make(book, "-W", "requirements.lock", "site", "PYTHON=python3.99")
    assert run.returncode != 0
    assert "There is no python3.99 here" in run.stdout


def test_another_torch_is_handed_to_pip_and_everything_follows(book):
    would = make(book, "-n", "site", "TORCH=torch==2.13.0+other").stdout
    assert "src/press/setup/environment.py torch==2.13.0+other" in would
    assert would_execute(would) == set(SCRIPTS)
