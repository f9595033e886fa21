"""Results as tables, figures and one page; reads only what runs, evaluations and comparisons have left behind."""
