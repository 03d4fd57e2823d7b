"""Checkpoint names of published repos land in the part of the model that their code builds from them."""

import pytest

from model_catalog.architecture import Component, Role
from model_catalog.safetensors_header import StoredTensor
from model_catalog.tensor_names import classify, group_tensors

TEXT, MTP, ENCODER = Component.TEXT, Component.MTP, Component.ENCODER

# (name, component, layer, role), num_layers 61; names as in the index files of the repos named on the right.
NAMES = [
    ("model.embed_tokens.weight", TEXT, None, Role.EMBEDDING),  # Llama
    ("model.layers.7.self_attn.q_proj.weight", TEXT, 7, Role.QUERY),
    ("model.layers.7.self_attn.k_proj.bias", TEXT, 7, Role.KEY_VALUE),
    ("model.layers.7.self_attn.o_proj.weight", TEXT, 7, Role.ATTENTION_OUTPUT),
    ("model.layers.7.self_attn.q_norm.weight", TEXT, 7, Role.NORM),
    ("model.layers.7.mlp.gate_proj.weight", TEXT, 7, Role.MLP),
    ("model.layers.7.self_attn.rotary_emb.inv_freq", TEXT, 7, Role.BUFFER),  # Llama 2 conversions
    ("lm_head.weight", TEXT, None, Role.HEAD),
    ("model.layers.7.self_attn.qkv_proj.weight", TEXT, 7, Role.QKV),  # Phi-3
    ("transformer.wte.weight", TEXT, None, Role.EMBEDDING),  # GPT-2, Qwen
    ("transformer.wpe.weight", TEXT, None, Role.POSITION),
    ("transformer.h.11.attn.c_attn.bias", TEXT, 11, Role.QKV),
    ("transformer.h.11.attn.bias", TEXT, 11, Role.BUFFER),
    ("transformer.h.11.attn.c_proj.weight", TEXT, 11, Role.ATTENTION_OUTPUT),
    ("transformer.h.11.mlp.c_proj.weight", TEXT, 11, Role.MLP),
    ("transformer.h.11.mlp.w1.weight", TEXT, 11, Role.MLP),
    ("gpt_neox.embed_in.weight", TEXT, None, Role.EMBEDDING),  # RedPajama-INCITE
    ("gpt_neox.layers.3.attention.masked_bias", TEXT, 3, Role.BUFFER),
    ("gpt_neox.layers.3.attention.bias", TEXT, 3, Role.BUFFER),
    ("gpt_neox.layers.3.attention.query_key_value.weight", TEXT, 3, Role.QKV),
    ("gpt_neox.layers.3.attention.dense.bias", TEXT, 3, Role.ATTENTION_OUTPUT),
    ("embed_out.weight", TEXT, None, Role.HEAD),
    ("h.4.self_attention.query_key_value.weight", TEXT, 4, Role.QKV),  # BLOOM
    ("h.4.mlp.dense_4h_to_h.bias", TEXT, 4, Role.MLP),
    ("word_embeddings_layernorm.weight", TEXT, None, Role.NORM),
    ("transformer.encoder.layers.27.mlp.dense_h_to_4h.weight", TEXT, 27, Role.MLP),  # ChatGLM3: a decoder
    ("transformer.output_layer.weight", TEXT, None, Role.HEAD),
    ("transformer.rotary_pos_emb.inv_freq", TEXT, None, Role.BUFFER),
    ("model.layers.2.attention.wqkv.weight", TEXT, 2, Role.QKV),  # InternLM2
    ("model.layers.2.feed_forward.w3.weight", TEXT, 2, Role.MLP),
    ("output.weight", TEXT, None, Role.HEAD),
    ("model.transformer.blocks.2.ff_out.weight.absmax", TEXT, 2, Role.MLP),  # Molmo in bitsandbytes NF4
    ("model.transformer.ff_out.weight", TEXT, None, Role.HEAD),
    ("transformer.blocks.0.norm_attn_norm.attn.Wqkv.weight", TEXT, 0, Role.QKV),  # DBRX
    ("transformer.blocks.0.norm_attn_norm.norm_1.weight", TEXT, 0, Role.NORM),
    ("transformer.blocks.0.ffn.experts.mlp.w1", TEXT, 0, Role.EXPERT),
    ("transformer.blocks.0.ffn.router.layer.weight", TEXT, 0, Role.ROUTER),
    ("model.layers.1.block_sparse_moe.experts.7.w2.weight", TEXT, 1, Role.EXPERT),  # Mixtral
    ("model.layers.1.block_sparse_moe.gate.weight", TEXT, 1, Role.ROUTER),
    ("model.layers.1.mlp.shared_expert.up_proj.weight", TEXT, 1, Role.SHARED_EXPERT),  # Qwen2-MoE
    ("model.layers.1.mlp.shared_expert_gate.weight", TEXT, 1, Role.ROUTER),
    ("model.layers.1.feed_forward.experts.gate_up_proj", TEXT, 1, Role.EXPERT),  # Llama 4
    ("model.layers.5.self_attn.kv_a_proj_with_mqa.weight_scale_inv", TEXT, 5, Role.LATENT),  # DeepSeek-V3
    ("model.layers.5.self_attn.kv_a_layernorm.weight", TEXT, 5, Role.NORM),
    ("model.layers.5.self_attn.q_b_proj.weight", TEXT, 5, Role.QUERY),
    ("model.layers.5.mlp.gate.e_score_correction_bias", TEXT, 5, Role.ROUTER),
    ("model.layers.5.mlp.shared_experts.down_proj.weight_scale_inv", TEXT, 5, Role.SHARED_EXPERT),
    ("model.layers.60.mlp.experts.255.up_proj.weight", TEXT, 60, Role.EXPERT),
    ("model.layers.61.mlp.experts.255.up_proj.weight", MTP, 61, Role.EXPERT),
    ("model.layers.61.embed_tokens.weight", MTP, 61, Role.EMBEDDING),
    ("model.layers.61.shared_head.head.weight", MTP, 61, Role.HEAD),
    ("model.layers.61.shared_head.norm.weight", MTP, 61, Role.NORM),
    ("model.layers.61.eh_proj.weight", MTP, 61, Role.OTHER),
    ("model.layers.5.self_attn.indexer.wq_b.weight", TEXT, 5, Role.LATENT),  # DeepSeek-V3.2
    ("mtp.layers.0.mlp.experts.1.up_proj.weight", MTP, 61, Role.EXPERT),  # Qwen3-Next
    ("mtp.fc.weight", MTP, None, Role.OTHER),
    ("mtp.pre_fc_norm_embedding.weight", MTP, None, Role.NORM),
    ("model.mtp_layers.0.self_attn.q_proj.weight", MTP, 61, Role.QUERY),  # MiMo
    ("model.layers.5.mlp.experts.gate_up_proj_blocks", TEXT, 5, Role.EXPERT),  # gpt-oss
    ("model.layers.5.mlp.experts.down_proj_scales", TEXT, 5, Role.EXPERT),
    ("model.layers.5.mlp.router.bias", TEXT, 5, Role.ROUTER),
    ("model.layers.5.self_attn.sinks", TEXT, 5, Role.QUERY),
    ("model.layers.5.self_attn.q_proj.qzeros", TEXT, 5, Role.QUERY),  # GPTQ
    ("model.layers.5.mlp.down_proj.g_idx", TEXT, 5, Role.MLP),
    ("model.layers.5.mlp.down_proj.SCB", TEXT, 5, Role.MLP),  # bitsandbytes 8 bit
    ("model.layers.5.mlp.down_proj.weight_packed", TEXT, 5, Role.MLP),  # compressed-tensors
    ("model.layers.5.self_attn.k_proj.k_scale", TEXT, 5, Role.KEY_VALUE),  # ModelOpt
    ("model.language_model.layers.0.linear_attn.in_proj_qkv.weight", TEXT, 0, Role.STATE_MIXER),  # Qwen3.5
    ("model.language_model.layers.0.linear_attn.conv1d.weight", TEXT, 0, Role.STATE_MIXER),
    ("model.language_model.layers.0.linear_attn.norm.weight", TEXT, 0, Role.NORM),
    ("model.language_model.layers.0.layer_scalar", TEXT, 0, Role.NORM),  # Gemma 4
    ("model.language_model.embed_tokens_per_layer.weight", TEXT, None, Role.EMBEDDING),  # Gemma 3n
    ("backbone.embeddings.weight", TEXT, None, Role.EMBEDDING),  # Nemotron-H
    ("backbone.layers.7.mixer.in_proj.weight", TEXT, 7, Role.STATE_MIXER),
    ("backbone.layers.7.mixer.q_proj.weight", TEXT, 7, Role.QUERY),
    ("backbone.layers.7.mixer.experts.12.up_proj.weight_scale", TEXT, 7, Role.EXPERT),
    ("backbone.layers.7.mixer.gate.e_score_correction_bias", TEXT, 7, Role.ROUTER),
    ("backbone.norm_f.weight", TEXT, None, Role.NORM),
    ("llm.model.layers.3.mlp.up_proj.weight", TEXT, 3, Role.MLP),  # MiniCPM-V
    ("language_model.model.layers.3.mlp.up_proj.weight", TEXT, 3, Role.MLP),
    ("vpm.blocks.3.attn.qkv.weight", Component.VISION, None, Role.TOWER),
    ("vision_tower.vision_model.encoder.layers.3.mlp.fc1.weight", Component.VISION, None, Role.TOWER),
    ("vision_tower.vision_model.embeddings.position_ids", Component.VISION, None, Role.BUFFER),
    ("model.visual.merger.mlp.0.weight", Component.VISION, None, Role.TOWER),
    ("model.image_newline", Component.VISION, None, Role.TOWER),
    ("multi_modal_projector.mm_soft_emb_norm.weight", Component.PROJECTOR, None, Role.TOWER),
    ("mlp1.0.weight", Component.PROJECTOR, None, Role.TOWER),  # InternVL
    ("resampler.attn.in_proj_weight", Component.PROJECTOR, None, Role.TOWER),
    ("audio_tower.layers.0.fc1.weight", Component.AUDIO, None, Role.TOWER),
    ("shared.weight", TEXT, None, Role.EMBEDDING),  # T5
    ("encoder.block.0.layer.0.SelfAttention.q.weight", ENCODER, 61, Role.QUERY),
    ("decoder.block.4.layer.1.EncDecAttention.v.weight", TEXT, 4, Role.KEY_VALUE),
    ("decoder.block.4.layer.2.DenseReluDense.wi_0.weight", TEXT, 4, Role.MLP),
    ("model.encoder.layers.2.self_attn.out_proj.weight", ENCODER, 63, Role.ATTENTION_OUTPUT),  # Whisper
    ("model.decoder.embed_positions.weight", TEXT, None, Role.POSITION),
    ("midlayer.self_attn.q_proj.weight", TEXT, None, Role.QUERY),  # EAGLE-3
    ("rwkv.blocks.0.attention.key.weight", TEXT, 0, Role.STATE_MIXER),
    ("something.nobody.knows", TEXT, None, Role.OTHER),
    ("", TEXT, None, Role.OTHER),
]


