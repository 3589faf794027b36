# %% [markdown]
# # Training
#
# *The loss is perfect, the output is garbage: why?*
#
# *10 minutes and 8 of exercises. Afterwards you can train a small Transformer, tell low loss from
# good output, and find out why the two disagree.*
#
# A pupil learns to write words backwards. In the lessons the solution lies on the desk, covered, and each letter is
# uncovered once the pupil has written it. In the exam there is no solution.
#
# A decoder is trained in lessons like these and used in exams like these. Here you train two of them. One is right, and
# the other differs from it in a single line. You will see how well their lessons go, and bet which of the two is broken.

# %% tags=["hide-input"]
import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import MultiheadAttention
from annotated_attention.pretrained import attention_weights
from annotated_attention.seq2seq import Seq2SeqTransformer
from annotated_book import chapters, display

asking = chapters.load("11_questions_to_heads")
torch.set_num_threads(1)  # makes the sums repeatable; more gain nothing here

# %% [markdown]
# ## Write it backwards
#
# A source is three to ten random letters, and the target is the same letters backwards. `[` starts every target, and `]`
# ends it. Shorter ones are filled up with `.`, the padding, which the loss leaves out (`ignore_index`).


# %% tags=["fold-input"]
PAD, START, END = 0, 1, 2
SIGNS = ".[]abcdefghij"


