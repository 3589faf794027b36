"""Latent attention: what is kept of a token, and on which side of the score its matrix stands."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, Rectangle

from annotated_book.display._html import Output
from annotated_book.display.plots import COLOURS, finish, panels


def two_forms(c: int, r: int, d: int, *, name: str) -> Output:
    """Draw how a score comes about: with a key made from the latent, or with a query brought to it.

    Args:
        c: the width of the latent.
        r: the width of the short key that is rotated.
        d: how many features of a head's key come from the latent.
        name: the figure's name, see ``finish``.
    """
    drawing, axes = panels(620, 395, columns=2)
    says = "plain: a key for each kept token", "absorbed: another query, once"
    for ax, said, absorbed in zip(axes, says, (False, True), strict=True):
        ax.set(xlim=(0, 310), ylim=(385, 0))
        ax.axis("off")
        ax.set_title(said, fontsize=12, fontweight="bold")
        _box(ax, 20, 6, 190, "token", "b")
        _arrow(ax, 115, 34, 62)
        _text(ax, 122, 48, "W_down", ha="left")
        _box(ax, 20, 64, 160, f"latent {c}", "m", filled=True)
        _box(ax, 184, 64, 46, f"{r}", "m", filled=True)
        _text(ax, 207, 50, "rotated")
        _text(ax, 236, 78, "both\nkept", ha="left")
        _draw_score(ax, c, d, absorbed)
        _box(ax, 184, 240, 46, f"{r}", "n")
        _text(ax, 236, 254, "query of\none head", ha="left")
        ax.plot([207, 207], [240, 92], color=COLOURS["h"], lw=1.4, ls=":")
        _text(ax, 214, 180, "score 2", ha="left", color=COLOURS["h"])
        _draw_mix(ax, c, d, absorbed)
    alt = (
        f"A token is made into a latent of {c} numbers and a rotated key of {r}, which are kept. "
        f"Plain: the matrix U makes a key of {d} from each kept latent, and the query of {d} is "
        f"compared with it. Absorbed: U transposed makes the query {c} wide, once, and it is "
        f"compared with the latents themselves. In both forms, the rotated query of {r} is "
        "compared with the rotated key, and the two scores are added. "
        f"Plain: the matrix U_V makes a value of {d} from each latent, and the values are mixed. "
        f"Absorbed: the latents are mixed, and U_V makes {d} numbers of the mix, once."
    )
    return finish(drawing, name=name, alt=alt)


def _draw_score(ax: Axes, c: int, d: int, absorbed: bool) -> None:
    """Draw what stands between the latent and the query: U on the key's side or on the query's."""
    made, score, u = (176, 128, 208) if absorbed else (140, 204, 116)
    if absorbed:
        _box(ax, 20, 148, 160, f"query {c}", "n")
        _arrow(ax, 100, 238, 178)
    else:
        _arrow(ax, 100, 94, 146)
        _box(ax, 70, 148, 60, f"key {d}", "m")
    _box(ax, 70, 240, 60, f"{d}", "n")
    _text(ax, 107, u, "Uᵀ" if absorbed else "U", ha="left", fontweight="bold", color=COLOURS["d"])
    _text(ax, 126, u, "once" if absorbed else "for each", ha="left", color=COLOURS["d"])
    ends = (148, 92) if absorbed else (240, made + 36)
    ax.plot([100, 100], ends, color=COLOURS["h"], lw=1.4, ls=":")
    _text(ax, 107, score - 8 if absorbed else score + 6, "score 1", ha="left", color=COLOURS["h"])


def _draw_mix(ax: Axes, c: int, d: int, absorbed: bool) -> None:
    """Draw how the head's output comes about: U_V before the mix or behind it."""
    _box(ax, 20, 344, 76, f"latent {c}", "m", filled=True)
    _box(ax, 148, 344, 64, f"mix {c}" if absorbed else f"value {d}", "m")
    _box(ax, 264, 344, 40, f"{d}", "n")
    ends = {"mix": (96, 148), "U_V": (212, 264)} if absorbed else {}
    ends = ends or {"U_V": (96, 148), "mix": (212, 264)}
    ax.plot(ends["mix"], [358, 358], color=COLOURS["h"], lw=1.4, ls=":")
    _text(ax, sum(ends["mix"]) / 2, 346, "weights", color=COLOURS["h"])
    ax.add_patch(
        FancyArrowPatch(
            (ends["U_V"][0], 358), (ends["U_V"][1], 358), arrowstyle="->", mutation_scale=12,
            lw=1.2, color=COLOURS["b"],
        )
    )  # fmt: skip
    u = sum(ends["U_V"]) / 2
    _text(ax, u, 346, "U_V", fontweight="bold", color=COLOURS["d"])
    _text(ax, u, 371, "once" if absorbed else "for each", color=COLOURS["d"])
    _text(ax, 284, 334, "output")


def _box(
    ax: Axes, x: float, y: float, width: float, said: str, letter: str, *, filled: bool = False
) -> None:
    look: dict[str, Any] = {"edgecolor": COLOURS[letter], "linewidth": 1.4}
    if filled:
        ax.add_patch(Rectangle((x, y), width, 28, facecolor=COLOURS[letter], alpha=0.2))
    ax.add_patch(Rectangle((x, y), width, 28, fill=False, **look))
    _text(ax, x + width / 2, y + 14, said, color=COLOURS[letter])


def _arrow(ax: Axes, x: float, start: float, end: float) -> None:
    look: dict[str, Any] = {"arrowstyle": "->", "mutation_scale": 12, "lw": 1.2}
    ax.add_patch(FancyArrowPatch((x, start), (x, end), color=COLOURS["b"], **look))


def _text(ax: Axes, x: float, y: float, said: str, ha: str = "center", **look: Any) -> None:
    ax.text(x, y, said, ha=ha, va="center", fontsize=12, **look)
