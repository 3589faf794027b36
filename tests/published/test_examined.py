"""The doctor, who looks from outside, finds nothing to say against any of the designs."""

from functools import partial

import pytest
import torch

from annotated_attention.doctor import adapters, examine
from annotated_attention.published import DESIGNS, Shortest


@pytest.mark.parametrize("name", DESIGNS)
def test_nothing_is_found(name: str) -> None:
    design = DESIGNS[name]
    torch.manual_seed(0)
    module = design.build(24, 4)
    attend = partial(design.call, module)
    if design.kind == "self":
        attend = lambda x, blocked: design.call(module, x, x, x, blocked)  # noqa: E731
    report = examine(attend, embed_dim=24, num_heads=4, kind=design.kind, module=module)
    assert report.findings == (), report
    assert not any(
        "blocked" in reason or "fully masked rows" in reason for reason in report.not_examined
    )


def test_nothing_is_found_in_the_shortest_version() -> None:
    torch.manual_seed(0)
    attend = adapters.sequence_first(adapters.without_mask(Shortest(24, 4)))
    report = examine(attend, embed_dim=24, num_heads=4)
    assert report.findings == (), report
    assert "the right version" in report.agreement
