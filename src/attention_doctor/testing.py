"""Assert in a test that an attention is right."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attention_doctor.call.roles import Sizes, Unasked
from attention_doctor.codes import check, chosen
from attention_doctor.examination import check_arguments, examine_called
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
    layout: str = "",
    mask: str = "",
    call: Mapping[str, Any] | None = None,
    window: int = 0,
    max_length: int = 16,
    context_dim: int | None = None,
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
        layout: as in ``adapt``.
        mask: as in ``adapt``; what is not said is told by the argument's name, or is inferred.
        call: further arguments of each call, by name.
        window: as in ``adapt``.
        max_length: as in ``examine``.
        context_dim: as in ``examine``.

    Returns:
        The report, as far as its findings count.

    Raises:
        AssertionError: something is wrong, or it could not be called; its text is the report.
        ValueError: a code does not exist, or an argument is one that ``examine`` refuses.

    Examples:
        >>> import torch
        >>> from attention_doctor import assert_attention
        >>> module = torch.nn.MultiheadAttention(24, 4, batch_first=True)
        >>> report = assert_attention(module, embed_dim=24, num_heads=4, ignore=["nan-row"])
        >>> report.codes
        ()
    """
    check([*ignore, *select, *wrong])
    sizes = Sizes(embed_dim, num_heads, context_dim or embed_dim, max_length)
    check_arguments(attend, sizes, kind)
    try:
        report = examine_called(attend, sizes, kind, layout, mask, call, window, reference)
    except Unasked as error:
        raise AssertionError(f"{error} {error.remedy}") from error
    counted = chosen(report, select, ignore, wrong)
    assert isinstance(counted, Report)
    if not counted.ok:
        raise AssertionError(str(counted))
    return counted
