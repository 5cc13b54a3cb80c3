"""Long texts: equal models that read equally many blocks, and their times."""

import pytest
import torch

RUN = {"machine": {"versions": {"tercet": "0"}}}
"""What a result says of its conditions, at least."""


def measured(length, work, **seconds):
    """Make a case as the program measures it."""
    sides = {name: {"seconds": times, "memory_mib": 10.0 * len(name)} for name, times in seconds.items()}
    return {"work": work, "length": length, "sides": sides}


def test_times_are_medians(module):
    benchmark = module("long_texts")
    cases = [
        measured(1024, "training", tercet=[1.0, 3.0, 2.0], stock=[8.0]),
        measured(4096, "training", tercet=[8.0], stock=[128.0], **{"tercet-bf16": [4.0]}),
    ]
    for case in cases:
        benchmark.relate(case["sides"])
    assert cases[0]["sides"]["tercet"]["median"] == 2
    assert cases[1]["sides"]["tercet"]["ratio_to_stock"] == 16
    row = benchmark.BENCHMARK.render(RUN | {"cases": dict(enumerate(cases))}).splitlines()[-1]
    assert row == (
        "| training | 4,096 | 128 (128 to 128) | - | 8 (8 to 8) | 4 | 16.00x | 32.00x | 50 | 60 | 110 |"
    )


def test_blocks_pay_from_the_length_behind_which_full_attention_is_never_faster(module):
    benchmark = module("long_texts")
    seconds = {256: (1, 2), 512: (4, 3), 1024: (5, 9), 2048: (10, 40)}
    cases = [
        measured(length, "forward", tercet=[sparse], stock=[1], **{"tercet-full": [full]})
        for length, (sparse, full) in seconds.items()
    ]
    for case in cases:
        benchmark.relate(case["sides"])
    assert benchmark.pays_from(cases[:2], "forward") == "tercet is nowhere faster than tercet-full"
    assert benchmark.pays_from(cases, "forward").endswith(
        "from 1,024 tokens (1.80x at 1,024, 4.00x at 2,048)"
    )


@pytest.mark.parametrize("length", [1024, 4096, 16384])
def test_ours_read_at_least_as_many_blocks_as_the_stock_model(length, module):
    readers = module("long_texts")
    blocks = readers.blocks_per_query(readers.ReadingCase(length, trains=False))
    assert blocks["stock"] <= blocks["tercet"] < 1.1 * blocks["stock"]


def test_blocks_of_the_stock_model_are_those_that_its_weights_are_at(module):
    readers = module("long_texts")
    case = readers.ReadingCase(256, trains=True).shrunk()
    model = case.build_stock("block_sparse").train()
    ids = torch.randint(5, 1000, (1, case.length))
    weights = model(ids, output_attentions=True).attentions[0][0, 0]  # (t, t) of one head
    blocks = weights.unflatten(1, (-1, case.block_size)).unflatten(0, (-1, case.block_size))
    seen = (blocks > 0).any(3).any(1)
    assert seen.sum() == round(readers.blocks_per_query(case)["stock"] * len(seen))


@pytest.mark.parametrize("trains", [True, False])
def test_both_sides_have_equal_parameters_and_read_a_text(trains, module):
    readers = module("long_texts")
    case = readers.ReadingCase(256, trains).shrunk()
    ours, stock = case.build_tercet("big_bird_attention"), case.build_stock("block_sparse")
    counts = [sum(weight.numel() for weight in model.parameters()) for model in (ours, stock)]
    assert counts[0] == counts[1]
    for side in readers.readers_of(case).values():
        side.prepare(case, torch.device("cpu"))()
    assert ("stock-bf16" in readers.readers_of(case)) != trains
    assert "stock-full" not in readers.readers_of(readers.ReadingCase(8192, trains))
