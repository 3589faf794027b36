"""Heads over two processes give what one process gives."""

import json
import os
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

from annotated_attention.modern import LanguageModel
from annotated_book import sharded

# As torchrun does it, but that the second process is a copy of the first: importing takes long.
TWO = f"""
import os
from {sharded.__name__} import main
os.environ["RANK"] = str(int(not os.fork()))
main()
"""


def test_two_processes_give_what_one_gives():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    env = os.environ | {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    command = [sys.executable, "-c", TWO]
    run = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    found = json.loads(run.stdout)
    assert max(found["logits apart"], found["gradients apart"]) < 1e-12
    assert list(found["exchanges"].values()) == [2 * sharded.SMALL.num_layers]
    assert found["shape here"] == [sharded.SMALL.embed_dim, sharded.SMALL.hidden_dim // 2]
    assert found["bias in each, apart"] == pytest.approx(found["largest bias"])


def test_heads_that_cannot_be_shared_out():
    three = SimpleNamespace(size=lambda: 3)
    with pytest.raises(ValueError, match=r"num_kv_heads \(2\) must be divisible by the 3 proc"):
        sharded.shard(LanguageModel(sharded.SMALL), three)
