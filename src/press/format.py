"""Formats all that is written by hand here: Python as ruff does, JavaScript and CSS as Biome does.

    python -m press.format          # rewrite what is not formatted
    python -m press.format --check  # name it, and fail

One thing is added to what ruff does: the shape comments of lines that follow each other stand in
one column. So ruff is given each file with its comments moved up, and they are put back after.
"""

import io
import shutil
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from press.run.shapes import read_comment

ROOT = Path(__file__).resolve().parents[2]
RUFF = [sys.executable, "-m", "ruff", "format", "--quiet"]
BIOME = [str(Path(sys.executable).with_name("biome")), "format", "--reporter=summary"]


def aligned(text: str) -> str:
    """Put the shape comments of lines that follow each other into one column.

    Examples:
        >>> from press.format import aligned
        >>> print(aligned("x = f(y)  # (n, d)\\nlonger = f(x)  # (n, d)\\n"), end="")
        x = f(y)       # (n, d)
        longer = f(x)  # (n, d)
    """
    lines, split = text.split("\n"), dict(_split(text))
    for _, block in groupby(enumerate(split), key=lambda pair: pair[1] - pair[0]):
        rows = [row for _, row in block]
        width = max(len(split[row][0]) for row in rows)
        for row in rows:
            code, comment = split[row]
            lines[row] = f"{code:{width}}  {comment}"
    return "\n".join(lines)


def closed(text: str) -> str:
    """Put each shape comment two spaces behind its code, where ruff leaves it."""
    lines = text.split("\n")
    for row, parts in _split(text):
        lines[row] = "  ".join(parts)
    return "\n".join(lines)


def _split(text: str) -> Iterator[tuple[int, tuple[str, str]]]:
    """Yield the row, the code and the comment of each line that ends in a shape comment."""
    lines = text.split("\n")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        row, column = token.start[0] - 1, token.start[1]
        code = lines[row][:column].rstrip() if token.type == tokenize.COMMENT else ""
        if code and _is_shape(token.string):
            yield row, (code, token.string)


def _is_shape(comment: str) -> bool:
    """Tell whether a comment claims shapes; one that breaks the grammar is told by the tests."""
    try:
        return bool(read_comment(comment))
    except ValueError:
        return False


def python(root: Path) -> dict[Path, str]:
    """Give the formatted text of each Python file that is not formatted."""
    paths = [path for tree in ("notebooks", "src", "tests") for path in (root / tree).rglob("*.py")]
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    with tempfile.TemporaryDirectory() as folder:
        places = {path: Path(folder) / path.relative_to(root) for path in paths}
        for path, place in places.items():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(closed(texts[path]), encoding="utf-8")
        for settings in ("pyproject.toml", "notebooks/ruff.toml"):
            (Path(folder) / settings).parent.mkdir(exist_ok=True)
            shutil.copy(root / settings, Path(folder) / settings)
        subprocess.run([*RUFF, folder], check=True)
        found = {path: aligned(place.read_text(encoding="utf-8")) for path, place in places.items()}
    return {path: text for path, text in found.items() if text != texts[path]}


def main() -> int:
    """Format everything, or say what is not formatted; return the exit code."""
    check = sys.argv[1:] == ["--check"]
    wrong = python(ROOT)
    for path, text in wrong.items():
        print(f"{path.relative_to(ROOT)}: {'not formatted' if check else 'formatted'}")
        if not check:
            path.write_text(text, encoding="utf-8")
    web = subprocess.run([*BIOME, *([] if check else ["--write"])], cwd=ROOT, capture_output=True)
    if web.returncode:
        print(web.stdout.decode() + web.stderr.decode())
    return int(bool(check and wrong) or web.returncode)


if __name__ == "__main__":
    sys.exit(main())
