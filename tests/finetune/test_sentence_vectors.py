"""A model gives sentence-transformers the vectors that it gives us, and those that its folder says."""

import json
from itertools import pairwise

import numpy as np
import pytest
from datasets import Dataset
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification, BertModel

from tercet.finetune.inputs import find_inputs
from tercet.finetune.prediction import Predictor, predict_file
from tercet.finetune.run import finetune
from tercet.modeling.saved.checkpoint import Checkpoint
from tercet.modeling.saved.sentence_vectors import find_vectors
from tercet.tools.import_export.run import export_model, import_model
from tercet.tools.play.loaded_model import load_model
from tercet.tools.play.similarity import FindSimilar
from tercet.tools.push.publication import prepare

from .conftest import classification_rows, write_rows

TEXTS = ["the cat sat", "a big dog ran under the tree", "fish", "the small fish ate a big cat " * 4]
OLD = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}


def bert(bases, **fields):
    """Describe a small BERT for a tokenizer of the tests."""
    return BertConfig(
        vocab_size=len(AutoTokenizer.from_pretrained(bases / "encoder")), hidden_size=32, num_hidden_layers=2,
        num_attention_heads=2, intermediate_size=64, max_position_embeddings=64, initializer_range=0.3,
        **fields,
    )  # fmt: skip


@pytest.fixture
def published(bases, tmp_path):
    """Write a stock BERT with what sentence-transformers reads."""

    def publish(pooling, modules=("Transformer", "Pooling", "Normalize"), settings=None, transformer=None):
        folder = tmp_path / "published"
        BertModel(bert(bases)).save_pretrained(folder)
        AutoTokenizer.from_pretrained(bases / "encoder").save_pretrained(folder)
        paths = {name: f"{idx}_{name}" if idx else "" for idx, name in enumerate(modules)}
        told = [
            {"idx": idx, "name": str(idx), "path": path, "type": f"sentence_transformers.models.{name}"}
            for idx, (name, path) in enumerate(paths.items())
        ]
        (folder / "modules.json").write_text(json.dumps(told))
        for path in filter(None, paths.values()):
            (folder / path).mkdir()
            (folder / path / "config.json").write_text("{}")
        pooling = {"pooling_mode": pooling} if isinstance(pooling, str) else pooling
        (folder / "1_Pooling/config.json").write_text(json.dumps({"word_embedding_dimension": 32} | pooling))
        for name, facts in {
            "config_sentence_transformers": settings,
            "sentence_bert_config": transformer,
        }.items():
            if facts is not None:
                (folder / f"{name}.json").write_text(json.dumps(facts))
        return folder

    return publish


def uploaded(folder, target):
    """Write the files that `tercet push` would send."""
    for file in prepare(folder, "me/vectors").files:
        path = target / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.source if isinstance(file.source, bytes) else file.source.read_bytes())
    return target


