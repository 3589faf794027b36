# %% [markdown]
# # Masks in the wild
#
# *Here is somebody else's mask: what will the function make of it?*
#
# *11 minutes and 12 of exercises. Afterwards you can look at anybody's mask and say what a
# function will make of it.*
#
# Three words and a place of padding: *cat drank milk pad*. Every word may look at the three words, and none at *pad*. Here is
# that wish three times: as a tokenizer writes it, as PyTorch's class `nn.MultiheadAttention` wants it, and as PyTorch's function
# `F.scaled_dot_product_attention` does. Copy the line that you need:

# %% tags=["hide-input"]
import inspect
import itertools
import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import MultiheadAttention, masks
from annotated_attention import scaled_dot_product_attention as attend
from annotated_book import chapters, display, wild_masks
from annotated_book.published import DESIGNS

one = chapters.load("01_one_head")
six = chapters.load("06_masks")
sentence = ["cat", "drank", "milk", "pad"]

# %%
attention_mask = torch.tensor([[1, 1, 1, 0]])   # (b, m), the tokenizer's
blocked = ~attention_mask.bool()                # (b, m), the class's key_padding_mask
allowed = attention_mask.bool()[:, None, None]  # (b, 1, 1, m), the function's attn_mask

# %% tags=["hide-input"]
forms = {
    "attention_mask: 1 = keep": attention_mask,
    "blocked: True = hide": blocked,
    "allowed: True = keep": allowed,
}
told = {name: [*map(str, form.flatten().tolist())] for name, form in forms.items()}
display.show(told, columns=sentence)

# %% [markdown]
# In the class's `attn_mask`, too, True hides, and PyTorch's Transformer layers read their masks as the class does. Now mix the two up: give
# each the other's mask. What does *milk* look at?
#
# <details name="mixed"><summary>Nothing. There is an error.</summary>
#
# There is none: shapes and dtypes fit.
#
# </details>
# <details name="mixed"><summary>Only <em>pad</em>.</summary>
#
# Right.
#
# </details>

# %% tags=["hide-input"]
x = torch.eye(4)[None]  # one-hot words, so that the output is the weights
theirs = wild_masks.see_through(nn.MultiheadAttention(4, 1, batch_first=True))
outputs = {
    "the class, with blocked": theirs(x, x, x, key_padding_mask=blocked)[0],
    "the function, with allowed": F.scaled_dot_product_attention(x, x, x, allowed[:, 0]),
    "the class, with allowed": theirs(x, x, x, key_padding_mask=allowed[:, 0, 0])[0],
    "the function, with blocked": F.scaled_dot_product_attention(x, x, x, blocked[:, None]),
}
seen = {name: display.Fate("", (out[0, 2] > 0).tolist()) for name, out in outputs.items()}
wish = display.Handed("", [], sentence, attention_mask[0].bool().tolist(), {}, {}, asks=2)
caption = "Struck through: not looked at. Filled: wrong."
display.let_in(seen, wish, name="mixed-up", caption=caption)

# %% tags=["proof"]
from tokenizers import Tokenizer, models, pre_tokenizers

tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(sentence)}))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.enable_padding(length=4, pad_token="pad", pad_id=3)
assert tokenizer.encode("cat drank milk").attention_mask == attention_mask[0].tolist()
right, same, mixed_up, wrong = outputs.values()
torch.testing.assert_close(right, same)
assert (right > 0).equal(attention_mask.bool().expand(1, 4, 4))
assert mixed_up.equal(wrong)
assert wrong[..., 3].eq(1).all()
assert masks.as_blocked(attention_mask, true_means="allowed").equal(blocked)
print("✓ Each line hides pad; mixed up, the class and the function see pad alone.")

# %% [markdown]
# Mixed up, *milk* gives all its attention to *pad*. A mask is a list for a doorkeeper. The keeper of the class takes
# it for the list of those who must stay out; to the keeper of the function it is the guest list. Neither asks which one you brought.

# %% [markdown] name="the-doors"
# ## Fourteen masks at five doors
#
# Their keepers differ in more than True. Here fourteen masks are tried at five doors: the class in training, with its
# weights and without them; the class in evaluation, without weights or gradients, where it takes the **fast path** if it can, one
# operation in C++; the encoder layer in evaluation, which has such a path, too; and the function.
#
# Of all the answers that are wrong, how many are errors?
#
# <details name="loud"><summary>Half, or more.</summary>
#
# Fewer: a third.
#
# </details>
# <details name="loud"><summary>Less than half.</summary>
#
# Right: a third.
#
# </details>

# %% tags=["hide-input"]
cases = wild_masks.handed()
display.doors(cases, wild_masks.DOORS, name="doors")

# %% tags=["hide-input"]
verdicts = [each.verdict for case in cases.values() for each in case.fates]
loud = verdicts.count("error")
silent = sum(verdicts.count(wrong) for wrong in ("leaks", "hides", "NaN"))
assert silent == 2 * loud
print(f"{loud} errors; {silent} times wrong without one")

# %% tags=["proof"]
for title, case in wild_masks.CASES.items():
    for door in wild_masks.DOORS if cases[title].mend else ():
        line, text = wild_masks.arguments(door, case, mended=True), case.text
        if "left" in line:  # a word of padding, which had nothing left, now sees itself
            text = text._replace(blocked=text.blocked & ~wild_masks.NAMES["eye"])
        torch.backends.mha.set_fastpath_enabled("the layer" not in cases[title].mend)
        assert wild_masks.fate(door, line, text).verdict in ("right", "")
        torch.backends.mha.set_fastpath_enabled(True)
print("✓ With the line that mends it, each mask is right at every door.")

