"""What a repo's name says: which model it is a variant of, its family, its size, whether it is a draft head.

Names are claims, not facts: they choose what to look at, and every candidate is read before it is judged. Pure.
"""

import re
from typing import Final

#: Name parts that state a storage type or a quantiser: the published spellings of vLLM, llm-compressor (RedHatAI),
#: ModelOpt (nvidia), AutoAWQ, GPTQ, bitsandbytes, GGUF, EXL and MLX uploads.
_STORAGE: Final = re.compile(
    r"(?:quantized\.)?w\d{1,2}a\d{1,2}|nvfp4(?:a16)?|mxfp[468]|fp[48]|int[48]|awq|gptq|bnb|[2-8]bit|gguf"
    r"|q[2-8](?:_[a-z0-9]+)*|qat|exl[23]|autoround|bf16|fp16"
)
#: Said only beside a storage type: how scales are kept, who packed it.
_STORAGE_DETAIL: Final = frozenset(
    {"dynamic", "static", "pertensor", "block", "kv", "unquantized", "unsloth", "g32", "g64", "g128"}
)
#: The last parts of a name that tell the base model from its chat tuning and from its packaging.
_TUNING: Final = frozenset({"instruct", "chat", "it", "base", "pt", "hf"})
_SIZE: Final = re.compile(r"(?:(\d{1,3})x)?(\d{1,4}(?:\.\d{1,3})?)([bmt])")
_SIZE_UNITS: Final = {"m": 10**6, "b": 10**9, "t": 10**12}
#: Words of names whose models do not write text.
_OTHER_USES: Final = frozenset(
    {"embedding", "embed", "reranker", "reward", "rm", "prm", "guard", "asr", "tts", "ocr", "omni", "audio"}
)
#: What heads call themselves, the most specific first; vLLM's names of the methods.
_HEADS: Final = (
    (re.compile(r"(?<![a-z])p-?eagle"), "peagle"),
    (re.compile(r"(?<![a-z])eagle[-_.]?3"), "eagle3"),
    (re.compile(r"(?<![a-z])eagle"), "eagle"),
    (re.compile(r"(?<![a-z])dspark"), "dspark"),
    (re.compile(r"(?<![a-z])dflash"), "dflash"),
    (re.compile(r"(?<![a-z])medusa"), "medusa"),
    (re.compile(r"(?<![a-z])hydra"), "hydra"),
    (re.compile(r"-assistant$"), "mtp"),
)


def variant_of(repo_id: str) -> str:
    """The name that every storage variant of one model shares: lower case, no organisation, no quantisation.

    ``RedHatAI/Llama-3.3-70B-Instruct-quantized.w8a8`` and ``unsloth/Llama-3.3-70B-Instruct`` both give
    ``llama-3.3-70b-instruct``. The name is split at hyphens, and parts are taken off its end while each is a
    storage type or a detail of one; they stay where no storage type is among them. Nothing is guessed inside a
    name: a fine-tune with a name of its own is another model. ``Meta-Llama`` is ``Llama``: Meta renamed the repos.
    """
    parts = repo_id.rpartition("/")[2].lower().split("-")
    if parts[:2] == ["meta", "llama"]:
        parts = parts[1:]
    return "-".join(parts[: len(parts) - _storage_parts(parts)])


def without_storage(repo_id: str) -> str:
    """The repo id as written without the parts that ``variant_of`` takes off: often the original's own id."""
    organisation, slash, name = repo_id.rpartition("/")
    parts = name.split("-")
    kept = parts[: len(parts) - _storage_parts([part.lower() for part in parts])]
    return organisation + slash + "-".join(kept)


def untuned(repo_id: str) -> str:
    """As ``variant_of``, also without the parts at its end that tell a base model from its chat tuning."""
    parts = variant_of(repo_id).split("-")
    while len(parts) > 1 and parts[-1] in _TUNING:
        parts = parts[:-1]
    return "-".join(parts)


def family_of(repo_id: str) -> str:
    """The family in a name: ``llama-3.3``, ``qwen2.5``, ``gpt-oss``.

    Its parts are taken up to the first that holds a digit; that one belongs to the family unless it is a size.
    """
    taken: list[str] = []
    for part in variant_of(repo_id).split("-"):
        if _SIZE.fullmatch(part):
            break
        taken.append(part)
        if any(character.isdigit() for character in part):
            break
    return "-".join(taken)


def major_family(repo_id: str) -> str:
    """As ``family_of`` without a minor version: ``llama-3``, ``qwen2``."""
    return re.sub(r"(\d)[._]\d.*$", r"\1", family_of(repo_id))


def size_in_name(repo_id: str) -> int | None:
    """Parameters that a name states (``0.6B``, ``135M``, ``8x7B``), or None. Active parameters do not count."""
    for part in re.split(r"[-_]", repo_id.rpartition("/")[2].lower()):
        match = _SIZE.fullmatch(part)
        if match:
            return round(int(match[1] or 1) * float(match[2]) * _SIZE_UNITS[match[3]])
    return None


def head_method_in_name(repo_id: str) -> str | None:
    """The method that a draft head's name states (``eagle3``, ``dflash``, ``medusa``), or None for a model."""
    name = repo_id.rpartition("/")[2].lower()
    return next((method for pattern, method in _HEADS if pattern.search(name)), None)


def states_other_use(repo_id: str) -> bool:
    """Whether the name says that the model embeds, ranks, judges or speaks, and so cannot draft text."""
    return not _OTHER_USES.isdisjoint(_words(repo_id.rpartition("/")[2]))


def names_model(repo_id: str, model_id: str) -> bool:
    """Whether a head's name holds the model's whole name, word for word (``qwen3_8b_eagle3`` for ``Qwen3-8B``)."""
    words, wanted = _words(repo_id.rpartition("/")[2]), _words(untuned(model_id))
    return any(words[start : start + len(wanted)] == wanted for start in range(len(words) - len(wanted) + 1))


def _storage_parts(parts: list[str]) -> int:
    """How many parts at the end state a storage type; 0 where none does."""
    end = len(parts)
    while end > 1 and (_STORAGE.fullmatch(parts[end - 1]) or parts[end - 1] in _STORAGE_DETAIL):
        end -= 1
    return len(parts) - end if any(_STORAGE.fullmatch(part) for part in parts[end:]) else 0


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[-_.]", name.lower()) if word]
