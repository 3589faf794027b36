"""The list of chapters: as chapters are, in an order that works, with honest times."""

import re
import textwrap

import nbformat
import pytest
from mkdocs.utils.yaml import yaml_load

from book.run import scripts
from book.site import contents

CHAPTERS = sorted(p.stem for p in scripts.CHAPTERS.glob("*.py") if p.stem != "cheat_sheet")


@pytest.fixture(scope="module")
def chapters():
    """Give the chapters of the book."""
    with (scripts.ROOT / "mkdocs.yml").open(encoding="utf-8") as config:
        return contents.read(yaml_load(config)["extra"]["parts"])


@pytest.fixture(scope="module")
def before(chapters):
    """Give all that a chapter builds on, directly or through others."""
    before: dict[str, set[str]] = {}
    for each in chapters.values():
        before[each.name] = {*each.builds_on}.union(*(before[name] for name in each.builds_on))
    return before


def test_what_a_chapter_loads_is_among_its_prerequisites(before):
    loads = 0
    # The short path and the words of the first chapter are shown where they are used.
    shown = {contents.SHORT_PATH, "01_one_head"}
    for name, known in before.items():
        source = (scripts.CHAPTERS / f"{name}.py").read_text(encoding="utf-8")
        loaded = set(re.findall(r'chapters\.load\("(\w+)"\)', source))
        unsaid = loaded - known - shown
        assert not unsaid, f"{name} loads {unsaid}, and does not say so"
        loads += len(loaded)
    assert loads > 10


def test_prerequisites_name_only_what_does_not_follow(chapters, before):
    for name, chapter in chapters.items():
        implied = set().union(*(before[other] for other in chapter.builds_on))
        assert not implied & set(chapter.builds_on), name


def test_an_address_is_the_chapters_idea(chapters):
    assert contents.address("06_masks") == "chapters/masks/"
    assert contents.address("07_multihead_attention") == "chapters/multihead-attention/"
    assert contents.address("cheat_sheet") == "cheat-sheet/"
    assert contents.address("short_path") == "short-path/"
    assert len({contents.address(name) for name in chapters}) == len(chapters)


ABOUT = "# *1 minutes and 2 of exercises. Afterwards you can\n# do it.*"


@pytest.fixture
def book(tmp_path, monkeypatch):
    """Give a function that lists chapters of a book whose every script is written."""
    monkeypatch.setattr(scripts, "CHAPTERS", tmp_path)

    def book(**builds_on):
        entries = [
            {"file": name, "prerequisites": needed}
            for name, needed in {"short_path": [], **builds_on}.items()
        ]
        titles = ("", "I", "II")
        members = (entries[:1], entries[1:2], entries[2:])
        return [{"title": t, "chapters": m} for t, m in zip(titles, members, strict=True)]

    for name in ("short_path", "01_a", "02_b", "03_c"):
        opening = f"# %% [markdown]\n# # {name}\n#\n# *Why?*\n#\n{ABOUT}\n\n# %%\nprint()\n"
        (tmp_path / f"{name}.py").write_text(opening)
    return book


def test_order(book):
    chapters = contents.read(book(**{"01_a": [], "02_b": ["01_a"], "03_c": ["short_path"]}))
    assert [(c.label, c.part) for c in chapters.values()] == [
        ("short_path", ""),
        ("1 · 01_a", "I"),
        ("2 · 02_b", "II"),
        ("3 · 03_c", "II"),
    ]


@pytest.mark.parametrize(
    ("builds_on", "message"),
    [
        ({"01_a": ["02_b"], "02_b": [], "03_c": []}, "01_a builds on 02_b, which is no chapter be"),
        ({"01_a": [], "02_b": ["09_x"], "03_c": []}, "02_b builds on 09_x"),
        ({"01_a": [], "02_b": []}, "03_c is not listed in mkdocs.yml"),
        ({"01_a": [], "02_b": [], "03_c": [], "04_d": []}, "04_d is listed in mkdocs.yml, and"),
    ],
)
def test_what_does_not_fit_is_named(book, builds_on, message):
    with pytest.raises(ValueError, match=message):
        contents.read(book(**builds_on))


def test_a_chapter_says_what_it_takes_and_gives(book, tmp_path):
    given = {"01_a": [], "02_b": [], "03_c": []}
    chapter = contents.read(book(**given))["02_b"]
    assert (chapter.after, chapter.minutes) == ("You can do it.", contents.Minutes(1, 2))
    script = tmp_path / "02_b.py"
    script.write_text(script.read_text().replace(" Afterwards you", " You"))
    with pytest.raises(ValueError, match="02_b: below its question a chapter says how long it"):
        contents.read(book(**given))


