"""Decoders built like Llama: separate projections, a gated MLP, full attention in every layer.

Shapes follow the modules of the same name in Hugging Face ``transformers``
(``models/<model_type>/modeling_*.py``), defaults their ``configuration_*.py``.
"""

from collections.abc import Mapping
from typing import Final

from model_catalog.architecture import ArchitectureSpec
from model_catalog.families.common import Builder, Reading
from model_catalog.families.decoder import Style, decoder
from model_catalog.families.shape import read_shape


def llama(reading: Reading) -> ArchitectureSpec:
    """Llama 1 to 3 and the many models of the same code; ``attention_bias`` covers all four projections."""
    text = reading.text
    bias = text.boolean("attention_bias", default=False)
    style = Style(qkv_bias=bias, output_bias=bias, mlp_bias=text.boolean("mlp_bias", default=False))
    return decoder(reading, read_shape(reading), style)


FAMILIES: Final[Mapping[str, Builder]] = {
    "llama": llama,
}
