"""Nothing right is called wrong: masks, adapters, options, fills, layouts, causality."""

import inspect
import itertools

import pytest
import torch
from torch import nn

from attention_doctor import adapters, examine
from attention_doctor.adapted import masks_of
from attention_doctor.command import main

E, H = 12, 3

# An attention as people write it by hand; each form of mask is one line that makes `hidden`,
# (b or 1, h or 1, n or 1, m), True = blocked, or `added`.
SOURCE = '''
import math
import torch
from torch import nn


class Attention(nn.Module):
    """Query, key, value, and a mask."""

    def __init__(self, embed_dim, num_heads, causal=False, batch_first=True):
        super().__init__()
        self.h, self.causal, self.batch_first = num_heads, causal, batch_first
        self.query, self.key, self.value, self.out = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def forward(self, query, key, value, mask=None, is_causal=False):
        if not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        split = lambda x: x.unflatten(-1, (self.h, -1)).transpose(1, 2)
        q, k, v = split(self.query(query)), split(self.key(key)), split(self.value(value))
        scores = q @ k.mT / math.sqrt(q.size(-1))
        fill = FILL
        if mask is not None:
            assert mask.dim() == DIM and KIND
            mask = PLACED
            scores = MASKED
        if self.causal or is_causal:
            n, m = scores.shape[-2:]
            scores = scores.masked_fill(torch.ones(n, m, dtype=torch.bool).triu(1), fill)
        output = self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return output if self.batch_first else output.transpose(0, 1)


class Self(Attention):
    def forward(self, x, mask=None, is_causal=False):
        return super().forward(x, x, x, mask, is_causal)
'''
FILLS = {"infinite": "-math.inf", "finite": "torch.finfo(scores.dtype).min"}
# What it does with its mask, what it insists on, and the adapter for it.
MEANINGS = {
    "blocked": ("scores.masked_fill(mask, fill)", "mask.dtype == torch.bool", lambda x: x),
    "allowed": (
        "scores.masked_fill(~mask, fill)", "mask.dtype == torch.bool", adapters.allowed
    ),
    "1 is blocked": ("scores.masked_fill(mask == 1, fill)", "not mask.dtype.is_floating_point",
                     adapters.numbers),
    "1 is allowed": (
        "scores.masked_fill((1 - mask).bool(), fill)", "mask.dtype == torch.long",
        lambda x: adapters.allowed(adapters.numbers(x)),
    ),
    "additive": ("scores + mask.clamp(min=fill)", "mask.is_floating_point()", adapters.additive),
}  # fmt: skip
# Its axes, how they are placed in (b, h, n, m), and the adapter for them.
SHAPES = {
    "bnm": (3, "mask[:, None]", lambda x: x),
    "b1nm": (4, "mask", adapters.for_each_head),
    "bhnm": (3, "mask.unflatten(0, (-1, self.h))", lambda x: adapters.folded(x, H)),
    "nm": (2, "mask", adapters.for_all_samples),
    "bm": (2, "mask[:, None, None]", adapters.for_all_queries),
    "b11m": (4, "mask", lambda x: adapters.with_mask(
        x, lambda mask: mask[:, None, None, 0], "padding")),
    "nmb": (3, "mask.permute(2, 0, 1)[:, None]", lambda x: adapters.with_mask(
        x, lambda mask: mask.permute(1, 2, 0))),
    "nm1": (3, "mask.squeeze(2)", lambda x: adapters.with_mask(
        x, lambda mask: mask[0, ..., None], "shared")),
}  # fmt: skip


def source(shape, meaning, fill):
    """Write the class that takes this form."""
    dim, placed, _ = SHAPES[shape]
    masked, kind, _ = MEANINGS[meaning]
    parts = {"FILL": FILLS[fill], "DIM": str(dim), "KIND": kind, "PLACED": placed,
             "MASKED": masked}  # fmt: skip
    text = SOURCE
    for name, part in parts.items():
        text = text.replace(name, part)
    return text


def made(shape, meaning, fill, name="Attention", **options):
    """Make a module of the class."""
    exec(source(shape, meaning, fill), space := {"__name__": "theirs"})
    torch.manual_seed(0)
    return space[name](E, H, **options)


def check(attend, kind="cross"):
    found = examine(attend, embed_dim=E, num_heads=H, kind=kind)
    assert found.ok, str(found)
    return found


def covering(*options):
    """Choose from the product of lists, so that each pair from two of them comes up."""
    cases = {case: {*itertools.combinations(enumerate(case), 2)}
             for case in itertools.product(*options)}  # fmt: skip
    missing = set().union(*cases.values())
    while missing:
        case = max(cases, key=lambda case: len(cases[case] & missing))
        missing -= cases[case]
        yield case


LAYOUTS = ["batch first", "sequence first"]
GIVEN = ["as needed", "always"]


