"""Where the trained weights are looked for, and in which order."""

import hashlib
import sys
import types

import pytest

from annotated_attention import pretrained
from annotated_attention.pretrained import NoWeights, find, find_weights


def fill(folder, content=b""):
    folder.mkdir(parents=True, exist_ok=True)
    for name in pretrained.FILES:
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def nowhere(monkeypatch):
    """Hide whatever this machine has."""
    monkeypatch.delenv(pretrained.VARIABLE, raising=False)
    monkeypatch.setattr(find, "PACKAGE", "no_such_package_of_weights")


@pytest.fixture
def package(nowhere, tmp_path, monkeypatch):
    """Install a package that must not be imported."""
    home = tmp_path / "installed"
    folder = fill(home / "weights_that_explode" / "model")
    (folder.parent / "__init__.py").write_text("raise RuntimeError('it was imported')")
    monkeypatch.syspath_prepend(str(home))
    monkeypatch.setattr(find, "PACKAGE", "weights_that_explode")
    return folder


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """Put a hub of our own in place of the network's, and note what it is asked for."""
    asked = []

    def snapshot_download(repository, *, allow_patterns):
        asked.append((repository, allow_patterns))
        return str(fill(tmp_path / "hub", b"weights"))

    module = types.SimpleNamespace(snapshot_download=snapshot_download, asked=asked)
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    monkeypatch.setattr(find, "SHA256", hashlib.sha256(b"weights").hexdigest())
    return module


def test_the_order(package, hub, tmp_path, monkeypatch):
    named, other = fill(tmp_path / "named"), fill(tmp_path / "other")
    assert find_weights(hub=True) == package
    monkeypatch.setenv(pretrained.VARIABLE, str(other))
    assert find_weights(hub=True) == other
    assert find_weights(named, hub=True) == named
    assert find_weights(str(named)) == named
    assert not hub.asked


def test_the_hub_is_asked_last_and_only_if_wanted(nowhere, hub, tmp_path):
    with pytest.raises(NoWeights) as missing:
        find_weights()
    assert not hub.asked
    said = str(missing.value)
    assert "\n" not in said
    for way in ("make TRAINED=1", "requirements-trained.txt", "hub=True"):
        assert way in said
    assert missing.value._render_traceback_() == [said]
    assert find_weights(hub=True) == tmp_path / "hub"
    assert hub.asked == [(pretrained.REPOSITORY, list(pretrained.FILES))]


def test_what_the_hub_brings_must_be_the_expected_file(nowhere, hub, monkeypatch):
    monkeypatch.setattr(find, "SHA256", "0" * 64)
    with pytest.raises(ValueError, match=r"has SHA-256 \w+, not 0000"):
        find_weights(hub=True)


def test_a_hub_that_fails(nowhere, hub, monkeypatch):
    def fails(*_, **__):
        raise ConnectionError("no network")

    hub.snapshot_download = fails
    with pytest.raises(NoWeights, match="could not be downloaded: no network"):
        find_weights(hub=True)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(NoWeights, match="pip install huggingface_hub"):
        find_weights(hub=True)


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
