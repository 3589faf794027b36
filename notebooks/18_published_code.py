# %% [markdown]
# # Published code
#
# *What does the code that people copy really compute?*
#
# *14 minutes and 2 of exercises. Afterwards you can read somebody's published design and see what
# it really computes.*
#
# Here are six pieces of code that people paste, and all six have the same excuse: they run, they return the right
# shape, and no error is raised. Four of them are right at home, and wrong where they are pasted. The fifth has a name
# that misleads, and the sixth contradicts the formula that is printed above it.
#
# You are the detective: read the lines, name the culprit, and then look at the witness. In four cases that is *it*,
# the word that this book has asked from the first page on.

# %% tags=["hide-input"]
import copy
import math

import torch
import torch.nn.functional as F
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle
from torch import Tensor, nn

from annotated_book import chapters, display, published
from annotated_book.published import DESIGNS
from attention_doctor import adapt, examine

one = chapters.load("01_one_head")
torch.manual_seed(0)


def attempt(call) -> None:
    """Call, and print the first line of the error that must come."""
    try:
        call()
    except Exception as error:
        said = str(error).splitlines() or ["(no message)"]
        print(f"{type(error).__name__}: {said[0][:70]}")
    else:
        raise AssertionError("it runs")


# %% tags=["hide-input"]
def strips(right: dict, wrong: dict, words: list[str], *, name: str):
    """Write the sentence once a row, each word in a box as full as its weight is large."""
    wide = min(41 * len(words), 336)  # as a phone has
    drawing, (ax,) = display.panels(wide, 66 * len(right | wrong))
    told = []
    for y, (title, weights) in enumerate((right | wrong).items()):
        hue = display.COLOURS["h" if title in wrong else "n"]
        ax.text(0.06, y, title, va="top", fontsize=12, color=hue, fontweight="bold")
        seen = torch.as_tensor(weights).detach().tolist()
        for x, (word, weight) in enumerate(zip(words, seen)):
            box = {"lw": 1, "edgecolor": "grey"}
            ax.add_patch(Rectangle((x, y + 0.26), 1, 0.36, fill=False, **box))
            fill = {"facecolor": to_rgba(hue, 0.5), "lw": 0}
            ax.add_patch(Rectangle((x, y + 0.62 - 0.36 * weight), 1, 0.36 * weight, **fill))
            written = f"{weight:.2f}" if weight else "·"
            ax.text(x + 0.5, y + 0.45, written, ha="center", va="center", fontsize=12)
            ax.text(x + 0.5, y + 0.66, word, ha="center", va="top", fontsize=11.5)
        looks = ", ".join(f"{w} {s:.2f}" for w, s in zip(words, seen) if s)
        told.append(f"{title}: {looks}.")
    ax.set(xlim=(-0.02, len(words) + 0.02), ylim=(len(right | wrong) - 0.08, -0.04))
    ax.axis("off")
    for text in ax.texts:
        text.set_in_layout(False)
    return display.finish(drawing, name=name, alt=f"Where it looks. {' '.join(told)}")


WORDS, IT = one.WORDS, one.WORDS.index("it")
attention = nn.MultiheadAttention(4, 1, bias=False, batch_first=True)
with torch.no_grad():
    attention.in_proj_weight.zero_()
    attention.in_proj_weight[:2], attention.in_proj_weight[4:6] = one.W_Q.T, one.W_K.T
x = one.embed(WORDS)[None]                                    # (1, 8, 4)
q, k, _ = F.linear(x, attention.in_proj_weight).chunk(3, -1)  # each (1, 8, 4)

# %% [markdown] name="one-mask-three-homes"
# ## PyTorch's `tril`, and three homes
#
# *The scene:* the eight words of [One head](01_one_head.ipynb), *the cat drank milk because it was thirsty*. `x` holds
# their vectors; `q` and `k`, of width d = 4, are the queries and keys of a hand-made head in which *it* attends to *cat*
# and to *thirsty*.
#
# On its page about `F.scaled_dot_product_attention`, PyTorch writes how it makes a causal mask:
# `torch.ones(L, S, dtype=torch.bool, device=query.device).tril(diagonal=0)`
# [[PyTorch](../docs/references.md#pytorch), 2.13<!-- setting -->]. Paste it, call it `seen`, and use it in three homes:
# in a softmax of your own (`a`), in PyTorch's function (`b`), and in PyTorch's class, `nn.MultiheadAttention`, which
# holds the same head (`c`). In which of the three does *it* read *thirsty*, which is still to come?
#
# <details><summary>What do you expect?</summary>
#
# In `c`. In PyTorch's function, True means *allowed*; in PyTorch's class, it means *blocked*. So the class hides the
# past, which *it* may see, and shows the future.
#
# </details>
#
# In `b` the values are an identity matrix, so that the output is the weights. The last line mends the culprit.

# %%
seen = torch.ones(8, 8, dtype=torch.bool).tril()                        # (8, 8)
a = (q @ k.mT / 2).masked_fill(~seen, -math.inf).softmax(-1)            # (1, 8, 8)
b = F.scaled_dot_product_attention(q, k, torch.eye(8), attn_mask=seen)  # (1, 8, 8)
c = attention(x, x, x, attn_mask=seen)[1]                               # (1, 8, 8)
mended = attention(x, x, x, attn_mask=~seen)[1]                         # (1, 8, 8)

# %% tags=["hide-input"]
strips(
    {"it, in a, in b and mended": a[0, IT]},
    {"it, in c": c[0, IT]},
    WORDS,
    name="three-homes",
)

