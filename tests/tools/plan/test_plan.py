"""A plan: it agrees with what a run holds and how it cuts its steps, and says what would fit."""

from dataclasses import replace

import numpy as np
import pytest

from tercet.data.steps.step_planning import share
from tercet.pretraining.recipe import PretrainingRecipe
from tercet.tools.plan.machines import DEVICES, THIS_MACHINE, PlanRecipe, load_plan, measure_this_machine
from tercet.tools.plan.plan import Plan, plan_run
from tercet.tools.plan.report import digits, duration, report_plan, short

from ...pretraining.conftest import unread_recipe

LENGTH = 64


def machines_of(**values) -> PlanRecipe:
    """Describe machines of H100s, whose numbers do not depend on where the tests run."""
    return PlanRecipe(**({"device": "h100"} | values))


def recipe_of(**training) -> PretrainingRecipe:
    """Make a recipe of a small decoder."""
    sizes = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2}
    model = {"preset": "decoder-tiny", "overrides": sizes}
    training = {"steps": 100, "tokens_per_step": 8 * LENGTH} | training
    changes = {"tokenizer": {"vocab_size": 400}, "training": training}
    return unread_recipe("causal_language_modeling", model, LENGTH, **changes)


@pytest.mark.parametrize("devices", [1, 2, 3])
@pytest.mark.parametrize("limit", [LENGTH, 3 * LENGTH, 8 * LENGTH])
def test_steps_are_cut_as_training_cuts_them(devices, limit):
    plan = plan_run(recipe_of(tokens_per_micro_batch=limit), machines_of(devices=devices))
    for outlook in plan.outlooks:
        lengths = np.full(plan.last.sequences, LENGTH)
        shares = [share(lengths, limit, outlook.layout.devices, i)[1] for i in range(outlook.layout.devices)]
        assert max(len(edges) - 1 for edges in shares) == outlook.micro_batches
        assert max(np.diff(edges).max() for edges in shares) == outlook.sequences


def test_time_is_operations_by_speed():
    machines = machines_of(devices=4, mfu=0.5, peak_flops=1e9, bandwidth=1e15, price_per_device_hour=3)
    plan = plan_run(recipe_of(), machines)
    ddp = plan.outlooks[1]
    seconds = plan.flops / (4 * 0.5e9)
    assert ddp.hours * 3600 == pytest.approx(seconds)
    assert ddp.tokens_per_second == pytest.approx(plan.tokens / seconds)
    assert ddp.device_hours == pytest.approx(4 * ddp.hours)
    assert ddp.price == pytest.approx(12 * ddp.hours)
    assert plan.outlooks[0].device_hours == pytest.approx(ddp.device_hours)


@pytest.mark.parametrize(
    ("values", "width", "share", "told"),
    [
        ({"mfu": 0.3}, 768, 0.3, []),
        ({}, 768, 0.33, ["33% at width 768: measured with BERT-base and GPT-2 on one H100"]),
        ({}, 64, 0.12, ["12% at width 256: measured"]),
        ({}, 627, 0.285, ["24% at width 512: measured", "33% at width 768: measured"]),
        ({}, 8192, 0.4, ["40% at width 2048: assumed"]),
        ({"device": "cpu"}, 256, 0.43, ["43% at width 256: measured with an encoder of 4 layers"]),
    ],
)
def test_the_share_of_peak_is_that_of_similar_models_and_says_so(values, width, share, told):
    found, rests_on = machines_of(**values).share_of_peak(width)
    assert found == pytest.approx(share, abs=1e-3)
    plan = replace(plan_of_four(), mfu=found, known_shares=rests_on)
    lines = [line for line in report_plan(plan).splitlines() if "That share rests on" in line]
    assert all(known in line for known, line in zip(told, lines, strict=True))
    assert f"- {found:.0%} of 989 TFLOP/s in bf16" in report_plan(plan)


