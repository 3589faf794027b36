# %% [markdown]
# # Multi-head attention
#
# *What is inside a class that can take PyTorch's place?*
#
# Six chapters have built the parts. Here is the whole: the class of the package, every line of it,
# with its notes beside the code. You put it in PyTorch's place in a model, see what its weights cost,
# give it other widths and a place to look when nothing matters, change its score, and run every
# difference from PyTorch's that its documentation lists.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map(
    "project in", "split", "score", "mask", "softmax", "mix", "merge", "project out"
)

# %% [markdown]
# ## The class
#
# Code at the right (on a phone, below), and at the left what it does or why. The notes are the
# docstrings and comments of the real file, the numbers are its lines, and each block has a link to
# itself, which shows when you point at it. Begin with the six blocks of
# [`forward`](#code-MultiheadAttention.forward): check, project, split, merge the masks, append, attend,
# merge the heads, project. Checks and appended keys are new; the rest you have written. Skim what
# stands around it, settings, three layouts and PyTorch's names, and come back when a section below
# uses it.

# %%
from annotated_attention import MultiheadAttention

display.annotated(MultiheadAttention)

# %% [markdown]
# ## The step between the projections
#
# `attend` hands over to one function, which has two ways: PyTorch's fused kernel, which never holds
# the weights, and three steps, which return them: scores, softmax with masks, mix. They are chapter 1
# with the masks of [chapter 6](06_masks.ipynb), in one tensor that is added. See where the fix for
# fully masked rows stands in the softmax: half of it before, half after.

# %%
from annotated_attention import attention

STEPS = (attention.scaled_scores, attention.masked_softmax, attention.mix)
display.annotated(attention.scaled_dot_product_attention, *STEPS)

# %% [markdown]
# ## What flows through it
#
# Run it once and let a subclass write down what passes: n = 3 queries look at m = 5 keys, two samples,
# four heads of width 6. A **hook**, a function that PyTorch calls after a module has run, adds what
# goes through `out_proj`.

# %%
import torch
from torch import Tensor, nn

b, n, m, h, d = 2, 3, 5, 4, 6
e = h * d
SEEN: dict[str, tuple[int, ...]] = {}


def note(**tensors: Tensor) -> None:
    """Write down shapes."""
    SEEN.update({name: tuple(x.shape) for name, x in tensors.items()})


class Noting(MultiheadAttention):
    """Writes down what its two steps are given, and what they return."""

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        note(q=q, k=k, scores=super().score(q, k))
        return super().score(q, k)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **options):
        heads, weights = super().attend(q, k, v, **options)
        note(v=v, blocked=options["blocked"], weights=weights, heads=heads)
        return heads, weights


# %%
torch.manual_seed(7)
query = torch.randn(n, b, e)  # (n, b, e)
key = torch.randn(m, b, e)    # (m, b, e)
padding = torch.zeros(b, m, dtype=torch.bool)
padding[1, 3:] = True

noting = Noting(e, h)
noting.out_proj.register_forward_hook(lambda _, x, made: note(merged=x[0], output=made))
output, returned = noting(query, key, key, padding)
note(query=query, key=key, value=key, returned=returned)
print(len(SEEN), "tensors written down; q is", SEEN["q"])

# %% jupyter={"source_hidden": true}
PLACES = {
    "query": (0, 0), "key": (1, 0), "value": (2, 0), "q": (0, 1), "k": (1, 1), "v": (2, 1),
    "blocked": (0, 2), "scores": (1, 2), "weights": (1, 3), "returned": (1, 4),
    "heads": (2, 4), "merged": (2, 5), "output": (2, 6),
}
ARROWS = [
    ("query", "q", "project, split"), ("key", "k", ""), ("value", "v", ""),
    ("q", "scores", ""), ("k", "scores", "score"), ("scores", "weights", "mask, softmax"),
    ("blocked", "weights", ""),
    ("weights", "heads", ""), ("v", "heads", "mix"), ("weights", "returned", "mean"),
    ("heads", "merged", "merge"), ("merged", "output", "project out"),
]
LETTERS = {2: "b", 3: "n", 5: "m", 4: "h", 6: "d", 24: "h·d", 1: "1"}
display.flow(PLACES, ARROWS, SEEN, LETTERS, name="data-flow")

