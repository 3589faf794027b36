"""Mending pages: folds around cells, what they are called, and rows of notes and code."""

import pytest

from book.site import pages

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
    soup, aside = pages.parse(html)
    pages.mend_headings(soup, said.append)
    pages.fold(soup, said.append)
    pages.pair_notes_with_code(soup)
    return soup, aside, said


def test_a_fold_holds_what_stands_between_its_marks():
    soup, _, said = mended(DEEP)
    assert said == []
    (fold,) = soup.select("details.aa-deeper")
    summary, *_ = fold.find_all(True, recursive=False)
    assert summary.name == "summary"
    assert [heading.text for heading in summary.select("h3[id]")] == ["Going deeper: why so"]
    assert summary.text == "Going deeper: why so"
    assert not summary.select("a"), "what opens the fold leads nowhere else"
    assert [p.text for p in fold.select("p")] == ["Inside.", "Still inside."]
    assert len(fold.select(".aa-cell")) == 2
    assert fold.select_one("h3#further-in")
    assert "/deeper" not in str(soup)
    rows = fold.find_all(class_="aa-pair", recursive=False)
    assert [bool(row.select(".aa-say + .aa-show")) for row in rows] == [True, True]
    after = fold.find_next_sibling(class_="aa-pair")
    assert after.select_one(".aa-say").text.strip() == "After."


def test_a_title_that_no_heading_repeats_is_shown():
    soup, _, said = mended(DEEP.replace("<h3>Going deeper: why so</h3>", ""))
    assert said == []
    assert soup.select_one("details > summary").text == "Going deeper: why so"


@pytest.mark.parametrize(
    ("html", "message"),
    [
        (DEEP.replace("<!-- /deeper -->", ""), "nothing ends the fold 'Going deeper: why so'"),
        (DEEP.replace("<!-- deeper: why so -->", ""), "<!-- /deeper --> ends no fold"),
        (DEEP.replace("<p>Inside", "<!-- deeper: more --><p>Inside"), "deeper: more --> is in a f"),
    ],
)
def test_marks_that_do_not_fit_are_named(html, message):
    *_, said = mended(html)
    assert len(said) == 1
    assert message in said[0]


@pytest.mark.parametrize(
    ("title", "kinds"),
    [
        ("Hint 1", "aa-fold"),
        ("What do you expect?", "aa-fold aa-expect"),
        ("Going deeper: proofs", "aa-fold aa-deeper"),
    ],
)
def test_a_fold_says_what_it_holds(title, kinds):
    soup, *_ = mended(f"<h1>One</h1><details><summary>{title}</summary><p>x</p></details>")
    assert soup.details["class"] == kinds.split()
    assert soup.details.summary.text == title


def test_the_box_at_the_end_is_a_call_out_of_its_own():
    soup, _ = pages.parse("<blockquote><p><strong>In short.</strong> All of it.</p></blockquote>")
    pages.dress_callouts(soup)
    assert soup.blockquote["class"] == "aa-callout aa-in-short"


def test_code_and_pictures_are_as_they_were():
    picture = '<svg viewBox="0 0 1 1"><linearGradient/></svg>'
    soup, aside = pages.parse(f'{picture}<p>a</p><pre class="aa-source">x = a &lt; 1</pre>')
    written = pages.write(soup, aside)
    assert written.startswith(picture)
    assert "data-search-exclude" in written
    assert '<span class="o">&lt;</span>' in written


def test_code_in_prose_is_dressed_as_code():
    soup, aside = pages.parse('<div class="highlight"><pre><span></span>x\n</pre></div>')
    assert "<pre><code><span></span>x\n</code></pre>" in pages.write(soup, aside)
