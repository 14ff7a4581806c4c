"""The time on the nodes of a Cluster. Pure.

Each node has a clock of its own, and the elector knows one *clock of the store*: it takes `Reply.clock` at the arrival
of a reply and adds 99 % of the time that has passed here since, and what the call may take, to get `Batch.void_at`,
the time after which the store must not carry the call out. With several nodes no server's clock can be that one: a
`void_at` read from a node that is ahead would let a late call run on a node that is behind, in a term of another.

So the clock of the store is this replica's own boot clock: `Reply.clock` is a reading of it, taken before the reply is
handed over, and `void_at` is a moment L on it, at the latest the one at which the elector gives the call up. What the
elector relies on is: *when L has passed here, no node carries the call out any more.* For each node that follows from
a reading of its own clock, by the same rule that the elector uses with a single server. The node said `wall` before
that arrived here at `arrived`; its clock runs at 99 % of ours at the least; so when it is L here, it is
`wall + 0.99 * (L - arrived)` there at the least. A call that is void after that time is void when L has passed. How
long the reading was on its way makes the node's true time later, which is the safe side; so does a reading that is
old, and then the node may find the call void that is in time: it says so with its time, and is asked again once.

The readings of one node say nothing about another, and there is no offset between nodes anywhere.

A node that was restarted may have forgotten its leases (S8). That, too, is a matter of each node: its up-time is read
on each new connection to it and counts from the arrival of the reply. While it has been up for less than
`lock_expiry + 1 s`, no acquisition is sent to it, on whatever connection; the others are not held back by it.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

__all__ = ["NodeClock"]


class NodeClock(NamedTuple):
    """What was last read of a node's clock.

    `wall`: its clock, in microseconds; `arrived`: when the reading was here; `up_since`: the node started no later
    than that, -inf where it does not tell. The latter two in seconds on the boot clock.
    """

    wall: int
    arrived: float
    up_since: float = -inf

    def at(self, moment: float) -> int:
        """A time that the node's clock will have reached by `moment`, which is not before `arrived`."""
        return self.wall + int(0.99 * (moment - self.arrived) * 1e6)

    def may_have_forgotten(self, now: float, lock_expiry: float) -> bool:
        """Whether a lease of that length, given before the node started, may still run."""
        return now < self.up_since + lock_expiry + 1

    def up_from(self, wall: int, sent: float) -> int | None:
        """When the node started, or a little later, on its own clock, by which it was `wall` after `sent`."""
        return None if self.up_since == -inf else wall - int((sent - self.up_since) * 1e6)
