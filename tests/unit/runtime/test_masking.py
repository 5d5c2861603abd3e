"""What is taken for a secret, and what is not."""

from __future__ import annotations

import pytest

from otel_memwatch.runtime.masking import MASK, mask_arguments, mask_url, public_name


@pytest.mark.parametrize(
    "words",
    [
        ["--token", "S3CRET"],
        ["--hf-token=S3CRET"],
        ["--api-key", "S3CRET"],
        ["--apiKey=S3CRET"],
        ["-password", "S3CRET"],
        ["--aws-secret-access-key", "S3CRET"],
        ["env", "DB_PASSWORD=S3CRET", "python"],
        ["sh", "-c", "curl -H 'Authorization: Bearer S3CRET' https://x"],
        ["psql", "postgres://me:S3CRET@host/db"],
        ["sh", "-c", "WANDB_API_KEY=S3CRET python train.py"],
    ],
)
def test_secrets_are_masked(words: list[str]) -> None:
    masked = mask_arguments(words)
    assert len(masked) == len(words)
    assert "S3CRET" not in " ".join(masked)
    assert MASK in " ".join(masked)


@pytest.mark.parametrize(
    "words",
    [
        ["python", "train.py", "--tokenizer", "gpt2", "--max-tokens", "512"],
        ["--pad-token", "<pad>"],
        ["--eos-token-id=2"],
        ["--key", "value"],
        ["--password", "--verbose"],
        ["https://host:8080/path@x"],
        ["--keyboard=us"],
        ["--secretary", "jane"],
        [],
    ],
)
def test_other_words_stay(words: list[str]) -> None:
    assert mask_arguments(words) == words


def test_addresses() -> None:
    assert mask_url("https://me:S3CRET@host:1/x") == f"https://me:{MASK}@host:1/x"
    assert mask_url("http://host:4318") == "http://host:4318"


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["/usr/bin/python3", "/home/me/train.py", "S3CRET"], "python3 train.py"),
        (["deploy", "S3CRET"], "deploy"),
        (["sh", "-c", "S3CRET.sh"], "sh"),
        (["nginx:", "master", "process", "nginx", "-c", "/S3CRET"], "nginx"),
        ([], ""),
    ],
)
def test_the_public_name(argv: list[str], name: str) -> None:
    assert public_name(argv) == name


def test_a_password_with_a_sign_is_masked_whole():
    assert mask_url("ftp://me:S3@CRET@host/x@y") == f"ftp://me:{MASK}@host/x@y"