@pytest.mark.parametrize("pooling", OLD)
@pytest.mark.parametrize("is_old", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_published_vectors_stay_the_same_wherever_their_model_goes(
    pooling, is_old, published, recipe_of, tmp_path
):
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    prompts = {"query": "the big tree: ", "document": "a fish "}
    source = published(
        {name: key == pooling for key, name in OLD.items()} if is_old else pooling,
        settings={"prompts": prompts, "default_prompt_name": None, "similarity_fn_name": "cosine"},
        transformer={"max_seq_length": 24, "do_lower_case": False},
    )
    import_model(str(source), str(tmp_path / "imported"))
    export_model(str(tmp_path / "imported"), str(tmp_path / "exported"))
    recipe = recipe_of("ranking", model={"path": str(source)}, training={"epochs": 1, "learning_rate": 1e-12})
    tuned = finetune(recipe)
    export_model(str(tuned), str(tmp_path / "exported-tuned"))
    folders = [
        tmp_path / "imported",
        tmp_path / "exported",
        tuned,
        tmp_path / "exported-tuned",
        uploaded(tuned, tmp_path / "uploaded"),
        uploaded(tmp_path / "imported", tmp_path / "uploaded-import"),
    ]
    wanted = library.SentenceTransformer(str(source), device="cpu")
    predictor = Predictor(Checkpoint.open(str(tuned)))
    found = predictor.predict(Dataset.from_dict({"query": TEXTS[:3]}))
    queries = wanted.encode_query(TEXTS[:3])
    np.testing.assert_allclose([each["embedding"] for each in found], queries, atol=1e-4)
    for folder, texts in zip(folders, (TEXTS, TEXTS, TEXTS[:3], TEXTS[:3], TEXTS[:3], TEXTS), strict=True):
        own = library.SentenceTransformer(str(folder), device="cpu")
        for name in ("encode", "encode_query", "encode_document"):
            vectors, theirs = getattr(own, name)(texts), getattr(wanted, name)(texts)
            np.testing.assert_allclose(vectors, theirs, atol=1e-4, err_msg=f"{folder.name} {name}")
    played = FindSimilar(load_model(str(source)))
    np.testing.assert_allclose(played.vectors(TEXTS[:3]).detach(), wanted.encode(TEXTS[:3]), atol=1e-4)


@pytest.mark.parametrize(
    ("pooling", "more", "complaint"),
    [
        ("cls", {"modules": ("Transformer", "Pooling", "Dense", "Normalize")}, r"Pooling \+ Dense \+ Norm"),
        ("max", {}, "by the pooling max; Tercet pools states"),
        ({"pooling_mode_max_tokens": True}, {}, "by the pooling max"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, {}, r"pooling cls \+ mean"),
        ("weightedmean", {}, "by the pooling weightedmean"),
        ({}, {}, "by the pooling none"),
        ("cls", {"transformer": {"do_lower_case": True}}, r"by settings of its own \(do_lower_case"),
        ("cls", {"transformer": {"config_args": {"is_causal": False}}}, r"own \(config_args"),
        ("cls", {"transformer": {"modality_config": {"text": {"method": "chat"}}}}, r"own \(modality_config"),
        (
            {"pooling_mode": "mean", "include_prompt": False},
            {"settings": {"prompts": {"query": "x"}}},
            "by prompts that are not pooled",
        ),
    ],
)
def test_vectors_that_ours_cannot_be_are_refused(pooling, more, complaint, published, recipe_of, tmp_path):
    source = published(pooling, **more)
    with pytest.raises(ValueError, match=f"{complaint}.*: remove modules.json from a copy to import"):
        import_model(str(source), str(tmp_path / "imported"))
    with pytest.raises(
        ValueError, match=f"{complaint}.*: set task.pooling to train the model with that alone"
    ):
        finetune(recipe_of("ranking", model={"path": str(source)}))
    assert find_vectors(source, "", "first").pooling == "first"


def test_vectors_keep_their_length_when_they_are_imported(published, tmp_path):
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    source = published("cls", modules=("Transformer", "Pooling"), settings={"similarity_fn_name": "dot"})
    with pytest.warns(
        UserWarning, match="compares vectors by dot; here, they have length 1 and are compared"
    ):
        import_model(str(source), str(tmp_path / "imported"))
    own, wanted = (
        library.SentenceTransformer(str(each), device="cpu") for each in (tmp_path / "imported", source)
    )
    np.testing.assert_allclose(own.encode(TEXTS), wanted.encode(TEXTS), atol=1e-4)


def test_length_of_texts_is_found_in_files_of_all_names(published, tmp_path):
    source = published("mean", transformer={"max_seq_length": 24})
    (source / "sentence_bert_config.json").rename(source / "sentence_distilbert_config.json")
    assert find_vectors(source, "").max_length == 24
    assert "sentence_distilbert_config.json" in {
        path.name for path in uploaded(source, tmp_path / "up").glob("*")
    }


def test_all_modules_are_sent(published, tmp_path):
    """Also of those that several have the type of (uniem issue 130)."""
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    base = [*library.SentenceTransformer(str(published("mean")), device="cpu")]
    dense = library.sentence_transformer.modules.Dense
    model = library.SentenceTransformer(
        modules=[*base[:2], dense(32, 64), dense(64, 8), base[2]], device="cpu"
    )
    model.save_pretrained(str(tmp_path / "saved"))
    sent = library.SentenceTransformer(str(uploaded(tmp_path / "saved", tmp_path / "up")), device="cpu")
    np.testing.assert_allclose(sent.encode(TEXTS[:3]), model.encode(TEXTS[:3]), atol=1e-6)


@pytest.mark.parametrize("is_saved_again", [False, True])
def test_scores_of_a_cross_encoder_stay_what_they_are(is_saved_again, bases, tmp_path):
    """Its folder says that they are no logits (sentence-transformers issue 1058), in either of two files."""
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    source, pairs = tmp_path / "source", list(pairwise(TEXTS))
    config = bert(
        bases, num_labels=1, sentence_transformers={"activation_fn": "torch.nn.modules.linear.Identity"}
    )
    BertForSequenceClassification(config).save_pretrained(source)
    AutoTokenizer.from_pretrained(bases / "encoder").save_pretrained(source)
    scorer = library.CrossEncoder(str(source), device="cpu")
    if is_saved_again:
        scorer.save_pretrained(str(source := tmp_path / "again"))
    import_model(str(source), str(tmp_path / "imported"))
    export_model(str(tmp_path / "imported"), str(tmp_path / "exported"))
    for folder in (tmp_path / "imported", tmp_path / "exported", uploaded(source, tmp_path / "uploaded")):
        own = library.CrossEncoder(str(folder), device="cpu").predict(pairs)
        np.testing.assert_allclose(own, scorer.predict(pairs), atol=1e-4, err_msg=folder.name)


def test_numbers_of_a_regression_are_those_of_a_cross_encoder(recipe_of, tmp_path):
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    rows = [{"text": text, "other": other, "score": len(other) / 4} for text, other in pairwise(TEXTS)]
    file = str(write_rows(tmp_path / "pairs.jsonl", rows * 4))
    recipe = recipe_of(
        "regression", task={"texts": ["text", "other"]}, data={"train": file, "validation": file}
    )
    predictor = Predictor(Checkpoint.open(str(tuned := finetune(recipe))))
    found = predictor.predict(Dataset.from_list(rows))
    wanted = library.CrossEncoder(str(tuned), device="cpu").predict(list(pairwise(TEXTS)))
    np.testing.assert_allclose([each["score"] for each in found], wanted, atol=1e-4)


@pytest.mark.parametrize(
    ("member", "pooling"),
    [("encoder", "mean"), ("encoder", "first"), ("decoder", "mean"), ("decoder", "last")],
)
def test_vectors_are_those_of_sentence_transformers(member, pooling, recipe_of, tmp_path):
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    overrides = {"overrides": {"classifier_pooling": pooling}}
    folder = finetune(recipe_of("ranking", member, model=overrides, training={"epochs": 1}))
    texts = [row["text"] for row in classification_rows(12, 3)]
    rows = write_rows(tmp_path / "queries.jsonl", [{"query": text} for text in texts])
    predict_file(str(folder), str(rows), str(tmp_path / "vectors.jsonl"))
    ours = [json.loads(line)["embedding"] for line in (tmp_path / "vectors.jsonl").read_text().splitlines()]
    theirs = library.SentenceTransformer(str(folder), device="cpu").encode(texts)
    np.testing.assert_allclose(np.array(ours), theirs, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "prompts"),
    [
        ({"prompts": {"query": "q: ", "passage": "p: "}}, ("q: ", "p: ")),
        ({"prompts": {"query": "q: "}}, ("q: ", "")),
        ({"prompts": {"all": "x "}, "default_prompt_name": "all"}, ("x ", "x ")),
        ({"prompts": {}}, ("", "")),
        (None, ("", "")),
    ],
)
def test_prompts_are_found_by_their_names(settings, prompts, published):
    found = find_vectors(published("mean", settings=settings), "")
    assert (found.query_prompt, found.document_prompt) == prompts


def test_a_recipe_has_the_last_word(published, recipe_of):
    source = published("cls", settings={"prompts": {"query": "q: "}}, transformer={"max_seq_length": 24})
    recipe = recipe_of("ranking", model={"path": str(source)})
    found = find_inputs(recipe).recipe
    assert (found.task.pooling, found.task.query_prompt, found.data.max_length) == ("first", "q: ", 24)
    recipe = recipe_of(
        "ranking",
        model={"path": str(source)},
        task={"pooling": "last", "query_prompt": "", "document_prompt": "d"},
        data={"max_length": 60},
    )
    found = find_inputs(recipe).recipe
    assert (found.task, found.data) == (recipe.task, recipe.data)
