"""One model made of another: read as another member, or of vectors that another program learned."""
