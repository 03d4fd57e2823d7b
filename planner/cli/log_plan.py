"""From a log and a user's additions to the plan of exactly that start: models, devices, settings."""

import re
from dataclasses import dataclass, replace
from typing import Any, Final

from model_catalog.catalogue import lookup
from model_catalog.drafts import DraftMethod
from model_catalog.errors import ModelError, ModelNotFoundError, NetworkError, UsageError
from model_catalog.model import Model, describe
from model_catalog.snapshot import expanded
from planner.cli.log_devices import LogDevices, log_devices
from planner.cli.log_options import plan_options
from planner.cli.output import Output
from planner.devices import Device
from planner.engines.base import Draft, EngineProfile, Serving
from planner.engines.checkpoint_cache import with_checkpoint_cache
from planner.engines.registry import engine_profile
from planner.engines.vllm_shape import release_of
from planner.logs.readings import StartLog
from planner.logs.settings import LogSettings
from planner.planning import Plan, make_plan
from planner.service.drafts import method_of
from planner.service.model_source import is_offline, load_model
from planner.workload import Workload

_CACHED: Final = re.compile(r"models--([\w.-]{1,96}?)--([\w.-]{1,96})/snapshots/", re.ASCII)
_RELEASE: Final = re.compile(r"\d{1,4}\.\d{1,4}(?:\.\d{1,4})?", re.ASCII)
_OLDEST: Final = (0, 8)
_OLDEST_VERSION: Final = "0.8.0"
#: vLLM makes blocks of 128 tokens on a CPU.
_CPU_BLOCK: Final = 128
#: max_num_seqs by the token budget that the engine took by itself (vLLM 0.33.0 engine/arg_utils.py).
_SEQS_OF_SERVER: Final = {2048: 256, 8192: 1024, 16384: 1024}
_SEQS_OF_PROGRAM: Final = {8192: 256, 16384: 1024}
_SGLANG_STEPS: Final = 3
_FALLBACK_CONTEXT: Final = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlan:
    """The plan of a log's start, or why the engine as planned refuses it.

    ``unknown``: settings that nobody said, by the names of ``logs.compare``.
    """

    plan: Plan | None
    why_not: str
    where: LogDevices
    unknown: frozenset[str]
    exact_version: bool


def plan_log(log: StartLog, settings: LogSettings, given: dict[str, Any], output: Output) -> LogPlan | None:
    """Plan what the log says was started; None where it names no model and nobody else does.

    Raises:
        ModelError: the model is not known. UsageError: settings that no engine takes. NetworkError: the Hub.
    """
    if settings.model is None:
        return None
    engine, exact = _engine(settings, given.get("engine"), output)
    options = plan_options(settings, given, engine=engine.name)
    count = (settings.tp or 1) * (settings.pp or 1)
    where = log_devices(log, settings, options, output, count=count)
    offline = options.offline
    target = _target(settings, given, output, offline=offline)
    unknown: set[str] = set()
    draft = _draft(settings, given, target, output, offline=offline, unknown=unknown)
    work = _workload(log, settings, target, where.devices[0], unknown)
    work, remark = with_checkpoint_cache(work, target, engine.name)
    if remark is not None:
        output.note(remark.code, remark.text)
    serving = Serving(target=target, draft=draft, workload=work)
    plan, why_not = None, ""
    try:
        plan = make_plan(_with_defaults(serving, settings, where, engine, unknown), where.devices, engine)
    except UsageError as error:
        why_not = f"these settings cannot be planned: {error.message}"
    return LogPlan(
        plan=plan,
        why_not=why_not,
        where=where,
        unknown=frozenset(unknown),
        exact_version=exact,
    )


def _engine(settings: LogSettings, asked: str | None, output: Output) -> tuple[EngineProfile, bool]:
    """The profile of the log's release, and whether it is exactly that one."""
    if asked is not None:
        return engine_profile(asked), "==" in asked
    number = _RELEASE.match(settings.version or "")
    if settings.engine == "sglang":
        return engine_profile(f"sglang=={number[0]}" if number else "sglang"), False
    if number is None:
        engine = engine_profile("vllm")
        output.note("version_unknown", f"the log does not say vLLM's release: planned as {engine.version}")
        return engine, False
    if release_of(number[0]) < _OLDEST:
        output.warn("old_engine", f"vLLM {settings.version} is older than what is planned: lines may differ")
        return engine_profile(f"vllm=={_OLDEST_VERSION}"), False
    if number[0] != settings.version:
        output.note("build", f"{settings.version} is a build between releases: planned as {number[0]}")
    return engine_profile(f"vllm=={number[0]}"), number[0] == settings.version


def _target(settings: LogSettings, given: dict[str, Any], output: Output, *, offline: bool) -> Model:
    dtype = settings.dtype or "auto"
    target = _load(settings.model or "", given.get("model"), "--model", output, offline=offline, dtype=dtype)
    if settings.quantization is None or target.quantization is not None:
        return target
    try:
        return describe(target.snapshot, dtype=dtype, on_the_fly=settings.quantization)
    except UsageError:
        output.warn(
            "quantization",
            f"the log says quantization {settings.quantization}, which the model as planned has not",
        )
        return target


