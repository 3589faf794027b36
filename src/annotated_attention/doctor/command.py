"""The command line: examine a class in any Python file."""

import argparse
import ast
import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import nn

from annotated_attention.doctor import adapters, situations
from annotated_attention.doctor.examination import KINDS, examine
from annotated_attention.doctor.influence import counts, reactions
from annotated_attention.doctor.patient import Failed, Patient, describe
from annotated_attention.doctor.report import UNASKED, Finding, Report

# What constructors and calls usually name their arguments.
_NAMES = {
    role: names.split()
    for role, names in {
        "width": "embed_dim d_model n_embd n_embed hidden_size hidden_dim hidden dim d_in d_out "
        "dim_in dim_out embed_size emb emb_size emb_dim embedding_dim input_dim in_dim out_dim "
        "output_dim in_features out_features model_dim dim_model feature_dim query_dim "
        "key_dim value_dim kdim vdim context_dim d_embed size_embd num_hiddens channels width "
        "e d_e",
        "heads": "num_heads n_heads n_head nhead nheads heads num_head h head num_attention_heads "
        "n_attention_heads",
        "groups": "num_key_value_heads num_kv_heads n_kv_heads n_kv_head kv_heads n_groups "
        "num_query_groups num_kv_groups",
        "head width": "head_dim dim_head d_head head_size d_k d_v d_q d_key d_value "
        "attention_head_size",
        "length": "context_length block_size max_len max_length max_seq_len max_seq_length seq_len "
        "seq_length sequence_length context_size ctx_len n_ctx n_positions "
        "max_position_embeddings ctx_size",
        "none": "dropout p_dropout drop dropout_p dropout_rate attn_dropout attention_dropout "
        "attn_drop proj_drop resid_dropout residual_dropout attn_pdrop resid_pdrop drop_rate "
        "dropout_prob attention_probs_dropout_prob hidden_dropout_prob res_dropout",
        "bias": "bias qkv_bias use_bias",
        "causal": "causal is_causal masked mask_future",
        "config": "config cfg args conf params hparams opt",
        "query": "q query queries q_in x_q xq q_x query_states query_input input_q inputs_q",
        "key": "k key keys k_in x_k xk k_x key_states key_input input_k inputs_k",
        "value": "v value values v_in x_v xv v_x value_states value_input input_v inputs_v",
        "mask": "blocked mask attn_mask attention_mask src_mask key_padding_mask padding_mask",
    }.items()
}
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


class Unasked(Exception):
    """The implementation cannot be called.

    Attributes:
        step: the step that failed: ``"import"``, ``"construction"`` or ``"call"``.
        remedy: what to do.
    """

    def __init__(self, step: str, text: str, remedy: str) -> None:
        """Keep the failed step, the message and the remedy."""
        super().__init__(text)
        self.step, self.remedy = step, remedy


