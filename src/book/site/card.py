"""Draws the picture that stands for the book where somebody shares a link to it."""

import io

from matplotlib.figure import Figure

WIDTH, HEIGHT = 1200, 630  # what the sites that show such pictures ask for
TEXT = "Annotated Attention: multi-head attention you can read, run and trust."


def draw() -> bytes:
    """Give the PNG of the card: the name, the promise, and the formula that the book is about."""
    picture = Figure(figsize=(WIDTH / 100, HEIGHT / 100), dpi=100, facecolor="white")
    name, promise = TEXT.split(": ")
    picture.text(0.07, 0.8, name, fontsize=46, weight="bold", color="#1d2733")
    picture.text(0.07, 0.7, promise.capitalize(), fontsize=22, color="#5b6470")
    formula = r"$\mathrm{softmax}\!\left(\frac{Q\,K^\top}{\sqrt{d}}\right)V$"
    picture.text(0.5, 0.33, formula, fontsize=64, color="#b34700", ha="center", va="center")
    png = io.BytesIO()
    picture.savefig(png, format="png", metadata={"Software": None})
    return png.getvalue()
