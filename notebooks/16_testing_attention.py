# %% [markdown]
# # Testing attention
#
# *How do you test attention that you did not write?*
#
# Somebody hands you an attention. Its shapes are right and its loss falls, but that was true of
# many mistakes in this book, too. You can ask in three ways. Some properties hold for **every**
# right attention, and calling it shows them. Some mistakes show only inside, while it runs. A few
# show only beside an implementation that you trust.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map(
    "project in", "split", "score", "mask", "softmax", "mix", "merge", "project out"
)

# %% [markdown]
# ## The patients
#
# The package collects mistakes in `mistakes`: each is the right class with one thing wrong, and has
# a name, its **code**. The right module and these wrong ones are the patients of this chapter.

# %%
import torch
from torch import Tensor, nn

from annotated_attention import MultiheadAttention
from annotated_attention.mistakes import MISTAKES

WIDTH, HEADS = 24, 4


def build(version, **options) -> nn.Module:
    """Make a module, with the same weights whatever its class."""
    torch.manual_seed(15)
    options = {"num_heads": HEADS, "batch_first": True, "dtype": torch.float64, **options}
    return version(WIDTH, **options).eval()


# Those of the final class; the classes of part IV have mistakes of their own.
LISTED = {code: x for code, x in MISTAKES.items() if x.of is MultiheadAttention}
WRONG = {code: mistake.version for code, mistake in LISTED.items()}
VERSIONS = {"right": MultiheadAttention, **WRONG}
PATIENTS = {code: build(version) for code, version in VERSIONS.items()}
print(len(LISTED), "mistakes, such as:")
for code in ("no-scale", "padding-mask-on-queries", "scale-by-length"):
    print(f"{code}\n    {MISTAKES[code].title}.")

# %% [markdown]
# ## What must hold for all
#
# Each question below is a **probe**: a function of a patient that returns how far it is from what
# must hold. Zero is right. A probe only calls the patient, so it works for code that you cannot
# read. All probes use self-attention and compare in float64, where rounding is far below any
# effect.


# %%
def attend(patient: nn.Module, x: Tensor, **masks) -> Tensor:
    """Let every token of ``x`` look at all of them."""
    return patient(x, x, x, **masks)[0]


def tokens(seed: int, n: int = 7, b: int = 2) -> Tensor:
    """Draw a batch of ``b`` sequences."""
    source = torch.Generator().manual_seed(seed)
    return torch.randn(b, n, WIDTH, generator=source, dtype=torch.float64)


def gap(found: Tensor, expected: Tensor) -> float:
    """Give the largest difference."""
    return (found - expected).abs().max().item()


def show(probe, *codes: str) -> None:
    for code in ("right", *codes):
        print(f"{code:>33}  {probe(PATIENTS[code]):.0e}")


# %% [markdown]
# ### Leakage: what does it react to?
#
# A blocked token must have no influence at all. The gradient tells, because a weight of zero passes
# zero on. The probe pads the first sentence and asks what its words react to. The cosine keeps
# opposite gradients from cancelling in the sum.


# %%
def leakage(patient: nn.Module) -> float:
    """Measure how the real tokens react to padding."""
    x = tokens(2).requires_grad_()
    padding = torch.zeros(2, 7, dtype=torch.bool)
    padding[0, 4:] = True
    output = attend(patient, x * 1, key_padding_mask=padding)  # (2, 7, 24)
    (reaction,) = torch.autograd.grad(output[0, :4].cos().sum(), x)
    return reaction[0, 4:].abs().max().item()


show(leakage, "padding-mask-on-queries", "mask-ignored", "mask-after-softmax")

# %% [markdown]
# Only the right one shows 0. `padding-mask-on-queries` empties the rows *of* the padding, which
# looks like success, and the real words go on seeing it. `mask-after-softmax` hides the values of
# the padding, but its keys still take their share of the weights.
#
# ### Prefix: the past does not change
#
# If the future is hidden, the results of the first words must stay when the sentence goes on. This
# finds what leaks from the future, and something that no gradient shows.


# %%
def prefix(patient: nn.Module) -> float:
    """Compare the first four of seven tokens with the four alone."""
    x = tokens(3)
    longer = attend(patient, x, is_causal=True)[:, :4]  # (2, 4, 24)
    return gap(longer, attend(patient, x[:, :4], is_causal=True))