def main(arguments: Sequence[str] | None = None) -> int:
    """Examine what the command line names, print the report, and return the exit code.

    Args:
        arguments: those of the command line; None means its own.

    Returns:
        0 if nothing is wrong, 1 if something is, 2 if the implementation could not be called.

    Examples:
        >>> from annotated_attention import multihead
        >>> from annotated_attention.doctor.command import main
        >>> target = f"{multihead.__file__}:MultiheadAttention"
        >>> main([target, "--embed-dim", "24", "--num-heads", "4", "--batch-first"])
        ✓ MultiheadAttention: nothing wrong, 1 by convention, 26 tests, 2 not examined
        ...
        0
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.embed_dim < 1 or options.num_heads < 1 or options.embed_dim % options.num_heads:
        parser.error(f"--num-heads {options.num_heads} must divide --embed-dim {options.embed_dim}")
    if options.max_length < 2:
        parser.error(f"--max-length {options.max_length} must be at least 2")
    path, _, name = options.target.rpartition(":")
    with contextlib.redirect_stdout(sys.stderr):  # what the file itself prints
        report = _examined(path, name, options)
    try:
        print(report, flush=True)
    except BrokenPipeError:  # whoever read it has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 2 if not report.asked else 0 if report.ok else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m annotated_attention.doctor",
        description="Examine an attention, and say what is wrong with it.",
        epilog="The exit code is 0 when nothing is wrong, 1 when something is, and 2 when it could "
        "not be asked: no such file or class, or it cannot be built or called.",
    )
    parser.add_argument("target", type=_target, help="path/to/file.py:Name, a class or a function")
    parser.add_argument("--kind", choices=KINDS, default="cross", help="what it is called with")
    parser.add_argument("--embed-dim", type=int, required=True, metavar="E", help="model width")
    parser.add_argument("--num-heads", type=int, required=True, metavar="H", help="divides E")
    parser.add_argument("--max-length", type=int, default=16, metavar="N", help="longest sequence")
    parser.add_argument("--init", nargs="*", default=[], type=_pair, metavar="NAME=VALUE",
                        help="arguments of the constructor that cannot be guessed")  # fmt: skip
    parser.add_argument("--call", nargs="*", default=[], type=_pair, metavar="NAME=VALUE",
                        help="further arguments of each call")  # fmt: skip
    layout = parser.add_mutually_exclusive_group()
    layout.add_argument("--sequence-first", action="store_true", help="it takes (n, b, e)")
    layout.add_argument("--batch-first", action="store_true",
                        help="it takes (b, n, e), whatever its attribute batch_first says"
                        )  # fmt: skip
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


def _pair(text: str) -> tuple[str, Any]:
    """Read name=value, the value as Python where it is."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text} must be NAME=VALUE")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _examined(path: str, name: str, options: argparse.Namespace) -> Report:
    """Load, build, adapt and examine; what fails on the way is a finding."""
    try:
        target = _load(path, name)
        attend = _build(target, options)
        return examine(
            _adapt(attend, options),
            embed_dim=options.embed_dim,
            num_heads=options.num_heads,
            kind=options.kind,
            max_length=options.max_length,
        )
    except (Exception, SystemExit) as error:
        remedy = "Give the kind that fits, or write an adapter and call `examine` from Python."
        reason = error if isinstance(error, Unasked) else Unasked("call", describe(error), remedy)
        finding = Finding(
            f"{reason.step}-fails",
            UNASKED,
            f"{reason.step} fails",
            str(reason),
            remedy=reason.remedy,
            test=reason.step,
        )
        left = (f"everything behind its {reason.step}",)
        return Report(name, (finding,), left, {reason.step: UNASKED})


def _load(path: str, name: str) -> Any:
    """Import a file from anywhere: as part of its package, or with its folder on the path."""
    file = Path(path).resolve()
    if not file.is_file():
        remedy = f"Check the path: it starts at {Path.cwd()}."
        raise Unasked("import", f"there is no file {path}", remedy)
    try:
        module = _imported(file)
    except SystemExit as error:  # a file that is a script, and ends the interpreter
        remedy = 'Put what runs as a script under `if __name__ == "__main__":`.'
        raise Unasked("import", f"SystemExit: {error.code}", remedy) from None
    except ModuleNotFoundError as error:
        remedy = f"Install {error.name} beside this package, or run from where it is found."
        raise Unasked("import", describe(error), remedy) from error
    except Exception as error:
        remedy = "Run `python` on the file first: it must be importable on its own."
        raise Unasked("import", describe(error), remedy) from error
    found = module
    for part in name.split("."):
        if not hasattr(found, part):
            kinds = (type, FunctionType, nn.Module)
            there = [x for x, value in vars(found).items()
                     if isinstance(value, kinds) and not x.startswith("_")
                     and getattr(value, "__module__", "") == module.__name__]  # fmt: skip
            remedy = f"Name one of: {', '.join(there)}." if there else "It defines none."
            raise Unasked("import", f"{path} has no class or function {name}", remedy)
        found = getattr(found, part)
    if not callable(found):
        kind = type(found).__name__
        remedy = "Name a class, a function or a module."
        raise Unasked("import", f"{name} is an object of type {kind}", remedy)
    return found


def _imported(file: Path) -> ModuleType:
    root, dotted = file.parent, [file.stem]
    while (root / "__init__.py").is_file():
        dotted.insert(0, root.name)
        root = root.parent
    sys.path.insert(0, str(root))
    return importlib.import_module(".".join(dotted)) if len(dotted) > 1 else _run(file)


