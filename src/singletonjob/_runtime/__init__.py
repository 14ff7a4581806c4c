"""One start of an app: the service, the heartbeat, one runner per job, and the parts of a term.

Three kinds of threads take part, and each owns what it writes:

    heartbeat thread (a separate loop)        job loop (asyncio)                    worker threads (sync bodies)
    Elector.poll -> store.exchange            Runner: one task per job              body(run)
    Elector.receive -- effects ------------>  Service: begin, drain, end a term     run.check()
    writes HEARTBEAT_WRITES of a Lease ---->  Fence reads the deadline
    reads SignsOfLife, Lease.limit <--------  writes SignsOfLife.alive_at and the other attributes of a Lease

- The heartbeat does not run on the job loop, so that a body that blocks the job loop does not lose the lease by that.
- Only the heartbeat thread calls the elector. Other threads use `Heartbeat.post` and the calls of `Orders`, and read
  `Elector.standings`, which is a new immutable copy after each change.
- Only the job loop calls a runner. The heartbeat reaches it by `deliver`, which posts to the job loop.
- Both threads may call `Lease.drain` and `Lease.end`. These never go back, so their order does not matter.
- A worker thread reads its `Lease` and reports the end of its call in `Lease.threads`, which has a lock.

tests/fundamentals/test_thread_owners.py fails if another thread calls the elector or a runner, or writes a lease.
"""
