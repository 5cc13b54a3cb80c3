"""Draw BLEU by the length of the source for one or several translation models.

    python examples/bleu_by_length.py RECURRENT WITHOUT_ATTENTION TRANSFORMER test_2016_flickr.jsonl.gz

Does attention rescue long sentences (Bahdanau et al., 2015, figure 2)? A model without attention is trained
by `tercet pretrain translation-multi30k-recurrent model.overrides.attention_score=none output=...`. Prints a
table, and draws a curve for each model with its 95 % intervals.
"""

import argparse
from pathlib import Path

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from tercet.pretraining.translation_scores import LengthGroup, bleu_by_length, translate
from tercet.reporting.line_charts import LinePanel, draw_lines
from tercet.text.row_files import read_file


def panel_of(measured: dict[str, list[LengthGroup]]) -> LinePanel:
    """Lay out the curves of all models."""
    return LinePanel(
        "BLEU by length of the source",
        "words of the source",
        {name: [(each.mean_length, each.bleu) for each in groups] for name, groups in measured.items()},
        {name: [each.interval for each in groups] for name, groups in measured.items()},
    )


def measure(name: str, options: argparse.Namespace) -> list[LengthGroup]:
    """Let a model translate, and print its scores."""
    columns = (options.source, options.target)
    rows = read_file(options.pairs, columns)
    sources, references = (list(rows[column])[: options.rows] for column in columns)
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(name), AutoTokenizer.from_pretrained(name)
    with torch.inference_mode():
        written = translate(model.eval(), tokenizer, sources, num_beams=options.beams)
    groups = bleu_by_length(sources, written, references, num_groups=options.groups, lowercase=True)
    print(name)
    for each in groups:
        low, high = each.interval
        print(
            f"  {each.shortest:3} to {each.longest:3} words, {each.num_rows:5} rows: "
            f"BLEU {each.bleu:5.1f} [{low:.1f}, {high:.1f}]"
        )
    return groups


def main() -> None:
    """Translate, score, and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", help="folders of trained models")
    parser.add_argument("pairs", help="JSON lines with a column for either language")
    parser.add_argument("--source", default="en", help="column to read")
    parser.add_argument("--target", default="de", help="column to compare with")
    parser.add_argument("--beams", type=int, default=1, help="width of the search")
    parser.add_argument("--groups", type=int, default=5, help="groups of rows by length")
    parser.add_argument("--rows", type=int, default=10_000, help="most rows")
    parser.add_argument("--picture", type=Path, default=Path("bleu-by-length.png"))
    options = parser.parse_args()
    try:
        measured = {name: measure(name, options) for name in options.models}
    except (OSError, ValueError) as error:
        parser.error(str(error))
    draw_lines([panel_of(measured)], options.picture)
    print(options.picture)


if __name__ == "__main__":
    main()
