# %% [markdown]
# # Training
#
# *The loss is perfect, the output is garbage: why?*
#
# *11 minutes and 8 of exercises. Afterwards you can train a small Transformer, tell low loss from
# good output, and find out why the two disagree.*
#
# A pupil learns to write a word backwards. In the lessons the solution lies on the desk, covered,
# and each letter is uncovered once the pupil has written it. In the exam there is no solution.
#
# A decoder is trained in lessons like these and used in exams like these. Here you train two such decoders.
# One works. The other differs from it in a single line, and its lessons go even better. In the exam
# it does not get one word of 200 right. You will find out why before you see the line.

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

# %% [markdown]
# ## A task that needs attention
#
# The source is ten random letters, and the target is the same letters backwards. To write the first
# letter, the model has to look at the last letter of the source, since the answer is nowhere else.
# Three more tokens have special signs: `[` starts every target, while `]` (the end) and `.`
# (padding) are needed later.

# %%
torch.set_num_threads(1)  # makes the sums repeatable; more gain nothing here
PAD, START, END = 0, 1, 2
SIGNS = ".[]abcdefghij"


def ten_backwards(b: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw ``b`` sequences of ten letters, and each of them backwards."""
    letters = torch.randint(3, len(SIGNS), (b, 10), generator=source)  # (b, m)
    start = torch.full((b, 1), START)                                  # (b, 1)
    return letters, torch.cat([start, letters.flip(1)], 1)             # (b, m), (b, 11)


def spell(ids: Tensor) -> str:
    """Write token ids as signs."""
    return "".join(SIGNS[token] for token in ids.tolist())


src, tgt = ten_backwards(2, torch.Generator().manual_seed(0))  # (2, 10), (2, 11)
print(spell(src[0]), "->", spell(tgt[0]))

# %% [markdown]
# ## The loop
#
# The decoder is given the target without its last token, and at each place it must predict the
# token that follows. Where it would have written something else, it is still given the right token,
# as if a teacher had corrected it. This is **teacher forcing** [[Williams and
# Zipser](../docs/references.md#williams-1989)]. One step trains all places at once.
#
# `begin` makes a `Run`: a task to draw from, the `Seq2SeqTransformer` of [The
# Transformer](09_transformer.ipynb) with one layer on each side, an optimizer and its schedule. (`...` in the comments: n − 1
# tokens, all but the first or the last.)


# %% tags=["fold-input"]
@dataclass
class Run:
    """A model in training, and all that its next step depends on."""

    task: Callable[[int, torch.Generator], tuple[Tensor, Tensor]]
    model: Seq2SeqTransformer
    optimizer: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler
    source: torch.Generator
    done: int = 0


def begin(task, heads: int, steps: int, attention=MultiheadAttention, seed: int = 0) -> Run:
    """Make a model with one layer on each side, ready to be trained on ``task``."""
    torch.manual_seed(seed)
    sizes = {"d_model": 32, "num_encoder_layers": 1, "num_decoder_layers": 1}
    sizes |= {"nhead": heads, "dim_feedforward": 128, "max_len": 16, "dropout": 0.0}
    signs = len(SIGNS)  # 13: ten letters and three signs
    model = Seq2SeqTransformer(signs, signs, pad=PAD, attention=attention, **sizes)
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


# %% [markdown] name="three-numbers"
# ## Three numbers
#
# How good is the model? `judge` takes 200 fresh sequences and measures the **loss**; the
# **accuracy**, how often the likeliest token is the right one; and the **exact match**, how often the
# model writes a whole target without a mistake. For the first two it is given the right beginning, as
# in the lessons. For the third it has the source alone. It starts from `[`, writes the likeliest
# token, and goes on from what it wrote itself, which is called **greedy decoding**. That is the exam,
# and what you want a model for.


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


# %% [markdown]
# ## Attention that learns where to look
#
# Begin with a model that works, and with one head, so that there is only one map to watch: the
# weights of the decoder's cross-attention on one sequence. `attention_weights`, of the package, collects
# the weights of every attention in the order in which they run; the cross-attention runs last.

# %%
STEPS = 160
src, tgt = ten_backwards(1, torch.Generator().manual_seed(7))  # (1, 10), (1, 11)
word, wanted = spell(src[0]), spell(tgt[0, 1:])
first, maps, judged = begin(ten_backwards, heads=1, steps=STEPS), {}, {}
for step in range(0, STEPS + 1, 5):
    train(first, step)
    with attention_weights(first.model) as collected, torch.no_grad():
        first.model(src, tgt[:, :-1])
    maps[step] = collected[-1][0, 0]  # (n, m)
    if step in (40, 80, 120, STEPS):
        judged[step] = judge(first)
JUDGED = ["loss", "accuracy", "exact match"]
display.show(judged, columns=JUDGED, decimals=3, corner="step")

# %% [markdown]
# An exact match needs all ten letters, so this number rises last: at step 80 six letters of ten are right, and
# not one sequence of 200. Here is what happened inside, from the first step to the last.

# %% tags=["fold-input"]
from matplotlib.patches import Rectangle

readings = {step: table.flip(1).diagonal().mean().item() for step, table in maps.items()}
shown = [0, 50, 70, 100, STEPS]
drawing, axes = display.panels(640, 165, columns=len(shown))
for ax, step in zip(axes, shown):
    i, j = (maps[step] > 0.02).nonzero(as_tuple=True)
    look = {"color": display.COLOURS["n"], "marker": "s", "s": 90, "linewidths": 0}
    ax.scatter(j + 0.5, i + 0.5, alpha=(0.9 * maps[step][i, j]).tolist(), **look)
    ax.add_patch(Rectangle((0, 0), 10, 10, fill=False, edgecolor=display.COLOURS["b"]))
    ax.set(xlim=(0, 10), ylim=(10, 0), aspect="equal", title=f"step {step}")
    ax.set_xticks([j + 0.5 for j in range(10)], list(word), color=display.COLOURS["m"])
    ax.set_yticks([i + 0.5 for i in range(10)], list(wanted), color=display.COLOURS["n"])
    ax.tick_params(length=0, labeltop=True, labelbottom=False, labelsize=8)
share = ", ".join(f"{readings[step]:.2f} at step {step}" for step in shown)
static = display.finish(
    drawing,
    name="learning-to-look",
    alt=(
        f"Cross-attention while {word} is read and {wanted} is written, at five steps of "
        f"training. The share of the weights that lies on the anti-diagonal: {share}."
    ),
)

# %% tags=["fold-input"]
data = {
    "steps": list(maps),
    "maps": [(weights * 100).round().int().tolist() for weights in maps.values()],
    "queries": list(wanted),
    "keys": list(word),
    "readings": {"on the right letter": [f"{share:.2f}" for share in readings.values()]},
}
display.live(static, "attention_over_training", data, room=(470, 470))

# %% [markdown]
# Each row is a letter to be written, each column a letter of the source. This is the last step;
# *Play* shows the way there. At first about a tenth of the weights lies on the right letter, at the end
# about 0.7, on the anti-diagonal: the first place looks at the last letter, and the last place at the
# first. Nobody told the head to look there. It lowered the loss.

# %% [markdown] name="the-same-training-with-a-mistake-inside"
# ## The same training with a mistake inside
#
# Real sequences differ in length, so from here on the sources have three to ten letters. Short ones
# are filled up with padding, which the loss leaves out (`ignore_index`). The model also has to
# learn where to stop, so each target ends with `]`.


# %% tags=["fold-input"]
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


for letters, mirrored in zip(*backwards(3, torch.Generator().manual_seed(1))):
    print(spell(letters), "->", spell(mirrored))

# %% [markdown]
# Train two models with two heads on this task, from the same seed. The first uses
# `MultiheadAttention`, the second `Suspect`: the same class but for one line. The fold shows it. Leave it
# shut for now.


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


# %%
right = begin(backwards, heads=2, steps=LONG)
suspect = begin(backwards, heads=2, steps=LONG, attention=Suspect)
models = {"right": right, "suspect": suspect}
curves = {name: follow(run, LONG) for name, run in models.items()}  # judged every 20 steps
ends = {name: curve[LONG] for name, curve in curves.items()}
display.show(ends, columns=JUDGED, decimals=4)

# %% tags=["proof"]
pairs = [(curves["right"][step][0], found[0]) for step, found in curves["suspect"].items()]
assert all(theirs < ours for ours, theirs in pairs)
(_, known, whole), (_, seen, exact) = ends.values()
assert min(known, seen) > 0.99
assert exact < 0.02 < 0.9 < whole
print("✓ At every one of the measurements the suspect's loss is the lower of the two.")

# %% [markdown]
# In the lessons the suspect is the better pupil. In the exam, not one of its 200 words is right. In
# the first three it hands in an empty sheet, with the end `]` as its first sign:

# %% tags=["fold-input"]
src, tgt = backwards(200, torch.Generator().manual_seed(12345))  # (200, 10), (200, 12)
exams = {
    name: run.model.eval().greedy(src, START, END, max_new=11)
    for name, run in models.items()
}
rows = {
    spell(src[i]).strip("."): [spell(x[i, 1:]).strip(".") for x in exams.values()]
    for i in range(3)
}
display.show(rows, columns=[*exams], corner="source")

# %% [markdown]
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
# Lesson and exam differ in two things. In the exam the beginning is the model's own, with its mistakes. And in the
# exam nothing lies *ahead*: in the lesson, the tensor holds the whole target, also the letters that
# come later.
#
# So keep the first thing right, and change only the second. Every place gets the right beginning, as in the lesson. Ahead
# of it lies the solution, or a **false solution**, in which each letter is replaced by another, or nothing. If
# mistakes pile up, the suspect must be right all three times: there are no mistakes in its beginnings.


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
fresh = backwards(200, torch.Generator().manual_seed(12345))  # (200, 10), (200, 12)
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

# %% tags=["fold-input"]
names = ["source", "solution", "false solution", "the solution ahead", "a false one ahead"]
against = {
    "the solution ahead": (1,),
    "a false one ahead": (1, 2),
    "nothing ahead": (1,),
    "exam": (1,),
}
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
# A struck sign is wrong; a framed one is the false solution's. Press *10*, and *right*. Then count, over all 200
# sequences:

# %% tags=["fold-input"]
asked, rows = fresh[1][:, 1:], {}
false, letters = falsified(asked), asked > END  # (200, 11), (200, 11)
for name, run in models.items():
    for what, signs in written(run, *fresh).items():
        rows.setdefault(what, []).append((signs == asked)[letters].float().mean())
        if name == "suspect":
            copies = (signs == false)[letters].float().mean()
            rows[what].append(copies if what.startswith("a false") else "")
columns = ["right", "suspect", "letters of the false solution"]
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
print("✓ The suspect writes most of a false solution; the right model ignores it.")

# %% [markdown]
# Mistakes that pile up are not the cause. Every beginning was right, and with nothing ahead the suspect still gets only
# one letter in ten: from the second place on it nearly always repeats the letter that it was given last.
#
# The false solution says what does happen. The suspect hands it in, almost letter for letter, while the right
# model writes the same as before. The suspect has hardly learned to write backwards. It has learned to peek under
# the cover, one place ahead. In the exam, that place does not exist yet.

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
# The decoder asks for a causal mask, and the suspect does not put it on. No shape changes, and nothing
# complains. With PyTorch's `nn.Transformer` you need not even write a wrong line: it makes no causal mask by itself, so a
# call without `tgt_mask` trains this suspect.
#
# A validation loss does not find it either. It is measured with the right beginning given and the whole target in the
# tensor, as it was for these 200 fresh sequences.

# %% [markdown]
# ## What to check in your own code
#
# The experiment with the false solution needs a trained model. But who peeks can be told before the first step. Change
# all tokens after a place, and see whether the scores up to this place move:


# %%
@torch.no_grad()
def moved(model: nn.Module, src: Tensor, given: Tensor, last: int = 4) -> float:
    """Falsify what comes after place ``last``; measure how the scores up to it move."""
    changed = torch.cat([given[:, : last + 1], falsified(given[:, last + 1 :])], 1)
    change = model(src, changed) - model(src, given)  # (b, n, 13)
    return change[:, : last + 1].abs().max().item()


# %% [markdown]
# Try it on untrained models. The third has all its masks, and the **wrong merge** of [The reshape
# trick](04_reshape_trick.ipynb#cell-id=two-mistakes-that-keep-every-shape).

# %% tags=["fold-input"]
from attention_doctor.mistakes.reshapes import MergeWithoutTranspose

src, tgt = ten_backwards(1, torch.Generator().manual_seed(7))  # (1, 10), (1, 11)
given, moves = tgt[:, :-1], {}
kinds = {
    "right": MultiheadAttention,
    "suspect": Suspect,
    "wrong merge": MergeWithoutTranspose,
}
for name, attention in kinds.items():
    moves[name] = [moved(begin(backwards, 2, LONG, attention).model.eval(), src, given)]
display.show(moves, columns=["scores move by"], corner="untrained")

# %% tags=["proof"]
assert moves["right"][0] < 1e-5
assert min(moves["suspect"][0], moves["wrong merge"][0]) > 0.1
print("✓ Before the first step, the test tells both that peek from the one that does not.")

# %% [markdown]
# The wrong merge puts what the heads mixed for later tokens into earlier rows, past every mask. [Trained](#cell-id=deeper-other-seeds),
# it copies, too.
#
# > **Pitfall.** Do not judge a decoder by its loss, not even on fresh sequences. Before training, change
# > later tokens: no earlier row of scores may move. After training, let it decode, and compare whole outputs.

# %% [markdown] name="deeper-other-seeds"
# <!-- deeper: other seeds, and other mistakes -->
# ### Going deeper: other seeds, and other mistakes
#
# One run may be luck. Train two more suspects, and the wrong merge, and lay the false solution ahead of
# each:

# %%
more = {f"suspect, seed {i}": begin(backwards, 2, LONG, Suspect, i) for i in (1, 2)}
merged = more["wrong merge"] = begin(backwards, 2, LONG, MergeWithoutTranspose)
table = {}
for name, run in more.items():
    train(run, LONG)
    found = with_ahead(run.model.eval(), *fresh, falsified(fresh[1]))  # (200, 11)
    copies = (found == false)[letters].float().mean()
    table[name] = [*judge(run), copies]
display.show(table, columns=[*JUDGED, "false letters"], decimals=3)

# %% [markdown]
# The suspects copy whatever the seed. The wrong merge copies less. Which places does it not copy at? Its
# heads reach different tokens from different places, so ask each place twice: do its scores move when the letter that
# it must write changes? And what does it write with a false solution ahead?

# %% tags=["fold-input"]
long = lengths == 10
src, tgt = fresh[0][long], fresh[1][long]                # (b, 10), (b, 12)
lies = falsified(tgt)                                    # (b, 12)
wrote = with_ahead(merged.model.eval(), src, tgt, lies)  # (b, 11)
peeked = with_ahead(suspect.model, src, tgt, lies)       # (b, 11)
table = {}
for i in range(10):
    other = tgt[:, :-1].clone()  # (b, 11)
    other[:, i + 1] = lies[:, i + 1]
    with torch.no_grad():
        change = merged.model(src, other) - merged.model(src, tgt[:, :-1])  # (b, 11, 13)
    table[f"place {i + 1}"] = [
        change[:, i].abs().max(),
        (wrote == tgt[:, 1:])[:, i].float().mean(),
        (wrote == lies[:, 1:])[:, i].float().mean(),
        (peeked == tgt[:, 1:])[:, i].float().mean(),
    ]
columns = ["scores move by", "right letter", "false letter", "suspect: right letter"]
display.show(table, columns=columns, corner="wrong merge")

# %% [markdown]
# Places one to six see the letter that they must write, and hand in the false one. Places seven to ten see it hardly or not at
# all, and there the model *has* learned to write backwards: mostly it writes the right letter, whatever lies ahead. The exam
# is failed all the same, because which row a head fills depends on the length of what is written, and that grows with
# every token. The suspect of the chapter, too, has learned something at the last two places.
#
# `make seeds`, a command of the repository, has trained each of these setups with five seeds. Models for
# `ten_backwards` have one head, those for the other tasks have two. Two more mistakes are in the
# list: in the **wrong split** the split is a straight reshape, and in **both wrong** the merge is
# one, too. Their task is to copy ten letters.


# %%
def ten_forwards(b: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw ``b`` sequences of ten letters, and the same again as the target."""
    letters, tgt = ten_backwards(b, source)                         # (b, m), (b, 11)
    return letters, torch.cat([tgt[:, :1], tgt[:, 1:].flip(1)], 1)  # (b, m), (b, 11)


letters, same = ten_forwards(1, torch.Generator().manual_seed(0))
print(spell(letters[0]), "->", spell(same[0]))

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
    "SplitWithoutTranspose": "wrong split",
    "SplitAndMergeWithoutTranspose": "both wrong",
}
groups: dict[tuple[str, str], list[dict]] = {}
for row in KEPT["runs"]:
    groups.setdefault((row["task"], NAMES[row["attention"]]), []).append(row)
