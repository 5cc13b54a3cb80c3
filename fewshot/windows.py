"""Long texts in windows that a model reads at once.

Every token is scored once. A decoder's windows follow one another, each behind as much of the text before it
as there is room for, the rolling windows of lm-evaluation-harness; other members read pieces.
"""

from collections.abc import Iterator
from dataclasses import replace

from .request import Request
from .subject import Subject


def windows_of(subject: Subject, request: Request) -> list[Request]:
    """Divide a text, which is a request's answer, into windows."""
    if subject.member == "decoder":
        return list(rolling(request, subject.max_length))
    frame = len(request.lead) if subject.member == "seq2seq" else len(request.context) + len(request.suffix)
    size = max(1, subject.max_length - frame)
    return [
        replace(
            request,
            answer=request.answer[begin : begin + size],
            words=request.words[begin : begin + size],
        )
        for begin in range(0, len(request.answer), size)
    ]


def rolling(request: Request, size: int) -> Iterator[Request]:
    """Yield windows of `size` tokens; the last one has more before what it scores."""
    ids = request.answer
    size -= len(request.context) - 1
    yield Request(request.context, ids[:size])
    for begin in range(size, len(ids), size):
        end = min(begin + size, len(ids))
        yield Request(ids[end - size - 1 : begin], ids[begin:end])
