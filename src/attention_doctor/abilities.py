"""Let the doctor ask about positions and about a cache: say how a module is given them.

A callable with these attributes is asked more than others: ``at_positions``, ``start`` and
``step``, ``window``, ``packed``; the doctor's page says what they are. The functions here set the
first three for signatures that are usual; the others are set by hand, on an ``Adapted``.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attention_doctor.adapted import Adapted, output_of
from attention_doctor.steps import Steps

__all__ = ["cached", "rotated"]


def rotated(
    attend: Callable[..., Any],
    *names: str,
    make: Callable[[Tensor], Any] | None = None,
    **options: Any,
) -> Adapted:
    """Let attention be asked at any positions: that only their differences count, on both sides.

    Args:
        attend: called as ``attend(x, ..., **positions)``, with x as (b, n, e).
        *names: the arguments that say where the tokens stand, such as ``"position_ids"``, or
            ``"cos", "sin"``.
        make: makes these arguments from positions, (n,): one, or a tuple with one for each name.
            None means that the positions themselves are passed.
        **options: passed on as they are.

    Returns:
        A callable without these arguments, whose tokens stand at 0, 1, 2 and so on, with
        ``at_positions(x, positions)``.

    Examples:
        >>> import torch
        >>> from attention_doctor import abilities
        >>> def attend(x, cos, sin):
        ...     print("cosines", *cos.shape)
        ...     return x
        >>> def table(positions):
        ...     angle = positions[:, None] / torch.tensor([1.0, 10.0, 100.0])
        ...     return angle.cos(), angle.sin()
        >>> adapted = abilities.rotated(attend, "cos", "sin", make=table)
        >>> adapted.at_positions(torch.randn(2, 5, 24), torch.arange(7, 12)).shape
        cosines 5 3
        torch.Size([2, 5, 24])
    """

    def call(x: Tensor, *rest: Any, positions: Tensor | None = None) -> Any:
        at = torch.arange(x.size(1)) if positions is None else positions
        made = at if make is None else make(at)
        given = made if len(names) > 1 else (made,)
        return attend(x, *rest, **dict(zip(names, given, strict=True)), **options)

    def at_positions(x: Tensor, positions: Tensor) -> Any:
        return output_of(call(x, positions=positions), x.shape)[0]

    adapted = Adapted(call, attend)
    adapted.at_positions = at_positions  # type: ignore[attr-defined]
    return adapted


def cached(
    attend: Callable[..., Any],
    *,
    past: str | None = None,
    start_pos: str | None = None,
    place: int = 1,
    **options: Any,
) -> Adapted:
    """Let causal attention with a cache be asked whether it gives what no cache gives.

    Args:
        attend: called as ``attend(x)`` without a cache. With one, it takes it as an argument and
            returns a new one, or it is a module that keeps its cache in itself.
        past: the argument that takes the cache; None means that the module keeps it.
        start_pos: the argument that takes how many tokens went before; None if there is none.
        place: where in the returned tuple the new cache stands.
        **options: passed on with a cache, such as ``use_cache=True``.

    Returns:
        The same callable, with ``start()``, and ``step(x, cache)`` for the next tokens.

    Raises:
        ValueError: neither ``past`` nor ``start_pos`` is given.

    Examples:
        >>> import torch
        >>> from attention_doctor import abilities
        >>> def attend(x, past=None):
        ...     whole = x if past is None else torch.cat([past, x], 1)
        ...     return whole.cumsum(1)[:, -x.size(1) :], whole
        >>> adapted = abilities.cached(attend, past="past")
        >>> cache, x = adapted.start(), torch.ones(1, 3, 1)
        >>> adapted.step(x[:, :2], cache).flatten().tolist()
        [1.0, 2.0]
        >>> adapted.step(x[:, 2:], cache).flatten().tolist()
        [3.0]
    """
    if past is None and start_pos is None:
        raise ValueError("past or start_pos must name the argument of the cache or its length")
    adapted = Adapted(attend, attend)

    def call(own: Any, x: Tensor, given: dict[str, Any], before: int) -> Any:
        return (own or attend)(x, **given)

    Steps(adapted, call, past, start_pos, options, place).serve()
    return adapted
