"""Models without any attention: Mamba 1, Mamba 2, Falcon-Mamba and RWKV 4.

Every layer keeps a fixed state per sequence, so the context costs nothing. Layouts and defaults follow the
configuration and modeling code of transformers 5.24.
"""

from collections.abc import Mapping
from typing import Final

from model_catalog.architecture import ArchitectureSpec, LayerSpec, RecurrentState, Role
from model_catalog.config_view import ConfigView
from model_catalog.dtypes import FLOAT32
from model_catalog.families.blocks import Tensors, linear, norm, root
from model_catalog.families.common import Builder, Reading, assemble, text_layer
from model_catalog.families.state_mixers import Mamba1, Mamba2, parameter
from model_catalog.units import ceil_div

MAX_KERNEL: Final = 4096


def inner_size(view: ConfigView, key: str, expand_key: str, hidden: int) -> int:
    """The mixer's width: stated outright, else ``expand`` times the hidden size.

    Raises:
        ConfigError: when the factor is not a finite positive number.
    """
    stated = view.optional_integer(key)
    factor = view.number(expand_key, default=2.0)
    if stated is not None:
        return stated
    if not 0 < factor <= 1024:
        raise view.fail(expand_key, "must be a positive factor")
    return max(1, int(factor * hidden))


def time_step_rank(view: ConfigView, key: str, hidden: int) -> int:
    """Rank of Mamba 1's time step; ``auto`` is a sixteenth of the hidden size, rounded up."""
    if view.is_text(key):
        if view.text(key) != "auto":
            raise view.fail(key, "must be an integer or auto")
        return ceil_div(hidden, 16)
    return view.integer(key, default=ceil_div(hidden, 16))


def _mamba1(reading: Reading) -> ArchitectureSpec:
    view = reading.text
    hidden = view.integer("hidden_size")
    proj_bias = view.boolean("use_bias", default=False)
    mixer = Mamba1(
        hidden=hidden,
        inner=inner_size(view, "intermediate_size", "expand", hidden),
        state=view.integer("state_size", default=16),
        rank=time_step_rank(view, "time_step_rank", hidden),
        kernel=view.integer("conv_kernel", default=4, maximum=MAX_KERNEL),
        conv_bias=view.boolean("use_conv_bias", default=True),
        proj_bias=proj_bias,
    )
    layer = text_layer((*norm("norm", hidden), *mixer.tensors("mixer")), mixer.cache())
    return _stack(reading, layer, hidden, mixer.inner, tied_default=True)


def _mamba2(reading: Reading) -> ArchitectureSpec:
    view = reading.text
    hidden = view.integer("hidden_size")
    proj_bias = view.boolean("use_bias", default=False)
    view.mark("chunk_size", "time_step_rank")
    heads, head_dim = view.integer("num_heads", default=128), view.integer("head_dim", default=64)
    mixer = Mamba2(
        hidden=hidden,
        inner=inner_size(view, "intermediate_size", "expand", hidden),
        heads=heads,
        head_dim=head_dim,
        groups=view.integer("n_groups", default=8),
        state=view.integer("state_size", default=128),
        kernel=view.integer("conv_kernel", default=4, maximum=MAX_KERNEL),
        conv_bias=view.boolean("use_conv_bias", default=True),
        proj_bias=proj_bias,
        output_bias=proj_bias,
    )
    if mixer.inner != heads * head_dim:
        raise view.fail("num_heads", f"{heads} heads of {head_dim} do not make the inner size {mixer.inner}")
    layer = text_layer((*norm("norm", hidden), *mixer.tensors("mixer")), mixer.cache())
    return _stack(reading, layer, hidden, mixer.inner, tied_default=False)


def _stack(reading: Reading, layer: LayerSpec, hidden: int, inner: int, *, tied_default: bool) -> ArchitectureSpec:
    vocabulary = reading.text.integer("vocab_size")
    tied = reading.tied(default=tied_default)
    return assemble(
        reading,
        hidden_size=hidden,
        vocabulary_size=vocabulary,
        intermediate_size=inner,
        attention_heads=0,
        kv_heads=0,
        tied_head=tied,
        layers=[layer] * reading.layer_count(),
        root_tensors=root(
            hidden,
            vocabulary,
            tied_head=tied,
            final_norm=norm("backbone.norm_f", hidden),
            embedding_name="backbone.embeddings",
        ),
    )


def _rwkv_tensors(hidden: int, width: int, inner: int) -> Tensors:
    """Time mixing and channel mixing of one layer."""
    mixer, mlp = Role.STATE_MIXER, Role.MLP
    return (
        *norm("ln1", hidden, bias=True),
        *norm("ln2", hidden, bias=True),
        parameter("attention.time_decay", width),
        parameter("attention.time_first", width),
        *(parameter(f"attention.time_mix_{name}", 1, 1, hidden) for name in ("key", "value", "receptance")),
        *linear("attention.key", width, hidden, mixer),
        *linear("attention.value", width, hidden, mixer),
        *linear("attention.receptance", width, hidden, mixer),
        *linear("attention.output", hidden, width, mixer),
        *(parameter(f"feed_forward.time_mix_{name}", 1, 1, hidden) for name in ("key", "receptance")),
        *linear("feed_forward.key", inner, hidden, mlp),
        *linear("feed_forward.receptance", hidden, hidden, mlp),
        *linear("feed_forward.value", hidden, inner, mlp),
    )


def _rwkv(reading: Reading) -> ArchitectureSpec:
    """RWKV 4: time mixing with three fp32 vectors a layer, and the previous token's input twice."""
    view = reading.text
    hidden, count = view.integer("hidden_size"), reading.layer_count()
    width = view.integer("attention_hidden_size", default=hidden)
    inner = view.integer("intermediate_size", default=4 * hidden)
    vocabulary = view.integer("vocab_size")
    tied = reading.tied(default=False)
    tensors = _rwkv_tensors(hidden, width, inner)
    state = RecurrentState(
        kind="rwkv",
        conv_elements_per_step=2 * hidden,
        conv_steps=1,
        state_elements=3 * width,
        state_dtype=FLOAT32,
        heads=width,
    )
    layers = [text_layer(tensors, state) for _ in range(count)]
    layers[0] = text_layer((*norm("pre_ln", hidden, bias=True), *tensors), state)
    return assemble(
        reading,
        hidden_size=hidden,
        vocabulary_size=vocabulary,
        intermediate_size=inner,
        attention_heads=0,
        kv_heads=0,
        tied_head=tied,
        layers=layers,
        root_tensors=root(
            hidden,
            vocabulary,
            tied_head=tied,
            final_norm=norm("rwkv.ln_out", hidden, bias=True),
            embedding_name="rwkv.embeddings",
            head_name="head",
        ),
        max_context_keys=("context_length", "max_position_embeddings"),
    )


FAMILIES: Final[Mapping[str, Builder]] = {
    "mamba": _mamba1,
    "falcon_mamba": _mamba1,
    "mamba2": _mamba2,
    "rwkv": _rwkv,
}