columns = ["accuracy", "exact match"]
table = {", ".join(x): [span(rows, what) for what in columns] for x, rows in groups.items()}
display.show(table, columns=columns, corner="lowest to highest")

# %% [markdown]
# With the right class, every run gets at least 0.955 of the sequences right. With a mistake
# inside, the best run gets 0.005 right, one sequence of 200, whatever its accuracy says.
#
# **Both wrong** does not peek: it cuts the *sequence* in two where a right split cuts the features,
# and within a half the causal mask still holds. But where the cut falls depends on the length, and
# in decoding the length changes with every token. So ask an untrained model a second question: does
# a row of scores change when everything after it is *cut off*?

# %%
from attention_doctor.mistakes.reshapes import SplitAndMergeWithoutTranspose

src, tgt = ten_backwards(1, torch.Generator().manual_seed(7))  # (1, 10), (1, 11)
given = tgt[:, :-1]
gaps = {}
for attention in (MultiheadAttention, MergeWithoutTranspose, SplitAndMergeWithoutTranspose):
    model = begin(ten_forwards, 2, STEPS, attention).model.eval()
    with torch.no_grad():
        long, short = model(src, given), model(src, given[:, :4])  # (1, 10, 13), (1, 4, 13)
    gaps[NAMES[attention.__name__]] = [(long[:, :4] - short).abs().max()]
