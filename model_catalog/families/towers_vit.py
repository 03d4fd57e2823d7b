"""Vision towers by kind of ViT (SigLIP, CLIP, Pixtral, InternViT, Llama 4, MoonViT, Gemma 4) and their projectors.

Layouts follow the modeling code of transformers 5.24, MoonViT's also the tensor names of Kimi's checkpoints.
"""

from typing import Final

from model_catalog.architecture import Component
from model_catalog.config_view import MAX_LAYERS, ConfigView
from model_catalog.families.tower_parts import Encoder, Templates, TowerParts

_MAX_FACTOR: Final = 1024


def _encoder(view: ConfigView, hidden: int) -> Encoder:
    """LayerNorm, biased projections, plain MLP: the ViT of SigLIP, CLIP and Llama 4."""
    return Encoder(
        depth=view.integer("num_hidden_layers", maximum=MAX_LAYERS),
        hidden=hidden,
        intermediate=view.integer("intermediate_size"),
        norm="layer",
        gated=False,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
    )


def _patches(view: ConfigView) -> int:
    side = view.integer("image_size") // view.integer("patch_size")
    return side * side


def _patch(view: ConfigView, hidden: int, parts: TowerParts, name: str, *, bias: bool) -> None:
    patch = view.integer("patch_size")
    parts.raw(f"{name}.weight", hidden, view.integer("num_channels", default=3), patch, patch)
    if bias:
        parts.raw(f"{name}.bias", hidden)


def siglip(view: ConfigView, *, prefix: str = "vision_tower.vision_model.", headless: bool = False) -> TowerParts:
    """SigLIP; with the attention-pooling head unless ``vision_use_head`` is false."""
    parts = TowerParts(Component.VISION, prefix)
    hidden, intermediate = view.integer("hidden_size"), view.integer("intermediate_size")
    _patch(view, hidden, parts, "embeddings.patch_embedding", bias=True)
    parts.raw("embeddings.position_embedding.weight", _patches(view), hidden)
    _encoder(view, hidden).add(parts, "encoder.layers.*.")
    parts.norm("post_layernorm", hidden, "layer")
    if not headless and view.boolean("vision_use_head", default=True):
        parts.raw("head.probe", 1, 1, hidden)
        parts.linear("head.attention.in_proj", 3 * hidden, hidden, bias=True)
        parts.linear("head.attention.out_proj", hidden, hidden, bias=True)
        parts.norm("head.layernorm", hidden, "layer")
        parts.linear("head.mlp.fc1", intermediate, hidden, bias=True)
        parts.linear("head.mlp.fc2", hidden, intermediate, bias=True)
    return parts


def clip(view: ConfigView) -> TowerParts:
    """CLIP's vision tower: class token, norms before and after the encoder."""
    parts = TowerParts(Component.VISION, "vision_tower.vision_model.")
    hidden = view.integer("hidden_size")
    parts.raw("embeddings.class_embedding", hidden)
    _patch(view, hidden, parts, "embeddings.patch_embedding", bias=False)
    parts.raw("embeddings.position_embedding.weight", _patches(view) + 1, hidden)
    parts.norm("pre_layrnorm", hidden, "layer")
    _encoder(view, hidden).add(parts, "encoder.layers.*.")
    parts.norm("post_layernorm", hidden, "layer")
    return parts


def pixtral(view: ConfigView) -> TowerParts:
    """Pixtral: rotary positions, RMSNorm, gated MLP, no biases."""
    parts = TowerParts(Component.VISION, "vision_tower.")
    hidden = view.integer("hidden_size")
    _patch(view, hidden, parts, "patch_conv", bias=False)
    parts.norm("ln_pre", hidden, "rms")
    Encoder(
        depth=view.integer("num_hidden_layers", maximum=MAX_LAYERS),
        hidden=hidden,
        intermediate=view.integer("intermediate_size"),
        norm="rms",
        gated=True,
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
    ).add(parts, "transformer.layers.*.")
    return parts


def gemma3(view: ConfigView, top: ConfigView, text_hidden: int) -> Templates:
    """SigLIP, a norm and one projection."""
    top.mark("mm_tokens_per_image")
    parts = siglip(view)
    hidden = view.integer("hidden_size")
    projector = TowerParts(Component.PROJECTOR, "multi_modal_projector.")
    projector.raw("mm_input_projection_weight", hidden, text_hidden)
    projector.norm("mm_soft_emb_norm", hidden, "rms")
    return (*parts.templates, *projector.templates)


