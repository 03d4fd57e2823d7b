"""Module lists of quantisation configs, in each of their spellings."""

import pytest

from model_catalog.errors import UnsupportedConfigError
from model_catalog.module_patterns import MAX_PATTERNS, ModulePatterns


@pytest.mark.parametrize(
    ("pattern", "path", "meant"),
    [
        ("lm_head", "lm_head", True),
        ("head", "lm_head", False),
        ("model.lm_head", "lm_head", True),
        ("language_model.lm_head", "lm_head", True),
        ("model.layers.1", "layers.1.mlp.up_proj", True),
        ("model.layers.1", "layers.11.mlp.up_proj", False),
        ("backbone.layers.1.mixer.in_proj", "layers.1.mixer.in_proj", True),
        ("layers.0.mlp.experts", "mtp.layers.0.mlp.experts.0.up_proj", False),
        ("mtp.layers.0.mlp", "layers.0.mlp.up_proj", False),
        ("model.mtp.layers.0", "mtp.layers.0.mlp.up_proj", True),
        ("mtp.layers.0", "mtp.layers.0.mlp.experts.0.up_proj", True),
        ("gate", "layers.1.block_sparse_moe.gate", True),
        ("gate", "layers.1.mlp.gate_proj", False),
        ("model.layers.1*", "layers.11.mlp.up_proj", True),
        ("*.mlp.shared_expert.*", "layers.1.mlp.shared_expert.up_proj", True),
        ("re:.*mlp.gate$", "layers.1.mlp.gate", True),
        ("re:.*mlp.gate$", "layers.1.mlp.gate_proj", False),
        ("re:model.layers.1.mlp", "layers.1.mlp.up_proj", True),
    ],
)
def test_patterns(pattern: str, path: str, meant: bool) -> None:
    assert ModulePatterns([pattern], subject="s", key_path="k").mean([path]) is meant


def test_a_list_has_an_end() -> None:
    with pytest.raises(UnsupportedConfigError, match="lists 100001 modules"):
        ModulePatterns(["a"] * (MAX_PATTERNS + 1), subject="s", key_path="k")


def test_class_names_stand_for_every_matrix() -> None:
    assert ModulePatterns(["Linear"], subject="s", key_path="k").names_every_linear
    assert not ModulePatterns(["lm_head"], subject="s", key_path="k").names_every_linear
