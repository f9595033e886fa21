"""Methods with their papers' graphs, on rows in memory: `--graph exact`, and published programs.

Each module is one method in plain NumPy, SciPy and scikit-learn, for data that one process holds. They are what the
forms with anchors are compared with, and what reproduces a paper.
"""
