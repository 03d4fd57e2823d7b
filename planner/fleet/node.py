"""What runs on a node of the fleet: our own device reader, or a trial. Knows no Ray."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import planner
from model_catalog.errors import SpecplanError
from planner.fleet.wire import WIRE_VERSION, device_mapping

#: How long a trial that is called off may take to end its own child.
_ENDING_SECONDS: Final = 15.0
_TAIL_BYTES: Final = 1500
#: Ends itself, and so its own child, when whoever started it is gone: its stdin is then at its end.
_TRIAL: Final = """
import os, signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)
def watch():
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=watch, daemon=True).start()
from planner.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def read_node(what: str) -> dict[str, Any]:
    """This machine's devices: ``what`` is "gpus" or "host". An error of the reading is an answer, too."""
    head = {"wire": WIRE_VERSION, "specplan_version": planner.__version__}
    try:
        if what == "host":
            from planner.host_memory import host_device  # noqa: PLC0415 - only one of the two is read

            return {**head, "devices": [device_mapping(host_device())], "notes": []}
        from planner.nvml import read_devices  # noqa: PLC0415 - as above

        reading = read_devices()
    except SpecplanError as error:
        return {**head, "error": {"code": error.code, "message": error.message, "hint": error.hint}}
    return {
        **head,
        "devices": [device_mapping(device) for device in reading.devices],
        "notes": list(reading.notes),
    }


def run_trial_here(arguments: Sequence[str]) -> dict[str, Any]:
    """Run `specplan` with these arguments, which ask for a document on stdout; the document and the exit code.

    GPUs are those that CUDA_VISIBLE_DEVICES gives to this process. Nothing of it outlives this process.
    """
    command = [sys.executable, "-c", _TRIAL, *arguments]
    with tempfile.TemporaryFile() as log, tempfile.TemporaryFile() as answer:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=answer, stderr=log, env=_environment(os.environ)
        )
        try:
            child.wait()
        finally:
            _end(child)
        answer.seek(0)
        text = answer.read().decode("utf-8", "replace")
        log.seek(0)
        said = log.read()[-_TAIL_BYTES:].decode("utf-8", "replace")
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    return {
        "wire": WIRE_VERSION,
        "specplan_version": planner.__version__,
        "exit_code": child.returncode,
        "document": document,
        "said": said,
    }


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    """Ours, with specplan found where this process found it."""
    here = str(Path(planner.__file__).resolve().parents[1])
    path = [here, *filter(None, own.get("PYTHONPATH", "").split(os.pathsep))]
    return {**own, "PYTHONPATH": os.pathsep.join(dict.fromkeys(path))}


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        with suppress(ProcessLookupError):
            child.send_signal(signal.SIGINT)
        try:
            child.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    if child.stdin is not None:
        child.stdin.close()