show(prefix, "causal-off-by-one", "scale-by-length", "split-and-merge-without-transpose")

# %% [markdown]
# `scale-by-length` divides by the root of the *length*. No number of the future enters, only how
# many there are, so the gradient sees no leak. The third leaks no number either: its result depends
# on where the sequence ends.
#
# ### Permutation: the order says nothing
#
# Without a mask, and without positions in the embeddings, attention sees a set. Shuffle the tokens,
# and the results must be shuffled in the same way.


# %%
def permutation(patient: nn.Module) -> float:
    """Compare the results of shuffled tokens with the shuffled results."""
    x, order = tokens(4), torch.tensor([3, 0, 5, 1, 6, 4, 2])
    return gap(attend(patient, x[:, order]), attend(patient, x)[:, order])


show(permutation, "causal-unasked", "merge-without-transpose")

# %% [markdown]
# `causal-unasked` hides the future where nobody asked for it, as in an encoder that is built from a
# decoder's parts. One warning: attention with positions *inside*, such as rotary ones, fails this
# probe and is right.
#
# ### Convexity: the weights sum to one
#
# Weights that are positive and sum to one make a result that lies *between* the values: a **convex**
# combination. If all values are equal, the result must be that value, whatever the scores. The probe
# compares seven equal tokens with one.


# %%
def convexity(patient: nn.Module) -> float:
    """Compare seven equal tokens with one."""
    one = tokens(5, n=1)           # (2, 1, 24)
    seven = one.expand(-1, 7, -1)  # (2, 7, 24)
    return gap(attend(patient, seven), attend(patient, one).expand(-1, 7, -1))


show(convexity, "softmax-over-heads", "merge-without-transpose")

# %% [markdown]
# The wrong merge fails here, too: it puts one head's features in another's place.
#
# ### Competition: it must be attention
#
# Three modules that are no attention take the test. One returns its input; one has no queries, so
# that it takes a mean; one is a small network for each token by itself. Which of the four probes
# does each of them fail?
#
# <details><summary>What do you expect?</summary>
#
# None. They leak nothing, keep the past, know no order, and map equal tokens to equal results. So
# far the probes say only what attention must *not* do.
#
# </details>


# %%
class Alone(nn.Sequential):
    """Give each token to the layers by itself."""

    def forward(self, x: Tensor, *others: Tensor, **masks) -> tuple[Tensor, None]:
        return super().forward(x), None


mean = build(MultiheadAttention)
mean.in_proj_weight.data[:WIDTH] = 0  # no queries: all scores are 0
network = Alone(nn.Linear(WIDTH, 50), nn.ReLU(), nn.Linear(50, WIDTH)).double()
impostors = {"identity": Alone(), "mean": mean, "network": network}

# %% [markdown]
# What attention *must* do is let tokens compete: how much one counts depends on the others, because
# their weights sum to 1. The new probe measures what token 1 adds to the result of token 3, changes
# token 0, and measures again. Here zero is wrong.


# %%
def competition(patient: nn.Module) -> float:
    """Say how much one token's influence changes with another token."""

    def influence(x: Tensor) -> Tensor:
        jacobian = torch.autograd.functional.jacobian(lambda x: attend(patient, x)[0, 3], x)
        return jacobian[:, 0, 1]  # (e, e)

    x, other = tokens(8), tokens(9)
    return gap(influence(torch.cat([other[:, :1], x[:, 1:]], 1)), influence(x))


PROBES = (leakage, prefix, permutation, convexity)
for name, patient in {"right": PATIENTS["right"], **impostors}.items():
    passed = sum(probe(patient) < 1e-9 for probe in PROBES)
    strength = competition(patient)
    assert (passed, strength > 1e-9) == (4, name == "right")
    print(f"{name:>10}  passes {passed} of 4, competition {strength:.0e}")
alone = [code for code, patient in PATIENTS.items() if competition(patient) < 1e-9]
print("without competition:", ", ".join(alone))
assert {"right", "heads-attended-over"} & {*alone} == {"heads-attended-over"}

# %% [markdown]
# All three pass the four probes, and none has competition. The last line lists mistakes without it:
# with a softmax over the heads, the heads compete, and the tokens do not.
#
# ### Which finds which
#
# The cell asks the first four of everyone. A probe that raises an error gets an `!`.


# %%
def mark(probe, patient: nn.Module) -> str:
    """Mark what a probe finds."""
    try:
        return "X" if probe(patient) > 1e-9 else "."
    except (RuntimeError, ValueError):
        return "!"