# %% tags=["proof"]
line = "torch.ones(L, S, dtype=torch.bool, device=query.device).tril(diagonal=0)"
assert line in F.scaled_dot_product_attention.__doc__
torch.testing.assert_close(a, b)
torch.testing.assert_close(mended, a)
assert not c[0, :-1].tril().any()
assert c[0, -1].isnan().all()
silent, _ = attention.train()(x, x, x, attn_mask=seen, need_weights=False)
assert not silent[0, -1].any()
with torch.random.fork_rng():
    layer = nn.TransformerEncoderLayer(4, 1, 8, batch_first=True)
    assert not layer(x, seen).isnan().any()
print(
    "✓ In c each word sees later ones alone, and the last none; mended, it gives a and b."
)

# %% [markdown]
# *It* gives 0.95 to *thirsty*, a word that nobody has written yet. The one trace is the last word, which sees nothing
# at all: it gets NaN if the class returns its weights, as it does by default. If it does not, as in PyTorch's own
# layers, a layer in training gets zeros there, and the trace is gone.

# %% [markdown] name="nanogpt"
# ## nanoGPT, and a cache
#
# *The scene:* the same head, d = 4, and *it* has just been written. `last` is its query, alone, and `k6` has the keys of
# the six words up to *it*.
#
# nanoGPT has its causal attention twice: a fast branch for a PyTorch that has the function, and a slow one. One line
# of each, the first broken to fit [[nanoGPT](../docs/references.md#nanogpt), MIT licence]:
#
# ```python
# y = torch.nn.functional.scaled_dot_product_attention(  # fast
#     q, k, v, attn_mask=None, dropout_p=self.dropout if self.training else 0,
#     is_causal=True)
#
# att = att.masked_fill(self.bias[:,:,:T,:T] == 0, float('-inf'))  # slow
# ```
#
# `self.bias` is a `tril` again, and `T` is the number of tokens that come in. On whole texts the branches agree. But nanoGPT
# computes the whole text again for every new token, so the first thing that people add is a cache: the newest token
# comes alone, so `T` is 1, and it meets the keys and values of all tokens so far. The two lines stay as they are. Which
# of them loses the cat: the fast one, the slow one, or both?
#
# <details><summary>What do you expect?</summary>
#
# The fast one. The slow line does cut its staircase down to a single 1. But that 1 is broadcast over all six keys, and
# nothing is hidden, which is right: for the newest token, every key is its past. The flag draws its staircase from the
# top left corner, and the only row that is left there has one key: the oldest.
#
# </details>

# %%
last, k6, bias, T = q[:, IT : IT + 1], k[:, : IT + 1], torch.ones(1024, 1024).tril(), 1
slow = (last @ k6.mT / 2).masked_fill(bias[:T, :T] == 0, -math.inf).softmax(-1)
fast = F.scaled_dot_product_attention(last, k6, torch.eye(6), is_causal=True)
mended = F.scaled_dot_product_attention(last, k6, torch.eye(6), is_causal=T > 1)

# %% tags=["hide-input"]
right = {"it, slow; or fast, and mended": slow[0, 0]}
strips(right, {"it, fast": fast[0, 0]}, WORDS[: IT + 1], name="first-row")

# %% tags=["proof"]
torch.testing.assert_close(slow, mended)
torch.testing.assert_close(mended[0, 0], a[0, IT, : IT + 1])
assert fast.flatten().tolist() == [1, 0, 0, 0, 0, 0]
print("✓ Slow or mended, the newest token sees what it sees in the whole text.")

# %% [markdown]
# *It* sees *the*, and so will every later word: the first word of the text, and nothing else. Each word's own vector
# still passes by on the residual path, so the model goes on writing. The mend is the flag in the last line: one query
# needs no mask, since every key is its past. It holds as long as the prompt comes in one piece; [Masks in the
# wild](16_masks_in_the_wild.ipynb#cell-id=which-corner) has the mask for pieces.

# %% [markdown] name="hugging-face"
# ## A Hugging Face attention, and the tokenizer's mask
#
# *The scene:* a text in a batch, our eight words and eight places of padding. Eight fresh heads, d = 64, make `q` and `k`,
# `(1, 8, 16, 64)`, from random vectors. Nothing is trained, so *it* shares its attention nearly evenly.
#
# In *transformers*, many models have a function `eager_attention_forward`; Llama's is typical
# [[transformers](../docs/references.md#transformers-eager)]. It takes heads that are split already, so it is easily
# copied into a model of one's own. Without its dropout and shared keys, this is what it does:


# %%
def eager(q: Tensor, k: Tensor, v: Tensor, attention_mask: Tensor | None) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.size(-1))  # (b, h, n, m)
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = scores.softmax(-1, dtype=torch.float32).to(q.dtype)
    return (weights @ v).transpose(1, 2)  # (b, n, h, d)


# %% [markdown]
# A tokenizer's output has an `attention_mask`, too: 1 for each word, 0 for padding. With `[:, None, None]` it fits. How
# much does *it* give to the padding: nothing, a quarter, or half?
#
# <details><summary>What do you expect?</summary>
#
# About a quarter. The mask is *added*: a 1 makes a word $\exp(1)$ times as strong, and nothing is hidden. In the
# library, the model first turns the tokenizer's mask into 0 and the dtype's most negative number. That line is in
# another file.
#
# </details>

