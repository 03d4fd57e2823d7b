"""Common problems of serving with speculation: how each shows, how specplan sees it coming, what helps.

One table for the plan's report and for docs/guides/common-problems.md. Rows without a sign are those that only a
running server shows. Sources of the symptoms: vLLM's own messages (``v1/worker/utils.py``,
``v1/core/kv_cache_utils.py``, ``config/speculative.py``, ``sampling_params.py``) and llama.cpp's
``server-context.cpp``.
"""

from dataclasses import dataclass
from typing import Final

from planner.planning import Plan
from planner.speculation import problem_signs as signs
from planner.speculation.compatibility import Compatibility
from planner.speculation.prediction import Prediction
from planner.speculation.problem_signs import Case, Sign


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownProblem:
    """A row of the table. ``seen_by``: what the sign looks at, in words; ``sign`` None: only a server shows it."""

    code: str
    title: str
    symptom: str
    seen_by: str
    remedies: tuple[str, ...]
    sign: Sign | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A known problem that this plan shows. ``evidence``: this plan's own figures."""

    code: str
    title: str
    symptom: str
    evidence: str
    remedies: tuple[str, ...]


def diagnose(
    plan: Plan, compatibility: Compatibility | None = None, prediction: Prediction | None = None
) -> tuple[Problem, ...]:
    """The known problems that this plan shows, in the table's order: what stops it first."""
    case = Case(plan=plan, compatibility=compatibility, prediction=prediction)
    found: list[Problem] = []
    for known in KNOWN_PROBLEMS:
        evidence = None if known.sign is None else known.sign(case)
        if evidence is not None:
            found.append(
                Problem(
                    code=known.code,
                    title=known.title,
                    symptom=known.symptom,
                    evidence=evidence,
                    remedies=known.remedies,
                )
            )
    return tuple(found)


