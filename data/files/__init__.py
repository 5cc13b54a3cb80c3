"""Files that are read: text, rows, templates, and what is wrong with them."""