def backwards(b: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw ``b`` sequences of three to ten letters, and each of them backwards."""
    place = torch.arange(10)                                           # (m,)
    length = torch.randint(3, 11, (b, 1), generator=source)            # (b, 1)
    letters = torch.randint(3, len(SIGNS), (b, 10), generator=source)  # (b, m)
    src = letters.masked_fill(place >= length, PAD)                    # (b, m)
    opposite = (length - 1 - place).clamp(min=0)                       # (b, m)
    mirrored = src.gather(1, opposite)                                 # (b, m)
    mirrored = mirrored.masked_fill(place >= length, PAD)              # (b, m)
    tgt = F.pad(mirrored, (1, 1), value=PAD)                           # (b, 12)
    tgt[:, 0] = START
    return src, tgt.scatter(1, length + 1, END)  # (b, m), (b, 12)


def spell(ids: Tensor) -> str:
    """Write token ids as signs."""
    return "".join(SIGNS[token] for token in ids.tolist())


for letters, mirrored in zip(*backwards(3, torch.Generator().manual_seed(1))):
    print(spell(letters), "->", spell(mirrored))

# %% [markdown]
# ## The loop
#
# The decoder is given the target without its last token. At each place it must predict the token that follows; whatever
# it predicts, the next place is given the right one, as if a teacher had corrected it. This is **teacher forcing**
# [[Williams and Zipser](../docs/references.md#williams-1989)]. One step trains all places at once. (`...` in the
# comments: n − 1 tokens, all but the first or the last.)
#
# The model is the `Seq2SeqTransformer` of [The Transformer](09_transformer.ipynb), with one layer on each side. **Adam**
# moves its parameters. It divides each gradient by the size that this gradient usually has. So a step moves no parameter
# by more than a small multiple of the **learning rate**, be its gradient large or small. The rate falls to a tenth on the way: large
# steps first, small ones at the end.

# %% tags=["fold-input"]
SIZES = {"d_model": 32, "num_encoder_layers": 1, "num_decoder_layers": 1}
SIZES |= {"dim_feedforward": 128, "max_len": 16, "dropout": 0.0, "pad": PAD}


@dataclass
class Run:
    """A model in training, and all that its next step depends on."""

    task: Callable[[int, torch.Generator], tuple[Tensor, Tensor]]
    model: Seq2SeqTransformer
    optimizer: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler
    source: torch.Generator
    done: int = 0


# %%
def begin(task, heads: int, steps: int, attention=MultiheadAttention, seed: int = 0) -> Run:
    """Make a model of 13 signs, ready to be trained on ``task``."""
    torch.manual_seed(seed)
    model = Seq2SeqTransformer(13, 13, nhead=heads, attention=attention, **SIZES)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.008)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, steps)
    return Run(task, model, optimizer, schedule, torch.Generator().manual_seed(seed))


# %%
def train(run: Run, until: int) -> None:
    """Take steps until there are ``until``."""
    while run.done < until:
        src, tgt = run.task(64, run.source)     # (b, m), (b, n)
        given, asked = tgt[:, :-1], tgt[:, 1:]  # (b, ...), (b, ...)
        scores = run.model(src, given)          # (b, ..., 13)
        loss = F.cross_entropy(scores.flatten(0, 1), asked.flatten(), ignore_index=PAD)
        run.optimizer.zero_grad()
        loss.backward()
        run.optimizer.step()
        run.schedule.step()
        run.done += 1


# %% [markdown]
# ## Which of the two is broken?
#
# Both models start from the same numbers and see the same words. Every 20 steps the loss is measured on 200 fresh
# words that neither was trained on. (The second fold holds the wrong line. Leave it shut for now.)


# %% tags=["fold-input"]
@torch.no_grad()
def judge(run: Run) -> tuple[float, float, float]:
    """Measure loss, teacher-forced accuracy and greedy exact match."""
    src, tgt = run.task(200, torch.Generator().manual_seed(12345))  # (b, m), (b, n)
    asked = tgt[:, 1:]                                              # (b, ...)
    scores = run.model.eval()(src, tgt[:, :-1])                     # (b, ..., 13)
    loss = F.cross_entropy(scores.flatten(0, 1), asked.flatten(), ignore_index=PAD)
    right = (scores.argmax(-1) == asked)[asked != PAD]
    written = run.model.greedy(src, START, END, max_new=asked.size(1))
    run.model.train()
    # After ], greedy writes padding, and it stops when every target has ended.
    missing = tgt.size(1) - written.size(1)
    exact = (F.pad(written, (0, missing), value=PAD) == tgt).all(1)
    return loss.item(), right.float().mean().item(), exact.float().mean().item()


# %% tags=["fold-input"]
LONG = 400


class Suspect(MultiheadAttention):
    """Like ``MultiheadAttention``, but for one line."""

    def forward(self, *args, is_causal: bool = False, **options):
        """Attend to everything, whatever the caller asks for."""
        return super().forward(*args, is_causal=False, **options)


def follow(run: Run, steps: int) -> dict[int, tuple[float, float, float]]:
    """Train, and judge every 20 steps."""
    curve = {}
    for step in range(20, steps + 1, 20):
        train(run, step)
        curve[step] = judge(run)
    return curve


right = begin(backwards, heads=2, steps=LONG)
suspect = begin(backwards, heads=2, steps=LONG, attention=Suspect)
models = {"A": right, "B": suspect}
curves = {name: follow(run, LONG) for name, run in models.items()}
ends = {name: curve[LONG] for name, curve in curves.items()}

# %% tags=["hide-input"]
drawing, (ax,) = display.panels(345, 230)
for (name, curve), ink, dash in zip(curves.items(), "nh", ("-", "--")):
    losses = [loss for loss, *_ in curve.values()]
    look = {"color": display.COLOURS[ink], "linestyle": dash, "linewidth": 2.5}
    ax.plot([*curve], losses, marker="o", markersize=4, **look)
    x, y = {"A": (108, 0.72), "B": (26, 0.9)}[name]
    size = {"fontsize": 15, "fontweight": "bold"}
    ax.text(x, y, name, color=display.COLOURS[ink], **size)
ax.set(xlim=(0, LONG + 10), ylim=(0, 2.3), xlabel="training steps", ylabel="loss")
alt = "; ".join(f"{name} ends at {end[0]:.4f}" for name, end in ends.items())
display.finish(
    drawing,
    name="which-is-broken",
    alt=f"Two loss curves that fall. B falls faster and stays below A; {alt}.",
)

# %% [markdown]
# <details name="bet"><summary>A is broken. Its loss is the higher one, all the way.</summary>
#
# A writes every word right.
#
# </details>
# <details name="bet"><summary>B is broken. Its loss is the lower one, all the way.</summary>
#
# Yes: B does not write a single word. Nothing in its curve says so.
#
# </details>

# %% [markdown] name="three-numbers"
# ## The exam
#
# The loss is measured as in the lessons: the right beginning is given. So is the **accuracy**, how often the likeliest
# token is the right one. In the exam the model has the source alone. It starts from `[`, writes the likeliest token, and
# goes on from what it wrote itself, which is called **greedy decoding**. That is what you want a model for. The **exact
# match** is the share of the words that come out without a mistake. Here are the three numbers after the last step, and
# what the two write in the exam for the first three of the 200 sources:

# %% tags=["fold-input"]
fresh = backwards(200, torch.Generator().manual_seed(12345))  # (200, 10), (200, 12)
measured = zip(["loss", "accuracy", "exact match"], *ends.values())
table = {what: [f"{x:.4f}" for x in both] for what, *both in measured}
exams = [run.model.eval().greedy(fresh[0], START, END, 11) for run in models.values()]
for i in range(3):
    table[spell(fresh[0][i]).strip(".")] = [spell(x[i, 1:]).strip(".") for x in exams]
display.show(table, columns=[*models])

# %% tags=["proof"]
pairs = [(curves["A"][step][0], found[0]) for step, found in curves["B"].items()]
assert all(theirs < ours for ours, theirs in pairs)
(_, known, whole), (_, seen, exact) = ends.values()
assert min(known, seen) > 0.99
assert exact < 0.004 < 0.98 < whole
print("✓ At every one of the measurements the loss of B is the lower of the two.")

# %% [markdown]
# In the lessons B is the better pupil. In the exam it hands in an empty sheet for each of these three: its first sign
# is the end, `]`.
#
# And the loss raised no alarm. In [A little world](10_a_little_world.ipynb), a loss below the floor gave
# such models away. Here the source decides every letter, so the floor is zero, and a loss next to zero is
# what a perfect pupil has. So why is the output garbage?
#
# <details name="why"><summary>It has learned its lessons by heart.</summary>
#
# There is nothing to learn by heart. Every batch is drawn anew, and lessons and exam are measured on the same
# 200 fresh sequences.
#
# </details>
#
# <details name="why"><summary>Mistakes pile up: one wrong letter misleads the next.</summary>
#
# That happens, and is called *exposure bias*. But then the model should be right wherever all letters before are
# right. The next section measures it.
#
# </details>
#
# <details name="why"><summary>In the exam something is missing that it had in the lessons.</summary>
#
# Then its letters should change when that is taken away or falsified. The next section does both.
#
# </details>

# %% [markdown] name="what-teacher-forcing-does-not-see"
# ## What lies ahead on the desk
#
# Lesson and exam differ in two things. In the exam the beginning is the model's own, with its mistakes. And nothing lies
# *ahead*, while in the lesson the tensor holds the whole target, also the letters that come later.
#
# So keep the first thing right, and change only the second. Every place gets the right beginning, as in the lesson. Ahead
# of it lies one of three things: the solution; a **false solution**, in which each letter is replaced by another; or
# nothing. If the garbage comes from mistakes that pile up, B must be right all three times, since its beginnings hold none.


# %%
def falsified(ids: Tensor) -> Tensor:
    """Replace each letter by the one five further on, around the circle of ten."""
    return torch.where(ids > END, (ids - 3 + 5) % 10 + 3, ids)


@torch.no_grad()
def with_ahead(model: nn.Module, src: Tensor, tgt: Tensor, ahead: Tensor) -> Tensor:
    """Predict each sign from the right beginning, before what ``ahead`` has there."""
    found = []
    for i in range(tgt.size(1) - 1):
        given = torch.cat([tgt[:, : i + 1], ahead[:, i + 1 : -1]], 1)
        found.append(model(src, given)[:, i].argmax(-1))
    return torch.stack(found, 1)


# %% tags=["fold-input"]
def written(run: Run, src: Tensor, tgt: Tensor) -> dict[str, Tensor]:
    """Let a model write with each thing ahead of it, and in the exam."""
    model, nothing = run.model.eval(), tgt[:, :0]
    aheads = {
        "the solution ahead": tgt,
        "a false one ahead": falsified(tgt),
        "nothing ahead": nothing,
    }
    found = {name: with_ahead(model, src, tgt, ahead) for name, ahead in aheads.items()}
    alone = model.greedy(src, START, END, max_new=tgt.size(1) - 1)[:, 1:]
    found["exam"] = F.pad(alone, (0, tgt.size(1) - 1 - alone.size(1)), value=PAD)
    return found


# %% tags=["fold-input"]
lengths, found = (fresh[0] != PAD).sum(1), {}
for letters in range(3, 11):
    one = (lengths == letters).nonzero()[0]
    src, tgt = fresh[0][one], fresh[1][one]  # (1, 10), (1, 12)
    top = [src[0], tgt[0, 1:], falsified(tgt)[0, 1:]]
    for i, run in enumerate(models.values()):
        rows = [*top, *(x[0] for x in written(run, src, tgt).values())]
        found[i, letters - 3] = [
            spell(rows[0][:letters]),
            *(spell(row[: letters + 1]).replace(".", "–") for row in rows[1:]),
        ]
names = ["source", "solution", "false solution", "the solution ahead", "a false one ahead"]
against = dict.fromkeys(["the solution ahead", "nothing ahead", "exam"], (1,))
against["a false one ahead"] = (1, 2)
display.strips(
    [
        display.Choice("model", list(models), 1),
        display.Choice("letters", [str(letters) for letters in range(3, 11)], 3),
    ],
    [[0], [1, "letters"]],
    [
        display.Strip(name, *against.get(name, ()))
        for name in [*names, "nothing ahead", "exam"]
    ],
    found,
    room=(425, 660),
    name="lesson-and-exam",
)

# %% [markdown]
# A struck sign is wrong; a framed one is the false solution's. Press *10*, and *A*. Then count, over all 200
# sequences:

# %% tags=["fold-input"]
asked, rows = fresh[1][:, 1:], {}
false, letters = falsified(asked), asked > END  # (200, 11), (200, 11)
for name, run in models.items():
    for what, signs in written(run, *fresh).items():
        rows.setdefault(what, []).append((signs == asked)[letters].float().mean())
        if name == "B":
            copies = (signs == false)[letters].float().mean()
            rows[what].append(copies if what.startswith("a false") else "")
columns = ["A", "B", "B: letters of the false solution"]
display.show(rows, columns=columns, corner="letters that are right")

# %% tags=["proof"]
shares = {what: [float(x or 0) for x in row] for what, row in rows.items()}
assert all(row[0] > 0.95 for row in shares.values())
assert shares["the solution ahead"][1] > 0.95
assert shares["a false one ahead"][1] < 0.2
assert shares["a false one ahead"][2] > 0.8
assert max(shares["nothing ahead"][1], shares["exam"][1]) < 0.3
alone = with_ahead(suspect.model, *fresh, fresh[1][:, :0])  # (200, 11)
assert (alone == fresh[1][:, :-1])[:, 1:][letters[:, 1:]].float().mean() > 0.9
print("✓ B writes most of a false solution; A ignores it.")

# %% [markdown]
# Mistakes that pile up are not the cause. Every beginning was right, and with nothing ahead B still gets only one letter
# in ten. The false solution says what does happen: B hands it in, almost letter for letter, while A writes the same
# as before. B has hardly learned to write backwards. It has learned to peek under the cover, one place ahead. In the
# exam, that place does not exist yet.
#
# Then why the empty sheet? Give B one token and nothing else, before each of the 200 sources:

# %% tags=["fold-input"]
alone = torch.arange(START, len(SIGNS)).repeat_interleave(200)[:, None]  # (2400, 1)
with torch.no_grad():
    wrote = suspect.model(fresh[0].repeat(12, 1), alone)[:, 0].argmax(-1)  # (2400,)
start, letter = alone[:, 0] == START, alone[:, 0] > END
rows = {
    "[": ["]", (wrote == END)[start].float().mean()],
    "a letter": ["the same letter", (wrote == alone[:, 0])[letter].float().mean()],
}
display.show(rows, columns=["B writes", "share"], corner="given")

# %% tags=["proof"]
assert not (fresh[1][:, 1:] == START).any()
assert rows["["][1] > 0.5
assert rows["a letter"][1] > 0.95
print("✓ B gives a letter back, and never met a target in which “[” is to be written.")

# %% [markdown]
# Where nothing lies ahead, B copies what it was given last: in the figure's row *nothing ahead* its letters come one
# place late. At the start that is `[`, which no target ever asks for, so B has never learned to write it. This B mostly
# writes the other sign that is no letter, `]`, and the word has ended; from another seed it may repeat a letter to the end.

# %% [markdown]
# ## The line
#
# Now open the fold with `Suspect`, or look here:

# %% tags=["hide-input"]
display.diff(
    "super().forward(*args, is_causal=is_causal, **options)",
    "super().forward(*args, is_causal=False, **options)",
)

# %% [markdown]
# The decoder asks for a causal mask, and B does not put it on. No shape changes, and nothing complains. With PyTorch's
# `nn.Transformer` you need not even write a wrong line: it makes no causal mask by itself, so a call without `tgt_mask`
# trains B. A validation loss does not find it either, as long as the whole target is in the tensor.
#
# ## What A had to learn instead
#
# A cannot peek. It has to find each letter in the source, with its cross-attention. To watch that, train a smaller A,
# with one head, so that there is one map, and with ten letters in every word. Each row is a letter to be written, each
# column a letter of the source:

# %% tags=["fold-input"]
from matplotlib.patches import Rectangle

STEPS = 160


def ten_backwards(b: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw ``b`` sequences of ten letters, and each of them backwards."""
    letters = torch.randint(3, len(SIGNS), (b, 10), generator=source)  # (b, m)
    start = torch.full((b, 1), START)                                  # (b, 1)
    return letters, torch.cat([start, letters.flip(1)], 1)             # (b, m), (b, 11)


src, tgt = ten_backwards(1, torch.Generator().manual_seed(7))  # (1, 10), (1, 11)
word, wanted = spell(src[0]), spell(tgt[0, 1:])
first, maps, judged = begin(ten_backwards, heads=1, steps=STEPS), {}, {}
for step in range(0, STEPS + 1, 5):
    train(first, step)
    with attention_weights(first.model) as collected, torch.no_grad():
        first.model(src, tgt[:, :-1])
    maps[step] = collected[-1][0, 0]  # (n, m)
    judged[step] = judge(first)


def drawn(maps: dict[int, Tensor], word: str, wanted: str, alt: str):
    """Draw some of the maps."""
    drawing, axes = display.panels(640, 165, columns=len(maps))
    for ax, (step, weights) in zip(axes, maps.items()):
        i, j = (weights > 0.02).nonzero(as_tuple=True)
        look = {"color": display.COLOURS["n"], "marker": "s", "s": 90, "linewidths": 0}
        ax.scatter(j + 0.5, i + 0.5, alpha=(0.9 * weights[i, j]).tolist(), **look)
        ax.add_patch(Rectangle((0, 0), 10, 10, fill=False, edgecolor=display.COLOURS["b"]))
        ax.set(xlim=(0, 10), ylim=(10, 0), aspect="equal", title=f"step {step}")
        ax.set_xticks([j + 0.5 for j in range(10)], [*word], color=display.COLOURS["m"])
        ax.set_yticks([i + 0.5 for i in range(10)], [*wanted], color=display.COLOURS["n"])
        ax.tick_params(length=0, labeltop=True, labelbottom=False, labelsize=8)
    return display.finish(drawing, name="learning-to-look", alt=alt)


# %% tags=["fold-input"]
readings = {step: table.flip(1).diagonal().mean().item() for step, table in maps.items()}
shown = {step: maps[step] for step in (0, 50, 70, 100, STEPS)}
share = ", ".join(f"{readings[step]:.2f} at step {step}" for step in shown)
static = drawn(
    shown,
    word,
    wanted,
    f"Cross-attention while {word} is read and {wanted} is written, at five steps of "
    f"training. The share of the weights that lies on the anti-diagonal: {share}.",
)
data = {
    "steps": list(maps),
    "maps": [(weights * 100).round().int().tolist() for weights in maps.values()],
    "queries": list(wanted),
    "keys": list(word),
    "readings": {
        "on the right letter": [f"{share:.2f}" for share in readings.values()],
        "accuracy": [f"{accuracy:.2f}" for _, accuracy, _ in judged.values()],
        "exact match": [f"{exact:.2f}" for *_, exact in judged.values()],
    },
}
display.live(static, "attention_over_training", data, room=(470, 470))

# %% tags=["proof"]
assert readings[0] < 0.15 < 0.65 < readings[STEPS] < 0.75
assert 0.55 < judged[80][1] < 0.65
assert judged[80][2] == 0 < 0.95 < judged[STEPS][2]
print("✓ Halfway, most letters are right, and not one word.")

# %% [markdown]
# This is the last step; *Play* shows the way there. At first about a tenth of the weights lies on the right letter, at
# the end about 0.7, on the anti-diagonal: the first place looks at the last letter, and the last place at the first.
# Nobody told the head to look there. It lowered the loss. At step 80, six letters of ten are right, and not one word of
# 200: an exact match needs all ten letters.

# %% [markdown]
# ## What to check in your own code
#
# The false solution needs a trained model. But who peeks can be told before the first step. Change all tokens after a
# place, and see whether the scores up to this place move:


# %%
@torch.no_grad()
def moved(model: nn.Module, src: Tensor, given: Tensor, last: int = 4) -> float:
    """Falsify what comes after place ``last``; measure how the scores up to it move."""
    changed = torch.cat([given[:, : last + 1], falsified(given[:, last + 1 :])], 1)
    change = model(src, changed) - model(src, given)  # (b, n, 13)
    return change[:, : last + 1].abs().max().item()


# %% [markdown]
# Try it on untrained models. The third has all its masks, and the **wrong merge** of [The reshape
# trick](04_reshape_trick.ipynb#cell-id=two-mistakes-that-keep-every-shape), which puts what the heads mixed for later
# tokens into earlier rows.

# %% tags=["fold-input"]
from attention_doctor.mistakes.reshapes import MergeWithoutTranspose

src, given, moves = fresh[0][lengths == 10], fresh[1][lengths == 10, :-1], {}
kinds = {"A": MultiheadAttention, "B": Suspect, "wrong merge": MergeWithoutTranspose}
for name, attention in kinds.items():
    moves[name] = [moved(begin(backwards, 2, LONG, attention).model.eval(), src, given)]
display.show(moves, columns=["scores move by"], corner="untrained")

# %% tags=["proof"]
assert moves["A"][0] < 1e-5
assert min(moves["B"][0], moves["wrong merge"][0]) > 0.1
print("✓ Before the first step, the test tells both that peek from the one that does not.")

# %% [markdown]
# > **Pitfall.** Do not judge a decoder by its loss, not even on fresh sequences. Before training, change
# > later tokens: no earlier row of scores may move. After training, let it decode, and compare whole outputs.

# %% [markdown] name="deeper-other-seeds"
# <!-- deeper: other seeds, and other mistakes -->
# ### Going deeper: other seeds, and other mistakes
#
# One run may be luck. Train two more models like B, and one with the wrong merge, and lay the false solution ahead of
# each:

# %%
more = {f"B, seed {i}": begin(backwards, 2, LONG, Suspect, i) for i in (1, 2)}
more["wrong merge"] = begin(backwards, 2, LONG, MergeWithoutTranspose)
table = {}
for name, run in more.items():
    train(run, LONG)
    found = with_ahead(run.model.eval(), *fresh, falsified(fresh[1]))  # (200, 11)
    copies = (found == false)[letters].float().mean()
    table[name] = [*judge(run), copies]
columns = ["loss", "accuracy", "exact match", "false letters"]
display.show(table, columns=columns, decimals=3)

# %% [markdown]
# B copies whatever the seed, and so does the wrong merge, though less. `make seeds`, a command of the repository, has
# trained three classes with five seeds each. In **both wrong** the
# split is a straight reshape, too.


# %%
DATA = resources.files("annotated_book").joinpath("data/training.json")
KEPT = json.loads(DATA.read_text())


def span(rows: list[dict], what: str) -> str:
    """Write the lowest and the highest value of a column."""
    values = [row[what] for row in rows]
    return f"{min(values):.3f}–{max(values):.3f}"


# %%
NAMES = {
    "MultiheadAttention": "right",
    "MergeWithoutTranspose": "wrong merge",
    "SplitAndMergeWithoutTranspose": "both wrong",
}
columns, table = ["accuracy", "exact match"], {}
for kind, name in NAMES.items():
    rows = [row for row in KEPT["runs"] if row["attention"] == kind]
    table[name] = [span(rows, what) for what in columns]
display.show(table, columns=columns, corner="lowest to highest")

# %% [markdown]
# **Both wrong** does not peek: it cuts the *sequence* in two where a right split cuts the features,
# and within a half the causal mask still holds. But where the cut falls depends on the length, and
# in decoding the length changes with every token. So ask an untrained model a second question: does
# a row of scores change when everything after it is *cut off*?

# %%
from attention_doctor.mistakes.reshapes import SplitAndMergeWithoutTranspose

gaps = {}
for attention in (MultiheadAttention, MergeWithoutTranspose, SplitAndMergeWithoutTranspose):
    model = begin(backwards, 2, LONG, attention).model.eval()
    with torch.no_grad():
        whole, cut = model(src, given), model(src, given[:, :4])  # (b, 11, 13), (b, 4, 13)
    gaps[NAMES[attention.__name__]] = [(whole[:, :4] - cut).abs().max()]
display.show(gaps, columns=["the first four rows differ by"])

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: what the model uses, and what the task needs -->
# ### Going deeper: what the model uses, and what the task needs
#
# Take A apart. It has three attentions: self-attention in the encoder,
# self-attention in the decoder, and the cross-attention. [Silence](11_questions_to_heads.ipynb#cell-id=take-it-away) each
# in its turn: its two heads hand over zeros.


# %% tags=["fold-input"]
def attentions(model: Seq2SeqTransformer) -> dict[str, MultiheadAttention]:
    """Name the attentions of a model with one layer on each side."""
    encoder = model.transformer.encoder.layers[0].self_attn
    layer = model.transformer.decoder.layers[0]
    return {"encoder": encoder, "decoder": layer.self_attn, "cross": layer.multihead_attn}


# %% tags=["fold-input"]
def contributions(run: Run, by_mean: bool = False) -> dict[str, tuple[float, float, float]]:
    """Judge a model with each of its attentions silenced."""
    src, tgt = run.task(200, torch.Generator().manual_seed(99))  # (b, m), (b, n)
    found = {"nothing": judge(run)}
    for name, attention in attentions(run.model).items():
        counts = (src if name == "encoder" else tgt[:, 1:]) != PAD  # (b, ...)
        values = asking.mean_outputs(
            run.model, attention, counts, src, tgt[:, :-1]
        )  # (h, d)
        if not by_mean:
            values = torch.zeros_like(values)
        with asking.silenced(*((attention, *each) for each in enumerate(values))):
            found[name] = judge(run)
    return found


# %% tags=["fold-input"]
zero = contributions(right)
rows = {what: [found[2]] for what, found in zero.items()}
display.show(rows, columns=["exact match"], decimals=3, corner="silenced")

# %% tags=["proof"]
mean = contributions(right, by_mean=True)
assert zero["nothing"] == mean["nothing"] == ends["A"]
for left in (zero, mean):
    assert all(left[part][2] < 0.3 for part in attentions(right.model))
print("✓ Without any one of the three the model fails, silenced by zero or by the mean.")

# %% [markdown]
# The model uses all three. Without the decoder's self-attention the exact match is zero. Does the *task*
# need this attention, then? Take a fresh model, and silence the decoder's self-attention from the first
# training step on. How well does this model learn to write backwards: not at all, a little, or as well as
# the whole model?
#
# <details><summary>What do you expect?</summary>
#
# As well as the whole model. To write the next letter, the model only has to know the place, which
# the position gives, and the source, which the cross-attention reads.
#
# </details>

# %%
never = begin(backwards, heads=2, steps=LONG)
decoder = attentions(never.model)["decoder"]
with asking.silenced((decoder, 0), (decoder, 1)):
    train(never, LONG)
    exact = judge(never)[2]
display.show([[exact]], ["decoder's self-attention, always"], ["exact match"], decimals=3)

# %% [markdown]
# All 200 sequences are right. The whole model has come to rely on its decoder's self-attention
# because it was there. Silencing measures what *this* model uses, not what the task needs.

# %% [markdown]
# The repository's command `make seeds` has done the same for each attention, with five seeds. Each
# line gives the lowest and the highest exact match: *later* means silenced by zero after training,
# *always* means silenced from the first step on.

# %%
table = {}
for part in attentions(right.model):
    rows = [row for row in KEPT["parts"] if row["part"] == part]
    table[part] = [span(rows, "silenced"), span(rows, "never there")]
display.show(table, columns=["silenced later", "silenced always"])

# %% [markdown]
# Nothing can replace the cross-attention, since nothing else reads the source. A model that never
# had the encoder's self-attention still gets about seven of ten sequences right after as many steps.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="deeper-checkpoint"
# <!-- deeper: go on from a checkpoint -->
# ### Going deeper: go on from a checkpoint
#
# An interrupted training run, once resumed, should end exactly where it would have ended. So a
# **checkpoint** holds all that the next step depends on: all of `Run`, since with dropout 0 nothing
# else is random. Save one twenty steps before the end, here in memory, load it into a model
# initialised from another seed, and take the last twenty steps again. Then leave out one part at a
# time. A checkpoint is a pickle file, which can run code when it is read; with `weights_only=True`,
# only tensors and plain values are read.

# %%
import io

PARTS = ("model", "optimizer", "schedule")
whole, file = begin(ten_backwards, heads=1, steps=STEPS), io.BytesIO()
train(whole, STEPS - 20)
kept = {name: getattr(whole, name).state_dict() for name in PARTS}
torch.save(kept | {"generator": whole.source.get_state(), "done": whole.done}, file)
train(whole, STEPS)

# %%
gaps = {}
for forgotten in ("", "schedule", "generator", "optimizer"):
    file.seek(0)
    kept = torch.load(file, weights_only=True)
    again = begin(ten_backwards, heads=1, steps=STEPS, seed=99)
    for name in set(PARTS) - {forgotten}:
        getattr(again, name).load_state_dict(kept[name])
    if forgotten != "generator":
        again.source.set_state(kept["generator"])
    again.done = kept["done"]
    train(again, STEPS)
    pairs = zip(again.model.parameters(), whole.model.parameters())
    gaps[forgotten or "nothing"] = [
        max((mine - other).abs().max() for mine, other in pairs)
    ]
display.show(gaps, columns=["parameters differ by at most"], decimals=3, corner="forgotten")

# %% [markdown]
# With everything restored, every parameter is the same to the last bit. Leave out any part, and you
# are in a different training run, without any warning.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Exercises
#
# ### How much is one letter worth?
#
# *Easy, 2 minutes.* A model writes each letter right in 95 of 100 cases, whatever it wrote before.
# In what share of all targets is every letter right, if a target has ten letters? And if it has
# twenty? Write two numbers between 0 and 1; formulas will do.

# %% tags=["exercise"]
my_shares = [
    None,  # ten letters
    None,  # twenty letters
]

# %%
from annotated_book import exercises

exercises.training.check_shares(my_shares)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Of the targets whose first letter is right, 95 of 100 have the second letter right, too.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# That is one factor for each letter. Python writes a power as `x**y`.
#
# </details>

# %% tags=["solution"]
my_shares = [0.95**10, 0.95**20]

exercises.training.check_shares.folded(my_shares)

# %% [markdown]
# ### Trains perfectly, decodes garbage
#
# *Medium, 6 minutes.* This is the heart of a decoder's self-attention: q, k and v are `(b, h, n,
# d)`, and the result is `(b, n, h * d)`. A model that uses this function trains to a loss near zero
# and decodes garbage. Find out why, and repair it.


# %% tags=["exercise"]
def my_look_back(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Mix the values of the tokens that each token may see, and merge the heads."""
    place = torch.arange(q.size(-2))
    hidden = place > place[:, None] + 1
    scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
    weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2)


# %%
exercises.training.check_look_back(my_look_back)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Scale, softmax and merge are as in [Multi-head attention](07_multihead_attention.ipynb). What is
# left?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Print `hidden` for three tokens. Which tokens does the first row see?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Row i must predict token i + 1. It may see tokens 0 to i.
#
# </details>


# %% tags=["solution"]
def my_look_back(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Mix the values of the tokens that each token may see, and merge the heads.

    Args:
        q: (b, h, n, d), one slice per head.
        k: (b, h, n, d), likewise.
        v: (b, h, n, d), likewise.
    """
    place = torch.arange(q.size(-2))                                 # (n,)
    hidden = place > place[:, None]                                  # (n, n)
    scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5             # (b, h, n, n)
    weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)  # (b, h, n, n)
    return (weights @ v).transpose(1, 2).flatten(2)                  # (b, n, h * d)


exercises.training.check_look_back.folded(my_look_back)

# %% [markdown]
# ## What you have now
#
# > **In short.** The loss of T tokens $y_t$, given the source x and the right beginning:
# >
# > $$-\frac{1}{T} \sum_{t} \log p(y_t \mid y_1 \ldots y_{t-1},\, x)$$
# >
# > - teacher forcing: `model(src, tgt[:, :-1])` scores `tgt[:, 1:]`, all places at once, `(b, n,
# >   v)`
# > - greedy decoding: `model(src, written)[:, -1:].argmax(-1)`, `(b, 1)`, again and again
# >
# > Loss and accuracy are measured with the right beginning given, so a leak need not show in them;
# > it even makes them better. Decode whole outputs, and check whether a row of scores
# > changes when what comes later is changed or cut off.
#
# A pupil who can read the solution has no need of the task. These models are tiny, and you have trained them yourself.
# [Trained weights](13_trained_weights.ipynb) looks at the heads of a model that others have trained.
