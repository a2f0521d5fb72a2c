"""One file an experiment: story, hypothesis, load, fault, checks, restore. Copy one to make another."""
