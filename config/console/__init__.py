"""The Django admin as the operations console, one folder for each noun; `parts` is what they share, `theme` the navigation."""
