"""Lists the pages for language models, as https://llmstxt.org asks: a link and a sentence each."""

from collections.abc import Iterable

PATH = "llms.txt"
SKILL = "attention-doctor --skill"


def write(name: str, about: str, pages: Iterable[tuple[str, str, str, str]]) -> str:
    """Write the list, section by section.

    Args:
        name: of the site.
        about: it, in a sentence.
        pages: of each its section, title, address and description, in the order of the navigation.
    """
    lines = [f"# {name}", "", f"> {about}", "", f"A skill for coding agents: `{SKILL}`."]
    before = ""
    for section, title, address, description in pages:
        if section != before:
            before = section
            lines += ["", f"## {section}", ""]
        lines.append(f"- [{title}]({address}): {' '.join(description.split())}")
    return "\n".join(lines) + "\n"
