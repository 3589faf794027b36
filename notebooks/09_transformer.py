# %% [markdown]
# # The Transformer
#
# *How does it know which word comes first?*
#
# It does not. Attention treats a sentence as a bag of words, and so does every layer of chapter 8. In
# this chapter each word gets told where it stands, by sines and cosines, and you see what is special
# about them. Then everything comes together: embeddings, positions, two stacks, and a score for each
# word that could follow.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map(
    "project in", "split", "score", "mask", "softmax", "mix", "merge", "project out"
)

# %% [markdown]
# ## A bag of words
#
# Shuffle the words of the sentence, and send both orders through a layer.

# %%
import itertools
import math

import torch
from torch import Tensor, nn

from annotated_attention import TransformerEncoderLayer, chapters

one = chapters.load("01_one_head")
torch.manual_seed(9)
layer = TransformerEncoderLayer(4, 2, 16, dropout=0.0, batch_first=True)
shuffled = torch.tensor([3, 5, 0, 7, 2, 6, 4, 1])

before = layer(one.EMBEDDINGS)            # (n, e)
after = layer(one.EMBEDDINGS[shuffled])   # (n, e)
torch.testing.assert_close(after, before[shuffled])
for words, numbers in ((range(8), before[5]), (shuffled, after[1])):
    print(f"{' '.join(one.WORDS[i] for i in words)}:")
    print("    it:", " ".join(f"{number:5.2f}" for number in numbers))

# %% [markdown]
# Each word comes out with the same numbers, wherever it stood: shuffling before is shuffling after.
# Who drank what, this layer cannot know. No weights can help, since none of them belongs to a place.
#
# ## Clocks
#
# So write the place into the word: add to it a vector that depends on its position alone. The paper
# takes clocks of different speed [[Vaswani et al., section 3.5<!-- quoted -->](../docs/references.md#vaswani-2017)]:
# for each pair of features a sine and a cosine, the first pair turning by 1 radian per word, each
# next pair more slowly, down to almost a ten-thousandth where e is large.
#
# $$\mathrm{PE}_{p,\,2i} = \sin\frac{p}{10000^{2i/e}} \qquad \mathrm{PE}_{p,\,2i+1} = \cos\frac{p}{10000^{2i/e}}$$

# %%
from annotated_attention import sinusoidal_code

display.annotated(sinusoidal_code)

# %% jupyter={"source_hidden": true}
from matplotlib.colors import to_rgba

code = sinusoidal_code(48, 16)  # (48, 16)
drawing, (ax,) = display.panels(560, 230)
cells = [
    [to_rgba(display.COLOURS["n" if number > 0 else "h"], abs(number)) for number in row]
    for row in code.T.tolist()
]
ax.pcolormesh(cells)
ax.set(xlabel="position", ylabel="feature", xticks=range(0, 49, 8), yticks=range(0, 17, 4))
ax.invert_yaxis()
display.finish(drawing, name="clocks", alt=(
    "The positional code, 48 positions by 16 features, blue above zero, orange below. The "
    "first two features alternate every few positions, each pair is slower than the one "
    "before, the last hardly move."
))

# %% [markdown]
# Each column is a position; blue is above zero, orange below. The fast clocks at the top tell
# neighbours apart, the slow ones below tell near from far: like the digits of a number, with the last
# digit first.
#
# ## Near and far
#
# The dot product of two positions says how alike they are. It depends on how far apart they are, and
# on nothing else.

# %%
code = sinusoidal_code(64, 128)                      # (64, 128)
alike = code @ code.T                                # (64, 128) x (128, 64) -> (64, 64)
for distance in range(64):
    diagonal = alike.diagonal(distance)              # (...,)
    torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))
print("distance  ", *(f"{distance:6}" for distance in (0, 1, 2, 4, 8, 16, 32)))
print("alike     ", *(f"{alike[0, distance]:6.2f}" for distance in (0, 1, 2, 4, 8, 16, 32)))

# %% jupyter={"source_hidden": true}
drawing, (ax,) = display.panels(560, 190)
for position, letter, style in ((0, "n", "-"), (20, "h", "--"), (45, "m", ":")):
    label = f"position {position}"
    ax.plot(alike[position], style, color=display.COLOURS[letter], label=label)
ax.set(xlabel="other position", ylabel="dot product", xlim=(0, 63))
ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
display.finish(drawing, name="near-and-far", alt=(
    "Dot products of positions 0, 20 and 45 with all others: the same curve three times, "
    f"moved: {alike[0, 0]:.0f} at the position itself, {alike[0, 1]:.1f} one step beside."
))

