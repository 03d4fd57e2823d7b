"""The child of a trial in vLLM: ``PYTHON child.py PIPE``, run by the interpreter that has vLLM.

Speaks the protocol of every child. Two engines cannot hold a device at once, so it starts ``engine.py``
twice, one after the other, as processes of their own: first the target alone for half of the seconds, then the
pair on the prompts that got done. Standard library only; what it needs of ours it loads by path, for specplan is
not installed beside the engine. What the engines print goes on to standard output, and its head is read for what
they say of themselves.
"""

import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.trial.protocol import TrialRequest

HERE = Path(__file__).resolve().parent
DEFAULT_TOKENS = 3
HEAD_BYTES = 1 << 20
TAIL_BYTES = 1 << 16
#: An engine that has said its last word may take so long to give its memory back.
LEAVING_SECONDS = 60.0


def load(name: str) -> Any:
    """A module of ``planner.trial`` by its path, under a name that no engine uses."""
    spec = importlib.util.spec_from_file_location(
        f"specplan_{name.replace('/', '_')}", HERE.parents[1] / f"{name}.py"
    )
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


protocol, prompts, engine_log = load("protocol"), load("prompts"), load("serving/log")


class PhaseFailedError(Exception):
    """A phase ended without its last word; ``code`` is the protocol's."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def make_groups(batch: int) -> list[dict[str, Any]]:
    """The trial's groups of prompts as plain data, named after their first prompt and the number of others."""
    return [
        {
            "name": group[0].name + (f"+{batch - 1}" if batch > 1 else ""),
            "task": group[0].task,
            "texts": [prompt.text for prompt in group],
        }
        for group in prompts.groups(batch)
    ]


