"""Fetching the weights of a trial, the size told first."""

from pathlib import Path

from model_catalog.hub_download import download_model, download_size_bytes
from model_catalog.model import Model
from planner.cli.output import Output
from planner.report.words import need_bytes


def download(model: Model, output: Output) -> Path:
    """The folder of the model's files once they are here.

    Raises:
        ModelError, NetworkError: the repo or the Hub. UsageError: the disk has no room.
    """
    size = download_size_bytes(model.snapshot)
    told = "of unknown size" if size is None else need_bytes(size)
    output.note("download", f"fetching {model.snapshot.repo_id}, {told}")
    return download_model(model.snapshot, show_progress=output.shows_bars)
