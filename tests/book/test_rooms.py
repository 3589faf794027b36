"""What imports what: ``run`` knows nothing of ``site``, only hooks know MkDocs, few the doctor."""

import re

import pytest

from book.run import scripts

ROOM = scripts.ROOT / "src" / "book"
OF_THE_DOCTOR = {"exercises/_doctor.py", "15_testing_attention.py"}
SOURCES = [path.relative_to(ROOM).as_posix() for path in sorted(ROOM.rglob("*.py"))]


@pytest.mark.parametrize("path", SOURCES)
def test_imports(path):
    text = (ROOM / path).read_text(encoding="utf-8")
    names = set(re.findall(r"^\s*(?:from|import) ([\w.]+)", text, re.MULTILINE))
    unwanted = "" if path == "site/hooks.py" else r"mkdocs|book\.site\.hooks"
    room = path.partition("/")[0]
    if room in {"run", "shapes", "setup"}:
        unwanted += r"|book\.site" + (r"|book\.run" if room != "run" else "")
    assert not unwanted or not [name for name in names if re.match(unwanted, name)]


def test_the_doctor_stands_on_the_package_and_only_what_is_about_it_imports_it():
    package = scripts.ROOT / "src" / "annotated_attention"
    found = {}
    for root, ending in ((package, "**/*.py"), (scripts.CHAPTERS, "*.py")):
        for path in root.glob(ending):
            name, text = path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
            if spaces := re.findall(r"^( *)(?:from|import) attention_doctor\b", text, re.M):
                found[name] = min(spaces)
    assert found.keys() == OF_THE_DOCTOR
    assert found["exercises/_doctor.py"], "import it inside a function"
