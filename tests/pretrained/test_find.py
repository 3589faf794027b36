"""Where the trained weights are looked for, and in which order."""

import re
from dataclasses import replace
from functools import partial

import pytest

from annotated_attention import pretrained
from annotated_attention.pretrained import ENCODER, NoWeights

NOWHERE = "no_such_package_of_weights"


@pytest.fixture
def model(tmp_path, monkeypatch):
    """Give a model whose package is not what this machine has, and must not be imported."""
    monkeypatch.delenv(pretrained.VARIABLE, raising=False)
    home = tmp_path / "installed"
    package = home / "weights_that_explode"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('it was imported')")
    monkeypatch.syspath_prepend(str(home))
    return replace(ENCODER, package=package.name)


@pytest.fixture
def find_weights(model):
    return partial(pretrained.find_weights, model=model)


def fill(folder, model):
    """Put the files of a model into a folder, such as the one where its package has them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in model.files:
        (folder / name).write_bytes(b"")
    return folder


def test_the_order(find_weights, model, tmp_path, monkeypatch):
    package = fill(tmp_path / "installed" / model.package / model.folder, model)
    named, other = (fill(tmp_path / name, model) for name in ("named", "other"))
    assert find_weights() == package
    monkeypatch.setenv(pretrained.VARIABLE, str(other))
    assert find_weights() == other
    assert find_weights(named) == find_weights(str(named)) == named
    # A named folder is taken or refused, never passed over; a package is passed over.
    for name in model.files[-2:]:
        (named / name).unlink()
    lacks = " and ".join(f"no {name}" for name in model.files[-2:])
    with pytest.raises(NoWeights, match=rf"{re.escape(lacks)} in .*named"):
        find_weights(named)
    monkeypatch.delenv(pretrained.VARIABLE)
    (package / model.files[0]).unlink()
    with pytest.raises(NoWeights, match="make TRAINED=1"):
        find_weights()


def test_without_weights_one_line_says_how_to_get_them(find_weights, model):
    with pytest.raises(NoWeights) as missing:
        find_weights(model=replace(model, package=NOWHERE))
    said = str(missing.value)
    assert missing.value._render_traceback_() == [said]
    assert "\n" not in said
    assert "make TRAINED=1" in said
    assert "requirements-trained.txt" in said
