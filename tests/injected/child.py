"""Faults of a trial's child process: scripted children without torch, and the error that has to come of each."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trial_children import LOADED, RUN, progress, result

from injected.record import Fault


@dataclass(frozen=True, kw_only=True)
class ChildCase(Fault):
    """One trial with a scripted child; seconds that it has, for the whole and between two words."""

    exit_code: int = 7
    script: str
    never_says: str | None = None
    whole_seconds: float = 60.0
    silence_seconds: float = 60.0


PROGRESS, RESULT = progress(RUN), result()
#: Of the shape of a Hub token, and of no shape that anybody could know.
TOKEN, PASSPHRASE = "hf_" + "s3cReT9" * 5, "correct horse battery staple"
#: What the child prints: all that it was given, a token, and one that the end of the quoted log cuts in two.
PRINTS_SECRETS = (
    f"print(os.environ)\nprint({TOKEN!r})\nprint({TOKEN!r} + ' x' * 133, flush=True)\n"
    "os.kill(os.getpid(), signal.SIGKILL)\n"
)
#: A line of more than any pipe or file in memory should be made to hold, over and over.
FLOODS = 'for _ in range(20_000):\n    print("x" * 5000)\nsys.exit(9)\n'


def _false_run(**changes: object) -> str:
    """A child that is done, with one run whose figures were changed."""
    run = json.dumps({**asdict(RUN), **changes})
    return LOADED + f"send(event='progress', run=json.loads({run!r}), of=48)\n" + RESULT


def _false_result(**changes: object) -> str:
    told = {"num_speculative_tokens": 2, "stopped_by": "interval", "failures": [], "memory": {}, "how": "eager"}
    return LOADED + PROGRESS + f'send(event="result", **json.loads({json.dumps({**told, **changes})!r}))\n'


FALSE_RUNS: Sequence[tuple[str, str, Mapping[str, Any]]] = (
    ("negative-time", "a negative time", {"baseline_seconds": -1.0}),
    ("no-time", "a run that took no time", {"speculative_seconds": 0.0}),
    ("nan-time", "a time that is NaN", {"speculative_seconds": math.nan}),
    ("endless-time", "a time without end", {"baseline_seconds": math.inf}),
    ("nan-gap", "a difference of logits that is NaN", {"logit_gap": math.nan}),
    ("negative-draft-time", "a draft that gives time back", {"draft_seconds": -0.1}),
    ("years", "a run of a hundred years", {"baseline_seconds": 3.2e9}),
    ("text-for-time", "a time in words", {"baseline_seconds": "1.8"}),
    ("yes-for-time", "yes for a time", {"baseline_seconds": True}),
    ("yes-for-count", "yes for a number of tokens", {"baseline_tokens": True}),
    ("part-of-a-token", "a part of a token", {"speculative_tokens": 17.5}),
    ("no-tokens", "a run without a token", {"baseline_tokens": 0}),
    ("tokens-beyond", "more tokens than there are bytes", {"baseline_tokens": 2**70}),
    ("negative-count", "a negative number of rounds", {"accepted_counts": (11, -4, 3)}),
    ("counts-apart", "rounds that do not add up", {"accepted_counts": (5, 2, 4)}),
    ("prompt-a-list", "a list for a prompt's name", {"prompt": [1]}),
    ("task-a-list", "a list for a task's name", {"task": [[]]}),
    ("same-perhaps", "neither yes nor no of equal tokens", {"same_tokens": "perhaps"}),
)
FALSE_RESULTS: Sequence[tuple[str, str, Mapping[str, Any], str]] = (
    ("k-0", "a result of no proposals", {"num_speculative_tokens": 0}, "num_speculative_tokens cannot be"),
    ("k-other", "a result of fewer proposals than ran", {"num_speculative_tokens": 1}, "tokens cannot be"),
    ("k-text", "a result of proposals in words", {"num_speculative_tokens": "2"}, "tokens cannot be"),
    ("negative-memory", "a negative amount of memory", {"memory": {"tensor_bytes": -1}}, "memory cannot be"),
    ("memory-beyond", "more memory than any device has", {"memory": {"tensor_bytes": 2**64}}, "memory cannot be"),
    ("memory-nan", "memory that is NaN", {"memory": {"tensor_bytes": math.nan}}, "not an event"),
    ("memory-a-list", "a list of memory", {"memory": [1]}, "no object"),
    ("spread-nan", "a spread that is NaN", {"repeats_spread": math.nan}, "not an event"),
    ("spread-negative", "a negative spread", {"repeats_spread": -0.5}, "repeats_spread cannot be"),
    ("failures-3", "three for a list of failures", {"failures": 3}, "no list of texts"),
    ("notes-of-numbers", "numbers for notes", {"notes": [1]}, "no list of texts"),
    ("engine-a-list", "a list for what an engine said", {"engine": [1]}, "no object"),
)
CHILD_CASES = [
    ChildCase(
        id="silent",
        what="a child that says nothing",
        script="time.sleep(60)\n",
        silence_seconds=0.5,
        code="trial_silent",
        says="said nothing for",
    ),
    ChildCase(
        id="never-done",
        what="a child that talks for ever",
        script=LOADED + "while True:\n    " + PROGRESS + "    time.sleep(0.05)\n",
        whole_seconds=1.0,
        code="trial_deadline",
        says="not done after 1 s",
    ),
    ChildCase(
        id="killed",
        what="a child that the kernel kills; the end of its log is quoted",
        script='print("it was going so well", flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n',
        code="trial_killed",
        says="SIGKILL, as the kernel does when memory runs out); its log ends: 'it was going so well'",
    ),
    ChildCase(
        id="killed-between",
        what="a child that is killed after a prompt's baseline and draft ran, before the next",
        script=LOADED + PROGRESS + "time.sleep(0.2)\nos.kill(os.getpid(), signal.SIGKILL)\n",
        code="trial_killed",
        says="SIGKILL, as the kernel does when memory runs out",
    ),
    ChildCase(
        id="exit-137",
        what="a child that ends as what a container kills does",
        script="sys.exit(137)\n",
        code="trial_killed",
        says="exit code 137, as of SIGKILL",
    ),
    ChildCase(
        id="segfault",
        what="a child that crashes in its machine code",
        script=LOADED + "import ctypes, faulthandler\nfaulthandler.disable()\nctypes.string_at(0)\n",
        code="trial_killed",
        says="SIGSEGV",
    ),
    ChildCase(
        id="nameless-signal",
        what="a child that a real-time signal ends",
        script="os.kill(os.getpid(), 40)\ntime.sleep(5)\n",
        code="trial_killed",
        says="signal 40",
    ),
    ChildCase(
        id="hangs-when-loaded",
        what="a child that hangs once it has loaded",
        script=LOADED + "time.sleep(60)\n",
        silence_seconds=1.5,
        code="trial_silent",
        says="said nothing for",
    ),
    ChildCase(
        id="closes-its-pipe",
        what="a child that closes its pipe and stays",
        script=LOADED + "pipe.close()\ntime.sleep(60)\n",
        code="trial_killed",
        says="its pipe is closed, but it runs on",
    ),
    ChildCase(
        id="floods",
        what="a child that prints a hundred megabytes and leaves",
        script=FLOODS,
        code="trial_killed",
        says="exit code 9",
    ),
    ChildCase(
        id="prints-secrets",
        what="a child that prints its surroundings and a token before it is killed",
        script=PRINTS_SECRETS,
        code="trial_killed",
        says="its log ends: ",
        never_says=TOKEN[3:15],
    ),
    ChildCase(
        id="controls",
        what="a child that writes terminal controls to its log and into its error",
        script='print("\\x1b[2J\\u202e", flush=True)\n'
        'send(event="error", code="failed", text="a\\x1b[31mb\\u202ec")\n',
        code="trial_failed",
        says=r"a\x1b[31mb\u202ec",
        never_says="\x1b",
    ),
    ChildCase(
        id="leaves",
        what="a child that leaves without a word",
        script="sys.exit(3)\n",
        code="trial_killed",
        says="exit code 3",
    ),
    *(
        ChildCase(id=name, what=f"a child that says {what}", script=script, code="trial_protocol", says=says)
        for name, what, script, says in (
            ("no-json", "what is no JSON", 'pipe.write("what?\\n")\n', "spoke out of turn"),
            (
                "endless-line",
                "a line without end",
                'pipe.write("x" * 3_000_000)\npipe.flush()\ntime.sleep(5)\n',
                "a line of more than",
            ),
            ("half-a-run", "half of a run", 'send(event="progress", run={"prompt": "p"})\n', "spoke out of turn"),
            ("no-run", "that it goes on, with no run", 'send(event="progress")\n', "a field is missing: 'run'"),
            ("empty-result", "a result of nothing", LOADED + RESULT, "a result without any prompt's run"),
            ("never-loaded", "a result of models that it never loaded", PROGRESS + RESULT, "never loaded"),
            (
                "unknown-error",
                "an error of no known kind",
                'send(event="error", code="\x1b[2J")\n',
                "kind of error",
            ),
            ("deep", "what is nested without end", 'pipe.write("[" * 100_000 + "\\n")\n', "not an event"),
            (
                "run-a-list",
                "a list for a run",
                LOADED + 'send(event="progress", run=[1, 2])\n',
                "not a prompt's run",
            ),
            ("other-protocol", "words of another protocol", 'send(version=9, status="ok")\n', "not an event"),
            *(
                (
                    name,
                    what,
                    _false_run(**changes),
                    "not an event" if "NaN" in what or "end" in what else "cannot be",
                )
                for name, what, changes in FALSE_RUNS
            ),
            *((name, what, _false_result(**changes), says) for name, what, changes, says in FALSE_RESULTS),
            (
                "half-a-result",
                "half of a result",
                LOADED + PROGRESS + 'send(event="result")\n',
                "a field is missing",
            ),
        )
    ),
    ChildCase(
        id="speedup-above-length",
        what="a child that tells a speedup above the tokens of a pass",
        script=_false_run(speculative_seconds=0.4),
        code="trial_mismatch",
        says="a speedup of 4.50 with 1.80 tokens a pass cannot be",
    ),
    ChildCase(
        id="free-verification",
        what="a child that tells a verification cheaper than a plain step",
        script=_false_run(verify_seconds=0.01),
        code="trial_mismatch",
        says="cannot be",
    ),
]