@pytest.mark.parametrize(
    "form", [*covering(SHAPES, MEANINGS, FILLS, LAYOUTS, GIVEN)], ids=", ".join
)
def test_every_form_of_mask_through_its_adapters(form):
    shape, meaning, fill, layout, given = form
    attend = made(shape, meaning, fill, batch_first=layout == "batch first")
    attend = attend if layout == "batch first" else adapters.sequence_first(attend)
    attend = SHAPES[shape][2](MEANINGS[meaning][2](attend))
    found = check(adapters.always_masked(attend) if given == "always" else attend)
    assert found.version == "right"
    assert found.results["blocked"] == "fine"
    assert found.codes == ("nan-row" if fill == "infinite" else "finite-fill",)


@pytest.mark.parametrize("fill", FILLS)
def test_what_hides_the_future_without_a_mask(fill):
    check(made("bnm", "blocked", fill, "Self", causal=True), "causal")
    module = made("bnm", "blocked", fill, "Self")
    check(adapters.keywords(module, "x", is_causal=True), "causal")


@pytest.mark.parametrize("form", [*covering(SHAPES, MEANINGS, FILLS)], ids=", ".join)
def test_every_form_that_is_not_padding_hides_the_future(form):
    shape, meaning, _ = form
    adapted = SHAPES[shape][2](MEANINGS[meaning][2](made(*form, "Self")))
    if masks_of(adapted) != "padding":
        check(adapters.causal(adapted, 1), "causal")


COMMANDS = {
    "cross": ["Attention"],
    "self": ["Self", "--kind", "self"],
    "sequence first": ["Attention", "--sequence-first"],
    "causal by default": ["Self", "--kind", "causal", "--init", "causal=True"],
    "causal by argument": ["Self", "--kind", "causal", "--init", "causal=False"],
    "causal, sequence first": ["Self", "--kind", "causal", "--sequence-first"],
}


SAID = ["the shape is said", "the shape is found"]


@pytest.mark.parametrize(
    "form", [*covering(SHAPES, MEANINGS, FILLS, COMMANDS, SAID)], ids=", ".join
)
def test_every_mask_shape_on_the_command_line(form, tmp_path, capsys):
    shape, meaning, fill, command, said = form
    (tmp_path / "mine.py").write_text(source(shape, meaning, fill))
    name, *options = COMMANDS[command]
    sizes = ["--embed-dim", str(E), "--num-heads", str(H)]
    mask = ["--mask", meaning.removeprefix("1 is ")]
    mask += ["--mask-shape", shape] if said == SAID[0] else []
    target = f"{tmp_path / 'mine.py'}:{name}"
    assert main([target, *sizes, *mask, *options]) == 0, capsys.readouterr().out


# What is done with a mask of any axes and kind, its name, and what is found out about it.
GUESSED = {
    "blocked": ("scores.masked_fill(mask, fill)", "mask", "(b, 1, n, m), True = blocked"),
    "allowed": ("scores.masked_fill(~mask, fill)", "mask", "(b, 1, n, m), True = allowed"),
    "0 is blocked": ("scores.masked_fill(mask == 0, fill)", "mask", "(b, 1, n, m), True = allowed"),
    "added": ("scores + mask", "mask", "(b, 1, n, m), added to the scores"),
    "added, by its name": ("scores + mask", "attention_mask", "(b, 1, n, m), added to the scores"),
    "truths that are numbers, too": (
        "scores.masked_fill(mask.bool(), fill)", "attention_mask", "(b, 1, n, m), True = blocked"
    ),
    "not what its name says first": (
        "scores.masked_fill(mask == 0, fill)", "attention_mask", "(b, 1, n, m), True = allowed"
    ),
    "for each sample": (
        "scores.masked_fill(mask[:, None], fill)", "mask", "(b, n, m), True = blocked"
    ),
    "for each query": (
        "scores.masked_fill(mask.view(scores.shape[-2:]), fill)", "mask", "(n, m), True = blocked"
    ),
    "padding": (
        "scores.masked_fill(mask.view(len(mask), 1, 1, -1), fill)", "mask", "(b, m), True = blocked"
    ),
    "ignored": ("scores", "mask", "(b, n, m), True = blocked"),
    "ignored, added by its name": ("scores", "attention_mask", "(b, 1, n, m), added to the scores"),
}  # fmt: skip


@pytest.mark.parametrize(("guess", "kind"), [*zip(GUESSED, itertools.cycle(["cross", "self"]))])
def test_the_form_of_a_mask_is_found_by_what_it_hides(guess, kind, tmp_path, capsys):
    """Of the forms that are answered, the one that asks the most counts, and that hides."""
    masked, name, said = GUESSED[guess]
    text = source("b1nm", "blocked", "finite").replace("scores.masked_fill(mask, fill)", masked)
    text = text.replace("assert mask.dim() == 4 and mask.dtype == torch.bool", f"mask = {name}")
    text = text.replace("mask=None", f"{name}=None").replace("if mask is", f"if {name} is")
    text = text.replace("x, x, x, mask,", f"x, x, x, {name},")
    (tmp_path / "mine.py").write_text(text)
    target = f"{tmp_path / 'mine.py'}:{'Self' if kind == 'self' else 'Attention'}"
    code = main([target, "--kind", kind, "--embed-dim", str(E), "--num-heads", str(H)])
    assert code == (masked == "scores")
    output = " ".join(capsys.readouterr().out.split())
    assert f"`{name}` is {said}" in output


