"""The embedded pairs, made by code from a seed: a small target, a draft that helps it, and one that hurts.

The trick: the draft is a random decoder of one layer; the target is that layer and others whose output projections
are scaled down, so that they change the residual stream little. The scale sets how often both agree. Nothing is
trained and nothing is downloaded, yet every forward costs what a model of that shape costs.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from planner.errors import TrialError

TINY_TARGET: Final = "specplan/tiny-target"
TINY_DRAFT: Final = "specplan/tiny-draft"
TINY_DRAFT_BAD: Final = "specplan/tiny-draft-bad"
EMBEDDED: Final = (TINY_TARGET, TINY_DRAFT, TINY_DRAFT_BAD)
TARGET_LAYERS: Final = 24
#: The bad draft is as wide as the target and half as deep: slow, and never right but by chance.
LAYERS: Final = {TINY_TARGET: TARGET_LAYERS, TINY_DRAFT: 1, TINY_DRAFT_BAD: TARGET_LAYERS // 2}
#: Part of the folder's name: a change of the recipe makes new folders.
_RECIPE: Final = "1"
_HIDDEN: Final = 256
_MAKING_SECONDS: Final = 120


def embedded_shape(name: str) -> dict[str, Any]:
    """The sizes of an embedded model, as a Llama configuration names them."""
    return {
        "vocab_size": 320,
        "hidden_size": _HIDDEN,
        "intermediate_size": 2 * _HIDDEN,
        "num_hidden_layers": LAYERS[name],
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": _HIDDEN // 4,
        "max_position_embeddings": 2048,
        "initializer_range": 0.08,
        "tie_word_embeddings": False,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def embedded_config(name: str) -> dict[str, Any]:
    """The whole configuration, for planning without the files."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        **embedded_shape(name),
    }


def embedded_folder(root: Path, name: str) -> Path:
    """Where the named model lies below ``root`` once it is made."""
    return root / f"embedded-{_RECIPE}" / name.rpartition("/")[2]


def is_made(root: Path) -> bool:
    """Whether all three are there."""
    return all((embedded_folder(root, name) / "made").exists() for name in EMBEDDED)


def make_embedded(root: Path) -> None:
    """Let a child make all three below ``root``, unless they are there: only children import torch.

    Raises:
        TrialError: ``trial_embedded``.
    """
    if is_made(root):
        return
    try:
        done = subprocess.run(
            [sys.executable, "-m", "planner.trial.worker.make_embedded", str(root)],
            capture_output=True,
            text=True,
            timeout=_MAKING_SECONDS,
            check=False,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )
    except subprocess.TimeoutExpired as error:
        raise _not_made("it took too long", "try again on a quieter machine") from error
    if done.returncode == 0:
        return
    reason = (done.stderr.strip().splitlines() or ["no reason was given"])[-1]
    hint = (
        "pip install 'specplan[trial]'"
        if "No module named" in reason
        else "make room in the cache folder, and run it again"
    )
    raise _not_made(reason, hint)


def _not_made(reason: str, hint: str) -> TrialError:
    return TrialError(
        f"the embedded pair cannot be made: {reason}", subject="trial", hint=hint, code="trial_embedded"
    )