# %% tags=["hide-input"]
tokens = torch.randn(8, 512)                                  # (8, 512), the words
padded = torch.cat([tokens, torch.randn(512).expand(8, -1)])  # (16, 512)
attention_mask = torch.tensor([1] * 8 + [0] * 8)[None]        # (1, 16)
fresh = [nn.Linear(512, 512) for _ in "qk"]
q, k = (to(padded).unflatten(-1, (8, 64)).transpose(0, 1)[None] for to in fresh)
values = torch.eye(16).expand(1, 8, -1, -1)  # (1, 8, 16, 16)

# %% [markdown]
# First the tokenizer's mask goes in, then what should. The `values` are an identity matrix again.

# %%
added = eager(q, k, values, attention_mask[:, None, None])  # (1, 16, 8, 16)
padding = attention_mask[:, None, None] == 0                # (1, 1, 1, 16)
bias = q.new_zeros(padding.shape).masked_fill(padding, torch.finfo(q.dtype).min)
mended = eager(q, k, values, bias)  # (1, 16, 8, 16)

# %% tags=["hide-input"]
gives = []
for weights in (mended, added):
    mean = weights[0, IT].mean(0)  # (16,), the mean over the heads
    gives.append([*mean[:8].tolist(), mean[8:].sum().item()])
right, wrong = {"it, mended": gives[0]}, {"it, with the tokenizer's mask added": gives[1]}
strips(right, wrong, [*WORDS, "8 pads"], name="quarter")

# %% tags=["proof"]
scores = q @ k.mT / 8  # (1, 8, 16, 16)
odds = [
    w[..., :8].sum(-1) / w[..., 8:].sum(-1)
    for w in (scores.softmax(-1), (scores + attention_mask).softmax(-1))
]
torch.testing.assert_close(odds[1], odds[0] * math.e)
assert 0.2 < gives[1][-1] < 0.33
for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
    q_, k_, v_ = (tensor.to(dtype) for tensor in (q, k, values))
    least = torch.finfo(dtype).min
    given = eager(q_, k_, v_, q_.new_zeros(padding.shape).masked_fill(padding, least))
    assert not given[..., 8:].any()
    alone = eager(q_, k_[:, :, :8], v_[:, :, :8], None)
    torch.testing.assert_close(given, alone)
product = (1 - attention_mask[:, None, None]) * least  # float32, though q_ is float64
assert eager(q_, k_, v_, product).isnan().any()
print(
    "✓ Ones multiply the odds of words by e; mended, padding gets nothing in four dtypes."
)

# %% [markdown]
# *It* gives 0.26 to padding. Convert a mask once, where it comes in, and name it after what
# it does. Let the bias have the dtype of `q`: the shorter `(1 - attention_mask) * torch.finfo(q.dtype).min` is float32,
# and with `q` in float64 it gives NaN.

# %% [markdown] name="the-annotated-transformer"
# ## *The Annotated Transformer*, and four equal matrices
#
# *The scene:* eight random vectors, 512 wide, in place of the words, and eight heads again, d = 64.
#
# The page with the paper between its lines makes its four projections with two
# [[Rush 2018](../docs/references.md#rush-2018)] [[Huang et al.
# 2022](../docs/references.md#huang-2022), MIT licence]:
#
# ```python
# return nn.ModuleList([copy.deepcopy(module) for _ in range(N)])  # in clones(module, N)
#
# self.linears = clones(nn.Linear(d_model, d_model), 4)
# ```
#
# A deep copy has the same numbers, so $W_Q$ and $W_K$ are one matrix when training begins. At which word does *it*
# look then, and with how much of its weight: an eighth, a quarter, or more than half?
#
# <details><summary>What do you expect?</summary>
#
# At *it*, with more than half. A word makes the same vector as query and as key, and of all keys of its length none
# fits a vector better than the vector itself.
#
# </details>


# %%
def looks(x: Tensor, to_query: nn.Module, to_key: nn.Module) -> Tensor:
    q, k = (to(x).unflatten(-1, (8, 64)).transpose(0, 1) for to in (to_query, to_key))
    return (q @ k.mT / 8).softmax(-1).mean(0)[IT]  # (n,), the mean over the heads


linear = nn.Linear(512, 512)
copied = looks(tokens, linear, copy.deepcopy(linear))
apart = looks(tokens, linear, nn.Linear(512, 512))

# %% tags=["hide-input"]
strips(
    {"it, with two calls of nn.Linear": apart},
    {"it, with copies": copied},
    WORDS,
    name="copies",
)

# %% tags=["proof"]
for seed in range(20):
    torch.manual_seed(seed)
    linear, other = (nn.Linear(512, 512) for _ in range(2))
    twin = copy.deepcopy(linear)
    assert looks(tokens, linear, twin)[IT] > 0.5 > 0.25 > looks(tokens, linear, other)[IT]
    nn.init.xavier_uniform_(linear.weight)  # as make_model does, one matrix after the other
    nn.init.xavier_uniform_(twin.weight)
    assert looks(tokens, linear, twin)[IT] < 0.5
linear = nn.Linear(512, 512)
twin = copy.deepcopy(linear)
for n in (64, 256):  # in a longer text less, and yet the most
    longer = looks(torch.randn(n, 512), nn.Linear(512, 512), nn.Linear(512, 512))
    own = looks(torch.randn(n, 512), linear, twin)
    assert own.argmax() == IT
    assert 0.5 > own[IT] > 3 * longer[IT]
looks(tokens, linear, twin)[IT].backward()
assert not linear.weight.grad.allclose(twin.weight.grad)
print("✓ In twenty draws, it keeps more than half if copied, and under a quarter if not.")

