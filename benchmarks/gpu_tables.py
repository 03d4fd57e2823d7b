"""The tables of ``gpu_check``: its document as markdown. Owns no figure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

_GIB: Final = 1024**3
_MIB: Final = 1024**2


def markdown(document: Mapping[str, Any]) -> str:
    """The whole report."""
    lines = [
        f"# {document['device']}",
        "",
        f"Driver {document['driver'] or 'none'}; {_versions(document)}. k = {document['k']}."
        + (" Tiny shapes: these figures check the script alone." if document["tiny"] else ""),
        "",
        "| part | status | seconds | remarks |",
        "|---|---|---:|---|",
    ]
    for part in document["parts"]:
        remarks = [part["reason"]] if "reason" in part else []
        remarks += part.get("measured", {}).get("errors", []) + part.get("trial", {}).get("failures", [])[:1]
        lines.append(
            f"| {part['name']} | {part['status']} | {part['seconds']:.0f} | {_cell('; '.join(remarks))} |"
        )
    pairs = [part for part in document["parts"] if "bytes" in part]
    lines += _bytes_table(pairs) if pairs else []
    lines += _steps_table(pairs) if pairs else []
    trials = [part for part in document["parts"] if "trial" in part]
    lines += _trial_table(trials) if trials else []
    return "\n".join(lines)


def _versions(document: Mapping[str, Any]) -> str:
    for part in document["parts"]:
        versions = part.get("measured", part.get("trial", {}).get("loaded", {})).get("versions")
        if versions:
            return ", ".join(f"{name} {value}" for name, value in versions.items() if value)
    return "versions unknown"


def _bytes_table(pairs: list[Mapping[str, Any]]) -> Iterator[str]:
    known = [(pair, row) for pair in pairs for row in pair["bytes"] if row["measured_bytes"] is not None]
    largest = max((row["measured_bytes"] for _, row in known), default=0)
    unit, name = (_GIB, "GiB") if largest > _GIB // 10 else (_MIB, "MiB")
    yield from (
        *("", f"## Bytes, in {name}", ""),
        "| pair | batch | what | planned | measured | verdict |",
        "|---|---:|---|---:|---:|---|",
    )
    for pair, row in known:
        low, high, measured = row["low_bytes"], row["high_bytes"], row["measured_bytes"]
        between = f"{low / unit:.3f}" + (f" to {high / unit:.3f}" if low < high else "")
        yield (
            f"| {pair['name']} | {row['batch']} | {row['what']} | {between} "
            f"| {measured / unit:.3f} | {_verdict(low, high, measured)} |"
        )


def _verdict(low: int, high: int, measured: int) -> str:
    """Within the planned range, or how far beyond its nearer end."""
    if low <= measured <= high:
        return "within"
    return f"{100 * (measured / (high if measured > high else low) - 1):+.2f} %"


def _steps_table(pairs: list[Mapping[str, Any]]) -> Iterator[str]:
    yield from (
        *("", "## Step times, in ms: measured (modelled)", ""),
        "| pair | batch | way | t_T | t_D | t_V | cycle / t_T | speedup, measured steps | speedup, modelled |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|",
    )
    for pair in pairs:
        for row in pair["steps"]:
            times = " | ".join(_step(row, name) for name in ("target", "draft", "verify"))
            yield (
                f"| {pair['name']} | {row['batch']} | {row['way']} | {times} | {row['cycle_ratio']:.2f} "
                f"| {_range(row['speedup_of_measured_steps'])} | {_range(row['speedup_of_modelled_steps'])} |"
            )


def _step(row: Mapping[str, Any], name: str) -> str:
    modelled = row["modelled_seconds"]
    told = "" if modelled is None else f" ({_range(modelled[name], 1000)})"
    return f"{1000 * row['measured_seconds'][name]:.2f}{told}"


def _trial_table(trials: list[Mapping[str, Any]]) -> Iterator[str]:
    yield from (
        *("", "## Trials", ""),
        "| trial | prompts | tokens a pass | speedup (95 %) | t_T | t_D | t_V, ms | diverged | GiB (limit) |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    )
    for part in trials:
        found = part["trial"]
        steps = (found[f"{name}_step_seconds"] for name in ("target", "draft", "verify"))
        peak, limit = found["memory"].get("reserved_peak_bytes"), found["limit_bytes"]
        held = "" if peak is None else f"{peak / _GIB:.2f}" + (f" ({limit / _GIB:.2f})" if limit else "")
        speedup = found["speedup"]
        interval = "" if speedup["low"] is None else f" ({speedup['low']:.2f} to {speedup['high']:.2f})"
        yield (
            f"| {part['name']} | {found['prompts']} | {found['mean_acceptance_length']['value']:.2f} "
            f"| {speedup['value']:.2f}{interval} "
            f"| {' | '.join('' if step is None else f'{1000 * step:.2f}' for step in steps)} "
            f"| {found['diverged']} of {found['compared']} | {held} |"
        )


def _range(given: Mapping[str, float] | None, scale: float = 1.0) -> str:
    return "not told" if given is None else f"{scale * given['low']:.2f} to {scale * given['high']:.2f}"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "/").split())[:300]
