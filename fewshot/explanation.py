"""Which tokens of a prompt are scored: the answer to `tercet fewshot --explain`."""

from collections.abc import Iterator

from ..modeling.saved.checkpoint import Checkpoint
from .evaluation import drawer_of, prompter_of
from .prompts.prompting import Query
from .prompts.request import Request
from .recipe import FewShotRecipe
from .rows import read_items
from .subject import Subject, load_subject

SHOWN = 12
"""Tokens of the context that are shown before the answer."""


def explain(recipe: FewShotRecipe, *, trust_remote_code: bool = False) -> str:
    """Write the first item as each model reads it, with the largest K and the first seed."""
    if not recipe.models:
        raise ValueError("no model is named: pass --model, or set models in the recipe")
    prompting = recipe.prompting
    items = read_items(recipe.task.build(), recipe.data, prompting)
    draw = drawer_of(items, prompting).draw
    drawn = [draw(items.test[0], max(prompting.num_fewshot), prompting.seeds[0])]
    lines = []
    for name in recipe.models:
        checkpoint = Checkpoint.open(name, trust_remote_code=trust_remote_code)
        subject = load_subject(checkpoint, head=prompting.head)
        prompter = prompter_of(items, subject, prompting.policy)
        (query,) = items.task.queries(prompter, items.test[:1], drawn)
        lines += explain_query(subject, query)
    return "\n".join(lines)


def explain_query(subject: Subject, query: Query) -> Iterator[str]:
    """Write the prompt and the answers that a model scores, line by line."""
    yield f"{subject.checkpoint.name} ({subject.member}), row {query.item.number + 1}:"
    if query.dropped or query.cut:
        yield f"  {query.dropped} demonstrations dropped, {query.cut} tokens of the context truncated"
    for prompt in dict.fromkeys(prompt.context for prompt in query.prompts):
        yield "  | " + prompt.replace("\n", "\n  | ")
    texts = query.item.answers or query.item.references
    for number, (text, request) in enumerate(zip(texts, query.requests, strict=False)):
        mark = "correct" if number == query.item.target else "wrong"
        yield f"  answer {number} ({mark}): {text!r}"
        yield from explain_request(subject, request)


def explain_request(subject: Subject, request: Request) -> Iterator[str]:
    """Write the tokens of one answer, and what stands around them."""

    def shown(ids: tuple[int, ...]) -> str:
        tokens = subject.tokenizer.convert_ids_to_tokens(list(ids))
        return " ".join(f"{token}({token_id})" for token, token_id in zip(tokens, ids, strict=True))

    source = "source" if subject.member == "seq2seq" else "context"
    begin = "... " if len(request.context) > SHOWN else ""
    yield f"    {source}, {len(request.context)} tokens: {begin}{shown(request.context[-SHOWN:])}"
    if request.lead:
        yield f"    target begins with: {shown(request.lead)}"
    yield f"    scored, {len(request.answer)} tokens: {shown(request.answer) or 'none, the model generates'}"
    if request.suffix:
        yield f"    after it: {shown(request.suffix)}"