def test_every_stage_counts_with_its_own_sequences_and_steps():
    """A run of two stages costs what two runs cost; it holds what the one that needs more memory holds."""
    stages = [{"steps": 30, "sequence_length": LENGTH // 2, "tokens_per_step": 32 * LENGTH}]
    machines = machines_of(price_per_device_hour=3)
    plan = plan_run(recipe_of(stages=stages), machines)
    data = recipe_of(steps=30, tokens_per_step=32 * LENGTH)
    corpus = replace(data.corpus, sequence_length=LENGTH // 2)
    first = plan_run(replace(data, corpus=corpus), machines)
    second = plan_run(recipe_of(steps=70), machines)
    assert plan.tokens == first.tokens + second.tokens == 30 * 32 * LENGTH + 70 * 8 * LENGTH
    assert plan.flops == pytest.approx(first.flops + second.flops)
    [whole], [early], [late] = plan.outlooks, first.outlooks, second.outlooks
    assert whole.hours == pytest.approx(early.hours + late.hours)
    assert whole.price == pytest.approx(3 * whole.hours)
    assert whole.memory == early.memory
    assert early.memory.total > late.memory.total
    assert (whole.sequences, whole.tokens_per_second) == (late.sequences, late.tokens_per_second)
    report = report_plan(plan)
    assert "| 1     |    30 |" in report
    assert "memory is that of the stage that needs most" in report


def test_a_suggested_micro_batch_fits_every_stage():
    stages = [{"steps": 30, "tokens_per_step": 32 * LENGTH}]
    room = plan_run(recipe_of(), machines_of()).outlooks[0].memory.total
    machines = machines_of(device_memory=room, usable_memory=1)
    [tight] = plan_run(recipe_of(stages=stages), machines).outlooks
    assert not tight.fits
    assert tight.fitting_sequences is not None
    training = {"stages": stages, "tokens_per_micro_batch": tight.fitting_sequences * LENGTH}
    assert plan_run(recipe_of(**training), machines).outlooks[0].fits


def test_slow_links_set_the_pace():
    plan = plan_run(recipe_of(), machines_of(devices=4, bandwidth=1e3))
    ddp = plan.outlooks[1]
    assert ddp.hours * 3600 == pytest.approx(100 * ddp.traffic / 1e3)
    assert "Limited by communication: DDP" in report_plan(plan)


@pytest.mark.parametrize("tokens_per_step", [8 * LENGTH, 2**31])
def test_suggested_micro_batch_fits_and_the_next_larger_does_not(tokens_per_step):
    recipe = recipe_of(tokens_per_step=tokens_per_step)
    whole = plan_run(recipe, machines_of()).outlooks[0].memory
    machines = machines_of(device_memory=whole.total - whole.activations / 2, usable_memory=1)
    [tight] = plan_run(recipe, machines).outlooks
    fitting = tight.fitting_sequences
    assert not tight.fits
    assert fitting is not None
    assert f"it would with training.tokens_per_micro_batch={fitting * LENGTH}." in report_plan(
        plan_run(recipe, machines)
    )
    for sequences, fits in ((fitting, True), (2 * fitting, False)):
        training = replace(recipe.training, tokens_per_micro_batch=sequences * LENGTH)
        assert plan_run(replace(recipe, training=training), machines).outlooks[0].fits is fits


def test_hopeless_memory_is_called_so():
    plan = plan_run(recipe_of(), machines_of(device_memory=1000))
    assert plan.outlooks[0].fitting_sequences is None
    assert "no micro-batch is small enough" in report_plan(plan)
    assert "Fits: nothing." in report_plan(plan)


@pytest.mark.parametrize(
    ("training", "machines", "message"),
    [
        ({}, {"devices": 9}, r"8 full sequences of 64 tokens for 9 devices: raise it to 576"),
        ({"stages": [{"steps": 3, "tokens_per_step": LENGTH}]}, {"devices": 2},
         r"training\.stages: tokens_per_step is 64, which is 1 full sequences .* for 2 devices"),
        ({"stages": [{"steps": 100}]}, {}, r"training: stages last 100 steps, but steps = 100"),
        ({"stages": [{"steps": 3, "sequence_length": 65}]}, {}, r"sequence_length = 65 exceeds"),
        ({"tokens_per_micro_batch": 32}, {}, r"tokens_per_micro_batch is 32, .* has 64 tokens"),
        ({"precision": "fp16"}, {"device": "cpu"},
         r"precision is fp16, but device cpu computes in bf16 and fp32"),
    ],
)  # fmt: skip
def test_an_impossible_plan_is_refused(training, machines, message):
    with pytest.raises(ValueError, match=message):
        plan_run(recipe_of(**training), machines_of(**machines))


@pytest.mark.parametrize(
    ("training", "overrides", "message"),
    [
        ({"tokens_per_step": LENGTH - 1}, {}, "which is 0 full sequences"),
        ({"tokens_per_micro_batch": 32}, {}, "has 64 tokens"),
        ({}, {"num_attention_heads": 7}, r"multiple of num_attention_heads \(7\)"),
    ],
)
def test_what_no_machine_can_do_is_refused_before_this_one_is_measured(
    training, overrides, message, monkeypatch
):
    monkeypatch.setattr("tercet.tools.plan.machines.measure_this_machine", None)
    recipe = recipe_of(**training)
    model = replace(recipe.model, overrides=recipe.model.overrides | overrides)
    with pytest.raises(ValueError, match=message):
        plan_run(replace(recipe, model=model), machines_of(device=THIS_MACHINE))


def test_keys_of_machines_and_recipe_are_told_apart():
    recipe, machines = load_plan(
        "decoder-english", ["devices=64", "training.steps=7", "mfu=0.5", "output=runs/y", "peak_flops=1e15"]
    )
    assert (recipe.training.steps, recipe.output) == (7, "runs/y")
    assert machines == PlanRecipe(devices=64, mfu=0.5, peak_flops=1e15)


def test_a_plan_is_for_this_machine_by_default_and_measures_it():
    machines = PlanRecipe()
    assert machines.device == THIS_MACHINE
    assert machines.kind is measure_this_machine()
    assert all(1e8 < peak < 1e16 for peak in machines.kind.peaks.values())
    assert machines.kind.memory > 2**28
    report = report_plan(plan_run(recipe_of(), machines))
    assert "measured just now" in report.partition("\n\nAssumptions:\n\n")[2]


def test_automatic_precision_is_one_that_the_device_computes_in(monkeypatch):
    monkeypatch.setitem(DEVICES, "old", replace(DEVICES["cpu"], peaks={"fp32": 1e12}))
    assert plan_run(recipe_of(), PlanRecipe(device="old")).precision == "fp32"
    assert plan_run(recipe_of(), PlanRecipe(device="rtx4090")).precision == "bf16"


@pytest.mark.parametrize("name", DEVICES)
def test_every_device_has_a_source_and_half_formats_that_are_no_slower(name):
    kind = DEVICES[name]
    assert kind.source
    assert kind.peaks["bf16"] >= kind.peaks["fp32"] > 1e11
    assert kind.memory >= 16e9
    assert kind.node_bandwidth >= kind.network_bandwidth


def plan_of_four() -> Plan:
    return plan_run(recipe_of(), machines_of(devices=4, price_per_device_hour=2))


def test_report_is_markdown_whose_columns_line_up():
    lines = report_plan(plan_of_four()).splitlines()
    blocks = "\n".join(line if line.startswith("|") else "" for line in lines).split("\n\n")
    tables = [block.strip().splitlines() for block in blocks if block.strip()]
    assert len(tables) == 3
    for rows in tables:
        assert len({len(row) for row in rows}) == 1
        assert len({row.count("|") for row in rows}) == 1
        assert set(rows[1]) <= set("|-: ")
    assert max(map(len, lines)) <= 120


def test_numbers_are_short():
    assert [digits(value) for value in (0.0001, 0.1234, 1.234, 12.34, 1234.5)] == [
        "0",
        "0.123",
        "1.23",
        "12.3",
        "1,234",
    ]
    assert [short(value) for value in (12, 1234, 5.75e21)] == ["12.0 ", "1.23 k", "5.75 Z"]
    assert [duration(value) for value in (0.0123, 90, 7200, 172_800)] == [
        "12.3 ms",
        "1.50 min",
        "2.00 h",
        "2.00 days",
    ]


@pytest.mark.parametrize(
    ("name", "trained"),
    [
        ("flair-english", "TercetCharacterLanguageModel"),
        ("translation-multi30k-recurrent", "TercetRecurrentSeq2SeqForConditionalGeneration"),
    ],
)
def test_a_model_that_is_no_transformer_is_refused(name, trained):
    with pytest.raises(ValueError, match=f"trains a {trained}, whose costs cannot be planned"):
        plan_run(*load_plan(name, ["device=cpu"]))
