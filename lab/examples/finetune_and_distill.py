"""Fine-tune a classifier on the rows of a DataFrame, and distill it into a model with half the layers.

    python lab/examples/finetune_and_distill.py reviews.csv sentence-transformers/all-MiniLM-L6-v2

The file has the columns `text` and `label`; a tenth of its rows is held out. Any model folder or Hub id will
do.
"""

import sys
from collections.abc import Sequence

import pandas

import tercet


def main(file: str, model: str, overrides: Sequence[str] = ()) -> None:
    """Train the teacher, then the student; print their scores, and what the student says of some rows.

    Args:
        file: The rows.
        model: What the teacher begins with.
        overrides: Of the recipe `text-classification`.
    """
    rows = pandas.read_csv(file)
    settings = ["output=runs/teacher", *overrides]
    teacher = tercet.finetune("text-classification", *settings, rows=rows, model=model, overwrite=True)
    print("teacher: accuracy", teacher.scores["accuracy"])
    student = tercet.distill(
        "task-distilled",
        "report.speed=false",  # true measures times as well: run no other programs then
        rows=rows,
        task__teacher=str(teacher.model_path),
        output=f"{teacher.folder}-distilled",
        overwrite=True,
    )
    for name, score in student.scores.items():
        print(f"{name}: {score}")
    texts = list(rows["text"][:3])
    for text, answer in zip(texts, tercet.predict(student, texts), strict=True):
        print(f"{answer['label']}: {text}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
