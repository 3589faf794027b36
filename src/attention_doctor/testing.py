"""Assert in a test that an attention is right."""

from collections.abc import Callable, Sequence
from typing import Any

from attention_doctor.arguments import answered
from attention_doctor.codes import check, chosen
from attention_doctor.examination import examine
from attention_doctor.names import Unasked
from attention_doctor.options import parser
from attention_doctor.report import Report


def assert_attention(
    attend: Callable[..., Any],
    *,
    embed_dim: int,
    num_heads: int,
    kind: str = "cross",
    ignore: Sequence[str] = (),
    select: Sequence[str] = (),
    wrong: Sequence[str] = (),
    reference: Callable[..., Any] | None = None,
    **options: Any,
) -> Report:
    """Examine an attention, and fail with the report if something is wrong.

    Its arguments are matched by their names, as on the command line; what has an adapter around it
    is called as it is.

    Args:
        attend: a module, a function, or either in an adapter.
        embed_dim: e, the model width.
        num_heads: h, the number of heads.
        kind: as in ``examine``.
        ignore: codes of findings that do not count.
        select: codes of the only findings that count; none means all.
        wrong: codes of conventions that are to fail, too, such as ``["no-scale"]``.
        reference: as in ``examine``.
        **options: those of the command line, with underscores, such as ``mask="allowed"``,
            ``sequence_first=True``, ``max_length=8`` or ``call={"temperature": 1.0}``.

    Returns:
        The report, as far as its findings count.

    Raises:
        AssertionError: something is wrong, or it could not be called; its text is the report.
        ValueError: a code does not exist, or an argument is one that ``examine`` refuses.
        TypeError: there is no such option.

    Examples:
        >>> import torch
        >>> from attention_doctor import assert_attention
        >>> module = torch.nn.MultiheadAttention(24, 4, batch_first=True)
        >>> report = assert_attention(module, embed_dim=24, num_heads=4, ignore=["nan-row"])
        >>> report.codes
        ('weights-after-dropout',)
    """
    check([*ignore, *select, *wrong])
    sizes: dict[str, Any] = {"embed_dim": embed_dim, "num_heads": num_heads, "kind": kind}
    line = parser().parse_args(["test:it"])
    if unknown := [name for name in options if not hasattr(line, name)]:
        raise TypeError(
            f"there is no option {', '.join(unknown)}; options: {', '.join(vars(line))}"
        )
    vars(line).update(sizes, context_dim=embed_dim)
    vars(line).update(options)
    try:
        called = answered(attend, line, [])[0]
        trusted = None if reference is None else answered(reference, line, [])[0]
    except Unasked as error:
        raise AssertionError(f"{error} {error.remedy}") from error
    report = chosen(
        examine(
            called,
            **sizes,
            max_length=line.max_length,
            context_dim=line.context_dim,
            reference=trusted,
        ),
        select,
        ignore,
        wrong,
    )
    assert isinstance(report, Report)
    if not report.ok:
        raise AssertionError(str(report))
    return report
