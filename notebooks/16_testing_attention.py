# %% [markdown]
# # Testing attention
#
# *How do you test attention that you cannot see into?*
#
# Somebody hands you an attention, and you can only call it. Its shapes are right and its loss falls,
# which says little: so did those of many mistakes in this book. But some things are true of **every**
# right attention, whatever its weights. Ask for them one by one, and a wrong one gives itself away.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map(
    "project in", "split", "score", "mask", "softmax", "mix", "merge", "project out"
)

# %% [markdown]
# ## The patients
#
# The package collects mistakes in `mistakes`: each is the right class with one thing wrong, and has
# a name. Build the right one and a wrong one for each name.

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
# Each question below is a **probe**: a function of a patient that returns how far it is from what
# must hold. Zero is right. All of them attend within a sentence, and compare in float64, where
# rounding is far below any effect.


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
# ## Parity: the same weights, the same result
#
# The strongest question comes first: put the weights into something that you trust, and compare.
# [Multi-head attention](07_multihead_attention.ipynb) did so with PyTorch's own class, outputs and gradients.


# %%
def parity(patient: nn.Module) -> float:
    """Compare with PyTorch's."""
    trusted = build(nn.MultiheadAttention)
    trusted.load_state_dict(patient.state_dict())
    x = tokens(1).requires_grad_()
    ours, theirs = attend(patient, x), attend(trusted, x)  # (2, 7, 24)
    gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y in (ours, theirs)]
    return max(gap(ours, theirs), gap(*gradients))


show(parity, "no-scale", "scale-by-model-width")

# %% [markdown]
# The two attend sharper or flatter than they should, and that is all. It is a valid attention, and
# valid is what the questions below ask for, so that only parity finds them. But parity needs the
# weights, and to know which is which. And it says nothing of what was not tried: here, any mask.
#
# ## Leakage: what does it react to?
#
# A blocked token must have no influence at all. The gradient says whether it has, exactly: a weight
# of zero passes zero on. Pad the first sentence, and ask what its words react to.


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
# (`cos` is there to make one number of many without letting them cancel.) The first patient empties
# the rows *of* the padding. That looks like success, and its words go on seeing it. The last one hides
# the values of the padding, not its keys: they take their share of the weights.
#
# ## Prefix: the past does not change
#
# If the future is hidden, a sentence that goes on must leave the results of its beginning as they
# were. That finds what leaks from the future, and something that no gradient shows.


# %%
def prefix(patient: nn.Module) -> float:
    """Compare the first four of seven tokens with the four alone."""
    x = tokens(3)
    longer = attend(patient, x, is_causal=True)[:, :4]  # (2, 4, 24)
    return gap(longer, attend(patient, x[:, :4], is_causal=True))


show(prefix, "causal-off-by-one", "scale-by-length", "split-and-merge-without-transpose")

# %% [markdown]
# The second divides by the root of the *length*. No number of the future enters, only how many there
# are, so the gradient sees no leak. At one length it is as good as right, and text grows word by word.
# The third leaks nothing, either: what it computes depends on where the sequence ends.
#
# ## Permutation: the order says nothing
#
# Without a mask, and without positions in the embeddings, attention sees a set. Shuffle the tokens,
# and the results must be shuffled alike.


# %%
def permutation(patient: nn.Module) -> float:
    """Compare the results of shuffled tokens with the shuffled results."""
    x, order = tokens(4), torch.tensor([3, 0, 5, 1, 6, 4, 2])
    return gap(attend(patient, x[:, order]), attend(patient, x)[:, order])


show(permutation, "causal-unasked", "merge-without-transpose")

# %% [markdown]
# The first hides the future where nobody asked for it, as happens when an encoder is built from a
# decoder's parts. Nothing leaks, the past stays, all weights are valid. One warning: attention that
# has positions *inside*, such as rotary ones, fails here and is right.
#
# ## Convexity: the weights sum to one
#
# Weights that are positive and sum to one make a result that lies *between* the values: a **convex**
# combination. If all values are equal, nothing lies between, and the result is that value, whatever
# the scores. Seven equal tokens must give what one gives.


# %%
def convexity(patient: nn.Module) -> float:
    """Compare seven equal tokens with one."""
    one = tokens(5, n=1)           # (2, 1, 24)
    seven = one.expand(-1, 7, -1)  # (2, 7, 24)
    return gap(attend(patient, seven), attend(patient, one).expand(-1, 7, -1))


show(convexity, "softmax-over-heads", "merge-without-transpose")

# %% [markdown]
# ## Which finds which
#
# Ask all five of everyone. A question that raises an error gets an `!`: that is an answer, too.


# %%
PROBES = (parity, leakage, prefix, permutation, convexity)


