"""What a file or a saved model is, as a SHA-256 of its contents."""

import hashlib
from pathlib import Path


def hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_of_model(folder: Path) -> str:
    """Identify a model by its weights, its vocabulary, and how it computes and writes."""
    digest = hashlib.sha256()
    names = ("config.json", "generation_config.json", "tokenizer.json")
    described = [folder / name for name in names if (folder / name).exists()]
    for file in sorted([*folder.glob("*.safetensors"), *described]):
        digest.update(bytes.fromhex(hash_of(file)))
    return digest.hexdigest()
