"""What judges of attention code accept, tried on the mistakes of ``attention_doctor.mistakes``.

    python -m press.measure.judges

A judge is a list of checks that say whether a class that somebody has written is right. Those of
others are restated here in our own words, with the sizes and the tolerance that they have: what is
asked, of which inputs, and not a line of their code. Each names where it was read. All of them call
a class as they ask for it, so a class that takes PyTorch's arguments is given to each as it wants.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from annotated_attention import MultiheadAttention, block_future
from attention_doctor import examine
from attention_doctor.adapters import torch_like
from attention_doctor.mistakes import MISTAKES
from press.measure.machine import provenance

DATA = Path(__file__).with_name("judges.json")
Build = Callable[..., Any]  # makes a module from e, h and options by the names of PyTorch


def shape(build: Build) -> bool:
    """The shape of one output."""
    x, y, lengths = torch.ones(2, 4, 100), torch.ones(2, 6, 100), torch.tensor([3, 2])
    padding = torch.arange(6) >= lengths[:, None]
    return build(100, 5)(x, y, y, key_padding_mask=padding)[0].shape == (2, 4, 100)


def one_sample(build: Build) -> bool:
    """Outputs for one sample without a mask; shapes, gradients that exist."""
    x = torch.randn(2, 6, 32)
    if build(32, 4)(x, x, x)[0].shape != x.shape:
        return False
    query, key, value = torch.randn(3, 1, 4, 16)
    module = build(16, 2)
    if not close(module(query, key, value)[0], reference(module, 16, 2)(query, key, value)[0]):
        return False
    x = torch.randn(1, 4, 16, requires_grad=True)
    module(x, x, x)[0].sum().backward()
    learns = module.in_proj_weight.grad is not None and module.out_proj.weight.grad is not None
    query, key = torch.randn(1, 3, 32), torch.randn(1, 7, 32)
    crosses = build(32, 4)(query, key, key)[0].shape == query.shape
    projected = nn.functional.linear(torch.randn(4, 16), build(16, 4).in_proj_weight[:16])
    first, second, *_ = projected.unflatten(-1, (4, 4)).unbind(-2)
    return x.grad is not None and learns and crosses and not close(first, second, 1e-3)


def last_key_matters(build: Build) -> bool:
    """Shapes, gradients that exist, that the last key matters."""
    for b, n, m, e, h in ((2, 6, 10, 64, 4), (1, 3, 20, 32, 2)):
        query, key = torch.randn(b, n, e), torch.randn(b, m, e)
        if build(e, h)(query, key, key)[0].shape != query.shape:
            return False
    module = build(32, 2)
    query, key = torch.randn(1, 4, 32), torch.randn(1, 6, 32)
    other = torch.cat([key[:, :-1], torch.randn(1, 1, 32)], dim=1)
    first, second = (module(query, x, x)[0][:, 0] for x in (key, other))
    query.requires_grad_(), key.requires_grad_()
    module(query, key, key)[0].sum().backward()
    return not close(first, second) and query.grad is not None and key.grad is not None


def whole_numbers(build: Build) -> bool:
    """Outputs, for whole numbers so large that each query takes one key."""
    for n, e, h in ((4, 4, 2), (6, 8, 4), (6, 8, 2)):
        module = build(e, h)
        x = torch.randperm(n * e).view(1, n, e).float()
        with torch.no_grad():
            below = torch.tensor([4, 5, 6]).repeat_interleave(e)[:, None]
            module.in_proj_weight.copy_((torch.rand(3 * e, e) * below).floor())
            module.in_proj_bias.zero_()
            module.out_proj.weight.copy_(torch.eye(e))
            module.out_proj.bias.zero_()
        if not close(module(x, x, x)[0], reference(module, e, h)(x, x, x)[0]):
            return False
    return True


def outputs(build: Build) -> bool:
    """Outputs for three samples without a mask, against PyTorch's class."""
    query, key, value = torch.rand(3, 3, 4, 8)
    module = build(8, 2)
    expected = reference(module, 8, 2)(query, key, value)[0]
    return close(module(query, key, value)[0], expected, 1e-8)


def output_of_self_attention(build: Build) -> bool:
    """The shape of an output, of one with grouped heads, and of a cache."""
    x = torch.randn(2, 16, 128)  # neither groups nor a cache are of these classes
    return build(128, 4, bias=False)(x, x, x)[0].shape == x.shape


def added_mask(build: Build) -> bool:
    """Outputs for ten samples with numbers added to the scores, against a library's class."""
    for _ in range(100):
        module = build(27, 3, bias=False)
        with torch.no_grad():
            for weight in module.parameters():
                weight.uniform_(0, 1)
        query, key, value = torch.rand(3, 10, 11, 27)
        masks = {"attn_mask": torch.rand(11, 11)}
        expected = reference(module, 27, 3, bias=False)(query, key, value, **masks)[0]
        found = module(query, key, value, **masks)[0]
        if found.shape != expected.shape or not found.allclose(expected, 1e-5, 1e-8):
            return False
    return True


