"""How long a plan takes, as whole processes, beside a peer; and how long 138 headers take behind a slow server.

    make bench                                     our own figures
    make bench BENCH_ARGS="--peer path/to/vramscout"   with the peer (PyPI: vramscout 0.7.0) on the same model

Everything runs on this machine: the Hub is a stand-in on loopback in a process of its own. Nothing here is a
test: times depend on the machine, and only the ratio of two medians of one run is worth quoting.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

QWEN3_32B = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 5120,
    "intermediate_size": 25_600,
    "num_hidden_layers": 64,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151_936,
    "max_position_embeddings": 40_960,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
LLAMA_70B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8192,
    "intermediate_size": 28_672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128_256,
    "max_position_embeddings": 131_072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
SERVER = """
import sys, time
from hub_server import Fault, HubRepo, HubServer
from made_repos import sharded_repo
from plan_speed import LLAMA_70B, QWEN3_32B
with HubServer() as hub:
    hub.add(HubRepo(repo_id="Qwen/Qwen3-32B", files=sharded_repo(QWEN3_32B, shards=14, sparse=True)))
    hub.add(HubRepo(repo_id="many/shards", files=sharded_repo(LLAMA_70B, shards=138, sparse=True)))
    hub.fail("many/shards", Fault(delay_seconds=0.08))
    print(hub.url, flush=True)
    sys.stdin.read()
"""
READER = """
import sys, time
from model_catalog.hub import load_snapshot
from model_catalog.snapshot import RepoRef
start = time.monotonic()
snapshot = load_snapshot(RepoRef.parse("many/shards"))
print(time.monotonic() - start, sum(group.stored_bytes for group in snapshot.weight_groups))
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="the vramscout program to compare with")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    specplan = str(Path(sys.executable).parent / "specplan")
    with (
        tempfile.TemporaryDirectory() as home,
        subprocess.Popen(
            [sys.executable, "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'tests'}:{ROOT / 'benchmarks'}"},
        ) as server,
    ):
        url = server.stdout.readline().strip() if server.stdout else ""
        environment = {
            **os.environ,
            "HF_ENDPOINT": url,
            "HOME": home,
            "XDG_CACHE_HOME": f"{home}/cache",
            "HF_HOME": f"{home}/hf",
        }
        ours = [specplan, "fit", "Qwen/Qwen3-32B", "--context", "8192", "--batch", "16", "--gpu", "h100-80gb:2"]
        # The peer sizes the target alone; so does the second of these. The third also finds and ranks drafts.
        commands = {
            "specplan --help": [specplan, "--help"],
            "fit, target alone": [*ours, "--draft", "none", "--offline"],
            "fit, drafts ranked": [*ours, "--offline"],
            "fit, Hub, second run": ours,
        }
        if arguments.peer:
            asked = ["Qwen/Qwen3-32B", "--context", "8192", "--batch-size", "16", "--tp", "2", "--vram-gib", "80"]
            commands["peer"] = [arguments.peer, *asked]
        medians = measure(commands, environment, arguments.runs)
        if arguments.peer:
            alone, searched = medians["fit, target alone"], medians["fit, drafts ranked"]
            print(f"{'target alone / peer':<24}{alone / medians['peer']:8.2f}   (to reach: 0.70 or less)")
            print(f"{'drafts ranked / peer':<24}{searched / medians['peer']:8.2f}")
        read_headers(environment)
        server.terminate()


def measure(commands: Mapping[str, Sequence[str]], environment: Mapping[str, str], runs: int) -> dict[str, float]:
    """Median wall time of each command over ``runs`` rounds after one warm-up; prints it with the extremes.

    A round runs every command once, so that a busy moment of the machine falls on all of them.
    """
    times: dict[str, list[float]] = {label: [] for label in commands}
    for number in range(runs + 1):
        for label, command in commands.items():
            start = time.monotonic()
            done = subprocess.run(command, env=dict(environment), capture_output=True, text=True, check=False)
            if number:
                times[label].append(time.monotonic() - start)
            if done.returncode not in {0, 2, 3, 4}:
                raise SystemExit(f"{' '.join(command)} answered {done.returncode}:\n{done.stdout}{done.stderr}")
    for label, taken in times.items():
        spread = f"({min(taken):.3f} to {max(taken):.3f}, {runs} runs)"
        print(f"{label:<24}{statistics.median(taken):8.3f} s   {spread}")
    return {label: statistics.median(taken) for label, taken in times.items()}


def read_headers(environment: Mapping[str, str]) -> None:
    """Read 138 headers, 80 ms a request, in a fresh process with an empty cache."""
    done = subprocess.run(
        [sys.executable, "-c", READER], env=dict(environment), capture_output=True, text=True, check=True
    )
    seconds, stored = done.stdout.split()
    expected = 141_107_412_992  # the Hub's total of meta-llama/Llama-3.1-70B
    verdict = "exact" if int(stored) == expected else f"WRONG, expected {expected:,}"
    print(f"{'138 headers, 80 ms each':<24}{float(seconds):8.3f} s   ({int(stored):,} bytes, {verdict})")


if __name__ == "__main__":
    main()
