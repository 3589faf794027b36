"""Where the trained weights are looked for, and in which order."""

import pytest

from annotated_attention import pretrained
from annotated_attention.pretrained import NoWeights, find, find_weights


def fill(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name in pretrained.FILES:
        (folder / name).write_bytes(b"")
    return folder


@pytest.fixture(autouse=True)
def nowhere(monkeypatch):
    """Hide whatever this machine has."""
    monkeypatch.delenv(pretrained.VARIABLE, raising=False)
    monkeypatch.setattr(find, "PACKAGE", "no_such_package_of_weights")


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Install a package that must not be imported."""
    home = tmp_path / "installed"
    folder = fill(home / "weights_that_explode" / "model")
    (folder.parent / "__init__.py").write_text("raise RuntimeError('it was imported')")
    monkeypatch.syspath_prepend(str(home))
    monkeypatch.setattr(find, "PACKAGE", "weights_that_explode")
    return folder


def test_the_order(package, tmp_path, monkeypatch):
    named, other = fill(tmp_path / "named"), fill(tmp_path / "other")
    assert find_weights() == package
    monkeypatch.setenv(pretrained.VARIABLE, str(other))
    assert find_weights() == other
    assert find_weights(named) == find_weights(str(named)) == named


def test_without_weights_one_line_says_how_to_get_them():
    with pytest.raises(NoWeights) as missing:
        find_weights()
    said = str(missing.value)
    assert missing.value._render_traceback_() == [said]
    assert "\n" not in said
    assert "make TRAINED=1" in said
    assert "requirements-trained.txt" in said


def test_an_incomplete_folder(package, tmp_path):
    """A named folder is taken or refused, never passed over; a package is passed over."""
    named = fill(tmp_path / "named")
    (named / "tokenizer.json").unlink()
    (named / "config.json").unlink()
    with pytest.raises(NoWeights, match=r"no config\.json and no tokenizer\.json in .*named"):
        find_weights(named)
    (package / "model.safetensors").unlink()
    with pytest.raises(NoWeights, match="make TRAINED=1"):
        find_weights()
