"""Claims of the literature as studies: each is measured with the family's own parts, and gets a verdict."""