answers = {c: "".join(mark(x, patient) for x in PROBES) for c, patient in PATIENTS.items()}
for i, probe in enumerate(PROBES):
    only = "...."[:i] + "X" + "...."[i + 1 :]
    alone = [code for code, marks in answers.items() if marks == only]
    assert alone
    print(f"only {probe.__name__}: {', '.join(alone)}")
unfound = [code for code, marks in answers.items() if marks == "...." and code != "right"]
assert answers["right"] == "...."
print(f"none of the four: {len(unfound)} of {len(LISTED)} mistakes")

# %% [markdown]
# Each probe finds a mistake that no other finds, so none can be left out. The last line counts the
# mistakes that pass all four.
#
# ### A mistake has a fingerprint
#
# The gradient tells more than *whether* something leaks. Draw which token reacts to which under a
# causal mask: the **leak matrix**.


# %%
def reactions(patient: nn.Module, n: int) -> Tensor:
    """Measure how strongly each output token reacts to each input token."""
    x = tokens(6, n, b=1)
    jacobian = torch.autograd.functional.jacobian(
        lambda x: attend(patient, x, is_causal=True)[0], x
    )
    return jacobian.abs().amax((1, 2, 4))  # (n, n)


fingerprints = {
    code: reactions(PATIENTS[code], 12) > 1e-12
    for code in ("right", "merge-without-transpose", "causal-off-by-one")
}
for code, seen in fingerprints.items():
    print(f"{code:>24}: {seen.triu(1).sum():2} cells of the future")

# %% jupyter={"source_hidden": true}
from matplotlib.patches import Rectangle

drawing, axes = display.panels(780, 290, columns=3)
for ax, (code, seen) in zip(axes, fingerprints.items()):
    for i, j in seen.nonzero().tolist():
        colour = display.COLOURS["h" if j > i else "n"]
        ax.add_patch(Rectangle((j, i), 1, 1, color=colour, alpha=0.55))
        if j > i:
            ax.text(j + 0.5, i + 0.55, "×", ha="center", va="center", fontsize=9)
    ax.set(xlim=(0, 12), ylim=(12, 0), aspect="equal", xticks=[], yticks=[])
    ax.set(xlabel="input token", ylabel="output token")
    ax.set_title(code, fontsize=10)
display.finish(drawing, name="fingerprints", alt="; ".join(
    f"{code}: {seen.triu(1).sum()} of 66 cells of the future react"
    for code, seen in fingerprints.items()
))

# %% [markdown]
# The wrong merge repeats: after every third row it begins again. Its row holds 4 neighbouring
# tokens of *one* head, so three rows fill up with the 12 tokens of the first head, the next three
# with the second. One diagonal too many points to `triu(diagonal=2)`.
#
# ## The doctor
#
# `examine` asks all of that and more. It takes something to call, and the sizes; an adapter says
# how the module is called.

# %%
from annotated_attention.doctor import adapters, examine


def consult(version, kind: str = "self"):
    """Examine a version in self-attention."""
    module = build(version, dtype=torch.float32)
    return examine(
        adapters.torch_like(module, kind), embed_dim=WIDTH, num_heads=HEADS, kind=kind
    )


consult(MultiheadAttention)

# %% [markdown]
# Nothing is wrong. A *convention* is a choice that respectable code makes differently, and the last
# list says what could not be asked.
#
# ## What is seen by looking inside
#
# No property shows a wrong scale: flatter weights are weights, too. So the doctor also watches.
# While your code runs, PyTorch hands it each operation. It finds each softmax, the product of
# queries and keys before it and the product with the values behind it, and the line of each in your
# file.
#
# Here is a causal class with one mistake. It subtracts a bias that grows with the distance, so it
# cannot be compared with any class of this book.


