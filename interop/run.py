"""The commands `tercet import` and `tercet export`: a model goes to another house, with a certificate."""

import shutil
from pathlib import Path

from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerBase

from .. import modeling
from ..modeling.pretrained_tercet import TercetPreTrainedModel
from .certificate import Certificate, certify
from .conversion import from_stock, to_stock
from .messages import quietly
from .model_folder import CONFIG, find_folder, load_config, load_tokenizer, require_fit
from .source import load_stock
from .stored_weights import inspect_weights


def import_model(
    source: str, output: str, *, revision: str | None = None, overwrite: bool = False
) -> Certificate:
    """Write the model of ours that a stock model is, its tokenizer, and the certificate that they are one.

    Args:
        source: A folder, or a repository on the Hub.
        output: The folder to write.
        revision: Branch, tag or commit on the Hub.
        overwrite: Replace what an earlier call has written there.

    Raises:
        ValueError: As in `load_stock`, `from_stock`; the folder is in use; or the models are not one.
    """
    folder = claim(output, overwrite)
    stock = load_stock(source, revision)
    tokenizer = load_tokenizer(find_folder(source, revision))
    require_fit(tokenizer, stock.config)
    ours = from_stock(stock)
    return hand_over(ours, tokenizer, certify(stock, ours, tokenizer), folder)


def export_model(
    source: str, output: str, *, model_type: str | None = None, overwrite: bool = False
) -> Certificate:
    """Write the stock model that one of ours is, its tokenizer, and the certificate that they are one.

    Args:
        source: A folder with a model of ours, or a repository on the Hub.
        output: The folder to write, which stock transformers loads.
        model_type: The stock architecture; `None`: the first that is exactly this model.
        overwrite: Replace what an earlier call has written there.

    Raises:
        ValueError: As in `to_stock`; the folder is in use; or the models are not one.
    """
    folder = claim(output, overwrite)
    ours = load_ours(source)
    tokenizer = load_tokenizer(find_folder(source))
    require_fit(tokenizer, ours.config)
    stock = to_stock(ours, model_type)
    return hand_over(stock, tokenizer, certify(stock, ours, tokenizer), folder)


def load_ours(source: str) -> TercetPreTrainedModel:
    """Load a model of ours from a folder or the Hub, with its own head.

    Raises:
        FileNotFoundError: There is no model.
        ValueError: It is none of ours, or its weights are damaged, incomplete or pickled.
    """
    folder = find_folder(source)
    config = load_config(folder)
    if not config.model_type.startswith("tercet"):
        raise ValueError(f"{source} is a {config.model_type}: bring it in with tercet import first")
    name = (config.architectures or [""])[0]
    model_class = getattr(modeling, name, AutoModel)
    inspect_weights(folder)
    with quietly():
        return model_class.from_pretrained(folder, use_safetensors=True).eval()


def claim(output: str, overwrite: bool) -> Path:
    """Make sure that a folder may be written.

    Raises:
        ValueError: There is something already.
    """
    folder = Path(output)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{output} is a file: name a folder")
    if folder.exists() and any(folder.iterdir()):
        if not overwrite:
            raise ValueError(f"{output} is not empty: choose another folder, or --overwrite")
        if not (folder / CONFIG).is_file():
            raise ValueError(f"{output} holds no model that could be overwritten: choose another folder")
    return folder


def hand_over(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    certificate: Certificate,
    folder: Path,
) -> Certificate:
    """Write a folder at once, or nothing.

    Raises:
        ValueError: The certificate does not hold.
    """
    if not certificate.holds:
        raise ValueError(certificate.verdict())
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    with quietly():
        model.save_pretrained(partial)
        if tokenizer is not None:
            tokenizer.save_pretrained(partial)
    certificate.save(partial)
    if folder.exists():
        shutil.rmtree(folder)
    partial.rename(folder)
    return certificate
