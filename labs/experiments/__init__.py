"""One file per experiment: story, hypothesis, load, fault, checks, restore. Copy one to make another."""
