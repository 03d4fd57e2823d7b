"""Kimi Linear and Kimi K3's decoder: Kimi delta attention with multi-head latent attention in every fourth layer.

Kimi Linear 48B follows the modeling code of transformers 5.24. Kimi K3 adds, by the tensor names and shapes of its
checkpoint: a full-rank gate, an output gate on latent attention, routed experts in a latent space, and residual
mixing (a norm and a one-row projection before attention and MLP).
"""

from collections.abc import Mapping
from typing import Final

from model_catalog.architecture import ArchitectureSpec, Component, Role, TensorTemplate
from model_catalog.config_view import ConfigView
from model_catalog.families.blocks import Tensors, gated_mlp, linear, norm, root
from model_catalog.families.common import Builder, Reading, assemble, text_layer
from model_catalog.families.latent import expert_counts, latent_cache, latent_projections, mixture_layers
from model_catalog.families.shape import MAX_HEADS
from model_catalog.families.state_mixers import KimiDelta

_MAX_KERNEL: Final = 4096
#: Numerics, or aliases of keys that are read.
_MARKED: Final = (
    "activation_situ_beta",
    "activation_situ_linear_beta",
    "head_dim",
    "mla_use_nope",
    "moe_renormalize",
    "moe_router_activation_func",
    "num_expert_group",
)


def _full_attention(view: ConfigView, count: int) -> tuple[bool, ...]:
    """Layers with latent attention, from the one-based ``linear_attn_config.full_attn_layers``."""
    section = view.section("linear_attn_config")
    if section is None:
        raise view.fail("linear_attn_config", "missing")
    numbers = section.integers("full_attn_layers", minimum=1, maximum=count)
    if numbers is None:
        raise section.fail("full_attn_layers", "missing")
    chosen = set(numbers)
    return tuple(number + 1 in chosen for number in range(count))


def _delta_attention(view: ConfigView, hidden: int) -> KimiDelta:
    section = view.section("linear_attn_config")
    if section is None:
        raise view.fail("linear_attn_config", "missing")
    return KimiDelta(
        hidden=hidden,
        heads=section.integer("num_heads", maximum=MAX_HEADS),
        head_dim=section.integer("head_dim"),
        kernel=section.integer("short_conv_kernel_size", default=4, maximum=_MAX_KERNEL),
        full_rank_gate=section.boolean("use_full_rank_gate", default=False),
    )


def _residual(name: str, hidden: int) -> Tensors:
    """Attention over the residuals of earlier blocks: a norm and one query row."""
    query = TensorTemplate(name=f"{name}_proj.weight", shape=(1, hidden), role=Role.OTHER)
    return (*norm(f"{name}_norm", hidden), query)


def _mixture(view: ConfigView, hidden: int) -> Tensors:
    experts, width = view.integer("num_experts", "n_routed_experts"), view.integer("moe_intermediate_size")
    latent = view.optional_integer("routed_expert_hidden_size")
    inside = hidden if latent is None else latent
    prefix = "block_sparse_moe"
    around: Tensors = ()
    if latent is not None:
        normed = view.boolean("latent_moe_use_norm", default=False)
        around = (
            *linear(f"{prefix}.routed_expert_down_proj", latent, hidden, Role.LATENT),
            *(norm(f"{prefix}.routed_expert_norm", latent) if normed else ()),
            *linear(f"{prefix}.routed_expert_up_proj", hidden, latent, Role.LATENT),
        )
    shared = width * view.integer("num_shared_experts", "n_shared_experts", default=1, minimum=0)
    always_on: Tensors = ()
    if shared:
        always_on = gated_mlp(hidden, shared, role=Role.SHARED_EXPERT, prefix=f"{prefix}.shared_experts")
    bias = TensorTemplate(name=f"{prefix}.gate.e_score_correction_bias", shape=(experts,), role=Role.ROUTER)
    return (
        *linear(f"{prefix}.gate", experts, hidden, Role.ROUTER),
        bias,
        *linear(f"{prefix}.experts.*.w1", width, inside, Role.EXPERT, count=experts),
        *linear(f"{prefix}.experts.*.w3", width, inside, Role.EXPERT, count=experts),
        *linear(f"{prefix}.experts.*.w2", inside, width, Role.EXPERT, count=experts),
        *around,
        *always_on,
    )


def _kimi_linear(reading: Reading) -> ArchitectureSpec:
    view = reading.text
    view.mark(*_MARKED)
    hidden, count = view.integer("hidden_size"), reading.layer_count()
    heads = view.integer("num_attention_heads", maximum=MAX_HEADS)
    vocabulary, intermediate = view.integer("vocab_size"), view.integer("intermediate_size")
    residuals = view.has("attn_res_block_size")
    common = (*norm("input_layernorm", hidden), *norm("post_attention_layernorm", hidden))
    if residuals:
        common = (*common, *_residual("self_attention_res", hidden), *_residual("mlp_res", hidden))
    latent = latent_projections(view, hidden, heads)
    if view.boolean("mla_use_output_gate", default=False):
        width = heads * view.integer("v_head_dim")
        latent = (*latent, *linear("self_attn.g_proj", width, hidden, Role.QUERY))
    mixer = _delta_attention(view, hidden)
    mixtures = mixture_layers(view, count)
    experts, chosen, expert_width = expert_counts(view, used=any(mixtures))
    feed_forward = {False: gated_mlp(hidden, intermediate), True: _mixture(view, hidden) if any(mixtures) else ()}
    full, state = (latent, latent_cache(view), heads), (mixer.tensors(), mixer.cache(), 0)
    layers = []
    for attends, is_mixture in zip(_full_attention(view, count), mixtures, strict=True):
        tensors, cache, used = full if attends else state
        layers.append(text_layer((*common, *tensors, *feed_forward[is_mixture]), cache, attention_heads=used))
    tied = reading.tied(default=False)
    roots = root(hidden, vocabulary, tied_head=tied, final_norm=norm("model.norm", hidden))
    if residuals:
        output = _residual("model.output_attn_res", hidden)
        roots = (*roots, *((Component.TEXT, tensor) for tensor in output))
    return assemble(
        reading,
        hidden_size=hidden,
        vocabulary_size=vocabulary,
        intermediate_size=intermediate,
        attention_heads=heads,
        kv_heads=view.integer("num_key_value_heads", default=heads),
        tied_head=tied,
        layers=layers,
        root_tensors=roots,
        experts=experts,
        experts_per_token=chosen,
        expert_intermediate_size=expert_width,
    )


FAMILIES: Final[Mapping[str, Builder]] = {"kimi_linear": _kimi_linear}