# %% [markdown]
# Two of three say nothing: they run, and are wrong. All of this ran on one CPU, with PyTorch 2.13<!-- setting -->; of a GPU's kernels,
# [Speed](15_speed.ipynb#cell-id=and-on-a-gpu) read the code. Five things go wrong in the chart. Here is each, with its reason.

# %% [markdown] name="which-way-round-is-true"
# ## Which way round is True?
#
# The first screen answers this for PyTorch. Elsewhere nothing is settled. In the second and the third row stand one model and one mask; only a
# setting differs that seems to be about speed:
#
# | whose mask | True or 1 | besides |
# |---|---|---|
# | a Llama of `transformers` 5, `(b, m)` | keeps | the model hides the future itself |
# | the same, `(b, 1, n, m)`, with `"sdpa"` | keeps | hide the future yourself |
# | the same, with `"eager"` | **hides nothing** | a 1 is *added*: give 0 and −∞ |
# | Keras, `(b, n, m)` | keeps | from [its documentation](https://keras.io/api/layers/attention_layers/multi_head_attention/), not run |
# | seven older designs in [Published code](18_published_code.ipynb) | hides in three | keeps in four |
#
# You need not read a function to find out. Ask it. `true_means` hands over a mask that is True for key 2 alone, puts another
# vector there, then at key 1, and watches whether the last query notices. Dropout moves every output, so call `.eval()` first.


# %%
def moves(call, x: torch.Tensor, key: int) -> bool:
    """Say whether another vector in a key's place moves the last query's output."""
    other = x.clone()
    other[:, key] = torch.randn(x.size(-1))
    return not torch.equal(call(x)[0, -1], call(other)[0, -1])


def true_means(call) -> str:
    """Ask a function of x, (1, 4, 8), and of a mask, (4, 4), which returns x's shape."""
    x, chosen = torch.randn(1, 4, 8), torch.zeros(4, 4, dtype=torch.bool)
    chosen[:, 2] = True
    marked, unmarked = (moves(lambda x: call(x, chosen), x, key) for key in (2, 1))
    assert marked != unmarked, (
        "it notices both keys or neither: is dropout off, by .eval()? Is True added?"
    )
    return "allowed" if marked else "blocked"


# %%
torch.manual_seed(6)
theirs = nn.MultiheadAttention(8, 2, batch_first=True)
by_them = {
    "the class": lambda x, given: theirs(x, x, x, attn_mask=given)[0],
    "the function": lambda x, given: F.scaled_dot_product_attention(x, x, x, given),
}
for name, call in by_them.items():
    print(name, "-> True means", true_means(call))

# %% tags=["proof"]
ours = MultiheadAttention(8, 2, batch_first=True)
encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
decoder = nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
for attend_with in (ours, theirs):
    call = partial(lambda used, x, given: used(x, x, x, attn_mask=given)[0], attend_with)
    assert true_means(call) == "blocked"
    call = partial(lambda used, x, given: used(x, x, x, given[:1])[0], attend_with)
    assert true_means(call) == "blocked"
assert true_means(lambda x, given: attend(x, x, x, blocked=given)[0]) == "blocked"
past = torch.ones(4, 4).bool().tril()  # a function that hides the future itself
assert true_means(lambda x, given: attend(x, x, x, blocked=~past | given)[0]) == "blocked"
assert true_means(encoder) == true_means(lambda x, y: encoder(x, None, y[:1])) == "blocked"
assert true_means(lambda x, given: decoder(x, x[:, :1] * 0, given)) == "blocked"
assert (
    true_means(lambda x, given: F.scaled_dot_product_attention(x, x, x, given)) == "allowed"
)
assert sorted(x.true_means for x in DESIGNS.values()) == ["allowed"] * 4 + ["blocked"] * 3
print(
    "✓ True blocks in PyTorch's class and layers, in both masks; it allows in the function."
)

# %% tags=["proof"]
alone, default = {"torch": torch}, nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
exec(inspect.getsource(moves) + inspect.getsource(true_means), alone)
said = ""
try:
    alone["true_means"](default)  # in training, with dropout
except AssertionError as error:
    said = str(error)
assert ".eval()" in said
assert alone["true_means"](default.eval()) == "blocked"
print("✓ `true_means` needs nothing but torch, and refuses a layer whose dropout is on.")

# %% [markdown]
# So name a mask after what True means, and convert one from outside once, where it comes in. This book's
# `masks.as_blocked(mask, true_means="allowed")` does it.

# %% [markdown] name="the-shape-to-pass"
# ## Whose mask does a head get?
#
# You have a mask for each sample, `(b, n, m)`, and hand it to the function, which wants `(b, 1, n, m)`. Here b = h = 2. Is there an error,
# the right result, or something else?
#
# <details><summary>What do you expect?</summary>
#
# Something else. Broadcasting aligns axes from the right, so the axis of the samples lines up with
# the axis of the heads. In *both* samples, head 0 gets the mask of sample 0, and head 1 gets the
# mask of sample 1. Since b = h, every shape fits.
#
# </details>
#
# The thick arrows carry the mask of the other sample:

# %% tags=["hide-input"]
from matplotlib.patches import Rectangle

