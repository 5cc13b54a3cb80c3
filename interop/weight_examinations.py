"""Examinations of a model's weights: are they all there, all finite, all alive?"""

from torch import Tensor, nn
from transformers import PreTrainedModel

from .examined_model import ExaminedModel
from .finding import Finding, listed


def missing_tensors(examined: ExaminedModel) -> Finding:
    """Every weight comes from the file, and has the shape that the configuration gives it."""
    missing = list(examined.loading["missing_keys"])
    mismatched = [
        f"{name} is {tuple(in_file)} in the file and {tuple(expected)} by the configuration"
        for name, in_file, expected in examined.loading["mismatched_keys"]
    ]
    if mismatched:
        also = f"; and missing, so initialized randomly: {listed(missing)}" if missing else ""
        return Finding(
            "failed",
            f"of another shape, so initialized randomly: {listed(mismatched)}{also}",
            "use the config.json that was saved with these weights, or the weights that belong to it",
        )
    if not missing:
        return Finding("ok", "every weight is in the file")
    return Finding(
        "failed",
        f"missing in the file, so initialized randomly: {listed(missing)}",
        "load it with the saved architecture, or train it before use",
    )


def unexpected_tensors(examined: ExaminedModel) -> Finding:
    """The file holds nothing that the model has no place for."""
    if not (unexpected := examined.loading["unexpected_keys"]):
        return Finding("ok", "the model has every tensor of the file")
    return Finding(
        "warning",
        f"left unread: {listed(unexpected)}",
        "set `architectures` in config.json to the class that was saved, or save the model again",
    )


def finite_weights(examined: ExaminedModel) -> Finding:
    """No weight is infinite or not a number."""
    tensors = examined.model.state_dict()
    spoiled = [
        f"{name} ({count:,} of {tensor.numel():,})"
        for name, tensor in tensors.items()
        if (count := int((~tensor.isfinite()).sum()))
    ]
    if not spoiled:
        return Finding("ok", f"{len(tensors)} tensors, all finite")
    return Finding(
        "failed",
        f"not finite: {listed(spoiled)}",
        "return to an earlier checkpoint; then lower the learning rate",
    )


def constant_rows(examined: ExaminedModel) -> Finding:
    """No matrix is zero, and no row of one holds the same number throughout, but for the padding token's."""
    constant = [
        f"{name} ({count:,} of {len(matrix):,})"
        for name, (matrix, padding) in matrices(examined.model).items()
        if (count := count_constant_rows(matrix, padding))
    ]
    if not constant:
        return Finding("ok", "none in any matrix")
    return Finding(
        "warning",
        f"constant rows: {listed(constant)}",
        "check whether these were trained: an optimizer or a conversion may have left them out",
    )


def matrices(model: PreTrainedModel) -> dict[str, tuple[Tensor, int | None]]:
    """Give the weights of two and more dimensions once, as rows, and which row is the padding token's."""
    paddings = {
        id(module.weight): module.padding_idx
        for module in model.modules()
        if isinstance(module, nn.Embedding)
    }
    return {
        name: (parameter.detach().flatten(1), paddings.get(id(parameter)))
        for name, parameter in model.named_parameters()
        if parameter.dim() > 1 and parameter[0].numel() > 1
    }


def count_constant_rows(matrix: Tensor, padding: int | None) -> int:
    """Count the rows that hold one number only, without the padding token's."""
    is_constant = (matrix == matrix[:, :1]).all(dim=1)
    if padding is not None:
        is_constant[padding] = False
    return int(is_constant.sum())


WEIGHTS = (missing_tensors, unexpected_tensors, finite_weights, constant_rows)
