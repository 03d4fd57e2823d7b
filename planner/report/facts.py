"""Facts about the target as a whole, before sharding and paging. Pure."""

import hashlib
import json
from dataclasses import dataclass

from model_catalog.architecture import Assumption
from model_catalog.bounds import ByteRange
from model_catalog.checkpoint_files import checkpoint_files
from model_catalog.model import Model
from model_catalog.snapshot import ModelSnapshot, SnapshotSource
from model_catalog.weight_residency import load_dtype
from planner.memory.breakdown import Group
from planner.memory.kv_cache import cache_bytes_per_token, cache_need, state_bytes_per_sequence
from planner.planning import Plan
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
    stored: ByteRange
    resident: ByteRange
    download_bytes: int | None
    kv_per_token: ByteRange
    state_per_sequence: ByteRange
    cache: ByteRange
    assumptions: tuple[Assumption, ...]
    fingerprint: str | None = None


def target_facts(model: Model, workload: Workload) -> TargetFacts:
    """The facts of this target under this request; its cache is in the type that its weights are loaded in.

    Raises:
        UsageError: for an unknown dtype or KV cache dtype.
    """
    snapshot, architecture = model.snapshot, model.architecture
    layers = architecture.decoder_layers
    dtype = load_dtype(architecture, workload.dtype, subject=snapshot.repo_id)
    cached = workload.kv_cache_dtype
    return TargetFacts(
        repo_id=snapshot.repo_id,
        revision=snapshot.commit or snapshot.revision,
        source=snapshot.source,
        architecture=architecture.name,
        parameters=model.weights.parameters,
        stored=model.weights.stored,
        resident=model.weights.resident_bytes(),
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
        fingerprint=files_fingerprint(snapshot),
    )


def files_fingerprint(snapshot: ModelSnapshot) -> str | None:
    """What changes when a local folder's model does: configuration, and the names and sizes of its weight files.

    None for what has a commit, which says more. Weights that were changed in place keep their sizes: not seen.
    """
    if snapshot.source is not SnapshotSource.LOCAL:
        return None
    files = sorted((file.path, file.size_bytes) for file in checkpoint_files(snapshot.files, snapshot.config))
    facts = [snapshot.config, snapshot.quantization_file, files]
    text = json.dumps(facts, sort_keys=True, default=dict)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def stored_bytes(snapshot: ModelSnapshot) -> int | None:
    """Bytes of all stored tensors as far as the snapshot says so itself, without reading its configuration."""
    if snapshot.weight_groups:
        return sum(group.stored_bytes for group in snapshot.weight_groups)
    return snapshot.index_total_bytes or snapshot.published_bytes


def download_bytes(snapshot: ModelSnapshot) -> int | None:
    """Bytes of the files that an engine loads from the Hub; None where a size is not known, or all is local."""
    if snapshot.source is SnapshotSource.LOCAL:
        return None
    sizes = [file.size_bytes for file in checkpoint_files(snapshot.files, snapshot.config)]
    known = [size for size in sizes if size is not None]
    return sum(known) if known and len(known) == len(sizes) else None


def load_peak_bytes(plan: Plan) -> int | None:
    """The most that loading may hold on one device: its weights and what comes on top; None where not known."""
    peaks = [
        sum(rank.breakdown.of_group(group).high_bytes for group in (Group.TARGET_WEIGHTS, Group.DRAFT_WEIGHTS))
        + rank.loading.extra.high_bytes
        for rank in plan.ranks
        if rank.loading is not None
    ]
    return max(peaks) if len(peaks) == len(plan.ranks) else None


def host_memory(plan: Plan) -> ByteRange | None:
    """Host memory of the engine with all ranks on one machine; None where the engine's profile does not know."""
    known = [rank.loading.host for rank in plan.ranks if rank.loading is not None]
    return max(known, key=lambda size: size.high_bytes) if len(known) == len(plan.ranks) else None
