"""The tensors that most transformer layers are made of, as templates.

Families compose these; a family with an odd tensor writes its own template. Names follow the checkpoints of
the Hugging Face ``transformers`` library.
"""

from collections.abc import Iterable

from model_catalog.architecture import Component, Role, TensorTemplate

Tensors = tuple[TensorTemplate, ...]


def linear(name: str, outputs: int, inputs: int, role: Role, *, bias: bool = False, count: int = 1) -> Tensors:
    """A weight matrix (out, in), with its bias where it has one."""
    weight = TensorTemplate(name=f"{name}.weight", shape=(outputs, inputs), role=role, count=count, linear=True)
    if not bias:
        return (weight,)
    return (weight, TensorTemplate(name=f"{name}.bias", shape=(outputs,), role=role, count=count))


def norm(name: str, size: int, *, bias: bool = False, weight: bool = True) -> Tensors:
    """A normalisation: a weight vector, with a bias for LayerNorm; nothing for a non-parametric one."""
    tensors: list[TensorTemplate] = []
    if weight:
        tensors.append(TensorTemplate(name=f"{name}.weight", shape=(size,), role=Role.NORM))
    if bias:
        tensors.append(TensorTemplate(name=f"{name}.bias", shape=(size,), role=Role.NORM))
    return tuple(tensors)


def attention(
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    *,
    value_dim: int | None = None,
    qkv_bias: bool = False,
    output_bias: bool = False,
    qk_norm_sizes: tuple[int, int] | None = None,
    prefix: str = "self_attn",
    query_multiplier: int = 1,
    output: str = "o_proj",
) -> Tensors:
    """Separate q, k, v and o projections. ``query_multiplier`` 2 is an output gate fused into q (Qwen3-Next)."""
    value_dim = head_dim if value_dim is None else value_dim
    queries = heads * head_dim * query_multiplier
    tensors = (
        *linear(f"{prefix}.q_proj", queries, hidden, Role.QUERY, bias=qkv_bias),
        *linear(f"{prefix}.k_proj", kv_heads * head_dim, hidden, Role.KEY_VALUE, bias=qkv_bias),
        *linear(f"{prefix}.v_proj", kv_heads * value_dim, hidden, Role.KEY_VALUE, bias=qkv_bias),
        *linear(f"{prefix}.{output}", hidden, heads * value_dim, Role.ATTENTION_OUTPUT, bias=output_bias),
    )
    if qk_norm_sizes is None:
        return tensors
    query_size, key_size = qk_norm_sizes
    return (*tensors, *norm(f"{prefix}.q_norm", query_size), *norm(f"{prefix}.k_norm", key_size))


def gated_mlp(
    hidden: int, intermediate: int, *, bias: bool = False, role: Role = Role.MLP, prefix: str = "mlp"
) -> Tensors:
    """Gate, up and down projections (SwiGLU, GeGLU)."""
    return (
        *linear(f"{prefix}.gate_proj", intermediate, hidden, role, bias=bias),
        *linear(f"{prefix}.up_proj", intermediate, hidden, role, bias=bias),
        *linear(f"{prefix}.down_proj", hidden, intermediate, role, bias=bias),
    )


def plain_mlp(
    hidden: int,
    intermediate: int,
    *,
    bias: bool = False,
    prefix: str = "mlp",
    names: tuple[str, str] = ("up_proj", "down_proj"),
    role: Role = Role.MLP,
) -> Tensors:
    """Two projections with an activation between them."""
    up, down = names
    return (
        *linear(f"{prefix}.{up}", intermediate, hidden, role, bias=bias),
        *linear(f"{prefix}.{down}", hidden, intermediate, role, bias=bias),
    )


def mixture(
    hidden: int,
    expert_intermediate: int,
    experts: int,
    *,
    shared_intermediate: int = 0,
    shared_gate: bool = False,
    router_bias_name: str | None = None,
    gated: bool = True,
    prefix: str = "mlp",
    router: str = "gate",
    shared: str = "shared_experts",
    expert_names: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj"),
) -> Tensors:
    """Router, routed experts (one template a projection, ``count`` experts), and a shared expert if any.

    ``expert_names`` ends with the down projection; ``gated`` is False for experts of two projections.
    """
    *ups, down = expert_names if gated else expert_names[-2:]
    inside = f"{prefix}.experts.*"
    tensors: list[TensorTemplate] = list(linear(f"{prefix}.{router}", experts, hidden, Role.ROUTER))
    if router_bias_name is not None:
        tensors.append(TensorTemplate(name=f"{prefix}.{router_bias_name}", shape=(experts,), role=Role.ROUTER))
    for up in ups:
        tensors += linear(f"{inside}.{up}", expert_intermediate, hidden, Role.EXPERT, count=experts)
    tensors += linear(f"{inside}.{down}", hidden, expert_intermediate, Role.EXPERT, count=experts)
    if shared_intermediate:
        make = gated_mlp if gated else plain_mlp
        tensors += make(hidden, shared_intermediate, role=Role.SHARED_EXPERT, prefix=f"{prefix}.{shared}")
        if shared_gate:
            tensors += linear(f"{prefix}.shared_expert_gate", 1, hidden, Role.ROUTER)
    return tuple(tensors)


def root(
    hidden: int,
    vocabulary: int,
    *,
    tied_head: bool,
    final_norm: Iterable[TensorTemplate],
    embedding_name: str = "model.embed_tokens",
    head_name: str = "lm_head",
    head_bias: bool = False,
    embedding_size: int | None = None,
) -> tuple[tuple[Component, TensorTemplate], ...]:
    """Token table, final norm, and the output projection unless it is tied to the table."""
    embedding = TensorTemplate(
        name=f"{embedding_name}.weight",
        shape=(vocabulary, hidden if embedding_size is None else embedding_size),
        role=Role.EMBEDDING,
    )
    tensors: list[TensorTemplate] = [embedding, *final_norm]
    if not tied_head:
        tensors += linear(head_name, vocabulary, hidden, Role.HEAD, bias=head_bias)
    return tuple((Component.TEXT, tensor) for tensor in tensors)