@pytest.mark.parametrize(("name", "component", "layer", "role"), NAMES, ids=[row[0] for row in NAMES])
def test_classify(name: str, component: Component, layer: int | None, role: Role) -> None:
    assert classify(name, 61) == (component, layer, role)


def test_without_a_layer_count_no_layer_is_mtp_by_its_number() -> None:
    assert classify("model.layers.61.mlp.up_proj.weight", None) == (TEXT, 61, Role.MLP)
    assert classify("mtp.layers.0.mlp.up_proj.weight", None) == (MTP, 0, Role.MLP)


def stored(name: str, shape: tuple[int, ...], size_bytes: int, dtype: str = "BF16") -> StoredTensor:
    return StoredTensor(name=name, dtype=dtype, shape=shape, start=0, end=size_bytes)


def test_groups_sum_and_come_in_one_order() -> None:
    tensors = [
        stored("model.layers.1.mlp.up_proj.weight", (4, 2), 16),
        stored("model.layers.0.self_attn.v_proj.weight", (2, 2), 8),
        stored("model.layers.0.self_attn.k_proj.weight", (2, 2), 8),
        stored("model.layers.0.self_attn.k_proj.weight_scale", (2,), 8, "F32"),
        stored("vision_tower.x.weight", (3,), 6),
        stored("model.embed_tokens.weight", (5, 2), 20),
    ]
    groups = group_tensors(tensors, num_layers=2)
    assert groups == group_tensors(reversed(tensors), num_layers=2)
    assert [(g.component, g.layer, g.role, g.dtype, g.parameters, g.stored_bytes, g.tensors) for g in groups] == [
        (TEXT, None, Role.EMBEDDING, "BF16", 10, 20, 1),
        (TEXT, 0, Role.KEY_VALUE, "BF16", 8, 16, 2),
        (TEXT, 0, Role.KEY_VALUE, "F32", 2, 8, 1),
        (TEXT, 1, Role.MLP, "BF16", 8, 16, 1),
        (Component.VISION, None, Role.TOWER, "BF16", 3, 6, 1),
    ]


def test_a_name_in_two_files_counts_once() -> None:
    small, large = stored("lm_head.weight", (1,), 2), stored("lm_head.weight", (2,), 4)
    (group,) = group_tensors([small, large, small], num_layers=1)
    assert (group.stored_bytes, group.tensors) == (4, 1)
