"""Where the trained weights are looked for, and in which order."""

import re
from dataclasses import replace

import pytest

from annotated_attention.pretrained import ENCODER, VARIABLE, NoWeights, find_weights


def test_the_order(tmp_path, monkeypatch):
    """A folder that is named, the variable's, and a package, which is not imported."""
    package = tmp_path / "installed" / "weights_that_explode"
    model = replace(ENCODER, package=package.name)
    installed, named, other = package / model.folder, tmp_path / "named", tmp_path / "other"
    for folder in (installed, named, other):
        folder.mkdir(parents=True)
        for name in model.files:
            (folder / name).write_bytes(b"")
    (package / "__init__.py").write_text("raise RuntimeError('it was imported')")
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.delenv(VARIABLE, raising=False)
    assert find_weights(model=model) == installed
    monkeypatch.setenv(VARIABLE, str(other))
    assert find_weights(model=model) == other
    assert find_weights(named, model) == find_weights(str(named), model) == named
    # A named folder is taken or refused, never passed over; a package is passed over.
    for name in model.files[-2:]:
        (named / name).unlink()
    lacks = " and ".join(f"no {name}" for name in model.files[-2:])
    with pytest.raises(NoWeights, match=rf"{re.escape(lacks)} in .*named"):
        find_weights(named, model)
    monkeypatch.delenv(VARIABLE)
    (installed / model.files[0]).unlink()
    with pytest.raises(NoWeights) as missing:
        find_weights(model=model)
    (said,) = missing.value._render_traceback_()  # one line is all that a notebook shows
    assert re.search(r"^No trained .*make TRAINED=1.*requirements-trained\.txt`\.$", said)
