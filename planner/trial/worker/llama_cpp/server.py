"""One ``llama-server`` from its start to its end, spoken to over HTTP on the loopback. Standard library only.

It stays in our process group, so that whoever ends the trial ends it too.
"""

import http.client
import json
import os
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final

from planner.trial.worker.llama_cpp import log as llama_cpp_log

_HOST: Final = "127.0.0.1"
_HEAD_BYTES: Final = 1 << 20
_TAIL_BYTES: Final = 1 << 16
_ASKING_SECONDS: Final = 60.0
_LEAVING_SECONDS: Final = 20.0
_GIVEN_UP_SECONDS: Final = 2.0
_SETTLING_LOOKS: Final = 20
_QUICK_SECONDS: Final = 10.0
#: No request ends later than the parent's patience; this only keeps a dead connection from lasting for ever.
_REQUEST_SECONDS: Final = 1800.0
_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ServerError(Exception):
    """The server would not start, or ended; ``code`` is one of the protocol's."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class RequestError(Exception):
    """The server, still alive, refused one request; the text is its own."""


def ask(server: str, option: str) -> str:
    """What the server prints for ``--help``, ``--version`` or ``--list-devices``.

    Raises:
        ServerError: "missing_import", where it cannot be run.
    """
    try:
        done = subprocess.run(
            [server, option],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASKING_SECONDS,
            check=False,
            env=_environment(),
        )
    except subprocess.TimeoutExpired as error:
        raise ServerError("missing_import", f"{server} {option} did not answer") from error
    except OSError as error:
        raise ServerError("missing_import", f"{server} cannot be run: {error.strerror or error}") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason was given"])[-1]
        raise ServerError("missing_import", f"{server} {option} failed: {last[:200]}")
    return done.stdout + "\n" + done.stderr


def _environment() -> dict[str, str]:
    """Ours, without what would set options behind our back."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("LLAMA_ARG_") and name != "LLAMA_API_KEY"
    }


class Server:
    """A started server. Use as a context: on entry it is ready, at the end its process is gone.

    Entry raises:
        ServerError: "deadline", where it is not ready in time, or what its log says.
    """

    def __init__(self, server: str, arguments: Sequence[str], start_seconds: float) -> None:
        self._command = [server, *arguments, "--host", _HOST]
        self._start_seconds = start_seconds
        self._head, self._tail = bytearray(), bytearray()
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._copier: threading.Thread | None = None

    @property
    def log(self) -> str:
        """The head of what it printed: there it tells its buffers."""
        return self._head.decode("utf-8", "replace")

    def __enter__(self) -> "Server":
        self._port = _free_port()
        try:
            self._process = subprocess.Popen(
                [*self._command, "--port", str(self._port)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=_environment(),
            )
        except OSError as error:
            raise ServerError("missing_import", f"{self._command[0]} cannot be run: {error.strerror}") from error
        self._copier = threading.Thread(target=self._copy, args=(self._process,), daemon=True)
        self._copier.start()
        try:
            self._wait(self._process)
            self._settle()
        except BaseException:
            self._end(_GIVEN_UP_SECONDS)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(_LEAVING_SECONDS)

    def get(self, path: str) -> str | None:
        """What the path answers; None where the server does not serve it.

        Raises:
            ServerError: the server has ended.
        """
        try:
            return self._speak(path, None, _QUICK_SECONDS)
        except RequestError:
            return None

    def properties(self) -> dict[str, Any]:
        """What ``/props`` answers: the release and the file's type among it; empty where it tells nothing."""
        try:
            found = json.loads(self.get("/props") or "{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """One completion.

        Raises:
            RequestError: the server refused this request.
            ServerError: the server has ended.
        """
        answer: dict[str, Any] = json.loads(self._speak("/completion", body, _REQUEST_SECONDS))
        return answer

    def _speak(self, path: str, body: Mapping[str, Any] | None, seconds: float) -> str:
        request = urllib.request.Request(
            f"http://{_HOST}:{self._port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with _OPENER.open(request, timeout=seconds) as answer:
                text: str = answer.read().decode("utf-8", "replace")
        except urllib.error.HTTPError as error:
            with error:
                raise RequestError(_reason(error.read().decode("utf-8", "replace"), error.code)) from error
        except (OSError, http.client.HTTPException) as error:
            raise self._gone(f"{type(error).__name__}: {error}") from error
        return text

    def _wait(self, process: "subprocess.Popen[bytes]") -> None:
        """Until it says that it is healthy; 503 means that it still loads."""
        end = time.monotonic() + self._start_seconds
        while time.monotonic() < end:
            if process.poll() is not None:
                raise self._gone("")
            try:
                with _OPENER.open(f"http://{_HOST}:{self._port}/health", timeout=_QUICK_SECONDS):
                    return
            except urllib.error.HTTPError as error:
                error.close()
            except (OSError, http.client.HTTPException):
                pass  # it does not listen yet
            time.sleep(0.1)
        raise ServerError("deadline", f"llama-server was not ready after {self._start_seconds:.0f} s")

    def _settle(self) -> None:
        """Until its log stands still: it is written by a thread of its own, and lags behind."""
        for _ in range(_SETTLING_LOOKS):
            before = len(self._head)
            time.sleep(0.1)
            if len(self._head) == before:
                return

    def _gone(self, doubt: str) -> ServerError:
        """Why it ended, or does not answer, in its own words."""
        process = self._process
        if process is None:  # pragma: no cover - nobody speaks before the start
            return ServerError("failed", doubt)
        try:
            code = process.wait(_QUICK_SECONDS)
        except subprocess.TimeoutExpired:
            return ServerError("failed", f"llama-server runs but does not answer: {doubt}")
        if self._copier is not None:
            self._copier.join(_QUICK_SECONDS)
        kind, text = llama_cpp_log.failure(self._tail.decode("utf-8", "replace"))
        if code == -9:
            text += "; it was killed, as the kernel does when memory runs out"
        ended = f"signal {-code}" if code < 0 else f"code {code}"
        return ServerError(kind, text if kind != "failed" else f"llama-server ended with {ended}: {text}")

    def _copy(self, process: "subprocess.Popen[bytes]") -> None:
        """Pass on what it prints, and keep the head and the tail."""
        if process.stdout is None:  # pragma: no cover - it was asked for
            return
        while chunk := os.read(process.stdout.fileno(), 1 << 16):
            os.write(1, chunk)
            self._head += chunk[: max(0, _HEAD_BYTES - len(self._head))]
            self._tail = (self._tail + chunk)[-_TAIL_BYTES:]

    def _end(self, patience: float) -> None:
        """End it, after so many seconds by force, and wait until it has given its memory back."""
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._copier is not None:
            self._copier.join(_QUICK_SECONDS)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _reason(text: str, status: int) -> str:
    """The server's sentence out of ``{"error": {"message": …}}``."""
    try:
        return str(json.loads(text)["error"]["message"])[:300]
    except (ValueError, KeyError, TypeError):
        return f"HTTP {status}: {text[:200]}"