display.show(gaps, columns=["the first four rows differ by"])

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: what the model uses, and what the task needs -->
# ### Going deeper: what the model uses, and what the task needs
#
# Take the right model apart. It has three attentions: self-attention in the encoder,
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
assert zero["nothing"] == mean["nothing"] == ends["right"]
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
# <!-- deeper: two heads that you can explain -->
# ### Going deeper: two heads that you can explain
#
# Output that is right does not say *how* it came about. To say how, you need a model with fewer heads than these
# six (three attentions of two heads). Here is a task for two. A text of different letters is drawn at random and then
# repeats itself, as in
# `drankdrankdr`. Once it repeats, which letter comes next? The **copier** has two attention layers of
# one head each, with residual connections, and nothing else: no feed-forward networks, no norms. Its
# loss and its accuracy count only places whose letter has come before: at the others nobody can know
# what follows. A model with a single layer is trained beside it.

# %% tags=["fold-input"]
ALPHABET, LENGTH = "abcdefghijklmnopqrstuvwxyz", 32


def repeated(
    b: int, source: torch.Generator, shortest: int = 4, longest: int = 16
) -> tuple[Tensor, Tensor]:
    """Draw ``b`` sequences that repeat their beginning, and tell how long it is."""
    period = torch.randint(shortest, longest + 1, (b, 1), generator=source)  # (b, 1)
    shuffled = torch.rand(b, 26, generator=source).argsort(1)                # (b, 26)
    place = torch.arange(LENGTH) % period
    return shuffled.gather(1, place), period  # (b, 32), (b, 1)


