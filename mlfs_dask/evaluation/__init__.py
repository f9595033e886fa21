"""How good chosen features are: classifiers, metrics, splits, and the experiment that brings them together."""
