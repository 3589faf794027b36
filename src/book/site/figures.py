"""Writes the figure of the first page as a file, for the README."""

import re
from importlib import resources

from book.run import scripts
from book.site import start

README_FIGURE = scripts.ROOT / "docs" / "assets" / "first-look.svg"


def standalone(figure: str) -> str:
    """Give the SVG of a figure as a file of its own, with the colours of both schemes inside."""
    css = resources.files("annotated_attention.display").joinpath("display.css").read_text()
    light, dark = re.findall(r"\{([^{}]*)\}", css)[:2]
    style = (
        f"<style>svg{{color:#1f2329;font-family:sans-serif;{light}}}"
        f"@media (prefers-color-scheme: dark){{svg{{color:#e4e7ec;{dark}}}}}</style>"
    )
    svg = figure[figure.index("<svg") : figure.index("</svg>") + len("</svg>")]
    head, rest = svg.split(">", 1)
    one_line = re.sub(r"\s+", " ", style)
    return f"{head}>{one_line}{rest}\n"


def main() -> None:
    """Write the README's figure, if it has changed."""
    text = standalone(start.sentence().html)
    if not README_FIGURE.exists() or README_FIGURE.read_text(encoding="utf-8") != text:
        README_FIGURE.write_text(text, encoding="utf-8")
        print(f"wrote {README_FIGURE.relative_to(scripts.ROOT)}", flush=True)


if __name__ == "__main__":
    main()