# %% [markdown]
# Blue has a row for each query, green one for each key. The sizes come from the run, and each has its
# letter because all differ. The padding has become `(b, 1, 1, m)`: one row for all heads and all
# queries, and no copy. Grey boxes have both n and m; what that costs is counted below.
#
# ## In PyTorch's place
#
# The same seed gives the same parameters under the same names. Equal outputs, equal weights, equal
# gradients of inputs and parameters, for four settings:

# %%
from annotated_attention import chapters

one = chapters.load("01_one_head")
SETTINGS = {
    "defaults": {},
    "no bias": {"bias": False},
    "other widths": {"kdim": 10, "vdim": 14},
    "appended keys": {"add_bias_kv": True, "add_zero_attn": True},
}


def made(kind: type[nn.Module], **options) -> nn.Module:
    """Make a module from a fixed seed."""
    torch.manual_seed(3)
    return kind(24, 4, dtype=torch.float64, **options)


def of_width(*shape: int) -> Tensor:
    """Make float64 inputs that need gradients."""
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


# %%
for name, options in SETTINGS.items():
    ours, theirs = (made(x, **options) for x in (MultiheadAttention, nn.MultiheadAttention))
    torch.testing.assert_close(dict(ours.state_dict()), dict(theirs.state_dict()))
    given = [of_width(n, b, e), of_width(m, b, ours.kdim), of_width(m, b, ours.vdim)]
    found, expected = ours(*given), theirs(*given)
    torch.testing.assert_close(found, expected)
    mine = one.gradients(found[0], [*given, *ours.parameters()])
    torch.testing.assert_close(
        mine, one.gradients(expected[0], [*given, *theirs.parameters()])
    )
    print(f"{name:>13}: {len(ours.state_dict())} entries and {len(mine)} gradients, equal")

# %% [markdown]
# So in a model that somebody else has written, one line replaces the module. Here it is PyTorch's
# encoder layer: attention, and some steps after it that [chapter 8](08_transformer_layers.ipynb)
# explains. The `state_dict` of the model, a checkpoint for example, still fits.

# %%
torch.manual_seed(4)
x = of_width(b, n, e)  # (b, n, e)
layer = nn.TransformerEncoderLayer(e, h, 30, dropout=0, batch_first=True).double()
printed = str(layer)
before = layer(x)      # (b, n, e)
expected = one.gradients(before, [x, *layer.parameters()])
checkpoint = layer.state_dict()

layer.self_attn = MultiheadAttention(e, h, batch_first=True, dtype=torch.float64)
layer.load_state_dict(checkpoint)
after = layer(x)       # (b, n, e)
torch.testing.assert_close(after, before)
torch.testing.assert_close(one.gradients(after, [x, *layer.parameters()]), expected)
print(f"{len(checkpoint)} entries loaded; output and {len(expected)} gradients are equal")

# %% [markdown]
# What has changed in the model? Compare how it prints:

# %%
display.diff(printed, str(layer))

# %% [markdown]
# One line: PyTorch's `out_proj` has a class of its own, ours is a plain `Linear`.
#
# > **Pitfall.** A `state_dict` holds parameters, and no settings. Leave out `batch_first=True`, and
# > everything loads, every shape fits, and sentences attend to each other, as in
# > [chapter 5](05_batches.ipynb#what-equal-sizes-hide).

# %%
layer.self_attn = MultiheadAttention(e, h, dtype=torch.float64)
print(layer.load_state_dict(checkpoint), tuple(layer(x).shape))
print(f"and off by up to {(layer(x) - before).abs().max():.2f}")

# %% [markdown]
# ## The weights, and what they cost
#
# Back to the sentence, with the two heads that [chapter 2](02_two_heads.ipynb) made by hand: the
# first asks who is meant, the second what is said of it. Here they are in one module. PyTorch's
# weights are transposed: a column there is a row here.