def repeats_spread(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> float | None:
    """How far the speedups of the first and the second half of the runs lie apart, relative to that of all.

    ``pairs``: each run without and with the draft. None where there are fewer than two.
    """

    def speedup(some: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> float:
        plain, quick = (rate([pair[way] for pair in some]) for way in (0, 1))
        return quick / plain

    def rate(runs: Sequence[Mapping[str, Any]]) -> float:
        seconds: float = sum(run["seconds"] for run in runs)
        return sum(map(after_first, runs)) / seconds

    half = len(pairs) // 2
    return abs(speedup(pairs[:half]) - speedup(pairs[half:])) / speedup(pairs) if half else None


def after_first(run: Mapping[str, Any]) -> int:
    """Tokens after each sequence's first, which prefill yields."""
    return sum(len(tokens) - 1 for tokens in run["tokens"])


class Phase:
    """One engine's process: its words as they come, and the head and tail of its log."""

    def __init__(self, name: str, job: Mapping[str, Any]) -> None:
        self._name, self._job = name, job
        self._head, self._tail = bytearray(), bytearray()

    @property
    def log(self) -> str:
        """The head of what was printed, where engines tell their memory."""
        return self._head.decode("utf-8", "replace")

    def words(self) -> Iterator[dict[str, Any]]:
        """Everything the phase says, until ``done``. Its process, with its hold on the device, is gone afterwards.

        Raises:
            PhaseFailedError: it failed, or ended without a word.
        """
        reading, writing = os.pipe()
        process = subprocess.Popen(
            [sys.executable, str(HERE / "engine.py"), str(writing)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[writing],
            env=surroundings(self._job["options"]),
        )
        os.close(writing)
        copier = threading.Thread(target=self._copy, args=(process,), daemon=True)
        copier.start()
        try:
            with os.fdopen(reading, encoding="utf-8") as stream:
                yield from self._listen(process, stream)
        finally:
            self._leave(process, copier)

    def _listen(self, process: "subprocess.Popen[bytes]", stream: Any) -> Iterator[dict[str, Any]]:
        if process.stdin is not None:
            process.stdin.write(json.dumps(self._job).encode())
            process.stdin.close()
        for line in stream:
            word: dict[str, Any] = json.loads(line)
            if word["kind"] == "error":
                raise self._failure(word["type"], word["text"])
            last = word["kind"] == "done"
            yield word
            if last:
                return
        code = process.wait()
        ended = f"the engine's process ended with {'signal' if code < 0 else 'code'} {abs(code)}"
        raise self._failure("", f"{ended} ({self._name})")

    def _copy(self, process: "subprocess.Popen[bytes]") -> None:
        """Pass on what the engine prints."""
        if process.stdout is None:
            return
        while chunk := os.read(process.stdout.fileno(), 1 << 16):
            os.write(1, chunk)
            self._head += chunk[: max(0, HEAD_BYTES - len(self._head))]
            self._tail = (self._tail + chunk)[-TAIL_BYTES:]

    def _leave(self, process: "subprocess.Popen[bytes]", copier: threading.Thread) -> None:
        """Wait for the process and for those it started: all hold its output open."""
        try:
            process.wait(LEAVING_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        copier.join(LEAVING_SECONDS)

    def _failure(self, kind: str, text: str) -> PhaseFailedError:
        """The engine's own sentence: where it only says that another process failed, the log has the reason."""
        if kind in {"engine_options", "engine_refused"}:
            return PhaseFailedError(kind, text)
        if not kind or engine_log.is_second_hand(text):
            cause = engine_log.root_cause(self._tail.decode("utf-8", "replace"))
            if cause is not None:
                kind, text = cause
        code, text = engine_log.failure_code(kind, text), engine_log.one_sentence(text)
        return PhaseFailedError(code, text if code != "failed" else f"{kind or 'failed'}: {text}")


def surroundings(options: Mapping[str, Any]) -> dict[str, str]:
    """The environment of an engine. A pool pinned in bytes must not be overruled by the older, rounder setting."""
    kept = dict(os.environ)
    if options.get("kv_cache_memory_bytes"):
        kept.pop("VLLM_CPU_KVCACHE_SPACE", None)
    return kept


class Trial:
    """Both phases of one pair."""

    def __init__(self, request: "TrialRequest", send: Any) -> None:
        self._request, self._send = request, send
        self._k = request.num_speculative_tokens or DEFAULT_TOKENS
        self._failures: list[str] = []
        self._notes = ["one engine after the other: load that changes between them is in the ratio"]
        self._engine: dict[str, Any] = {}

    def run(self) -> None:
        """Measure; ends with the event ``result``.

        Raises:
            PhaseFailedError: an engine would not start, or died.
        """
        groups = make_groups(self._request.batch)
        plain, first_end = self._phase("baseline", groups, self._request.seconds / 2)
        done = [group for group in groups if group["name"] in plain]
        if not done:
            raise PhaseFailedError("failed", f"every prompt failed, the first with {self._failures[:1]}")
        quick, second_end = self._phase("speculative", done, self._request.seconds, plain)
        if not quick:
            raise PhaseFailedError("failed", f"no prompt ran with the draft: {self._failures[:1]}")
        ends = {first_end["stopped_by"], second_end["stopped_by"]}
        memory = {"tensor_bytes": None, "allocated_peak_bytes": None, "reserved_peak_bytes": None}
        self._event(
            "result",
            num_speculative_tokens=self._k,
            stopped_by="time" if "time" in ends else "prompts",
            failures=self._failures,
            memory={**memory, **second_end["memory"]},
            repeats_spread=repeats_spread([(plain[name], quick[name]) for name in quick]),
            how=second_end["how"],
            engine=self._engine,
            notes=[*self._notes, *self._remarks(quick)],
        )

    def _phase(
        self,
        name: str,
        groups: Sequence[Mapping[str, Any]],
        seconds: float,
        plain: Mapping[str, Any] | None = None,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Run one engine over the groups: its runs by name, and its last word."""
        phase = Phase(name, self._job(groups, seconds, speculative=plain is not None))
        runs: dict[str, Any] = {}
        tasks = {group["name"]: group["task"] for group in groups}
        end: dict[str, Any] = {}
        for word in phase.words():
            kind = word.pop("kind")
            if kind == "loaded" and plain is None:
                self._event("loaded", **word)
            elif kind == "failure":
                self._failures.append(f"{word['name']}: {word['text']}")
            elif kind == "run":
                self._take(word, tasks[word["name"]], plain, runs, len(groups))
            elif kind == "done":
                end = word
            if kind in {"loaded", "warmed"} or (kind == "run" and plain is None):
                # A sign of life too: nothing can be compared before the second engine runs.
                self._event("warmed", num_speculative_tokens=self._k, phase=name, done=len(runs), of=len(groups))
        self._engine[name] = asdict(engine_log.read_engine_log(phase.log))
        return runs, end

    def _take(
        self, word: Mapping[str, Any], task: str, plain: Mapping[str, Any] | None, runs: dict[str, Any], of: int
    ) -> None:
        """Keep one run; with the baseline's beside it, tell both."""
        name = word["name"]
        if plain is not None:
            if not word["rounds"]:
                self._failures.append(f"{name}: the engine drafted nothing")
                return
            self._event("progress", run=asdict(self._merged(name, task, plain[name], word)), of=of)
        runs[name] = word

    def _merged(self, name: str, task: str, plain: Mapping[str, Any], quick: Mapping[str, Any]) -> Any:
        rounds, batch = quick["rounds"], self._request.batch
        return protocol.PromptRun(
            prompt=name,
            task=task,
            baseline_tokens=after_first(plain),
            baseline_seconds=plain["seconds"],
            # Without the engine's count: all sequences advance together, but drafts let some finish early.
            baseline_passes=plain["passes"] or max(len(tokens) - 1 for tokens in plain["tokens"]),
            speculative_tokens=after_first(quick),
            speculative_seconds=quick["seconds"],
            passes=quick["passes"] or -(-rounds // batch),
            rounds=rounds,
            accepted_counts=tuple(quick["accepted_counts"]),
            prefill_seconds=plain["prefill_seconds"],
            same_tokens=plain["tokens"] == quick["tokens"] if self._request.temperature == 0 else None,
        )

    def _job(self, groups: Sequence[Mapping[str, Any]], seconds: float, *, speculative: bool) -> dict[str, Any]:
        request = self._request
        return {
            "target": request.target_folder,
            "draft": request.draft_folder,
            "speculative": speculative,
            "k": self._k,
            "device": request.device,
            "dtype": request.dtype,
            "dummy": request.weights == "dummy",
            "batch": request.batch,
            "new_tokens": request.new_tokens,
            "temperature": request.temperature,
            "seed": request.seed,
            "seconds": seconds,
            "limits": list(request.device_limits_bytes),
            "options": dict(request.engine_options),
            "groups": list(groups),
            "longest_bytes": max(len(text.encode()) for group in groups for text in group["texts"]),
        }

    def _remarks(self, quick: Mapping[str, Any]) -> Iterator[str]:
        if self._request.num_speculative_tokens is None:
            yield f"k is {self._k}, not the best of a sweep: an engine has to start anew for each k"
        if self._request.batch > 1:
            yield "a batch is timed until its slowest sequence is done; a server would fill the others' places"
        chosen = self._request.engine_options.get("speculative_config", {})
        if self._request.temperature > 0 and "draft_sample_method" not in chosen:
            yield "vLLM lets the draft propose its likeliest token unless draft_sample_method says otherwise"
        if any(run["drafted"] != self._k * run["rounds"] for run in quick.values()):
            yield f"some rounds drafted fewer than {self._k} tokens, so later positions look worse than they are"
        if any(not run["passes"] for run in quick.values()):
            yield "this vLLM does not count its passes: they are taken as rounds by batch"

    def _event(self, name: str, **content: object) -> None:
        self._send(protocol.Event(name=name, content=content))


def main(pipe: int) -> int:
    """Run one trial; 0 where it ended with a result, else 1 after an ``error`` event."""
    os.set_inheritable(pipe, False)
    with os.fdopen(pipe, "w", encoding="utf-8", buffering=1) as stream:

        def send(event: Any) -> None:
            stream.write(event.to_json() + "\n")

        try:
            Trial(protocol.TrialRequest.from_json(sys.stdin.read()), send).run()
        except protocol.ProtocolError as error:
            code, text = "protocol", str(error)
        except PhaseFailedError as error:
            code, text = error.code, str(error)
        except (OSError, ValueError, KeyError, TypeError) as error:
            code, text = "failed", f"{type(error).__name__}: {error}"
        else:
            return 0
        send(protocol.Event(name="error", content={"code": code, "text": text[:2000]}))
    return 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
