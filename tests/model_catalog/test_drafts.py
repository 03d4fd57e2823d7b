import pytest

from model_catalog.drafts import longest_block


@pytest.mark.parametrize(
    ("repo_id", "config", "most"),
    [
        # DeepSpec's README: block7 heads are served with 7 speculative tokens
        ("deepseek-ai/dspark_qwen3_8b_block7", {}, 7),
        # z-lab's heads: a block of 16 holds the anchor token and 15 drafted ones
        ("z-lab/Qwen3-8B-DFlash-b16", {}, 15),
        ("org/head", {"block_size": 16}, 15),
        ("org/head", {"dflash_config": {"block_size": 8}}, 7),
        ("org/head_block7", {"block_size": 16}, 15),
        ("org/head", {}, None),
        ("org/head", {"block_size": True}, None),
        ("org/head", {"block_size": "16", "dflash_config": [1]}, None),
    ],
)
def test_how_many_tokens_a_block_holds(repo_id: str, config: dict[str, object], most: int | None) -> None:
    assert longest_block(repo_id, config) == most
