"""``python -m annotated_attention.counting``: count a model whose sizes are given as options."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields, replace

from annotated_attention.checks import check_sizes
from annotated_attention.counting.model import PRESETS, Model
from annotated_attention.counting.tables import table


def main(arguments: Sequence[str] | None = None) -> None:
    """Read sizes from the command line, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m annotated_attention.counting",
        description="Count the parameters, FLOPs and memory of a Transformer.",
    )
    parser.add_argument(
        "--preset",
        default="transformer-base",
        choices=PRESETS,
        metavar="NAME",
        help=f"published sizes, changed by the options below: {', '.join(PRESETS)}",
    )
    for field in fields(Model):
        if field.type in (int, int | None):
            parser.add_argument(f"--{field.name.replace('_', '-')}", type=int, metavar="N")
    parser.add_argument("--length", type=int, default=512, metavar="N", help="tokens (512)")
    parser.add_argument("--batch", type=int, default=1, metavar="N", help="sequences (1)")
    parser.add_argument(
        "--bytes", type=int, default=4, metavar="N", help="of one number (4, float32)"
    )
    parser.add_argument(
        "--cache-bytes", type=int, metavar="N", help="of one number in the cache (as --bytes)"
    )
    options = vars(parser.parse_args(arguments))
    given = {name: size for name, size in options.items() if size is not None}
    changes = {field.name: given[field.name] for field in fields(Model) if field.name in given}
    try:
        check_sizes({name: given.get(name, 1) for name in ("bytes", "cache_bytes")})
        model = replace(PRESETS[options["preset"]], **changes)
        sizes = [options[name] for name in ("length", "batch", "bytes", "cache_bytes")]
        print(table(model, *sizes))
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
