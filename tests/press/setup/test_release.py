"""What a release asks of its tag, and what its README looks like on a package index."""

import shutil
import tomllib

import pytest

import annotated_attention
from press.run import scripts
from press.setup import release

ADDRESS, TAG = "https://code.example/owner/name", f"v{annotated_attention.__version__}"


def test_a_tag_of_another_version_is_refused():
    with pytest.raises(SystemExit, match=r"the tag is 'v0\.0\.0', and __version__ is"):
        release.main("v0.0.0", ADDRESS)


def test_what_the_index_shows_leads_to_the_files_of_the_tag(tmp_path, monkeypatch):
    monkeypatch.setattr(release, "ROOT", tmp_path)
    (tmp_path / "src/annotated_attention").mkdir(parents=True)
    for name in ("README.md", "pyproject.toml", "src/annotated_attention/__init__.py"):
        shutil.copy2(scripts.ROOT / name, tmp_path / name)
    release.main(TAG, ADDRESS)
    links = release.LINK.findall((scripts.ROOT / "README.md").read_text("utf-8"))
    readme = (tmp_path / "README.md").read_text("utf-8")
    assert not release.LINK.search(readme)
    for picture, _, path in links:
        assert (scripts.ROOT / path.partition("#")[0]).is_file(), path
        assert f"({ADDRESS}/{'raw' if picture else 'blob'}/{TAG}/{path})" in readme
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["urls"] == {"Repository": ADDRESS}