def parity(build: Build) -> bool:
    """Outputs, weights and gradients against PyTorch's class, with masks and with dropout."""
    future = block_future(5, 5)
    some = torch.rand(2 * 4, 5, 5).gt(0.6).index_fill(-1, torch.tensor(0), False)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    settings: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {}),
        ({"key_padding_mask": padding}, {"key_padding_mask": padding}),
        ({"attn_mask": some}, {"attn_mask": some}),
        ({"is_causal": True}, {"attn_mask": future}),  # PyTorch's class wants the mask itself
    ]
    module = build(24, 4, dropout=0.4).double()
    x, y = torch.randn(2, 5, 24).double(), torch.randn(2, 3, 24).double()
    for query, ours, theirs in ((y, {}, {}), *((x, *masks) for masks in settings)):
        for training in (False, True):
            module.train(training)
            trusted = reference(module, 24, 4, dropout=0.4).train(training)
            found = everything(module, query, x, **ours)
            if not all(map(close, found, everything(trusted, query, x, **theirs))):
                return False
    return True


def everything(module: nn.Module, query: Tensor, key: Tensor, **masks: Any) -> list[Tensor]:
    """Give output and weights, and the gradients of inputs and parameters."""
    torch.manual_seed(0)  # for dropout
    query, key = (x.detach().clone().requires_grad_() for x in (query, key))
    output, weights = module(query, key, key, **masks)
    loss = (output.flatten() * torch.linspace(-1, 2, output.numel())).sum()
    sources = [query, key, *module.parameters()]
    return [output, weights, *torch.autograd.grad(loss, sources)]


def doctor(build: Build) -> bool:
    """What this page says; it is given no reference."""
    return all(
        examine(torch_like(build(24, 4), kind), kind=kind, embed_dim=24, num_heads=4).ok
        for kind in ("cross", "causal")
    )


def close(one: Tensor, other: Tensor, atol: float = 1e-5) -> bool:
    """Tell whether two tensors agree within rounding."""
    return one.shape == other.shape and torch.allclose(one, other, atol=atol)


def reference(module: nn.Module, e: int, h: int, **options: Any) -> nn.MultiheadAttention:
    """Give PyTorch's class with the parameters of a module."""
    trusted = nn.MultiheadAttention(e, h, batch_first=True, **options)
    trusted.load_state_dict(module.state_dict())
    return trusted.to(next(module.parameters()).dtype)


TORCHCODE = "https://github.com/duoan/TorchCode/blob/master/torch_judge/tasks"
JUDGES = {  # each with where it was read, if it is of others; its docstring says what it asks for
    "d2l": (
        shape,
        "https://d2l.ai/chapter_attention-mechanisms-and-transformers/multihead-attention.html",
    ),
    "TorchCode, cross-attention": (last_key_matters, f"{TORCHCODE}/cross_attention.py"),
    "LLM-LeetCode": (
        output_of_self_attention,
        "https://github.com/datawhalechina/llm-algo-leetcode/blob/"
        "0865b72089c6b17356f6e6c178b6ecf1e30fb39c/02_PyTorch_Algorithms/04_Attention_MHA_GQA.ipynb",
    ),
    "Deep-ML": (
        whole_numbers,
        "https://github.com/Open-Deep-ML/DML-OpenProblem/tree/main/questions/"
        "94_implement-multi-head-attention",
    ),
    "TorchCode": (one_sample, f"{TORCHCODE}/mha.py"),
    "TorchLeet": (
        outputs,
        "https://github.com/Exorust/TorchLeet/tree/main/llm/Multi-Head-Attention",
    ),
    "tiny-llm": (
        added_mask,
        "https://github.com/skyzh/tiny-llm/blob/"
        "5b846b95328ef18c687ef041d86fc6fe27b1fdf3/tests_refsol/test_week_1_day_1.py",
    ),
    "parity, as in this book": (parity, ""),
    "the doctor": (doctor, ""),
}
PLANTED = [code for code, entry in MISTAKES.items() if entry.of is MultiheadAttention]


def accepted(judge: str, code: str = "") -> bool:
    """Ask a judge about a planted mistake, or about the right version.

    What makes the judge's own code fail is refused, as a judge that stops says no.

    Args:
        judge: who is asked, by name.
        code: of the mistake; the right version if it is empty.
    """
    version = MISTAKES[code].version if code else MultiheadAttention

    def build(e: int, h: int, **options: Any) -> nn.Module:
        return version(e, h, batch_first=True, **options)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            return JUDGES[judge][0](build)
        except Exception:
            return False


def table(found: dict[str, list[str]]) -> str:
    """Write what was found as the table of the doctor's page."""
    rows = ["| judge | asks for | accepts |", "|---|---|---|"]
    for judge, (accepts, source) in JUDGES.items():
        name = f"[{judge}]({source})" if source else judge
        said = (accepts.__doc__ or "").rstrip(".")
        asks = said[:1].lower() + said[1:]
        rows.append(f"| {name} | {asks} | {len(found[judge])} of {len(PLANTED)} |")
    return "\n".join(rows)


def main() -> None:
    """Measure, rewrite the data, and print the table."""
    found = {judge: [code for code in PLANTED if accepted(judge, code)] for judge in JUDGES}
    origin = provenance("python -m press.measure.judges")
    text = json.dumps({"provenance": origin, "accepted": found}, indent=1)
    DATA.write_text(text + "\n", encoding="utf-8")
    print(table(found))


if __name__ == "__main__":
    main()
