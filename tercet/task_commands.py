"""The commands of `tercet` about tasks, students and prompts. A command's docstring is its help."""

import json
from argparse import Namespace


def finetune(options: Namespace) -> None:
    """Teach a pretrained model a task, as a recipe says, and tell honestly how well it knows it.

    Begins with any model of Tercet's or a stock one, learns from labelled rows (.jsonl, .csv, .tsv, .parquet,
    or a data set of the Hub), keeps the best checkpoint, and writes OUTPUT/model, which pipelines load, and
    OUTPUT/report.html: scores with intervals beside baselines, by label, over time, and the worst errors.

    Examples:
      tercet finetune text-classification model.path=runs/encoder-demo/model data.train=reviews.csv
      tercet finetune my-recipe.yaml training.seeds=[0,1,2] training.learning_rate=3e-5 --resume
    """
    from accelerate import PartialState

    from .configs.recipe import load_recipe
    from .finetune.recipe import FineTuningRecipe
    from .finetune.run import finetune as run

    recipe = load_recipe(FineTuningRecipe, options.recipe, options.overrides)
    folder = run(recipe, resume=options.resume, overwrite=options.overwrite)
    PartialState().print(folder)  # once, however many processes there are


def distill(options: Namespace) -> None:
    """Teach a smaller model what a larger one knows, and tell how much it keeps and how much it saves.

    The student begins with some of the teacher's layers and learns from raw text what a pretrained teacher
    expects, from rows what a fine-tuned one answers, or both in this order. The teacher is any model of
    Tercet's or a stock one. Writes OUTPUT/model, and OUTPUT/report.html: scores beside the teacher's with
    intervals, sizes and times, and the same student without a teacher and from random weights.

    Examples:
      tercet distill encoder-distilled general.teacher=runs/encoder-english/model
      tercet distill task-distilled task.teacher=runs/reviews/model task.data.train=reviews.csv --resume
    """
    from accelerate import PartialState

    from .configs.recipe import load_recipe
    from .distill.recipe import DistillationRecipe
    from .distill.run import distill as run

    recipe = load_recipe(DistillationRecipe, options.recipe, options.overrides)
    folder = run(recipe, resume=options.resume, overwrite=options.overwrite)
    PartialState().print(folder)  # once, however many processes there are


def predict(options: Namespace) -> None:
    """Predict the rows of a file with a fine-tuned model: a line of JSON for each, in their order.

    Rows need the columns that the model reads, and no labels. They are read and written a thousand at a time,
    whatever the size of the file, and what was written before an interruption is kept: --resume goes on.

    Examples:
      tercet predict runs/reviews/model new-reviews.csv --output labels.jsonl
      echo '{"text": "I liked it."}' | tercet predict runs/reviews/model - --output -
    """
    import sys

    from .finetune.prediction import predict_file

    rows = predict_file(
        options.model,
        options.file,
        options.output,
        resume=options.resume,
        overwrite=options.overwrite,
        precision=options.precision,
    )
    print(f"{rows:,} rows", file=sys.stderr)


def fewshot(options: Namespace) -> None:
    """Evaluate a pretrained model by prompts: zero-, one- and few-shot, the same prompts for all members.

    A recipe names rows, templates of prompt and answers, and the number of demonstrations in a prompt
    (`prompting.num_fewshot`). Answers are scored by log-likelihoods: of the continuation (decoders), of the
    target (sequence-to-sequence models), or pseudo-log-likelihoods (encoders). Writes OUTPUT/report.html,
    results.json and a line for every item; weights are not changed. Files of rows are looked for in
    data.folder. --explain shows which tokens are scored, and stops.

    Examples:
      tercet fewshot copa --model runs/decoder-english/model data.folder=data
      tercet fewshot my-task.yaml --model gpt2 --model runs/mine/model prompting.num_fewshot=[0,1,4] --explain
    """
    from .configs.recipe import load_recipe
    from .fewshot.explanation import explain
    from .fewshot.recipe import FewShotRecipe
    from .fewshot.run import fewshot as run

    models = [] if not options.model else [f"models={json.dumps(options.model)}"]
    recipe = load_recipe(FewShotRecipe, options.recipe, [*models, *options.overrides])
    trusted = options.trust_remote_code
    if options.explain:
        print(explain(recipe, trust_remote_code=trusted))
        return
    print(run(recipe, resume=options.resume, overwrite=options.overwrite, trust_remote_code=trusted))
