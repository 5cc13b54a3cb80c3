"""Which tokens of a prompt are scored: the answer to `tercet fewshot --explain`."""

from collections.abc import Iterator

from .demonstrations import Demonstrations
from .prompting import Prompter, Question
from .recipe import FewShotRecipe
from .request import Request
from .rows import read_items
from .subject import Subject, load_subject
from .task_recipes import GenerationRecipe

SHOWN = 12
"""Tokens of the context that are shown before the answer."""


def explain(recipe: FewShotRecipe, *, trust_remote_code: bool = False) -> str:
    """Write the first item as each model reads it, with the largest K and the first seed.

    Raises:
        ValueError: As in `fewshot`.
        FileNotFoundError: As in `fewshot`.
    """
    if not recipe.models:
        raise ValueError("no model is named: pass --model, or set models in the recipe")
    items = read_items(recipe)
    drawer = Demonstrations(
        items.demonstrations, recipe.asking, are_test=items.are_one_split, place=items.place
    )
    drawn = [drawer.draw(items.test[0], max(recipe.asking.shots), recipe.asking.seeds[0])]
    lines = []
    for name in recipe.models:
        subject = load_subject(name, trust_remote_code=trust_remote_code)
        prompter = Prompter(subject, subject.prompts(recipe.asking.policy), recipe.task, items.place)
        if isinstance(recipe.task, GenerationRecipe):
            (question,) = prompter.pose_to_write(items.test[:1], drawn, recipe.task.max_new_tokens)
        else:
            (question,) = prompter.pose(items.test[:1], drawn)
        lines += explain_question(subject, question)
    return "\n".join(lines)


def explain_question(subject: Subject, question: Question) -> Iterator[str]:
    """Write what a model is asked, line by line."""
    yield f"{subject.name} ({subject.member}), row {question.item.number + 1}:"
    if question.dropped or question.cut:
        yield f"  {question.dropped} demonstrations dropped, {question.cut} tokens of the context cut off"
    for prompt in dict.fromkeys(prompt.context for prompt in question.prompts):
        yield "  | " + prompt.replace("\n", "\n  | ")
    texts = question.item.answers or question.item.references
    for number, (text, request) in enumerate(zip(texts, question.requests, strict=False)):
        mark = "right" if number == question.item.right else "wrong"
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
    yield f"    scored, {len(request.answer)} tokens: {shown(request.answer) or 'none, the model writes'}"
    if request.suffix:
        yield f"    behind it: {shown(request.suffix)}"
