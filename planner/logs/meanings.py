"""What it may mean that a printed figure lies off the plan: one sentence a line, with what to look at."""

from planner.logs.compare import LogLine, Side
from planner.planning import Plan

_TWICE = (1.7, 2.3)
_HALF = (0.43, 0.6)


def meaning(line: LogLine, plan: Plan) -> str | None:
    """One sentence; None where the line agrees or was not compared."""
    if line.side not in {Side.ABOVE, Side.BELOW} or line.low is None or line.high is None or line.measured is None:
        return None
    above = line.side is Side.ABOVE
    ratio = line.measured / (line.high if above else line.low) if line.low else 0.0
    work, defaults = plan.serving.workload, plan.defaults
    if line.code in {"weights", "draft_weights"}:
        return _weights(above=above, ratio=ratio, tp=work.tp)
    if line.code in {"kv_cache_tokens", "max_concurrency"}:
        return _tokens(above=above, ratio=ratio, dtype=work.kv_cache_dtype, pinned=_from_bytes(line))
    if line.code == "activation_peak":
        return (
            f"the peak follows max_num_batched_tokens (planned {defaults.max_num_batched_tokens:,}), max_num_seqs "
            f"(planned {defaults.max_num_seqs:,}) and the release (planned {plan.engine.version}): one of them "
            "differs, or a kernel with other workspaces ran"
        )
    if line.code == "kv_bytes_per_token":
        return _tokens(above=not above, ratio=1 / ratio if ratio else 0.0, dtype=work.kv_cache_dtype, pinned=True)
    return _OTHERS[line.code, above]


def _weights(*, above: bool, ratio: float, tp: int) -> str:
    if above and _TWICE[0] <= ratio <= _TWICE[1]:
        return "about twice the plan: loaded in a wider dtype, or split over half as many ranks"
    if not above and _HALF[0] <= ratio <= _HALF[1]:
        return "about half the plan: loaded quantised or in a narrower dtype, or split over twice as many ranks"
    if above:
        return (
            "more was loaded than planned: another dtype or quantisation, layers kept in 16 bits, a draft or an "
            f"adapter that the plan has not, or fewer ranks than {tp}"
        )
    return f"less was loaded than planned: a quantised checkpoint, --quantization, or more ranks than {tp}"


def _tokens(*, above: bool, ratio: float, dtype: str, pinned: bool) -> str:
    if pinned and above and _TWICE[0] <= ratio <= _TWICE[1]:
        return f"twice the tokens in the same bytes: the cache is narrower than planned ({dtype})"
    if pinned and not above and _HALF[0] <= ratio <= _HALF[1]:
        return f"half the tokens in the same bytes: the cache is wider than planned ({dtype})"
    if pinned:
        return (
            f"the same bytes hold {'more' if above else 'fewer'} tokens than planned: another cache dtype than "
            f"{dtype}, another block size, or layers in other groups"
        )
    return "the pool differs: look at the fraction, at the blocks, and at the lines above that are off"


def _from_bytes(line: LogLine) -> bool:
    """Whether the tokens were judged from the bytes that were printed: the two ends then lie close together."""
    return bool(line.low and line.high and line.high / line.low < 1.1)


_OTHERS = {
    (
        "non_torch",
        True,
    ): "more grew outside torch than seen elsewhere: all-reduce workspaces, or another driver",
    ("non_torch", False): "less grew outside torch than seen elsewhere",
    ("consumed", True): (
        "more is held after loading than planned: look at the weights first, then at buffers that follow "
        "max_num_seqs, and at what libraries take"
    ),
    ("consumed", False): "less is held after loading than planned: another model runner, or fewer sequences",
    ("cuda_graph_estimate", True): (
        "more is set aside for CUDA graphs than planned: more or larger sizes are captured, or a draft's own"
    ),
    ("cuda_graph_estimate", False): "less is set aside for CUDA graphs than planned: fewer sizes are captured",
    ("cuda_graphs", True): "CUDA graphs took more than planned: more or larger sizes, or a draft's own",
    ("cuda_graphs", False): "CUDA graphs took less than planned: fewer sizes, or memory came back while capturing",
    ("before_loading", True): (
        "more was in use before loading than an engine's own context: another process held memory on the device"
    ),
    ("before_loading", False): "less was in use before loading than seen elsewhere",
    ("kv_cache_memory", True): (
        "more was left for the cache than planned: another fraction, or overheads below the planned bounds"
    ),
    ("kv_cache_memory", False): (
        "less was left for the cache than planned: another fraction, or weights or overheads above the bounds"
    ),
}