# %% [markdown]
# The same curve, moved along. Neighbours look most alike; that fades fast at first, then slowly and
# in small waves.
#
# ## A shift is a rotation
#
# Why sines? The paper guesses that a model can learn to look *three words back*, since a fixed
# linear map leads from any position to the one that far away. Find that map, by least squares over
# 400 positions, without telling it any formula.

# %%
positions = sinusoidal_code(400, 8)                                      # (400, 8)
k = 3
shift = torch.linalg.lstsq(positions[:-k], positions[k:]).solution       # (8, 8)
torch.testing.assert_close(positions[:-k] @ shift, positions[k:])
for row in shift.tolist():
    print(" ".join(f"{number:6.3f}" if abs(number) > 1e-6 else "     ·" for number in row))

# %% [markdown]
# One matrix moves all 397 positions by three, with no error left. It has a block of four numbers for
# each clock, and zeros elsewhere. What are the blocks?

# %%
for i in range(4):
    block = shift[2 * i : 2 * i + 2, 2 * i : 2 * i + 2]                  # (2, 2)
    torch.testing.assert_close(block @ block.T, torch.eye(2).double())
    torch.testing.assert_close(block.det(), torch.tensor(1.0).double())
    angle = torch.atan2(block[1, 0], block[0, 0])
    hand = math.remainder(k / 10000 ** (2 * i / 8), 2 * math.pi)
    print(f"clock {i + 1}: turns by {angle:.4f}, its hand goes {hand:.4f} in {k} words")
    assert abs(angle - hand) < 1e-6

# %% [markdown]
# Rotations, each by the angle that its clock's hand goes in three words. They keep lengths, and that
# is why the dot product above saw the distance only.
#
# ## Adding it
#
# `PositionalEncoding` keeps the code as a table and adds the first n rows of it. The table is a
# **buffer**: it moves to the GPU with the model, and no optimiser touches it. It is not saved with
# the weights either, since a formula gives it, so a checkpoint fits whatever the longest length was.
# Now the shuffled sentence is another sentence:

# %%
from annotated_attention import PositionalEncoding

encoding = PositionalEncoding(4, dropout=0.0, max_len=8, batch_first=True)
before = layer(encoding(one.EMBEDDINGS))           # (n, e)
after = layer(encoding(one.EMBEDDINGS[shuffled]))  # (n, e)
print(f"largest difference: {(after - before[shuffled]).abs().max():.2f}")
print("parameters:", list(encoding.parameters()), "saved:", list(encoding.state_dict()))
try:
    encoding(torch.zeros(1, 9, 4))
except ValueError as error:
    print("ValueError:", error)

# %% [markdown]
# > **Pitfall.** Positions along the wrong axis. An encoding for sequence-first data, `(n, b, e)`,
# > takes batch-first data without complaint, and numbers the *sentences*.

# %%
batch = one.EMBEDDINGS.expand(3, 8, 4)             # (3, 8, 4)
for batch_first in (True, False):
    encoding = PositionalEncoding(4, 0.0, max_len=8, batch_first=batch_first)
    added = encoding(batch) - batch                # (3, 8, 4)
    for name, axis in (("words", 1), ("sentences", 0)):
        apart = added.std(axis).max().item()
        print(f"{batch_first=}: {name} differ by up to {apart:.2f}")

# %% [markdown]
# The shape is right, the words have no order again, and each sentence is marked by its place in the
# batch.
#
# Or let the model learn a vector for each position: `LearnedPositionalEncoding`, with the same
# arguments. The paper found both nearly equally good. But a vector is learned only where a word stood:

# %%
from annotated_attention import LearnedPositionalEncoding

learned = LearnedPositionalEncoding(4, dropout=0.0, max_len=12, batch_first=True)
learned(one.EMBEDDINGS).sum().backward()
print("positions that got a gradient:", learned.table.grad.any(1).sum().item(), "of 12")

# %% [markdown]
# The clocks need no training, for no position.
#
# ## Embeddings, and why times √e
#
# A word is a row in a learned table, its **embedding**, and its row number is its **token id**. The
# paper uses one and the same table at both ends: to turn ids into vectors, and, transposed, to turn
# the last vectors into a score for each word. The two uses want different sizes. Draw a table of a
# thousand words in two ways, and look at both ends.

