"""One model made of another: read as another member, grown, or of vectors that another program learned."""
