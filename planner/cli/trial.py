"""`specplan trial`: one pair, run on this machine, both ways."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import click

from model_catalog.drafts import DraftMethod
from model_catalog.errors import UsageError
from model_catalog.model import Model
from planner.cli.options import apply, offline_option, output_options, read_output
from planner.cli.output import Output
from planner.cli.pair_trial import PairJob, obstacle, run_pair
from planner.cli.trial_options import TrialOptions, loop_options, trial_options
from planner.cli.trials import keep
from planner.cli.typed_names import complete_devices, complete_model
from planner.devices import Device
from planner.errors import HardwareError
from planner.report.schemas import document_head
from planner.report.trial_text import trial_text
from planner.service.drafts import method_of
from planner.service.exit_codes import EXIT_NO, EXIT_OK, EXIT_TRIAL, EXIT_UNSURE
from planner.service.model_source import load_model
from planner.service.values import MOST_SPECULATIVE_TOKENS
from planner.trial.expectation import tokens_beside_new
from planner.trial.protocol import DEEPEST_SWEPT
from planner.trial.result import PairTrial
from planner.trial.summary import trial_mapping

_EXIT: Final = {"helps": EXIT_OK, "hurts": EXIT_NO, "unsure": EXIT_UNSURE, "assumed": EXIT_UNSURE}
_DTYPES: Final = ("auto", "float32", "bfloat16", "float16")
_FULL_ROUNDS: Final = 4
_NO_MODELS: Final = frozenset({"ngram", "mtp", "none"})


@click.command("trial")
@click.argument("target", shell_complete=complete_model)
@click.argument("draft", shell_complete=complete_model)
@apply(
    click.option(
        "--devices",
        metavar="LIST",
        shell_complete=complete_devices,
        help="Live GPUs by index or UUID (0,1), or cpu.  [all GPUs, else cpu]",
    ),
    click.option("--dtype", type=click.Choice(_DTYPES), default="auto", help="Of both models.  [the target's]"),
    click.option(
        "--num-speculative-tokens",
        type=click.IntRange(1, MOST_SPECULATIVE_TOKENS),
        metavar="K",
        help="Tokens drafted a step.  [a sweep picks it]",
    ),
    loop_options(),
    trial_options(),
    offline_option(),
    output_options(),
)
def command(target: str, draft: str, **given: object) -> int:
    """Run TARGET alone and with DRAFT on 48 prompts of six tasks; measure whether the draft helps.

    Both are local folders, Hub repos (weights from the Hub's cache), or the embedded pair: specplan/tiny-target
    with specplan/tiny-draft, which helps, or with specplan/tiny-draft-bad, which hurts. Without weights at hand
    random ones of the same shape tell memory and step times.

    Exit code 0: the draft helps. 3: it hurts. 4: the interval holds 1, or the weights were random. 5: a model
    cannot be read. 6: the devices cannot be read. 7: no result, or worse than the plan. 8: the Hub cannot be
    asked.
    """
    output = read_output(given)
    k = given["num_speculative_tokens"]
    options = replace(TrialOptions.of(given), num_speculative_tokens=k if isinstance(k, int) else None)
    _check_tokens(options)
    _check_draft(draft)
    devices = _devices(given["devices"], output)
    offline, dtype = bool(given["offline"]), str(given["dtype"])
    models = [
        load_model(
            name,
            offline=offline,
            output=output,
            dtype=dtype,
            as_draft=name is draft,
            from_gguf=options.backend == "llama.cpp",
        )
        for name in (target, draft)
    ]
    _check_pair(*models)
    _check_length(models, options)
    job = PairJob(
        target=models[0],
        draft=models[1],
        devices=tuple(devices),
        dtype=dtype,
        batch=options.batch or 1,
        options=options,
    )
    stop = obstacle(job.device_kind, options)
    if stop is not None:
        raise stop
    summary = run_pair(job, output)
    document = trial_mapping(summary)
    keep(job, summary, document, output)
    found = PairTrial(document=document)
    exit_code = EXIT_TRIAL if found.worse_than_planned else _EXIT[summary.answer]
    output.document(
        {
            **document_head("trial", exit_code),
            "target": target,
            "draft": draft,
            "answer": summary.answer,
            "trial": document,
        }
    )
    told = trial_text(target, draft, found, quiet=output.quiet)
    (output.answer_line if output.quiet else output.answer)(told)
    return exit_code


def _devices(choice: object, output: Output) -> Sequence[Device]:
    """The live devices chosen, or the host where there are none and none was asked for.

    Raises:
        HardwareError: devices were named and cannot be read.
    """
    import os  # noqa: PLC0415 - only here

    from planner.device_selection import HOST_CHOICE, select_devices  # noqa: PLC0415 - only here
    from planner.host_memory import host_device  # noqa: PLC0415 - only here
    from planner.nvml import read_devices  # noqa: PLC0415 - a trial on the CPU needs no driver

    if choice == HOST_CHOICE:
        return (host_device(),)
    named = choice if isinstance(choice, str) else None
    try:
        with output.step("asking the NVIDIA driver"):
            found = read_devices().devices
        return select_devices(found, choice=named, environ=os.environ)
    except HardwareError as error:
        if named is not None:
            raise
        output.note("no_live_device", f"no live GPU ({error.message}): the trial runs on the CPU")
        return (host_device(),)


def _check_draft(draft: str) -> None:
    """Other commands take these words for a draft; a trial runs two models.

    Raises:
        UsageError: it is one of them.
    """
    if draft.lower() in _NO_MODELS:
        raise UsageError(
            "is no draft model, and a trial runs no other drafts",
            subject=draft,
            hint=f"name a draft model; what is predicted of {draft}: specplan fit TARGET --draft {draft}",
        )


def _check_length(models: Sequence[Model], options: TrialOptions) -> None:
    """Prompt and new tokens fit into what both models take.

    Raises:
        UsageError: they do not.
    """
    limits = [model.architecture.max_context_tokens for model in models]
    limit = min((limit for limit in limits if limit is not None), default=None)
    if limit is None:
        return
    beside = tokens_beside_new(options.num_speculative_tokens)
    whole = beside + options.new_tokens
    if whole > limit:
        raise UsageError(
            f"with the longest prompt that is {whole:,} tokens, and the models take {limit:,}",
            subject="--new-tokens",
            hint=f"give {limit - beside} or fewer" if limit > beside else "choose models that take more",
        )


def _check_pair(target: Model, draft: Model) -> None:
    """The draft is a model of its own and speaks of the target's ids.

    Raises:
        UsageError: it is not, or does not.
    """
    name = draft.snapshot.repo_id
    method = method_of(draft)
    if method is not DraftMethod.DRAFT_MODEL:
        raise UsageError(
            f"is an {method.value} head, which the trial's backends cannot run",
            subject=name,
            hint="name a draft model; a head is measured in the engine that serves it",
        )
    ours, theirs = target.architecture.vocabulary_size, draft.architecture.vocabulary_size
    if ours != theirs:
        raise UsageError(
            f"its vocabulary of {theirs:,} is not the target's of {ours:,}",
            subject=name,
            hint="choose a draft with the target's tokenizer; specplan drafts TARGET lists those known",
        )


def _check_tokens(options: TrialOptions) -> None:
    """As many tokens as make a few full rounds even where every proposal is accepted.

    Raises:
        UsageError: for fewer, which would measure nothing.
    """
    least = _FULL_ROUNDS * ((options.num_speculative_tokens or DEEPEST_SWEPT) + 1)
    if options.new_tokens < least:
        raise UsageError(
            f"{options.new_tokens} new tokens are too few to measure",
            subject="--new-tokens",
            hint=f"give {least} or more",
        )
