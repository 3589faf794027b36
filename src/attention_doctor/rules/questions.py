"""The questions that an examination asks, with what must hold; rules say what an answer means."""

FINE, CONVENTION, WRONG, UNASKED = "fine", "convention", "wrong", "unasked"  # answers
# What each test of a report asks, in this order.
HOLDS = {
    "answers": "The output is finite; what is not leaves no numbers to compare.",
    # What is wrong in these two would show in every other answer: it is said once, and allowed for.
    "evaluation": "In evaluation mode, the same input gives the same result.",
    "precision": "The output is as precise as the inputs; if not, later tests tolerate the "
    "difference.",
    "attention": "Tokens are mixed, with weights that depend on queries and on keys.",
    "visible": "What nothing hides matters to every query, but for windows, which are reported.",
    "order": "Results move with their queries, and stay where keys move together with their "
    "values.",
    "samples apart": "Samples of a batch do not influence each other.",
    "equal values": "With equal values, the weights do not matter, because they sum to one over "
    "the keys.",
    "blocked": "Blocked keys have no influence, and allowed keys have some.",
    "future": "Under a causal mask, no token sees a later one.",
    "fully masked rows": "A fully masked row has no agreed result, but it must not change other "
    "rows.",
    "dropout": "In training mode, dropout drops weights, not scores.",
    "training": "Training hides what evaluation hides, and the other way round; its results are "
    "finite.",
    "registration": "Every parameter is registered.",
    "gradients": "Gradients reach the inputs and every parameter, and are finite.",
    "cache": "A cache gives what no cache gives, in chunks of any size.",
    "packing": "Documents in one row get what each of them gets alone.",
    "hooks": "Hooks on the module run.",
    "half precision": "In float16 the result is about the same, with and without a mask.",
    "inputs": "No call changed its arguments.",
}
TRUSTED, WINDOW = "given reference", "window"  # asked where there is one
# How the module behaves: no mistake in the computation explains it.
CONDUCT = (
    "evaluation, precision, dropout, training, registration, cache, packing, hooks, "
    f"half precision, inputs, {TRUSTED}"
).split(", ")
# What follows from results that are not those of an attention, and from a wrong mask.
OUTPUTS = frozenset({*HOLDS} - {*CONDUCT})
MASKED = OUTPUTS - {"attention", "gradients"}
# By calls alone, they name a cause, where nothing inside does.
NAMING = ("answers", "attention", "blocked", "future", "training", "gradients")
# Of the tests that have more than one answer, the parts: each brings out one code at most.
PARTS = {
    "blocked": ("blocked", "failing masks"),
    "future": ("future", "past"),
    "attention": ("attention", "values"),
    "training": ("finite training", "training"),
    "gradients": ("packed gradients", "gradients", "finite gradients"),
}
