"""The child of a trial in llama.cpp: ``python -m planner.trial.worker.llama_cpp.child PIPE``.

Speaks the protocol of every child; standard library only. Starts ``llama-server`` twice, one after the other:
first the target alone for half of the seconds, then the pair on the prompts that got done. Times are the server's.
"""

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from planner.trial.prompts import Prompt, interleaved
from planner.trial.protocol import Event, PromptRun, ProtocolError, TrialRequest
from planner.trial.serving.llama_cpp import START_SECONDS, find_server, lacks_server
from planner.trial.worker.llama_cpp import log
from planner.trial.worker.llama_cpp.answer import Answer, fitted_counts, told_counts
from planner.trial.worker.llama_cpp.options import (
    Help,
    OptionsError,
    Start,
    check_options,
    context_tokens,
    file_bytes,
    gguf_file,
)
from planner.trial.worker.llama_cpp.server import RequestError, Server, ServerError, ask

_DEFAULT_K: Final = 3
_WARM_TOKENS: Final = 32


@dataclass(slots=True, kw_only=True)
class Phase:
    """What one of the two servers yielded."""

    answers: dict[str, Answer] = field(default_factory=dict)
    stopped_by: str = "prompts"


class Trial:
    """Both servers of one pair."""

    def __init__(self, request: TrialRequest, send: Callable[[Event], None]) -> None:
        self._request, self._send = request, send
        self._k = request.num_speculative_tokens or _DEFAULT_K
        self._failures: list[str] = []
        self._notes = ["one server after the other: load that changes between them is in the ratio"]
        self._engine: dict[str, Any] = {}
        self._counted = log.Counters()

    def run(self) -> None:
        """Measure; ends with the event ``result``.

        Raises:
            OptionsError: the request cannot be brought to llama.cpp.
            ServerError: a server would not start, or ended.
        """
        request, options = self._request, self._request.engine_options
        further = self._check()
        server = find_server(options.get("server"))
        if server is None:
            named = options.get("server")
            raise ServerError("missing_import", f"{named} is no program" if named else str(lacks_server()))
        target = gguf_file(request.target_folder, options.get("target_file"))
        draft = gguf_file(request.draft_folder, options.get("draft_file"))
        known = Help.of(ask(server, "--help"))
        self._require_gpu(server)
        prompts = interleaved()
        longest = max(len(prompt.text.encode()) for prompt in prompts)
        seconds = float(options.get("start_seconds", START_SECONDS))

        def start(model: Any) -> Server:
            plan = Start(
                target=target,
                draft=model,
                k=self._k,
                device=request.device,
                context_tokens=context_tokens(longest, request.new_tokens, self._k),
                threads=request.threads,
                further=tuple(further),
            )
            return Server(server, plan.arguments(known), seconds)

        begin = time.monotonic()
        with start(None) as plain:
            self._tell_loaded(plain, server, time.monotonic() - begin, {"target": target, "draft": draft})
            baseline = self._phase("baseline", plain, prompts, request.seconds / 2)
        done = [prompt for prompt in prompts if prompt.name in baseline.answers]
        if not done:
            raise ServerError("failed", f"every prompt failed, the first with {self._failures[:1]}")
        with start(draft) as quick:
            self._engine["speculative"] = _told(quick)
            _require_taken(quick)
            speculative = self._phase("speculative", quick, done, request.seconds, baseline)
            if log.translates(quick.log):
                self._notes.append("this llama.cpp translates the draft's tokens to the target's vocabulary")
        if not speculative.answers:
            raise ServerError("failed", f"no prompt ran with the draft: {self._failures[:1]}")
        self._event(
            "result",
            num_speculative_tokens=self._k,
            stopped_by="time" if "time" in {baseline.stopped_by, speculative.stopped_by} else "prompts",
            failures=self._failures,
            memory={"tensor_bytes": None, "allocated_peak_bytes": None, "reserved_peak_bytes": None},
            how="eager" if request.device == "cpu" else "graphs",
            engine=self._engine,
            notes=[*self._notes, *self._remarks(speculative)],
        )

    def _check(self) -> list[str]:
        request = self._request
        if request.weights == "dummy":
            raise OptionsError("engine_options", "llama.cpp cannot make dummy weights: it needs GGUF files")
        if request.batch != 1:
            raise OptionsError("engine_options", f"a trial in llama.cpp runs a batch of 1, not of {request.batch}")
        return check_options(request.engine_options)

    def _require_gpu(self, server: str) -> None:
        """A build without CUDA would quietly run on the CPU."""
        if self._request.device == "cpu":
            return
        names = [name for name, _ in log.listed_devices(ask(server, "--list-devices"))]
        number = self._request.device.partition(":")[2]
        if not any(name.startswith(("CUDA", "ROCm")) and name.endswith(number) for name in names):
            raise ServerError("no_cuda", f"this llama-server has no {self._request.device}: it lists {names}")

    def _tell_loaded(self, plain: Server, server: str, seconds: float, files: Mapping[str, Any]) -> None:
        told = self._engine["baseline"] = _told(plain)
        release = told["version"] or log.version(ask(server, "--version")) or "unknown"
        self._event(
            "loaded",
            seconds=seconds,
            device=self._device_name(plain.log),
            versions={"python": platform.python_version(), "llama.cpp": release},
            weights_bytes={which: file_bytes(file) for which, file in files.items()},
        )
        if told["file_type"]:
            self._notes.append(f"types are those of the GGUF files: the target's is {told['file_type']}")

    def _device_name(self, text: str) -> str:
        used = log.used_devices(text)
        if self._request.device != "cpu" and used:
            names = [name for _, name in used]
            return names[0] if len(names) == 1 else f"{len(names)} x {names[0]}"
        count = log.threads(text) if self._request.threads is None else self._request.threads
        return "CPU" if count is None else f"CPU, {count} thread{'s' if count > 1 else ''}"

    def _phase(
        self,
        name: str,
        server: Server,
        prompts: Sequence[Prompt],
        seconds: float,
        baseline: Phase | None = None,
    ) -> Phase:
        """Warm one server, then run prompts through it until the seconds are over."""
        phase = Phase()
        self._counted = self._counters(server)
        self._warm(server, prompts[0], speculative=baseline is not None)
        self._tell_life(name, phase, prompts)
        begin = time.monotonic()
        for prompt in prompts:
            try:
                answer = self._complete(server, prompt.text, self._request.new_tokens)
                if baseline is not None:
                    run = self._merged(prompt, baseline.answers[prompt.name], answer)
                    self._event("progress", run=asdict(run), of=len(prompts))
                phase.answers[prompt.name] = answer
            except (RequestError, KeyError, ValueError) as error:
                self._failures.append(f"{prompt.name}: {error}")
            if baseline is None:
                self._tell_life(name, phase, prompts)
            if time.monotonic() - begin > seconds:
                phase.stopped_by = "time"
                break
        return phase

    def _tell_life(self, name: str, phase: Phase, prompts: Sequence[Prompt]) -> None:
        """Nothing can be compared before the second server runs, but the parent hears that we live."""
        done, of = len(phase.answers), len(prompts)
        self._event("warmed", num_speculative_tokens=self._k, phase=name, done=done, of=of)

    def _warm(self, server: Server, prompt: Prompt, *, speculative: bool) -> None:
        """A first request; with a draft it tells whether the server, which would only log it, drafts at all."""
        try:
            answer = self._complete(server, prompt.text, min(_WARM_TOKENS, self._request.new_tokens))
        except (RequestError, KeyError, ValueError):
            return  # the prompts will tell
        if speculative and not answer.drafted:
            _require_taken(server)
            raise ServerError("engine_refused", "llama.cpp loads this draft, but drafts nothing")

    def _complete(self, server: Server, text: str, tokens: int) -> Answer:
        """One prompt. What it raises concerns this prompt alone, but for ServerError.

        Raises:
            RequestError: the server refuses it.
            KeyError, ValueError: its answer cannot be read.
        """
        request = self._request
        try:
            given = server.complete(
                {
                    "prompt": text,
                    "n_predict": tokens,
                    "temperature": request.temperature,
                    # Plain sampling, as the other backends do it.
                    **({} if request.temperature == 0 else {"top_k": 0, "top_p": 1.0, "min_p": 0.0}),
                    "seed": request.seed,
                    "ignore_eos": True,
                    "cache_prompt": False,
                    "return_tokens": True,
                    "stream": False,
                }
            )
        finally:
            before, self._counted = self._counted, self._counters(server)
        return Answer.of(given, before, self._counted)

    def _counters(self, server: Server) -> log.Counters:
        return log.read_counters(server.get("/metrics") or "")

    def _merged(self, prompt: Prompt, plain: Answer, quick: Answer) -> PromptRun:
        if not quick.drafted:
            raise ValueError("the server drafted nothing")
        told = told_counts(quick, self._k)
        counts = told or fitted_counts(quick.passes, quick.accepted, self._k)
        both = self._request.temperature == 0 and plain.tokens and quick.tokens
        return PromptRun(
            prompt=prompt.name,
            task=prompt.task,
            baseline_tokens=plain.predicted - 1,
            baseline_seconds=plain.seconds,
            baseline_passes=plain.predicted - 1,
            speculative_tokens=quick.predicted - 1,
            speculative_seconds=quick.seconds,
            passes=quick.passes,
            rounds=sum(counts),
            accepted_counts=counts,
            prefill_seconds=plain.prefill_seconds,
            same_tokens=plain.tokens == quick.tokens if both else None,
        )

    def _remarks(self, phase: Phase) -> Iterator[str]:
        answers = phase.answers.values()
        if self._request.num_speculative_tokens is None:
            yield f"k is {self._k}, not the best of a sweep: the server has to start anew for each k"
        if any(told_counts(answer, self._k) is None for answer in answers):
            yield "acceptance by position is a fit to the mean: this llama.cpp tells only totals"
        missing = sum(self._k * (answer.rounds or answer.passes) - answer.drafted for answer in answers)
        if missing > 2 * self._k * len(answers):
            yield f"many rounds drafted fewer than {self._k} tokens, so later positions look worse than they are"
        if self._request.temperature > 0:
            yield "llama.cpp accepts a proposal only where the target draws the very same token"
        if self._request.device_limits_bytes:
            yield "llama.cpp takes no cap on a device's memory: the limit was not applied"

    def _event(self, name: Any, **content: object) -> None:
        self._send(Event(name=name, content=content))


