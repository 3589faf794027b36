"""What the tests of attention today share."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="package")
def one_thread():
    """Keep tiny tensors on one thread: on a busy machine, waiting for a second one takes longer."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
