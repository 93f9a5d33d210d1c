"""What Spark's executors need of homing, as one archive for `spark-submit --archives`.

    python -m scripts.spark_archive dist          # dist/homing-spark-VERSION.tar.gz
    spark-submit --archives homing-spark-0.1.0.tar.gz#homing --conf spark.executorEnv.PYTHONPATH=homing …

It holds homing and those of its dependencies that PySpark itself does not ask for; pyarrow, numpy
and pandas are on every machine that runs PySpark with Arrow. Files come from the environment
that runs this, so it must have the executors' Python version and platform.
"""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import homing

BUNDLED = ("msgspec", "numba", "llvmlite")
# numba's own tests are half of it.
LEFT_OUT = ("__pycache__", "tests", "testing")


def files(name: str) -> Iterator[tuple[Path, str]]:
    """Where each file of an installed distribution is, and what it is called in the archive."""
    found = distribution(name)
    for file in found.files or ():
        inside = not set(file.parts) & set(LEFT_OUT) and ".." not in file.parts
        if inside and not file.is_absolute():
            yield Path(str(found.locate_file(file))), str(file)


def own_files() -> Iterator[tuple[Path, str]]:
    """The same of homing itself, wherever it is run from."""
    root = Path(homing.__file__).parent
    for path in sorted(root.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path, str(Path("homing") / path.relative_to(root))


def write(target: Path, bundled: tuple[str, ...] = BUNDLED) -> Path:
    """Write the archive into a directory; its path."""
    target.mkdir(parents=True, exist_ok=True)
    path = target / f"homing-spark-{homing.__version__}.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=3) as archive:
        for source, name in own_files():
            archive.add(source, name)
        for each in bundled:
            for source, name in files(each):
                archive.add(source, name)
    return path


if __name__ == "__main__":
    print(write(Path(sys.argv[1])))
