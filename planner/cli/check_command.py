"""`specplan check-command`: a command that somebody already has, planned as it stands."""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import click

from model_catalog.errors import UsageError
from model_catalog.snapshot import expanded
from planner.cli.command_names import gguf_model
from planner.cli.options import apply, detail_options, offline_option, output_options, read_output, valued
from planner.cli.output import Output
from planner.cli.text_bytes import decoded
from planner.cli.typed_names import complete_engine, complete_file, complete_gpu, complete_model
from planner.commands.reading.read_llama_cpp import read_llama_cpp
from planner.commands.reading.read_sglang import read_sglang
from planner.commands.reading.read_tensorrt_llm import read_tensorrt_llm
from planner.commands.reading.read_vllm import read_vllm
from planner.commands.reading.records import Reading, Unknown
from planner.commands.reading.split import MOST_CHARACTERS, Words, find_engine, split_text
from planner.service.exit_codes import EXIT_OF_ANSWER
from planner.service.values import COUNT, SIZE
from planner.verdict import Reason

_STDIN: Final = "-"
_READERS: Final[dict[str, Callable[[tuple[str, ...]], Reading]]] = {
    "vllm": read_vllm,
    "sglang": read_sglang,
    "tensorrt-llm": read_tensorrt_llm,
    "llama.cpp": read_llama_cpp,
}


@click.command("check-command", context_settings={"allow_interspersed_args": False})
@click.argument("words", metavar="-- COMMAND...", nargs=-1, type=click.UNPROCESSED)
@apply(
    click.option(
        "--file", metavar="FILE", shell_complete=complete_file, help="Read the command from a file; - for stdin."
    ),
    click.option(
        "--config-file",
        metavar="FILE",
        shell_complete=complete_file,
        help="The YAML file that the command names with --config.",
    ),
    click.option(
        "--gpu",
        metavar="NAME[:N]",
        shell_complete=complete_gpu,
        help="Plan for a declared GPU: h100-80gb. See `specplan gpus`.",
    ),
    click.option("--devices", metavar="LIST", help="Live devices by index or UUID.  [the command's, or all]"),
    click.option("--driver", metavar="VERSION", help="With --gpu: use what was measured under this driver."),
    click.option(
        "--engine",
        metavar="NAME==VERSION",
        shell_complete=complete_engine,
        help="The engine's release.  [the newest known]",
    ),
    click.option(
        "--model",
        metavar="TARGET",
        shell_complete=complete_model,
        help="The model, where the command names a folder or file elsewhere.",
    ),
    click.option("--draft", metavar="REPO", shell_complete=complete_model, help="The same for the draft."),
    click.option("--quantization", metavar="NAME", help="The type of a GGUF file, where its name does not say."),
    valued("--batch", value=COUNT, text="Sequences held at once, all of full context.  [1, or llama.cpp's slots]"),
    valued("--memory-limit", value=SIZE, text="Never plan beyond this much of a device (shared cards)."),
    click.option("--allow-unknown", is_flag=True, help="Go on without options that the engine does not have."),
    offline_option(),
    detail_options(),
    output_options(),
)
def command(words: tuple[str, ...], **given: Any) -> int:  # noqa: ANN401 - click's options are of any type
    """Will this command of an engine start, and what would have to change?

    Engines: vLLM, SGLang, TensorRT-LLM, llama.cpp.

    Give the command after --, for example: -- vllm serve ORG/NAME --max-model-len 16k. It is read, never run;
    values of options that do not move memory are kept nowhere.

    Exit code 0: it starts. 3: it does not. 4: it cannot be told, or an option that is not planned may decide. 5:
    the model cannot be read. 6: the devices cannot be read. 8: the Hub cannot be asked.
    """
    output = read_output(given)
    found = find_engine(_words(words, given["file"]))
    _check_engine(given["engine"], found.engine)
    reading = _read(found, given["config_file"])
    reading = _with_place(reading, found)
    _check_unknown(reading, allowed=given["allow_unknown"], output=output)
    if reading.settings.model is None and given["model"] is None:
        raise UsageError(
            "names no model",
            subject=f"the {found.engine} command",
            hint="name it in the command, or here: --model ORG/NAME",
        )
    return _answer(reading, given, output)


def _read(found: Words, config_file: str | None) -> Reading:
    """The command as settings, with the file that it names where that file is given here, too.

    Raises:
        UsageError: the file cannot be read, or the engine reads none.
    """
    if config_file is None:
        return _with_file_unread(_READERS[found.engine](found.words))
    from planner.commands.reading.config_file import CONFIG_OPTIONS, read_config, with_config  # noqa: PLC0415

    if found.engine not in CONFIG_OPTIONS:
        raise UsageError(
            f"{found.engine} reads no configuration file",
            subject="--config-file",
            hint="say it in the command, and leave --config-file out",
        )
    config = read_config(_text(config_file, "--config-file"))
    words = with_config(found.engine, found.words, config)
    return read_tensorrt_llm(words, config) if found.engine == "tensorrt-llm" else _READERS[found.engine](words)


def _with_file_unread(reading: Reading) -> Reading:
    """Say that a file was named and not read; no file that a command names is opened."""
    if not any(entry.option.removeprefix("--") == "config" for entry in reading.unplanned):
        return reading
    text = "the file of --config was not read: give it here, too (--config-file FILE)"
    return replace(reading, remarks=(*reading.remarks, Reason(code="config_not_read", text=text)))


