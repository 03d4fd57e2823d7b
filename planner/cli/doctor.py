"""`specplan doctor`: what works on this machine, what does not, and what to do. Imports nothing that is heavy."""

import platform
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import click

from model_catalog.errors import NetworkError, SpecplanError
from model_catalog.snapshot import RepoRef
from model_catalog.snapshot_store import SnapshotStore, cache_folder
from planner import __version__
from planner.cli.options import apply, offline_option, output_options, read_output
from planner.cli.typed_names import complete_file
from planner.report.plain import Style, paint, safe_line
from planner.report.schemas import document_head
from planner.report.words import wrapped
from planner.service.exit_codes import EXIT_HARDWARE, EXIT_OK
from planner.service.model_source import hub_endpoint, is_offline
from planner.trial.backends import BACKENDS, Backend

#: Packages of engines, and what each is for.
_ENGINES: Final = (("vllm", "the vLLM engine"), ("transformers", "the transformers engine"))
#: Extras by name: their packages, and what they are for.
_EXTRAS: Final = (
    ("plot", ("matplotlib",), "fit --plot"),
    ("html", ("jinja2", "matplotlib"), "fit --html"),
    ("ray", ("ray",), "fit --ray"),
)
_PROBE_REPO: Final = "hf-internal-testing/tiny-random-gpt2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line: ``ok``, ``missing`` (planning works without it) or ``broken`` (planning does not)."""

    name: str
    state: str
    text: str
    advice: str = ""


@click.command("doctor")
@apply(
    click.option(
        "--engine-python",
        metavar="PATH",
        shell_complete=complete_file,
        help="An interpreter to look for a trial's engine in.",
    ),
    offline_option(),
    output_options(),
)
def command(**given: object) -> int:
    """What works on this machine, what does not, and what to do.

    Exit code 0: nothing that planning needs is broken. 6: something is.
    """
    output = read_output(given)
    python = given["engine_python"]
    with output.step("looking around"):
        checks = run_checks(
            offline=bool(given["offline"]), engine_python=python if isinstance(python, str) else None
        )
    exit_code = EXIT_HARDWARE if any(check.state == "broken" for check in checks) else EXIT_OK
    output.document(
        {
            **document_head("doctor", exit_code),
            "checks": [
                {"name": check.name, "state": check.state, "text": check.text, "advice": check.advice}
                for check in checks
            ],
        }
    )
    shown = [check for check in checks if check.state != "ok"] if output.quiet else checks
    output.answer("\n".join(line for check in shown for line in _lines(check)))
    return exit_code


def run_checks(*, offline: bool, engine_python: str | None = None) -> list[Check]:
    """Every check, in the order in which a plan would meet them."""
    return [
        _python(),
        _cache(),
        _driver(),
        _hub(offline=offline),
        *(_engine(package, purpose) for package, purpose in _ENGINES),
        *(_trial_backend(backend, engine_python) for backend in BACKENDS.values()),
        *(_extra(*extra) for extra in _EXTRAS),
    ]


def _lines(check: Check) -> list[str]:
    styles: dict[str, Style] = {"ok": "good", "missing": "unsure", "broken": "bad"}
    lines = wrapped(
        f"{paint(f'{check.state:<8}', styles[check.state])}{check.name}: {safe_line(check.text)}", indent=8
    )
    if check.advice:
        lines += wrapped(f"{'':8}-> {safe_line(check.advice)}", indent=11)
    return lines


def _python() -> Check:
    return Check(
        name="specplan", state="ok", text=f"{__version__} on Python {platform.python_version()} ({sys.platform})"
    )


def _cache() -> Check:
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        advice = "make it writable or set XDG_CACHE_HOME; plans work without it, each run asks the Hub again"
        return Check(name="cache", state="missing", text=f"{folder}: {error.strerror or error}", advice=advice)
    return Check(name="cache", state="ok", text=str(folder))


def _driver() -> Check:
    from planner.nvml import read_devices  # noqa: PLC0415 - started late

    try:
        reading = read_devices()
    except SpecplanError as error:
        advice = error.hint if "--gpu" in error.hint else f"{error.hint}; or plan for a GPU you name: --gpu NAME"
        return Check(name="NVIDIA driver", state="missing", text=error.message, advice=advice)
    unread = [device.name for device in reading.devices if device.free_bytes is None]
    count = len(reading.devices)
    text = f"{reading.driver_version or 'version unknown'}, {count} device{'' if count == 1 else 's'}"
    if unread:
        return Check(
            name="NVIDIA driver",
            state="missing",
            text=f"{text}, but no memory figures of {', '.join(unread)}",
            advice="`specplan devices` says why",
        )
    return Check(name="NVIDIA driver", state="ok", text=text)


def _hub(*, offline: bool) -> Check:
    endpoint = hub_endpoint()
    if is_offline(offline=offline):
        text = f"not asked ({'--offline' if offline else 'HF_HUB_OFFLINE is set'})"
        return Check(name="Hub", state="ok", text=text)
    from model_catalog.hub import HubLimits, load_snapshot  # noqa: PLC0415 - slow to import

    with tempfile.TemporaryDirectory() as empty:
        try:
            load_snapshot(
                RepoRef(repo_id=_PROBE_REPO),
                limits=HubLimits(attempts=1, request_seconds=5.0, deadline_seconds=10.0),
                store=SnapshotStore(Path(empty)),
                hub_cache=Path(empty),
            )
        except NetworkError as error:
            advice = error.hint if "--offline" in error.hint else f"{error.hint}; or do without: --offline"
            return Check(name="Hub", state="missing", text=f"{endpoint}: {error.message}", advice=advice)
        except SpecplanError as error:
            # It answered, if only that this small repo is not there (a mirror): the Hub can be asked.
            return Check(name="Hub", state="ok", text=f"{endpoint} answers ({error.message})")
    return Check(name="Hub", state="ok", text=f"{endpoint} answers")


def _engine(package: str, purpose: str) -> Check:
    found = _installed(package)
    if found is None:
        return Check(
            name=package, state="missing", text=f"{purpose} is not installed here; planning does not need it"
        )
    return Check(name=package, state="ok", text=f"{found} ({purpose})")


def _trial_backend(backend: Backend, engine_python: str | None) -> Check:
    """Whether a trial can run in this backend: its libraries are looked up, not imported."""
    name = f"trial ({backend.name})"
    reason = backend.usable(engine_python if backend.needs_engine_python else None)
    if reason is not None:
        reason = reason.removesuffix(f": {backend.hint}")  # it is the advice
        return Check(name=name, state="missing", text=f"{reason}; planning does not need it", advice=backend.hint)
    versions = [f"{package} {found}" for package in backend.needs if (found := _installed(package)) is not None]
    return Check(name=name, state="ok", text=", ".join(versions) or "can be started")


def _extra(name: str, packages: tuple[str, ...], purpose: str) -> Check:
    found = {package: _installed(package) for package in packages}
    absent = [package for package, release in found.items() if release is None]
    if absent:
        text = f"{' and '.join(absent)} not installed; only {purpose} needs {'them' if absent[1:] else 'it'}"
        return Check(name=f"extra {name}", state="missing", text=text, advice=f"pip install 'specplan[{name}]'")
    text = ", ".join(f"{package} {release}" for package, release in found.items())
    return Check(name=f"extra {name}", state="ok", text=f"{text} ({purpose})")


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