# %% [markdown]
# Each word starts out looking at itself: more than half among these eight, less in a longer text, but more than at any
# other. Training can pull the two matrices apart, since their gradients differ. And
# at home there is no case: the page's function `make_model` draws every matrix anew (the biases stay equal). Whoever
# copies the class alone leaves that behind. The mend: `nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))`.

# %% [markdown] name="a-factor-of-zero"
# ## Weighted scores, and a factor of zero
#
# *The scene:* eight queries with eight keys each, and random scores, `(8, 8)`. There are no words this time.
#
# A collection of papers in code lets the caller multiply the scores by factors, in one line before the softmax:
# `scores = scores * attention_weights` [[collection](../docs/references.md#paper-code-collection)]. The name invites you
# to pass a 0 for a key that should be ignored. Give each of the 64 a factor of 0, one at a time. How many get *more*
# weight than before: none, a few, or about half?
#
# <details><summary>What do you expect?</summary>
#
# About half. The factor multiplies the *score*, not the weight, and a score of 0 is more than a negative one. Whoever
# was below zero rises.
#
# </details>

# %%
scores, silenced = torch.randn(8, 8), 1 - torch.eye(8)  # in row j, key j has the factor 0
before = scores.softmax(-1)                                                  # (8, 8)
after = (scores[:, None] * silenced).softmax(-1).diagonal(dim1=-2, dim2=-1)  # (8, 8)

# %% tags=["hide-input"]
drawing, (ax,) = display.panels(400, 230)
rises = after > before
for hue, chosen, label in (("h", rises, "more than before"), ("b", ~rises, "less")):
    for score, low, high in zip(scores[chosen], before[chosen], after[chosen]):
        arrow = {"arrowstyle": "->", "color": display.COLOURS[hue], "lw": 1.3}
        ax.annotate("", (score, high), (score, low), arrowprops=arrow)
    ax.plot([], [], color=display.COLOURS[hue], label=f"{int(chosen.sum())} get {label}")
ax.axvline(0, color="grey", lw=1, ls=":")
ax.set(xlabel="score", ylabel="weight", ylim=(0, before.max() * 1.05))
ax.set_xlim(scores.min() - 0.1, scores.max() + 0.1)
ax.legend(loc="upper left", frameon=False)
display.finish(
    drawing,
    name="factor-of-zero",
    alt="An arrow for each key, from its weight to that with a factor of 0: "
    f"{int(rises.sum())} arrows point upwards, all those with scores below zero, "
    f"and {int((~rises).sum())} point downwards.",
)

# %% tags=["proof"]
assert (after > before).equal(scores < 0)
assert after.min() > 0
print("✓ A key gets more weight exactly if its score was negative, and none gets zero.")

# %% [markdown]
# Each arrow leads from a key's weight to its weight with a factor of 0. Of the 64, 28 rise, and none falls to zero. The
# line does what it says; its name is the trap. What should not be seen belongs into the mask, where True means blocked
# here: not `attention_weights=keep`, but `attention_mask=keep == 0`.

# %% [markdown] name="shared-projection"
# ## Shared projection, and the formula above it
#
# *The scene:* embeddings of width e, h heads of width d = e / h.
#
# The last suspect is wrong at home: its introduction prints the formula of multi-head attention, and the code below
# computes another function [[Persson](../docs/references.md#persson)]. It cuts the embedding into h slices first, and
# projects every slice with the *same* small matrix: there are three, one each for queries, keys and values. Here are its
# scores, in our words.


# %%
def slice_scores(q: Tensor, k: Tensor, mask: Tensor | None, embed_size: int) -> Tensor:
    scores = torch.einsum("bnhd,bmhd->bhnm", q, k)  # (b, h, n, m)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e20)
    return scores / math.sqrt(embed_size)  # (b, h, n, m)


# %% tags=["fold-input"]
class SelfAttention(nn.Module):
    """The design as published: values come first, and 0 in the mask means blocked."""

    def __init__(self, embed_size: int, heads: int) -> None:
        super().__init__()
        self.embed_size, self.heads, d = embed_size, heads, embed_size // heads
        self.values, self.keys, self.queries = (nn.Linear(d, d, bias=False) for _ in "vkq")
        self.fc_out = nn.Linear(embed_size, embed_size)

    def forward(self, values, keys, query, mask=None):
        values, keys, query = (
            x.unflatten(-1, (self.heads, -1)) for x in (values, keys, query)
        )
        q, k, v = self.queries(query), self.keys(keys), self.values(values)
        weights = slice_scores(q, k, mask, self.embed_size).softmax(-1)  # (b, h, n, m)
        return self.fc_out(torch.einsum("bhnm,bmhd->bnhd", weights, v).flatten(2))


# %% [markdown]
# There are two clues. One is a divisor: the formula has $\sqrt{d_k}$, the root of one head's width, and the last line
# has $\sqrt e$. So all scores are too small by a factor of $\sqrt h$.
#
# The other is the sharing. Write the design as one wide `nn.Linear`: a linear map shows its matrix when it is given
# the identity, so cut the identity matrix into three slices, project them, and transpose. How many of the 36 numbers
# can training choose: 36, 12 or 4?
#
# <details><summary>What do you expect?</summary>
#
# Four. One small matrix of 2 × 2 stands three times along the diagonal. Everywhere else is zero, so no
# head sees another head's slice before the output projection.
#
# </details>

# %%
small = nn.Linear(2, 2, bias=False)  # for all three heads
wide = small(torch.eye(6).unflatten(-1, (3, 2))).flatten(1).mT  # (6, 6)
display.show(wide.detach(), range(6), range(6), heat=True)