# %%
def by_hand(**options) -> MultiheadAttention:
    """Make chapter 2's two heads."""
    thing, alive, _, _ = torch.eye(4)                                     # (4,)
    w_q = torch.stack([2 * thing, 2 * alive, torch.zeros(4), 4 * alive])  # (4, 4)
    module = MultiheadAttention(4, 2, bias=False, **options)
    with torch.no_grad():
        module.in_proj_weight.copy_(torch.cat([w_q, torch.eye(4), torch.eye(4)]))
        module.out_proj.weight.copy_(torch.eye(4))
    return module


words = one.EMBEDDINGS  # (8, 4)
it = one.WORDS.index("it")
sentence = (words, words, words)
_, mean = by_hand()(*sentence)                              # (8, 4), (8, 8)
_, each = by_hand()(*sentence, average_attn_weights=False)  # (8, 4), (2, 8, 8)
for name, row in {"head 1": each[0, it], "head 2": each[1, it], "mean": mean[it]}.items():
    first, second = row.topk(2).indices.tolist()
    found = ", ".join(f"{one.WORDS[i]} {row[i]:.2f}" for i in (first, second))
    print(f"{name}: {found}")

# %% [markdown]
# By default you get the mean over the heads, and it hides that there were two
# questions. Ask for each head with `average_attn_weights=False`. The figure begins with the mean;
# where scripts run, choose a head instead, and then another word:

# %% jupyter={"source_hidden": true}
three = torch.cat([each, mean[None]])  # (3, 8, 8)
still = display.attention_lines(mean, one.WORDS, it, name="heads-and-mean")
names = ("head 1", "head 2", "mean")
display.heads_at_work(still, three, one.WORDS, one.WORDS, start=(0, 2, it), heads=names)

# %% [markdown]
# The mean gives *it* some of *cat* and some of *thirsty*. From the mean alone you cannot tell that
# two heads asked, nor which of them found what.
#
# Returning weights is the default, too, and it has a price. Count the bytes that one call
# keeps for its gradient:


