"""Texts that the report shows first: the same in every demonstration, written before any model saw them."""

GAPS = (
    ("The function returns a ", "list", " of all files in the directory."),
    ("Raise an ", "error", " if the value is not a number."),
    ("The matrix has as many rows as ", "columns", "."),
    ("If no name is given, the ", "default", " value is used."),
)
"""What stands before a hidden word, the word that the author had in mind, and what stands behind it."""

BEGINNINGS = (
    "Return a list of",
    "If the file does not exist,",
    "The input tensor must have",
    "This function is used to",
)
"""What a decoder goes on from."""

TELEGRAMS = (
    "return number rows table",
    "convert string list integers",
    "raise error when file cannot opened",
    "this method called before training starts",
)
"""What a sequence-to-sequence model writes out."""

PARAGRAPHS = (
    "Draw a horizontal line across the axes, with the given colour and width, and add it to the legend.",
    "Compute the gradient of the loss with respect to all parameters that require one, and add it to theirs.",
    "Return the shortest path between two nodes, as a list of nodes, where every edge has a weight.",
    "Group the rows by the values of a column, and sum every group; missing values are left out.",
    "Simplify the expression, and return an equivalent one in which the symbol stands only once.",
)
"""What a fine-tuned encoder places."""
