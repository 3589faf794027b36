"""The list of chapters: as chapters are, in an order that works."""

import re

import pytest
from mkdocs.utils.yaml import yaml_load

from press.run import scripts
from press.site import chapter_list


def test_prerequisites_hold_what_is_loaded_and_nothing_that_follows():
    with (scripts.ROOT / "mkdocs.yml").open(encoding="utf-8") as config:
        chapters = chapter_list.read(yaml_load(config)["extra"]["parts"])
    # The short path and the words of the first chapter are shown where they are used, and so is
    # the storyteller, which speaks with the reader's class before it is explained.
    shown = {chapter_list.SHORT_PATH, "01_one_head", "10_a_little_world"}
    known: dict[str, set[str]] = {}  # all that a chapter builds on, directly or through others
    for name, chapter in chapters.items():
        implied = set().union(*(known[other] for other in chapter.builds_on))
        assert not implied & {*chapter.builds_on}, f"{name}: these follow"
        known[name] = implied | {*chapter.builds_on}
        source = (scripts.CHAPTERS / f"{name}.py").read_text(encoding="utf-8")
        loaded = set(re.findall(r'chapters\.load\("(\w+)"\)', source))
        assert not loaded - known[name] - shown, f"{name} loads these, and does not say so"


OPENING = "# %% [markdown]\n# # A\n#\n# *Why?*\n#\n# *1 minutes. Afterwards you can\n# do it.*\n"
FITS = {"01_a": [], "02_b": ["01_a"]}


@pytest.mark.parametrize(
    ("builds_on", "opening", "message"),
    [
        ({"01_a": ["02_b"], "02_b": []}, OPENING, "01_a builds on 02_b, which is no chapter bef"),
        ({"01_a": []}, OPENING, "02_b is not listed in mkdocs.yml"),
        ({**FITS, "03_c": []}, OPENING, "03_c is listed in mkdocs.yml, and"),
        (FITS, OPENING.replace("Afterwards y", "Y"), "01_a: below its question a chapter says how"),
        (FITS, "# %%\nprint()\n", "01_a: a chapter begins with a heading of level 1"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, monkeypatch, builds_on, opening, message):
    monkeypatch.setattr(scripts, "CHAPTERS", tmp_path)
    for name in FITS:
        (tmp_path / f"{name}.py").write_text(opening)
    entries = [{"file": name, "prerequisites": needed} for name, needed in builds_on.items()]
    with pytest.raises(ValueError, match=message):
        chapter_list.read([{"title": "I", "chapters": entries}])