def _run(file: Path) -> ModuleType:
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
    values = {
        "width": e, "heads": h, "groups": h, "head width": e // h, "length": options.max_length,
        "none": 0.0, "bias": True, "causal": options.kind == "causal",
    }  # fmt: skip
    usual = {name: value for role, value in values.items() for name in _NAMES[role]}
    return {**usual, "batch_first": not options.sequence_first}


def _build(target: Any, options: argparse.Namespace) -> Any:
    """Construct a class from the given arguments and the usual names of the others."""
    given = dict(options.init)
    if not inspect.isclass(target):
        _refuse("construction", given, [], f"{options.target} is no class and is not constructed")
        return target
    parameters = _named(target)
    arguments = _guessed(parameters, given, options)
    unknown = [x for x, p in parameters.items() if p.default is p.empty and x not in arguments]
    if unknown:
        text = f"the constructor's {', '.join(unknown)} cannot be guessed"
        asked = " ".join(f"{name}=…" for name in unknown)
        raise Unasked("construction", text, f"Give what cannot be guessed: `--init {asked}`.")
    if _takes_any(target):
        arguments |= given
    elif not any(name.lower() in _NAMES["config"] for name in parameters):
        extra = {name: value for name, value in given.items() if name not in arguments}
        _refuse("construction", extra, parameters, "the constructor")
    try:
        return target(**arguments)
    except Exception as error:
        shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        remedy = f"It was built with {shown or 'nothing'}. Give what fits: `--init name=value`."
        raise Unasked("construction", describe(error), remedy) from error


def _guessed(
    parameters: dict[str, inspect.Parameter], given: dict[str, Any], options: argparse.Namespace
) -> dict[str, Any]:
    """Guess what a constructor must be given, and those of its defaults that are about sizes."""
    usual = _usual(options)
    required = {name.lower() for name, x in parameters.items() if x.default is x.empty}
    # A width that may be left out is another one than the one that may not.
    sizes = [
        *_NAMES["heads"],
        *_NAMES["groups"],
        *_NAMES["head width"],
        *([] if required & {*_NAMES["width"]} else _NAMES["width"]),
    ]
    arguments: dict[str, Any] = {}
    for name, parameter in parameters.items():
        common, default = name.lower(), parameter.default
        number = isinstance(default, int) and not isinstance(default, bool) and default > 0
        if name in given:
            arguments[name] = given[name]
        elif common in _NAMES["config"] and default is parameter.empty:
            arguments[name] = SimpleNamespace(**{**usual, **given})
        elif common in usual and (
            common in required
            or common in ("batch_first", *_NAMES["causal"])
            or (common in sizes and (number or (common in _NAMES["heads"] and default is None)))
        ):
            arguments[name] = usual[common]
    return arguments


