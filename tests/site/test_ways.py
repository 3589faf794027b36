"""Finding one's way: what is finished is remembered."""

from playwright.sync_api import expect

from press.run import scripts


def nav(page, chapter):
    return page.locator(".md-sidebar--primary").get_by_role("link", name=chapter)


def test_what_is_finished_is_remembered_and_forgotten(visit):
    chapters = len([*scripts.CHAPTERS.glob("[0-9]*.py")])
    page = visit()
    expect(page.get_by_text("Forget my progress")).to_be_hidden()
    page.goto("/chapters/batches/")
    box = page.get_by_role("checkbox", name="I have finished this chapter")
    expect(box).not_to_be_checked()
    box.click()
    expect(nav(page, "5 · Batches finished")).to_be_visible()

    page.goto("/chapters/speed/")
    expect(nav(page, "5 · Batches finished")).to_be_visible()
    box.focus()
    page.keyboard.press("Space")
    expect(box).to_be_checked()
    page.reload()
    expect(box).to_be_checked()

    page.goto("/")
    way = page.locator(".aa-chapters")
    expect(way.get_by_role("link", name="finished")).to_have_count(2)
    expect(way.get_by_role("link", name="Speed finished")).to_be_visible()
    expect(page.locator(".aa-so-far").get_by_role("status")).to_have_text(
        f"You have finished 2 of {chapters}."
    )

    other = page.context.new_page()  # another tab sees at once what this one forgets
    other.goto("/chapters/batches/")
    expect(nav(other, "5 · Batches finished")).to_be_visible()
    page.get_by_role("button", name="Forget my progress").press("Enter")
    expect(page.get_by_text("Forget my progress")).to_be_hidden()
    expect(way.get_by_role("link", name="finished")).to_have_count(0)
    expect(way.get_by_role("link", name="One head")).to_be_focused()
    expect(nav(other, "5 · Batches finished")).to_have_count(0)
    assert page.evaluate("localStorage.getItem('annotated-attention.finished')") is None