# %%
def kept(n: int, need_weights: bool) -> int:
    """Count the bytes that a call on n tokens keeps for its gradient."""
    sizes: dict[int, int] = {}

    def count(x: Tensor) -> Tensor:
        sizes[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    module = MultiheadAttention(64, 8)
    x = torch.randn(n, 1, 64)
    with torch.autograd.graph.saved_tensors_hooks(count, lambda x: x):
        module(x, x, x, need_weights=need_weights)
    return sum(sizes.values())


print("   n   with weights   without")
for length in (64, 128, 256, 512, 1024):
    print(f"{length:4} {kept(length, True):14,} {kept(length, False):9,}")

# %% [markdown]
# Without weights, twice the length keeps about twice the bytes. With them it tends to four times.
# The time, from the package's own measurements:

# %%
from annotated_attention import measure

for row in measure.find("versions", mode="forward + backward"):
    size, times = tuple(row["size"]), row["milliseconds"]
    slower = times["07 final class, weights"][1] / times["07 final class"][1]
    print(f"b, n, e, h = {size}: with weights {slower:.2f}x the time")
origin = measure.load()["provenance"]
print("measured on", origin["cpu"], "with torch", origin["torch"])

# %% [markdown]
# So ask with `need_weights=False` unless you look at them.
#
# ## Dropout
#
# In training, **dropout** sets each weight to zero with probability p, and divides the others by
# 1 − p. The weights that you get back are those that mixed the values, so their rows need not sum
# to one: only on average, over many draws.

# %%
torch.manual_seed(5)
dropping = by_hand(dropout=0.5)
_, dropped = dropping(*sentence, average_attn_weights=False)  # (8, 4), (2, 8, 8)
kept_ones = dropped > 0                                       # (2, 8, 8)
torch.testing.assert_close(dropped[kept_ones], 2 * each[kept_ones])
print("head 1, one draw:  ", [f"{total:.2f}" for total in dropped[0].sum(-1)])

many = words[:, None].expand(-1, 4000, -1)  # (8, 4000, 4)
_, draws = dropping(many, many, many)       # (8, 4000, 4), (4000, 8, 8)
print("mean of 4000 draws:", [f"{total:.2f}" for total in draws.mean(0).sum(-1)])
_, still = dropping.eval()(*sentence)
print("sums in evaluation:", [f"{total:.2f}" for total in still.sum(-1)])

# %% [markdown]
# In one draw the sums scatter, and a row may lose everything; over many draws they meet at one. In
# evaluation nothing is dropped. From one seed, PyTorch's module drops the same weights:

# %%
drawn = []
for kind in (MultiheadAttention, nn.MultiheadAttention):
    module = kind(4, 2, bias=False, dropout=0.5)
    module.load_state_dict(dropping.state_dict())
    torch.manual_seed(5)
    drawn.append(module(*sentence, average_attn_weights=False)[1])
torch.testing.assert_close(*drawn)
print(f"PyTorch's drops the same {(drawn[1] == 0).sum()} weights, and the others are equal")

# %% [markdown]
# > **Why.** Weights without dropout would look better in a figure, and would not be those that made
# > the output. Look at weights after `.eval()`.
#
# ## Other widths
#
# In cross-attention, what is looked at may come from elsewhere and have another width: `kdim` for
# keys, `vdim` for values. The output keeps the width of the queries. Eight words look at five
# patches of a picture:

# %%
torch.manual_seed(6)
looking = MultiheadAttention(4, 2, kdim=7, vdim=3)
where, what = torch.randn(5, 7), torch.randn(5, 3)  # (5, 7), (5, 3)
output, weights = looking(words, where, what)       # (8, 4), (8, 5)
print("output", tuple(output.shape), "weights", tuple(weights.shape))
for name, matrix in looking.state_dict().items():
    print(f"{name:>15} {tuple(matrix.shape)}")

# %% [markdown]
# Widths that differ cannot lie in one matrix, so there are three, and that changes more than names.
# The deviation that Xavier's initialisation draws with depends on the shape, and a matrix of three
# blocks is taller than one of them:

# %%
packed = MultiheadAttention(512, 8).in_proj_weight
apart = MultiheadAttention(512, 8, kdim=500).q_proj_weight
print(f"deviation at e = 512: packed {packed.std():.4f}, apart {apart.std():.4f}")

# %% [markdown]
# ## A place to attend when nothing matters
#
# Weights sum to one, so a query takes something from somebody, whether or not anybody has what it
# wants. `add_zero_attn` appends a key and value of zeros to every sequence, `add_bias_kv` a learned
# pair: somewhere to look when there is nothing to see.
#
# A task that needs it: five tokens, each with a number; in half of the sequences one token is
# marked. Return its number, and zero where none is.


# %%
def draw_task() -> tuple[Tensor, Tensor]:
    """Draw sequences and answers; feature 0 is the mark, feature 1 the number."""
    x = torch.zeros(256, 5, 8)                  # (256, 5, 8)
    x[..., 1] = torch.randn(256, 5)
    marked = torch.arange(256) % 2 == 0
    x[marked, torch.randint(5, (128,)), 0] = 1
    return x, (x[..., 0] * x[..., 1]).sum(1)    # (256, 5, 8), (256,)


def learn(steps: int = 300, **options) -> tuple[float, Tensor]:
    """Train one head; return the loss and the mean weights where none is marked."""
    torch.manual_seed(0)
    module = MultiheadAttention(8, 1, batch_first=True, **options)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.02)
    for _ in range(steps):
        x, answers = draw_task()
        output, weights = module(torch.ones(256, 1, 8), x, x)  # (256, 1, 8), (256, 1, ...)
        loss = (output[:, 0, 0] - answers).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item(), weights[1::2].detach().mean((0, 1))


