"""How tests run models in this process."""

import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture
def as_the_child_runs() -> Iterator[None]:
    """Without gradients, and with one thread: two that wait for each other at every tiny step take far longer."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own, about its future
        yield
    torch.set_num_threads(threads)
