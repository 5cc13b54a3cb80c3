"""Parts of a pretraining run, built of a whole recipe."""

from transformers import PreTrainedTokenizerBase

from tercet.pretraining.model import FirstModel, first_model
from tercet.pretraining.objectives.recipes import Trainable
from tercet.pretraining.prepared import find_inputs
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.pretraining.text import TextReader, Texts, open_texts


def first_model_of(recipe: PretrainingRecipe) -> FirstModel:
    """Find what a run begins with."""
    return first_model(recipe.model, recipe.objective, recipe.corpus)


def model_of(recipe: PretrainingRecipe, tokenizer: PreTrainedTokenizerBase) -> Trainable:
    """Build what a run trains."""
    return first_model_of(recipe).build(tokenizer, recipe.training.seed)


def documents_of(recipe: PretrainingRecipe) -> Texts:
    """Find the documents of both splits."""
    return open_texts(recipe.corpus, recipe.objective)


def reader_of(recipe: PretrainingRecipe, tokenizer: PreTrainedTokenizerBase) -> TextReader:
    """Make what reads a run's text."""
    return TextReader(recipe.corpus, recipe.objective, tokenizer, recipe.training.seed)


def tokenizer_of(recipe: PretrainingRecipe) -> PreTrainedTokenizerBase:
    """Load or train a run's tokenizer."""
    inputs = find_inputs(recipe)
    return inputs.tokenizer.load_or_train(inputs.model, None)
