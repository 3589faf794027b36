"""Mending pages: folds around cells, what they are called, and rows of notes and code."""

import pytest

from press.site import pages

DEEP = """
<h1>One</h1><p>Before.</p>
<!-- deeper: why so -->
<h3>Going deeper: why so</h3>
<p>Inside.</p>
<div class="aa-cell"><pre class="aa-source">x = 1</pre></div>
<h3>Further <code>in</code></h3>
<p>Still inside.</p>
<div class="aa-cell"><pre class="aa-source">x = 2</pre></div>
<!-- /deeper -->
<p>After.</p>
<div class="aa-cell"><pre class="aa-source">x = 3</pre></div>
"""


def mended(html):
    said = []
    soup, _ = pages.parse(html)
    pages.mend_headings(soup, said.append)
    pages.fold(soup, said.append)
    pages.pair_notes_with_code(soup)
    return soup, said


def test_a_fold_holds_what_stands_between_its_marks():
    soup, said = mended(DEEP)
    assert said == []
    (fold,) = soup.select("details.aa-deeper")
    summary, first, heading, second = fold.find_all(True, recursive=False)
    opens = '<h3 id="going-deeper-why-so">Going deeper: why so</h3>'
    assert str(summary) == f"<summary>{opens}</summary>", "it leads nowhere else"
    assert heading["id"] == "further-in"
    rows = [first, second, fold.find_next_sibling(class_="aa-pair")]
    assert [row.text.strip() for row in rows] == ["Inside.", "Still inside.", "After."]
    assert all(row.select(".aa-say + .aa-show > .aa-cell") for row in rows)
    assert "/deeper" not in str(soup)


def test_an_answer_is_folded_under_its_question():
    html = DEEP.replace("deeper: why so", "answer").replace("/deeper", "/answer")
    soup, said = mended(html.replace("<h3>Going deeper: why so</h3>", ""))
    (fold,) = soup.select("h1 ~ details.aa-deeper")
    assert (fold.summary.text, said) == ("Answer aloud, then open", [])
    assert [row.text.strip() for row in fold.select(".aa-pair")] == ["Inside.", "Still inside."]


@pytest.mark.parametrize(
    ("html", "message"),
    [
        (DEEP.replace("<!-- /deeper -->", ""), "nothing ends the fold 'Going deeper: why so'"),
        (DEEP.replace("<!-- deeper: why so -->", ""), "<!-- /deeper --> ends no fold"),
        (DEEP.replace("<p>Inside", "<!-- deeper: more --><p>Inside"), "deeper: more --> is in a f"),
        (DEEP.replace("Before.", '<h2><i class="arithmatex">x</i></h2>'), "a formula in the head"),
    ],
)
def test_what_does_not_fit_is_named(html, message):
    (said,) = mended(html)[1]
    assert message in said


TABLE = '<figure class="aa-shown"><table></table></figure>'


@pytest.mark.parametrize(
    ("source", "shown", "name"),
    [
        ("import math\nshow(1)", TABLE, "Show the imports and the code that makes this table"),
        ("show(1)", TABLE, "Show the code that makes this table"),
        ("draw(1)", "<figure></figure>", "Show the code that draws this"),
        ("def fit(x): ...\ndraw(1)", "<figure></figure>", "Show the code of fit"),
        ("x = 1", "", "Show the code"),
    ],
)
def test_folded_code_is_named_after_what_it_makes(source, shown, name):
    fold = "<details><summary>Show the code</summary></details>"
    out = f'<div class="aa-cell" data-cell="a"><div class="aa-out">{shown}</div>{fold}</div>'
    soup, _ = pages.parse(out)
    pages.name_folded_code(soup, {"a": source})
    assert soup.summary.text == name


def test_folded_code_stands_behind_the_figure_that_it_makes():
    fold = '<div class="aa-cell aa-tag-fold-input">{}<details>{}</details></div>'
    cells = [("", "a"), ("", "b"), ('<section class="aa-out">figure, </section>', "c")]
    soup, _ = pages.parse("<p>draws: </p>" + "".join(fold.format(*cell) for cell in cells))
    pages.put_figures_first(soup)
    assert soup.text == "draws: figure, abc"