@pytest.mark.parametrize("name", CHAPTERS)
def test_what_a_chapter_says_that_it_takes_is_what_it_takes(name):
    script = scripts.CHAPTERS / f"{name}.py"
    _, said = contents.about(script)
    takes = contents.minutes(script)
    assert said.exercises == takes.exercises, f"{name} takes {takes}"
    assert abs(said.reading - takes.reading) <= 1, f"{name} takes {takes}"


def test_a_chapter_without_a_title_is_named(book, tmp_path):
    (tmp_path / "02_b.py").write_text("# %%\nprint()\n")
    with pytest.raises(ValueError, match="02_b: a chapter begins with a heading of level 1"):
        contents.read(book(**{"01_a": [], "02_b": ["01_a"], "03_c": []}))


WORDS = " ".join(["word"] * 100)
CELLS = {
    "words": f"""
        # %% [markdown]
        # {WORDS} {WORDS} $$x y z$$ $a$ <!-- quoted --> `code` [link](an/address.md)
        """,
    "folded": f"""
        # %% [markdown]
        # <details><summary>Going deeper: more</summary>
        #
        # {WORDS}
        #
        # </details>
        """,
    "deeper": f"""
        # %% [markdown]
        # <!-- deeper: more -->
        # ### Going deeper: more
        # {WORDS}

        # %%
        print()

        # %% [markdown]
        # {WORDS}

        # %% [markdown]
        # <!-- /deeper -->
        """,
    "cell": """
        # %%
        print()
        """,
    "long": f"""
        # %%
        {chr(10).join(["print()"] + ["        print()"] * 63)}
        """,
    "hidden": """
        # %% tags=["hide-input"]
        print()

        # %% jupyter={"source_hidden": true}
        print()
        """,
    "exercise": """
        # %% [markdown]
        # ### 1 · Write it
        #
        # *Easy, 7 minutes.*

        # %% tags=["exercise"]
        def mine():
            pass

        # %% tags=["solution"]
        print()
        """,
    "exercises": f"""
        # %% [markdown]
        # ## Exercises
        #
        # {WORDS} {WORDS} {WORDS}
        """,
    "more": f"""
        # %% [markdown]
        # ## More exercises
        #
        # {WORDS} {WORDS} {WORDS}
        """,
    "end": f"""
        # %% [markdown]
        # ## What you have now
        #
        # {WORDS}
        """,
    "unstated": """
        # %% [markdown]
        # ### 2 · Write it again

        # %% tags=["exercise"]
        def mine():
            pass
        """,
}


@pytest.fixture
def minutes(tmp_path, monkeypatch):
    """Give a function that says how long a chapter of some of the above takes."""
    monkeypatch.setattr(scripts, "EXECUTED", tmp_path)

    def minutes(*cells):
        script = tmp_path / "05_batches.py"
        script.write_text("\n".join(textwrap.dedent(CELLS[cell]).strip() + "\n" for cell in cells))
        return contents.minutes(script)

    return minutes


def test_minutes(minutes):
    assert minutes("words") == contents.Minutes(
        2, 0
    )  # 1.02: formulas, code and words of links count
    assert minutes("words", *["cell"] * 7) == contents.Minutes(5, 0)
    assert minutes(*["cell"] * 10, *["folded", "deeper"] * 9) == contents.Minutes(5, 0)
    assert minutes(*["long"] * 3) == contents.Minutes(6, 0), "a long listing counts by its lines"
    assert minutes(*["hidden"] * 9, "cell") == contents.Minutes(1, 0), "only code in sight is read"
    assert minutes("exercise", "exercise", "cell") == contents.Minutes(1, 14)
    assert minutes("exercises", "exercise", "cell", "more", "exercise", "end") == (
        contents.Minutes(1, 7)
    ), "exercises are no reading, and some are not counted"
    assert str(minutes("exercise", "cell")) == "1 min + 7 of exercises"
    assert str(minutes("cell")) == "1 min"


def test_source_that_a_cell_shows_is_read(minutes, tmp_path):
    notebook = scripts.notebook(tmp_path / "05_batches.py") if minutes("cell", "cell") else None
    html = "<p>text</p>" + "<pre><code>" + "a\n" * 64 + "</code></pre>"
    output = nbformat.v4.new_output("display_data", {"text/html": html})
    notebook.cells[1].outputs = [output]
    nbformat.write(notebook, tmp_path / "05_batches.ipynb")
    assert contents.minutes(tmp_path / "05_batches.py") == contents.Minutes(3, 0)


def test_an_exercise_without_minutes_is_named(minutes):
    with pytest.raises(ValueError, match="05_batches: the exercise '2 · Write it again' states no"):
        minutes("exercise", "unstated")