# %%
print("  e   table std   score std   largest share   times √e   position")
for e in (32, 512):
    torch.manual_seed(0)
    out = nn.LayerNorm(e)(torch.randn(64, e))      # (64, e)
    position = sinusoidal_code(64, e).square().mean().sqrt()
    for deviation in (1.0, 1 / math.sqrt(e)):
        table = deviation * torch.randn(1000, e)   # (1000, e)
        scores = out @ table.T                     # (64, e) x (e, 1000) -> (64, 1000)
        share = scores.softmax(-1).amax(-1).mean()
        std = table.std()
        print(f"{e:4} {std:9.2f} {scores.std():11.2f} {share:13.2f} "
              f"{std * math.sqrt(e):12.2f} {position:10.2f}")

# %% [markdown]
# Drawn with deviation 1, the table gives scores so large that one word of a thousand takes nearly
# everything: chapter 1's saturated softmax. Drawn with $1 / \sqrt e$, scores are of size 1. But then
# a word is small beside its position, and drowns in it. **Times $\sqrt e$** on the way in brings it
# to size 1.
#
# ## The whole model
#
# Here it is: two embeddings, positions, the two stacks of chapter 8, a projection.

# %%
from annotated_attention import Seq2SeqTransformer

steps = ("forward", "encode", "decode", "_embed")
display.annotated(*(getattr(Seq2SeqTransformer, step) for step in steps))

# %% [markdown]
# It makes its own masks: what is padding it reads from the ids, and the decoder looks back only.
# `share_embeddings=True` would make one table of all three. As data take the sentence, a second and
# shorter one, and three words of an answer:

# %%
WORDS = ["·", "start", "end", *one.WORDS]  # id 0 is padding
PAD, START, END = 0, 1, 2
src = torch.tensor([[3, 4, 5, 6, 7, 8, 9, 10], [3, 4, 9, 10, 0, 0, 0, 0]])  # (b, m)
tgt = torch.tensor([[START, 3, 4], [START, 3, 4]])                          # (b, n)

torch.manual_seed(9)
model = Seq2SeqTransformer(11, 11, 24, 4, 2, 2, 48, dropout=0.0, pad=PAD, max_len=20)
scores = model(src, tgt)                                                    # (b, n, 11)
print(*(WORDS[i] for i in src[1]), "-> scores", tuple(scores.shape))
try:
    model(src + 1, tgt)
except ValueError as error:
    print("ValueError:", error)

# %% [markdown]
# For each of the three places, a score for each of eleven words. What happens in between? Hooks on
# the parts note what comes out of them, and the figure draws what they noted.

# %% jupyter={"source_hidden": true}
PARTS = {
    "embed_src": "read, embedded", "encoder.layers.0": "encoder layer 1",
    "encoder.layers.1": "memory", "embed_tgt": "written, embedded",
    "decoder.layers.0.self_attn": "look back",
    "decoder.layers.0.multihead_attn": "look across",
    "decoder.layers.0.linear1": "widened", "decoder.layers.0": "decoder layer 1",
    "decoder.layers.1": "decoder layer 2", "project": "scores",
}
ADDED = ["read, + positions", "written, + positions"]
SEEN: dict[str, tuple[int, ...]] = {}


def note(*boxes: str):
    """Make a hook that notes the shape of what a part returns; each call has its box."""
    calls = iter(boxes)

    def hook(module, args, output):
        tensor = output[0] if isinstance(output, tuple) else output
        SEEN[next(calls)] = tuple(tensor.shape)

    return hook


# %% jupyter={"source_hidden": true}
parts = {name.removeprefix("transformer."): part for name, part in model.named_modules()}
hooks = [parts[name].register_forward_hook(note(box)) for name, box in PARTS.items()]
hooks.append(model.positions.register_forward_hook(note(*ADDED)))
model(src, tgt)
for hook in hooks:
    hook.remove()
SEEN.update({"ids read": tuple(src.shape), "ids written": tuple(tgt.shape)})

LEFT = ["ids read", "read, embedded", ADDED[0], "encoder layer 1", "memory"]
RIGHT = ["ids written", "written, embedded", ADDED[1], "look back", "look across",
         "widened", "decoder layer 1", "decoder layer 2", "scores"]
places = {box: (0, row) for row, box in enumerate(LEFT)}
places |= {box: (1, row) for row, box in enumerate(RIGHT, 1)}
steps = [(*pair, "") for line in (LEFT, RIGHT) for pair in itertools.pairwise(line)]
steps += [("memory", "look across", "keys and values")]
letters = {2: "b", 8: "m", 3: "n", 24: "e", 48: "2e", 11: "v"}
display.flow(places, steps, SEEN, letters, name="shapes-through")

