"""What readers do in a browser: choose a scheme, fold, look up, search, print, take along."""

import re

from playwright.sync_api import expect

from press.site.chapter_list import address

BATCHES = address("05_batches")
PHONE = {"width": 360, "height": 760}
SCHEME = "document.body.dataset.mdColorScheme"


def test_the_scheme_is_the_systems_until_one_is_chosen(visit):
    page = visit(BATCHES, color_scheme="dark")
    assert page.evaluate(SCHEME) == "slate"
    page.locator("label[for^=__palette]:visible").click()
    assert page.evaluate(SCHEME) == "default"
    page.locator(".md-footer__link--next").click()
    page.wait_for_url("**/masks/")
    assert page.evaluate(SCHEME) == "default", "remembered"


# Of every row with both: whether its code stands right of its notes, and whether below them.
ROWS = """() => [...document.querySelectorAll(".aa-pair:has(> .aa-say + .aa-show)")]
  .filter((row) => row.firstElementChild.innerText.trim()).map((row) => {
  const [say, show] = [...row.children].map((side) => side.getBoundingClientRect());
  return [show.left >= say.right, show.top >= say.bottom - 1];
})"""
BESIDE, BELOW = {(True, False)}, {(False, True)}


def rows(page):
    return set(map(tuple, page.evaluate(ROWS)))


def test_notes_and_code_stand_side_by_side_on_request(visit):
    page = visit(BATCHES)
    button = page.get_by_role("button", name="Notes beside code")
    assert rows(page) == BELOW
    button.press("Enter")
    expect(button).to_have_attribute("aria-pressed", "true")
    assert rows(page) == BESIDE
    page.route("**/reading.js", lambda route: route.fulfill(content_type="text/javascript"))
    page.reload()
    assert rows(page) == BESIDE, "remembered, before anything is drawn"
    page.unroute("**/reading.js")
    page.reload()
    sidebar, menu = page.locator(".md-sidebar--primary"), page.get_by_role("button", name="Menu")
    expect(sidebar).to_be_hidden()
    menu.click()
    expect(sidebar).to_be_visible()
    page.keyboard.press("Escape")
    expect(sidebar).to_be_hidden()
    menu.click()
    sidebar.get_by_role("link", name="6 · Masks", exact=True).click()
    page.wait_for_url("**/masks/")
    assert rows(page) == BELOW, "nobody asked on this page"
    page.go_back()
    assert rows(page) == BESIDE
    page.set_viewport_size(PHONE)
    expect(button).to_be_hidden()
    assert rows(page) == BELOW


def test_a_line_with_a_margin_ends_in_sight_beside_its_notes(visit):
    page = visit("chapters/multihead-attention/")
    page.get_by_role("button", name="Notes beside code").click()
    code = page.locator(".aa-show pre > code:has(.aa-margin)")
    assert code.evaluate("code => code.scrollWidth <= code.clientWidth")


def test_without_scripts_nothing_is_shown_that_needs_them(visit):
    page = visit(BATCHES, java_script_enabled=False)
    for at, visible, hidden in (
        (BATCHES, "h1", ".aa-beside-button, .aa-finish input"),
        ("short-path/", "h1", ".aa-answer button"),
        ("", ".aa-chapters", ".aa-so-far button"),
        ("", "#fig-cat svg", ".aa-so-far button"),
        ("chapters/counting/", ".aa-live .aa-still", ".aa-live :is(input, select, button)"),
    ):
        page.goto(f"/{at}")
        expect(page.locator(visible).first).to_be_visible()
        expect(page.locator(hidden).locator("visible=true")).to_have_count(0)
    page.goto(f"/{BATCHES}")
    page.locator(".aa-term").first.click()
    page.wait_for_url("**/glossary/#*")


