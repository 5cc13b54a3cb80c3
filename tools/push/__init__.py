"""Models on the Hub: what is published, the card, and the commit."""
