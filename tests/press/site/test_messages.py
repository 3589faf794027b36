"""Pages that answer: the lines under a message raise it, word by word, and mend it."""

import ast
import re
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from operator import add

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

from press.run import scripts

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def sections(page: str, level: str) -> list[tuple[str, str]]:
    """Give what stands above the first heading of a level, and below each, with its title."""
    text = (scripts.ROOT / "docs" / page).read_text(encoding="utf-8")
    above, *rest = re.split(rf"^{level} ", text, flags=re.MULTILINE)
    return [("", above), *((part.split("\n")[0], part) for part in rest)]


def steps(code: str) -> Iterator[tuple[ast.Module, str]]:
    """Give the statements of a block, one by one within their context, and the mark of each."""
    for statement in ast.parse(code).body:
        within = isinstance(statement, ast.With)
        for inner in statement.body if within else [statement]:
            line = code.splitlines()[inner.end_lineno - 1]
            step = ast.With(statement.items, [inner]) if within else inner
            tree = ast.Module([ast.copy_location(step, statement)], [])
            yield ast.fix_missing_locations(tree), line[-1]


def said(tree: ast.Module, space: dict) -> str:
    """Run a statement; give the error that it raises, or else its warnings."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            exec(compile(tree, "the page", "exec"), space)
        except Exception as error:
            warned = [f"raised: {error}"]
    return " ".join(" ".join(map(str, warned)).replace("`", "").split())


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    """Let PyTorch warn each time; undo what a page switches off."""
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)
    torch.backends.mha.set_fastpath_enabled(True)
    torch.backends.cuda.enable_mem_efficient_sdp(True)
    torch.backends.cuda.enable_cudnn_sdp(True)


def messages() -> Iterator[tuple[str, str, str]]:
    """Give each message's title and text, and the code that the page and its group share."""
    (_, shared), *groups = sections("messages.md", "##")
    for _, group in groups:
        above, *rest = re.split(r"^### ", group, flags=re.MULTILINE)
        for text in rest:
            yield text.split("\n")[0], text, "\n".join(BLOCK.findall(shared + above))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("title", "text", "shared"), [*messages()])
def test_a_message_is_raised_word_by_word_and_mended(title, text, shared):
    message, (code,) = title.split("`")[1], BLOCK.findall(text)
    exec(shared, space := {})
    marks = ""
    for tree, mark in steps(code):
        heard = said(tree, space)
        assert (message in heard) == (mark == "✗")
        assert mark == "✗" or "raised" not in heard
        marks += mark
    assert marks.count("✓") == 1
    assert marks.count("✗") == ("not raised here" not in " ".join(text.split()))


@pytest.mark.filterwarnings("ignore")
def test_what_an_answer_quotes_besides_is_raised():
    from transformers import DynamicCache, LlamaConfig, StaticCache

    small = LlamaConfig(hidden_size=24, num_attention_heads=4, num_hidden_layers=1)
    static = StaticCache(config=small, max_cache_len=8)
    for page, call, quoted in (
        ("messages.md", lambda: add(DynamicCache(), ()), "unsupported operand type(s) for +"),
        ("loaded-model.md", lambda: static.crop(-2), "'StaticLayer' object has no attribute"),
    ):
        with pytest.raises((TypeError, AttributeError)) as raised:
            call()
        assert str(raised.value).startswith(quoted)
        assert str(raised.value) in (scripts.ROOT / "docs" / page).read_text(encoding="utf-8")


def test_selective_checkpointing_computes_the_attention_once():
    """Of three ways in the answer, only plain checkpointing computes it a second time."""

    class Calls(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            names.append(operator.overloadpacket.__name__)
            return operator(*args, **(kwargs or {}))

    shared, text = QUESTIONS[0][1], dict(QUESTIONS)["Short answers"]
    (code,) = (block for block in BLOCK.findall(text) if "context_fn" in block)
    exec("\n".join(BLOCK.findall(shared)), space := {})
    names = []
    with Calls():
        exec(code, space)
    forward = [x for x in names if "scaled_dot_product" in x and "backward" not in x]
    assert len(forward) == 1 + 2 + 1


def test_the_page_of_loaded_models_names_the_version_that_runs_it():
    assert f"version {version('transformers').partition('.')[0]}" in LOADED[0][1]


BACKENDS = "Which backend computes it, and why does one refuse?"
QUESTIONS = sections("questions.md", "##")
REASONS = sections("reasons.md", "##")
LOADED = sections("loaded-model.md", "##")
ANSWERS = (QUESTIONS, REASONS, LOADED)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("title", "shared", "text"),
    [(title, page[0][1], text) for page in ANSWERS for title, text in page[1:]],
)
def test_the_code_of_an_answer_runs(title, shared, text):
    exec("\n".join(BLOCK.findall(shared + text)), {})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("column", "backend"), [(0, "FLASH_ATTENTION"), (3, "MATH")])
def test_a_backend_demands_on_a_cpu_what_the_table_says(column, backend):
    """A cell that names no size and no refusal says that the call runs."""
    q, k, v = (torch.randn(2, 4, length, 6, requires_grad=True) for length in (3, 5, 5))
    mask = torch.zeros(3, 5)
    calls = {
        "axes": ((q[0], k[0], v[0]), {}),
        "dtype": ((q.double(), k.double(), v.double()), {}),
        "widths": ((q, k, v[..., :5]), {}),
        "a mask": ((q, k, v), {"attn_mask": mask}),
        "a mask that learns": ((q, k, v), {"attn_mask": mask.clone().requires_grad_()}),
        "`is_causal`": ((q, k, v), {"is_causal": True}),
        "`dropout_p`": ((q, k, v), {"dropout_p": 0.1}),
        "`enable_gqa`": ((q, k[:, :2], v[:, :2]), {"enable_gqa": True}),
    }
    rows = re.findall(r"^\| (\S.*) \|$", dict(QUESTIONS)[BACKENDS], re.MULTILINE)
    cells = {name: said for name, *said in (row.split(" | ") for row in rows)}
    taken = {}
    for name, (tensors, options) in calls.items():
        try:
            with sdpa_kernel(getattr(SDPBackend, backend)):
                scaled_dot_product_attention(*tensors, **options)
        except RuntimeError:
            taken[name] = False
        else:
            taken[name] = True
    said = {name: next(cells[x][column] for x in cells if x.startswith(name)) for name in calls}
    assert taken == {name: cell in {"yes", "any", "any float"} for name, cell in said.items()}
