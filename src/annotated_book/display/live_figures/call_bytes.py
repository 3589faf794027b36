"""What one call of a model reads, and what it computes: whichever takes longer is its time."""

from collections.abc import Mapping, Sequence

from annotated_book.display._html import Output
from annotated_book.display._live import live
from annotated_book.display.plots import COLOURS, finish, panels

_ROW = 66  # pixels for a bar and its two lines of text


def call_bytes(
    loads: Sequence[tuple[int, int, int, int]],
    gpu: Mapping[str, float],
    *,
    name: str,
    caption: str = "",
    alive: bool = False,
) -> Output:
    """Draw what a call reads, as a stretch of the GPU's memory; alive, for any load.

    Args:
        loads: of each bar the sequences that write, the tokens that each of them has kept, the
            first tokens of a prompt that the call reads beside them, and the bits of a kept
            number, 16 or 8.
        gpu: bytes of ``weights`` that a call reads and of those ``stored``, of a token ``kept`` in
            16 bits and of the whole ``memory``; ``flops`` of a new token, of which
            ``output`` to compare it with the vocabulary, and of a ``pair`` of it and a kept one;
            what there is of ``bandwidth`` and ``arithmetic`` in a second.
        name: the figure's name, see ``finish``.
        caption: HTML under the figure.
        alive: whether a reader can choose one more load.
    """
    drawing, (ax,) = panels(400, _ROW * len(loads) + 34)
    end, told = gpu["memory"] / 1e9, []
    for y, load in enumerate(loads):
        found = call(gpu, *load)
        weights, read = gpu["weights"] / 1e9, min(found["bytes"] / 1e9, end)
        works = min(found["computing"] * gpu["bandwidth"] / 1e12, end)
        for width, left, below, thick, ink, alpha in (
            (end, 0, 0, 0.32, "b", 0.12),
            (weights, 0, 0, 0.32, "n", 0.8),
            (read - weights, weights, 0, 0.32, "m", 0.8),
            (works, 0, 0.2, 0.07, "h", 1),
        ):
            ax.barh(-y - below, width, thick, left=left, color=COLOURS[ink], alpha=alpha)
        ax.text(0, 0.22 - y, named(*load), fontsize=12, fontweight="bold")
        ax.text(0, -0.27 - y, said(found), fontsize=12, va="top")
        told.append(f"{named(*load)}: {said(found)}")
    ax.set(xlim=(0, end), ylim=(0.42 - len(loads), 0.5))
    ticks = [end * i / 4 for i in range(5)]
    ax.set_xticks(ticks, [f"{x:g}" + " GB" * (x == end) for x in ticks])
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    still = finish(drawing, name=name, alt="; ".join(told) + ".", caption=caption)
    if not alive:
        return still
    data = {"loads": [list(load) for load in loads], "gpu": dict(gpu)}
    return live(still, "call_bytes", data, room=(660, 590))


def call(
    gpu: Mapping[str, float], sequences: int, tokens: int, chunk: int = 0, bits: int = 16
) -> dict[str, float]:
    """Give a call's bytes, its milliseconds of reading and of computing, and tokens a second."""
    caches = (sequences * tokens + chunk) * gpu["kept"] * bits / 16
    read = gpu["weights"] + caches
    reading = 1000 * read / gpu["bandwidth"]
    flops = sequences * (gpu["flops"] + tokens * gpu["pair"])
    flops += chunk * (gpu["flops"] - gpu["output"] + (chunk + 1) / 2 * gpu["pair"])
    computing = 1000 * flops / gpu["arithmetic"]
    return {
        "bytes": read,
        "reading": reading,
        "computing": computing,
        "rate": 1000 * sequences / max(reading, computing),
        "fits": gpu["stored"] + caches <= gpu["memory"],
    }


def named(sequences: int, tokens: int, chunk: int = 0, bits: int = 16) -> str:
    """Name a load."""
    many = f"{sequences:,} sequence{'s' * (sequences > 1)}"
    beside = f" + {chunk:,} of a prompt" if chunk else ""
    return f"{many} of {tokens:,} tokens{beside}" + (f", {bits} bits" if bits < 16 else "")


def said(found: Mapping[str, float]) -> str:
    """Say what a call takes, and what it brings."""
    longest = max(found["reading"], found["computing"])
    short = "" if found["fits"] else " (does not fit)"
    return (
        f"{found['bytes'] / 1e9:,.0f} GB, {longest:,.1f} ms: {found['rate']:,.0f} tokens/s{short}"
    )
