"""The trial's own figures on this machine: verdicts, efficiency of the loop, the library's assisted generation.

    make bench-trial                       ten trials of either embedded pair, then the comparison: half an hour
    make bench-trial BENCH_ARGS="--times 2"

Writes benchmarks/results/trial.json, which `make accuracy` puts into docs/accuracy.md. Run it on a quiet machine:
times are real, and only ratios of one run are worth quoting.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from checkout import ROOT

from model_catalog.snapshot_store import cache_folder
from planner.trial.embedded import TINY_DRAFT, TINY_DRAFT_BAD, TINY_TARGET, embedded_folder, make_embedded

RESULTS = ROOT / "benchmarks" / "results" / "trial.json"
#: Of the issue: a draft that helps and one that hurts, and what each has to show.
GOOD_LEAST, GOOD_LOW_LEAST, BAD_MOST = 1.5, 1.2, 0.7
COMPARED_TOKENS = 128
COMPARED_PROMPTS = 12


def main() -> int:
    """Run everything, print it and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10, help="trials of either pair")
    parser.add_argument("--seconds", type=int, default=60, help="of --trial-seconds")
    parser.add_argument("--engine-python", help="an interpreter with vLLM: the pair there, too")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    make_embedded(cache_folder().parent)
    found: dict[str, Any] = {
        "measured_on": datetime.now(UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} CPU cores, {platform.machine()}, Python {platform.python_version()}",
        "good": [_trial(TINY_DRAFT, given.seconds) for _ in range(given.times)],
        "bad": [_trial(TINY_DRAFT_BAD, given.seconds) for _ in range(given.times)],
        "library": _beside_the_library(),
    }
    for row in found["good"]:
        row["right"] = _is_right(row, good=True)
    for row in found["bad"]:
        row["right"] = _is_right(row, good=False)
    if given.engine_python is not None:
        found["engines"] = _engines(given.engine_python, given.seconds)
    given.out.parent.mkdir(exist_ok=True)
    given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    right, wrong = (sum(row["right"] for row in found[which]) for which in ("good", "bad"))
    print(f"helps: {right} of {given.times} as wanted; hurts: {wrong} of {given.times}")
    print(f"the library's assisted generation takes {found['library']['ratio']:.2f} times as long as our loop")
    return 0


def _is_right(row: dict[str, Any], *, good: bool) -> bool:
    if good:
        wanted = row["speedup"]["value"] > GOOD_LEAST and row["speedup"]["low"] > GOOD_LOW_LEAST
        return bool(wanted and row["answer"] == "helps")
    return bool(row["speedup"]["value"] < BAD_MOST and row["answer"] == "hurts")


