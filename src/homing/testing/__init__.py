"""Test what you build on homing, and homing itself: doubles, clocks, disks, a whole simulation.

- RecordingLink, RecordingPort, ManualClock: call a role by hand and look at the lists.
- Simulation: many nodes, a seeded network with faults, virtual time, one thread.
- FaultPlan and the faults: what goes wrong, as data.
- fabric: a real broker in this process, for tests of your own clients and workers.
- explore, seeds, shrink: the same scenario under thousands of seeds.
"""

from __future__ import annotations

from homing.testing.clock import EPOCH, ManualClock
from homing.testing.conditions import LAN, LOCAL, WAN, Conditions, Line
from homing.testing.disk import Disk, File
from homing.testing.explore import explore, seeds, shrink
from homing.testing.fabric import Fabric, fabric
from homing.testing.failure import SimulationFailure
from homing.testing.faults import (
    AnyFault,
    Crash,
    Disconnect,
    Duplicate,
    Fault,
    FaultPlan,
    FullDisk,
    Partition,
    Pause,
    Skew,
    Slow,
    SlowDisk,
)
from homing.testing.host import SimHost
from homing.testing.link import SimLink
from homing.testing.probe import Probe
from homing.testing.recording import RecordingLink, RecordingPort
from homing.testing.simulation import Node, Simulation
from homing.testing.trace import Trace

__all__ = [
    "EPOCH",
    "LAN",
    "LOCAL",
    "WAN",
    "AnyFault",
    "Conditions",
    "Crash",
    "Disconnect",
    "Disk",
    "Duplicate",
    "Fabric",
    "Fault",
    "FaultPlan",
    "File",
    "FullDisk",
    "Line",
    "ManualClock",
    "Node",
    "Partition",
    "Pause",
    "Probe",
    "RecordingLink",
    "RecordingPort",
    "SimHost",
    "SimLink",
    "Simulation",
    "SimulationFailure",
    "Skew",
    "Slow",
    "SlowDisk",
    "Trace",
    "explore",
    "fabric",
    "seeds",
    "shrink",
]
