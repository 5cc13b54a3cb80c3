"""What counts as prose in a docstring."""

import pytest

from tercet.data.embedded_corpus import is_prose, prose_paragraphs

GOOGLE = """Compute the loss of the model on a batch.

    This is *much* faster than calling :meth:`~torch.nn.Module.forward` with ``labels``,
    see the [documentation](https://example.org/page) for the reasons.

    Args:
        labels (`list[int]`, *optional*, defaults to `None`):
            The labels that the model should predict for this batch.
        scale: Whether the loss is to be scaled by its number of labels.

    Example:

    ```python
    >>> loss = model.loss(batch)  # this is not a sentence of the text.
    ```
    """

NUMPY = """
    Mean of the values along an axis of the array.

    Parameters
    ----------
    axis : int, optional
        The axis along which the mean is to be computed.

    Examples
    --------
    >>> mean([1, 2])
    1.5

    .. code-block:: python

        this is code that should not be in the text at all.

    .. note:: The result is always a number with a fraction, as it should be.

    The following example shows what it is good for::

        and this is the example that belongs to it.
    """


def test_sentences_remain_and_markup_goes_google():
    assert prose_paragraphs(GOOGLE) == [
        "Compute the loss of the model on a batch.",
        "This is much faster than calling forward with labels, see the documentation for the reasons.",
        "The labels that the model should predict for this batch.",
        "Whether the loss is to be scaled by its number of labels.",
    ]


def test_sentences_remain_and_markup_goes_numpy():
    assert prose_paragraphs(NUMPY) == [
        "Mean of the values along an axis of the array.",
        "The axis along which the mean is to be computed.",
        "The result is always a number with a fraction, as it should be.",
    ]


@pytest.mark.parametrize(
    "paragraph",
    [
        "Too few words.",
        "The sentence breaks off in the middle of the",
        "x = f(y) + g(z) if the_value_is_set else h[0] is the formula.",
        "Foo Bar Baz Qux Quux Corge Grault Garply.",
        r"The value of \frac{a}{b} is \alpha.",
        "",
    ],
)
def test_labels_code_and_fragments_are_no_prose(paragraph):
    assert not is_prose(paragraph)


@pytest.mark.parametrize("character", ["\0", "\x1b", "\ufffe"])
def test_what_no_reader_sees_is_no_prose(character):
    sentence = "The number that stands at the beginning of the file is {}, and it is not to be changed."
    assert is_prose(sentence.format("one"))
    assert not is_prose(sentence.format(character))