def llava(view: ConfigView, top: ConfigView, text_hidden: int) -> Templates | None:
    """LLaVA: CLIP, SigLIP or Pixtral by the tower's own type, and a projector of two layers."""
    kinds = {"clip_vision_model": clip, "siglip_vision_model": siglip, "pixtral": pixtral}
    make = kinds.get(view.text("model_type", default=""))
    if make is None:
        return None
    bias = top.boolean("multimodal_projector_bias", default=True)
    hidden = view.integer("hidden_size")
    projector = TowerParts(Component.PROJECTOR, "multi_modal_projector.")
    projector.linear("linear_1", text_hidden, hidden, bias=bias)
    projector.linear("linear_2", text_hidden, text_hidden, bias=bias)
    return (*make(view).templates, *projector.templates)


def mistral3(view: ConfigView, top: ConfigView, text_hidden: int) -> Templates:
    """Pixtral, a norm, a merger of neighbouring patches, and a projector of two layers."""
    hidden = view.integer("hidden_size")
    merge = top.integer("spatial_merge_size", default=2, maximum=_MAX_FACTOR)
    bias = top.boolean("multimodal_projector_bias", default=False)
    projector = TowerParts(Component.PROJECTOR, "multi_modal_projector.")
    projector.norm("norm", hidden, "rms")
    projector.linear("patch_merger.merging_layer", hidden, hidden * merge * merge, bias=False)
    projector.linear("linear_1", text_hidden, hidden, bias=bias)
    projector.linear("linear_2", text_hidden, text_hidden, bias=bias)
    return (*pixtral(view).templates, *projector.templates)


def llama4(view: ConfigView, text_hidden: int) -> Templates:
    """Llama 4: patches as one projection, class token, pixel-shuffle MLP, one projection."""
    parts = TowerParts(Component.VISION, "vision_model.")
    hidden = view.integer("hidden_size")
    patch = view.integer("patch_size")
    inner, out = view.integer("projector_input_dim"), view.integer("projector_output_dim")
    ratio = view.number("pixel_shuffle_ratio", default=0.5)
    if not 0 < ratio <= 1:
        raise view.fail("pixel_shuffle_ratio", "must lie between 0 and 1")
    channels = view.integer("num_channels", default=3)
    parts.linear("patch_embedding.linear", hidden, channels * patch * patch, bias=False)
    parts.raw("class_embedding", hidden)
    parts.raw("positional_embedding_vlm", _patches(view) + 1, hidden)
    for name in ("layernorm_pre", "layernorm_post"):
        parts.norm(name, hidden, "layer")
    _encoder(view, hidden).add(parts, "model.layers.*.")
    parts.linear("vision_adapter.mlp.fc1", inner, int(hidden / ratio**2), bias=False)
    parts.linear("vision_adapter.mlp.fc2", out, out, bias=False)
    projector = TowerParts(Component.PROJECTOR, "multi_modal_projector.")
    projector.linear("linear_1", text_hidden, view.integer("vision_output_dim", default=out), bias=False)
    return (*parts.templates, *projector.templates)


def moonvit(view: ConfigView, text_hidden: int) -> Templates:
    """MoonViT of Kimi K2.5 (LayerNorm, biases) and of Kimi K3 (RMSNorm, none), and its patch merger."""
    parts = TowerParts(Component.VISION, "vision_tower.")
    hidden = view.integer("vt_hidden_size", "hidden_size")
    rms = view.text("norm_type", default="layernorm") == "rmsnorm"
    _patch(view, hidden, parts, "patch_embed.proj", bias=view.boolean("patch_embed_proj_bias", default=True))
    parts.raw(
        "patch_embed.pos_emb.weight",
        view.integer("init_pos_emb_height", default=64),
        view.integer("init_pos_emb_width", default=64),
        hidden,
    )
    attention_bias = view.boolean("attn_bias", default=True)
    Encoder(
        depth=view.integer("vt_num_hidden_layers", "num_hidden_layers", maximum=MAX_LAYERS),
        hidden=hidden,
        intermediate=view.integer("vt_intermediate_size", "intermediate_size"),
        norm="rms" if rms else "layer",
        gated=False,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        mlp_bias=view.boolean("linear_bias", default=True),
        attention_width=view.integer("qkv_hidden_size", default=hidden),
    ).add(parts, "encoder.blocks.*.")
    parts.norm("encoder.final_layernorm", hidden, "rms" if rms else "layer")
    merge = view.integers("merge_kernel_size", minimum=1, maximum=_MAX_FACTOR) or (2, 2)
    merged = view.integer("mm_hidden_size", default=hidden)
    for factor in merge[:2]:
        merged *= factor
    projector = TowerParts(Component.PROJECTOR, "mm_projector.")
    second = view.text("mm_projector_type", default="patchmerger") == "patchmergerv2"
    if second:
        projector.norm("post_norm", text_hidden, "rms")
    else:
        projector.norm("pre_norm", view.integer("mm_hidden_size", default=hidden), "layer")
    projector.linear("proj.0", merged, merged, bias=not second)
    projector.linear("proj.2", text_hidden, merged, bias=not second)
    return (*parts.templates, *projector.templates)


