"""Takes the README's figure out of an executed chapter."""

import re
from importlib import resources

from book.run import scripts

README_FIGURE = scripts.ROOT / "docs" / "assets" / "first-look.svg"


def from_chapter(chapter: str, name: str) -> str:
    """Give the HTML of the figure called ``name``.

    Raises:
        LookupError: the chapter is not executed, or draws no such figure.
    """
    ran = (scripts.EXECUTED / f"{chapter}.ipynb").exists()
    for cell in scripts.executed(chapter).cells if ran else []:
        for output in cell.get("outputs", []):
            text = output.get("data", {}).get("text/html", "")
            if f'id="fig-{name}"' in text:
                return text[text.index("<figure") :]
    raise LookupError(f"{chapter} draws no figure called {name}")


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
    text = standalone(from_chapter("01_one_head", "it-looks"))
    if not README_FIGURE.exists() or README_FIGURE.read_text(encoding="utf-8") != text:
        README_FIGURE.write_text(text, encoding="utf-8")
        print(f"wrote {README_FIGURE.relative_to(scripts.ROOT)}", flush=True)


if __name__ == "__main__":
    main()
