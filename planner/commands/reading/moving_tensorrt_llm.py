"""As ``moving``, for TensorRT-LLM: options of ``trtllm-serve`` and keys of its YAML file.

Source: NVIDIA/TensorRT-LLM at 00043967, ``llmapi/llm_args.py`` (``BaseLlmArgs``, ``TorchLlmArgs``,
``KvCacheConfig``, ``DecodingBaseConfig`` and what is made of it; all of them refuse a key they do not have).
"""

from collections.abc import Mapping
from typing import Final

from planner.commands.reading.records import Effect

_NONE: Final = frozenset({"0", "None", "null", "False"})
_ONE: Final = frozenset({"1", "None", "null", "-1"})


def _effects(effect: Effect, *names: str) -> dict[str, Effect]:
    return dict.fromkeys(names, effect)


#: Options and keys alike, by the name that both have.
TENSORRT_MOVING: Final[Mapping[str, Effect]] = {
    **_effects("more", "enable_lora", "lora_config", "peft_cache_config", "max_beam_width", "max_input_len"),
    **_effects("more", "torch_compile_config", "prefill_cuda_graph_backend", "enable_in_graph_sampling"),
    **_effects("more", "gather_generation_logits", "cache_transceiver_config", "kv_connector_config"),
    **_effects("less", "disable_mm_encoder", "kv_cache_compression_config", "dwdp_config"),
    **_effects("either", "config", "server_role", "disagg_cluster_uri", "metadata_server_config_file"),
    **_effects("either", "enable_attention_dp", "attention_dp_config", "pp_partition", "cp_config", "load_format"),
    **_effects("either", "context_parallel_size", "moe_tensor_parallel_size", "moe_cluster_parallel_size"),
    **_effects("either", "model_kwargs", "sparse_attention_config", "build_config", "cuda_graph_config"),
    **_effects("either", "mm_encoder_only", "encode_only", "multimodal_config", "encoder_cuda_graph_config"),
    **_effects("either", "encoder_max_batch_size", "encoder_max_num_tokens", "checkpoint_loader", "gms_config"),
    **_effects("either", "force_dynamic_quantization", "checkpoint_format", "env_overrides", "quant_config"),
    **_effects("slight", "moe_config", "attn_backend", "allreduce_strategy", "enable_min_latency", "sleep_config"),
    **_effects("slight", "nvfp4_gemm_config", "enable_lm_head_tp_in_adp", "enable_autotuner", "scheduler_config"),
    **_effects("slight", "enable_chunked_prefill", "disable_overlap_scheduler", "prefill_capture_num_tokens"),
}
TENSORRT_NEUTRAL: Final[Mapping[str, frozenset[str]]] = {
    "max_beam_width": _ONE,
    "context_parallel_size": _ONE,
    "moe_tensor_parallel_size": _ONE,
    "moe_cluster_parallel_size": _ONE,
    "load_format": frozenset({"auto", "AUTO"}),
    "checkpoint_format": frozenset({"HF", "None"}),
    "prefill_cuda_graph_backend": frozenset({"disabled"}),
}
#: Keys that hardly touch device memory.
TENSORRT_OTHER: Final = frozenset(
    {"tokenizer", "tokenizer_mode", "custom_tokenizer", "post_processor_hook", "skip_tokenizer_init", "backend"}
    | {"trust_remote_code", "tokenizer_revision", "gpus_per_node", "guided_decoding_backend"}
    | {"batched_logits_processor", "iter_stats_max_iterations", "request_stats_max_iterations"}
    | {"num_postprocess_workers", "postprocess_tokenizer_dir", "num_serve_frontends", "reasoning_parser"}
    | {"otlp_traces_endpoint", "return_perf_metrics", "perf_metrics_output_dir", "perf_metrics_max_requests"}
    | {"prometheus_metrics_config", "enable_energy_metrics", "orchestrator_type", "telemetry_config"}
    | {"generation_config", "garbage_collection_gen0_threshold", "enable_encoder_decoder_mixed_cuda_graph"}
    | {"enable_mla_skip_correction", "mla_skip_correction_threshold", "sampler_force_async_worker"}
    | {"enable_speculative_beam_history_d2h", "enable_early_first_token_response", "print_iter_log"}
    | {"enable_low_latency_host_dispatch", "enable_iter_perf_stats", "enable_iter_req_stats", "sampler_type"}
    | {"batch_wait_timeout_ms", "batch_wait_timeout_iters", "batch_wait_max_tokens_ratio", "stream_interval"}
    | {"use_fine_grained_sync", "enable_layerwise_nvtx_marker", "checkpoint_io_policy", "mx_config"}
    | {"ray_worker_extension_cls", "ray_placement_config", "ray_worker_nsight_options"}
    | {"reorder_policy_config", "enable_resource_governor", "use_cute_dsl_blockscaling_mm"}
    | {"use_cute_dsl_blockscaling_bmm", "use_cute_dsl_bf16_bmm", "use_cute_dsl_bf16_gemm"}
)
CACHE_MOVING: Final[Mapping[str, Effect]] = {
    **_effects("less", "max_attention_window", "use_uvm", "fp8_context_mla_kv_len_cap"),
    **_effects("either", "max_tokens", "max_gpu_total_bytes", "cross_kv_cache_fraction", "mamba_ssm_cache_dtype"),
    **_effects("either", "mamba_state_config", "mamba_state_cache_interval", "pool_ratio", "avg_seq_len"),
    **_effects("slight", "use_kv_cache_manager_v2", "enable_swa_scratch_reuse", "enable_kv_pool_rebalance"),
}
CACHE_NEUTRAL: Final[Mapping[str, frozenset[str]]] = {
    "max_gpu_total_bytes": _NONE,
    "max_tokens": frozenset({"None"}),
    "max_attention_window": frozenset({"None"}),
    "use_uvm": _NONE,
    "mamba_ssm_cache_dtype": frozenset({"auto"}),
    "use_kv_cache_manager_v2": frozenset({"auto", "False"}),
}
CACHE_OTHER: Final = frozenset(
    {"enable_block_reuse", "sink_token_length", "host_cache_size", "disk_cache_size", "disk_cache_path"}
    | {"secondary_offload_min_priority", "event_buffer_max_size", "attention_dp_events_gather_period_ms"}
    | {"kv_events_config", "enable_partial_reuse", "copy_on_partial_reuse", "iteration_stats_interval"}
    | {"mamba_ssm_stochastic_rounding", "mamba_ssm_philox_rounds", "kv_cache_event_hash_algo"}
    | {"max_util_for_resume", "disk_prefetch_num_reqs", "block_reuse_config"}
    | {"kv_pool_rebalance_min_sampled_kv_caches", "kv_pool_rebalance_cooldown_secs"}
    | {"kv_pool_rebalance_target_ratio_update_interval", "kv_pool_rebalance_ratio_threshold"}
    | {"kv_pool_rebalance_moving_average_decay", "kv_pool_rebalance_check_interval"}
)
SPECULATION_MOVING: Final[Mapping[str, Effect]] = {
    **_effects("more", "use_dynamic_tree", "eagle_choices", "max_total_draft_tokens", "enable_penalty"),
    **_effects("either", "sa_config", "load_format", "use_mtp_vanilla"),
}
SPECULATION_NEUTRAL: Final[Mapping[str, frozenset[str]]] = {
    "use_dynamic_tree": _NONE,
    "eagle_choices": _NONE,
    "max_total_draft_tokens": _NONE,
    "enable_penalty": _NONE,
    "sa_config": _NONE,
    "use_mtp_vanilla": _NONE,
    "load_format": frozenset({"None", "auto"}),
}
SPECULATION_OTHER: Final = frozenset(
    {"max_concurrency", "draft_len_schedule", "acceptance_rate_window_size", "acceptance_rate_threshold"}
    | {"use_rejection_sampling", "allow_advanced_sampling", "advanced_sampling_mode", "greedy_sampling"}
    | {"posterior_threshold", "dynamic_tree_max_topK", "num_eagle_layers", "max_non_leaves_per_layer"}
    | {"eagle3_one_model", "eagle3_layers_to_capture", "eagle3_model_arch", "max_matching_ngram_size"}
    | {"is_keep_all", "is_use_oldest", "is_public_pool", "use_relaxed_acceptance_for_thinking", "relaxed_topk"}
    | {"relaxed_delta", "mtp_eagle_one_model", "begin_thinking_phase_token", "end_thinking_phase_token"}
)