# %%
for options in ({}, {"add_zero_attn": True}, {"add_bias_kv": True}):
    loss, weights = learn(**options)
    shown = " ".join(f"{weight:.2f}" for weight in weights)
    name = next(iter(options), "nothing appended")
    print(f"{name:>16}: loss {loss:.6f}, unmarked: {shown}")

# %% [markdown]
# Without it, the best that a head can do with an unmarked sequence is to spread its attention, and the
# mean of five meaningless numbers is not zero. With it, the last column, which is the appended key,
# takes nearly all, and the loss all but vanishes.
#
# ## A score of your own
#
# `score` is the line to change for a variant. This one scores by distance: a key is worth more the
# closer it is to the query, $-\lVert q - k \rVert^2 / (2 \sqrt d)$.


# %%
class DistanceAttention(MultiheadAttention):
    """Attends to the keys that are nearest."""

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        squares = (q[..., :, None, :] - k[..., None, :, :]).square().sum(-1)  # (b, h, n, m)
        return -squares / (2 * self.head_dim**0.5)                            # (b, h, n, m)


for kind in (MultiheadAttention, DistanceAttention):
    module = kind(4, 1, bias=False)
    with torch.no_grad():
        module.in_proj_weight.copy_(torch.eye(4).repeat(3, 1))
    _, weights = module(words, words, words)                           # (8, 4), (8, 8)
    best = weights[it].topk(3).indices
    row = "  ".join(f"{one.WORDS[j]} {weights[it, j]:.2f}" for j in best)
    print(f"{kind.__name__:>18}, it looks at: {row}")

# %% [markdown]
# With every projection the identity, *it* scored *cat* highest by the product, since *cat* is a long
# vector. By distance it finds itself. What exactly has changed? Multiply out:
#
# $$-\lVert q - k\rVert^2 / 2 = qk^\top - \lVert q \rVert^2 / 2 - \lVert k \rVert^2 / 2$$
#
# The softmax ignores what is the same for all keys, so $\lVert q \rVert^2$ drops out, and
# $-\lVert k \rVert^2 / 2$ is left: a handicap for long keys. Give it to the ordinary class as a mask
# that is added, a causal one beside it, and the two classes must agree:

# %%
torch.manual_seed(8)
near = DistanceAttention(e, h, batch_first=True, dtype=torch.float64)
plain = MultiheadAttention(e, h, batch_first=True, dtype=torch.float64)
plain.load_state_dict(near.state_dict())

query, key = of_width(b, n, e), of_width(b, m, e)                    # (b, n, e), (b, m, e)
w_k, b_k = near.in_proj_weight.chunk(3)[1], near.in_proj_bias.chunk(3)[1]
k = (key @ w_k.mT + b_k).unflatten(-1, (h, d))                       # (b, m, h, d)
handicap = -k.square().sum(-1).mT / (2 * d**0.5)                     # (b, h, m)
added = handicap[:, :, None].expand(b, h, n, m).flatten(0, 1)        # (b * h, n, m)

# %%
expected, _ = plain(query, key, key, attn_mask=added, is_causal=True)
expected_gradients = one.gradients(expected, [query, key])
for need_weights in (True, False):
    found, _ = near(query, key, key, is_causal=True, need_weights=need_weights)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(one.gradients(found, [query, key]), expected_gradients)
    print(f"need_weights={need_weights}: output and gradients agree")

# %% [markdown]
# Without weights it agrees, too: a class that overrides `score` never takes the fused kernel, which
# would have ignored it.
#
# ## Where it differs from PyTorch's, row by row
#
# The table at the top of the class can be wrong like any other, so run it. One row by hand: tell both
# modules `is_causal=True`, in evaluation and without a mask. Which outputs do theirs equal?

# %%
from annotated_attention import block_future

