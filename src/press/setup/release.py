"""Readies a checkout for its release; run by the release workflow, and the checkout is then built.

    python src/press/setup/release.py v0.1.0 https://github.com/owner/name

Only the standard library is used here: nothing is installed yet.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
LINK = re.compile(r"(?P<picture>!?)(?P<text>\[[^\]]*\])\((?!https?:|#)(?P<path>[^)\s]+)\)")


def main(tag: str, repository: str) -> None:
    """Check the tag, and lead what a package index shows to the repository as it is tagged.

    Args:
        tag: that of the release, ``v`` and the version.
        repository: its address.

    Raises:
        SystemExit: the tag is not that of the version.
    """
    package = (ROOT / "src" / "annotated_attention" / "__init__.py").read_text(encoding="utf-8")
    (version,) = re.findall(r'^__version__ = "(.+)"$', package, re.MULTILINE)
    if tag != f"v{version}":
        sys.exit(f"the tag is {tag!r}, and __version__ is {version!r}: tag it v{version}")
    readme, project = ROOT / "README.md", ROOT / "pyproject.toml"
    readme.write_text(absolute(readme.read_text(encoding="utf-8"), repository, tag), "utf-8")
    with project.open("a", encoding="utf-8") as file:
        file.write(f'\n[project.urls]\nRepository = "{repository}"\n')


def absolute(text: str, repository: str, tag: str) -> str:
    """Lead the links of a Markdown file, and its pictures, to the files of a tag."""

    def lead(link: re.Match[str]) -> str:
        kind = "raw" if link["picture"] else "blob"
        return f"{link['picture']}{link['text']}({repository}/{kind}/{tag}/{link['path']})"

    return LINK.sub(lead, text)


if __name__ == "__main__":
    main(*sys.argv[1:])
