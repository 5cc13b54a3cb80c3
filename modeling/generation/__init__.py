"""Generation: fewer steps and faster products than those of one forward pass after another."""