def _named(function: Any) -> dict[str, inspect.Parameter]:
    """Give the parameters that have a name of their own."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # a built-in function
        return {}
    various = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: x for name, x in parameters.items() if x.kind not in various}


def _takes_any(function: Any) -> bool:
    """Tell whether a callable takes arbitrary keywords."""
    parameters = inspect.signature(function).parameters.values()
    return any(x.kind is inspect.Parameter.VAR_KEYWORD for x in parameters)


def _refuse(step: str, given: Iterable[str], names: Iterable[str], who: str) -> None:
    """Refuse unknown arguments, and list the known ones."""
    if extra := [name for name in given if name not in names]:
        option = "--init" if step == "construction" else "--call"
        has = f"Leave it away, or name one of: {', '.join(names)}."
        remedy = has if names else "Leave it away."
        raise Unasked(step, f"{who} has no {', '.join(extra)} ({option})", remedy)


def _adapt(attend: Any, options: argparse.Namespace) -> Any:
    """Put the adapters around it that the options ask for, and those that its arguments need."""
    function = attend.forward if isinstance(attend, nn.Module) else attend
    if not callable(function):
        text = f"an object of type {type(attend).__name__} cannot be called"
        raise Unasked("call", text, "Name a class whose objects can be called, or a function.")
    parameters, further = _named(function), dict(options.call)
    if not _takes_any(function):
        asked = [*further, *([options.mask_name] if options.mask_name else [])]
        _refuse("call", asked, parameters, "its call")
    causal = next((name for name in ("is_causal", "causal") if name in parameters), None)
    if {"query", "key", "value", "key_padding_mask", "attn_mask"} <= {*parameters} and hasattr(
        attend, "num_heads"
    ):
        layout = False if options.sequence_first else True if options.batch_first else None
        return adapters.torch_like(attend, options.kind, batch_first=layout, **further)
    if options.kind == "causal" and causal:
        further.setdefault(causal, True)
    named = options.mask_name or next((name for name in parameters if name in _NAMES["mask"]), None)
    mask_name = None if options.mask == "none" else named
    inputs = 3 if options.kind == "cross" else 1
    call = _caller(attend, inputs, parameters, mask_name, further)
    adapted = adapters.Adapted(call, attend)
    adapted = adapters.sequence_first(adapted) if options.sequence_first else adapted
    if options.kind == "causal":
        alone = mask_name is None or _hides_something(adapted, options)
        masked = None if alone else _shaped(adapted, options)
        return adapted if masked is None else adapters.causal(masked, 1)
    return adapters.without_mask(adapted) if mask_name is None else _shaped(adapted, options)


def _caller(
    attend: Any,
    inputs: int,
    parameters: dict[str, inspect.Parameter],
    mask_name: str | None,
    further: dict[str, Any],
) -> Callable[..., Any]:
    """Call with as many tensors as the implementation takes, by name where names are known."""
    names = [
        name
        for role in ("query", "key", "value")
        for name in [x for x in parameters if x.lower() in _NAMES[role]][:1]
    ]
    unnamed = [x for x, p in parameters.items() if p.kind is p.POSITIONAL_ONLY and x in names]

    def call(*given: Any) -> Any:
        options = dict(further)
        if mask_name and len(given) > inputs and given[inputs] is not None:
            options[mask_name] = given[inputs]
        if len(names) < 3:
            return attend(*given[:inputs], **options)
        tokens = given[:3] if inputs == 3 else given[:1] * 3
        named = dict(zip(names, tokens, strict=True))
        first = [named.pop(name) for name in unnamed]
        return attend(*first, **named, **options)

    return call


def _hides_something(attend: Any, options: argparse.Namespace) -> bool:
    """Tell whether some tokens do not see each other although there is no mask."""
    e, h, length = options.embed_dim, options.num_heads, options.max_length
    patient = Patient(attend, e, h, "causal", None, length)
    with patient.admitted():
        try:
            inputs = patient.draw(1)
            own = torch.arange(len(inputs.query))
            return not counts(reactions(patient, inputs)["query"])[own, :, own].all()
        except Failed:
            return False


def _shaped(attend: Any, options: argparse.Namespace) -> Any:
    """Adapt the mask to the form that the implementation takes; try what no option says."""
    given, h = options.mask_shape, options.num_heads
    shapes = [_SHAPES[given]] if given != "auto" else list(_SHAPES.values())
    forms = [_MEANINGS[options.mask](attend)]
    if options.mask != "additive":
        forms.append(_MEANINGS[options.mask](adapters.numbers(attend)))
    candidates = [shape(form, h) for form in forms for shape in shapes]
    if options.kind == "causal":  # which padding cannot express
        candidates = [x for x in candidates if adapters.masks_of(x) != "padding"]
    for adapted in (*candidates, *map(adapters.always_masked, candidates)):
        if _answers(adapted, options):
            return adapted
    return None if options.kind == "causal" else candidates[0]


def _answers(attend: Any, options: argparse.Namespace) -> bool:
    """Tell whether calls with and without such masks work, at sizes that do not fit by chance."""
    kind = "self" if options.kind == "causal" else options.kind
    patient = Patient(attend, options.embed_dim, options.num_heads, kind, None, options.max_length)
    with patient.admitted():
        try:
            for case in (situations.free(patient), *situations.masked(patient)):
                patient.ask(case.inputs, case.blocked)
        except Failed:
            return False
    return True