x = of_width(b, n, e)  # (b, n, e)
KINDS = {"PyTorch's": nn.MultiheadAttention, "ours": MultiheadAttention}
for name, kind in KINDS.items():
    module = made(kind, batch_first=True).eval()
    with torch.no_grad():
        told, _ = module(x, x, x, is_causal=True)
        plain, _ = module(x, x, x)
        causal, _ = module(x, x, x, attn_mask=block_future(n))
    as_plain, as_causal = told.allclose(plain), told.allclose(causal)
    print(f"{name:>9}: as without a mask: {as_plain}, as with a causal one: {as_causal}")

# %% [markdown]
# PyTorch's module looks into the future. The folded cells do the same for every row: PyTorch's module
# computes known outputs from masks that nobody misreads, and what a call gives is named after
# the one that it equals, or after its error.

# %% jupyter={"source_hidden": true}
import inspect
import warnings

torch.manual_seed(9)
QUERY = torch.randn(4, 2, 24, dtype=torch.float64)  # (4, 2, 24)
KEY = torch.randn(3, 2, 24, dtype=torch.float64)    # (3, 2, 24)
BATCH_FIRST = QUERY.transpose(0, 1)                 # (2, 4, 24)

FUTURE, OTHER = block_future(4, 3), torch.arange(12).view(4, 3) == 9  # (4, 3)
PADDING = torch.tensor([[0, -torch.inf, 0], [0, 0, 0]]).double()      # (2, 3)
FLOATS = torch.linspace(-1, 1, 12).view(4, 3).half()                  # (4, 3)


def twice(kind: type[nn.Module], zero: bool = False, **options) -> list[str]:
    """Call with weights, and without."""
    module = made(kind, add_zero_attn=zero)
    return [outcome(module, need_weights=need, **options) for need in (True, False)]


def modes(kind: type[nn.Module], x: Tensor, **options) -> list[str]:
    """Call in training, and in evaluation."""
    module = made(kind, batch_first=True)
    with torch.no_grad():
        return [outcome(module.train(mode), x, x, x, **options) for mode in (True, False)]


# %% jupyter={"source_hidden": true}
def known() -> list[tuple[str, Tensor]]:
    """Compute what a call may turn out to give."""
    theirs, zero = (made(nn.MultiheadAttention, add_zero_attn=x) for x in (False, True))
    first = made(nn.MultiheadAttention, batch_first=True)
    plain = [None, FUTURE, OTHER, OTHER | FUTURE, FLOATS.double()]
    outputs = [theirs(QUERY, KEY, KEY, attn_mask=mask)[0] for mask in plain]
    seen = zero(QUERY, KEY, KEY, attn_mask=FUTURE)[0]                   # (4, 2, 24)
    floats = torch.zeros(4, 3).double().masked_fill(OTHER, -torch.inf)  # (4, 3)
    return [
        *zip(("unmasked", "causal", "the other", "both", "cast"), outputs),
        ("seen by all", seen),
        ("hidden from some", torch.cat([outputs[1][:3], seen[3:]])),
        ("both", theirs(QUERY, KEY, KEY, PADDING, attn_mask=floats)[0]),
        ("unmasked", first(*[BATCH_FIRST] * 3)[0]),
        ("causal", first(*[BATCH_FIRST] * 3, attn_mask=block_future(4))[0]),
        ("zeros", theirs.out_proj.bias.expand(4, 2, 24)),
        ("NaN", torch.full((4, 2, 24), torch.nan).double()),
    ]


# %% jupyter={"source_hidden": true}
KNOWN = known()
print("known:", ", ".join(sorted({name for name, _ in KNOWN})))


def outcome(module: nn.Module, *given: Tensor, **options) -> str:
    """Say what a call gives: an error, or which of the known outputs."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            output, _ = module(*(given or (QUERY, KEY, KEY)), **options)
        except Exception as error:
            return type(error).__name__
    fits = [x for x in KNOWN if not output.is_nested and x[1].shape == output.shape]
    same = (name for name, other in fits if output.allclose(other, equal_nan=True))
    return next(same, "runs") + " + a warning" * bool(warned)


# %% jupyter={"source_hidden": true}
def calls(kind: type[nn.Module]) -> list[str]:
    """Count the calls of out_proj."""
    module, seen = made(kind), []
    module.out_proj.register_forward_hook(lambda *_: seen.append(1))
    module(QUERY, KEY, KEY)
    return [f"{len(seen)} calls"]


def scripted(kind: type[nn.Module]) -> str:
    """Say whether TorchScript takes the module."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return torch.jit.script(made(kind)) and "scripted"
        except Exception as error:
            return type(error).__name__


