"""Files read and written: text and rows in every format, whole files or none, locks, templates of others."""
