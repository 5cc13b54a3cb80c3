"""What one can try with a character model."""

import torch

from tercet.data.tokenizers.tokenizer import train_tokenizer
from tercet.modeling import TercetCharacterConfig, TercetCharacterModel
from tercet.tools.play.loaded_model import load_model
from tercet.tools.play.sessions import abilities_of


def test_a_character_model_shows_its_tokens_and_finds_similar_texts(tmp_path):
    torch.manual_seed(0)
    tokenizer = train_tokenizer(["the cat sat on a mat"] * 9, "characters", 40, template="both_ends")
    sizes = {"vocab_size": len(tokenizer), "hidden_size": 16, "embedding_size": 8, "pad_token_id": 0}
    TercetCharacterModel(TercetCharacterConfig(**sizes)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model = load_model(str(tmp_path))
    assert model.facts["kind"] == "character language model"
    abilities = abilities_of(model)
    assert list(abilities) == ["similar", "tokens"]
    for ability in abilities.values():
        assert ability.answer(["the cat", "a mat\nthe cat\nsat"][: len(ability.fields)], {})
