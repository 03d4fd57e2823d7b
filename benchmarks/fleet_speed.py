"""How long the plan of a fleet takes once its nodes are read: 1,000 simulated nodes, no cluster and no network.

    python benchmarks/fleet_speed.py [--nodes 1000] [--runs 3]

Every GPU has another amount of memory in use, idle ones a few MiB, as drivers report it. Wall seconds of the whole
answer: drafts ranked for each kind of GPU, every node judged, copies counted, the document written.
"""

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from fleet_nodes import gpu, node  # noqa: E402 - found through the line above

from model_catalog.units import GIB, MIB  # noqa: E402 - as above
from planner.fleet.records import NodeReading, NodeState  # noqa: E402 - as above
from planner.report.fleet_text import fleet_text  # noqa: E402 - as above
from planner.service.fleet import FleetResult, fit_fleet  # noqa: E402 - as above
from planner.service.remarks import CollectedRemarks  # noqa: E402 - as above
from planner.service.request import PlanOptions  # noqa: E402 - as above

#: Share of the nodes, GPU, how many of them on a node.
KINDS = ((0.4, "h100-80gb", 8), (0.2, "a100-80gb", 8), (0.2, "l40s", 4), (0.15, "l4", 2))
SEED = 20


def simulated(count: int) -> list[NodeReading]:
    """Nodes of several kinds; a fifth of the GPUs is in use, a twentieth of the nodes has none or fell silent."""
    chance = random.Random(SEED)  # noqa: S311 - the same fleet in every run
    found = []
    for share, kind, gpus in KINDS:
        model = gpu(kind)
        for _ in range(round(share * count)):
            idle = chance.random() < 0.8
            used = [chance.randrange(64 * MIB) if idle else chance.randrange(40 * GIB) for _ in range(gpus)]
            total = model.free_bytes or 0
            devices = [gpu(kind, used_bytes=min(taken, total), index=index) for index, taken in enumerate(used)]
            found.append(node(f"n{len(found):04}", devices))
    while len(found) < count:
        state = NodeState.READ if len(found) % 2 else NodeState.UNREAD
        found.append(node(f"n{len(found):04}", state=state))
    return found


def planned(nodes: Sequence[NodeReading], target: str, drafts: tuple[str, ...]) -> FleetResult:
    """The whole answer of a fleet."""
    options = PlanOptions(
        context=8192,
        batch=16,
        drafts=drafts,
        draft_budget=0.15,
        num_speculative_tokens=None,
        tp=None,
        pp=1,
        enable_expert_parallel=False,
        memory_limit=None,
        engine="vllm",
        dtype="auto",
        quantization=None,
        kv_cache_dtype="auto",
        draft_kv_cache_dtype="auto",
        gpu_memory_utilization=None,
        max_num_batched_tokens=None,
        max_num_seqs=None,
        block_size=None,
        enforce_eager=False,
        no_async_scheduling=False,
        kv_cache_memory=None,
        offline=True,
    )
    return fit_fleet(target, options, nodes, "a simulated fleet", CollectedRemarks())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    nodes = simulated(arguments.nodes)
    for target, drafts in (("Qwen/Qwen3-32B", ("none",)), ("Qwen/Qwen3-32B", ()), ("Qwen/Qwen3-235B-A22B", ())):
        seconds = []
        for _ in range(arguments.runs):
            start = time.monotonic()
            result = planned(nodes, target, drafts)
            size = len(json.dumps(result.report()))
            fleet_text(result.fleet, result.recipes, result.cluster, with_draft=True)
            seconds.append(time.monotonic() - start)
        what = "target alone" if drafts else "drafts ranked"
        spread = f"({min(seconds):.2f} to {max(seconds):.2f}, {arguments.runs} runs)"
        print(
            f"{target}, {what}: {len(nodes):,} nodes in {statistics.median(seconds):.2f} s {spread}: "
            f"{result.fleet.copies:,} copies, document of {size / 1e6:.1f} MB"
        )


if __name__ == "__main__":
    main()