# %% tags=["proof"]
assert wide.equal(torch.block_diag(*[small.weight] * 3))
x6 = torch.randn(5, 6)  # (5, 6)
slices = small(x6.unflatten(-1, (3, 2))).flatten(1)
torch.testing.assert_close(F.linear(x6, wide), slices)
q4, k4 = torch.randn(2, 1, 5, 4, 6)  # four heads of width 6: e is 24
torch.testing.assert_close(
    slice_scores(q4, k4, None, 24) * 2,  # the root of four heads
    torch.einsum("bnhd,bmhd->bhnm", q4, k4) / math.sqrt(6),
)
print(
    "✓ The wide layer gives what the small one gives; with four heads, scores are halved."
)

# %% [markdown]
# The divisor is a slip, and `math.sqrt(q.size(-1))` mends it. The sharing is a design of its own, which nobody need mend:
# the final class equals it if its matrices are block-diagonal, as above.

# %% [markdown] name="paste-your-class"
# ## Your own class
#
# You need not read a class line by line to find such a slip. Give it to the
# [doctor](17_testing_attention.ipynb#cell-id=the-doctor) (outside this book, [install it](../docs/package/doctor.md)),
# with a line that says how it is called. The last suspect takes values first, and a mask `(b, 1, n, m)` in which True
# means *allowed*. After "in" stands the class's own line; a remedy shows lines as they are usually written, with -1e9
# for any large negative number:

# %%
patient = SelfAttention(24, 4)  # paste your class here
call = adapt(lambda q, k, v, m: patient(v, k, q, m), mask="b1nm allowed", module=patient)
report = examine(call, embed_dim=24, num_heads=4)
for finding in report.findings:
    print(f"{finding.severity}: {finding.code}\n  in {finding.where.text}")
    print(f"  {finding.remedy}\n")

# %% tags=["proof"]
assert report.codes == ("scale-by-model-width", "finite-fill-in-half")
assert not report.ok
print(
    "✓ It names the divisor and the fill, and not the sharing: only a formula forbids that."
)

# %% [markdown]
# It found the divisor, and the fill, since float16 cannot hold -1e20. If you take -∞ instead, fill the weights with 0
# after the softmax, too: a fully masked row would otherwise become NaN. The doctor did not object to the sharing, which
# is another function, but a valid attention. Only you know which function you meant: compare with a class that you
# trust.

# %% [markdown] name="what-they-teach"
# <!-- deeper: Seven older designs, run and mended -->
# ### Going deeper: Seven older designs, run and mended
#
# The last two suspects belong to seven designs that turn up when one looks for an explanation with code.
#
# Each name leads to its lines below, with its defects left in and run, and to how it is mended. [The references](../docs/references.md)
# say which version was read; the post and the article are known only from copies without an address, so
# nobody can say whether they were mended.
#
# | design | where it goes wrong | mended since | what it teaches |
# |---|---|---|---|
# | [Module per head](#cell-id=module-per-head) [[post](../docs/references.md#post-in-two-versions)]: h small attentions in a list | stops at once: `torch.ModuleList` does not exist | not known | a plain list hides its parameters |
# | [Wide projection](#cell-id=wide-projection), the same post: one matrix for all heads | stops at `torch.bmm`; once that is mended, and if b = h, head i gets sample i's mask | not known | give every mask an axis of size 1 for the heads |
# | [Shared projection](#cell-id=shared-projection) [[Persson](../docs/references.md#persson)]: one small matrix for all heads | computes another function than its formula; divides by $\sqrt e$ | the projections, in later copies; not the divisor | compare with a class that you trust |
# | [Sequence first](#cell-id=sequence-first) [[labml](../docs/references.md#annotated-page)]: a method for the scores | stopped at valid masks if n ≠ m; has biases in spite of `bias=False` | February 2021: the mask and the fill; not the biases | try sizes that all differ |
# | [Weighted scores](#cell-id=weighted-scores) [[collection](../docs/references.md#paper-code-collection)]: factors on the scores | a factor of 0 does not block; starts with matrices far too small | not by December 2024 | look at the first weights |
# | [No projection](#cell-id=no-projection), the same collection: slices of the embedding | the same factors and the same start; heads cannot choose their features | not by December 2024 | count the parameters |
# | [Packed projection](#cell-id=packed-projection) [[article](../docs/references.md#article-through-the-source)]: PyTorch's source, step by step | stops if either mask is left out; returns weights `(b * h, n, m)` | not known | read the shape of what comes back |
#
# All seven mishandle the fully masked row. Two of them give it the mean of exactly what should be hidden,
# because their fills are finite: -1e20 (shared projection) and -1e28 (packed projection). Sequence first
# was a third, with -1e9, until it was mended; it now gives NaN, as the other four do. And no finite fill
# of this size fits into float16, so in that dtype those two stop at any mask.
#
# `annotated_book.published` holds [the repaired
# classes](../docs/package/published.md). They keep the layout, the order of arguments and the mask of
# the published ones, and give zeros for a fully masked row.

# %% [markdown] name="module-per-head"
# #### Module per head
#
# The post writes out the paper's formula word for word [[Vaswani et al.
# 2017](../docs/references.md#vaswani-2017), section 3.2.2]: a head is a module with three small
# projections, the heads are a list, and one more projection follows. As printed, the constructor
# stops, because it asks for `torch.ModuleList` instead of `nn.ModuleList`. Each head also gets its
# two widths, e and d, in the wrong order. A plain Python list runs, and is no way out: a module registers a module
# or a parameter, and a list is neither, so the optimizer, the checkpoint and a change of dtype never reach the heads.

