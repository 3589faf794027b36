"""Why a chapter cannot be built, and that the last result then stays."""

import pytest

from press.run import execute, scripts

CHAPTER = """\
# %% [markdown]
# # One
#
# ## First part

# %%
LIMIT = 3


def double(x):
    return 2 * x


print(double(LIMIT))
"""
CASES = {
    "syntax": (
        ("return 2 * x", "return 2 * x)"),
        ["notebooks/01_one_head.py:11: chapter 01_one_head", "return 2 * x)", "SyntaxError"],
    ),
    "deep inside": (
        ("return 2 * x", "return 2 * x + undefined"),
        ["notebooks/01_one_head.py:14: chapter 01_one_head", "NameError: name 'undefined'"],
    ),
    "stderr": (
        ("print(double(LIMIT))", "import warnings; warnings.warn('old')"),
        ["notebooks/01_one_head.py:7: chapter 01_one_head", "writes to stderr", "old"],
    ),
    "shape comment": (
        ("print(double(LIMIT))", 'x = memoryview(b"sixsix").cast("B", (2, 3))  # (3, 2)'),
        ["notebooks/01_one_head.py:14", "the comment says (3, 2)", "(2, 3)"],
    ),
    "misplaced shape comment": (
        ("LIMIT = 3", "LIMIT = 3  # (n, d)"),
        ["chapter 01_one_head, outside its cells\nShapeCommentError: ", "01_one_head.py:7: "],
    ),
    "unreached shape comment": (
        ("return 2 * x", "if x > 9:\n        x = x.mT  # (3, 2)\n    return 2 * x"),
        ["notebooks/01_one_head.py:12", "no run reaches"],
    ),
}


@pytest.mark.parametrize(("replacement", "words"), CASES.values(), ids=CASES.keys())
def test_failing_cell_is_named(tmp_path, monkeypatch, replacement, words):
    monkeypatch.setattr(scripts, "ROOT", tmp_path)
    script, result = tmp_path / "notebooks" / "01_one_head.py", tmp_path / "01_one_head.ipynb"
    script.parent.mkdir()
    script.write_text(CHAPTER.replace(*replacement))
    result.write_text("the last one")
    monkeypatch.setattr("sys.argv", ["execute", str(script), str(result)])
    with pytest.raises(SystemExit) as failure:
        execute.main()
    for word in words:
        assert word in failure.value.code
    assert result.read_text() == "the last one"