# %%
class Near(nn.Module):
    """A causal self-attention that prefers near tokens."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.h, self.scale = num_heads, embed_dim**-0.5
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)

    def project(self, x: Tensor) -> Tensor:
        return self.qkv(x).unflatten(-1, (3, self.h, -1)).permute(2, 0, 3, 1, 4)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x)                  # each (b, h, n, d)
        place = torch.arange(x.size(1))            # (n,)
        distance = place[:, None] - place          # (n, n)
        scores = q @ k.mT * self.scale - distance  # (b, h, n, n)
        weights = self.weigh(scores.masked_fill(distance < 0, -torch.inf))
        return self.out((weights @ v).transpose(1, 2).flatten(2))

    def weigh(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1)


# %%
SIZES = {"embed_dim": WIDTH, "num_heads": HEADS, "kind": "causal"}
examine(Near(WIDTH, HEADS), **SIZES)

# %% [markdown]
# The scores are scaled by the width of the model instead of a head's. *Where* is the line that does
# it; *inside* is what the doctor saw: the factor, the axis of the softmax, and their lines.
# Mistakes in the mask and in the axis are named in the same way.
#
# Some computations hand nothing over, such as scripted modules. Here the same class makes its
# weights in NumPy.


# %%
class Detour(Near):
    def weigh(self, scores: Tensor) -> Tensor:
        e = scores.detach().exp().numpy()
        return torch.from_numpy(e / e.sum(-1, keepdims=True))


report = examine(Detour(WIDTH, HEADS), **SIZES)
print(report.verdict, *report.codes, sep="\n    ")
print(*(reason for reason in report.not_examined if reason.startswith("inside")))
assert "rows-without-gradient" in report.codes
assert "scale-by-model-width" not in report.codes

# %% [markdown]
# The report says that nothing inside could be seen, and goes on from outside. There it finds what
# the detour breaks, and no longer the scale.
#
# ## What only a reference finds
#
# A **reference** is an implementation that you trust. Put the same weights into both, and compare.
#
# ### Parity: the same weights, the same result
#
# [Multi-head attention](07_multihead_attention.ipynb) did so with PyTorch's own class, outputs and
# gradients. Do it with all that the four probes have left.


# %%
def parity(patient: nn.Module) -> float:
    """Compare with PyTorch's."""
    trusted = build(nn.MultiheadAttention)
    trusted.load_state_dict(patient.state_dict())
    x = tokens(1).requires_grad_()
    ours, theirs = attend(patient, x), attend(trusted, x)  # (2, 7, 24)
    gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in (ours, theirs)]
    return max(gap(ours, theirs), gap(*gradients))


show(parity, "no-scale", "keys-and-values-swapped")

# %%
import textwrap

by_parity = [code for code in unfound if mark(parity, PATIENTS[code]) != "."]
rest = [code for code in unfound if code not in by_parity]
assert by_parity
assert rest
for name, codes in (("parity", by_parity), ("not even parity", rest)):
    print(textwrap.fill(f"{name}: {', '.join(codes)}", 88, break_on_hyphens=False))

# %% [markdown]
# `no-scale` is a valid attention with sharper weights, and `keys-and-values-swapped` one whose two
# matrices have each other's names: no property can object. What not even parity finds shows only
# with other masks, or not in the result of one call, as dropout and half precision.
#
# Given a `reference=`, `examine` does the same: it gives the patient's parameters to both, by their
# names. Three versions of `Near` follow: with the right scale, with a scale of 0.1<!-- setting -->,
# and with keys and values swapped. Which are called wrong without the reference, and which with it?
#
# <details><summary>What do you expect?</summary>
#
# Without it, none. A scale of 0.1 may be meant, so it is a convention, reported with its line; and
# matrices that swap their names learn as well as before. With it, the last two: weights that were
# trained in the reference would give other results in them.
#
# </details>


