"""Side by side with peers: `make bench [ONLY=area]`.

Each area is a package `benchmarks.<area>` with `run(report)`; what it measures goes through
`benchmarks.harness.Report` into `results/<area>.json`, a page and plots in `docs/benchmarks/`.
"""