def _run(draft: str, seconds: int, *options: str) -> dict[str, Any]:
    """The ``trial`` object of one whole `specplan trial`, as a user would start it."""
    with TemporaryDirectory() as place:
        file = Path(place, "trial.json")
        command = [sys.executable, "-m", "planner.cli.main", "trial", TINY_TARGET, draft, "--devices", "cpu"]
        subprocess.run(
            [*command, "--fresh", "--trial-seconds", str(seconds), *options, "--json", str(file)],
            check=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["trial"]
    return found


def _engines(python: str, seconds: int) -> list[dict[str, Any]]:
    """The good pair with k = 4 in our loop and in vLLM, for longer, so that both see most prompts."""
    rows = []
    for options in ((), ("--trial-backend", "vllm", "--engine-python", python)):
        trial = _run(TINY_DRAFT, 2 * seconds, "--num-speculative-tokens", "4", *options)
        speedup = trial["speedup"]
        rows.append(
            {
                "backend": f"{trial['backend']} {trial['versions'].get('vllm', '')}".strip(),
                "prompts": trial["prompts"],
                "by_position": trial["acceptance_per_position"],
                "speedup": f"{speedup['value']:.2f} ({speedup['low']:.2f} to {speedup['high']:.2f})",
                "diverged": f"{trial['lossless']['diverged']} of {trial['lossless']['checked']}",
            }
        )
    return rows


def _trial(draft: str, seconds: int) -> dict[str, Any]:
    """One trial with what is kept of it."""
    start = time.monotonic()
    trial = _run(draft, seconds)
    kept = (
        *("answer", "speedup", "speedup_of_step_times", "num_speculative_tokens", "prompts", "acceptance_rate"),
        *("mean_acceptance_length", "t_target_seconds", "t_draft_seconds", "t_verify_seconds", "repeats_spread"),
        *("stopped_by", "outcome", "memory", "lossless", "versions"),
    )
    row = {name: trial[name] for name in kept}
    row["seconds"] = round(time.monotonic() - start, 1)
    row["efficiency"] = trial["speedup"]["value"] / trial["speedup_of_step_times"]
    speedup = row["speedup"]
    print(
        f"{draft}: {trial['answer']}, {speedup['value']:.2f} ({speedup['low']:.2f} to {speedup['high']:.2f}), k = "
        f"{row['num_speculative_tokens']}, efficiency {row['efficiency']:.3f}, {row['seconds']} s",
        flush=True,
    )
    return row


def _beside_the_library() -> dict[str, Any]:
    """Seconds of the same prompts, tokens and k by our loop and by ``generate(assistant_model=)``, in turn."""
    import torch  # noqa: PLC0415 - only here

    from planner.trial.prompts import groups  # noqa: PLC0415 - as above
    from planner.trial.worker.caches import CachedModel  # noqa: PLC0415 - as above
    from planner.trial.worker.decoding import decode_speculative  # noqa: PLC0415 - as above
    from planner.trial.worker.loading import load_model, load_tokenizer  # noqa: PLC0415 - as above
    from planner.trial.worker.sampling import choice_of  # noqa: PLC0415 - as above

    torch.set_num_threads(max(1, (os.cpu_count() or 2) // 2))
    root, k = cache_folder().parent, 4
    folders = [str(embedded_folder(root, name)) for name in (TINY_TARGET, TINY_DRAFT)]
    target, draft = (load_model(folder, "float32", {"device_map": {"": "cpu"}}) for folder in folders)
    tokenizer = load_tokenizer(folders[0], [320])
    settings = draft.generation_config
    settings.num_assistant_tokens = k
    settings.num_assistant_tokens_schedule = "constant"
    settings.assistant_confidence_threshold = 0.0
    ours, theirs, same = 0.0, 0.0, 0
    with torch.inference_mode():
        for number, (prompt,) in enumerate((groups(1)[0], *groups(1)[:COMPARED_PROMPTS])):
            ids: list[int] = tokenizer(prompt.text)["input_ids"]
            pair = [CachedModel(model=model, device="cpu") for model in (target, draft)]
            start = time.perf_counter()
            own = decode_speculative(*pair, [ids], COMPARED_TOKENS, k, choice_of(0.0, 0, "cpu"))
            middle = time.perf_counter()
            text = torch.tensor([ids])
            generated = target.generate(
                text,
                attention_mask=torch.ones_like(text),
                assistant_model=draft,
                do_sample=False,
                max_new_tokens=COMPARED_TOKENS,
                pad_token_id=0,
            )
            finish = time.perf_counter()
            if number == 0:
                continue  # both warm up on the first
            # Our loop ends with a whole round and may have a few tokens more: per token, prompts included.
            ours += (middle - start) / own.tokens
            theirs += (finish - middle) / (generated.shape[1] - len(ids))
            same += own.rows[0][:COMPARED_TOKENS] == generated[0, len(ids) :].tolist()
    return {
        "num_speculative_tokens": k,
        "prompts": COMPARED_PROMPTS,
        "ours_seconds_a_token": ours / COMPARED_PROMPTS,
        "library_seconds_a_token": theirs / COMPARED_PROMPTS,
        "ratio": theirs / ours,
        "same_tokens": same,
    }


if __name__ == "__main__":
    sys.exit(main())