# %%
attempt(lambda: torch.ModuleList())


# %%
class Listed(nn.Module):
    def __init__(self, kind: type) -> None:
        super().__init__()
        self.heads = kind(nn.Linear(24, 6) for _ in range(4))


counts = {
    kind.__name__: [len([*Listed(kind).parameters()])] for kind in (list, nn.ModuleList)
}
display.show(counts, columns=["parameters"], corner="heads in a")

# %% tags=["proof"]
assert [*counts.values()] == [[0], [8]]
unseen = Listed(list).double()
assert unseen.heads[0].weight.dtype == torch.float32
assert not unseen.state_dict()
print("✓ Neither the state_dict nor a change of dtype reaches heads in a plain list.")

# %% [markdown]
# **The repair.** An `nn.ModuleList`, the widths in order, and zeros for a fully masked row.

# %% [markdown] name="wide-projection"
# #### Wide projection, and masks of other samples
#
# In its second version, one wide matrix makes the queries of all heads, and two more make keys and
# values: [the reshape trick](04_reshape_trick.ipynb), for self-attention only. The file begins with
# `import torch.nn.Functional`, but the module's name has a lowercase f. It multiplies with
# `torch.bmm`, which takes three axes, and the tensors now have four. And its `forward` uses
# `d_model`, a name that only the constructor knows.
#
# Mend these, and the code runs. But the post still passes masks of shape `(b, n, n)`, one matrix for
# each sample, to a class whose scores are `(b, h, n, n)` now. Broadcasting aligns axes from the
# right, so the samples of the mask meet the *heads* of the scores. Most sizes crash. With two
# samples and two heads, sample 0 should see four keys, and sample 1 two:

# %%
q = torch.randn(2, 2, 5, 6)
attempt(lambda: torch.bmm(q, q.mT))
allowed = torch.ones(2, 5, 5)
allowed[0, :, 4:] = allowed[1, :, 2:] = 0
scores = q @ q.mT / math.sqrt(6)
weights = scores.masked_fill(allowed == 0, -math.inf).softmax(-1)
seen = (weights[:, :, 0] > 0).sum(-1)
assert seen.tolist() == [[4, 2], [4, 2]]
display.show(seen, ["sample 0", "sample 1"], ["head 0", "head 1"], corner="keys seen by")

# %% [markdown]
# Every row sums to 1, but head i of every sample gets the mask of sample i, a leak as in [Masks in
# the wild](16_masks_in_the_wild.ipynb#cell-id=the-shape-to-pass).
#
# **The repair.** The class takes masks of `(b, h, n, n)`, or with axes of size 1, and refuses those
# of `(b, n, n)`: their caller writes `mask[:, None]`.

# %% [markdown] name="sequence-first"
# #### Sequence first, and a check of the wrong axis
#
# The token axis comes first, `(n, b, e)`, and all inputs are passed by keyword. A method of its own
# computes the scores, which a subclass may override, as relative attention does
# [[labml](../docs/references.md#annotated-page)]. The mask is `(n, m, b)`, 1 means allowed, and the
# first axis may have size 1. The listing computes the scores in `forward`.