def internvit(view: ConfigView, top: ConfigView, text_hidden: int) -> Templates | None:
    """InternViT with layer scale, and InternVL's projector after pixel shuffling."""
    if view.text("norm_type", default="layer_norm") != "layer_norm" or view.boolean(
        "qk_normalization", default=False
    ):
        return None
    parts = TowerParts(Component.VISION, "vision_model.")
    hidden = view.integer("hidden_size")
    parts.raw("embeddings.class_embedding", 1, 1, hidden)
    _patch(view, hidden, parts, "embeddings.patch_embedding", bias=True)
    parts.raw("embeddings.position_embedding", 1, _patches(view) + 1, hidden)
    encoder = _encoder(view, hidden)
    encoder.add(parts, "encoder.layers.*.")
    for name in ("ls1", "ls2"):
        parts.raw(f"encoder.layers.*.{name}", hidden, count=encoder.depth)
    ratio = top.number("downsample_ratio", default=0.5)
    if not 0 < ratio <= 1:
        raise top.fail("downsample_ratio", "must lie between 0 and 1")
    merged = hidden * int(1 / ratio) ** 2
    projector = TowerParts(Component.PROJECTOR, "mlp1.")
    projector.norm("0", merged, "layer")
    projector.linear("1", text_hidden, merged, bias=True)
    projector.linear("3", text_hidden, text_hidden, bias=True)
    return (*parts.templates, *projector.templates)


def minimax_m3(view: ConfigView, top: ConfigView, text_hidden: int) -> Templates:
    """MiniMax M3: a CLIP-like ViT with rotary positions; two projections before and two after merging patches."""
    parts = TowerParts(Component.VISION, "vision_tower.vision_model.")
    hidden, patch = view.integer("hidden_size"), view.integer("patch_size")
    compression = view.section("img_token_compression_config")
    merge, frames = 2, 2
    if compression is not None:
        merge = compression.integer("spatial_merge_size", default=2, maximum=_MAX_FACTOR)
        frames = compression.integer("temporal_patch_size", default=2, maximum=_MAX_FACTOR)
    channels = view.integer("num_channels", default=3)
    parts.raw("embeddings.patch_embedding.weight", hidden, channels, frames, patch, patch)
    parts.norm("pre_layrnorm", hidden, "layer")
    _encoder(view, hidden).add(parts, "encoder.layers.*.")
    projector = TowerParts(Component.PROJECTOR, "multi_modal_projector.")
    inner = top.integer("projector_hidden_size", default=text_hidden)
    for prefix, inputs in (("", hidden), ("merge_", text_hidden * merge * merge)):
        projector.linear(f"{prefix}linear_1", inner, inputs, bias=True)
        projector.linear(f"{prefix}linear_2", text_hidden, inner, bias=True)
    return (*parts.templates, *projector.templates)


def minicpmv(view: ConfigView, top: ConfigView, text_hidden: int) -> Templates | None:
    """MiniCPM-V 2.6 and later: SigLIP without head, and a resampler of learned queries."""
    if view.text("model_type", default="") != "siglip_vision_model" or top.boolean(
        "drop_vision_last_layer", default=True
    ):
        return None
    projector = TowerParts(Component.PROJECTOR, "resampler.")
    projector.raw("query", top.integer("query_num", default=64), text_hidden)
    projector.linear("kv_proj", text_hidden, view.integer("hidden_size"), bias=False)
    projector.linear("attn.in_proj", 3 * text_hidden, text_hidden, bias=True)
    projector.linear("attn.out_proj", text_hidden, text_hidden, bias=True)
    for name in ("ln_q", "ln_kv", "ln_post"):
        projector.norm(name, text_hidden, "layer")
    projector.raw("proj", text_hidden, text_hidden)
    return (*siglip(view, prefix="vpm.", headless=True).templates, *projector.templates)
