"""Lists the pages for language models, as https://llmstxt.org asks: a link and a sentence each."""

from collections.abc import Iterator

from mkdocs.structure.pages import Page

PATH = "llms.txt"
SKILL = "attention-doctor --skill"


def write(name: str, about: str, first: Page, site: str) -> str:
    """Write the list, section by section, in the order of the navigation.

    Args:
        name: of the site.
        about: it, in a sentence.
        first: the first page; each knows the next.
        site: where the site stands, with a slash at the end; empty where nobody knows.
    """
    lines = [f"# {name}", "", f"> {about}", "", f"A skill for coding agents: `{SKILL}`."]
    section = ""
    for page in _following(first):
        *_, tab = ["", *(x.title or "" for x in page.ancestors)]
        if tab != section:
            section = tab
            lines += ["", f"## {section}", ""]
        description = " ".join(page.meta.get("description", "").split())
        lines.append(f"- [{page.title}]({site}{page.url or './'}): {description}")
    return "\n".join(lines) + "\n"


def _following(page: Page | None) -> Iterator[Page]:
    while page:
        yield page
        page = page.next_page
