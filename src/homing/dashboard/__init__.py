"""The page on port 7007: what a fabric does right now, `/metrics`, and a panel to try it."""