# %%
def near(version=Near, scale: float = (WIDTH // HEADS) ** -0.5) -> nn.Module:
    """Make one with a scale."""
    torch.manual_seed(16)
    module = version(WIDTH, HEADS).eval()
    module.scale = scale
    return module


class Swapped(Near):
    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        q, k, v = super().project(x)
        return q, v, k


versions = {"right": near(), "0.1": near(scale=0.1), "swapped": near(Swapped)}
for name, module in versions.items():
    before, after = (examine(module, **SIZES, reference=x) for x in (None, near()))
    assert before.ok
    assert after.ok == (name == "right")
    print(f"{name:>8}:  alone {before.codes}  with the reference {after.codes[:1]}")

# %% [markdown]
# Alone, nothing is wrong with any of them, and the scale of 0.1 is a convention. With the
# reference, the outputs of the last two differ. No scale at all would be a convention in `Near`, too,
# since some families of models are trained without one. In the table below it is wrong, because
# the parameters there have the names of PyTorch's class, which scales.
#
# ## Every mistake, every test
#
# Here is the whole table: each mistake, and each test of the doctor that finds something there which
# it does not find in the right version. *Reference* is the right version with the patient's weights.
# The cell lists the mistakes that show there alone.

# %%
CAUSAL = ("causal-off-by-one", "causal-hides-itself")  # they need that question
reports = {
    code: consult(mistake.version, "causal" if code in CAUSAL else "self")
    for code, mistake in LISTED.items()
}
assert all(code in report.codes for code, report in reports.items())
failing = {
    code: [test for test, result in report.results.items() if result == "wrong"]
    for code, report in reports.items()
}
by_weights = [code for code, tests in failing.items() if tests == ["reference"]]
print(f"{len(reports)} mistakes, all found, all named")
print(f"{len(by_weights)} of them by their weights alone:")
print(textwrap.fill(", ".join(by_weights), 88, break_on_hyphens=False))

# %% jupyter={"source_hidden": true}
from annotated_attention.doctor.examination import SYMPTOMS

MARKS = {"wrong": "●", "convention": "○", "fails": "!"}


def draw_results(ax, rows: dict[str, dict[str, str]], columns: list[str]) -> None:
    for i, results in enumerate(rows.values()):
        ax.axhline(i, color="black", alpha=0.12, linewidth=0.5)
        for j, name in enumerate(columns):
            if (mark := MARKS.get(results.get(name, ""))) is not None:
                colour = display.COLOURS["h" if mark == "●" else "b"]
                ax.text(j, i, mark, ha="center", va="center", color=colour)
    ax.set(xlim=(-0.6, len(columns) - 0.4), ylim=(len(rows) - 0.4, -0.6))
    ax.set_yticks(range(len(rows)), list(rows), fontsize=9)
    ax.set_xticks(range(len(columns)), columns, rotation=50, ha="left", fontsize=9)
    ax.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)


# %% jupyter={"source_hidden": true}
usual = consult(MultiheadAttention).results.items()
rows = {code: dict(report.results.items() - usual) for code, report in reports.items()}
found = {name for row in rows.values() for name in row if row[name] in MARKS}
columns = [name for name in (*SYMPTOMS, "reference") if name in found]
drawing, (ax,) = display.panels(800, 780)
draw_results(ax, rows, columns)
display.finish(
    drawing, name="which-test-finds-which-mistake",
    alt="; ".join(
        f"{code}: {', '.join(test for test in columns if row.get(test) in MARKS)}"
        for code, row in rows.items()
    ),
    caption="● wrong, ○ a convention, ! an error; “reference”: with the same weights.",
)

# %% [markdown]
# ### The proof that it is fair
#
# A doctor who calls everybody ill is of no use. PyTorch's own class must pass; so must the designs
# of [Published code](15_published_code.ipynb), which the package's tests examine at random sizes.

# %%
report = consult(nn.MultiheadAttention)
assert report.ok
print(report.verdict, *report.codes, sep="\n    ")

# %% [markdown]
# It has two conventions; `nan-row` says that a fully masked row becomes NaN.
#
# > **Pitfall.** Testing with friendly sizes. With one sample, one head or one token there is nothing
# > to mix up, and with sizes that are equal a wrong axis fits by chance.

# %%
situations = {
    "one token": (3, 4, 1),
    "one head": (3, 1, 6),
    "one sample": (1, 4, 6),
    "no two equal": (3, 4, 6),
}
for name, (b, h, n) in situations.items():
    x = tokens(7, n, b)                     # (b, n, 24)
    right = attend(build(MultiheadAttention, num_heads=h), x)
    outputs = [attend(build(v, num_heads=h), x) for v in WRONG.values()]
    hidden = sum(gap(output, right) < 1e-9 for output in outputs)
    print(f"{name:>14}: {hidden:2} of {len(LISTED)} mistakes give the right output")

# %% [markdown]
# No mask is among these, so that much stays hidden even at the end. Let all sizes differ, and try
# each mask.
#
# ## In your own tests
#
# `assert_attention` examines a module and fails with the report as its message. Here is a whole
# test, and what it says about `Near` as it was first, with its mistake.

# %%
from annotated_attention.doctor import assert_attention, examine_model


def test_attention(module: nn.Module) -> None:
    assert_attention(module, kind="causal", embed_dim=24, num_heads=4)


test_attention(near())
try:
    test_attention(Near(24, 4))
except AssertionError as error:
    said = str(error)
print("\n".join(said.splitlines()[:4]))
assert "scale-by-model-width" in said

# %% [markdown]
# The right one passes in silence, and the other fails with the line to mend. `examine_model` runs a
# whole model once, and examines each attention in it with the arguments that the model gives it.

# %%
model = nn.Sequential(near(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), Near(WIDTH, HEADS))
reports = examine_model(model, tokens(10, 5).float())
for path, report in reports.items():
    print(f"model[{path}]  {report.verdict}")
assert [report.ok for report in reports.values()] == [True, False]

# %% [markdown]
# The path says which attention is wrong. In a shell, `attention-doctor file.py:Name --kind causal
# --embed-dim 24 --num-heads 4` examines a class in a file. [In your
# CI](../docs/package/doctor-in-ci.md) has the lines for a workflow, and
# [Symptoms](../docs/symptoms.md) leads from what you see, such as NaN, to likely causes.

# %% [markdown]
# ## Exercises
#
# ### Make the doctor content
#
# *Medium, 15 minutes.* A causal self-attention of the usual kind, with three mistakes. Ask the doctor,
# repair one, ask again. Compare each line that it names with the code before you follow it.


# %% tags=["exercise"]
class Repaired(nn.Module):
    """A causal self-attention: repair it."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.h = num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        b, n, e = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        k = k.transpose(-2, -1)
        scores = q @ k / k.size(-1) ** 0.5
        blocked = torch.ones(n, n, dtype=torch.bool).triu(2)
        weights = scores.masked_fill(blocked, float("-inf")).softmax(-1)
        return self.out((weights @ v).reshape(b, n, e))


# %%
from annotated_attention import exercises

exercises.testing_attention.check_repaired(Repaired)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `examine(Repaired(24, 4), embed_dim=24, num_heads=4, kind="causal")` shows everything. The future
# leaks for two reasons; the past changes for a third.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Follow the axes. What is the last axis of `k` once it is transposed? And what are those of
# `weights @ v`, before they are reshaped?
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
class Repaired(nn.Module):
    """A causal self-attention, repaired."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.h = num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        b, n, e = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT / q.size(-1) ** 0.5
        blocked = torch.ones(n, n, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(blocked, float("-inf")).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, n, e))


