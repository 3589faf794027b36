"""What the exercises' tables say of the package, of PyTorch and of their chapters is so."""

import runpy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from annotated_attention import MultiheadAttention, chapters, scaled_dot_product_attention
from annotated_attention.exercises import masks, multihead_attention, one_head, split_and_stack


def test_the_weights_of_the_first_exercises_are_the_chapters(verdict: Any) -> None:
    chapter = chapters.load("01_one_head")
    weights = (chapter.EMBEDDINGS @ chapter.EMBEDDINGS.mT / 2).softmax(-1)
    for word, row in zip(chapter.WORDS, weights, strict=True):
        expected = "✓ " if word == "drank" else f'"{word}"'
        assert expected in verdict(one_head.check_weights, row)
    assert chapter.EMBEDDINGS.tolist() == one_head._EMBEDDINGS


def test_pytorch_computes_from_the_packed_matrix_what_the_heads_do() -> None:
    x, h, e = torch.randn(3, 24), 4, 24
    heads = [tuple(torch.randn(3, e, 6).unbind()) for _ in range(h)]
    packed = split_and_stack.check_pack.right(heads)
    weights = {"in_proj_weight": packed, "out_proj.weight": torch.eye(e)}
    output, _ = functional_call(nn.MultiheadAttention(e, h, bias=False), weights, (x, x, x))
    apart = [scaled_dot_product_attention(x @ q, x @ k, x @ v)[0] for q, k, v in heads]
    torch.testing.assert_close(output, torch.cat(apart, -1))


def test_models_keep_the_dtype_and_are_the_same_each_time() -> None:
    x, blocked = torch.ones(1, 2, 12), torch.tensor([[False, True]])
    for name, model in masks.four_models().items():
        output = model(x, blocked)
        assert output.dtype == x.dtype
        torch.rand(1)  # another state of the generator
        assert output.equal(masks.four_models()[name](x, blocked))


def test_the_new_models_do_what_is_said_of_them() -> None:
    """Told by gradients, apart from what the table's probe does."""
    path = Path(__file__).parent / "answers" / "masks.py"
    by_gradient = runpy.run_path(str(path))["by_gradient"]
    new = {what: masks._build(*kind) for what, kind in masks._NEW.items()}
    harmless = {what for what in new if "words are untouched" in what or "as it should" in what}
    assert by_gradient(new) == {*new} - harmless
    assert by_gradient(masks.four_models()) == {"south"}


def test_the_four_shapes_are_those_of_a_run() -> None:
    found: dict[str, tuple[int, ...]] = {}

    class Writing(MultiheadAttention):
        def attend(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
            found["the queries of the heads"] = tuple(q.shape)
            found["the mask, merged"] = tuple(options["blocked"].shape)
            return super().attend(q, k, v, **options)

    key, padding = torch.randn(9, 2, 12), torch.zeros(2, 9, dtype=torch.bool)
    output, weights = Writing(12, 3)(torch.randn(7, 2, 12), key, key, padding)
    assert weights is not None
    found |= {"the output": tuple(output.shape), "the weights": tuple(weights.shape)}
    assert found == multihead_attention.check_shapes.right