def nested() -> Tensor:
    """Make a nested tensor: two sequences of different lengths."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([QUERY[:, 0], QUERY[:2, 1]])


# %% [markdown]
# Each row is now a line. `twice` calls with weights and without, `modes` in training and in evaluation.
# `OTHER` blocks a single pair, `FUTURE | True` everything, and `FLOATS` are in half precision.

# %%
HINT = {"is_causal": True}
RUNS = {
    "fully masked rows": lambda x: twice(x, attn_mask=FUTURE | True),
    "is_causal without a mask": lambda x: modes(x, BATCH_FIRST, **HINT),
    "is_causal with another mask": lambda x: twice(x, attn_mask=OTHER, **HINT),
    "... of a wrong shape": lambda x: twice(x, attn_mask=OTHER[:, :2], **HINT),
    "is_causal with appended keys": lambda x: twice(x, zero=True, attn_mask=FUTURE, **HINT),
    "masks of two kinds": lambda x: twice(x, attn_mask=OTHER, key_padding_mask=PADDING),
    "a float mask of another dtype": lambda x: twice(x, attn_mask=FLOATS),
    "out_proj": calls,
    "_qkv_same_embed_dim": lambda x: [str(made(x)._qkv_same_embed_dim)],
    "nested tensors, TorchScript": lambda x: [
        *modes(x, nested(), need_weights=False), scripted(x)
    ],
    "a bad argument": lambda x: [
        outcome(made(x), bad, KEY, KEY) for bad in (QUERY[..., 1:], QUERY.float())
    ],
}

# %% [markdown]
# What the docstring says stands at the left, what happened at the right. A row without a run stops the
# build.

# %%
lines = inspect.getdoc(MultiheadAttention).replace("`", "").split("\n")
cells = [line.strip("|").split("|") for line in lines if line.startswith("|")][2:]
said = {row.strip(): (theirs.strip(), ours.strip()) for row, theirs, ours in cells}
assert RUNS.keys() == said.keys(), "a row without a run"

found = {row: [", ".join(run(x)) for x in KINDS.values()] for row, run in RUNS.items()}
for row, (theirs, ours) in found.items():
    print(row)
    print(f"  PyTorch's: {said[row][0]:35}{theirs}")
    print(f"  ours:      {said[row][1]:35}{ours}")

# %% [markdown]
# Some want a second look. *One of the two is ignored*: with weights PyTorch's module keeps the other
# mask, without them the causal one. *Of a wrong shape*: without weights the mask is not even looked at,
# and whatever it might have blocked is seen. *A float mask of another dtype* gives an error here, where
# the inputs are float64. A last cell, folded, holds what is expected; the build stops if a run finds
# anything else.

# %% jupyter={"source_hidden": true}
theirs, ours = zip(*found.values())
assert theirs == (
    "NaN, zeros", "RuntimeError, unmasked", "the other, causal", "RuntimeError, causal",
    "seen by all, hidden from some", "both + a warning, both + a warning",
    "RuntimeError, RuntimeError", "0 calls", "True", "AssertionError, runs, scripted",
    "AssertionError, RuntimeError",
)
assert ours == (
    "zeros, zeros", "causal, causal", "both, both", "ValueError, ValueError",
    "seen by all, seen by all", "both, both", "cast, cast", "1 calls", "False",
    "TypeError, TypeError, RuntimeError", "ValueError, TypeError",
)
print(len(theirs) + len(ours), "entries, as expected")

# %% [markdown]
# ## Exercises
#
# ### ALiBi
#
# *Medium, 15 minutes.* Attention as such does not know where a word stands. ALiBi tells it by taking
# a little off each score for each step of distance [[Press et
# al.](../docs/references.md#press-2022)]: query i and key j get their scaled score **minus**
# $s \cdot |i - j|$, with a slope $s$ of its own for each head. Of h heads (a power of two), head number
# 1, 2, 3 … has the slopes $2^{-8/h}, 2^{-16/h}, 2^{-24/h}, \ldots$, so that the last has $2^{-8}$.
# Nothing of it is learned. Write it as a class that overrides `score`.


# %% tags=["exercise"]
class AlibiAttention(MultiheadAttention):
    """Attends less to what is further away, each head by a slope of its own."""

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return super().score(q, k)  # change this


# %%
from annotated_attention import exercises

exercises.multihead_attention.check_alibi(AlibiAttention)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The distances are a matrix of shape `(n, m)`: `torch.arange(n)[:, None] - torch.arange(m)`, without
# the sign. n and m are the lengths of q and k, on axis -2.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The scores are `(b, h, n, m)`. Slopes of shape `(h, 1, 1)` meet a head each. For h = 4 they are
# 1/4, 1/16, 1/64, 1/256.
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
class AlibiAttention(MultiheadAttention):
    """Attends less to what is further away, each head by a slope of its own."""

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        h, n, m = self.num_heads, q.size(-2), k.size(-2)
        slopes = 2.0 ** (-8 / h * torch.arange(1, h + 1, dtype=q.dtype))    # (h,)
        i, j = torch.arange(n)[:, None], torch.arange(m)                    # (n, 1), (m,)
        return super().score(q, k) - slopes[:, None, None] * (i - j).abs()  # (b, h, n, m)


exercises.multihead_attention.check_alibi(AlibiAttention)

# %% [markdown]
# ### What a state_dict does not know
#
# *Easy, 10 minutes.* Replace any `nn.MultiheadAttention` by ours: write a function that takes a module of
# PyTorch's and returns one of this package that does the same in every respect. This one copies the
# parameters of a module with default settings.


# %% tags=["exercise"]
def take_over(theirs: nn.MultiheadAttention) -> MultiheadAttention:
    """Make our module from PyTorch's."""
    ours = MultiheadAttention(theirs.embed_dim, theirs.num_heads)  # and what else?
    ours.load_state_dict(theirs.state_dict())
    return ours


