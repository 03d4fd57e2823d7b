"""Facts about the target as a whole, before sharding and paging. Pure."""

from dataclasses import dataclass

from model_catalog.architecture import Assumption
from model_catalog.bounds import ByteRange
from model_catalog.dtypes import find_dtype
from model_catalog.model import Model
from model_catalog.snapshot import ModelSnapshot, SnapshotSource
from planner.memory.kv_cache import cache_bytes_per_token, cache_need, state_bytes_per_sequence
from planner.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFacts:
    """What is told about the target; None where it is not known.

    ``download_bytes`` is what the Hub would send for the weights, None for what is on disk already.
    """

    repo_id: str
    revision: str | None
    source: SnapshotSource
    architecture: str
    parameters: int | None
    stored_bytes: int | None
    resident: ByteRange | None
    download_bytes: int | None
    kv_per_token: ByteRange
    state_per_sequence: ByteRange
    cache: ByteRange
    assumptions: tuple[Assumption, ...]


def target_facts(model: Model, workload: Workload) -> TargetFacts:
    """The facts of this target under this request.

    Raises:
        UsageError: for an unknown KV cache dtype.
    """
    snapshot, architecture = model.snapshot, model.architecture
    layers = architecture.decoder_layers
    dtype = find_dtype(workload.dtype) or architecture.dtype
    cached = workload.kv_cache_dtype
    return TargetFacts(
        repo_id=snapshot.repo_id,
        revision=snapshot.commit or snapshot.revision,
        source=snapshot.source,
        architecture=architecture.name,
        parameters=snapshot.published_parameters or architecture.parameters(),
        stored_bytes=stored_bytes(snapshot),
        resident=_resident(model),
        download_bytes=download_bytes(snapshot),
        kv_per_token=cache_bytes_per_token(layers, model_dtype=dtype, kv_dtype=cached),
        state_per_sequence=state_bytes_per_sequence(layers, model_dtype=dtype),
        cache=cache_need(
            layers,
            context_tokens=workload.context_tokens,
            batch=workload.batch,
            model_dtype=dtype,
            kv_dtype=cached,
        ),
        assumptions=architecture.assumptions,
    )


def stored_bytes(snapshot: ModelSnapshot) -> int | None:
    """Bytes of all stored tensors, the best known: headers, the index's total, a published figure."""
    if snapshot.weight_groups:
        return sum(group.stored_bytes for group in snapshot.weight_groups)
    return snapshot.index_total_bytes or snapshot.published_bytes


def download_bytes(snapshot: ModelSnapshot) -> int | None:
    """Bytes of the safetensors files of a repo that is not a local folder; None where a size is not known."""
    if snapshot.source is SnapshotSource.LOCAL:
        return None
    sizes = [file.size_bytes for file in snapshot.files if file.path.endswith(".safetensors")]
    known = [size for size in sizes if size is not None]
    return sum(known) if known and len(known) == len(sizes) else None


def _resident(model: Model) -> ByteRange | None:
    groups = model.weights.groups
    if not groups:
        return None
    total = ByteRange.point(0)
    for group in groups:
        total += ByteRange(low_bytes=group.low_bytes, high_bytes=group.high_bytes)
    return total