def test_what_answers_a_guess_is_blurred_until_one_is_made_or_it_is_pointed_at(visit):
    page = visit(address("06_masks"))
    page.get_by_role("button", name="tea", exact=True).click()  # the first figure
    blurred = (
        "[...document.querySelectorAll('article .aa-out > *, article p')]"
        ".filter((part) => getComputedStyle(part).filter !== 'none').length"
    )
    guess = page.locator(".aa-choice", has_text="Nearly half.").first
    before = page.evaluate(blurred)
    figure = page.locator("#fig-shares-of-was")
    assert figure.evaluate("(it) => getComputedStyle(it).filter") != "none"
    figure.hover()
    assert page.evaluate(blurred) == before - 1
    page.mouse.move(0, 0)
    guess.locator("summary").click()
    under = page.locator("p", has_text="The first bar is what")
    for answer in (figure, under):
        assert answer.evaluate("(it) => getComputedStyle(it).filter") == "none"
    assert 0 < page.evaluate(blurred) < before - 2  # another guess is still to make
    page.emulate_media(media="print")
    assert page.evaluate(blurred) == 0


def test_what_a_live_figure_gives_away_is_blurred_until_it_was_used(visit):
    page = visit(address("13_trained_weights"))

    def fewer(figure):
        return figure.get_by_role("button", name="or fewer")

    for name, use in [
        ("a-sentence-of-your-own", lambda it: it.get_by_label("pronoun").select_option("0")),
        ("a-rival", lambda it: [each.click() for each in it.get_by_role("button").all()]),
        ("who-was-late", lambda it: [fewer(it).click() for _ in range(5)]),
    ]:
        figure = page.locator(f".aa-live:has(#fig-{name})")
        figure.scroll_into_view_if_needed()
        expect(figure.get_by_role("status")).not_to_be_empty()
        pair = page.locator(".aa-pair", has=page.locator(f"#fig-{name}"))
        under = pair.locator("xpath=following-sibling::div[1]").locator(".aa-say > p").first
        for given in (*pair.locator(".aa-proof").all(), under):
            expect(given).to_have_css("filter", re.compile("blur"))
        under.hover()
        expect(under).to_have_css("filter", "none")
        page.mouse.move(0, 0)
        use(figure)
        for given in (*pair.locator(".aa-proof").all(), under):
            expect(given).to_have_css("filter", "none")


def test_a_chapter_on_paper(visit):
    page = visit(address("06_masks"), color_scheme="dark")
    page.get_by_role("button", name="Notes beside code").click()
    live = page.locator(".aa-live").first
    live.scroll_into_view_if_needed()
    expect(live.locator(".aa-stage")).to_be_visible()
    page.emulate_media(media="print")
    hint = ".aa-say > .aa-fold:not(.aa-expect, .aa-choice) > p"
    for kept in ("h1", hint, ".aa-tag-solution pre", ".aa-live .aa-scroll"):
        expect(page.locator(kept).first).to_be_visible()
    assert rows(page) == BELOW
    gone = "header, footer, .md-sidebar, button, .headerlink, .aa-run, .aa-stage"
    expect(page.locator(gone).locator("visible=true")).to_have_count(0)
    expect(page.locator("body")).to_have_css("background-color", "rgb(255, 255, 255)")
    expect(page.locator(".aa-say .dim-n").first).to_have_css("color", "rgb(0, 103, 165)")
    link = page.locator("article a", has_text="The next chapter").first
    assert "(" in link.evaluate("a => getComputedStyle(a, '::after').content")
    page.set_viewport_size({"width": 673, "height": 1000})
    assert page.evaluate("document.documentElement.scrollWidth") == 673


