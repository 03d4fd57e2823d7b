"""A model ready to plan with: its snapshot, its structure, its quantisation and its weights, read together."""

from dataclasses import dataclass

from model_catalog.architecture import ArchitectureSpec
from model_catalog.config_reader import read_architecture
from model_catalog.conversion import Quantization
from model_catalog.families.heads import draft_head_method, read_draft_head
from model_catalog.gguf_weights import as_gguf, chosen_file_type
from model_catalog.quantization import read_quantization
from model_catalog.snapshot import ModelSnapshot, RepoKind
from model_catalog.weights import WeightTable, weigh


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Model:
    """Everything the planner needs of one model. Two models are equal only if they are the same object."""

    snapshot: ModelSnapshot
    architecture: ArchitectureSpec
    quantization: Quantization | None
    weights: WeightTable


def describe(
    snapshot: ModelSnapshot, *, dtype: str = "auto", on_the_fly: str | None = None, gguf: bool = False
) -> Model:
    """Read structure, quantisation and weights out of a snapshot.

    ``dtype`` and ``on_the_fly`` are the engine's ``--dtype`` and ``--quantization``. ``gguf``: the weights are
    those of a GGUF file made of the snapshot, of the type ``on_the_fly``.

    Raises:
        ConfigError, WeightsError: what cannot be read, by key or file.
    """
    subject = snapshot.repo_id
    architecture = _read(snapshot)
    quantization = read_quantization(snapshot.config, snapshot.quantization_file, subject=subject)
    if not gguf:
        weights = weigh(snapshot, architecture, quantization, dtype=dtype, on_the_fly=on_the_fly)
    else:
        kind = chosen_file_type(on_the_fly, dtype=dtype, architecture=architecture, stored=quantization)
        weights = as_gguf(weigh(snapshot, architecture, quantization), architecture, kind)
    return Model(snapshot=snapshot, architecture=architecture, quantization=quantization, weights=weights)


def _read(snapshot: ModelSnapshot) -> ArchitectureSpec:
    # The first EAGLE heads are published under their target's class name: only the repo's kind tells them apart.
    if snapshot.kind is RepoKind.DRAFT_HEAD and draft_head_method(snapshot.config) == "eagle":
        return read_draft_head(snapshot.config, subject=snapshot.repo_id)
    return read_architecture(snapshot.config, subject=snapshot.repo_id)
