"""A file system that is really full: work is refused, nothing accepted is lost, and it goes on.

The story runs in a process that may mount a small tmpfs in a name space of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

STORY = """
import json, sys, time
from pathlib import Path
from queue import SimpleQueue, Empty
from homing.errors import DiskFull
from homing.journal.events import PublicationAccepted
from homing.journal.reader import read
from homing.journal.writer import open_journal

root = Path(sys.argv[1])
ballast = root / "ballast"
ballast.write_bytes(bytes(512 << 10))
posted = SimpleQueue()
journal = open_journal(root / "j", b"node0001", post=posted.put, on_durable=lambda number: None)

def turn():
    try:
        posted.get(timeout=0.01)()
    except Empty:
        pass

def accept(number):
    event = PublicationAccepted(1.0, number.to_bytes(12, "big"), b"p", b"{}", bytes(20_000))
    return journal.append(event)

accepted, refused = [], ""
for number in range(200):
    try:
        accepted.append(accept(number))
    except DiskFull as error:
        refused = str(error)
        break
    turn()
full_at = len(accepted)
ballast.unlink()
end = time.monotonic() + 30
while journal.durable < accepted[-1] and time.monotonic() < end:
    turn()
caught_up = journal.durable >= accepted[-1]
accepted.append(accept(500))
while journal.durable < accepted[-1] and time.monotonic() < end:
    turn()
journal.close()
found = [record.number for record in read(root / "j")]
print(json.dumps([refused, full_at, caught_up, found == accepted]))
"""


def mounted(script: str, where: Path) -> list[str]:
    """The command that runs a script on a megabyte of tmpfs."""
    mount = f'mount -t tmpfs -o size=1m tmpfs {where} && exec {sys.executable} -c "$0" {where}'
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, script]


def test_a_full_file_system_refuses_and_recovers(tmp_path: Path) -> None:
    done = subprocess.run(mounted(STORY, tmp_path), capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    refused, full_at, caught_up, whole = json.loads(done.stdout)
    assert "No space left" in refused
    assert 5 < full_at < 100
    assert caught_up
    assert whole