drawing, axes = display.panels(560, 170, columns=2)
colours, got = [display.COLOURS["n"], display.COLOURS["m"]], []
aligned = {
    "(b, n, m): no error": torch.arange(2).expand(2, 2),
    "(b, 1, n, m)": torch.arange(2)[:, None].expand(2, 2),
}
for ax, (name, source) in zip(axes, aligned.items()):
    for sample, top in enumerate((0.5, 2.5)):
        look = {"color": colours[sample], "alpha": 0.3, "lw": 0}
        ax.add_patch(Rectangle((0, top), 2.6, 0.8, **look))
        ax.text(1.3, top + 0.42, f"mask of sample {sample}", ha="center", va="center")
        for head in (0, 1):
            row, given = 2 * sample + head, int(source[sample, head])
            ax.add_patch(Rectangle((4.6, row), 3, 0.8, **look))
            ax.text(
                6.1, row + 0.42, f"sample {sample}, head {head}", ha="center", va="center"
            )
            wrong = given != sample
            arrow = {"arrowstyle": "->", "color": "black" if wrong else "#808080"}
            arrow["lw"] = 1.8 if wrong else 1.2
            ax.annotate("", (4.55, row + 0.4), (2.65, 2 * given + 0.9), arrowprops=arrow)
            got.append(f"in {name}, head {head} of sample {sample} gets mask {given}")
    ax.set(xlim=(-0.1, 7.7), ylim=(3.9, -0.1), title=name)
    ax.axis("off")
display.finish(drawing, name="broadcast-trap", alt=f"{'; '.join(got)}.")

# %% [markdown]
# A padding mask, `(b, m)`, passes for `(n, m)` in the same way wherever b = n. So give the function every axis, even where its size is 1:
# `mask[:, None]` or `mask[:, None, None]`. And test with sizes that all differ.


