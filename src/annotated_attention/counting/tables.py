"""The counts of a model as text: short numbers, tables and sentences."""

from annotated_attention.counting.model import PARTS, Model


def short(number: int, unit: str = "") -> str:
    """Write a number with three digits and a decimal prefix: 63,082,496 as 63.1 M.

    The last digit is rounded half up, by integers alone, so that it is the same in any language.

    Examples:
        >>> from annotated_attention.counting import short
        >>> short(63_082_496), short(1_500, "B")
        ('63.1 M', '1.50 kB')
    """
    power, digits = divmod(len(str(number)) - 1, 3)
    if power == 0:
        return f"{number} {unit}".rstrip()
    decimals = 2 - digits
    scaled = (2 * number * 10**decimals + 1000**power) // (2 * 1000**power)
    if scaled == 1000 * 10**decimals:  # rounded up to the next prefix
        return short(1000 ** (power + 1), unit)
    whole, fraction = divmod(scaled, 10**decimals)
    shown = f"{whole}.{fraction:0{decimals}}" if decimals else f"{whole}"
    return f"{shown} {'_kMGTPEZYRQ'[power]}{unit}"


def rows(model: Model, length: int, batch: int = 1, width: int = 4) -> list[list[str]]:
    """Write the counts as the rows of a table, the header first and the total last.

    Args:
        model: the sizes.
        length: of source and target.
        batch: how many sequences.
        width: bytes of one number: 4 for float32, 2 for half precision.

    Examples:
        >>> from annotated_attention.counting import PRESETS, rows
        >>> rows(PRESETS["gpt2"], length=1024)[-1]
        ['total', '124 M', '100 %', '292 GFLOP', '100 %', '1.21 GB', '611 MB']
    """
    parameters, flops = model.parameters(), model.flops(length, batch)
    kept, fused = model.kept(length, batch), model.kept(length, batch, fused=True)
    totals = [sum(counts.values()) for counts in (parameters, flops, kept, fused)]
    table = [["", "parameters", "share", "forward", "share", "kept", "kept, fused"]]
    for part in (*PARTS, "total"):
        p, f, k, u = (
            [counts[part] for counts in (parameters, flops, kept, fused)]
            if part != "total"
            else totals
        )
        table.append(
            [
                part,
                short(p),
                _share(p, totals[0]),
                short(f, "FLOP"),
                _share(f, totals[1]),
                short(k * width, "B"),
                short(u * width, "B"),
            ]
        )
    return table


def notes(
    model: Model, length: int, batch: int = 1, width: int = 4, cache_width: int | None = None
) -> list[str]:
    """Write what the table leaves out, one sentence each.

    Args:
        model: the sizes.
        length: of source and target.
        batch: how many sequences.
        width: bytes of one number.
        cache_width: bytes of one number in the cache; None means ``width``.

    Examples:
        >>> from annotated_attention.counting import PRESETS, notes
        >>> notes(PRESETS["gpt2"], length=1024)[0]
        "124,439,808 parameters take 498 MB; with gradients and Adam's two averages 1.99 GB."
    """
    total = sum(model.parameters().values())
    flops = model.flops(length, batch)
    forward, scores, projections = (
        sum(flops.values()),
        flops["scores and mix"],
        flops["projections"],
    )
    crossover = model.crossover()
    formula = "2e = " if crossover == 2 * model.embed_dim else ""
    found = [
        f"{total:,} parameters take {short(total * width, 'B')}; with gradients and Adam's two "
        f"averages {short(4 * total * width, 'B')}.",
        f"Forward and backward: {short(3 * forward, 'FLOP')}.",
        f"Scores and mix take {_share(scores, projections)} of the projections' FLOPs, and "
        f"pass them beyond length {formula}{crossover:,}.",
    ]
    if model.output != "none":
        step, cache = sum(model.step_flops(length, batch).values()), model.cache(length, batch)
        found.append(
            f"One more token, with a cache: {short(step, 'FLOP')}; "
            f"the cache holds {short(cache * (cache_width or width), 'B')}."
        )
    return found


def table(
    model: Model, length: int, batch: int = 1, width: int = 4, cache_width: int | None = None
) -> str:
    """Write the counts for a terminal; see ``notes`` for the arguments.

    Examples:
        >>> from annotated_attention.counting import PRESETS, table
        >>> print(table(PRESETS["gpt2"], length=1024))
                            parameters  share     forward  share     kept  kept, fused
        projections             28.3 M   23 %  58.0 GFLOP   20 %   189 MB       189 MB
        scores and mix               0    0 %  38.7 GFLOP   13 %   604 MB       590 kB
        feed-forward            56.7 M   46 %   116 GFLOP   40 %   340 MB       340 MB
        norms                   38.4 k    0 %      0 FLOP    0 %  78.8 MB      78.8 MB
        embeddings, output      39.4 M   32 %  79.0 GFLOP   27 %  3.15 MB      3.15 MB
        total                    124 M  100 %   292 GFLOP  100 %  1.21 GB       611 MB
        <BLANKLINE>
        124,439,808 parameters take 498 MB; with gradients and Adam's two averages 1.99 GB.
        Forward and backward: 875 GFLOP.
        Scores and mix take 67 % of the projections' FLOPs, and pass them beyond length 2e = 1,536.
        One more token, with a cache: 285 MFLOP; the cache holds 75.5 MB.
    """
    cells = rows(model, length, batch, width)
    columns = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        f"{row[0]:{columns[0]}}"
        + "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:], columns[1:], strict=True))
        for row in cells
    ]
    return "\n".join([*lines, "", *notes(model, length, batch, width, cache_width)])


def _share(part: int, whole: int) -> str:
    """Write a part as a percentage, rounded half up: 1 of 8 as 13 %."""
    return f"{(200 * part + whole) // (2 * whole)} %"
