"""Three processes with three jobs of a slot each second, clocks up to 2 s off: 200 hand-overs on each store.

At a random moment the leader of a job gets SIGTERM or SIGKILL. The promise (S6): no slot runs twice; each one runs, or
is reported as missed or interrupted. Fewer with `--times N`; `--store redis|sqlite|both`, `--seed S`.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from chaos.plan import StoreKind
from chaos.slots import OFF, OPTIONS, play
from redis_replicas import RedisFleet
from replicas import Fleet
from servers import Server
from soak._evidence import arguments, conclude, say

if TYPE_CHECKING:
    from collections import Counter

    from chaos.slots import Account
    from replicas import HandOver

TIMES = 200
PAUSE = 1.5
"""From one hand-over to the next, in seconds, at most."""
KIND = "valkey-9"


def listed(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in counts.most_common()) or "none"


def on(store: StoreKind, seed: str, times: int) -> Account:
    """A round on that store; tells each hand-over."""
    count = 0

    def tell(done: HandOver) -> None:
        nonlocal count
        count += 1
        say(f"{store} {count:3}  {done.old} -> {done.new}  {done.since_signal * 1000:.0f} ms after the signal")

    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        if store == "redis":
            server = stack.enter_context(Server(KIND, directory))
            fleet: Fleet = stack.enter_context(RedisFleet(directory, server, **OPTIONS))
        else:
            fleet = stack.enter_context(Fleet(directory, **OPTIONS))
        return play(fleet, f"{seed} {store}", times, pause=PAUSE, tell=tell)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--times", type=int, default=TIMES)
    parser.add_argument("--store", choices=[*get_args(StoreKind), "both"], default="both")
    parser.add_argument("--seed", default=None, help="moments, signals, clocks and bodies; default: the time of day")
    options = parser.parse_args()
    seed = options.seed or time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    stores: list[StoreKind] = [kind for kind in get_args(StoreKind) if options.store in {kind, "both"}]
    accounts = {store: on(store, seed, options.times) for store in stores}
    for account in accounts.values():
        for what, slots in (("twice", account.twice), ("lost", account.lost)):
            for slot in slots:
                say(f"{what}: {slot}")
    conclude(
        "slots",
        [
            (
                f"seed {seed}; three `singletonjob run` processes with three jobs of `* * * * * *`, one for each"
                f" `misfire`; scaled: `lock_expiry` {OPTIONS['lock_expiry']}; each process's wall clock off by up to"
                f" {OFF:g} s either way, the store's right; one body in twenty lasts until after the next slot"
            ),
            *(
                f"{store}, {account.hand_overs.total()} hand-overs ({listed(account.hand_overs)}): of {account.slots}"
                f" slots from the first that ran to the last {account.ran} ran, {len(account.twice)} of them twice;"
                f" reported: {listed(account.missed)}; {len(account.lost)} neither ran nor were reported; reported"
                f" although they ran: {listed(account.ran_and_missed)}; {account.overlaps} overlaps"
                for store, account in accounts.items()
            ),
            (
                "measured: bodies and a subscriber to `Misfired` stamp slots in each process, a line that SIGKILL"
                " cannot take back"
            ),
        ],
        good=all(account.good for account in accounts.values()),
        record=options.record,
    )


if __name__ == "__main__":
    main()
