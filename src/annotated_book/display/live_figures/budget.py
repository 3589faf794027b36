"""What a token budget does to those who write, and to a new prompt, while it is read in chunks."""

from collections.abc import Mapping, Sequence

from annotated_book.display._html import Output
from annotated_book.display._live import live
from annotated_book.display.live_figures.call_bytes import call
from annotated_book.display.plots import COLOURS, finish, panels

_ROW = 62  # pixels for a lane and its line of text


def budget(
    budgets: Sequence[int],
    gpu: Mapping[str, float],
    *,
    prompt: int,
    writers: int,
    tokens: int,
    name: str,
    caption: str = "",
) -> Output:
    """Draw calls one after the other until a prompt is read, for each budget; alive, for any.

    Args:
        budgets: of each lane, the most tokens that a call takes.
        gpu: what a call costs, see ``call_bytes``.
        prompt: the tokens of the new prompt.
        writers: how many sequences write meanwhile, one token each in every call.
        tokens: what each of them has kept when the prompt comes.
        name: the figure's name, see ``finish``.
        caption: HTML under the figure.
    """
    drawing, (ax,) = panels(400, _ROW * len(budgets) + 40)
    lanes = [served(gpu, most, prompt, writers, tokens) for most in budgets]
    end = 1.1 * max(map(sum, lanes))
    for y, (most, calls) in enumerate(zip(budgets, lanes, strict=True)):
        ax.barh(-y, sum(calls), 0.34, color=COLOURS["h"], alpha=0.3)
        ax.text(0, 0.28 - y, named(most, calls), fontsize=12)
        later, at = call(gpu, writers + 1, tokens)["reading"], 0.0
        for spent in [*calls, *[later] * int((end - sum(calls)) / later)]:
            at += spent
            ax.plot([at, at], [-y - 0.17, 0.17 - y], color=COLOURS["n"], lw=1.4)
    ax.set(xlim=(0, end), ylim=(0.6 - len(budgets), 0.55), xlabel="milliseconds since C came")
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    told = "; ".join(map(named, budgets, lanes))
    still = finish(
        drawing, name=name, alt=f"A prompt of {prompt:,} tokens. {told}.", caption=caption
    )
    data = {"budgets": list(budgets), "gpu": dict(gpu), "prompt": prompt}
    return live(still, "budget", data | {"writers": writers, "tokens": tokens}, room=(370, 375))


def served(
    gpu: Mapping[str, float], most: int, prompt: int, writers: int, tokens: int
) -> list[float]:
    """Give the milliseconds of each call until the whole prompt is read."""
    calls: list[float] = []
    read = 0
    while read < prompt:
        chunk = min(most - writers, prompt - read)
        found = call(gpu, writers, tokens + len(calls), chunk)
        reading = found["reading"] + 1000 * read * gpu["kept"] / gpu["bandwidth"]
        computing = found["computing"] + 1000 * chunk * read * gpu["pair"] / gpu["arithmetic"]
        calls.append(max(reading, computing))
        read += chunk
    return calls


def named(most: int, calls: Sequence[float]) -> str:
    """Say what a budget makes of it."""
    return f"{most:,} tokens: B waits {max(calls):,.1f} ms, C {sum(calls):,.0f} ms"