def _check_engine(asked: str | None, engine: str) -> None:
    """``--engine`` names a release of the command's engine, not another engine.

    Raises:
        UsageError: it does.
    """
    name = "" if asked is None else asked.partition("==")[0].strip().lower()
    if name in _READERS and name != engine:
        raise UsageError(
            f"names {name}, and the command starts {engine}",
            subject="--engine",
            hint=f"name the command's own engine: --engine {engine}==VERSION; or give a command of {name}",
        )


def _with_place(reading: Reading, found: Words) -> Reading:
    settings = replace(reading.settings, visible=found.visible)
    if found.engine != "llama.cpp":
        return replace(reading, settings=settings)
    model, kind = gguf_model(settings.model or "")
    draft, own = (None, None) if settings.draft is None else gguf_model(settings.draft)
    remarks = reading.remarks
    if draft is not None and own != kind:
        text = f"the draft is planned as a file of the target's type, not as {own or 'what it is'}"
        remarks = (*remarks, Reason(code="draft_type", text=text))
    return replace(
        reading,
        settings=replace(settings, model=model or None, draft=draft, quantization=settings.quantization or kind),
        remarks=remarks,
    )


def _words(words: tuple[str, ...], file: str | None) -> tuple[str, ...]:
    """The command's words, out of the command line, a file or stdin.

    Raises:
        UsageError: there are none, or they cannot be read.
    """
    if file is not None and words:
        raise UsageError("both were given", subject="--file and a command", hint="give one of them")
    source = file if file is not None else _STDIN if words == (_STDIN,) else None
    if source is not None:
        words = split_text(_text(source, "--file"))
    elif len(words) == 1 and " " in words[0]:
        words = split_text(words[0])
    if not words:
        raise UsageError(
            "no command was given",
            subject="check-command",
            hint="put it after --: specplan check-command --gpu h100-80gb -- vllm serve ORG/NAME",
        )
    return words


def _text(source: str, option: str) -> str:
    try:
        if source == _STDIN:
            content = sys.stdin.buffer.read(MOST_CHARACTERS + 1)
        else:
            with expanded(source).open("rb") as stream:
                content = stream.read(MOST_CHARACTERS + 1)
    except (OSError, ValueError) as cause:
        reason = getattr(cause, "strerror", None) or "not a path"
        raise UsageError(
            f"cannot be read: {reason}", subject=option, hint="give a file that is there, or - for stdin"
        ) from cause
    return decoded(content)


def _check_unknown(reading: Reading, *, allowed: bool, output: Output) -> None:
    """Name what the engine would not take; an error, unless it is allowed.

    Raises:
        UsageError: naming the first, with what is like it.
    """
    if not reading.unknown:
        return
    if not allowed:
        first, *others = reading.unknown
        more = f"; and {', '.join(entry.option for entry in others)}" if others else ""
        raise UsageError(
            f"{reading.settings.engine} has no such option{f' ({first.why})' if first.why else ''}{more}",
            subject=first.option,
            hint=f"{_near(first)}correct it, or go on without it: --allow-unknown",
        )
    for entry in reading.unknown:
        why = f" ({entry.why})" if entry.why else ""
        output.warn("unknown_option", f"{entry.option}: no such option{why}; planned without it")


def _near(entry: Unknown) -> str:
    return f"did you mean {' or '.join(entry.near)}? " if entry.near else ""


def _answer(reading: Reading, given: dict[str, Any], output: Output) -> int:
    from planner.cli.command_plan import plan_command  # noqa: PLC0415 - nothing of planning for --help
    from planner.commands.registry import start_command  # noqa: PLC0415 - as above
    from planner.report.advice import NO_ADVICE  # noqa: PLC0415 - as above
    from planner.report.command_text import (  # noqa: PLC0415 - as above
        CommandAnswer,
        command_document,
        command_line,
        command_text,
    )
    from planner.report.schemas import document_head  # noqa: PLC0415 - as above
    from planner.report.text import fit_text  # noqa: PLC0415 - as above
    from planner.service.result import fit_document  # noqa: PLC0415 - as above

    with output.step("planning the command"):
        planned = plan_command(reading.settings, given, output)
    corrected = None
    if planned.corrections:
        plan = planned.corrections[0].plan
        try:
            corrected = start_command(plan.engine.name, plan.engine.version, plan)
        except UsageError as refusal:
            output.note("no_command", f"no command can be written: {refusal.message}")
    answer = CommandAnswer(
        reading=reading,
        engine=planned.options.engine,
        findings=planned.findings,
        refused=planned.refused,
        prediction=planned.prediction,
        corrections=planned.corrections,
        corrected=corrected,
        single=planned.single,
    )
    exit_code = EXIT_OF_ANSWER[answer.answer]
    found = planned.findings
    if output.quiet:
        output.answer_line(command_line(answer))
    elif output.wants_words:
        body = "" if found is None else fit_text(found, planned.facts, verbose=planned.options.verbose)
        output.answer(command_text(answer, body, verbose=planned.options.verbose))
        if planned.options.explain and found is not None:
            from planner.report.explain import explain_text  # noqa: PLC0415 - only where asked for

            output.answer("\n" + explain_text(found.told.plan, planned.facts.assumptions))
    if output.json_target is not None:
        report = None
        if found is not None:
            report = fit_document(
                found, planned.facts, NO_ADVICE, planned.target_name, planned.options, output.remarks, exit_code
            )
        output.document({**document_head("check-command", exit_code), **command_document(answer, report)})
    return exit_code
