"""Load a model to be examined, or say in one line why that is impossible.

Only safetensors are read: what lies in a pickle is executed.
"""

import json
from pathlib import Path
from textwrap import shorten

import torch
import transformers
from huggingface_hub import snapshot_download
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerBase

from .. import modeling  # noqa: F401  registers the family with the Auto classes
from .patient import MAPPINGS, Patient, classes_of

WANTED = ["*.json", "*.txt", "*.model", "*.py", "*.jinja", "model.safetensors", "model-*.safetensors"]
"""What is downloaded of a model on the Hub."""

PICKLES = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt")
TOKENIZERS = ("tokenizer*.json", "vocab.*", "*.model")
"""Files of which a folder with a tokenizer has at least one."""


def load_patient(name: str, *, trust_remote_code: bool = False) -> Patient:
    """Load a model from a folder, or from the Hub if there is no such folder.

    Raises:
        ValueError: There is no such model, a file is missing or damaged, the weights are pickled, or the
            model has a head that no examination knows.
    """
    folder = find_folder(name)
    config = load_config(folder, trust_remote_code)
    loader = loader_of(config)
    require_safetensors(folder, loader)
    model, loading = getattr(transformers, loader).from_pretrained(
        folder,
        config=config,
        dtype=torch.float32,
        use_safetensors=True,
        ignore_mismatched_sizes=True,
        output_loading_info=True,
        trust_remote_code=trust_remote_code,
    )
    return Patient(name, model.eval(), load_tokenizer(folder, trust_remote_code), loading)


def find_folder(name: str) -> Path:
    """Give the folder, or that into which the Hub's files were downloaded."""
    if Path(name).is_dir():
        return Path(name)
    if Path(name).exists():
        raise ValueError(f"{name} is a file: name the folder it lies in")
    try:
        return Path(snapshot_download(name, allow_patterns=WANTED, ignore_patterns=["*/*"]))
    except Exception as error:  # a name, a network, a Hub: each fails in its own way
        raise ValueError(
            f"{name} is neither a folder nor a model that the Hub gives ({reason(error)}): check the path"
        ) from error


def load_config(folder: Path, trust_remote_code: bool) -> PreTrainedConfig:
    """Load the configuration."""
    file = folder / "config.json"
    if not file.exists():
        raise ValueError(
            f"{folder} has no config.json: name a folder that save_pretrained wrote (of a run, its `model`)"
        )
    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
    except Exception as error:  # no JSON, no known type, no possible value
        if "trust_remote_code" in str(error):
            raise ValueError(
                f"{folder} brings code of its own: read that, then pass --trust-remote-code"
            ) from error
        raise ValueError(f"{file} cannot be loaded ({reason(error)}): repair it, or copy it again") from error


def require_safetensors(folder: Path, loader: str) -> None:
    """Raise a `ValueError` unless all files of weights are there, whole, and no pickles."""
    for file in weight_files(folder):
        try:
            with safe_open(file, framework="pt"):
                pass
        except FileNotFoundError as error:
            raise missing_weights(file, loader) from error
        except SafetensorError as error:
            raise damaged(file, error) from error


def weight_files(folder: Path) -> list[Path]:
    """List the files that must hold the weights: one, or those that an index names."""
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return [folder / "model.safetensors"]
    try:
        shards = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
    except (ValueError, KeyError) as error:
        raise damaged(index, error) from error
    return [folder / shard for shard in sorted(set(shards))]


def damaged(file: Path, error: Exception) -> ValueError:
    """Say that a file cannot be read."""
    return ValueError(f"{file} is damaged ({reason(error)}): copy or download it again")


def missing_weights(file: Path, loader: str) -> ValueError:
    """Say that a file of weights is missing, and what to do if there are pickled ones."""
    folder = file.parent
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if not pickles:
        return ValueError(f"{file} is missing: copy or download it again (only safetensors are read)")
    return ValueError(
        f"{folder} has its weights as a pickle ({pickles[0]}), which may run foreign code when read: convert "
        f"them with `{loader}.from_pretrained({str(folder)!r}, use_safetensors=False, weights_only=True)"
        f".save_pretrained({str(folder) + '-safetensors'!r})`, which accepts nothing but tensors"
    )


def loader_of(config: PreTrainedConfig) -> str:
    """Name the Auto class that loads the architecture which a configuration names, by default the base."""
    architecture = (config.architectures or [None])[0]
    heads = classes_of(config)
    if config.is_encoder_decoder:
        heads.pop("AutoModelForSequenceClassification", None)  # these read texts of a form of their own
    if architecture is None and "AutoModel" in heads:
        return "AutoModel"
    for auto_class, names in heads.items():
        if architecture in names:
            return auto_class
    raise ValueError(
        f"architectures of config.json names {architecture}, which cannot be examined: models can that "
        f"one of {', '.join(MAPPINGS)} loads"
    )


def load_tokenizer(folder: Path, trust_remote_code: bool) -> PreTrainedTokenizerBase | None:
    """Load the tokenizer, if there is one; transformers itself would make up an empty one."""
    if not any(file for pattern in TOKENIZERS for file in folder.glob(pattern)):
        return None
    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
    except Exception as error:  # every kind fails in its own way
        raise ValueError(
            f"the tokenizer in {folder} cannot be loaded ({reason(error)}): copy its files again"
        ) from error


def reason(error: Exception) -> str:
    """Give what an error says, in one line that is not too long."""
    return shorten(str(error), 200, placeholder=" ...") or type(error).__name__