# %%
exercises.multihead_attention.check_take_over(take_over)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Look at what `__init__` is given, and for each setting ask: would loading fail if it were wrong?
# Those for which it would not are the dangerous ones.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# PyTorch's module keeps most settings under their own names: `theirs.batch_first`, for example. It has
# no `bias`: look whether `in_proj_bias` is None. For `bias_k` likewise.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Two things are easily missed: the dtype, which the module does not keep (look at a parameter), and
# whether the module is training, `theirs.training`.
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
def take_over(theirs: nn.MultiheadAttention) -> MultiheadAttention:
    """Make our module from PyTorch's."""
    weight = theirs.out_proj.weight
    ours = MultiheadAttention(
        theirs.embed_dim,
        theirs.num_heads,
        dropout=theirs.dropout,
        bias=theirs.in_proj_bias is not None,
        add_bias_kv=theirs.bias_k is not None,
        add_zero_attn=theirs.add_zero_attn,
        kdim=theirs.kdim,
        vdim=theirs.vdim,
        batch_first=theirs.batch_first,
        device=weight.device,
        dtype=weight.dtype,
    )
    ours.load_state_dict(theirs.state_dict())
    return ours.train(theirs.training)


exercises.multihead_attention.check_take_over(take_over)

# %% [markdown]
# ## What you have now
#
# A class that you have read to its last line, that fits into models written for PyTorch's, and that
# you can change in one place: its score, or its whole attention step. Weights cost, so ask for them
# only to look at them; settings are not in a `state_dict`. Attention alone is not yet a model. [The
# next chapter](08_transformer_layers.ipynb) wraps it in layers: norms, shortcuts, and a network for
# each token.
