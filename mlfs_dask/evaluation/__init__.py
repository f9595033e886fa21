"""Evaluation of selected features: classifiers, metrics, splits, and the experiment that brings them together."""