def test_headings_have_anchors_of_their_own_and_are_listed():
    html = '<p id="two"></p><h1>One</h1><h2>Two</h2><h3>Three</h3><h2>Two</h2>'
    soup, _ = pages.parse(html)
    ((one),) = pages.mend_headings(soup, None)
    assert [heading["id"] for heading in soup.select("h1, h2, h3")] == [
        "one",
        "two-2",
        "three",
        "two-3",
    ]
    assert [child["id"] for child in one["children"]] == ["two-2", "two-3"]
    assert [child["name"] for child in one["children"][0]["children"]] == ["Three"]


def test_the_heading_that_a_named_cell_begins_with_has_its_name():
    fold = "<details><summary>Three</summary><h3>Three</h3></details>"
    html = '<a class="aa-name" id="{}"></a>{}'
    cells = [
        ("a", "<h2>One</h2><h3>Two</h3>"),
        ("b", fold),
        ("c", "<p>Four</p>"),
        ("two", "<h2>X</h2>"),
    ]
    soup, _ = pages.parse("".join(html.format(*cell) for cell in cells))
    pages.mend_headings(soup, None)
    assert [heading["id"] for heading in soup.select("h2, h3")] == ["a", "two-2", "b", "two"]
    assert [mark["id"] for mark in soup.select(".aa-name")] == ["c"], "what has no heading"


def test_folds_and_call_outs_say_what_they_hold():
    fold = "<h1>One</h1><details><summary>{}</summary><p>x</p></details>"
    for title, kinds in (
        ("Hint 1", "aa-fold"),
        ("What do you expect?", "aa-fold aa-expect"),
        ("Going deeper: proofs", "aa-fold aa-deeper"),
        ("✓ Equal, gradients too.", "aa-fold aa-proof"),
    ):
        soup, _ = mended(fold.format(title))
        assert soup.details["class"] == kinds.split()
    soup, _ = mended(fold.format("None").replace("<details>", '<details name="copies">'))
    assert soup.details["class"] == ["aa-fold", "aa-choice"]
    soup, _ = mended(fold.format("✓ As `a &lt; b` says."))
    assert str(soup.summary) == "<summary>✓ As <code>a &lt; b</code> says.</summary>"
    soup, _ = pages.parse("<blockquote><p><strong>In short.</strong> All of it.</p></blockquote>")
    pages.dress_callouts(soup)
    assert soup.blockquote["class"] == "aa-callout aa-in-short"


def test_a_stressed_word_wears_the_colour_of_what_it_names():
    html = "<p>The <em>queries</em> ask, <strong>keys</strong> and <em>only</em> keys answer.</p>"
    soup, _ = pages.parse(f"<h2><em>heads</em></h2>{html}")
    pages.colour_words(soup)
    classes = {word.text: word.get("class") for word in soup.select("em, strong")}
    assert classes == {"heads": None, "queries": "dim-n", "keys": "dim-m", "only": None}


def test_an_answer_does_not_stand_beside_its_question():
    fold = "<details><summary>What do you expect?</summary><p>This.</p></details>"
    soup, _ = mended(f'<p>Why?</p>{fold}<div class="aa-cell">this</div>')
    rows = [row.text.split() for row in soup.select(".aa-pair")]
    assert rows == [["Why?", "What", "do", "you", "expect?This."], ["this"]]


def test_code_and_pictures_are_as_they_were():
    picture = '<svg viewBox="0 0 1 1"><linearGradient/></svg>'
    prose = '<div class="highlight"><pre><span></span>x\n</pre></div>'
    code = '<pre class="aa-source">x &lt; 1  # (n,)</pre>'
    soup, aside = pages.parse(f"{picture}<p><code>(d,)</code></p>{code}{prose}")
    written = pages.write(soup, aside)
    assert written.startswith(picture)
    assert '<span class="o">&lt;</span>' in written
    assert '(<b class="dim dim-n">n</b>,)' in written
    assert '<code>(<b class="dim dim-d">d</b>,)</code>' in written
    assert "<pre><code><span></span>x\n</code></pre>" in written
