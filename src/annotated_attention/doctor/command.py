"""The command line: examine a class in a file that has never heard of this project."""

import argparse
import ast
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torch import nn

from annotated_attention.doctor import adapters, situations
from annotated_attention.doctor.examination import KINDS, examine
from annotated_attention.doctor.patient import Failed, Patient, describe
from annotated_attention.doctor.report import WRONG, Finding, Report

# What constructors usually call their arguments.
_WIDTH = (
    "embed_dim d_model n_embd n_embed hidden_size hidden_dim hidden dim d_in d_out dim_in dim_out "
    "embed_size emb emb_size emb_dim embedding_dim input_dim in_dim out_dim output_dim in_features "
    "out_features model_dim dim_model feature_dim query_dim key_dim value_dim kdim vdim "
    "context_dim d_embed size_embd num_hiddens channels width e d_e"
)
_HEADS = (
    "num_heads n_heads n_head nhead nheads heads num_head h head num_attention_heads "
    "n_attention_heads num_key_value_heads num_kv_heads n_kv_heads n_kv_head kv_heads n_groups "
    "num_query_groups num_kv_groups"
)
_HEAD_WIDTH = "head_dim dim_head d_head head_size d_k d_v d_q d_key d_value attention_head_size"
_LENGTH = (
    "context_length block_size max_len max_length max_seq_len max_seq_length seq_len seq_length "
    "sequence_length context_size ctx_len n_ctx n_positions max_position_embeddings ctx_size"
)
_NONE = (
    "dropout p_dropout drop dropout_p dropout_rate attn_dropout attention_dropout attn_drop "
    "proj_drop resid_dropout residual_dropout attn_pdrop resid_pdrop drop_rate dropout_prob "
    "attention_probs_dropout_prob hidden_dropout_prob res_dropout"
)
_YES = "bias qkv_bias use_bias batch_first causal is_causal masked mask_future"
_CONFIG = "config cfg args conf params hparams opt"
_MASKS = "blocked mask attn_mask attention_mask src_mask key_padding_mask padding_mask"
_SHAPES: dict[str, Callable[[Any, int], Any]] = {
    "bnm": lambda attend, heads: attend,
    "b1nm": lambda attend, heads: adapters.for_each_head(attend),
    "bhnm": adapters.folded,
    "nm": lambda attend, heads: adapters.for_all_samples(attend),
    "bm": lambda attend, heads: adapters.for_all_queries(attend),
    "b11m": lambda attend, heads: adapters.with_mask(
        attend, lambda mask: mask[:, None, None, 0], "padding"
    ),
}
_MEANINGS = {"blocked": lambda attend: attend, "allowed": adapters.allowed,
             "additive": adapters.additive}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Examine what the command line names, print the report, and return the exit code.

    Args:
        arguments: those of the command line; None means its own.

    Returns:
        0 if nothing is wrong, 1 if something is.
    """
    options = _parser().parse_args(arguments)
    path, _, name = options.target.rpartition(":")
    report = _examined(path, name, options)
    print(report)
    return 0 if report.ok else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m annotated_attention.doctor",
        description="Examine an attention, and say what is wrong with it.",
        epilog="The exit code is 1 when something is wrong, 2 when the command line is.",
    )
    parser.add_argument("target", type=_target, help="path/to/file.py:Name, a class or a function")
    parser.add_argument("--kind", choices=KINDS, default="cross", help="what it is called with")
    parser.add_argument("--embed-dim", type=int, required=True, metavar="E", help="model width")
    parser.add_argument("--num-heads", type=int, required=True, metavar="H", help="divides E")
    parser.add_argument("--max-length", type=int, default=16, metavar="N", help="longest sequence")
    parser.add_argument("--init", nargs="*", default=[], metavar="NAME=VALUE",
                        help="arguments of the constructor that cannot be guessed")  # fmt: skip
    parser.add_argument("--call", nargs="*", default=[], metavar="NAME=VALUE",
                        help="further arguments of each call")  # fmt: skip
    parser.add_argument("--sequence-first", action="store_true", help="it takes (n, b, e)")
    parser.add_argument("--mask", choices=("none", *_MEANINGS), default="blocked",
                        help="what True in its mask means, or that it takes none")  # fmt: skip
    parser.add_argument("--mask-name", metavar="NAME", help="the argument that takes the mask")
    parser.add_argument("--mask-shape", choices=("auto", *_SHAPES), default="auto",
                        help="its axes, a letter or a 1 for each; bhnm is (b * h, n, m)"
                        )  # fmt: skip
    return parser


def _target(text: str) -> str:
    if not all(text.rpartition(":")):
        raise argparse.ArgumentTypeError("must be path/to/file.py:Name")
    return text


def _examined(path: str, name: str, options: argparse.Namespace) -> Report:
    """Load, build, adapt and examine; what fails on the way is a finding."""
    step = "import"
    try:
        target = _load(path, name)
        step = "construction"
        attend = _build(target, options) if inspect.isclass(target) else target
        step = "call"
        adapted = _adapt(attend, options)
        return examine(
            adapted,
            embed_dim=options.embed_dim,
            num_heads=options.num_heads,
            kind=options.kind,
            max_length=options.max_length,
        )
    except Exception as error:
        return _failed(name, step, describe(error))
    except SystemExit as error:  # a file that is a script, and ends the interpreter
        return _failed(name, step, f"SystemExit: {error.code}")


def _failed(name: str, step: str, message: str) -> Report:
    remedies = {
        "import": "Run `python` on the file first: it must be importable on its own.",
        "construction": "Give what cannot be guessed: `--init name=value`.",
        "call": "Give the kind that fits, or write an adapter and call `examine` from Python.",
    }
    finding = Finding(
        f"{step}-fails", WRONG, f"{step} fails", message, remedy=remedies[step], test=step
    )
    return Report(name, (finding,), (f"everything behind its {step}",), {step: WRONG})


def _load(path: str, name: str) -> Any:
    """Import a file from anywhere: as part of its package, or with its folder on the path."""
    file = Path(path).resolve()
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    root, dotted = file.parent, [file.stem]
    while (root / "__init__.py").is_file():
        dotted.insert(0, root.name)
        root = root.parent
    sys.path.insert(0, str(root))
    found = importlib.import_module(".".join(dotted)) if len(dotted) > 1 else _run(file)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _run(file: Path) -> Any:
    """Run a file as a module under a name that no other module has."""
    spec = importlib.util.spec_from_file_location(f"examined_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


def _usual(options: argparse.Namespace) -> dict[str, Any]:
    """Give a value to every argument that constructors usually have."""
    e, h = options.embed_dim, options.num_heads
    values: dict[str, Any] = {}
    for names, value in (
        (_WIDTH, e), (_HEADS, h), (_HEAD_WIDTH, e // h), (_LENGTH, options.max_length),
        (_NONE, 0.0), (_YES, True),
    ):  # fmt: skip
        values |= dict.fromkeys(names.split(), value)
    return values


def _build(target: Any, options: argparse.Namespace) -> Any:
    """Construct a class, with what was given and what its arguments are usually called."""
    given, usual = _pairs(options.init), _usual(options)
    config = SimpleNamespace(**{**usual, **given})
    arguments: dict[str, Any] = {}
    unknown: list[str] = []
    parameters = inspect.signature(target).parameters
    for name, parameter in parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if name in given:
            arguments[name] = given.pop(name)
        elif name.lower() in _CONFIG.split():
            arguments[name] = config
        elif parameter.default is parameter.empty or name in f"{_WIDTH} {_HEADS}".split():
            if name.lower() in usual:
                arguments[name] = usual[name.lower()]
            elif parameter.default is parameter.empty:
                unknown.append(name)
        elif name in ("batch_first", "causal", "is_causal"):
            arguments[name] = usual[name] and (name == "batch_first" or options.kind == "causal")
            arguments[name] = arguments[name] and not (options.sequence_first)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        arguments |= given
    if unknown:
        raise TypeError(f"the constructor's {', '.join(unknown)} cannot be guessed")
    return target(**arguments)


def _pairs(texts: Sequence[str]) -> dict[str, Any]:
    """Read name=value, the value as Python where it is."""
    pairs: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"{text} must be NAME=VALUE")
        try:
            pairs[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            pairs[name] = value
    return pairs


def _adapt(attend: Any, options: argparse.Namespace) -> Any:
    """Put the adapters around it that the options ask for, and those that its arguments need."""
    function = attend.forward if isinstance(attend, nn.Module) else attend
    names = list(inspect.signature(function).parameters)
    further = _pairs(options.call)
    if _is_torch_like(names, attend):
        return adapters.torch_like(attend, options.kind, **further)
    named = options.mask_name or next((name for name in names if name in _MASKS.split()), None)
    mask_name = None if options.mask == "none" else named
    inputs = 3 if options.kind == "cross" else 1
    call = _caller(attend, inputs, _takes(names, inputs), mask_name, further)
    adapted = adapters.Adapted(call, attend)
    adapted = adapters.sequence_first(adapted) if options.sequence_first else adapted
    hides_itself = options.kind == "causal" and len(names) == 1
    if mask_name is None or hides_itself:
        return adapted if options.kind == "causal" else adapters.without_mask(adapted)
    adapted = _shaped(_MEANINGS[options.mask](adapted), options)
    return adapters.causal(adapted, 1) if options.kind == "causal" else adapted


def _is_torch_like(names: Sequence[str], attend: Any) -> bool:
    wanted = {"query", "key", "value", "key_padding_mask", "attn_mask"}
    return wanted <= set(names) and hasattr(attend, "num_heads")


def _takes(names: Sequence[str], inputs: int) -> int:
    """Say how many tensors it takes before its mask: some want x three times."""
    first = sorted(name.lower()[:1] for name in names[:3])
    return 3 if first == ["k", "q", "v"] else inputs


def _caller(
    attend: Any, inputs: int, taken: int, mask_name: str | None, further: dict[str, Any]
) -> Callable[..., Any]:
    """Call with as many tensors as it takes, and the mask by its name."""

    def call(*given: Any) -> Any:
        tokens = given[:inputs] if taken == inputs else given[:1] * taken
        options = dict(further)
        if mask_name and len(given) > inputs and given[inputs] is not None:
            options[mask_name] = given[inputs]
        return attend(*tokens, **options)

    return call


def _shaped(attend: Any, options: argparse.Namespace) -> Any:
    """Give the mask the axes that it takes, and always one if it must; what is not given, try."""
    shapes = [options.mask_shape] if options.mask_shape != "auto" else list(_SHAPES)
    candidates = [_SHAPES[shape](attend, options.num_heads) for shape in shapes]
    for adapted in (*candidates, *map(adapters.always_masked, candidates)):
        if _answers(adapted, options):
            return adapted
    return candidates[0]


def _answers(attend: Any, options: argparse.Namespace) -> bool:
    """Tell whether it answers with such masks and without, at sizes that do not fit by chance."""
    kind = "self" if options.kind == "causal" else options.kind
    patient = Patient(attend, options.embed_dim, options.num_heads, kind, None, options.max_length)
    with patient.admitted():
        try:
            for case in (situations.free(patient), *situations.masked(patient)):
                patient.ask(case.inputs, case.blocked)
        except Failed:
            return False
    return True