def test_the_cheat_sheet_is_two_sides_of_a4(visit):
    page = visit("cheat-sheet/", color_scheme="dark")
    assert page.locator(".aa-cards").count() == 2  # the second begins a page
    printed = page.pdf(prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 2
    boxes = re.findall(rb"/MediaBox\s*\[0 0 ([\d.]+) ([\d.]+)\]", printed)
    assert [[round(float(x) / 72 * 25.4) for x in box] for box in boxes] == [[210, 297]] * 2


def test_a_term_is_explained_by_mouse_and_keyboard(visit):
    page = visit("notation/")
    term, tip = page.locator(".aa-term").first, page.get_by_role("tooltip")
    meaning = term.get_attribute("data-means")
    term.hover()
    expect(tip).to_have_text(meaning)
    tip.hover()
    expect(tip).to_be_visible()
    page.mouse.move(1, 1)
    expect(tip).to_have_count(0)
    term.focus()
    expect(term).to_have_accessible_description(meaning)
    page.keyboard.press("Escape")
    expect(tip).to_have_count(0)
    page.keyboard.press("Enter")
    page.wait_for_url("**/glossary/#*")


def test_a_term_is_explained_by_a_finger(visit):
    page = visit("notation/", viewport=PHONE, has_touch=True, is_mobile=True)
    tip = page.get_by_role("tooltip")
    for term in page.locator(".aa-term").all()[:2]:
        term.tap()
        expect(tip).to_have_text(term.get_attribute("data-means"))
        page.locator("h1").tap()
        expect(tip).to_have_count(0)
    for _ in range(2):  # the second one follows the link
        page.locator(".aa-term").first.tap()
    page.wait_for_url("**/glossary/#*")


# What people type or paste, and the pages that answer, some with the section.
ASKED = {
    "AssertionError: was expecting embedding dimension of 512, but got 256": "messages",
    "query should be unbatched 2D or batched 3D tensor but received 4-D query tensor": "messages",
    "Expected key_padded_mask.shape[1] to be 10, but got 12": "messages",
    "The shape of the 3D attn_mask is torch.Size([8, 9, 9]), but should be (64, 9, 9).": "messages",
    "RuntimeError: shape '[32, 10, 8, 64]' is invalid for input of size 163840": "messages",
    "The size of tensor a (8) must match the size of tensor b (32)": "messages",
    "RuntimeError: No available kernel. Aborting execution.": "messages",
    "derivative for aten::_scaled_dot_product_efficient_attention_backward": "messages",
    "UserWarning: enable_nested_tensor is True, but self.use_nested_tensor is": "messages",
    "value cannot be converted to type at::Half without overflow": "messages",
    "Unexpected key(s) in state_dict": "messages",
    "module 'torch' has no attribute 'ModuleList'": "published-code",
    "how to get attention weights from nn.TransformerEncoder": "questions",
    "attention weights for each head": "questions multihead-attention line-by-line",
    "output_attentions returns empty": "questions",
    "bf16 tolerance": "questions",
    "LoRA": "questions",
    "export to onnx": "questions messages",
    "double backward": "questions messages",
    "concatenate positional encoding": "reasons",
    "out of memory": "symptoms",
    "training is slow": "symptoms speed",
    "same output for every input": "symptoms",
    "weights don't sum to 1 dropout": "symptoms multihead-attention reasons",
    "loss is nan": "symptoms masks",
    "kv cache wrong results": "symptoms cache",
    "cross attention padding mask": "masks masks-in-the-wild",
    "look-ahead mask": "masks",
    "does True mean masked or attend": "masks-in-the-wild masks",
    "layer normalization": "transformer-layers",
    "initialized": "from-memory attention line-by-line transformer-layers",
    "how many parameters in multi head attention": "counting reasons",
    "FlopCounterMode": "counting",
    "MultiheadAttention": "attention",
    "repeat_kv": "fewer-keys",
    "GQA": "fewer-keys",
    "flash attention causal mask": "tiles questions",
    "streaming llm attention sinks": "windows",
    "torch.multinomial": "a-model-of-today training",
    "interview questions attention": "from-memory",
    "Attention mask should be of size (4, 1, 240, 480), but is (4, 1, 240, 240)": "messages",
    "For mask_type == 2 mask shape should match input shape": "messages",
    "FlashAttention only supports Ampere GPUs or newer": "messages",
    "batched generation with padding_side='right'": "messages loaded-model",
    "Exporting the operator 'aten::scaled_dot_product_attention' to ONNX": "messages",
    "cannot import name 'LlamaFlashAttention2'": "messages",
    "'DynamicCache' object has no attribute 'get_usable_length'": "messages",
    "probability tensor contains either inf, nan or element < 0": "messages",
    "Target modules {'q_proj', 'v_proj'} not found in the base model": "messages",
    "logits different in batch bfloat16 padding": "questions symptoms",
    "flash attention result does not match pytorch": "questions",
    "TransformerEncoder output truncated src_key_padding_mask": "questions",
    "dropout not off in eval scaled_dot_product_attention": "questions",
    "is_causal TransformerEncoderLayer does not work": "questions",
    "TransformerDecoder memory_key_padding_mask tgt_mask": "questions",
    "why view then transpose split heads": "questions reshape-trick",
    "kv cache generation junk output": "symptoms cache",
    "multiheadattention nan need_weights True": "symptoms masks-in-the-wild",
    "sdpa nan padding mask": "symptoms masks-in-the-wild",
    "transformer loss not decreasing constant output": "questions symptoms",
    "replaced flash_attn with sdpa out of memory": "symptoms messages questions",
    "flex_attention out of memory": "questions",
    "past_key_values second generate mask shape": "loaded-model",
    "packing block attention between samples": "loaded-model windows",
    "custom 4D attention mask": "loaded-model",
    "attn_implementation eager sdpa": "loaded-model",
    "use_cache gradient checkpointing": "loaded-model",
    "position_ids left padding": "loaded-model",
    "attention map vision transformer CLS token": "loaded-model",
    "torch.compile recompiles StaticCache": "loaded-model",
    "apply_chat_template two BOS tokens": "loaded-model",
    "LoRA target_modules": "loaded-model messages",
    "expected scalar type Half but found Float": "messages",
    "masked_fill only supports boolean masks": "messages",
    "forward() got an unexpected keyword argument 'is_causal'": "messages",
    "out of resource: shared memory flex_attention": "messages",
    "No operator found for memory_efficient_attention_forward": "messages",
    "Token indices sequence length is longer than the specified maximum": "messages",
    "flash attention not deterministic": "questions",
    "flash attention slower short sequence": "questions speed",
    "softcap sdpa": "questions",
    "`rope_scaling` must be a dictionary with two fields, `type` and `factor`": "messages",
    "block_mask was created for but got q_len": "messages",
    "attention map all rows same": "reasons symptoms",
    "my multihead attention cross attention output differs": "questions",
    "fp16 training nan after many steps": "questions symptoms",
    "flash_attn varlen padding at end nan": "questions symptoms",
    "why so much attention on first token": "reasons",
    "query padding mask multiheadattention": "questions masks",
    "flash attention key_padding_mask example": "questions",
    "temporal attention video reshape which dimension": "questions",
    "mean pooling ignore padding tokens": "loaded-model",
    "rope bfloat16 precision long context": "questions",
    "qk norm before or after rope": "questions",
    "where is sliding window in mistral attention": "loaded-model",
    "gpt-oss learnable sink flash attention": "questions windows",
    "long prompt out of memory prefill": "loaded-model symptoms",
    "MultiheadAttention 4-bit self and mat2 must have same dtype": "messages loaded-model",
    "create_block_mask slow document mask": "questions",
    "lora only q_proj v_proj or mlp": "loaded-model",
    "flex_attention padding mask key_padding_mask": "questions",
    "flex_attention dropout": "questions",
    "flash_attn causal different from is_causal fewer queries": "questions masks-in-the-wild",
    "2d rope image patches": "questions",
    "vit different image size interpolate position embedding": "messages",
    "pure bfloat16 training weights do not update loss stalls": "questions",
    "merge lora into 4-bit model different results": "loaded-model",
    "vllm greedy output differs from transformers": "loaded-model questions",
    "QK^T": "one-head",
    "Q @ K.T": "one-head",
    "Q(Q+K)^T": "reasons",
    "~mask": "masks",
    "masked_fill -inf": "messages",
    "why are query key value matrices not the same": "reasons",
    "why does dot product have variance d_k": "one-head reasons",
    "why no key bias": "reasons",
    "are all heads weighted equally average attention maps": "reasons",
    "average attention heads then softmax uniform": "reasons",
    "in_proj_weight xavier initialization": "reasons symptoms",
    "scale 8 with head dim 64": "reasons",
    "why mask needed in decoder at inference": "reasons",
    "is causal mask enough without positional encoding": "reasons",
    "position information after first attention layer": "reasons",
    "rope cross attention only query": "reasons",
    "cross attention with only one key token": "reasons",
    "encoder and decoder different hidden size cross attention": "reasons",
    "3D attn_mask works in training but fails in eval": "messages questions",
    "float attn_mask gives nan in eval MultiheadAttention": "questions",
    "mps different results than cpu": "questions",
    "flash attention head dim 256": "questions",
    "kv cache no speedup": "questions",
    "flex_attention recompiles every sequence length": "questions",
    "why softmax in float32": "reasons tiles",
    "qkv linear chunk 3": "reasons",
    "why multiply embedding by sqrt d_model": "reasons transformer",
    "what stops heads from learning the same": "reasons two-heads",
    "is flash attention used by nn.MultiheadAttention": "questions tiles",
    "why separate W_Q and W_K": "reasons",
    "combine query and key weights into one matrix": "reasons",
    "why sqrt d and not log d": "reasons one-head",
    "separate projection for each head": "reasons split-and-stack",
    "one linear layer for all heads": "reasons split-and-stack",
    "mask for each sample without allocating memory": "questions",
    "attn_mask different for each item in batch": "questions messages",
    "packed documents block diagonal mask necessary": "reasons",
    "compiled attention faster than sdpa": "questions",
    "sdpa slower than manual attention": "questions symptoms",
    "output_attentions=True Falling back to the manual attention implementation": "messages",
    "rotate_half reason": "reasons",
    "rope half instead of every two elements": "reasons positions",
    "repeat_kv repeat_interleave last dim": "questions",
    "key and value from same source": "reasons",
    "query and value from one view key from another": "reasons",
    "nn.Transformer tgt": "questions",
    "what to pass as tgt at inference": "questions",
    "do I need to project q k v before nn.MultiheadAttention": "questions",
    "convert q_proj k_proj v_proj to in_proj_weight": "questions",
    "decoder only gpt with nn.TransformerEncoder": "questions",
    "is output projection needed with one head": "reasons",
    "dropout on attention weights or on output": "reasons",
    "beam search reorder cross attention cache": "questions",
    "attn.bias in named_buffers not in state_dict": "questions",
    "fully masked row float mask vs boolean mask": "questions",
    "onnx input tensor cannot be reshaped to the requested shape": "messages",
    "aten::_transformer_encoder_layer_fwd onnx": "messages",
    "onnx export nn.MultiheadAttention dynamic length": "questions messages",
    "size mismatch for c_attn.weight": "messages",
    "Conv1D": "messages",
    "padding_causal": "questions",
    "almost zero training and validation loss, terrible generation": "symptoms",
    "nn.TransformerDecoder kv cache": "questions",
    "feed one token per step at inference": "questions",
    "evict keys from kv cache position rope": "questions",
    "heavy hitters attention weights": "questions",
    "NTK alpha rope base": "questions positions",
    "llama rope huggingface meta permute": "reasons positions",
    "attention sink position or content": "reasons",
    "Captured buffers that require grad are not yet supported": "questions",
    "Expected query, key, and value to have the same dtype": "messages",
    "unsupported operand type(s) for +: 'DynamicCache' and 'tuple'": "messages",
    "A different number of tensors was saved during the original forward": "messages",
    "cannot assign as parameter 'in_proj_weight' (torch.nn.Parameter or None expected)": "messages",
    "'CausalSelfAttention' object has no attribute 'bias'": "questions",
    "Only same embed for query/key/value is supported as of now for MultiheadAttention": "messages",
    "The `output_attentions` attribute is not supported when using the": "messages",
    "Support for mismatched key_padding_mask and attn_mask is deprecated": "messages",
    "cu_seqlens several packed rows in a batch": "questions",
    "crop kv cache speculative decoding rejected tokens": "loaded-model cache",
    "attention rollout without class token": "loaded-model",
    "activation checkpointing save attention instead of recompute": "questions",
    "gradient checkpointing": "questions symptoms",
    "int8 kv cache compute in fp16 or int8": "cache",
    "attention weights of one layer only keep sdpa elsewhere": "loaded-model",
    "difference between self-attention and fully connected layer": "reasons",
    "llama no causal mask kv cache why": "reasons cache",
    "why compare query with key and not with the word directly": "reasons",
    "why number of heads divisible by number of gpus tensor parallel": "questions",
    "sequence shorter than block_size causal mask": "questions",
    "sliding window with re-computation better than window attention": "windows",
    "paged attention block size 16 or 256": "cache",
    "enable_gqa head_dim 512 out of memory math fallback": "questions symptoms",
    "The expanded size of the tensor (1) must match": "messages#size-of-tensor",
    "attn_bias is not correctly aligned": "messages#attn-bias-aligned",
    "attn_bias.stride": "messages#attn-bias-aligned",
    "float mask of ones and zeros": "questions#what-dtype-should-a-mask-have",
    "tril ones float mask has no effect": "questions#what-dtype-should-a-mask-have",
    "generate text longer than block_size": "questions#must-a-text-be-as-long-as-block_size",
    "flex_attention causal mask decoding one query wrong": "questions#flex_attention-for-one-query",
    "'NoneType' object has no attribute 'is_cuda'": "messages#is-cuda",
    "MultiheadAttention output dimension different from embed_dim": "messages#value-weights",
    "need_weights returns None": "questions",
    "size mismatch for layers.16.attention.wk.weight": "messages#size-mismatch",
    "mask value -1e5 attends outside mask": "reasons#why-fill-with-minus-infinity",
    "relative position bias cross attention non-square": "questions",
    "attention map on image overlay": "loaded-model",
    "plot attention heatmap matplotlib": "loaded-model questions",
    "should query key value have bias": "reasons#why-has-the-key-no-bias-beit-eva-whisper",
    "attention matrix not symmetric": "reasons#why-is-the-attention-matrix-not-symmetric",
    "attention weights parameters or activations": "reasons#what-are-attention-weights",
    "why do transformers have a fixed input length": "questions#why-a-fixed-input-length",
    "do I have to pad a single sentence at inference": "questions#why-a-fixed-input-length",
    "why residual connection around attention": "transformer-layers",
    "cross attention image query text key value why": "reasons#why-is-the-image-the-query",
    "must query and key have the same shape": "questions#must-n-equal-m",
    "how does the encoder learn without a loss": "reasons#how-the-encoder-learns",
    "positional encoding single sine not unique": "transformer",
    "mask after softmax then renormalize": "reasons#why-mask-before-the-softmax-and-not-after",
    "why dropout on attention weights": "reasons",
    "why dim != dim_head * heads": "questions#must-the-width-be-divisible-by-the-number-of-heads",
    "why multiply softmax by value": "reasons#what-do-query-key-and-value-mean",
    "bahdanau vs luong vs transformer attention": "reasons",
    "why softmax and not relu or sigmoid attention": "reasons#why-softmax-and-not-relu",
    "softmax off by one": "reasons#what-is-softmax1",
    "add_bias_kv add_zero_attn what for": "reasons#what-is-softmax1",
    "attention entropy collapse": "reasons#what-is-attention-entropy-collapse",
    "are sixteen heads better than one": "reasons#what-keeps-heads-from-learning-the-same",
    "attention is not explanation": "reasons#is-attention-an-explanation",
    "differential attention": "reasons#what-is-differential-attention",
    "set transformer permutation invariant": "reasons",
    "perceiver latent queries": "reasons#what-is-attention-pooling",
    "swin shifted window mask": "questions",
    "mamba vs attention": "questions#how-does-mamba-a-state-space-model-differ-from-attention",
    "decoder generates same token repeatedly": "questions#why-does-my-decoder-repeat-itself",
    "time complexity of self attention O(n^2 d)": "counting",
    "tokens per second memory bandwidth bound": "cache#bytes-over-bandwidth",
    "why multiply embeddings by sqrt(d_model)": "reasons",
    "attn_output_weights shape": "questions#what-do-need_weights-and-average_attn_weights-return",
    "what does contiguous do": "questions",
    "convert keras MultiHeadAttention weights to pytorch": "questions#keras-and-flax",
    "graph attention mask adjacency": "questions#masks-of-a-prefix-a-graph-and-global-tokens",
    "prefix lm mask bidirectional": "questions#masks-of-a-prefix-a-graph-and-global-tokens",
    "how many heads should I use": "reasons#how-many-heads-should-i-use",
    "cross-layer attention Gemma 3n": "reasons#what-is-cross-layer-attention",
    "linformer performer": "reasons#what-are-linformer-performer-and-reformer",
    "attn_implementation eager vs sdpa vs flash_attention_2": "loaded-model",
    "extend context length of pretrained model": "positions",
    "difference between masked_fill -1e9 and -inf": "reasons#why-fill-with-minus-infinity",
    "why are queries and keys normalized": "questions#is-qk-norm-before-or-after-rope",
    "(*bias): last dimension must be contiguous": "messages",
    "loss nan only on H100": "symptoms",
    "enable_cudnn_sdp(False)": "messages questions symptoms",
    "mask_mod score_mod difference": "questions",
    "flex_attention keep only topk of each row": "questions",
    "SinkCache": "messages",
    "V cache quantization requires flash_attn": "messages",
    "flash_attn_interface import flash attention 3": "messages",
    "tree attention mask medusa": "loaded-model",
    "why 10000 in positional encoding": "reasons",
    "does the residual connection leak the future": "reasons",
    "time complexity O(n^2)": "reasons counting",
    "YaRN attention_factor mscale": "questions",
    "LoRA kv_b_proj MLA has no effect": "loaded-model",
    "cache cannot be trimmed sliding window": "loaded-model",
    "is_causal ignored need_weights": "messages questions#"
    "why-does-is_causaltrue-of-nntransformerencoderlayer-do-nothing",
    "averaging attention heads": "reasons#"
    "do-all-heads-count-equally-and-is-the-mean-of-their-maps-fair",
    "quantize nn.MultiheadAttention": "questions#how-do-i-add-lora-a-hook-or-8-bits",
    "qat.Linear.from_float only works for Linear": "messages",
    "causal mask query shorter than key": "questions#"
    "why-do-flash_attns-causal-and-sdpas-is_causal-differ-for-fewer-queries-than-keys",
    "flash_attention_2 padding tokens zero output": "loaded-model#"
    "why-is-the-output-at-padding-tokens-zero",
}


# The page that a link of the search leads to, and the page with the section.
LINKS = """links => links.slice(0, 4).flatMap(({pathname, hash}) => {
  const [name] = pathname.split("/").slice(-2);
  return [name, name + hash];
})"""


def test_search_finds_what_people_ask(visit, served, monkeypatch):
    monkeypatch.setattr(served[1], "index", b"")
    page = visit("notation/")
    counted = page.locator(".md-search-result__meta")
    expect(counted).to_have_text("Type to start searching")
    field, missed = page.locator(".md-search__input"), {}
    for words, pages in ASKED.items():
        field.fill("")
        field.press("End")  # the theme waits for a key
        expect(counted).to_have_text("Type to start searching")
        field.fill(words)
        field.press("End")
        expect(counted).to_contain_text("matching document")
        items = page.locator(".md-search-result__item").all()[:3]  # one for each page
        found = [item.locator("a").evaluate_all(LINKS) for item in items]  # it, and its sections
        if not {link for links in found for link in links} & {*pages.split()}:
            missed[words] = found
    assert len(ASKED) == 279
    assert len(missed) <= 3, missed


def test_an_exercise_that_asks_for_numbers_answers_on_the_page(visit):
    page = visit("short-path/", viewport=PHONE)
    form = page.locator(".aa-answer").first
    for numbers, verdict in (
        (["4", "0.30", "", ""], "not yet, 2 of 4 are no number."),
        (["4", "0.30", "1.32", "0.72"], "✗ that is the sentence with thirsty."),
        (["4", "0.30", "0.72", "1.32"], "✓ right: "),
    ):
        for field, number in zip(form.get_by_role("textbox").all(), numbers, strict=True):
            field.fill(number)
        expect(form.get_by_role("status")).to_be_empty()
        form.get_by_label("the score of sweet").press("Enter")
        expect(form.get_by_role("status")).to_contain_text(verdict)
    expect(page.get_by_text("not yet, 4 of the 4")).to_have_count(0)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