def ask(patient: nn.Module) -> str:
    """Put all five questions: a mark for each that fails."""
    marks = ""
    for probe in PROBES:
        try:
            marks += "X" if probe(patient) > 1e-9 else "."
        except (RuntimeError, ValueError):
            marks += "!"
    return marks


answers = {code: ask(patient) for code, patient in PATIENTS.items()}
assert answers["right"] == "....."
for code in ("right", "mask-on-the-wrong-axis", "split-without-transpose", "no-scale"):
    print(f"{code:>33}  {answers[code]}")

# %% [markdown]
# Is one of the five superfluous? Parity first: which mistakes does nothing else find? Then leave it
# aside, as where there are no weights: which does each of the other four find alone?

# %%
import textwrap


def wrapped(text: str) -> str:
    return textwrap.fill(text, 88, subsequent_indent="    ", break_on_hyphens=False)


alone = {"parity": [code for code, marks in answers.items() if marks == "X...."]}
for i, probe in enumerate(PROBES[1:]):
    only = "...."[:i] + "X" + "...."[i + 1 :]
    alone[probe.__name__] = [code for code, marks in answers.items() if marks[1:] == only]
for name, codes in alone.items():
    print(wrapped(f"only {name}: {', '.join(codes)}"))
assert all(alone.values())

# %% [markdown]
# Each has at least one: none can be left out. Which pass all five?

# %%
passed = [code for code, marks in answers.items() if marks == "....." and code != "right"]
print(wrapped(", ".join(passed)))

# %% [markdown]
# Some show only with masks that none of the five has tried. The others are not about the result of
# one call at all: dropout, half precision, hooks, what happens to the arguments. They need questions
# of their own.
#
# ## A mistake has a fingerprint
#
# The gradient tells more than *whether* something leaks. Draw which token reacts to which, under a
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
# The wrong merge repeats: after every third row it begins again. Its row holds 4 neighbouring tokens
# of *one* head, so three rows fill up with the 12 tokens of the first head, the next three with the
# second. Rows that begin again every n / h say straight reshape; one diagonal too many says
# `triu(diagonal=2)`.
#
# ## The doctor
#
# `doctor` asks all of that and more. Give it something to call, and the sizes; an adapter says how
# it is called.

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
# Nothing wrong, and what could not be asked is listed. A *convention* is a choice that respectable
# code makes differently. Now a patient:

# %%
consult(MISTAKES["merge-without-transpose"].version)

# %% [markdown]
# It saw several symptoms, took the weights, put them into the right version and into every mistake,
# and one of those gave the same outputs. That is how the mistake has a name. It also watched what was
# computed: *where* is the line of the examined code. Here are the line as people write it and the
# right one, as the package has them.

# %%
mistake = MISTAKES["merge-without-transpose"]
display.diff(mistake.wrong, mistake.right)

# %% [markdown]
# Here is the whole table: each mistake, and each test of the doctor that finds something there which
# it does not find in the right version. It is drawn from the reports of this run.

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
print(wrapped(", ".join(by_weights)))

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
# ## The proof that it is fair
#
# A doctor who calls everybody ill is of no use. PyTorch's own class must pass; so must the designs of
# [Published code](15_published_code.ipynb), which the package's tests examine at random sizes.

# %%
report = consult(nn.MultiheadAttention)
assert report.ok
print(report)

# %% [markdown]
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
# ## Your own code
#
# `examine` takes any function. Here is one head with nothing to learn, as a reader may write it. It
# sets the weights of what is blocked to zero; what can the doctor say without any weights to compare?


# %%
def mine(x: Tensor, blocked: Tensor | None) -> Tensor:
    """Attend within ``x``; no query sees a key where ``blocked`` is True."""
    scores = x @ x.mT / x.size(-1) ** 0.5            # (b, n, n)
    weights = scores.softmax(-1)                     # (b, n, n)
    if blocked is not None:
        weights = weights.masked_fill(blocked, 0)    # (b, n, n)
    return weights @ x                               # (b, n, d)


report = examine(mine, embed_dim=WIDTH, num_heads=1, kind="self")
for finding in report.findings:
    print(f"{finding.code}:\n    {finding.symptom}")
print("likely cause of the first:", report.findings[0].cause)

# %% [markdown]
# There are no weights to compare, but the doctor watches the softmax and what leads there: it sees
# that no score is hidden before the softmax, and names the line that comes too late. What a file holds goes through the shell: `python -m annotated_attention.doctor file.py:Name --kind causal --embed-dim 24 --num-heads 4`
# guesses the constructor's arguments from their usual names, and its exit code is 1 where something
# is wrong.

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
# Five questions that every right attention answers alike, a fingerprint for each way of answering
# wrongly, and a doctor that asks them for you. They need nothing but something to call. One chapter
# is left: [write it from memory](17_from_memory.ipynb), and let the doctor read it.
