"""Live figures: what their scripts compute is what Python computes, and what they are given.

Their functions run in an engine without a page; ``tests/site`` drives them on theirs.
"""

import json
import math
import random
import re
from dataclasses import asdict, replace
from functools import cache
from itertools import product
from typing import Any

import pytest
import quickjs
import torch
from bs4 import BeautifulSoup

from annotated_attention import counting, masks, merge_heads, sinusoidal_code, split_heads
from annotated_attention.counting import PRESETS, Model
from annotated_attention.modern import (
    RotaryEmbedding,
    block_by_position,
    rotary_frequencies,
    rotate,
)
from annotated_book import chapters, display
from annotated_book.display import _live
from annotated_book.display import house as houses
from annotated_book.display.live_figures import (
    budget,
    cache_filling,
    call_bytes,
    exchange,
    mask_merger,
    reach,
    strips,
    tiles_visited,
    wheels,
)
from annotated_book.display.tales import Told
from attention_doctor.mistakes.reshapes import merge_without_transpose, split_without_transpose
from press.run import execute

# JSON knows neither of them.
SAY = """(key, value) =>
  typeof value === "bigint" ? String(value) : Object.is(value, NaN) ? "NaN" : value"""


@cache
def script(module):
    """Give what calls a function of a module; what the module imports draws, and is left out."""
    text = re.sub(r"^import .*$", "", _live.modules()[f"{module}.js"], flags=re.MULTILINE)
    context = quickjs.Context()
    context.eval(text.replace("export default", "const drawn =").replace("export ", ""))

    def call(name, *arguments):
        given = ", ".join(json.dumps(argument) for argument in arguments)
        return json.loads(context.eval(f"JSON.stringify({name}({given}), {SAY})") or "null")

    return call


def still(name="still"):
    return display.finish(display.panels(60, 40)[0], name=name, alt="A still picture.")


def parse(figure):
    return BeautifulSoup(figure.html, "html.parser")


def given(figure):
    """Read what the module of a live figure is given."""
    return json.loads(parse(figure).select_one(".aa-live")["data-state"])


DATA = {"keys": ["<b>", "'\"&", "ok"], "numbers": [[1, 2.5], []], "texts": {"loss": ["0.1"]}}


def test_a_page_and_a_notebook_are_given_the_picture_and_its_data():
    live = display.live(still(), "calculator", DATA, room=(480, 600))
    for html in (live.html, str(BeautifulSoup(live.html, "html.parser"))):  # parsed and written
        frame = BeautifulSoup(html, "html.parser").select_one(".aa-live")
        assert frame["data-live"] == "calculator"
        assert frame["style"] == "--aa-wide: 30em; --aa-narrow: 37.5em"
    assert given(live) == DATA
    assert still().html in live.html
    bundle = live._repr_mimebundle_()
    style, *_, code = BeautifulSoup(bundle["text/html"], "html.parser").find_all(recursive=False)
    assert ".aa-stage {" in style.text
    assert (code["type"], code.text) == ("module", _live.bundle("calculator"))
    assert execute.CARRIED.sub("", bundle["text/html"]) == live.html
    assert bundle["text/plain"] == "Figure: A still picture."


def test_what_json_does_not_have_is_refused():
    for data, kind in (({"x": object()}, TypeError), ({"x": math.nan}, ValueError)):
        with pytest.raises(kind, match="JSON"):
            display.live(still(), "clocks", data)


def test_heads_at_work_are_given_weights_in_hundredths():
    weights = torch.tensor([[[(0.126, 0.874, 0.0), (0.5, 0.25, 0.25)]]])
    data = given(display.heads_at_work(still(), weights, "ab", "xyz", start=(0, 0, 1)))
    assert data["maps"] == [[[[13, 87, 0], [50, 25, 25]]]]
    assert data["heads"] == ["head 1"]


def test_the_first_look_draws_what_it_is_given():
    figure = display.first_look(name="look")
    data, page = given(figure), parse(figure)
    it = data["words"].index("it")
    shares = [rows[it] for rows in data["weights"][0]]
    drawn = [float(curve["stroke-width"]) for curve in page.select(".aa-look path")]
    solid = [curve["stroke-opacity"] == "0.9" for curve in page.select(".aa-look path")]
    bars = [[float(bar["height"]) for bar in strip("rect")] for strip in page.select(".aa-gets")]
    assert [len(strip) for strip in bars] == [2 * len(data["words"])] * 2
    assert [round(100 * high / 42) for high in bars[1]] == [
        min(part, 100) for pair in data["wrong"][0] for part in pair
    ]
    inks = [[bar["fill"] for bar in strip("rect")] for strip in page.select(".aa-gets")]
    assert inks[0] == ["var(--aa-h)", "var(--aa-d)"] * 8
    assert inks[1] == ["var(--aa-h)"] * 8 + ["var(--aa-d)"] * 8, "each wears its head's colour"
    assert len(drawn) == len(shares[0]) + len(shares[1])
    thirsty = len(data["words"]) - 1
    arrives = [
        share * brought
        for row in shares
        for share, brought in zip(row, data["gives"][0], strict=True)
    ]
    assert [round((width - 0.4) / 0.08) for width in drawn] == arrives
    assert arrives[thirsty] == max(arrives), "the widest ends where the answer is"
    assert [place for place in range(16) if solid[place]] == [it, thirsty, 8 + it, 8 + thirsty], (
        "the others give nothing"
    )
    idle = [float(text["x"]) - 15 for text in page.select(".aa-look .aa-gives")]
    assert idle == [data["places"][1], data["places"][3]], "the cat and the milk give nothing"
    right, same = ([rows[it] for rows in data[name][:2]] for name in ("right", "wrong"))
    assert right[0] != right[1], "two sentences, told apart"
    assert same[0] == same[1], "merged wrongly, they are not"
    assert f"{right[0][0] / 100:.2f} animal" in figure.html
    assert "it → cat" in figure.html
    assert data["kinds"] == ["cat", "milk"]
    for pair in (right[1], same[0]):
        assert "{:.2f} and {:.2f}".format(*(share / 100 for share in pair)) in figure.html
    alone = display.first_look(name="look", merge=False)
    assert "transpose" in figure.html
    assert "transpose" not in alone.html
    assert not given(alone)["merge"]


