"""The commands of `tercet` for fine-tuning, distillation and prompting. A command's docstring is its help."""

import json
from argparse import Namespace

from .endings import distillation_ending, finetuning_ending, prompting_ending, tell


def finetune(options: Namespace) -> None:
    """Fine-tune a pretrained model on labelled rows, and report its scores with intervals and baselines.

    Starts from any Tercet model or a stock one, trains on labelled rows (.jsonl, .csv, .tsv, .parquet, or a
    data set of the Hub) and keeps the best checkpoint. Writes OUTPUT/model, which pipelines load, and
    OUTPUT/report.html: scores with intervals and baselines, scores per label and over time, and the worst
    errors.

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
    if PartialState().is_main_process:
        tell(finetuning_ending, recipe.folder)
        print(folder)


def distill(options: Namespace) -> None:
    """Distill a model into a smaller one, and report how much quality it keeps and how much it saves.

    The student is initialized with some of the teacher's layers. It learns from a pretrained teacher on raw
    text, from a fine-tuned teacher on rows, or first from the one and then from the other. The teacher is any
    Tercet model or a stock one. Writes OUTPUT/model and OUTPUT/report.html: scores of student and teacher
    with intervals, sizes and times, and two controls: the same student trained without a teacher, and from
    random weights.

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
    if PartialState().is_main_process:
        tell(distillation_ending, recipe.folder)
        print(folder)


def predict(options: Namespace) -> None:
    """Predict the rows of a file with a fine-tuned model, and write one line of JSON per row.

    Rows need the columns that the model reads, and no labels. They are read and written a thousand at a time,
    so a file may have any size. After an interruption, --resume continues with the rows that are missing.

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
    print(f"{rows:,} {'row' if rows == 1 else 'rows'}", file=sys.stderr)


def fewshot(options: Namespace) -> None:
    """Evaluate pretrained encoders, decoders and seq2seq models with zero-, one- and few-shot prompts.

    A recipe defines the rows, the templates of prompts and answers, and the number of demonstrations in a
    prompt (`prompting.num_fewshot`). Answers are scored by the log-likelihood of the continuation (decoders)
    or of the target (sequence-to-sequence models), or by pseudo-log-likelihood (encoders). Weights do not
    change. Writes OUTPUT/report.html, results.json and one line for every item. Files of rows are searched
    in data.folder. --explain only shows which tokens are scored.

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
    folder = run(recipe, resume=options.resume, overwrite=options.overwrite, trust_remote_code=trusted)
    tell(prompting_ending, folder)
    print(folder)