for ids, period in zip(*repeated(3, torch.Generator().manual_seed(0))):
    print("".join(ALPHABET[i] for i in ids.tolist()), "repeats after", period.item())


# %%
class Copier(nn.Module):
    """Attention layers with residual connections, and nothing else."""

    def __init__(self, layers: int, heads: int, width: int = 64) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(26, width), nn.Embedding(LENGTH, width)
        options = {"bias": False, "batch_first": True}
        attentions = (MultiheadAttention(width, heads, **options) for _ in range(layers))
        self.layers = nn.ModuleList(attentions)
        self.scores = nn.Linear(width, 26, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Score each letter as the one that follows, at each place.

        Args:
            ids: (b, n), numbers of letters.
        """
        x = self.letters(ids) + self.places.weight[: ids.size(1)]  # (b, n, e)
        for attention in self.layers:
            x = x + attention(x, x, x, need_weights=False, is_causal=True)[0]
        return self.scores(x)  # (b, n, 26)


# %% tags=["fold-input"]
def judge_copies(model: Copier, ids: Tensor, period: Tensor) -> tuple[Tensor, float]:
    """Measure loss and accuracy after letters that have been seen before."""
    scores, asked = model(ids)[:, :-1], ids[:, 1:]    # (b, 31, 26), (b, 31)
    seen_before = torch.arange(LENGTH - 1) >= period  # (b, 31)
    loss = F.cross_entropy(scores[seen_before], asked[seen_before])
    right = (scores.argmax(-1) == asked)[seen_before]
    return loss, right.float().mean().item()


@torch.no_grad()
def copied(model: Copier, *periods: int) -> float:
    """Measure the accuracy on 500 fresh sequences."""
    fresh = repeated(500, torch.Generator().manual_seed(4321), *periods)
    return judge_copies(model, *fresh)[1]


COPY_STEPS = 300


def warm_up(step: int) -> float:
    """Raise the learning rate for 50 steps, then lower it to zero."""
    return min((step + 1) / 50, 1) * (1 - step / COPY_STEPS)


def learn_to_copy(layers: int, heads: int = 1, seed: int = 0, periods: tuple = ()) -> tuple:
    """Train a copier; give it with its accuracy at every 25 steps."""
    torch.manual_seed(seed)
    source, curve = torch.Generator().manual_seed(seed), {}
    model = Copier(layers, heads)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, warm_up)
    for step in range(1, COPY_STEPS + 1):
        loss, _ = judge_copies(model, *repeated(64, source, *periods))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 25 == 0:
            curve[step] = copied(model, *periods)
    return model, curve


# %% tags=["fold-input"]
copier, two_layers = learn_to_copy(layers=2)
single, one_layer = learn_to_copy(layers=1)
rows = {step: [two_layers[step], one_layer[step]] for step in (50, 75, 100, 300)}
display.show(rows, columns=["two layers", "one layer"], decimals=3, corner="step")

# %% [markdown] name="find-what-the-heads-do"
# With two layers the model copies without a mistake; with one it ends at 0.304.
#
# How can two heads copy? In `drankd`, the second *d* has to find *r*, the letter after the first
# *d*. A head that compares letters can find the first *d*. But it needs *r*, which does not look
# like *d*. So *r* itself has to say which letter came before it, and two heads can share the work
# [[Elhage et al.](../docs/references.md#elhage-2021), [Olsson et
# al.](../docs/references.md#olsson-2022)]:
#
# - A **previous-token head** in layer 1 looks at the token before each letter, and adds it to that
#   letter. Now *r* says "I am *r*, and I come after *d*".
# - An **induction head** in layer 2 looks for a letter that comes after *d*, and copies it.
#
# Is it so? Give the copier a word of sixteen different letters, twice. Each of the 32 rows is a letter that
# looks, each column a letter that is looked at.

# %% tags=["fold-input"]
text = 2 * "uncopyrightables"
with attention_weights(copier) as collected, torch.no_grad():
    copier(torch.tensor([[ALPHABET.index(letter) for letter in text]]))
drawing, axes = display.panels(640, 330, columns=2)
told = []
for layer, (ax, weights) in enumerate(zip(axes, collected), 1):
    table = weights[0, 0]  # (32, 32)
    for i, j in (table > 0.05).nonzero().tolist():
        look = {"color": display.COLOURS["n"], "alpha": 0.9 * table[i, j].item(), "lw": 0}
        ax.add_patch(Rectangle((j, i), 1, 1, **look))
    frame = {"fill": False, "edgecolor": display.COLOURS["b"]}
    ax.add_patch(Rectangle((0, 0), 32, 32, **frame))
    for line in ([0, 32], [16, 16]), ([16, 16], [0, 32]):
        ax.plot(*line, color=display.COLOURS["b"], linewidth=1, linestyle="--")
    ax.set(xlim=(0, 32), ylim=(32, 0), aspect="equal", frame_on=False)
    ax.set_title(f"layer {layer}")
    look, words = {"fontsize": 12, "va": "center"}, [text[:16], text[16:]]
    ax.set_xticks([8, 24], words, color=display.COLOURS["m"], fontsize=12)
    ax.set_yticks([8, 24], words, color=display.COLOURS["n"], rotation=90, **look)
    ax.tick_params(length=0, pad=2, labeltop=True, labelbottom=False)
    most, back = table.argmax(1).tolist(), (1, 15)[layer - 1]
    halves = [sum(most[i] == i - back for i in half) for half in (range(16), range(16, 32))]
    told.append(
        f"layer {layer} looks {back} back in {halves[0]} and {halves[1]} rows of 16"
    )
alt = f"Weights of two heads, first and second half of the text: {'; '.join(told)}."
display.finish(drawing, name="two-heads-explained", alt=alt)

# %% [markdown]
# In layer 2 the induction head is what it should be: in the second half each letter looks fifteen places back, at
# what followed its earlier copy. (The last one does not: nothing follows it, so it was never trained.) But look at
# layer 1: one place to the left of the diagonal there is a clean line, and
# in the middle of the text it breaks off. The previous-token head does not do what its name says. Is that a flaw?
#
# Take 200 such texts, and forbid one thing at a time: the first half's line in layer 1, all of layer 1 in the second
# half (it adds zeros there), and the line in layer 2. Which of the three does the copying survive?
#
# <details><summary>What do you expect?</summary>
#
# None, one would think: the second layer builds on the first. So it does, but on what the first has done in which half?
#
# </details>


# %% tags=["fold-input"]
@torch.no_grad()
def copied_without(
    model: Copier, ids: Tensor, layer: int, back: int | None, places: Tensor
) -> float:
    """Measure the copying if a layer cannot look ``back`` places, or adds nothing."""
    causal = torch.ones(LENGTH, LENGTH).triu(1).bool()
    masked = causal.clone()
    if back:
        masked[places, places - back] = True
    x = model.letters(ids) + model.places.weight  # (b, n, 64)
    for i, attention in enumerate(model.layers):
        out = attention(x, x, x, attn_mask=masked if i == layer else causal)[0]
        if i == layer and not back:
            out[:, places] = 0
        x = x + out
    right = model.scores(x)[:, 16:-1].argmax(-1) == ids[:, 17:]
    return right.float().mean().item()


# %% tags=["fold-input"]
ids, _ = repeated(200, torch.Generator().manual_seed(99), 16, 16)  # (200, 32), (200, 1)
first_half, second_half = torch.arange(1, 16), torch.arange(16, 31)
without = {
    "nothing": copied_without(copier, ids, 0, 1, first_half[:0]),
    "layer 1, one back, first half": copied_without(copier, ids, 0, 1, first_half),
    "layer 1, all of it, second half": copied_without(copier, ids, 0, None, second_half),
    "layer 2, fifteen back, second half": copied_without(copier, ids, 1, 15, second_half),
}
display.show(
    [[x] for x in without.values()],
    [*without],
    ["accuracy"],
    decimals=3,
    corner="forbidden",
)

# %% tags=["proof"]
whole, line, half, copying = without.values()
assert half == whole > 0.99
assert line < 0.1 > copying
print(
    "✓ Without all of layer 1 in the second half, the copier gets as much right as whole."
)

# %% [markdown]
# No flaw. In the second half you may switch layer 1 off altogether, and the copier misses nothing.
# Layer 1 has done its work by then. It told each letter of the first half what came before it, and no period is
# longer than sixteen, so layer 2 finds a copy of every letter there. The head has learned its work as far as
# it is used, and no further. What they hand over is [told below](#cell-id=deeper-what-the-heads-do).

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: does copying need two layers -->
# ### Going deeper: does copying need two layers?
#
# It seems so: in a single layer nothing has told *r* which letter came before
# it, and the model with one layer ended at 0.304. But it had one head and 300 steps. `make seeds` has given one layer
# more of everything. How far does it get?

# %% tags=["fold-input"]
LONGER = resources.files("annotated_book").joinpath("data/one_layer.json")
rows = {"1 head, width 64, 300 steps": [one_layer[COPY_STEPS]]}
for row in json.loads(LONGER.read_text())["runs"]:
    many = f"{row['heads']} head{'s' * (row['heads'] > 1)}"
    rows[f"{many}, width {row['width']}, {row['steps']} steps"] = [row["accuracy"]]
display.show(rows, columns=["accuracy"], decimals=3, corner="one layer")

# %% [markdown]
# Nearly nine letters of ten. So the task leaves more choice than it seemed. In one layer no key knows
# what stood before it, and how this model finds the next letter all the same, its accuracy does not
# say. The second layer made it easy, within 100 steps. A
# model that fails has not learned it in its time; that does not say that it cannot be learned.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="deeper-what-the-heads-do"
# <!-- deeper: what the two heads do, in numbers -->
# ### Going deeper: what the two heads do, in numbers
#
# The weights say where a head looks. What it hands over from there goes through $W_V$, $W_O$ and
# the output layer, and these are the same for every text. So send each of the 26 letters through
# them. Row i of the result says how much a look at letter i adds to the score of each letter. If
# the second head copies, the largest number of each row stands on the diagonal. This is called the
# **OV circuit** of a head [[Elhage et al.](../docs/references.md#elhage-2021)].


# %%
@torch.no_grad()
def handed_over(model: Copier, layer: int) -> Tensor:
    """Say what a look at each letter adds to the score of each letter."""
    attention, letters = model.layers[layer], model.letters.weight
    w_v = attention.in_proj_weight[128:]                # (64, 64)
    looked_at = letters @ w_v.T                         # (26, 64)
    received = looked_at @ attention.out_proj.weight.T  # (26, 64)
    return received @ model.scores.weight.T             # (26, 26)


torch.manual_seed(0)
rows = {}
for name, model in {"untrained": Copier(2, 1), "trained": copier}.items():
    table = handed_over(model, 1)                # (26, 26)
    others = table.clone().fill_diagonal_(-999)  # (26, 26)
    hits = (table.argmax(1) == torch.arange(26)).sum()
    rows[name] = [hits, table.diagonal().min(), others.max()]
columns = ["rows of 26 largest there", "at least", "elsewhere at most"]
display.show(rows, columns=columns, corner="on the diagonal")

# %% [markdown]
# The diagonal wins in every row: the letter *r* in what the head looks at raises the score of *r*, and
# of no other letter by nearly as much. Its place and what the first head added to it come on top;
# they are left out here. So the second head copies the letter that it looks at, whatever it is. This
# test says nothing about where the head looks; only both together explain it.
#
# The second head has queries, keys and values, and each could use what the first head has added.
# The explanation says which. Let one of the three see only the letters and places, as if there
# were no layer 1, and leave the other two as they are. The copying should stop only for the keys:
# the query is the current letter, the value is the letter to be copied, and only the key has to
# tell which letter came before.


# %%
@torch.no_grad()
def copied_if_plain(model: Copier, role: str) -> float:
    """Measure the accuracy if queries, keys or values of layer 2 do not see layer 1."""
    ids, period = repeated(500, torch.Generator().manual_seed(4321))
    plain = model.letters(ids) + model.places.weight                     # (b, n, 64)
    x = plain + model.layers[0](plain, plain, plain, is_causal=True)[0]  # (b, n, 64)
    inputs = [plain if role == each else x for each in ("queries", "keys", "values")]
    scores = model.scores(x + model.layers[1](*inputs, is_causal=True)[0])  # (b, n, 26)
    right = (scores[:, :-1].argmax(-1) == ids[:, 1:])[torch.arange(LENGTH - 1) >= period]
    return right.float().mean().item()


plain = {role: copied_if_plain(copier, role) for role in ("queries", "keys", "values")}
rows = {f"plain {role}": [accuracy] for role, accuracy in plain.items()}
display.show(rows, columns=["accuracy"], decimals=3)

# %% [markdown]
# If its keys do not see layer 1, the second head is as lost as if the first were silent. For its
# queries and values the first head makes no difference. Elhage et al. call this *K-composition*.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: several heads, and a single period -->
# ### Going deeper: several heads, and a single period
#
# Are the copier's heads always this clear? `make seeds` has trained four kinds of models, with five
# seeds each. Here heads are silenced by zero, as in [Questions to
# heads](11_questions_to_heads.ipynb#cell-id=take-it-away); the column *one head* gives the lowest accuracy with any
# single head silenced. First the model of the chapter, whose two heads are also silenced by the mean:


# %% tags=["fold-input"]
def silenced_copies(model: Copier, by_mean: bool = False) -> dict[str, float]:
    """Measure the accuracy of two layers with the heads of one or both silenced."""
    ids, _ = repeated(500, torch.Generator().manual_seed(99))  # (500, 32), (500, 1)
    trained = (torch.arange(LENGTH) < LENGTH - 1).expand_as(ids)
    heads = []
    for layer in model.layers:
        values = asking.mean_outputs(model, layer, trained, ids)  # (h, d)
        if not by_mean:
            values = torch.zeros_like(values)
        heads.append([(layer, i, value) for i, value in enumerate(values)])
    one, two = heads
    choices = {"nothing": [], "layer 1": one, "layer 2": two, "both": one + two}
    found = {}
    for what, chosen in choices.items():
        with asking.silenced(*chosen):
            found[what] = copied(model)
    return found


# %%
by_zero, by_mean = silenced_copies(copier), silenced_copies(copier, by_mean=True)
rows = {what: [by_zero[what], by_mean[what]] for what in by_zero}
display.show(rows, columns=["by zero", "by mean"], decimals=3, corner="silenced")

# %%
COLUMNS = ("accuracy", "one head", "layer 1", "layer 2")
table = {}
for setup in dict.fromkeys(tuple(row["setup"]) for row in KEPT["copying"]):
    rows = [row for row in KEPT["copying"] if tuple(row["setup"]) == setup]
    spans = [span(rows, what) if what in rows[0] else "" for what in COLUMNS]
    table["{}, {}, {}–{}".format(*setup)] = spans
columns = ["nothing", "one head", "layer 1", "layer 2"]
title = "Accuracy with … silenced"
display.show(table, columns=columns, title=title, corner="layers, heads, periods")

# %% [markdown]
# With four heads in each layer, silencing a single head leaves most of the copying intact, while
# silencing a whole layer stops it. Several heads share a role, and one can replace another. A head
# that seems to contribute nothing may therefore have a double.
#
# In the last line every sequence has the same period of ten, and one layer is enough. It learns to
# look back a fixed number of *places*, whatever the letters are. What a model learns depends on
# what its data demand.

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