def test_under_a_causal_mask_only_the_last_word_can_tell():
    figure = display.first_look(name="look", merge=False, causal=True)
    data = given(figure)
    it = data["words"].index("it")
    for rows in data["weights"][0]:
        assert not any(rows[it][it + 1 :])
    thirsty, sweet = data["right"][:2]
    assert thirsty[it] == sweet[it]
    assert thirsty[-1] == sweet[-1][::-1] == [100, 2]
    assert "it → ?" in figure.html


def test_the_storyteller_is_drawn_with_what_it_would_say_next():
    ten = chapters.load("10_a_little_world")
    model, text = ten.shipped(0), "tom had a"
    means = torch.zeros(2, 2, 24)
    settings = {"longest": ten.LONGEST, "edge": ten.EDGE, "name": "story", "temperatures": [0]}
    figure = display.storyteller({"it": (model, means)}, ten.WORDS, {"a": text}, **settings)
    ids = torch.tensor([[ten.NUMBER[word] for word in [ten.EDGE, *text.split()]]])
    with torch.no_grad():
        share, best = model(ids)[0, -1].softmax(-1).max(-1)
    assert f"Next comes {ten.WORDS[best]} with a chance of {share:.2f}." in figure.text
    data = given(figure)
    assert data["words"] == list(ten.WORDS)
    assert data["texts"] == [{"name": "a", "text": text}]
    shapes = {key: [x for x in sizes if x] for key, *sizes in data["shapes"]}
    assert shapes == {key: [*x.shape] for key, x in model.state_dict().items()}


def test_two_go_on_with_each_ending_in_their_own_way():
    path, ten = chapters.load("short_path"), chapters.load("10_a_little_world")
    figure = path.speak()
    for ending, right in (("thirsty", "cat wanted"), ("sweet", "milk was")):
        text = path.GO_ON.format(ending)
        assert f"After “{text}”, model A: {right}" in figure.text
    assert figure.text.count("model B: cat ran") == 2
    shapes = {key: [x for x in sizes if x] for key, *sizes in given(figure)["shapes"]}
    assert shapes == {key: [*x.shape] for key, x in ten.shipped().state_dict().items()}


def test_a_word_is_drawn_by_its_chance():
    call, logits = script("host/decoder"), [0.0, 2.0, 1.0]
    for temperature in (0, 0.5, 1, 2):
        shares = (torch.tensor(logits).double() / (temperature or 1)).softmax(-1).tolist()
        best = call("likeliest", logits, "abc", temperature)
        assert best == [["abc"[i], pytest.approx(shares[i])] for i in (1, 2, 0)]
        drawn = [call("drawn", best, (i + 0.5) / 1000) for i in range(1000)]
        for word, share in best:
            assert drawn.count(word) == pytest.approx(1000 * share, abs=1)
        assert call("drawn", best, 0) == "b"


def test_a_cache_fills_as_the_formulas_count():
    e = 24
    for step, cached in product(range(1, 9), (False, True)):
        work, n = cache_filling.work(step, cached), 1 if cached else step
        # A vector is a product with a matrix; a weight costs its score and its part of the mix.
        flops = (work["vectors"] + n) * counting.product_flops(1, e, e)
        flops += work["weights"] * 2 * counting.product_flops(1, e, 1)
        assert flops == 8 * n * e**2 + counting.score_flops(n, step, e)
    words = ("the", "cat", "drank", "milk", "because")
    filling = display.cache_filling(torch.rand(5, 5).tril(), words, name="try", step=3)
    assert filling.html.count(">kept<") == 4
    assert filling.html.count(">new<") == 9 + 3


MODELS = [*PRESETS.values(), Model(512, 1, layers=0, decoder_layers=1)]


def test_the_calculator_counts_as_python():
    call = script("calculator")
    for index in range(40):
        draw = random.Random(index)
        h = draw.choice([1, 2, 3, 25, 96])
        other = {"embed_dim": h * draw.randint(1, 128), "num_heads": h, "layers": 3}
        model = replace(
            MODELS[index % len(MODELS)],
            **other if index >= len(MODELS) else {},  # first those that are published
            decoder_layers=draw.choice([0, 1, 7]),
            norms=draw.choice([0, 1]),
        )
        given = asdict(model), draw.choice([1, 3, 131_072]), draw.choice([1, 1024])
        sizes = (model, *given[1:])
        assert call("rows", *given, 2) == counting.rows(*sizes, 2)
        assert call("notes", *given, 2) == counting.notes(*sizes, 2)
    assert call("nearest", call("divisors", 1600), 7) == 4  # of 1, 2, 4, 5, 8


def test_clocks_show_the_sinusoidal_code():
    code = sinusoidal_code(60, 6)
    hands = display.clocks(code, name="try", shown=(0, 7))
    for number in code[7].tolist():
        assert f">{number:.2f}<".replace("-", "−") in hands.html


def test_arrows_turn_as_the_package_rotates():
    """At positions of which each tells query from key, and forward from back."""
    arrows = torch.tensor([[1.0, 1.0], [3.0, 0.5]], dtype=torch.float64)
    shown = [(5, 1), (9, 4)]
    figure = display.rotation(*arrows, name="try", words=("it", "cat"), shown=shown)
    for at in shown:
        angles = torch.tensor(at)[:, None]                 # (2, 1), at 1 radian per position
        a, b = rotate(arrows, angles.cos(), angles.sin())  # (2,)
        assert f"it at {at[0]}, cat at {at[1]}: score {a @ b:.2f}" in figure.text


