"""A translator is given the cache of a decoder: what it reads of its source is kept beside it."""

import torch
from torch.testing import assert_close
from transformers.cache_utils import DynamicCache, StaticCache

CLOSE = {"rtol": 1e-4, "atol": 2e-5}
GREEDY = {"do_sample": False, "max_new_tokens": 7, "eos_token_id": None}


def test_a_cache_of_the_target_alone_gets_one_of_the_source(builder):
    model, ids = builder("seq2seq"), torch.randint(3, 61, (2, 5))
    kept = {"config": model.get_decoder().config}
    caches = (DynamicCache, lambda: DynamicCache(**kept), lambda: StaticCache(**kept, max_cache_len=16))
    for make in caches:
        for options in (GREEDY, GREEDY | {"num_beams": 2}):
            found = model.generate(ids, past_key_values=make(), **options)
            assert torch.equal(found, model.generate(ids, **options))
        outputs = model(ids, decoder_input_ids=ids[:, :3], past_key_values=make())
        more = model(ids, decoder_input_ids=ids[:, 3:], past_key_values=outputs.past_key_values)
        whole = model(ids, decoder_input_ids=ids).logits
        assert_close(torch.cat([outputs.logits, more.logits], dim=1), whole, **CLOSE)
