"""One start of an app: the service, the heartbeat, a runner per job, and what a term is made of.

Three kinds of threads take part, and each owns what it writes:

    heartbeat thread (a loop of its own)      job loop (asyncio)                  worker threads (sync bodies)
    Elector.poll -> store.exchange            Runner, one task per job            body(run)
    Elector.receive -- effects ------------>  Service: begin, drain, end a term   run.check()
    writes Lease.deadline, sent, told ----->  Fence re-reads the deadline
    reads Pulse.alive_at, Lease.limit <-----  stamps Pulse.alive_at, writes the rest of Lease

- The heartbeat never runs on the loop that it certifies: a body that blocks the job loop must not lose the lease.
- Only the heartbeat thread touches the elector. Others reach it by `Heartbeat.post` and the calls of `Orders`.
- Only the job loop touches runners. The heartbeat reaches them by `deliver`, which posts to the job loop.
- A worker thread reads its `Lease` and signals the end of its call; it writes nothing else.
"""
