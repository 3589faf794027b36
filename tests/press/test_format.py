"""What is packed is not formatted, in each language; shape comments stand in one column."""

import shutil
import subprocess

import pytest

from press import format
from press.run import scripts

PACKED = "a=[1,\n2]; b = 2\n"
# The second line is longer by what ruff sets right.
APART = "q = split(x)  # (h, n, d)\nscores = q@k.mT  # (h, n, d) x (h, d, m) -> (h, n, m)\n"


@pytest.fixture
def tree(tmp_path):
    for name in ("notebooks", "src", "tests"):
        (tmp_path / name).mkdir()
    for name in ("pyproject.toml", "notebooks/ruff.toml", "biome.json"):
        shutil.copy(scripts.ROOT / name, tmp_path / name)
    return tmp_path


def test_python(tree):
    right, packed, apart = (tree / "src" / f"{name}.py" for name in ("right", "packed", "apart"))
    right.write_text("a = [1, 2]  # why\nlonger = 2  # why\n")
    packed.write_text(PACKED)
    apart.write_text(APART)
    found = format.python(tree)
    assert found.keys() == {packed, apart}
    first, second = found[apart].splitlines()
    assert first.index("#") == second.index("#") == len("scores = q @ k.mT") + 2
    apart.write_text(found[apart])
    assert apart not in format.python(tree)


def test_what_breaks_the_line_is_only_what_is_too_long_without_the_column(tree):
    long = f"x = f({', '.join(['argument'] * 8)})  # (b, n, e)\ny = f(x)  # (b, n, e)\n"
    (tree / "src" / "long.py").write_text(long)
    (text,) = format.python(tree).values()
    assert text.replace(" ", "") == long.replace(" ", "")


@pytest.mark.parametrize(("name", "text"), [("a.js", "f(1 ,2)\n"), ("a.css", "a{color:red}\n")])
def test_javascript_and_css(tree, name, text):
    path = tree / "src" / name
    path.write_text(text)
    assert subprocess.run(format.BIOME, cwd=tree, capture_output=True).returncode == 1
    subprocess.run([*format.BIOME, "--write"], cwd=tree, capture_output=True, check=True)
    assert path.read_text() != text
    assert subprocess.run(format.BIOME, cwd=tree, capture_output=True).returncode == 0