def test_hands_score_as_the_package_rotates():
    """With two ways of turning, one of which also makes scores larger."""
    query, key = torch.randn(2, 8).double()
    scalings: dict[str, dict[str, Any] | None] = {
        "as trained": None,
        "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    }
    ways = {way: rotary_frequencies(8, scaling=how) for way, how in scalings.items()}
    squared = {way: (speeds, factor**2) for way, (speeds, factor) in ways.items()}
    how: dict[str, Any] = {"trained": 16, "farthest": 40, "at": 30, "shown": {"slow": 3}}
    figure = display.hands(query, key, squared, name="try", **how)
    data = json.loads(str(parse(figure).select_one(".aa-live")["data-state"]))
    for way, scaling in scalings.items():
        turn = RotaryEmbedding(8, scaling=scaling)
        asks = turn(query.expand(41, -1), torch.arange(41))  # (41, 8)
        line = asks @ turn(key[None], torch.tensor([0]))[0] / math.sqrt(8)
        best = int(line.argmax())
        said = f"{way}: highest at distance {best}, {line[best]:.2f}; {line[1]:.2f} at 1"
        assert said in figure.text
        alive = script("hands")("scores", data["ahead"], data["most"], data["ways"][way], 40)
        torch.testing.assert_close(torch.tensor(alive).double(), line, atol=0.01, rtol=0)


def test_the_merged_masks_are_drawn():
    scores = 3 * torch.randn(2, 5, 5, generator=torch.Generator().manual_seed(6))
    padding = torch.arange(5) < torch.tensor([[0], [1]])  # the first row of the second sees nothing
    words = [[f"w{i}{j}" for j in range(5)] for i in range(2)]
    figure = display.mask_merger(words, scores, padding)
    future = masks.block_future(5)
    blocked = padding[:, None] | future
    expected = scores.masked_fill(blocked, -math.inf).softmax(-1)
    cells = [tag.text for tag in parse(figure).select("td:not(thead td)")]
    seen = []
    for row, keys, weights in zip(
        future.repeat(2, 1), padding.repeat_interleave(5, 0), expected.flatten(0, 1), strict=True
    ):
        marks = ["p" * p + "f" * f for p, f in zip(keys, row, strict=True)]
        alone = ["NaN"] * 5
        seen += (
            alone
            if all(marks)
            else [
                mark or mask_merger.written(w)
                for mark, w in zip(marks, weights.tolist(), strict=True)
            ]
        )
    assert cells == seen
    assert cells.count("NaN") == 5
    assert (
        f"{int(blocked[0].sum())} in sentence 1, {int(blocked[1].sum())} in sentence 2"
        in figure.text
    )
    for weight in (0.0, 1.0, 1 / 3, 0.0049, 0.996, 1e-9):
        assert script("mask_merger")("digits", weight) == mask_merger.written(weight)


def test_the_needle_gives_the_head_of_the_chapter_its_weights():
    one = chapters.load("01_one_head")
    query, keys = (one.EMBEDDINGS @ one.W_Q)[5], one.EMBEDDINGS @ one.W_K  # (d,), (m, d)
    figure = display.needle(query, keys, one.WORDS, ("animal", "quality"), who="it", name="try")
    shown = given(figure)["keys"]
    for direction in ([2, 1], [-1, 0.3]):
        asked = torch.tensor(direction).double()  # (d,)
        expected = (keys.double() @ asked / math.sqrt(2)).softmax(-1).tolist()
        of = dict(zip(one.WORDS, expected, strict=True))
        weights = script("needle")("weigh", direction, shown)
        assert weights == pytest.approx([of.get(word, expected[0]) for word, *_ in shown])
    assert "cat at (3, 0) scores 6 and gets 0.46" in figure.text


def test_what_a_word_collects_is_drawn_and_told_of_every_sentence():
    weights, values = torch.tensor([0.25, 0.75]), torch.tensor([[2.0], [0.0]])
    scenes = {
        ("one",): (["a", "b"], weights, values),
        ("two",): (["a", "c"], weights.flip(0), values),
    }
    figure = display.collects(
        {"last": ["one", "two"]},
        scenes,
        ["warmth"],
        1,
        name="try",
        line=(1.0, "no", "yes"),
        notes={("two",): "Hot."},
    )
    page, data = parse(figure), given(figure)
    assert [each["parts"] for each in data["scenes"]] == [[[0.5, 0.0]], [[1.5, 0.0]]]
    assert [each["brings"] for each in data["scenes"]] == [[1, 0]] * 2, "a zero brings nothing"
    told = list(page.select_one("p").stripped_strings)
    assert told[0] == "one: “b” collects 0.50 of warmth: no."
    assert told[1] == "two: “c” collects 1.50 of warmth: yes. Hot."
    bars = [float(bar["width"]) for bar in page.select("rect")]
    assert bars == [pytest.approx(0.5 * data["unit"], abs=0.06)]
    opacity = [curve["stroke-opacity"] for curve in page.select(".aa-collects path[fill=none]")]
    assert opacity == ["0.85", "0.25"]
    assert "The weights of “b”: a 0.25, b 0.75." in figure.text


def test_a_bar_beyond_the_line_answers_the_question():
    values = torch.tensor([[0.0, 2.0], [0.0, 0.0]])
    scenes = {
        (at,): (["a", "b"], torch.tensor([w, 1 - w]), values) for at, w in (("x", 0.2), ("y", 0.8))
    }
    given = {"line": (1.0, "no", "yes"), "asks": "Warm?"}
    figure = display.collects({"at": ["x", "y"]}, scenes, ["wet", "warm"], 1, name="try", **given)
    told = list(parse(figure).select_one("p").stripped_strings)
    assert told == [
        "x: Warm? no: “b” collects 0.00 of wet and 0.40 of warm.",
        "y: Warm? yes: “b” collects 0.00 of wet and 1.60 of warm.",
    ]
    assert 'stroke-dasharray="4 3"' in figure.html


def test_what_a_word_looks_at_is_not_said_to_be_collected():
    scenes = {("x",): (["a", "b"], torch.tensor([0.2, 0.8]), torch.eye(2))}
    figure = display.collects({"at": ["x"]}, scenes, ["a", "b"], 1, name="try", looks=True)
    assert "“b” looks at a with 0.20 and at b with 0.80." in figure.text
    assert "collects" not in figure.text


def test_a_wider_head_gives_one_key_more_unless_it_is_divided():
    scores = torch.tensor([[4.0, 0.0], [0.0, 2.0]])  # (n, m)
    figure = display.divided({4: scores}, name="try", width=4, query=1)
    (width,) = given(figure)["widths"]
    assert width["weights"] == [[12, 88], [27, 73]]
    assert width["most"] == ["0.88", "0.73"]
    assert width["usual"] == ["0.93", "0.81"]


def test_a_head_set_by_hand_answers_as_attention_does():
    one = chapters.load("01_one_head")
    sides, columns = one.FEATURES[:2], ["animal", "quality"]
    nothing, start, solved = torch.zeros(3, 3, 4, 2)
    start[2, :2] = solved[2, :2] = torch.eye(2)
    solved[:2, 3, 1] = torch.tensor([2, 1])
    settings = {"nothing": (*nothing,), "start": (*start,), "solved": (*solved,)}
    four = {}
    for words in (one.WORDS, one.SWEET, one.CATS, one.BUTTER):
        right = int(words[-1] == "sweet")
        four[f"{words[2]} … {words[-1]}"] = words, one.embed(words), right
    options = {"name": "try", "won": "All!"}
    figure = display.by_hand(settings, four, one.FEATURES, columns, sides, 5, **options)
    data, call = given(figure), script("by_hand")
    draw, answers = torch.Generator().manual_seed(0), []
    heads = [matrices for _, matrices in data["settings"]]
    heads += [torch.randint(3, (3, 4, 2), generator=draw).tolist() for _ in range(3)]
    for head in heads:
        for sentence in data["sentences"]:
            x = torch.tensor(sentence["rows"]).double()
            q, k, v = (x @ torch.tensor(matrix).double() for matrix in head)
            mixed, weights = one.attend(q, k, v)
            found = call("ask", head, sentence["rows"], 5)
            assert found["weights"] == pytest.approx(weights[5].tolist())
            assert found["sums"] == pytest.approx(mixed[5].tolist())
            draw_or_side = None if mixed[5].diff().abs() < 1e-9 else int(mixed[5].argmax())
            assert found["says"] == draw_or_side
            answers.append(found | {"right": found["says"] == sentence["answer"]})
    nothing, start, solved = answers[:4], answers[4:8], answers[8:12]
    assert [each["says"] for each in nothing] == [None] * 4
    said = "“It” asks for nothing. It looks at all words alike."
    assert call("tell", start[0], one.WORDS, start, "All!") == f"{said} 2 of 4 right."
    assert call("tell", start[0], one.WORDS, start[:1], "All!") == said
    said = "The query of “it” is (0, 2), and the key of “thirsty”, (0, 2), fits it best, 4. "
    said += "4 of 4 right. All!"
    assert call("tell", solved[0], one.WORDS, solved, "All!") == said
    assert "kittens … sweet: 0.88 of animal, 0.38 of food, animal, wrong; " in figure.text
    assert "butter … thirsty: 1.40 of animal, 0.49 of food, animal, right." in figure.text


def test_a_mix_lies_between_what_is_mixed():
    scenes = {"one": (2.0, -2.0), "two": (-2.0, 2.0), "other": (0.0, 4.0)}
    figure = display.lukewarm(scenes, 0.75, ["cat", "milk"], name="try")
    for scene in scenes.values():
        mixed = torch.tensor(scene) @ torch.tensor([0.75, 0.25])
        assert script("lukewarm")("mix", scene, 0.75) == pytest.approx(mixed.item())
    said = "1.00 and −1.00 from one; −1.00 and 1.00 from two; 1.00 and 3.00 from other."
    assert said in figure.text


def test_a_glass_holds_what_was_poured():
    scenes = {"warm": ((2, -2), torch.tensor([[0.5, 0.5]])), "cold": ((-2, 2), torch.ones(1, 2))}
    figure = display.glasses(scenes, ["cat", "milk"], name="try")
    assert "warm: 0.00. cold: 0.00. You cannot tell one from the other." in figure.text
    thin, wide = (
        {float(way["stroke-width"]) for way in drawing.select(".aa-stream")}
        for drawing in parse(figure).select("svg")
    )
    assert (thin, wide) == ({9}, {18})
    apart = {"a": ((2, -2), torch.eye(2)), "b": ((-2, 2), torch.eye(2))}
    writes = torch.eye(3)[[0, 2]], ["animal", "action", "food"]
    figure = display.glasses(apart, ["cat", "milk"], name="try", writes=writes)
    assert "a: animal 2.00, action 0.00, food −2.00. b: animal −2.00, " in figure.text
    assert "You can tell one from the other." in figure.text
    assert len(parse(figure).select(".aa-stream")) == 4  # nothing into the other glass


def test_at_every_share_there_is_a_scene_to_confuse_a_head():
    call, scene = script("lukewarm"), [2.0, -2.0]
    for twentieths in range(21):
        share = twentieths / 20
        low, high = call("ends", scene, share, 4)
        for end in (low, high):
            assert max(map(abs, end)) <= 4
            assert call("mix", end, share) == pytest.approx(call("mix", scene, share))
        assert math.dist(scene, high) > 3, share
    assert call("ends", scene, 0.75, 4)[1] == [0, 4]


def test_a_duel_counts_the_longer_bar():
    zero = torch.tensor([[1.0, 0, -1], [0, 2, 1]])
    one = torch.tensor([[0.0, 3, -1], [0, -2, 5]])
    gives = torch.tensor([2.0, 0, 1])
    sentences = {"a & b": (["a", "&", "b"], 0, zero, one, gives)}
    keys = torch.eye(2), torch.eye(2).flip(0)
    given_keys = keys, ("left", "right")
    figure = display.duel(sentences, ("left", "right"), -1, *given_keys, name="try")
    assert "a & b: 1.42 of left and 0.42 of right, left ✓." in figure.text
    assert "With both numbers at −1: 1.94 : 0.01; right in 1 of 1." in figure.text
    (kept,) = given(figure)["sentences"]
    for number in (-1, 0, 0.5):
        looks = (zero + number * (one - zero)).softmax(-1)
        for i in range(2):
            found = script("duel")("bring", kept["zero"][i], kept["one"][i], kept["gives"], number)
            assert found[0] == pytest.approx(looks[i].tolist(), abs=1e-4)
            assert found[1] == pytest.approx((looks[i] @ gives).item(), abs=1e-4)
    bars = parse(figure).select("rect[stroke]")
    brings = (zero.softmax(-1) @ gives).tolist()
    assert [float(bar["width"]) for bar in bars] == pytest.approx(
        [105 * x for x in brings], abs=0.1
    )
    swapped = {"a & b": (["a", "&", "b"], 1, zero, one, gives)}
    assert "left ✗." in display.duel(swapped, ("left", "right"), -1, *given_keys, name="try").text


def test_a_net_says_how_far_off_it_is():
    scenes = torch.tensor([[-1.0, -1], [-1, 1], [1, -1], [1, 1]])
    nets = {
        "flat": {1: scenes * 0, 9: scenes * torch.tensor([1.0, 0])},
        "whole": {1: -scenes, 9: scenes},
    }
    figure = display.unfolds([nets], scenes, 2, ["x", "y"], name="try")
    for looks in nets.values():
        for answers in looks.values():
            expected = (answers - scenes).square().mean().sqrt().item()
            found = script("unfolds")("off", answers.tolist(), scenes.tolist())
            assert found == pytest.approx(expected)
    assert "flat off by 1.00 at step 1, by 0.71 at the end" in figure.text
    assert "whole off by 2.00 at step 1, by 0.00 at the end" in figure.text


def test_dragged_along_its_line_a_scene_keeps_its_mix():
    call, scene = script("lukewarm"), [2.0, -2.0]
    for twentieths in range(21):
        share, found = twentieths / 20, set()
        for place in product((-9, -1.3, 0, 2.2, 9), repeat=2):
            moved = call("along", scene, share, place, 4)
            assert max(map(abs, moved)) <= 4
            assert call("mix", moved, share) == pytest.approx(call("mix", scene, share))
            found.add(tuple(moved))
        assert len(found) > 2, share
    assert call("along", scene, 0.75, [0, 4], 4) == [0, 4]
    assert call("along", scene, 0.75, [1.02, 0.95], 4) == [1, 1]


def test_a_shelf_is_walked_as_torch_reads():
    call, x = script("shelf"), torch.arange(24)
    for view in (x.view(4, 6), x.view(2, 3, 4).transpose(0, 1), x.view(4, 6).mT):
        places, given = view.flatten().tolist(), (list(view.shape), list(view.stride()))
        assert call("walk", *given) == places
        assert [call("index", i, view.shape) for i in range(24)] == view_indices(view)
        assert call("jumps", places) == [i for i in range(23) if places[i + 1] != places[i] + 1]
    layouts = {"cut": ("n, d", x.view(4, 6)), "moved": ("d, n", x.view(4, 6).mT)}
    figure = display.shelf(layouts, [*"abcdefghijklmnopqrstuvwx"], "wxyz", name="try", step=3)
    assert "cut: no jumps, the first 3 numbers are a b c." in figure.text
    assert "moved: 2 jumps so far, 23 in all, the first 3 numbers are a g m." in figure.text


def view_indices(view):
    return [list(index) for index in product(*map(range, view.shape))]


def test_rooms_have_the_same_walls_and_hearers_in_both_languages():
    five = chapters.load("05_batches")
    every = [*product(range(2), range(12))]
    for turns in (*five.TURNS.values(), five.cut(False, 2)):
        number = five.room_of(turns, 2, 12).tolist()
        for word in every:
            assert script("rooms")("walls", number, *word) == houses.walls(number, *word)
    for word, other in product(every, every):
        assert script("rooms")("hears", [*word], [*other]) == houses.hears(word, other)
    assert houses.walls([[0, 1], [0, 1]], 0, 1) == ["north", "west", "east"]


def test_a_row_of_words_is_cut_into_rooms_and_the_figure_says_which_mix():
    five = chapters.load("05_batches")
    for sort, k, said in (
        (False, 2, "12 of 12 rooms mix the two sentences."),
        (False, 24, "1 of 1 room mixes the two sentences."),
        (True, 8, "1 of 3 rooms mixes the two sentences."),
        (True, 4, "each sentence is cut into 3 pieces."),
        (True, 12, "a room for each sentence."),
    ):
        number = five.room_of(five.cut(sort, k), 2, 12)
        assert script("rooms")("verdict", number.tolist()) == said
        drawn = houses.who_hears(
            [houses.Choice("cut", ["here"], 0)],
            [[*"abcdefghijkl"], [*"mnopqrstuvwx"]],
            {(0,): number},
            (0, 11),
            {(0,): ["a", "b", "a", "c"]},
            rows={"y": torch.arange(24) if sort else torch.arange(24).view(2, 12).mT.flatten()},
            room=(0, 0),
            name="pieces",
        )
        found = BeautifulSoup(drawn.html, "html.parser")
        texts = [piece.find_all(string=str.isalpha) for piece in found.select(".aa-pieces > div")]
        assert [len(words) for words in texts] == [k] * (24 // k)
        assert "".join(texts[0])[:2] == ("ab" if sort else "am")
        lit = "".join(cell.find(string=True) for cell in found.select(".aa-lit"))
        assert lit[-1] == "l"
        assert ("m" in lit) == (not sort and k == 24)


@pytest.mark.parametrize("split", ["", " "])
def test_a_strip_says_of_each_cell_what_it_is(split):
    texts = [split.join(x) for x in ("abc", "xby", "xbd", "abcd")]
    rows = [display.Strip("right"), display.Strip("false"), display.Strip("one", 0, 1)]
    rows.append(display.Strip("two", 0))
    choice = display.Choice("sign", ["<", ">"], 1)
    figure = display.strips(
        [choice], [["after", 0]], rows, {(1,): texts}, split=split, room=(1, 1), name="try"
    )
    data, wanted = given(figure), ["copied", "same", "wrong", "same", "same", "same", "wrong"]
    assert [x["class"][0] for x in parse(figure).select("i")] == (
        ["aa-plain"] * 6 + [f"aa-{mark}" for mark in wanted]
    )
    assert f"sign >. right: {texts[0]}; false: {texts[1]}" in figure.text
    assert data["found"] == {"1": texts}
    cells = [list(x) for x in ("abc", "xby", "xbd", "abcd")]
    for mine, right, other in ((2, 0, 1), (3, 0, -1), (0, -1, -1)):
        given_to = [cells[mine]] + [cells[i] if i >= 0 else None for i in (right, other)]
        expected = strips.marks(given_to[0], given_to[1], given_to[2] or [])
        assert script("strips")("marks", *given_to) == expected


def test_what_is_exchanged_is_told_with_how_often_it_turns_the_answer():
    lines = {
        "before layer 2": [exchange.Swap("sweet", "milk", [0.0, 1.0, 0.0])],
        "before layer 1": [
            exchange.Swap("it", "", [1.0, 0.0, 0.0]),
            exchange.Swap("sweet", "cat", [0.75, 0.2, 0.05]),
        ],
    }
    words = ["it", "thirsty"], ["it", "sweet"]
    runs = exchange.Runs(192, "… drank milk", *words, "cat", [1.0, 0.0, 0.0], lines)
    one = exchange.exchange({"about a thing": runs}, name="try")
    assert one.text.endswith("twin. before layer 2: sweet 1.00; before layer 1: sweet 0.20.")
    assert [x.text for x in parse(one).select("i")] == ["1.00", "", "0.20"]
    assert parse(one).select_one("em").text == "sweet"
    two = exchange.exchange({"first": runs, "second": runs}, name="try")
    assert "; second, before layer 2: sweet 1.00" in two.text
    assert [each["name"] for each in given(two)["runs"]] == ["first", "second"]


def test_a_silenced_head_is_told_with_what_stays_right_in_each_model():
    lines = {
        name: [
            exchange.Swap("1.1", "", [right, 0.25, 0.0]),
            exchange.Swap("“it”", "", [0, 0, 1]),
        ]
        for name, right in (("First model", 0.75), ("Second model", 0.5))
    }
    runs = exchange.Runs(192, "", [], [], "", [1.0, 0.0, 0.0], lines)
    made = exchange.exchange({"about a thing": runs}, name="try")
    for line, right in (("First model", "0.75"), ("Second model", "0.50")):
        assert f"{line}: 1.1 {right}/0.25/0.00, “it” 0.00/0.00/1.00" in made.text
    cell = parse(made).select_one(".aa-silenced i")
    assert (cell.text, cell["style"]) == ("1.10.75", "--one: 75%; --two: 100%")
    assert not parse(made).select("b, em")


def test_a_set_of_wheels_finds_its_verdict():
    parts = {"turn": ".T", "one": " + 1", "two": " * 2"}
    sets = [set(), *({1}, {2}, {1, 2}, {4}, {1, 4}, {2, 4}, {1, 2, 4})]  # the bits that are set
    said = {"call": [f"without {sorted(bits)}" for bits in sets]}
    figure = wheels.wheels(["y = x.T + 1", "z = y.T * 2"], parts, said, ["turn", "two"], name="try")
    data = given(figure)
    assert data["out"] == [0, 2]
    assert data["verdicts"][script("wheels")("place", data["out"])] == ["without [1, 4]"]
    assert "Without turn, two: call, without [1, 4]." in figure.text
    assert [x.text for x in parse(figure).select("pre del")] == [".T", ".T", " * 2"]
    assert parse(figure).select_one("pre").text == "y = x.T + 1\nz = y.T * 2\n"
    whole = wheels.wheels(["y = x.T"], {"turn": ".T"}, {"call": ["right", "stops"]}, [], name="try")
    assert whole.text.endswith("Nothing is missing.")
    with pytest.raises(ValueError, match="3 parts make 8 sets"):
        wheels.wheels([], parts, {"call": ["stops"]}, [], name="try")


def test_without_a_wheel_a_model_tells_another_story():
    said, parts = {"call": ["right", "differs"]}, {"turn": ".T"}
    tales = [Told(["all right"], ["it", "ran", "."]), Told(["half"], ["it", "hid", ".", "hid"])]
    figure = wheels.wheels(["y = x.T"], parts, said, ["turn"], tales=tales, name="try")
    assert figure.text.endswith("call, differs. half. it [hid] . [hid]")
    assert [x.text for x in parse(figure).select(".aa-tells mark")] == ["hid", "hid"]
    (whole, first), (_, words) = given(figure)["tales"]
    assert whole == "all right"
    pieces = script("wheels")("marked", words, first)
    assert [word for word, new in pieces if new] == ["hid", "hid"]
    with pytest.raises(ValueError, match="1 parts make 2 sets"):
        wheels.wheels(["y = x.T"], parts, said, [], tales=tales[:1], name="try")


def test_tiles_are_visited_as_the_package_does():
    """The last visit of each query ends with what attention gives, and its log-sum-exp."""
    scores, values = torch.randn(7, 7).double(), torch.randn(7).double()
    visits = tiles_visited.visits(scores, values, True, 2)
    last = {rows.start: running for rows, _, running in visits}
    _, largest, total, mix = torch.cat([*last.values()]).unbind(-1)
    masked = scores.masked_fill(masks.block_future(7), -math.inf)
    torch.testing.assert_close(mix / total, masked.softmax(-1) @ values)
    torch.testing.assert_close(largest + total.log(), masked.logsumexp(-1))
    one = chapters.load("01_one_head")
    x = one.EMBEDDINGS  # (n, e)
    figure = display.tiles_visited(x @ x.mT / 2, x[:, 0], one.WORDS, name="try", tile=2, step=12)
    assert "<td>0.61</td><td>2.00</td><td>3.36</td><td>4.43</td><td>1.32</td>" in figure.html
    assert "12 of 16 are visited; the keys of the last are was, thirsty." in figure.text
    assert '"step":9' in figure.html  # alive, it begins with the first tile of these queries


def test_the_cone_reaches_what_a_stack_of_windows_sees():
    for layers, window, everywhere in product((1, 2, 4, 6), (1, 3, 8), (0, 1, 4)):
        stack = [None if i == everywhere else window for i in range(1, layers + 1)]
        seen = torch.eye(16, dtype=torch.bool)
        for each in stack:
            blocked = block_by_position(torch.arange(16), 16, each)
            seen = (~blocked).float() @ seen.float() > 0
        firsts = reach.cone(16, stack)
        assert script("reach")("cone", 16, layers, window, everywhere) == firsts[::-1]
        assert seen[-1].equal(torch.arange(16) >= firsts[0])
        said = script("reach")("told", 16, layers, window, everywhere)
        assert f"{seen[-1].sum()} of 16 tokens" in said
        assert everywhere or f" = {(window - 1) * layers + 1}." in said
    figure = display.reach([[3] * 4, [3, None, 3]], name="try", tokens=9, live_tokens=16)
    assert "4 layers, window of 3: 9 of 9 tokens; 3 layers, window of 3, layer 2 g" in figure.text
    assert given(figure) == {"tokens": 16, "layers": 4, "window": 3}


def test_a_call_reads_what_the_cache_chapter_says():
    gpu = dict(chapters.load("21_cache").H100)
    mine = script("call_bytes")
    for load in product((1, 32, 2048), (128, 131_072), (0, 256, 8192), (16, 8)):
        found = call_bytes.call(gpu, *load)
        assert mine("call", gpu, *load) == pytest.approx(found)
        assert mine("named", *load) == call_bytes.named(*load)
        assert mine("said", found) == call_bytes.said(found)
    longest = call_bytes.call(gpu, 1, 131_072)
    assert longest["bytes"] == gpu["weights"] + 2**34
    assert longest["fits"]
    assert not call_bytes.call(gpu, 32, 131_072)["fits"]
    assert call_bytes.call(gpu, 1, 2**17, 0, 8)["bytes"] == gpu["weights"] + 2**33
    few, many = (call_bytes.call(gpu, x, 128) for x in (437, 438))
    assert few["reading"] > few["computing"]
    assert many["reading"] < many["computing"]
    one, all_at_once = (call_bytes.call(gpu, 32, 1024, x)["computing"] for x in (0, 512))
    each = sum(gpu["flops"] - gpu["output"] + i * gpu["pair"] for i in range(1, 513))
    assert all_at_once - one == pytest.approx(1000 * each / gpu["arithmetic"])
    figure = display.call_bytes([(1, 1024, 0, 16)], gpu, name="try", alive=True)
    assert "1 sequence of 1,024 tokens: 15 GB, 4.5 ms: 221 tokens/s." in figure.text
    assert given(figure) == {"loads": [[1, 1024, 0, 16]], "gpu": gpu}
    assert "data-live" not in display.call_bytes([(1, 1024, 0, 16)], gpu, name="try").html


def test_a_budget_that_cuts_a_prompt_cuts_its_arithmetic_and_keeps_the_sum():
    gpu = dict(chapters.load("21_cache").H100) | {"bandwidth": 1e30}  # nothing but arithmetic
    whole, parts = (budget.served(gpu, most, 4096, 32, 1024) for most in (8192, 544))
    assert (len(whole), len(parts)) == (1, 8)
    alone = [call_bytes.call(gpu, 32, 1024 + i)["computing"] for i in range(8)]
    assert sum(parts) - sum(alone) == pytest.approx(whole[0] - alone[0])
    gpu = dict(chapters.load("21_cache").H100) | {"arithmetic": 1e30}  # nothing but reading
    last = budget.served(gpu, 544, 4096, 32, 1024)[-1]
    kept = 32 * (1024 + 7) + 4096
    assert last == pytest.approx(1000 * (gpu["weights"] + kept * gpu["kept"]) / gpu["bandwidth"])


def test_the_tune_is_played_in_the_orders_that_compute_attention():
    figure = display.tune(name="try")
    words, call = given(figure)["words"], script("tune")
    right = [each["word"] for each in words]
    assert right[3:6] == ["scale", "mask", "softmax"]
    other = [*right[:3], "mask", "scale", *right[5:]]
    orders = [right[:i] + right[i : i + 2][::-1] + right[i + 2 :] for i in range(9)]
    orders += [random.Random(i).sample(right, 9) for i in range(50)]
    taken = set()
    for order in orders:
        played = []
        for word in order:
            place = call("fits", words, played, word)
            said = call("told", words, played, word)
            assert (place < 0) == said.startswith("Too early: ")
            if place < 0:
                break
            played.append(place)
        assert (len(played) == 9) == (order in (right, other)), order
        taken |= {tuple(order)} if len(played) == 9 else set()
    assert len(taken) == 2, "scale and mask may trade places"


@pytest.mark.parametrize(("split", "merge"), [*product([True, False], repeat=2)])
def test_numbers_go_where_torch_puts_them(split, merge):
    call = script("where_numbers_go")
    for n, h, d in product((1, 5), (1, 3, 4), (1, 2)):
        x = torch.arange(n * h * d).view(n, h * d)                                # (n, h * d)
        heads = split_heads(x, h) if split else split_without_transpose(x, h)     # (h, n, d)
        result = merge_heads(heads) if merge else merge_without_transpose(heads)  # (n, h * d)
        sizes = {"n": n, "h": h, "d": d}
        made = [step.flatten().tolist() for step in (x, heads, result)]
        assert call("steps", sizes, split, merge) == made
        assert call("count", sizes, split, merge) == {
            "heads": int((heads != split_heads(x, h)).sum()),
            "result": int((result != x).sum()),
            "held": [(head // (h * d)).unique().tolist() for head in heads],
        }


def test_without_the_transpose_a_row_is_made_of_two_words_of_one_head():
    figure = display.wrong_merge(name="try")
    words = torch.arange(8)
    found = torch.stack([torch.arange(2).view(2, 1).expand(2, 8), words.expand(2, 8)], -1)
    merged = [found.transpose(0, 1).reshape(8, 2, 2), found.reshape(8, 2, 2)]  # (n, h, 2)
    state = json.loads(re.search("data-state='([^']+)'", figure.html)[1])
    assert [rows for _, rows in state["merges"]] == [each.tolist() for each in merged]
    assert state["words"][state["query"]] == "it"
    assert "head 2 for drank and head 2 for milk (without)." in figure.text
    assert figure.html.count('fill-opacity="0.5"') == 4  # two cells of “it”, twice


def test_one_word_draws_each_sentence_and_says_which_noun_it_prefers():
    words, weights = ["cats", "eat", "it"], torch.tensor([[0.6, 0.1, 0.3], [0.04, 0.6, 0.36]])
    asked = [
        display.Asked("a", words, 2, 0, 1, weights),
        display.Asked("b", words, 2, 1, 0, weights),
    ]
    figure = display.one_word(asked, ("one", "two"), name="try")
    assert "What “it” gives. one: cats 0.60, eat 0.10; prefers cats, the one meant." in figure.text
    assert "two: cats 0.04, eat 0.60; prefers eat, not the one meant." in figure.text
    static = figure.html[: figure.html.index("</figure>")]
    assert static.count("<svg") == 2
    verdicts = re.findall(r"of the two, (\w+ [✓✗])", static)
    assert verdicts == ["cats ✓", "eat ✗", "cats ✗", "eat ✓"]
    assert ">0.04<" not in static


def test_a_guess_is_right_where_a_count_is_more_than_the_first_or_is_not():
    rows = {"all": 5, "none": 7, "half": 5, "short": 2}
    figure = display.more_or_less(rows, 8, chance=4, name="try", caption="Dashed: a coin.")
    assert figure.text == "Figure: all: 5 of 8; none: 7 of 8; half: 5 of 8; short: 2 of 8."
    assert "<figcaption>Dashed: a coin.</figcaption>" in figure.html
    counts = given(figure)["rows"]
    assert counts == [list(row) for row in rows.items()]
    right = script("more_or_less")
    assert right("right", counts, [True, True, True]) == 1
    assert right("right", counts, [True, False, False]) == 3
    assert right("right", counts, [False]) == 0


def test_a_state_says_what_its_rule_left():
    keys = {"a": (1.0, 0.0), "b": (0.6, 0.8)}
    facts = [("a", "x"), ("a", "y"), ("b", "x")]
    rules = {"adds": (1, False), "corrects": (1, True), "fades": (0.5, True)}
    figure = display.erases(keys, ["x", "y"], facts, rules, name="try", asked="a")
    said = "adds: x 1.60, y 1.00; corrects: x 0.60, y 0.64; fades: x 0.60, y 0.32"
    assert f"Told: a x; a y; b x. Asked for a, {said}." in figure.text
    data = given(figure)
    for (_, gate, corrects), expected in zip(
        data["rules"], ((1.6, 1), (0.6, 0.64), (0.6, 0.32)), strict=True
    ):
        found = script("erases")("written", keys, ["x", "y"], facts, gate, corrects, "a")
        assert found["answer"] == pytest.approx(expected)


def test_a_sentence_of_ones_own_has_a_row_for_each_choice_and_none_for_one_noun_twice():
    frames = [display.Frame("x", "A eats B because P runs", ["it", "he"])]
    asked = []

    def weigh(texts):
        asked.extend(texts)
        return [torch.arange(36.0).view(6, 6) + i for i in range(len(texts))]

    figure = display.own_sentence(
        frames, ["cat", "dog"], weigh, head="one", start=(1, 0, 0), name="try"
    )
    assert asked[:2] == ["cat eats dog because it runs", "cat eats dog because he runs"]
    assert len(asked) == 4
    data = given(figure)
    assert data["rows"][0][0] == [[], []]
    assert data["rows"][0][1][0] == [2400, 2500, 2600, 2700, 0, 2900]  # the cat eats the dog
    assert data["rows"][0][2][0] == [2600, 2700, 2800, 2900, 0, 3100]  # the other way round
    assert "“dog eats cat because it runs”. one: “it” looks most at “runs” (31.00)." in figure.text
    assert figure.html.count("<svg") == 1
    assert "it → runs" in figure.html