def _require_taken(server: Server) -> None:
    """A pair that is refused is only logged: the server goes on without speculation."""
    if reason := log.refusal(server.log):
        raise ServerError("engine_refused", f"llama.cpp does not take this draft: {reason}")


def _told(server: Server) -> dict[str, Any]:
    """What a server says of itself: release, type of the file, buffers in bytes as its log has them."""
    found = log.buffers(server.log)
    properties = server.properties()
    return {
        "version": properties.get("build_info"),
        "file_type": properties.get("model_ftype"),
        **log.on_device(found),
        "buffers": found,
    }


def main(pipe: int) -> int:
    """Run one trial; 0 where it ended with a result, else 1 after an ``error`` event."""
    os.set_inheritable(pipe, False)
    with os.fdopen(pipe, "w", encoding="utf-8", buffering=1) as stream:

        def send(event: Event) -> None:
            stream.write(event.to_json() + "\n")

        try:
            Trial(TrialRequest.from_json(sys.stdin.read()), send).run()
        except ProtocolError as error:
            code, text = "protocol", str(error)
        except (OptionsError, ServerError) as error:
            code, text = error.code, str(error)
        except BrokenPipeError:
            return 1  # the parent has gone
        except (OSError, ValueError, KeyError, TypeError) as error:
            code, text = "failed", f"{type(error).__name__}: {error}"
        else:
            return 0
        send(Event(name="error", content={"code": code, "text": text[:2000]}))
    return 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
