"""What counting words can tell."""

from tercet.demo.baselines import predict_by_words


def test_words_tell_labels_apart_in_any_order():
    train = (
        ["tensor loss", "graph node", "loss of a tensor", "node in a graph"] * 5,
        ["a", "b", "a", "b"] * 5,
    )
    assert predict_by_words(train, train, ["a tensor", "node graph", "tensor the loss"]) == ["a", "b", "a"]
