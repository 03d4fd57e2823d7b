"""Encoder-decoder models: T5 and Whisper. Decoder layers keep their own cache and the encoder's keys and values.

Shapes follow ``models/t5`` and ``models/whisper`` of Hugging Face ``transformers``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from model_catalog.architecture import (
    ArchitectureSpec,
    CacheRule,
    Component,
    CrossAttention,
    FullAttention,
    LayerSpec,
    NoCache,
    Role,
    TensorTemplate,
)
from model_catalog.config_view import MAX_LAYERS
from model_catalog.families.blocks import Tensors, linear, norm
from model_catalog.families.common import Builder, Reading, assemble, text_layer
from model_catalog.families.decoder import position_table
from model_catalog.families.shape import MAX_HEADS

RootTensors = tuple[tuple[Component, TensorTemplate], ...]


def _root(component: Component, tensors: Iterable[TensorTemplate]) -> RootTensors:
    return tuple((component, tensor) for tensor in tensors)


def _encoder_layer(tensors: Tensors, heads: int) -> LayerSpec:
    return LayerSpec(component=Component.ENCODER, tensors=tensors, caches=(NoCache(),), attention_heads=heads)


def _t5_attention(prefix: str, hidden: int, heads: int, head_dim: int, buckets: int) -> Tensors:
    inner = heads * head_dim
    tensors = (
        *linear(f"{prefix}.q", inner, hidden, Role.QUERY),
        *linear(f"{prefix}.k", inner, hidden, Role.KEY_VALUE),
        *linear(f"{prefix}.v", inner, hidden, Role.KEY_VALUE),
        *linear(f"{prefix}.o", hidden, inner, Role.ATTENTION_OUTPUT),
    )
    if not buckets:
        return tensors
    table = TensorTemplate(
        name=f"{prefix}.relative_attention_bias.weight", shape=(buckets, heads), role=Role.POSITION
    )
    return (*tensors, table)


def _t5_mlp(prefix: str, hidden: int, inner: int, *, gated: bool) -> Tensors:
    ups = ("wi_0", "wi_1") if gated else ("wi",)
    tensors = [tensor for up in ups for tensor in linear(f"{prefix}.{up}", inner, hidden, Role.MLP)]
    return (*tensors, *linear(f"{prefix}.wo", hidden, inner, Role.MLP))


@dataclass(frozen=True, slots=True, kw_only=True)
class _T5:
    """Extents that both stacks share, and the tensors of their layers; only the first layer holds the table."""

    hidden: int
    heads: int
    head_dim: int
    inner: int
    buckets: int
    gated: bool

    def decoder_tensors(self, number: int) -> Tensors:
        return (
            *self._self_attention(number),
            *norm("layer.1.layer_norm", self.hidden),
            *_t5_attention("layer.1.EncDecAttention", self.hidden, self.heads, self.head_dim, 0),
            *self._feed_forward("layer.2"),
        )

    def encoder_tensors(self, number: int) -> Tensors:
        return (*self._self_attention(number), *self._feed_forward("layer.1"))

    def _self_attention(self, number: int) -> Tensors:
        buckets = 0 if number else self.buckets
        return (
            *norm("layer.0.layer_norm", self.hidden),
            *_t5_attention("layer.0.SelfAttention", self.hidden, self.heads, self.head_dim, buckets),
        )

    def _feed_forward(self, prefix: str) -> Tensors:
        return (
            *norm(f"{prefix}.layer_norm", self.hidden),
            *_t5_mlp(f"{prefix}.DenseReluDense", self.hidden, self.inner, gated=self.gated),
        )


def t5(reading: Reading) -> ArchitectureSpec:
    """T5, Flan-T5 and mT5: no biases; a relative position table in the first layer of each stack.

    ``feed_forward_proj`` beginning with ``gated`` has two input matrices (v1.1); the head is tied unless told
    otherwise.
    """
    text = reading.text
    size = _T5(
        hidden=text.integer("d_model"),
        heads=text.integer("num_heads", maximum=MAX_HEADS),
        head_dim=text.integer("d_kv", default=64),
        inner=text.integer("d_ff"),
        buckets=text.integer("relative_attention_num_buckets", default=32),
        gated=text.text("feed_forward_proj", default="relu").startswith("gated"),
    )
    hidden, heads = size.hidden, size.heads
    vocabulary = text.integer("vocab_size")
    encoders = text.integer("num_layers", maximum=MAX_LAYERS)
    decoders = text.integer("num_decoder_layers", default=encoders, maximum=MAX_LAYERS)
    caches = _own_and_cross(heads, size.head_dim, encoder_tokens=None)
    tied = reading.tied(default=True)
    table = TensorTemplate(name="shared.weight", shape=(vocabulary, hidden), role=Role.EMBEDDING)
    head = () if tied else linear("lm_head", vocabulary, hidden, Role.HEAD)
    decoder_layers = (
        text_layer(size.decoder_tensors(number), *caches, attention_heads=heads) for number in range(decoders)
    )
    encoder_layers = (_encoder_layer(size.encoder_tensors(number), heads) for number in range(encoders))
    return assemble(
        reading,
        hidden_size=hidden,
        vocabulary_size=vocabulary,
        intermediate_size=size.inner,
        attention_heads=heads,
        kv_heads=heads,
        tied_head=tied,
        layers=(*decoder_layers, *encoder_layers),
        root_tensors=(
            *_root(Component.TEXT, (table, *norm("decoder.final_layer_norm", hidden), *head)),
            *_root(Component.ENCODER, norm("encoder.final_layer_norm", hidden)),
        ),
    )


def _own_and_cross(heads: int, head_dim: int, *, encoder_tokens: int | None) -> tuple[CacheRule, CacheRule]:
    """What a decoder layer keeps: its own tokens, and the encoder's."""
    return (
        FullAttention(kv_heads=heads, key_dim=head_dim, value_dim=head_dim),
        CrossAttention(kv_heads=heads, key_dim=head_dim, value_dim=head_dim, encoder_tokens=encoder_tokens),
    )