# %%
class TokensFirst(nn.Module):
    def __init__(self, heads: int, d_model: int, bias: bool = True) -> None:
        super().__init__()
        self.cut = (heads, d_model // heads)
        self.query, self.key = (nn.Linear(d_model, d_model, bias) for _ in range(2))
        self.value, self.output = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def forward(self, *, query, key, value, mask=None):
        pairs = ((self.query, query), (self.key, key), (self.value, value))
        q, k, v = (to(x).unflatten(-1, self.cut) for to, x in pairs)
        scores = torch.einsum("nbhd,mbhd->nmbh", q, k) / math.sqrt(self.cut[1])
        if mask is not None:
            assert mask.shape[0] in (1, mask.shape[1]), f"refused: {tuple(mask.shape)}"
            scores = scores.masked_fill(mask[..., None] == 0, -1e9)
        mixed = torch.einsum("nmbh,mbhd->nbhd", scores.softmax(1), v)
        return self.output(mixed.flatten(2))  # (n, b, e)


# %% [markdown]
# As published, `forward` also hands the weights to a tracker, whose package no longer has the
# function, so every call fails. And the check compares the size of the mask's first axis with the
# size of its *second*, so a mask with a row for each query is refused whenever n ≠ m and n > 1. The
# authors have since repaired this check, and changed the fill. The option `bias=False` does not do
# what it says.

# %%
annotated = TokensFirst(4, 24, bias=False)
three, five = torch.randn(3, 2, 24), torch.randn(5, 2, 24)  # (3, 2, 24), (5, 2, 24)
for sizes in ((5, 5, 2), (1, 5, 2)):
    annotated(query=five, key=five, value=five, mask=torch.ones(sizes))
    print(sizes, "accepted")
attempt(lambda: annotated(query=three, key=five, value=five, mask=torch.ones(3, 5, 2)))
names = [name for name, _ in annotated.named_parameters() if name.endswith("bias")]
print("with bias=False:", ", ".join(names))

# %% [markdown]
# **The repair.** The mask's sizes are compared with the numbers of queries and keys, a fully masked
# row gets zeros, and the option `bias` is gone.

# %% [markdown] name="weighted-scores"
# #### Weighted scores
#
# Queries and keys may have any width $d_k$ in each head, and values any $d_v$. Factors $A_i$ from
# outside multiply the scores of head i before the softmax
# [[collection](../docs/references.md#paper-code-collection)]; ⊙ multiplies element by element:
#
# $$\mathrm{head}_i = \mathrm{softmax}\!\left(A_i \odot \frac{Q W^Q_i (K W^K_i)^\top}{\sqrt{d_k}}\right) V
# W^V_i$$
#
# True means *blocked* here. The [factor of 0](#cell-id=a-factor-of-zero) you have seen; here is a fully masked row,
# for a query of 1 and two keys of -3 and 1.


# %% tags=["fold-input"]
def multiplied(q, k, v, attention_mask, attention_weights) -> Tensor:
    """Attend with factors on the scores, as published.

    Args:
        q: (b, h, n, d), projected.
        k: (b, h, d, m), projected, its last two axes exchanged.
        v: (b, h, m, d_v), projected.
    """
    scores = q @ k / math.sqrt(q.size(-1))  # (b, h, n, m)
    if attention_weights is not None:
        scores = scores * attention_weights
    if attention_mask is not None:
        scores = scores.masked_fill(attention_mask, -math.inf)
    return scores.softmax(-1) @ v  # (b, h, n, d_v)


# %%
query, values = torch.ones(1, 1, 1, 1), torch.eye(2)[None, None]
keys = torch.tensor([-3.0, 1.0])[None, None, None]  # (1, 1, 1, 2)
blocked_row = multiplied(query, keys, values, torch.ones(1, 2, dtype=torch.bool), None)
display.show(blocked_row.flatten()[None], ["fully masked"], ["key 0", "key 1"])

# %% [markdown]
# The start is a second defect. The entries of the matrices are drawn with a standard deviation of
# 0.001<!-- setting -->, whatever the width of the model. Send 49 tokens of variance 1 through the
# projections, once with Xavier's initial parameters and once with these. Look at the queries and
# keys of one head, 64 wide.

# %%
torch.manual_seed(0)
x, rows = torch.randn(49, 512), {}
for name in ("Xavier", "0.001"):
    both = torch.empty(2, 512, 512)
    for matrix in both:
        nn.init.xavier_uniform_(matrix) if name == "Xavier" else matrix.normal_(std=0.001)
    q, k = ((x @ matrix.mT)[:, :64] for matrix in both)  # (49, 64)
    weights = (q @ k.mT / 8).softmax(-1)                 # (49, 49)
    rows[name] = [q.std(), weights.max(), 1 / 49]
columns = ["queries deviate by", "largest weight", "an even share"]
display.show(rows, columns=columns, decimals=3, corner="initialised by")

# %% [markdown]
# With the small matrices, all keys get nearly the same weight, and training first has to undo this.
#
# **The repair.** The docstring now says that a factor of 0 does not block. A fully masked row gets
# zeros, and the initial parameters are Xavier's.

# %% [markdown] name="no-projection"
# #### No projection
#
# The same collection has a version with no projection at all: the embedding itself is cut into heads,
# `queries.unflatten(-1, (h, -1))`, and only the output is projected. Head i always compares slice i
# of the features, and training cannot change that. It has the same factors and the same NaN, and the
# small start shrinks its output:

# %%
module = published.NoProjection(512, 8)
nn.init.normal_(module.output.weight, std=0.001)
deviates, parameters = (
    module(*[x[None]] * 3).std(),
    sum(p.numel() for p in module.parameters()),
)
display.show(
    [[deviates, parameters]], ["no projection"], ["output deviates by", "parameters"]
)

# %% [markdown]
# **The repair** is that of the weighted scores.

# %% [markdown] name="packed-projection"
# #### Packed projection, and its masks
#
# A long article takes PyTorch's own source apart and puts it back together
# [[article](../docs/references.md#article-through-the-source)]. One packed matrix projects queries,
# keys and values, and that works; the trouble is in the masks. Samples and heads are folded into one
# axis of length b · h, as in [Masks in the
# wild](16_masks_in_the_wild.ipynb#cell-id=heads-folded-into-the-batch). Both masks are merged, with
# True for blocked, and -1e28 is added to the scores that they block.


# %%
def added_masks(key_padding_mask: Tensor, attn_mask: Tensor, h: int, dtype) -> Tensor:
    """Merge both masks as published; True means blocked.

    Args:
        key_padding_mask: (b, m), boolean.
        attn_mask: (n, m) or (b * h, n, m), boolean.
    """
    assert key_padding_mask is not None
    padding = key_padding_mask[:, None, None].expand(-1, h, -1, -1).flatten(0, 1)
    blocked = padding | attn_mask
    return torch.zeros(blocked.shape, dtype=dtype).masked_fill(blocked, -1e28)


def folded(q: Tensor, k: Tensor, v: Tensor, added: Tensor) -> tuple[Tensor, Tensor]:
    """Attend as published, in slices (r, n, d) with r = b * h."""
    weights = (q @ k.mT / math.sqrt(q.size(-1)) + added).softmax(-1)  # (r, n, m)
    return weights @ v, weights


# %% [markdown]
# Neither mask may be left out. An `assert` demands the padding mask, and the attention mask is merged
# without a check for None. With `bias=False`, the constructor crashes, since it still sets the output's
# bias to zero. And the weights are documented as `(b, h, n, m)`, but they come out folded. The article's
# shortest version takes its parameters from `torch.empty` and never sets them.

# %%
b, n, h, d = 2, 3, 4, 6
no_padding = torch.zeros(b, n, dtype=torch.bool)    # (b, n)
none_blocked = torch.zeros(n, n, dtype=torch.bool)  # (n, n)
attempt(lambda: added_masks(None, none_blocked, h, torch.float32))
attempt(lambda: added_masks(no_padding, None, h, torch.float32))
q = torch.randn(b * h, n, d)  # (b * h, n, d)
_, weights = folded(q, q, q, added_masks(no_padding, none_blocked, h, q.dtype))
print("the weights:", tuple(weights.shape))

# %% [markdown]
# **The repair.** Either mask may be None, a fully masked row gets zeros, and the weights are
# unfolded. Two helpers appear in most repairs: `read_mask` refuses masks
# that do not fit, and turns them so that True means blocked; `masked_softmax` gives zeros to fully masked rows, and
# takes the additive mask as its argument `bias`. The lines stand in longer
# methods: `scores` are the scaled products, `query` is an input, and `b` the number of samples.

# %% tags=["hide-input"]
display.excerpts(
    published=(added_masks, "assert", "return", folded, "weights ="),
    repaired=(
        published.PackedProjection.additive_mask,
        "return torch",
        published.PackedProjection.forward,
        "masked_softmax",
        "unflatten",
    ),
)

# %% [markdown]
# One test holds for all seven, *parity*, as in [Testing
# attention](17_testing_attention.ipynb#cell-id=parity-the-same-parameters-the-same-result): each repaired
# design, and a final class that gets its parameters (without factors, and with $d_k = d_v = e / h$), must give the
# same outputs and gradients.


# %% tags=["proof"]
def compare(name: str, b=2, n=3, m=5, h=4, d=6) -> None:
    """Compare a repaired design with the final class: outputs and gradients."""
    design = DESIGNS[name]
    module, reference = (x.double() for x in design.pair(h * d, h))  # one set of parameters
    double = {"dtype": torch.float64, "requires_grad": True}
    query, key, value = (torch.randn(b, k, h * d, **double) for k in (n, m, m))
    inputs = [query] * 3 if design.kind == "self" else [query, key, value]
    blocked = torch.rand(b, n, inputs[1].size(1)) < 0.4
    blocked[..., 0], blocked[1, 2] = False, True
    output = design.call(module, *inputs, blocked)  # (b, n, h * d)
    expected, _ = reference(*inputs, attn_mask=blocked.repeat_interleave(h, 0))
    torch.testing.assert_close(output, expected)
    sums = (x.square().sum() for x in (output, expected))
    mine, theirs = (torch.autograd.grad(x, inputs) for x in sums)
    torch.testing.assert_close(mine, theirs)


torch.manual_seed(0)
for name in DESIGNS:
    compare(name)
designs = DESIGNS.values()
assert {x.layout for x in designs} == {"(b, n, e)", "(n, b, e)"}
assert sum(x.true_means == "allowed" for x in designs) == 4
print("✓ All seven, repaired, give what the final class gives: outputs and gradients.")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Exercises
#
# ### The small projection, made wide
#
# *Easy, 2 minutes.* The last suspect's shared projection became one wide matrix: write the
# function that makes it. `block`, `(d, d)`, is the weight of the small `nn.Linear`. Make the weight
# of one wide `nn.Linear`, `(h · d, h · d)`, that does the same to all heads at once.
# `torch.block_diag` takes any number of matrices. Gradients must reach the block.


# %% tags=["exercise"]
def widen(block: Tensor, num_heads: int) -> Tensor:
    """Make one wide weight of a block that all heads share."""
    return None  # your lines here


# %%
from annotated_book import exercises

exercises.published_code.check_widen(widen)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Look at the weight printed in [Shared projection](#cell-id=shared-projection). What is outside the blocks?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Every head has the same block, and a list may hold it several times.
#
# </details>


# %% tags=["solution"]
def widen(block: Tensor, num_heads: int) -> Tensor:
    """Make one wide weight of a block that all heads share.

    Args:
        block: (d, d), as in a linear layer.
        num_heads: how many share it.
    """
    return torch.block_diag(*[block] * num_heads)  # (num_heads * d, num_heads * d)


exercises.published_code.check_widen.folded(widen)

# %% [markdown]
# ## What you have now
#
# Six suspects, and one excuse: no error, the right shape. What convicts is a witness, one word whose
# weights you look at, in the place where the code is going to live.
#
# > **In short.** What to ask of attention that you paste:
# >
# > - **[What does True mean here?](#cell-id=one-mask-three-homes)** An *allowed* mask, given to a class that blocks,
# >   shows the future. Pass `~seen`.
# > - **[How many queries are there?](#cell-id=nanogpt)** Beside a cache, `is_causal=True` leaves one key. Pass
# >   `is_causal=T > 1`.
# > - **[Is the mask filled in or added?](#cell-id=hugging-face)** A tokenizer's 1 and 0, added, hide nothing. Add 0 and
# >   the dtype's most negative number.
# > - **[What did other files do for it?](#cell-id=the-annotated-transformer)** Copied layers start equal. Draw each anew.
# > - **[Does it act on scores or on weights?](#cell-id=a-factor-of-zero)** A factor of 0 on a score is no mask. Pass a
# >   mask.
# > - **[Which width is under the root?](#cell-id=shared-projection)** $\sqrt d$, not $\sqrt e$.
# >
# > Test with sizes that all differ, with a fully masked row, and beside a class that you trust.
#
# One chapter is left for the class: [write it from memory](19_from_memory.ipynb).