KNOWN_PROBLEMS: Final = (
    KnownProblem(
        code="reading_missing",
        title="It cannot be told whether it fits",
        symptom="The verdict is unknown (exit code 4).",
        seen_by="a device reading or a model's size is missing",
        sign=signs.reading_missing,
        remedies=(
            "find out what cannot be read: specplan doctor",
            "plan for a declared GPU (--gpu h100-80gb) or a size (--gpu 80GiB)",
        ),
    ),
    KnownProblem(
        code="out_of_memory_at_start",
        title="Out of memory while loading or profiling",
        symptom="CUDA out of memory (torch.OutOfMemoryError) before the server is ready.",
        seen_by="the sum's high bound exceeds the engine's budget or free memory",
        sign=signs.memory_missing,
        remedies=(
            "lower --max-num-seqs and --max-num-batched-tokens: their buffers cost no quality",
            "keep the cache in fp8 (--kv-cache-dtype fp8), or plan a smaller --context or --batch",
            "load weights in fp8 (--quantization fp8), or choose a quantised checkpoint",
            "spread it over more GPUs (--tp), or serve without a draft (--draft none)",
        ),
    ),
    KnownProblem(
        code="utilization_window_empty",
        title="No memory fraction works",
        symptom=(
            'A low fraction leaves no room for the cache, a high one is refused at start: "Free memory on device '
            'is less than desired GPU memory utilization".'
        ),
        seen_by="the lowest fraction that holds the plan lies above the highest that is free",
        sign=signs.window_empty,
        remedies=(
            "free the device: what lies beside the budget (contexts, other processes) cannot be planned away",
            "need less inside the budget: --max-num-seqs, --kv-cache-dtype fp8, a smaller --context",
        ),
    ),
    KnownProblem(
        code="fraction_not_free",
        title="The memory fraction is not free at start",
        symptom='"Free memory on device ... on startup is less than desired GPU memory utilization".',
        seen_by="free memory, less what lies beside the budget, is below total x fraction",
        sign=signs.fraction_not_free,
        remedies=(
            "leave --gpu-memory-utilization out: specplan then chooses one that works",
            "end the processes that hold memory, or plan for a part of the card (--memory-limit)",
        ),
    ),
    KnownProblem(
        code="fraction_leaves_too_little",
        title="The memory fraction leaves too little beside the pool",
        symptom=(
            "SGLang or TensorRT-LLM makes its pool, then CUDA runs out of memory while graphs are captured or at "
            "the first long prompt."
        ),
        seen_by="what comes after the pool exceeds the rest of the memory that the fraction is taken of",
        sign=signs.fraction_leaves_too_little,
        remedies=(
            "leave --gpu-memory-utilization out: specplan then chooses one that works",
            "run fewer tokens a step (--max-num-batched-tokens), or admit fewer sequences (--max-num-seqs)",
        ),
    ),
    KnownProblem(
        code="draft_cache_miscounted",
        title="SGLang charges too little for the draft's cache",
        symptom="CUDA runs out of memory when the draft's pool is made, though the pool was sized for both.",
        seen_by="the draft's bytes a token exceed its layers at the target's size, which is what SGLang charges",
        sign=signs.draft_cache_miscounted,
        remedies=(
            "keep the memory fraction that specplan writes: it leaves room for what is not charged",
            "keep the draft's cache in fp8 (--draft-kv-cache-dtype fp8), or choose a head for this target",
        ),
    ),
    KnownProblem(
        code="no_cache_blocks",
        title="No room for the KV cache",
        symptom=(
            '"No available memory for the cache blocks", or the cache that one request of max_model_len needs "is '
            'larger than the available KV cache memory".'
        ),
        seen_by="the pool holds less than one sequence of the planned context",
        sign=signs.no_room_for_one,
        remedies=(
            "plan a smaller --context, or keep the cache in fp8 (--kv-cache-dtype fp8)",
            "raise --gpu-memory-utilization within the window that specplan prints",
            "the draft's cache shares the pool: try --draft ngram, which has none, or --draft none",
        ),
    ),
    KnownProblem(
        code="pool_below_batch",
        title="Sequences are preempted",
        symptom="Throughput falls and the log tells of preemption and recomputation under load.",
        seen_by="the pool holds fewer full sequences than --batch",
        sign=signs.pool_below_batch,
        remedies=(
            "admit fewer at once (--max-num-seqs), or plan a smaller --context",
            "keep both caches in fp8 (--kv-cache-dtype fp8 --draft-kv-cache-dtype fp8)",
        ),
    ),
    KnownProblem(
        code="other_processes",
        title="Other processes hold memory",
        symptom="Free memory is less than the card's; the same command works on an idle one.",
        seen_by="the driver reports memory held by other processes",
        sign=signs.others_hold_memory,
        remedies=(
            "look at them with nvidia-smi and end those that are yours; a crashed server may still be there",
            "plan beside them: what is free now is already what the plan uses",
        ),
    ),
    KnownProblem(
        code="graph_capture",
        title="Out of memory during CUDA graph capture",
        symptom="Loading and profiling succeed, then capturing graphs fails with CUDA out of memory.",
        seen_by="graphs decide whether it fits, or the release does not charge them to its budget (before 0.21)",
        sign=signs.graphs_tip_it,
        remedies=(
            "run without graphs (--enforce-eager): slower, most of all for small models",
            "lower --max-num-seqs, so that fewer sizes are captured; or --gpu-memory-utilization by 0.02",
        ),
    ),
    KnownProblem(
        code="draft_over_budget",
        title="The draft takes too much of the device",
        symptom="The target alone fits comfortably, the pair hardly does; fewer sequences fit than before.",
        seen_by="the draft's weights, cache and buffers exceed --draft-budget of a device",
        sign=signs.draft_over_budget,
        remedies=(
            "keep the draft's cache in fp8 (--draft-kv-cache-dtype fp8): at length it outweighs the weights",
            "choose a smaller draft, an EAGLE-3 head, or the target's own layers (--draft mtp)",
            "allow more with --draft-budget, if the sequences it costs are not needed",
        ),
    ),
    KnownProblem(
        code="draft_caps_context",
        title="The draft caps the context",
        symptom=(
            "max_model_len is lowered to the draft's with no more than a warning (vLLM 0.33); earlier releases "
            "serve long sequences without speculation."
        ),
        seen_by="the draft's context limit lies below the target's",
        sign=signs.draft_caps_context,
        remedies=(
            "choose a draft with as long a context, or one without a limit of its own (mtp, --draft ngram)",
            "if the planned --context is enough, nothing needs doing",
        ),
    ),
    KnownProblem(
        code="state_multiplied",
        title="Recurrent state grows with k",
        symptom="A hybrid model (Mamba, gated delta net) holds far fewer sequences with speculation than without.",
        seen_by="the target has recurrent layers, and a draft is planned",
        sign=signs.state_multiplied,
        remedies=("draft fewer tokens (--num-speculative-tokens 1-3)", "admit fewer sequences (--max-num-seqs)"),
    ),
    KnownProblem(
        code="chunks_kept_whole",
        title="Chunked attention keeps the whole context",
        symptom="Llama 4 with an EAGLE-style head needs several times the cache that it needs alone.",
        seen_by="chunked layers beside a draft that reads hidden states: vLLM drops its hybrid cache manager",
        sign=signs.chunks_kept_whole,
        remedies=("use --draft ngram, which keeps the chunks", "plan a smaller --context"),
    ),
    KnownProblem(
        code="vocabulary_refused",
        title="The vocabularies do not match",
        symptom='"Target and draft model should have the same vocabulary size" (vLLM); SGLang compares tokens.',
        seen_by="the engine's own rule, on both configurations and tokenizers",
        sign=signs.vocabulary_refused,
        remedies=(
            "choose a draft of the same family and generation: specplan drafts TARGET lists those known",
            "use a method without a vocabulary of its own: --draft mtp, --draft ngram, or a head for this target",
            "vLLM 0.25 and later can translate (use_heterogeneous_vocab), with fewer accepted tokens",
            "do not edit vocab_size in config.json: the rows that are then missing are read as garbage",
        ),
    ),
    KnownProblem(
        code="tokens_differ",
        title="Equal sizes, different tokens",
        symptom="The server starts, but acceptance is far below what the pair should reach.",
        seen_by="some ids mean other tokens to the draft than to the target",
        sign=signs.tokens_differ,
        remedies=("choose a draft published with the target's tokenizer",),
    ),
    KnownProblem(
        code="pair_unknown",
        title="The pair cannot be judged",
        symptom="The compatibility of a draft is given as unknown.",
        seen_by="a tokenizer or a configuration was not read",
        sign=signs.pair_unknown,
        remedies=(
            "download both tokenizers first (hf download REPO tokenizer.json), or plan with the network on",
        ),
    ),
    KnownProblem(
        code="method_flipped",
        title="A plain draft is loaded as a head",
        symptom="Missing weights while loading the draft, or next to no acceptance; the log names another method.",
        seen_by="the draft's path holds eagle-, eagle3, dflash or dspark, which vLLM obeys over the method",
        sign=signs.method_flipped,
        remedies=("serve the draft from a folder whose path has none of these words",),
    ),
    KnownProblem(
        code="mtp_not_loaded",
        title="Built-in draft layers are not used",
        symptom="The checkpoint is larger than what the server says it loaded; nothing is drafted.",
        seen_by="the target ships multi-token-prediction layers, and the plan does not use them",
        sign=signs.mtp_unused,
        remedies=("try --draft mtp: no download, one cache layer, and no other tokenizer",),
    ),
    KnownProblem(
        code="low_acceptance",
        title="Acceptance is low",
        symptom="The accepted share in the log (num_accepted_tokens over num_draft_tokens) stays low.",
        seen_by="the expected acceptance reaches below what pays at this k",
        sign=signs.acceptance_too_low,
        remedies=(
            "draft fewer tokens (--num-speculative-tokens 2): late positions are accepted least",
            "use a draft made for this very target (an EAGLE-3 head, MTP), in the same chat template",
            "measure on your own prompts: code and summaries are accepted more often than chat; sampling less",
        ),
    ),
    KnownProblem(
        code="slower_than_baseline",
        title="Slower with the draft than without",
        symptom="Tokens a second fall when speculation is switched on.",
        seen_by="the predicted range of the speedup reaches below 1",
        sign=signs.may_be_slower,
        remedies=(
            "compare with the target alone on your own load before keeping the draft",
            "choose a shallower draft: its time grows with its layers, more than with its size",
            "use --draft ngram where answers repeat the prompt, --draft none where the server is busy",
        ),
    ),
    KnownProblem(
        code="stops_paying_under_load",
        title="It pays when idle and costs when busy",
        symptom="Latency improves at low load, throughput falls at high load.",
        seen_by="the batch from which the predicted range lies below 1 is one that the server may reach",
        sign=signs.stops_paying,
        remedies=(
            "cap what is served at once (--max-num-seqs)",
            "switch it off by batch size: num_speculative_tokens_per_batch_size in vLLM 0.24 and later, "
            "max_concurrency in TensorRT-LLM",
        ),
    ),
    KnownProblem(
        code="request_refused",
        title="Single requests are refused",
        symptom='"The min_p and logit_bias sampling parameters are not yet supported with speculative decoding".',
        seen_by="not to be seen in a plan",
        remedies=("leave these two out of the request, or serve it from a server without speculation",),
    ),
    KnownProblem(
        code="draft_ignored",
        title="A draft is loaded and nothing is drafted",
        symptom="llama-server logs no draft acceptance: without a spec-type, a plain draft is loaded and dropped.",
        seen_by="not to be seen in a plan",
        remedies=(
            "start it as the printed command does; a pair that it does not take is only logged, so read the log",
        ),
    ),
)
