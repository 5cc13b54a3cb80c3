"""Members without attention layers: character model, ELMo, recurrent translator, tagger, word vectors."""
