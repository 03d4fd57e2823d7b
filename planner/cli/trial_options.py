"""The options of a trial, and the record that `fit` and `trial` get once they are read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar, get_args

import click

from planner.cli.options import apply, valued
from planner.cli.typed_names import complete_file
from planner.service.values import COUNT

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
WeightsWish = Literal["auto", "real", "dummy"]
#: Backends by name; ``planner.trial.backends`` says which are usable.
BACKENDS: Final = ("builtin", "vllm", "llama.cpp")
DEFAULT_NEW_TOKENS: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOptions:
    """What a trial was asked for. ``wanted`` None: where a device is present and nothing stands in the way.

    ``sweep`` False: k is the planned one, for the user gave a range that a sweep would not keep to.
    """

    wanted: bool | None = None
    top: int = 2
    backend: str = "builtin"
    seconds: float = 60.0
    weights: WeightsWish = "auto"
    download: bool = False
    fresh: bool = False
    engine_python: str | None = None
    new_tokens: int = DEFAULT_NEW_TOKENS
    batch: int | None = None
    temperature: float = 0.0
    num_speculative_tokens: int | None = None
    sweep: bool = True

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "TrialOptions":
        """Out of what click read; `trial` gives more of them than `fit`."""
        weights: WeightsWish = next(wish for wish in get_args(WeightsWish) if wish == given["trial_weights"])
        return cls(
            wanted=given.get("trial", True),
            top=given.get("trial_top", 1),
            backend=given["trial_backend"],
            seconds=float(given["trial_seconds"]),
            weights=weights,
            download=given["download"],
            fresh=given["fresh"],
            engine_python=given["engine_python"],
            new_tokens=given.get("new_tokens", DEFAULT_NEW_TOKENS),
            batch=given.get("batch"),
            temperature=given.get("temperature", 0.0),
        )


def trial_options() -> Callable[[Decorated], Decorated]:
    """How a trial runs: for `fit` and `trial`."""
    return apply(
        click.option(
            "--trial-backend",
            type=click.Choice(BACKENDS),
            default="builtin",
            show_default=True,
            help="What runs the pair: our own loop, vLLM (--engine-python), or llama-server on GGUF files.",
        ),
        click.option(
            "--trial-seconds",
            type=click.IntRange(1, 3600),
            default=60,
            show_default=True,
            help="At most so long a pair, loading aside; it ends earlier once the interval is narrow.",
        ),
        click.option(
            "--trial-weights",
            type=click.Choice(get_args(WeightsWish)),
            default="auto",
            show_default=True,
            help="The model's own, or random ones: memory and step times alone.  auto: own where at hand",
        ),
        click.option("--download", is_flag=True, help="Fetch weights that a trial needs and that are not here."),
        click.option(
            "--engine-python",
            metavar="PATH",
            shell_complete=complete_file,
            help="The interpreter that has the trial's engine.  [this one]",
        ),
    )


def fit_trial_options() -> Callable[[Decorated], Decorated]:
    """Whether `fit` ends with trials, and of how many pairs."""
    return apply(
        click.option(
            "--trial/--no-trial",
            default=None,
            help="Run the best pairs on the devices.  [where live devices are planned for]",
        ),
        click.option(
            "--trial-top", type=click.IntRange(1, 10), default=2, show_default=True, help="So many pairs."
        ),
        click.option("--fresh", is_flag=True, help="Ignore what was measured earlier on this machine."),
        trial_options(),
    )


def loop_options() -> Callable[[Decorated], Decorated]:
    """What is decoded: for `trial` alone."""
    return apply(
        click.option(
            "--fresh", is_flag=True, help="As in fit; changes nothing here: a trial measures anew anyway."
        ),
        valued("--new-tokens", value=COUNT, text="Tokens a prompt.", default=str(DEFAULT_NEW_TOKENS)),
        valued("--batch", value=COUNT, text="Sequences decoded at once.", default="1"),
        click.option(
            "--temperature",
            type=click.FloatRange(0.0, 5.0),
            default=0.0,
            show_default=True,
            help="0: greedy; else sampled, with exact rejection sampling.",
        ),
    )