# %% tags=["hide-input"]
def gradients(outputs: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    """Differentiate a random mixture of the outputs, so that they do not cancel."""
    mixture = torch.randn_like(outputs)
    return torch.autograd.grad((outputs * mixture).sum(), inputs)


# %% tags=["proof"]
padding = masks.block_padding(torch.tensor([5, 3]), 5)  # (b, m)
allowed = ~padding[:, None, :].expand(2, 3, 5)          # (b, n, m)
queries = torch.randn(2, 2, 3, 6)
keys = torch.randn(2, 2, 5, 6, requires_grad=True)
for given, leaks in ((allowed, [True, False]), (allowed[:, None], [False, False])):
    output = F.scaled_dot_product_attention(queries, keys, keys, given)
    (reaction,) = gradients(output[1], [keys])
    assert reaction[1, :, 3:].flatten(1).any(1).tolist() == leaks
print("✓ In the function, with (b, n, m), head 0 of sample 1 sees its padding.")

# %% [markdown] name="heads-folded-into-the-batch"
# ### Heads folded into the batch
#
# PyTorch's class takes `(n, m)`, or h copies of each sample's mask, `(b * h, n, m)`, all those of sample 0 first. Make them with
# `per_sample.repeat_interleave(h, 0)`. `per_sample.repeat(h, 1, 1)` has the same shape, and gives half of each sample's heads the mask of
# the other. With a single sample the two agree, so no test of one sample finds it.

# %% tags=["proof"]
reference = nn.MultiheadAttention(24, 4, batch_first=True, dtype=torch.float64)
tokens = torch.randn(2, 5, 24, dtype=torch.float64, requires_grad=True)    # (b, m, e)
expected = reference(tokens, tokens, tokens, key_padding_mask=padding)[0]  # (b, m, e)
per_sample = padding[:, None, :].expand(2, 5, 5)
for per_head, leaks in (
    (per_sample.repeat(4, 1, 1), True),
    (per_sample.repeat_interleave(4, 0), False),
):
    output = reference(tokens, tokens, tokens, attn_mask=per_head)[0]  # (b, m, e)
    (reaction,) = gradients(output[1, :3], [tokens])                   # (b, m, e)
    assert torch.allclose(output, expected) != leaks
    assert bool(reaction[1, 3:].any()) == leaks
one_sample = padding[1:, None, :].expand(1, 5, 5)
assert one_sample.repeat(4, 1, 1).equal(one_sample.repeat_interleave(4, 0))
print("✓ In the class, with repeat, words of sample 1 see its padding.")

# %% tags=["hide-input"]
three, five = torch.randn(2, 3, 24), torch.randn(2, 5, 24)  # (b, n, e), (b, m, e)
q, k = torch.randn(2, 4, 3, 6), torch.randn(2, 4, 5, 6)
module = nn.MultiheadAttention(24, 4, batch_first=True)
takers = {
    "function": lambda given: F.scaled_dot_product_attention(q, k, k, given),
    "attn_mask": lambda given: module(three, five, five, attn_mask=given),
    "padding": lambda given: module(three, five, five, key_padding_mask=given),
}


def fits(call, given: Tensor) -> bool:
    """Say whether a call takes a mask."""
    try:
        call(given)
    except (AssertionError, IndexError, RuntimeError):
        return False
    return True


# %% tags=["proof"]
SHAPES = {
    "(m,)": (5,),
    "(n, m)": (3, 5),
    "(b, m)": (2, 5),
    "(b, n, m)": (2, 3, 5),
    "(b * h, n, m)": (8, 3, 5),
    "(b, 1, 1, m)": (2, 1, 1, 5),
    "(b, 1, n, m)": (2, 1, 3, 5),
    "(b, h, n, m)": (2, 4, 3, 5),
}
given = {shape: torch.zeros(sizes).bool() for shape, sizes in SHAPES.items()}
taken = {name: [x for x in given if fits(call, given[x])] for name, call in takers.items()}
broadcast = ["(n, m)", "(b, 1, 1, m)", "(b, 1, n, m)", "(b, h, n, m)"]
both = ["(n, m)", "(b * h, n, m)"]
assert taken == {"function": broadcast, "attn_mask": both, "padding": ["(b, m)"]}
other = nn.MultiheadAttention(24, 4, dtype=torch.float64)  # the same, but sequence-first
other.load_state_dict(reference.state_dict())
by_place = tokens.transpose(0, 1)                                           # (m, b, e)
swapped = other(by_place, by_place, by_place, key_padding_mask=padding)[0]  # (m, b, e)
torch.testing.assert_close(swapped.transpose(0, 1), expected)
print("✓ Of eight shapes the class takes these two, and (b, m) as padding.")

# %% [markdown] name="booleans-or-floats"
# ## Booleans or floats?
#
# A mask of floats is *added* to the scores: 0 changes nothing, $-\infty$ blocks a key, and a number in between is a price for looking
# there. Three lines come to mind that turn a boolean mask into such a one. Two of them are wrong. Take the four words *the milk was sweet*, padded to eight.
# How much of its attention does *was* give to the padding?

# %%
x = torch.cat([one.embed(six.SHORT), torch.zeros(4, 4)])  # (m, d)
of_was = x[2] @ x.mT / math.sqrt(4)                       # (m,)
hidden = torch.tensor([False] * 4 + [True] * 4)           # (m,)
added = {
    "no mask": torch.zeros(8),
    "hidden.float()": hidden.float(),
    "hidden * -inf": hidden * -math.inf,
    "zeros, then masked_fill": torch.zeros(8).masked_fill(hidden, -math.inf),
}
gets = {name: [(of_was + mask).softmax(-1)[4:].sum()] for name, mask in added.items()}
display.show(gets, columns=["padding gets"])

# %% [markdown]
# `hidden.float()` *adds one* to the scores that it should hide, so padding gets more than without any mask. The product fails at every
# key that is *not* blocked: $0 \cdot -\infty$ is NaN, and one NaN makes its whole row NaN.
#
# One row of the chart is right at four doors, and wrong at the encoder layer: −1 for each step apart, which hides nothing. But on its
# fast path the layer reads every number but 0 as *blocked*, and each word sees itself alone. By the same misreading, `padding.float()` comes out
# right at that door, and there alone: in training the layer looks at the padding, and as soon as you evaluate it, the fault is gone.

# %% tags=["proof"]
penalty = -torch.arange(5.0).expand(3, 5)                       # (3, 5)
expected = (q @ k.mT / math.sqrt(6) + penalty).softmax(-1) @ k  # (2, 4, 3, 6)
torch.testing.assert_close(F.scaled_dot_product_attention(q, k, k, penalty), expected)

single = nn.MultiheadAttention(24, 1, batch_first=True)
_, plain = single(three, five, five)                     # (2, 3, 24), (2, 3, 5)
_, given = single(three, five, five, attn_mask=penalty)  # (2, 3, 24), (2, 3, 5)
shrunk = plain * penalty.exp()                           # (2, 3, 5)
torch.testing.assert_close(given, shrunk / shrunk.sum(-1, keepdim=True))

for training in (True, False):
    encoder.train(training)
    with torch.set_grad_enabled(training):
        call = partial(encoder, src_key_padding_mask=hidden[None].float())
        text = torch.randn(1, 8, 8)
        assert moves(lambda x, call=call: call(x)[:, :1], text, key=7) == training
encoder.train()
print("✓ The class and the function add a penalty; the layer, in training, sees padding.")

# %% [markdown] name="which-dtypes"
# <!-- deeper: Which dtypes -->
#
# ### Going deeper: Which dtypes
#
# Each row is the dtype of a mask, each column a function and the dtype of its query; a dot is an error.


# %% tags=["fold-input"]
def in_class(x: Tensor, **options):
    """Make a call of PyTorch's class."""
    module = nn.MultiheadAttention(24, 4, batch_first=True, dtype=x.dtype)
    return lambda given: module(x, x, x, attn_mask=given, **options)


by_query = {}
for query in (torch.float32, torch.bfloat16):
    halved = k.to(query)
    by_query[f"function, {str(query)[6:]}"] = partial(
        F.scaled_dot_product_attention, halved, halved, halved
    )
    by_query[f"class, {str(query)[6:]}"] = in_class(five.to(query))
rows = {}
for dtype in (torch.bool, torch.int64, torch.float32, torch.bfloat16):
    given = torch.ones(5, 5, dtype=dtype)
    rows[str(dtype)[6:]] = [fits(call, given) for call in by_query.values()]
for dtype, other in ((torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16)):
    without = in_class(five.to(dtype), need_weights=False)
    assert fits(without, torch.ones(5, 5, dtype=other)) == (dtype == torch.bfloat16)
display.show(rows, columns=[*by_query], corner="mask")

# %% [markdown]
# Neither takes integers, so a tokenizer's mask becomes `mask.bool()[:, None, None]` for the function, and
# `~mask.bool()` for the class's `key_padding_mask`. A float32 mask passes beside a bfloat16 query in the function,
# and in the class if it asks for no weights; the other way round, never.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="fills-in-half-precision"
# <!-- deeper: Fills in half precision -->
#
# ### Going deeper: Fills in half precision
#
# Much code blocks keys with a finite number such as -1e9, called the **fill**. In float32 its
# exponential is 0, too, and a fully masked row does not become NaN, because the softmax first
# subtracts the largest score of a row. But large models compute with 16 bits per number. **bfloat16** has
# the range of float32 but fewer digits. **float16** has more digits than bfloat16, but a much smaller range.
#
# Take a query whose three scores are 3, 1 and -2, and all of whose keys are blocked. `masked_fill` puts the
# fill in the place of the scores; other code adds the product `mask * fill` to them. What weights does the
# row get?


# %% tags=["fold-input"]
def fill_with(fill: float, blocked: Tensor, dtype: torch.dtype, added: bool) -> str:
    """Say what weights the scores 3, 1 and -2 get."""
    scores = torch.tensor([3.0, 1.0, -2.0], dtype=dtype)  # (3,)
    hidden = blocked.to(dtype)                            # (3,)
    try:
        filled = scores + hidden * fill if added else scores.masked_fill(blocked, fill)
    except RuntimeError as error:
        return "overflow" if "overflow" in str(error) else "error"
    weights = filled.softmax(-1)  # (3,)
    if weights.isnan().any():
        return "NaN"
    if not weights[blocked].any():
        return "hidden"
    if weights.allclose(scores.softmax(-1)):
        return "as unmasked"
    assert weights.allclose(torch.tensor(1 / 3, dtype=dtype), atol=1e-2)
    return "a third each"


# %% tags=["fold-input"]
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
FILLS = {"-1e4": -1e4, "-1e9": -1e9, "-inf": -math.inf}
every, tables = torch.ones(3, dtype=torch.bool), []
for way, added in (("the fill replaces the scores", False), ("mask * fill is added", True)):
    rows = {
        str(dtype)[6:]: [fill_with(fill, every, dtype, added) for fill in FILLS.values()]
        for dtype in DTYPES
    }
    tables.append(display.show(rows, columns=[*FILLS], title=way))
display.beside(*tables)

# %% tags=["proof"]
last = torch.tensor([False, False, True])  # (3,)
for dtype, (name, fill) in itertools.product(DTYPES, FILLS.items()):
    fit = "overflow" if (dtype, name) == (torch.float16, "-1e9") else "hidden"
    assert fill_with(fill, last, dtype, added=False) == fit
assert torch.tensor(1e9).nextafter(torch.tensor(math.inf)) - 1e9 == 64
print("✓ With one key blocked, each fill that fits its dtype hides the key.")

# %% [markdown]
# A finite fill gives weight to keys that the query must not see, and no number looks suspicious. One that
# replaces the scores makes them equal, so each key gets a third. One that is added shifts all three by the same
# amount: -1e4 in float32 leaves the weights as they are without any mask. (At -1e9, neighbouring float32 numbers lie
# 64 apart, so 3, 1 and -2 are rounded away, and each key gets a third.) -1e9 does not fit into float16: `masked_fill` raises an error, with one
# blocked key as with all, while the product quietly becomes $-\infty$.
#
# This book fills with $-\infty$, which every dtype above has, and handles fully masked rows
# apart: they get zeros.

# %% [markdown]
# The lowest number of a dtype, `torch.finfo(dtype).min`, always fits. But where it is added, the
# sum may not: in float16, a score of -16 is enough. And some code adds two such masks, one for
# padded keys and one for padded queries, and twice the lowest number is $-\infty$ in any dtype.
# Sample 0 here has one place of padding, and sample 1 is all padding:

# %%
low = torch.tensor([-30.0, -25.0, -20.0]).half() + torch.finfo(torch.half).min
print(f"low scores: {low.tolist()} -> {low.softmax(-1).tolist()}")
padded = torch.tensor([[False, False, True], [True, True, True]])  # (2, 3)
lowest = torch.zeros(2, 3).half().masked_fill(padded, torch.finfo(torch.half).min)
added = lowest[:, None, :] + lowest[:, :, None]  # (2, 3, 3)
for sample in (0, 1):
    row = added[sample, 2]  # (3,)
    print(f"sample {sample}, last query: {row.tolist()} -> {row.softmax(-1).tolist()}")

# %% [markdown]
# Low scores and one mask are enough for NaN. In sample 0 the padded query still has finite scores.
# In sample 1 whole rows are $-\infty$, and become NaN, too.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="what-a-fully-masked-row-gets"
# ## A row with nothing left
#
# Pad on the left, hide the future, and the first *pad* has nobody to look at. That is a **fully masked row**, and
# [Masks](06_masks.ipynb#cell-id=fully-masked-rows) named its fates. In PyTorch the door decides:


# %% tags=["hide-input"]
def bad_row(module, need_weights: bool, training: bool) -> tuple[str, str]:
    """Say what becomes of a fully masked row, and of the gradient of output row 0."""
    module.train(training)
    x = torch.randn(2, 5, 24, dtype=torch.float64, requires_grad=training)
    nothing_for_1 = torch.arange(5)[:, None].expand(5, 5) == 1
    with torch.set_grad_enabled(training):
        output, _ = module(x, x, x, attn_mask=nothing_for_1, need_weights=need_weights)
    row = "NaN" if output[0, 1].isnan().any() else "zeros"
    assert row == "NaN" or not output[0, 1].any()  # the output's bias is 0 here
    if not training:
        return row, "not computed"
    (gradient,) = gradients(output[:, 0], [x])
    return row, "NaN" if gradient.isnan().any() else "finite"


def by_hand(q: Tensor, fill: float | None) -> tuple[str, str]:
    """Say the same of the function, or of a softmax after a finite fill."""
    q.requires_grad_()
    hidden = torch.arange(5)[:, None].expand(5, 5) == 1
    if fill is None:
        output = F.scaled_dot_product_attention(q, q, q, ~hidden)
    else:
        output = (q @ q.mT).masked_fill(hidden, fill).softmax(-1) @ q
    row = output[0, 1]
    even = row.allclose(q[0].mean(0))
    (gradient,) = gradients(output[:, 0], [q])
    assert gradient.isfinite().all()
    assert even or not row.any()
    return "all alike" if even else "zeros", "finite"


# %% tags=["hide-input"]
sizes = {"embed_dim": 24, "num_heads": 4, "batch_first": True, "dtype": torch.float64}
pytorchs, own = nn.MultiheadAttention(**sizes), MultiheadAttention(**sizes)
drawn = torch.randn(2, 5, 8, dtype=torch.float64)
fates = {
    "the class, with weights": bad_row(pytorchs, need_weights=True, training=True),
    "the class, without weights": bad_row(pytorchs, need_weights=False, training=True),
    "the class, on the fast path": bad_row(pytorchs, need_weights=False, training=False),
    "the function": by_hand(drawn, None),
    "this book's class": bad_row(own, need_weights=True, training=True),
    "your own softmax, after a fill of -1e9": by_hand(drawn, -1e9),
}
columns = ["the row is", "another row's gradient"]
display.show({x: [*y] for x, y in fates.items()}, columns=columns, corner="what you call")

# %% tags=["proof"]
assert [*fates.values()] == [
    ("NaN", "NaN"),
    ("zeros", "finite"),
    ("NaN", "not computed"),
    ("zeros", "finite"),
    ("zeros", "finite"),
    ("all alike", "finite"),
]
assert bad_row(pytorchs, need_weights=True, training=False) == ("NaN", "not computed")
for weights, training in itertools.product((True, False), (True, False)):
    assert bad_row(own, need_weights=weights, training=training)[0] == "zeros"
torch.backends.mha.set_fastpath_enabled(False)
assert bad_row(pytorchs, need_weights=False, training=False)[0] == "zeros"
torch.backends.mha.set_fastpath_enabled(True)
print("✓ Off the fast path, without weights, the class gives zeros in evaluation, too.")

# %% [markdown]
# Look at the first line: with weights, the NaN spoils the gradient of a row that has nothing to do with it.
#
# **The mend:** let such a query see itself. Put both masks into one, write `blocked & ~torch.eye(n, dtype=torch.bool)`, and hand over no
# padding mask beside it. Where a row is zeros, a class still adds its output projection's bias.

# %% [markdown]
# > **Pitfall.** A row can also become NaN without being fully masked. The weight of a blocked key is
# > 0, but $0 \cdot \mathrm{NaN}$ is NaN. Every number in the padding must be finite.

# %% tags=["proof"]
clean, hides = torch.randn(1, 4, 4), torch.tensor([[[False, False, False, True]]])
broken = clean.clone()
broken[0, 3] = math.nan  # in the padding
leaking, weights = attend(clean, clean, broken, blocked=hides)
assert leaking.isnan().all()
assert not weights[..., 3].any()
assert (
    attend(clean, clean, broken.masked_fill(hides.mT, 0), blocked=hides)[0].isfinite().all()
)
print("✓ In this book's attention, a weight of zero does not keep a NaN out.")

# %% [markdown]
# ## The flag
#
# Two short texts share a row of eight words: in training, rows are **packed** until they are full. Your mask `blocked` keeps the two
# apart and hides the future. You hand it to PyTorch's class, and because it is causal, you say so. There are two ways to write the call:

# %% tags=["hide-input"]
blocked, x = wild_masks.TWO_TEXTS.blocked, wild_masks.ONE_HOT
attention = wild_masks.see_through(nn.MultiheadAttention(16, 2, batch_first=True))

# %%
call = partial(attention, x, x, x, attn_mask=blocked, is_causal=True)
first, _ = call()
second, _ = call(need_weights=False)
print("furthest apart:", round((first - second).abs().max().item(), 2))

# %% [markdown]
# They should be equal. In one of the two, the second text reads the first. In which?
#
# <details><summary>What do you expect?</summary>
#
# In the second, which asks for less. Where nobody asks for weights, PyTorch takes `is_causal=True` for a promise that the mask is the square causal
# one. It computes with that square, and never reads your mask.
#
# </details>

# %% tags=["hide-input"]
line = "attn_mask=blocked, is_causal=True"
calls = {
    "the first call": wild_masks.WEIGHTS,
    "the second call": wild_masks.FUSED,
    "the second, evaluated": wild_masks.FAST,
}
told = {
    call: wild_masks.fate(door, line, wild_masks.TWO_TEXTS) for call, door in calls.items()
}
assert [sum(each.seen) for each in told.values()] == [4, 8, 4]
caption = (
    "What the last word, <em>milk</em>, looks at. Struck through: it does not look there. "
    "Filled: it does, although the mask blocks it."
)
display.let_in(told, cases["two texts, with the flag"], name="two-texts", caption=caption)

# %% [markdown]
# This keeper hears the word *causal*, takes a list from his own drawer, and never opens yours. Evaluated, on the fast path, he reads
# it. So you train one model and run another.
#
# Which mask does the class use?

# %% tags=["hide-input"]
square = wild_masks.NAMES["future"]
known = {
    "yours": blocked,
    "the square": square,
    "no mask": torch.zeros(8, 8).bool(),
}


def used(door: str, line: str, known: dict[str, Tensor]) -> str:
    """Say which of the known masks a door of the class computes with, for two texts."""
    try:
        sees = (
            wild_masks.weights_at(door, 8, eval(f"dict({line})", wild_masks.NAMES)) > 1e-5
        )
    except RuntimeError:
        return "error"
    (mask,) = [x for x, y in known.items() if sees.equal((~y).expand_as(sees))]
    return mask


handed = {
    "the flag alone": "is_causal=True",
    "the square mask, and the flag": "attn_mask=future, is_causal=True",
    "another mask, and the flag": line,
    "… and a padding mask, too": f"{line}, key_padding_mask=padding & False",
}
uses = {
    x: [used(door, line, known) for door in calls.values()] for x, line in handed.items()
}
columns = ["with weights", "without", "fast path"]
display.show(uses, columns=columns, corner="you hand over")

# %% [markdown] name="need-weights-decides"
# So hand over the mask, always, and the flag only beside the square one. There, off the fast path and without a padding mask, it [saves
# time](15_speed.ipynb#cell-id=the-price-of-a-mask).

# %% [markdown] name="which-corner"
# ### Which corner?
#
# The flag's square begins at the **top left**. When a model writes, eight words are known and the newest three ask. They
# should see 6, 7 and 8 keys, so the triangle has to *end* at the bottom right. The flag gives them 1, 2 and 3. Filled cells are blocked:


# %% tags=["hide-input"]
def cells(ax, blocked, height: float):
    """Draw a mask: a filled cell is a key that is blocked."""
    for i, row in enumerate(blocked):
        for j, hidden in enumerate(row):
            look = {"lw": 1, "edgecolor": "#808080", "facecolor": "none"}
            look |= {"facecolor": display.COLOURS["b"]} if hidden else {}
            ax.add_patch(Rectangle((j + 0.03, i + 0.06), 0.92, height, **look))
    ax.set(ylim=(len(blocked), 0))
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


# %% tags=["hide-input"]
CORNERS = {"top left": masks.block_future(3, 8), "bottom right": masks.block_future(8)[-3:]}
drawing, axes = display.panels(620, 180, columns=2)
seen = []
for ax, (name, mask) in zip(axes, CORNERS.items()):
    cells(ax, mask.tolist(), 0.88)
    ax.set(xlim=(0, 8), title=name)
    ax.set_xticks(
        [j + 0.5 for j in range(8)], one.WORDS, rotation=60, color=display.COLOURS["m"]
    )
    ax.set_yticks([0.5, 1.5, 2.5], one.WORDS[-3:], color=display.COLOURS["n"])
    seen.append(f"{name}: {', '.join(map(str, (~mask).sum(1).tolist()))}")
alt = f"How many keys the words it, was and thirsty may see. {'; '.join(seen)}."
display.finish(drawing, name="corners", alt=alt)

# %% [markdown]
# For the newest n of m words, the function wants the allowed keys, `torch.ones(n, m, dtype=torch.bool).tril(m - n)`, or
# `causal_lower_right(n, m)` from `torch.nn.attention.bias`. The class wants the blocked ones:
# `torch.ones(n, m, dtype=torch.bool).triu(m - n + 1)`. Only where n = m is the flag alone right in the function. Beside a mask of
# yours, its kernel on the CPU combines the two, as in the chart. Others [refuse](../docs/messages.md#explicit-attn-mask), so do not rely on it.

# %% tags=["proof"]
square = masks.block_future(8)                                 # (n, m)
window = square | torch.ones(8, 8, dtype=torch.bool).tril(-3)  # (n, m)
changes = {"batch_first": False}, {"num_heads": 3}, {"bias": False}
fast = {"embed_dim": 12, "num_heads": 2, "batch_first": True, "dtype": torch.float64}
for other, training, grad in itertools.product(
    ({}, *changes), (True, False), (True, False)
):
    module = nn.MultiheadAttention(**(fast | other)).train(training)
    sentence = torch.randn(1, 8, 12).double().transpose(0, int(not module.batch_first))
    with torch.set_grad_enabled(grad):
        flagged, follows, drops = (
            module(*[sentence] * 3, None, False, given, is_causal=flag)[0]
            for given, flag in ((window, True), (window, False), (square, False))
        )
        said, kept = "", not (other or training or grad)
        try:
            alone = module(*[sentence] * 3, need_weights=False, is_causal=True)[0]
            torch.testing.assert_close(alone, module(*[sentence] * 3)[0])
        except RuntimeError as error:
            said = str(error)
    assert said.startswith("Need attn_mask") != kept
    torch.testing.assert_close(flagged, follows if kept else drops)
    assert not follows.allclose(drops)
print("✓ Without weights, the class drops a window for the flag; its fast path does not.")

# %% tags=["proof"]
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

words = one.embed(one.WORDS).double()                                  # (m, d)
whole = attend(words, words, words, blocked=masks.block_future(8))[0]  # (m, d)
for n in range(1, 9):
    future = torch.ones(n, 8, dtype=torch.bool).triu(8 - n + 1)
    newest, _ = attend(words[-n:], words, words, blocked=future)
    torch.testing.assert_close(newest, whole[-n:])
    assert (~future).equal(torch.ones(n, 8, dtype=torch.bool).tril(8 - n))
    assert future.equal(masks.block_future(n, 8)) == (n == 8)
    call = partial(F.scaled_dot_product_attention, words[-n:], words, words)
    torch.testing.assert_close(call(causal_lower_right(n, 8)), whole[-n:])
    assert call(is_causal=True).equal(call(causal_upper_left(n, 8)))
    assert call(is_causal=True).allclose(whole[-n:]) == (n == 8)
small = nn.MultiheadAttention(4, 2, batch_first=True, dtype=torch.float64)
asked, keys_of, newest_three = words[None, -3:], words[None], masks.block_future(8)[-3:]
given = {"attn_mask": newest_three, "is_causal": True, "need_weights": False}
none_padded = torch.zeros(1, 8, dtype=torch.bool)
kept = small(asked, keys_of, keys_of, attn_mask=newest_three)[0]
assert not small(asked, keys_of, keys_of, **given)[0].allclose(kept)
torch.testing.assert_close(small(asked, keys_of, keys_of, none_padded, **given)[0], kept)
print("✓ triu and tril are right for n = 1 to 8, the function's flag for n = 8 alone.")

# %% [markdown] name="several-documents-in-one-row"
# ## Several documents in one row
#
# Two texts in one row have one more false friend. Many programs let the [positions](20_positions.ipynb) start at 0 again with
# each document. That keeps nothing apart: a position changes a score, and only a mask takes a key out of the softmax. Published training code had this leak
# [[nanoVLM](../docs/references.md#documents-leak)].
#
# The mask that stops it is called **block-diagonal**. FlashAttention's `flash_attn_varlen_func` takes `cu_seqlens` instead, the places where
# the documents begin. PyTorch's `flex_attention` takes a rule,
# [`documents[q] == documents[k]`](../docs/questions.md#why-does-flex_attention-run-out-of-memory).

# %% tags=["proof"]
from annotated_attention.modern import RotaryEmbedding

anew = torch.cat([torch.arange(5), torch.arange(4)])  # (9,)
documents = torch.tensor([0] * 5 + [1] * 4)           # (9,)
later = masks.block_future(9)                         # (9, 9)
apart = later | (documents[:, None] != documents)     # (9, 9)
row = torch.randn(1, 1, 9, 6, dtype=torch.float64)    # (1, 1, 9, 6)
other = torch.cat([torch.randn(1, 1, 5, 6).double(), row[:, :, 5:]], 2)


def packed(x: Tensor, positions: Tensor, blocked: Tensor) -> Tensor:
    """Attend within a row, with rotary positions."""
    turned = RotaryEmbedding(6)(x, positions)
    return F.scaled_dot_product_attention(turned, turned, x, ~blocked)


for hidden, leaks in (later, True), (apart, False):
    change = packed(other, anew, hidden) - packed(row, anew, hidden)
    assert (change[0, 0, 5:].norm(dim=-1) > 1e-9).tolist() == [leaks] * 4
alone = [
    packed(x, torch.arange(n), masks.block_future(n))
    for x, n in zip(row.split([5, 4], dim=2), (5, 4))
]
torch.testing.assert_close(packed(row, anew, apart), torch.cat(alone, 2))
print("✓ Positions anew leak into every word; with the mask, each text is as alone.")

# %% [markdown]
# ## Exercises
#
# ### Ready for the function
#
# *Medium, 6 minutes.* A model writes two texts at once. Its tokenizer pads on the left, so that the
# newest words are at the end, and returns `attention_mask`, `(b, m)`, integers with 1 for a word.
# The model computes queries for the newest n words. Write the mask that
# `F.scaled_dot_product_attention` needs for queries `(b, h, n, d)` and keys `(b, h, m, d)`: boolean,
# padding hidden, no looking ahead, and the same for every head. A query that is padding itself keeps a
# fully masked row. The causal part stands in *Which corner?*


# %% tags=["exercise"]
def make_ready(attention_mask: Tensor, n: int) -> Tensor:
    """Make the mask for the newest ``n`` words."""
    return attention_mask  # your code here


# %%
from annotated_book import exercises

exercises.masks_in_the_wild.check_make_ready(make_ready)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Four things matter here: which way round is True, which shape, which dtype, which
# corner?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Padding is `(b, 1, 1, m)` and the causal part is `(n, m)`. A key is allowed if it is a word *and*
# not ahead. Which operator is that for booleans?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Query i of the newest n is at place m - n + i. `tril` takes a diagonal, as `triu` does.
#
# </details>


# %% tags=["solution"]
def make_ready(attention_mask: Tensor, n: int) -> Tensor:
    """Make the mask for the newest ``n`` words.

    Args:
        attention_mask: (b, m), integers, 1 for a word.
        n: how many words ask.
    """
    m, device = attention_mask.size(1), attention_mask.device
    past = torch.ones(n, m, dtype=torch.bool, device=device).tril(m - n)  # (n, m)
    return attention_mask.bool()[:, None, None, :] & past                 # (b, 1, n, m)


exercises.masks_in_the_wild.check_make_ready.folded(make_ready)

# %% [markdown] name="stop-the-leak"
# ### Stop the leak
#
# *Medium, 6 minutes.* Several documents stand in one row. Tokens with the same number belong to the
# same document. Write the mask for a causal model, True = blocked, without a function of the
# package.


# %% tags=["exercise"]
def block(documents: Tensor) -> Tensor:
    """Hide what comes later, and what belongs to another document.

    Args:
        documents: (n,), integers, the number of each token's document.

    Returns:
        blocked: (n, n), boolean, a row for each query.
    """
    ...


# %%
exercises.masks_in_the_wild.check_block(block)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Compare a column of numbers, `documents[:, None]`, with a row of them.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A key is hidden if one *or* the other condition holds: the key stands later, or the numbers differ.
#
# </details>


# %% tags=["solution"]
def block(documents: Tensor) -> Tensor:
    """Hide what comes later, and what belongs to another document."""
    places = torch.arange(len(documents))
    return (places > places[:, None]) | (documents != documents[:, None])


exercises.masks_in_the_wild.check_block.folded(block)

# %% [markdown]
# ## What you have now
#
# > **In short.** `mask`, `(b, m)`, comes from a tokenizer and has 1 for a word; `per_sample` is `(b, n, m)`.
# >
# > ```python
# > blocked = ~mask.bool()                # the class: True = hide
# > allowed = mask.bool()[:, None, None]  # the function: True = keep
# > added = torch.zeros(b, 1, 1, m).masked_fill(~allowed, -math.inf)
# > per_head = per_sample.repeat_interleave(h, 0)  # (b * h, n, m)
# > ```
# >
# > For the newest n of m words the diagonal ends at the
# > bottom right. Give the class's flag only with the square. A doorkeeper does not say which list he reads: hide one key, and see what
# > the output reacts to.
#
# Masks are one of several things that go wrong without an error. [The next
# chapter](17_testing_attention.ipynb) tests attention that you cannot see into.