# %% [markdown]
# Left the encoder, right the decoder with its first layer opened; v is the size of the vocabulary.
# The width e stays from the embedding to the last layer: only the feed-forward network widens it, for
# a moment, and only the last projection leaves it. The columns meet where the decoder looks across. From there on, m is gone.
#
# ## The same as PyTorch's
#
# Put `torch.nn.Transformer` between our embeddings and our projection, with the same weights. Both end
# each stack in a norm.

# %%
sizes = (24, 4, 2, 2, 48, 0.0)  # e, h, layers (twice), feed-forward, dropout
twin = Seq2SeqTransformer(11, 11, *sizes, dtype=torch.float64)
theirs = nn.Transformer(*sizes, batch_first=True, dtype=torch.float64)
theirs.load_state_dict(twin.transformer.state_dict())

b, m, n, e = 2, 8, 3, 24
embedded = (twin.embed_src.weight[src], twin.embed_tgt.weight[tgt])
x, y = (twin.positions(part * math.sqrt(e)) for part in embedded)
added = theirs.generate_square_subsequent_mask(n, dtype=torch.float64)
expected = theirs(x, y, tgt_mask=added) @ twin.project.weight.T  # (b, n, 11)
found = twin(src, tgt)                                           # (b, n, 11)
torch.testing.assert_close(found, expected)
ends = [twin.embed_src.weight, twin.embed_tgt.weight, twin.project.weight]
mine = one.gradients(found, [*ends, *twin.transformer.parameters()])
torch.testing.assert_close(mine, one.gradients(expected, [*ends, *theirs.parameters()]))
print(f"equal, and so are the gradients of all {len(mine)} parameters")

# %% [markdown]
# The paper has no final norms, since each of its layers ends in a norm already. `final_norm=False`
# builds that model. It has four tensors less, and before training it computes nearly the same:

# %%
paper = Seq2SeqTransformer(11, 11, *sizes, final_norm=False, dtype=torch.float64)
loaded = paper.load_state_dict(twin.state_dict(), strict=False)
print("left out:", *(name.removeprefix("transformer.") for name in loaded.unexpected_keys))
fewer = sum(part.numel() for part in twin.parameters())
fewer -= sum(part.numel() for part in paper.parameters())
difference = (paper(src, tgt) - found).abs().max()
print(f"{fewer} numbers fewer; the scores differ by up to {difference:.0e}")
assert difference < 1e-3

# %% [markdown]
# ## It does not see the future
#
# Row i scores the word after word i, so it must not depend on any later one. Differentiate: how does
# row i react to the vector of word j? Once with the model, once with its causal mask forgotten.


# %%
def reactions(model: nn.Module, src: Tensor, tgt: Tensor, is_causal: bool) -> Tensor:
    """Measure how each row of scores reacts to each word that is written."""
    memory = model.encode(src)                                             # (1, m, e)
    y = model.positions(model.embed_tgt.weight[tgt] * math.sqrt(24))       # (1, n, e)

    def decode(y: Tensor) -> Tensor:
        rows = model.transformer.decoder(y, memory, tgt_is_causal=is_causal)
        return model.project(rows)

    jacobian = torch.autograd.functional.jacobian(decode, y)[0, :, :, 0]   # (n, 11, n, e)
    return jacobian.square().sum((1, 3)).sqrt()                            # (n, n)


# %%
n = 5
answer = torch.tensor([[START, 3, 4, 9, 10]])                  # (1, n)
causal = reactions(model, src[:1], answer, is_causal=True)     # (n, n)
leaking = reactions(model, src[:1], answer, is_causal=False)   # (n, n)
assert causal.triu(1).eq(0).all()
assert leaking.gt(0).all()
for name, found in (("the model", causal), ("causal mask forgotten", leaking)):
    print(f"{name} reacts to later words in {found.triu(1).count_nonzero()} of 10 cases")

# %% jupyter={"source_hidden": true}
drawing, columns = display.panels(620, 250, columns=2)
names = [WORDS[i] for i in answer[0]]
titles = ("the model", "causal mask forgotten")
for ax, found, title in zip(columns, (causal, leaking), titles):
    shares = (0.6 * found / found.max()).tolist()
    ax.pcolormesh([[to_rgba(display.COLOURS["n"], x) for x in row] for row in shares])
    for i, j in itertools.product(range(5), repeat=2):
        said = f"{found[i, j]:.2f}"
        ax.text(j + 0.5, i + 0.5, said, ha="center", va="center", fontsize=9)
    ax.set_xticks([j + 0.5 for j in range(5)], names)
    ax.set_yticks([i + 0.5 for i in range(5)], names)
    ax.tick_params(length=0)
    ax.set(title=title, xlabel="reacts to", ylim=(5, 0))