def _whisper_attention(prefix: str, hidden: int) -> Tensors:
    return (
        *linear(f"{prefix}.q_proj", hidden, hidden, Role.QUERY, bias=True),
        *linear(f"{prefix}.k_proj", hidden, hidden, Role.KEY_VALUE),
        *linear(f"{prefix}.v_proj", hidden, hidden, Role.KEY_VALUE, bias=True),
        *linear(f"{prefix}.out_proj", hidden, hidden, Role.ATTENTION_OUTPUT, bias=True),
        *norm(f"{prefix}_layer_norm", hidden, bias=True),
    )


def _whisper_mlp(hidden: int, inner: int) -> Tensors:
    return (
        *linear("fc1", inner, hidden, Role.MLP, bias=True),
        *linear("fc2", hidden, inner, Role.MLP, bias=True),
        *norm("final_layer_norm", hidden, bias=True),
    )


def whisper(reading: Reading) -> ArchitectureSpec:
    """Whisper: every decoder layer keeps keys and values of the encoder's ``max_source_positions`` (1500) frames.

    Raises:
        ConfigError: an extent is missing or impossible, or heads do not divide ``d_model``.
    """
    text = reading.text
    hidden = text.integer("d_model")
    heads = text.integer("decoder_attention_heads", maximum=MAX_HEADS)
    encoder_heads = text.integer("encoder_attention_heads", default=heads, maximum=MAX_HEADS)
    if hidden % heads:
        raise text.fail("decoder_attention_heads", f"{heads} heads do not divide d_model {hidden}")
    inner = text.integer("decoder_ffn_dim", default=4 * hidden)
    encoder_inner = text.integer("encoder_ffn_dim", default=4 * hidden)
    vocabulary = text.integer("vocab_size")
    frames = text.integer("max_source_positions", default=1500)
    positions = text.integer("max_target_positions", default=448)
    mels = text.integer("num_mel_bins", default=80)
    decoders = text.integer("decoder_layers", maximum=MAX_LAYERS)
    encoders = text.integer("encoder_layers", maximum=MAX_LAYERS)
    text.mark("num_hidden_layers")
    decoder_layer = _whisper_decoder_layer(hidden, heads, inner, frames)
    encoder_layer = _encoder_layer(
        (*_whisper_attention("self_attn", hidden), *_whisper_mlp(hidden, encoder_inner)), encoder_heads
    )
    tied = reading.tied(default=True)
    return assemble(
        reading,
        hidden_size=hidden,
        vocabulary_size=vocabulary,
        intermediate_size=inner,
        attention_heads=heads,
        kv_heads=heads,
        tied_head=tied,
        layers=(*(decoder_layer,) * decoders, *(encoder_layer,) * encoders),
        root_tensors=(
            *_root(Component.TEXT, _whisper_decoder_root(hidden, vocabulary, positions, tied=tied)),
            *_root(Component.ENCODER, _whisper_encoder_root(hidden, mels, frames)),
        ),
        max_context_keys=("max_target_positions",),
    )


def _whisper_decoder_layer(hidden: int, heads: int, inner: int, frames: int) -> LayerSpec:
    tensors = (
        *_whisper_attention("self_attn", hidden),
        *_whisper_attention("encoder_attn", hidden),
        *_whisper_mlp(hidden, inner),
    )
    caches = _own_and_cross(heads, hidden // heads, encoder_tokens=frames)
    return text_layer(tensors, *caches, attention_heads=heads)


def _whisper_decoder_root(hidden: int, vocabulary: int, positions: int, *, tied: bool) -> Tensors:
    table = TensorTemplate(
        name="model.decoder.embed_tokens.weight", shape=(vocabulary, hidden), role=Role.EMBEDDING
    )
    return (
        table,
        *position_table("model.decoder.embed_positions", positions, hidden),
        *norm("model.decoder.layer_norm", hidden, bias=True),
        *(() if tied else linear("proj_out", vocabulary, hidden, Role.HEAD)),
    )


def _whisper_encoder_root(hidden: int, mels: int, frames: int) -> Tensors:
    convolutions = tuple(
        tensor
        for name, inputs in (("conv1", mels), ("conv2", hidden))
        for tensor in (
            TensorTemplate(name=f"model.encoder.{name}.weight", shape=(hidden, inputs, 3), role=Role.OTHER),
            TensorTemplate(name=f"model.encoder.{name}.bias", shape=(hidden,), role=Role.OTHER),
        )
    )
    return (
        *convolutions,
        *position_table("model.encoder.embed_positions", frames, hidden),
        *norm("model.encoder.layer_norm", hidden, bias=True),
    )


FAMILIES: Final[Mapping[str, Builder]] = {
    "t5": t5,
    "mt5": t5,
    "whisper": whisper,
}
