"""Vision towers of Qwen2-VL to Qwen3.5, of GLM-4.1V and EXAONE 4.5, and Qwen2-Audio's encoder.

Layouts follow the modeling code of transformers 5.24.
"""

from model_catalog.architecture import Component
from model_catalog.config_view import MAX_LAYERS, ConfigView
from model_catalog.families.tower_parts import Encoder, Templates, TowerParts


def _patch(view: ConfigView, hidden: int, parts: TowerParts, *, bias: bool) -> None:
    """The patch embedding: a convolution over channels, frames and a square patch."""
    channels = view.integer("in_channels", "in_chans", default=3)
    patch = view.integer("patch_size", "spatial_patch_size", default=14)
    frames = view.integer("temporal_patch_size", default=2)
    parts.raw("patch_embed.proj.weight", hidden, channels, frames, patch, patch)
    if bias:
        parts.raw("patch_embed.proj.bias", hidden)


def _merged(view: ConfigView, hidden: int) -> int:
    """Width after merging neighbouring patches."""
    merge = view.integer("spatial_merge_size", default=2, maximum=64)
    return hidden * merge * merge


def qwen2_vl(view: ConfigView, text_hidden: int) -> Templates:
    """LayerNorm, plain MLP of ``mlp_ratio``; the merger has one LayerNorm and two projections."""
    parts = TowerParts(Component.VISION, "visual.")
    hidden = view.integer("embed_dim", default=1280)
    ratio = view.integer("mlp_ratio", default=4, maximum=1024)
    _patch(view, hidden, parts, bias=False)
    Encoder(
        depth=view.integer("depth", default=32, maximum=MAX_LAYERS),
        hidden=hidden,
        intermediate=hidden * ratio,
        norm="layer",
        gated=False,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
    ).add(parts, "blocks.*.")
    merged = _merged(view, hidden)
    parts.norm("merger.ln_q", hidden, "layer")
    parts.linear("merger.mlp.0", merged, merged, bias=True)
    parts.linear("merger.mlp.2", view.integer("hidden_size", default=text_hidden), merged, bias=True)
    return tuple(parts.templates)


def qwen2_5_vl(view: ConfigView, text_hidden: int) -> Templates:
    """RMSNorm and a gated MLP with biases; with ``num_key_value_heads`` EXAONE 4.5's grouped attention."""
    parts = TowerParts(Component.VISION, "visual.")
    hidden = view.integer("hidden_size", default=1280)
    heads = view.integer("num_heads", default=16)
    kv_heads = view.integer("num_key_value_heads", default=heads)
    _patch(view, hidden, parts, bias=False)
    Encoder(
        depth=view.integer("depth", default=32, maximum=MAX_LAYERS),
        hidden=hidden,
        intermediate=view.integer("intermediate_size", default=3420),
        norm="rms",
        gated=True,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        kv_width=max(1, hidden // heads) * kv_heads,
    ).add(parts, "blocks.*.")
    merged = _merged(view, hidden)
    parts.norm("merger.ln_q", hidden, "rms")
    parts.linear("merger.mlp.0", merged, merged, bias=True)
    parts.linear("merger.mlp.2", view.integer("out_hidden_size", default=text_hidden), merged, bias=True)
    return tuple(parts.templates)


def qwen3_vl(view: ConfigView, text_hidden: int) -> Templates:
    """Learned positions, LayerNorm, plain MLP; one more merger for each ``deepstack_visual_indexes`` entry."""
    parts = TowerParts(Component.VISION, "visual.")
    hidden = view.integer("hidden_size")
    out = view.integer("out_hidden_size", default=text_hidden)
    _patch(view, hidden, parts, bias=True)
    parts.raw("pos_embed.weight", view.integer("num_position_embeddings", default=2304), hidden)
    Encoder(
        depth=view.integer("depth", maximum=MAX_LAYERS),
        hidden=hidden,
        intermediate=view.integer("intermediate_size"),
        norm="layer",
        gated=False,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
    ).add(parts, "blocks.*.")
    merged = _merged(view, hidden)
    deep = len(view.integers("deepstack_visual_indexes") or ())
    for name, size, count in (("merger", hidden, 1), ("deepstack_merger_list.*", merged, deep)):
        if count:
            parts.norm(f"{name}.norm", size, "layer", count=count)
            parts.linear(f"{name}.linear_fc1", merged, merged, bias=True, count=count)
            parts.linear(f"{name}.linear_fc2", out, merged, bias=True, count=count)
    return tuple(parts.templates)


def glm4v(view: ConfigView, text_hidden: int) -> Templates:
    """GLM-4.1V: RMSNorm, gated MLP of the output width, a strided convolution and a gated merger."""
    parts = TowerParts(Component.VISION, "visual.")
    hidden = view.integer("hidden_size", default=1536)
    out = view.integer("out_hidden_size", default=text_hidden)
    side = view.integer("image_size", default=336) // view.integer("patch_size", default=14)
    merge = view.integer("spatial_merge_size", default=2, maximum=64)
    context = view.integer("intermediate_size", default=13696)
    _patch(view, hidden, parts, bias=True)
    parts.norm("post_conv_layernorm", hidden, "rms")
    parts.raw("embeddings.position_embedding.weight", side * side, hidden)
    Encoder(
        depth=view.integer("depth", default=24, maximum=MAX_LAYERS),
        hidden=hidden,
        intermediate=out,
        norm="rms",
        gated=True,
        qkv_bias=view.boolean("attention_bias", default=False),
        output_bias=False,
        mlp_bias=False,
    ).add(parts, "blocks.*.")
    parts.norm("post_layernorm", hidden, "rms")
    parts.raw("downsample.weight", out, hidden, merge, merge)
    parts.raw("downsample.bias", out)
    parts.linear("merger.proj", out, out, bias=False)
    parts.norm("merger.post_projection_norm", out, "layer")
    for name in ("gate_proj", "up_proj"):
        parts.linear(f"merger.{name}", context, out, bias=False)
    parts.linear("merger.down_proj", out, context, bias=False)
    return tuple(parts.templates)


def qwen2_audio(view: ConfigView, text_hidden: int) -> Templates:
    """Whisper's encoder (two convolutions, learned positions, no key bias) and one projection."""
    parts = TowerParts(Component.AUDIO, "audio_tower.")
    hidden = view.integer("d_model", default=1280)
    mel = view.integer("num_mel_bins", default=128)
    for name, inputs in (("conv1", mel), ("conv2", hidden)):
        parts.raw(f"{name}.weight", hidden, inputs, 3)
        parts.raw(f"{name}.bias", hidden)
    parts.raw("embed_positions.weight", view.integer("max_source_positions", default=1500), hidden)
    Encoder(
        depth=view.integer("encoder_layers", default=32, maximum=MAX_LAYERS),
        hidden=hidden,
        intermediate=view.integer("encoder_ffn_dim", default=5120),
        norm="layer",
        gated=False,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        key_bias=False,
    ).add(parts, "layers.*.")
    parts.norm("layer_norm", hidden, "layer")
    projector = TowerParts(Component.PROJECTOR, "multi_modal_projector.")
    projector.linear("linear", text_hidden, hidden, bias=True)
    return (*parts.templates, *projector.templates)