display.finish(drawing, name="no-leak", alt=(
    "How the scores behind each word react to each word. In the model everything above the "
    f"diagonal is {causal.triu(1).max():.2f}; without the causal mask it reaches "
    f"{leaking.triu(1).max():.2f}."
))

# %% [markdown]
# On the left, everything above the diagonal is exactly zero. The model on the right would look
# splendid in training: the word that it has to predict is in its input. It fails when it has to
# write, and the next word is not there.
#
# ## Writing
#
# To write, begin with *start*, take the likeliest next word, append it, and ask again until *end*
# comes. That is **greedy decoding**:

# %%
display.annotated(Seq2SeqTransformer.greedy)

# %%
written = model.eval().greedy(src, START, END, max_new=5)  # (b, ...)
for row in written:
    print(*(WORDS[i] for i in row))
again = model(src, written[:, :-1]).argmax(-1)             # (b, ...)
print("one call predicts the same words:", torch.equal(again, written[:, 1:]))

# %% [markdown]
# Nonsense, since nothing is trained. But the last line is what makes training possible: one call
# scores all places at once, and each place sees what it would see while writing, no more.
#
# ## Exercises
#
# ### How many parameters?
#
# *Medium, 15 minutes.* The base model of the 2017 paper has e = 512, h = 8, feed-forward networks
# 2048 wide, six layers in each stack, and one table of 37000 words for both embeddings and the
# projection. Write a function that counts the parameters of such a model, from these numbers and
# nothing else. Every projection but the last has a bias. The stacks of the paper end without a final
# norm, so the check builds the class with `final_norm=False` and counts.


# %% tags=["exercise"]
def count_parameters(e: int, wide: int, layers: int, words: int) -> int:
    """Count the parameters of a Transformer, embeddings included."""
    ...  # your formula here


# %%
from annotated_attention import exercises

exercises.transformer.check_count_parameters(count_parameters)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# An attention module has four matrices `(e, e)` and four biases. A norm has a scale and a shift.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# An encoder layer has one attention, one feed-forward network and two norms; a decoder layer has one
# attention and one norm more.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# The table counts once. Positions count nothing. The number of heads does not matter.
#
# </details>

# %% tags=["solution"] jupyter={"source_hidden": true}
def count_parameters(e: int, wide: int, layers: int, words: int) -> int:
    """Count the parameters of a Transformer, embeddings included."""
    attention = 4 * e * e + 4 * e
    feed_forward = 2 * e * wide + wide + e
    encoder_layer = attention + feed_forward + 2 * 2 * e
    decoder_layer = 2 * attention + feed_forward + 3 * 2 * e
    return layers * (encoder_layer + decoder_layer) + words * e


exercises.transformer.check_count_parameters(count_parameters)

# %% [markdown]
# ### The shift by formula
#
# *Medium, 15 minutes.* Above, least squares found the matrix that moves every position by k. Write
# it down without any search, for an even width e: `positions[p] @ shift_matrix(k, e)` is
# `positions[p + k]`, for every p, and for negative k, too. In float64.


# %% tags=["exercise"]
def shift_matrix(k: int, e: int) -> Tensor:
    """Return the rotation that moves a position by k."""
    ...  # your code here


# %%
exercises.transformer.check_shift_matrix(shift_matrix)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Clock i turns by $a = k / 10000^{2i/e}$, and a position is a row: $(\sin p, \cos p)$ times the block.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# $\sin(p + a) = \sin p \cos a + \cos p \sin a$ is the first column of the block.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `torch.block_diag(*blocks)` puts blocks along a diagonal.
#
# </details>

# %% tags=["solution"] jupyter={"source_hidden": true}
def shift_matrix(k: int, e: int) -> Tensor:
    """Return the rotation that moves a position by k."""
    blocks = []
    for i in range(e // 2):
        a = k / 10000 ** (2 * i / e)
        rows = [[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]]
        blocks.append(torch.tensor(rows, dtype=torch.float64))
    return torch.block_diag(*blocks)


exercises.transformer.check_shift_matrix(shift_matrix)

# %% [markdown]
# ## What you have now
#
# The Transformer of the paper, from token ids to scores, and a proof of three things about it: without
# positions it has no order, with them a shift is a rotation, and no row of the decoder sees what
# comes later. It writes nonsense. [Chapter 10](10_training.ipynb) trains it.