exercises.testing_attention.check_repaired(Repaired)

# %% [markdown]
# ### Write a probe
#
# *Medium, 10 minutes.* Two mistakes above are about the batch. Write the question that finds them:
# do the samples of a batch have to do with each other? You are given `attend`, which takes x
# `(b, n, 24)` in float32 and returns as much. Return True or False.


# %% tags=["exercise"]
def samples_touch(attend) -> bool:
    """Say whether a sample's result depends on what else is in its batch."""
    return None  # your lines here


# %%
exercises.testing_attention.check_samples_touch(samples_touch)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# What must stay the same when you change everything else? Ask twice.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Results of float32 may differ in the last digits, in particular at another batch size: compare
# with a tolerance. And let each sample have its turn, since one may look at another only one way.
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
def samples_touch(attend) -> bool:
    """Say whether a sample's result depends on what else is in its batch."""
    x = torch.randn(3, 5, 24)
    alone = torch.cat([attend(x[i : i + 1]) for i in range(len(x))])
    return not torch.allclose(attend(x), alone, atol=1e-4)


exercises.testing_attention.check_samples_touch(samples_touch)

# %% [markdown]
# ## What you have now
#
# You can examine attention that somebody else wrote, say what your test cannot see, and keep the
# answer as a test.
#
# > **In short.** Every right attention keeps $\partial\,\text{output}_i / \partial x_j = 0$ for a
# > blocked token $j$, keeps the past when the sentence grows, moves with its tokens, and mixes with
# > weights for which $\sum_j A_{ij} = 1$; and its tokens compete.
# >
# > Test with tokens `(b, n, e)` and masks `(b, n, m)` whose sizes all differ.
# >
# > ```python
# > assert_attention(module, kind="causal", embed_dim=24, num_heads=4)
# > assert_attention(module, kind="causal", embed_dim=24, num_heads=4, reference=trusted)
# > ```
# >
# > Properties find what breaks a rule. Looking inside finds scale, mask and axis, with their lines.
# > A scale that may be meant, and roles that swap their names, need a reference.
#
# One chapter is left for the class: [write it from memory](17_from_memory.ipynb), and let the doctor
# read it.
