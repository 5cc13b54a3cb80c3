"""A published tagger: its code, and that of the models whose word vectors it reads, travel with it."""

import subprocess
import sys
from pathlib import Path

import torch

from tercet import TercetTaggerConfig, TercetTaggerForTokenClassification
from tercet.interop.model_folder import load_tokenizer
from tercet.interop.own_model import load_ours
from tercet.interop.publication import prepare
from tercet.interop.word_tokenizer import word_tokenizer
from tercet.modeling.word_embedders import adopt, describe

from ..small_taggers import save_characters, save_elmo, save_static

REMOTE = """
import sys, torch, transformers
assert not any(name == "tercet" or name.startswith("tercet.") for name in sys.modules)
folder = sys.argv[1]
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
auto_class = transformers.AutoModelForTokenClassification
model = auto_class.from_pretrained(folder, trust_remote_code=True).eval()
torch.save(model(**tokenizer("the unseen cat", return_tensors="pt")).logits, f"{folder}/logits.pt")
assert "tercet" not in sys.modules and "transformers_modules" in type(model).__module__
"""


def save_tagger(folder: Path, sources: Path) -> TercetTaggerForTokenClassification:
    """Write a tagger on vectors of all kinds, and give it."""
    for name, make in (("static", save_static), ("characters", save_characters), ("elmo", save_elmo)):
        make(sources / name)
    loaded = [(load_ours(str(path)), load_tokenizer(path)) for path in sorted(sources.iterdir())]
    embeddings = [describe(model.config, tokenizer) for model, tokenizer in loaded]
    config = TercetTaggerConfig(embeddings=embeddings, hidden_size=16, num_labels=3)
    tagger = TercetTaggerForTokenClassification(config).eval()
    for embedder, source in zip(tagger.model.features.parts, loaded, strict=True):
        adopt(embedder, *source)
    tagger.save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)
    return tagger


def test_code_travels_with_the_weights(tmp_path):
    """A process that cannot import tercet computes the same from the published files."""
    published = tmp_path / "published"
    published.mkdir()
    tagger = save_tagger(tmp_path / "saved", tmp_path / "sources")
    for file in prepare(tmp_path / "saved", "me/tagger").files:
        target = published / file.path
        target.write_bytes(file.source if isinstance(file.source, bytes) else file.source.read_bytes())
    importable = f"import sys; sys.path.append({str(Path(torch.__file__).parents[1])!r})\n"
    process = subprocess.run(
        [sys.executable, "-I", "-S", "-c", importable + REMOTE, str(published)],
        env={"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    expected = tagger(**word_tokenizer()("the unseen cat", return_tensors="pt")).logits
    torch.testing.assert_close(torch.load(published / "logits.pt", weights_only=True), expected)
