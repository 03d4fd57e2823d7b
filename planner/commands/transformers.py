"""The script that runs a plan with transformers: assisted generation, one sequence at a time.

k belongs to the assistant's generation config; its defaults (20 tokens, a schedule that grows, a confidence
threshold that stops early) are not what was planned. Source: transformers 5.24.0 ``generation/utils.py``,
``generation/candidate_generator.py`` and ``generation/configuration_utils.py``.
"""

from collections.abc import Iterator
from typing import Final

from model_catalog.drafts import DraftMethod
from model_catalog.errors import UsageError
from model_catalog.model import Model
from planner.commands.base import StartCommand
from planner.commands.model_names import model_name, model_revision, setting
from planner.devices import DeviceSource
from planner.engines.base import Draft
from planner.planning import Plan

FILE_NAME: Final = "specplan_generate.py"
#: ``dtype`` was ``torch_dtype`` before this release.
_DTYPE_SINCE: Final = (4, 56)


def transformers_command(plan: Plan, *, version: str = "5.24.0") -> StartCommand:
    """The script, as text and as a file, and the command that runs it.

    Raises:
        UsageError: for methods that ``generate`` does not have, and quantisation while loading.
    """
    workload, draft = plan.serving.workload, plan.serving.draft
    if draft is not None and draft.method not in {DraftMethod.DRAFT_MODEL, DraftMethod.NGRAM}:
        raise UsageError(
            f"specplan writes no script for {draft.method.value} drafts in transformers",
            subject="--engine",
            hint="use --engine vllm",
        )
    if workload.quantization is not None:
        raise UsageError(
            "quantisation while loading is not written for transformers",
            subject="--quantization",
            hint="choose a checkpoint that was published so, or use --engine vllm",
        )
    script = "\n".join((*_script(plan, draft, version), ""))
    return StartCommand(
        engine="transformers",
        argv=("python", FILE_NAME),
        python=script,
        files=((FILE_NAME, script),),
        notes=tuple(_notes(plan, draft)),
    )


def _script(plan: Plan, draft: Draft | None, version: str) -> Iterator[str]:
    workload, target = plan.serving.workload, plan.serving.target
    assistant = None if draft is None else draft.model
    dtype = f", {_dtype_word(version)}={setting(workload.dtype, '--dtype')!r}"
    yield "from transformers import AutoModelForCausalLM, AutoTokenizer"
    yield ""
    yield f"tokenizer = AutoTokenizer.from_pretrained({_source(target)})"
    yield f"target = AutoModelForCausalLM.from_pretrained({_source(target)}{dtype}{_placement(plan)})"
    arguments = [f"max_new_tokens={min(64, workload.context_tokens)}"]
    if assistant is not None and draft is not None:
        yield f"assistant = AutoModelForCausalLM.from_pretrained({_source(assistant)}{dtype}).to(target.device)"
        yield "settings = assistant.generation_config"
        yield f"settings.num_assistant_tokens = {draft.num_speculative_tokens}"
        yield 'settings.num_assistant_tokens_schedule = "constant"'
        yield "settings.assistant_confidence_threshold = 0.0"
        arguments.append("assistant_model=assistant")
        if assistant.architecture.vocabulary_size != target.architecture.vocabulary_size:
            yield f"assistant_tokenizer = AutoTokenizer.from_pretrained({_source(assistant)})"
            arguments += ["tokenizer=tokenizer", "assistant_tokenizer=assistant_tokenizer"]
    elif draft is not None:
        arguments.append(f"prompt_lookup_num_tokens={draft.num_speculative_tokens}")
    yield ""
    yield 'inputs = tokenizer("The capital of France is", return_tensors="pt").to(target.device)'
    yield f"answer = target.generate(**inputs, {', '.join(arguments)})"
    yield "print(tokenizer.decode(answer[0], skip_special_tokens=True))"


def _source(model: Model) -> str:
    revision = model_revision(model)
    return repr(model_name(model)) + ("" if revision is None else f", revision={revision!r}")


def _placement(plan: Plan) -> str:
    """Loading onto GPUs goes through accelerate; the host's own memory needs nothing."""
    return "" if _on_host(plan) else ', device_map="auto"'


def _on_host(plan: Plan) -> bool:
    return all(rank.rank.device.source is DeviceSource.HOST for rank in plan.ranks)


def _dtype_word(version: str) -> str:
    numbers = [int(part) for part in version.split(".")[:2] if part.isdigit()]
    return "dtype" if tuple(numbers) >= _DTYPE_SINCE else "torch_dtype"


def _notes(plan: Plan, draft: Draft | None) -> Iterator[str]:
    if not _on_host(plan):
        yield "loading onto GPUs needs accelerate (pip install accelerate)"
    if draft is not None:
        yield "assisted generation takes one sequence at a time"
        assistant = draft.model
        sizes = plan.serving.target.architecture.vocabulary_size
        if assistant is not None and assistant.architecture.vocabulary_size != sizes:
            yield (
                "the vocabularies differ: greedy decoding re-encodes the draft's text, sampling drafts within the "
                "tokens that both share"
            )
    if plan.serving.workload.kv_cache_dtype != "auto":
        yield "the cache is kept in the model's dtype; a quantised one is another cache class in transformers"