def _load(
    name: str,
    asked: str | None,
    option: str,
    output: Output,
    *,
    offline: bool,
    dtype: str,
    as_draft: bool = False,
) -> Model:
    """A model by the name that the user, or else the log, gives it.

    Raises:
        ModelError: the log's name is none that is known here. SpecplanError: as ``load_model``.
    """
    if asked is not None:
        return load_model(asked, offline=offline, output=output, dtype=dtype, as_draft=as_draft)
    found = _name(name, option, output)
    hint = f"say which model it is: {option} ORG/NAME, a folder, or a name of `specplan models`"
    if found is None:
        raise ModelNotFoundError("is a folder of the machine that wrote the log", subject=name, hint=hint)
    try:
        return load_model(found, offline=offline, output=output, dtype=dtype, as_draft=as_draft)
    except UsageError as error:
        raise ModelNotFoundError(f"the log's model: {error.message}", subject=name, hint=hint) from error
    except NetworkError as error:
        if not is_offline(offline=offline):
            raise
        raise ModelNotFoundError("the log's model is not known offline", subject=name, hint=hint) from error
    except ModelError as error:
        error.hint = f"{error.hint}; or {hint}"
        raise


def _name(name: str, option: str, output: Output) -> str | None:
    """The name to look up: a repo, a folder that is here too, or what a folder's last parts say."""
    cached = _CACHED.search(name)
    if cached is not None:
        return f"{cached[1]}/{cached[2]}"
    if not name.startswith(("/", ".", "~")):
        return name
    if expanded(name).joinpath("config.json").is_file():
        return name
    short = "/".join(name.rstrip("/").split("/")[-2:])
    for guess in (short, short.rpartition("/")[2]):
        row = lookup(guess) if guess else None
        if row is not None:
            output.note("model_guessed", f"{name} is taken for {row.repo_id}; {option} names another")
            return row.repo_id
    return None


def _draft(
    settings: LogSettings,
    given: dict[str, Any],
    target: Model,
    output: Output,
    *,
    offline: bool,
    unknown: set[str],
) -> Draft | None:
    """The draft of the log; where its method is not planned, ``draft`` is unknown.

    Raises:
        SpecplanError: a draft that cannot be read.
    """
    name, asked, word = settings.draft_model, given.get("draft"), (settings.draft_method or "").lower()
    if not word and name is None and asked is None:
        return None
    steps = _SGLANG_STEPS if settings.engine == "sglang" else None
    tokens = settings.num_speculative_tokens or steps
    method = _method(word)
    if tokens is None or (word and method is None):
        unknown.add("draft")
        output.warn("draft_not_planned", f"speculation by {word or 'a draft'} is not planned as the log has it")
        return None
    if method is DraftMethod.NGRAM:
        return Draft(method=method, num_speculative_tokens=tokens)
    if method is DraftMethod.MTP:
        if target.architecture.mtp_layers:
            return Draft(method=method, num_speculative_tokens=tokens)
        unknown.add("draft")
        output.warn("draft_not_planned", "the log drafts with the target's own layers, and as planned it has none")
        return None
    if name is None and asked is None:
        unknown.add("draft")
        output.warn("draft_not_planned", "the log does not name the draft: --draft REPO")
        return None
    dtype = settings.dtype or "auto"
    model = _load(name or "", asked, "--draft", output, offline=offline, dtype=dtype, as_draft=True)
    return Draft(method=method or method_of(model), num_speculative_tokens=tokens, model=model)


def _method(word: str) -> DraftMethod | None:
    if word == "mtp" or word.endswith("_mtp"):
        return DraftMethod.MTP
    if word.startswith("ngram"):
        return DraftMethod.NGRAM
    return next((method for method in DraftMethod if method.value == word), None)


def _workload(log: StartLog, settings: LogSettings, target: Model, device: Device, unknown: set[str]) -> Workload:
    """The log's settings as a workload; what it leaves to the engine stays None."""
    context = settings.context_tokens
    if context is None and settings.asked:
        context = target.architecture.max_context_tokens
    if context is None:
        unknown.add("context")
    pinned = settings.kv_cache_memory_bytes
    if pinned is None and log.readings.kv_cache_pinned:
        pinned = log.readings.kv_cache_bytes
    if device.engine_total_bytes is None:
        unknown.add("device")
    return Workload(
        context_tokens=context or _FALLBACK_CONTEXT,
        tp=settings.tp or 1,
        pp=settings.pp or 1,
        expert_parallel=settings.expert_parallel,
        dtype=settings.dtype or "auto",
        kv_cache_dtype=settings.kv_cache_dtype or "auto",
        gpu_memory_utilization=settings.gpu_memory_utilization,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        max_num_seqs=settings.max_num_seqs,
        block_size=settings.block_size or (_CPU_BLOCK if settings.on_cpu else None),
        enforce_eager=bool(settings.enforce_eager),
        async_scheduling=settings.async_scheduling is not False,
        kv_cache_memory_bytes=pinned,
        draft_budget_share=1.0,
    )


def _with_defaults(
    serving: Serving, settings: LogSettings, where: LogDevices, engine: EngineProfile, unknown: set[str]
) -> Serving:
    """With the engine's own defaults where the log shows that nothing else was asked for; the rest is unknown."""
    work, device = serving.workload, where.devices[0]
    if work.max_num_seqs is None and settings.asked and not settings.tokens_asked:
        table = _SEQS_OF_SERVER if settings.served else _SEQS_OF_PROGRAM
        seqs = table.get(work.max_num_batched_tokens or 0)
        work = work if seqs is None or settings.on_cpu else replace(work, max_num_seqs=seqs)
    defaulted = settings.asked and (where.named or settings.on_cpu)
    if work.max_num_seqs is None and not defaulted:
        unknown.add("max_num_seqs")
    if work.max_num_batched_tokens is None and not defaulted:
        unknown.add("max_num_batched_tokens")
    if work.gpu_memory_utilization is None and work.kv_cache_memory_bytes is None:
        if settings.asked:
            defaults = engine.defaults(replace(serving, workload=work), device)
            work = replace(work, gpu_memory_utilization=defaults.gpu_memory_utilization)
        else:
            unknown.add("gpu_memory_utilization")
    return replace(serving, workload=work)
