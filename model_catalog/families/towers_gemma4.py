"""Gemma 4's vision tower and audio encoder (a conformer), with the projections into the decoder.

Layouts follow the modeling code of transformers 5.24, without the scalar bounds of clipped projections.
"""

from model_catalog.architecture import Component
from model_catalog.config_view import MAX_LAYERS, ConfigView
from model_catalog.families.tower_parts import Templates, TowerParts


def gemma4(vision: ConfigView, audio: ConfigView | None, text_hidden: int) -> Templates:
    """All towers of a Gemma 4 model; the larger ones have no audio encoder."""
    templates = _vision(vision, text_hidden)
    return templates if audio is None else (*templates, *_audio(audio, text_hidden))


def _audio(view: ConfigView, text_hidden: int) -> Templates:
    """Two strided convolutions, then conformer layers (feed-forward, attention, convolution, feed-forward)."""
    parts = TowerParts(Component.AUDIO, "model.audio_tower.")
    hidden, depth = view.integer("hidden_size"), view.integer("num_hidden_layers", maximum=MAX_LAYERS)
    heads = view.integer("num_attention_heads")
    channels = view.integers("subsampling_conv_channels", minimum=1) or (128, 32)
    if len(channels) != 2:
        raise view.fail("subsampling_conv_channels", "must hold two numbers")
    for number, (inputs, outputs) in enumerate(((1, channels[0]), channels)):
        parts.raw(f"subsample_conv_projection.layer{number}.conv.weight", outputs, inputs, 3, 3)
        parts.raw(f"subsample_conv_projection.layer{number}.norm.weight", outputs)
    folded = max(1, channels[0] // 4) * channels[1]
    parts.linear("subsample_conv_projection.input_proj_linear", hidden, folded, bias=False)
    matrices = {
        "self_attn.q_proj.linear": (hidden, hidden),
        "self_attn.k_proj.linear": (hidden, hidden),
        "self_attn.v_proj.linear": (hidden, hidden),
        "self_attn.post.linear": (hidden, hidden),
        "self_attn.relative_k_proj": (hidden, hidden),
        "lconv1d.linear_start.linear": (2 * hidden, hidden),
        "lconv1d.linear_end.linear": (hidden, hidden),
    }
    norms = ["norm_pre_attn", "norm_post_attn", "norm_out", "lconv1d.pre_layer_norm", "lconv1d.conv_norm"]
    for block in ("feed_forward1", "feed_forward2"):
        matrices[f"{block}.ffw_layer_1.linear"] = (4 * hidden, hidden)
        matrices[f"{block}.ffw_layer_2.linear"] = (hidden, 4 * hidden)
        norms += [f"{block}.pre_layer_norm", f"{block}.post_layer_norm"]
    for name, (outputs, inputs) in matrices.items():
        parts.linear(f"layers.*.{name}", outputs, inputs, bias=False, count=depth)
    for name in norms:
        parts.norm(f"layers.*.{name}", hidden, "rms", count=depth)
    parts.raw("layers.*.self_attn.per_dim_scale", max(1, hidden // heads), count=depth)
    kernel = view.integer("conv_kernel_size", default=5, maximum=MAX_LAYERS)
    parts.raw("layers.*.lconv1d.depthwise_conv1d.weight", hidden, 1, kernel, count=depth)
    out = view.integer("output_proj_dims", default=1536)
    parts.linear("output_proj", out, hidden, bias=True)
    projector = TowerParts(Component.PROJECTOR, "model.embed_audio.")
    projector.linear("embedding_projection", text_hidden, out, bias=False)
    return (*parts.templates, *projector.templates)


def _vision(view: ConfigView, text_hidden: int) -> Templates:
    """Four norms a layer, per-head norms, two-axis position tables."""
    parts = TowerParts(Component.VISION, "model.vision_tower.")
    hidden, depth = view.integer("hidden_size"), view.integer("num_hidden_layers", maximum=MAX_LAYERS)
    heads, head_dim = view.integer("num_attention_heads"), view.integer("head_dim")
    kv_heads, intermediate = view.integer("num_key_value_heads"), view.integer("intermediate_size")
    patch = view.integer("patch_size")
    parts.linear("patch_embedder.input_proj", hidden, 3 * patch * patch, bias=False)
    parts.raw("patch_embedder.position_embedding_table", 2, view.integer("position_embedding_size"), hidden)
    layer = "encoder.layers.*."
    for name in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
        parts.norm(f"{layer}{name}_layernorm", hidden, "rms", count=depth)
    for name in ("q_norm", "k_norm"):
        parts.norm(f"{layer}self_attn.{name}", head_dim, "rms", count=depth)
    matrices = {
        "self_attn.q_proj": (heads * head_dim, hidden),
        "self_attn.k_proj": (kv_heads * head_dim, hidden),
        "self_attn.v_proj": (kv_heads * head_dim, hidden),
        "self_attn.o_proj": (hidden, heads * head_dim),
        "mlp.gate_proj": (intermediate, hidden),
        "mlp.up_proj": (intermediate, hidden),
        "mlp.down_proj": (hidden, intermediate),
    }
    for name, (outputs, inputs) in matrices.items():
        parts.linear(f"{layer}{name}.linear", outputs, inputs, bias=False, count=depth)
    if view.boolean("standardize", default=False):
        parts.raw("std_bias", hidden)
        parts.raw("std_scale", hidden)
    projector = TowerParts(Component.PROJECTOR, "model.embed_vision.")
    projector.linear("embedding_projection", text_hidden, hidden, bias=False)
    return (*parts.templates, *projector.templates)