@pytest.mark.parametrize("masked", ["hides itself", "is told to", "is given a mask"])
@pytest.mark.parametrize("shape", ["bnm", "nm", "bm"])
def test_a_mask_argument_beside_a_causal_attention(shape, masked, tmp_path, capsys):
    """Its mask is not taken for what hides the future where something else does."""
    text = source(shape, "blocked", "infinite")
    if masked == "hides itself":
        text = text.replace("self.causal or is_causal", "True").replace(", is_causal=False", "")
        text = text.replace(", is_causal)", ")")
    if masked == "is given a mask":
        text = text.replace("is_causal", "unheard_of")
    (tmp_path / "mine.py").write_text(text)
    target = f"{tmp_path / 'mine.py'}:Self"
    options = ["--kind", "causal", "--embed-dim", str(E), "--num-heads", str(H)]
    options += ["--init", "causal=False"]
    cannot = masked == "is given a mask" and shape == "bm"
    assert main([target, *options]) == cannot
    assert ("tokens see some of their future" in capsys.readouterr().out) == cannot


def pytorchs(**options):
    torch.manual_seed(0)
    return nn.MultiheadAttention(E, H, batch_first=True, **options)


def masked_by(argument):
    """Call PyTorch's class with one of its masks."""
    module = pytorchs()

    def call(query, key, value, mask):
        return module(query, key, value, **{argument: mask})

    return adapters.Adapted(call, module)


PYTORCHS = {
    "as it is": lambda: adapters.torch_like(pytorchs()),
    "sequence first": lambda: adapters.torch_like(nn.MultiheadAttention(E, H)),
    "told its layout": lambda: adapters.torch_like(pytorchs(), batch_first=True),
    "without weights": lambda: adapters.torch_like(pytorchs(), need_weights=False),
    "with biases": lambda: adapters.torch_like(pytorchs(add_bias_kv=True)),
    "padding": lambda: adapters.for_all_queries(masked_by("key_padding_mask")),
    "padding, always": lambda: adapters.always_masked(
        adapters.for_all_queries(masked_by("key_padding_mask"))
    ),
    "padding, added": lambda: adapters.for_all_queries(
        adapters.additive(masked_by("key_padding_mask"))
    ),
    "a mask for all samples": lambda: adapters.for_all_samples(masked_by("attn_mask")),
    "a mask, added": lambda: adapters.folded(adapters.additive(masked_by("attn_mask")), H),
    "a mask": lambda: adapters.folded(masked_by("attn_mask"), H),
    "two turns": lambda: adapters.folded(
        adapters.allowed(adapters.allowed(masked_by("attn_mask"))), H
    ),
    "each head": lambda: adapters.for_each_head(
        adapters.with_mask(
            masked_by("attn_mask"), lambda mask: mask.expand(-1, H, -1, -1).flatten(0, 1)
        )
    ),
    "numbers": lambda: adapters.numbers(
        adapters.with_mask(
            masked_by("attn_mask"), lambda mask: (mask == 1).repeat_interleave(H, 0)
        )
    ),
    "keywords": lambda: adapters.for_all_queries(
        adapters.keywords(pytorchs(), "query", "key", "value", "key_padding_mask")
    ),
    "unmasked": lambda: adapters.without_mask(pytorchs()),
    "turned": lambda: adapters.sequence_first(
        adapters.for_all_queries(
            adapters.keywords(nn.MultiheadAttention(E, H), "query", "key", "value",
                              "key_padding_mask")
        )
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PYTORCHS)
def test_pytorchs_class_through_every_adapter(name):
    found = check(PYTORCHS[name]())
    assert found.version == "right"
    covered = {"sequence_first", "allowed", "additive", "for_each_head", "folded", "numbers"}
    covered |= {"for_all_samples", "for_all_queries", "with_mask", "always_masked", "torch_like"}
    covered |= {"without_mask", "keywords", "causal"}
    assert covered == set(public(adapters))


def public(module):
    """List the adapters."""
    helpers = {"module_of", "masks_of", "name_of", "needs_mask", "block_future"}
    names = {name for name, x in vars(module).items() if inspect.isfunction(x)}
    return {name for name in names - helpers if not name.startswith("_")}


@pytest.mark.parametrize("kind", ["self", "causal"])
def test_pytorchs_class_in_self_attention(kind):
    check(adapters.torch_like(pytorchs(), kind), kind)
    if kind == "causal":
        check(adapters.causal(adapters.folded(masked_by("attn_mask"), H)), kind)


@pytest.mark.parametrize("kind", ["cross", "self", "causal"])
@pytest.mark.parametrize("layout", ["", "--sequence-first", "--batch-first"])
def test_pytorchs_class_on_the_command_line(kind, layout, tmp_path, capsys):
    text = "from torch import nn\nclass Mine(nn.MultiheadAttention): pass\n"
    (tmp_path / "mine.py").write_text(text)
    options = ["--kind", kind, "--embed-dim", str(E), "--num-heads", str(H)]
    options += [layout] if layout else []
    assert main([f"{tmp_path / 'mine.py'}:Mine", *options]) == 0, capsys.readouterr().out
