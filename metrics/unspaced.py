"""Scripts that are written without spaces: where words cannot be told apart, characters count instead."""

import re

UNSPACED_CHARACTER = re.compile(
    "["
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f"  # Burmese
    "\u1780-\u17ff"  # Khmer
    "\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Japanese
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese
    "]"
)
"""One character of Chinese, Japanese, Thai, Lao, Khmer or Burmese; Korean has spaces."""


def space_out(text: str) -> str:
    """Put spaces around every character of an unspaced script, so that splitting gives it as a word.

    >>> space_out("BERT模型 is").split()
    ['BERT', '模', '型', 'is']
    """
    return UNSPACED_CHARACTER.sub(r" \g<0> ", text)
