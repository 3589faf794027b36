"""What imports what: no arrow runs up, only hooks know MkDocs, few chapters the doctor."""

import re
from pathlib import Path

import pytest

from press.run import scripts

# Each package knows those before it, and none behind it.
PACKAGES = ("annotated_attention", "attention_doctor", "annotated_book", "shape_comments", "press")
IMPORT = re.compile(r"^( *)(?:from|import) ([\w.]+)", re.MULTILINE)
CORE = ("attention", "checks", "heads", "masks", "multihead", "quick")


def imports(path: Path) -> set[str]:
    return {name for _, name in IMPORT.findall(path.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("room", PACKAGES)
def test_no_package_imports_one_behind_it(room):
    behind = PACKAGES[PACKAGES.index(room) + 1 :]
    for path in (scripts.ROOT / "src" / room).rglob("*.py"):
        assert not [x for x in imports(path) if x.partition(".")[0] in behind], path


def test_the_core_knows_nothing_of_the_rest():
    package = scripts.ROOT / "src" / "annotated_attention"
    core = {f"annotated_attention.{name}" for name in CORE}
    for name in CORE:
        ours = {x for x in imports(package / f"{name}.py") if x.startswith("annotated_attention")}
        assert ours <= core, name


def test_shape_comments_and_what_is_installed_know_nothing_of_each_other():
    *installed, tool, _ = PACKAGES
    for path in (scripts.ROOT / "src").rglob("*.py"):
        room = path.relative_to(scripts.ROOT / "src").parts[0]
        unwanted = installed if room == tool else [tool] if room in installed else []
        assert not [x for x in imports(path) if x.partition(".")[0] in unwanted], path


def test_in_the_press_only_hooks_know_mkdocs_and_nothing_but_the_site_knows_the_site():
    room = scripts.ROOT / "src" / "press"
    for path in room.rglob("*.py"):
        name = path.relative_to(room).as_posix()
        unwanted = "" if name == "site/hooks.py" else r"mkdocs|press\.site\.hooks"
        if name.partition("/")[0] in {"run", "setup"}:
            unwanted += r"|press\.site" + ("" if name.startswith("run") else r"|press\.run")
        assert not unwanted or not [x for x in imports(path) if re.match(unwanted, x)], name


def test_a_change_in_the_doctor_runs_only_the_chapters_that_ask_it_again():
    chapters = scripts.CHAPTERS.glob("*.py")
    asked = {path.stem for path in chapters if "attention_doctor" in imports(path)}
    assert asked == {"17_testing_attention", "18_published_code", "19_from_memory"}
    for path in (scripts.ROOT / "src" / "annotated_book").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        spaces = [x for x, name in IMPORT.findall(text) if name == "attention_doctor"]
        assert all(spaces), f"{path}: import it inside a function"
